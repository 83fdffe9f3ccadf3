from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.annotations import AnnotationSet
from mast.audio import read, windows
from mast.data.chunk_dataset import ChunkDataset, Example, collate
from mast.data.chunks import chunk_boxes, chunk_starts, chunk_table, split_chunks
from mast.data.noise_bank import NoiseBank
from mast.data.recordings import Dataset, load_dataset
from mast.data.splits import SplitConfig
from mast.errors import ConfigError
from mast.features.logmel import LogMel
from mast.grid import FrontEnd, events_to_grid

FRONT_END = FrontEnd(
    sample_rate=8_000, high_hz=4_000, n_bins=16, hop_samples=80, window_samples=200, chunk_frames=128
)
CHUNK_S = FRONT_END.chunk_s  # 1.28 s


def dataset_of(
    root: Path = Path("."),
    *,
    durations: dict[str, float],
    events: Sequence[tuple[str, float, float, float, float]] = (),
    reviewed: list[tuple[str, float, float]] | None = None,
    clock: str = "2023-05-10T23:59:58",
) -> Dataset:
    """A dataset from a few numbers; events are (recording, start_s, end_s, low_hz, high_hz)."""
    spans = [(name, 0.0, length) for name, length in durations.items()] if reviewed is None else reviewed
    table = pd.DataFrame({"file": list(durations), "duration_s": list(durations.values())})
    return Dataset(
        root,
        table.assign(site="S", datetime=clock, split=""),
        AnnotationSet(
            pd.DataFrame(list(events), columns=["recording", "start_s", "end_s", "low_hz", "high_hz"]),
            pd.DataFrame(spans, columns=["recording", "start_s", "end_s"]),
        ),
    )


@settings(max_examples=40)
@given(n_samples=st.integers(1, 80_000), hop_s=st.sampled_from([None, 0.3, 0.64, 1.28, 2.0]))
def test_chunks_are_the_windows_of_the_audio_layer(
    n_samples: int, hop_s: float | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "windows.wav"
    sf.write(path, np.random.default_rng(0).normal(0, 0.1, n_samples), 8_000)
    expected = [(w.start_s, w.valid_s) for w in windows(path, FRONT_END, hop_s=hop_s)]
    starts, valid = chunk_starts(n_samples / 8_000, FRONT_END, hop_s=hop_s)
    assert list(zip(starts.tolist(), valid.tolist(), strict=True)) == expected


@settings(max_examples=20)
@given(n_samples=st.integers(1, 8_000), hop_s=st.sampled_from([None, 1.28]))
def test_a_short_recording_is_one_chunk_where_that_is_wanted(n_samples: int, hop_s: float | None) -> None:
    without = chunk_starts(n_samples / 8_000, FRONT_END, hop_s=hop_s)
    starts, valid = chunk_starts(n_samples / 8_000, FRONT_END, hop_s=hop_s, keep_short=True)
    if 2 * n_samples < FRONT_END.chunk_samples:
        assert [list(part) for part in without] == [[], []]
        assert (starts.tolist(), valid.tolist()) == ([0.0], [n_samples / 8_000])
    else:
        assert starts.tolist() == without[0].tolist()


def test_the_rest_of_a_longer_recording_is_dropped_all_the_same() -> None:
    starts, _ = chunk_starts(1.28 + 0.3, FRONT_END, hop_s=1.28, keep_short=True)
    assert starts.tolist() == [0.0]
    assert len(chunk_starts(0.0, FRONT_END, keep_short=True)[0]) == 0


def test_the_papers_chunks_of_a_minute() -> None:
    starts, valid = chunk_starts(60.0, FrontEnd())
    assert starts.tolist() == pytest.approx([5.12 * k for k in range(11)])
    assert valid.tolist() == pytest.approx([10.24] * 10 + [8.8])
    with pytest.raises(ConfigError, match="less than one sample"):
        chunk_starts(60.0, FrontEnd(), hop_s=0.0)


def test_the_table_of_chunks() -> None:
    table = chunk_table(dataset_of(durations={"a.wav": 4.0, "b.wav": 0.3, "c.wav": 0.7}), FRONT_END)
    assert table["recording"].tolist() == ["a.wav"] * 6 + ["c.wav"]
    assert table["start_s"].tolist() == pytest.approx([0, 0.64, 1.28, 1.92, 2.56, 3.2, 0])
    assert table["valid_s"].tolist() == pytest.approx([1.28] * 5 + [0.8, 0.7])
    assert table["hour"].tolist() == [23, 23, 23, 23, 0, 0, 23]  # past midnight during the recording
    assert table["datetime"].iloc[4] == "2023-05-11T00:00:00.560"
    assert table["labelled"].all()


def test_unknown_times_stay_unknown_and_no_chunks_are_a_table_too() -> None:
    table = chunk_table(dataset_of(durations={"a.wav": 1.0}, clock=""), FRONT_END)
    assert table["hour"].isna().all()
    assert table["datetime"].tolist() == [""]
    empty = chunk_table(dataset_of(durations={"a.wav": 0.1}), FRONT_END)
    assert len(empty) == 0
    assert list(empty.columns) == list(table.columns)


def test_a_chunk_is_labelled_only_if_all_of_it_was_listened_to() -> None:
    durations = {"a.wav": 4.0, "b.wav": 4.0}
    spans = [("a.wav", 0.0, 1.5), ("a.wav", 1.5, 2.0), ("a.wav", 2.1, 3.9)]
    table = chunk_table(dataset_of(durations=durations, reviewed=spans), FRONT_END)
    heard = table[table["labelled"]]
    assert heard["recording"].unique().tolist() == ["a.wav"]
    assert heard["start_s"].tolist() == pytest.approx([0.0, 0.64, 2.56])


def test_boxes_of_chunks_against_all_events_every_time() -> None:
    rng = np.random.default_rng(0)
    start = rng.uniform(0, 58, 60)
    events = [("a.wav", s, s + d, 500.0, 900.0) for s, d in zip(start, rng.uniform(0.05, 6, 60), strict=True)]
    dataset = dataset_of(durations={"a.wav": 60.0, "b.wav": 5.0}, events=events)
    chunks = chunk_table(dataset, FRONT_END)
    found = chunk_boxes(dataset, chunks, FRONT_END)
    boxes = np.array([[s, low, e, high] for _, s, e, low, high in events])
    assert len(found) == len(chunks)
    for own, (name, at, valid) in zip(
        found, chunks[["recording", "start_s", "valid_s"]].to_numpy(), strict=True
    ):
        n_frames = min(128, round(valid * 100))
        every = events_to_grid(boxes, FRONT_END, chunk_start_s=at, n_frames=n_frames).boxes
        assert sorted(own.tolist()) == (sorted(every.tolist()) if name == "a.wav" else [])


def test_boxes_do_not_reach_into_the_padding() -> None:
    dataset = dataset_of(durations={"a.wav": 0.8}, events=[("a.wav", 0.2, 1.2, 500, 900)])
    (boxes,) = chunk_boxes(dataset, chunk_table(dataset, FRONT_END), FRONT_END)
    assert boxes[:, [0, 2]].tolist() == [[20, 80]]


def test_splitting_chunks_by_time_keeps_every_second_apart() -> None:
    dataset = dataset_of(durations={"a.wav": 100.0})
    config = SplitConfig(guard_s=2.0)
    _, chunks = split_chunks(dataset, chunk_table(dataset, FRONT_END), config)
    assert set(chunks["split"]) == {"train", "val", "test", ""}
    ends = {
        p: (own["start_s"].min(), (own["start_s"] + own["valid_s"]).max())
        for p, own in chunks.groupby("split")
    }
    assert ends["train"][1] + 2.0 <= ends["val"][0] + 1e-9
    assert ends["val"][1] + 2.0 <= ends["test"][0] + 1e-9


def test_rounded_durations_lose_no_chunk() -> None:
    """A last chunk in whole samples may be a little longer than the duration in the file says."""
    dataset = dataset_of(durations={f"r{i}.wav": 29.0 + i / 10_000 for i in range(20)})
    _, chunks = split_chunks(dataset, chunk_table(dataset, FRONT_END))
    assert (chunks["split"] != "").all()


def test_splitting_by_recording_spreads_the_boxes() -> None:
    durations = {f"r{i}.wav": 5.0 for i in range(12)}
    dataset = dataset_of(durations=durations, events=[(f"r{i}.wav", 1.0, 2.0, 500, 900) for i in range(3)])
    split, chunks = split_chunks(dataset, chunk_table(dataset, FRONT_END), SplitConfig())
    for part in ("train", "val", "test"):
        assert set(split.recordings(part)) & {"r0.wav", "r1.wav", "r2.wav"}
    assert chunks.groupby("recording")["split"].nunique().max() == 1
    assert (chunks["split"] != "").all()


def test_a_few_boxes_are_for_training_and_validation() -> None:
    durations = {f"r{i}.wav": 5.0 for i in range(10)}
    dataset = dataset_of(durations=durations, events=[(name, 1.0, 2.0, 500, 900) for name in durations])
    split, _ = split_chunks(dataset, chunk_table(dataset, FRONT_END))
    assert [(part, len(split.recordings(part))) for part in split.parts] == [("train", 7), ("val", 3)]


@pytest.fixture
def sounds(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    for name, rate in (("a.wav", 8_000), ("b.flac", 12_000), ("c.mp3", 16_000), ("d.ogg", 8_000)):
        t = np.arange(round(7.3 * rate)) / rate
        sf.write(
            tmp_path / name,
            0.1 * np.sin(2 * np.pi * (300 + 100 * t) * t) + 0.2 + rng.normal(0, 0.02, len(t)),
            rate,
        )
    (tmp_path / "recordings.csv").write_text("file\na.wav\nb.flac\nc.mp3\nd.ogg\n")
    (tmp_path / "boxes.csv").write_text("file,start_s,end_s,low_hz,high_hz,label\na.wav,1,2,500,900,x\n")
    return tmp_path


def test_chunks_read_by_seeking_are_those_read_in_order(sounds: Path) -> None:
    dataset = load_dataset(sounds)
    chunks = chunk_table(dataset, FRONT_END)
    examples = ChunkDataset(dataset, chunks, FRONT_END)
    rows = dict(
        zip(
            zip(chunks["recording"], chunks["start_s"].round(6), strict=True), range(len(chunks)), strict=True
        )
    )
    compared = 0
    for name in dataset.recordings["file"]:
        for window in windows(dataset.path(name), FRONT_END):
            example = examples[rows[name, round(window.start_s, 6)]]
            np.testing.assert_allclose(example.waveform.numpy(), window.samples, atol=2e-4)
            compared += 1
    assert compared == len(chunks) == len(examples)


def test_examples_and_batches(sounds: Path) -> None:
    dataset = load_dataset(sounds)
    chunks = chunk_table(dataset, FRONT_END)
    examples = ChunkDataset(dataset, chunks, FRONT_END, weights=np.linspace(0, 1, len(chunks)).tolist())
    example = examples[1]
    assert example.waveform.shape == (FRONT_END.chunk_samples,)
    assert example.waveform.dtype == torch.float32
    assert example.waveform.mean().item() == pytest.approx(0, abs=1e-6)
    assert example.boxes[:, [0, 2]].tolist() == [[36.0, 128.0]]
    last = examples[int(chunks.index[chunks["recording"] == "a.wav"][-1])]
    valid = round(chunks.loc[chunks["recording"] == "a.wav", "valid_s"].iloc[-1] * 8_000)
    assert valid < FRONT_END.chunk_samples
    assert (last.waveform[valid:] == 0).all()
    assert last.waveform[:valid].mean().item() == pytest.approx(0, abs=1e-6)

    batch = collate([examples[i] for i in (3, 1)])
    assert batch.waveforms.shape == (2, FRONT_END.chunk_samples)
    assert batch.rows.tolist() == [3, 1]
    assert batch.weights.tolist() == pytest.approx([3 / (len(chunks) - 1), 1 / (len(chunks) - 1)])
    assert [len(b) for b in batch.boxes] == [0, 1]


def test_worker_processes_give_the_same(sounds: Path) -> None:
    dataset = load_dataset(sounds)
    chunks = chunk_table(dataset, FRONT_END).iloc[:6]
    examples = ChunkDataset(dataset, chunks, FRONT_END)
    loaded = list(torch.utils.data.DataLoader(examples, batch_size=4, num_workers=1, collate_fn=collate))
    assert [b.rows.tolist() for b in loaded] == [[0, 1, 2, 3], [4, 5]]
    assert torch.equal(loaded[1].waveforms[0], examples[4].waveform)


def test_unlabelled_chunks_are_refused_unless_boxes_are_given() -> None:
    dataset = dataset_of(durations={"a.wav": 4.0}, reviewed=[("a.wav", 0.0, 1.5)])
    chunks = chunk_table(dataset, FRONT_END)
    with pytest.raises(
        ConfigError, match=r"5 of 6 were not listened to from end to end, the first at 0.64 s of a.wav"
    ):
        ChunkDataset(dataset, chunks, FRONT_END)
    pseudo = ChunkDataset(dataset, chunks, FRONT_END, boxes=[np.zeros((0, 4), dtype=np.int64)] * len(chunks))
    assert len(pseudo) == len(chunks)


def test_a_batch_of_an_example_without_boxes() -> None:
    batch = collate([Example(torch.zeros(8), torch.empty(0, 4), torch.empty(0, dtype=torch.bool), 1.0, 0)])
    assert batch.boxes[0].shape == (0, 4)


def test_noise_bank_from_empty_chunks(sounds: Path) -> None:
    dataset = load_dataset(sounds)
    chunks = chunk_table(dataset, FRONT_END)
    examples = ChunkDataset(dataset, chunks, FRONT_END)
    empty = [i for i in range(len(chunks)) if len(examples.boxes[i]) == 0]
    assert 0 < len(empty) < len(chunks)
    bank = NoiseBank.from_chunks([examples])
    assert len(bank) == len(empty)
    expected = LogMel(FRONT_END).chunk_features(examples[empty[0]].waveform[None])
    torch.testing.assert_close(bank.spectrograms[0].float(), expected[0], atol=0.02, rtol=0)
    assert len(NoiseBank.from_chunks([examples, examples], max_backgrounds=3)) == 3
    drawn = bank.draw(5, generator=torch.Generator().manual_seed(0))
    assert drawn.shape == (5, 1, FRONT_END.chunk_frames, FRONT_END.n_bins)
    assert drawn.dtype == torch.float32
    assert torch.equal(drawn, bank.draw(5, generator=torch.Generator().manual_seed(0)))


def test_an_empty_noise_bank_is_refused() -> None:
    with pytest.raises(ConfigError, match="noise bank"):
        NoiseBank(torch.empty(0, 1, 4, 4))


@pytest.mark.real
def test_a_real_set_gives_labelled_chunks_with_boxes(shared_data: Path) -> None:
    dataset = load_dataset(shared_data / "birdeep_am1")
    front_end = FrontEnd()
    chunks = chunk_table(dataset, front_end)
    assert len(chunks) == 20 * 11
    examples = ChunkDataset(dataset, chunks, front_end)
    assert sum(len(b) for b in examples.boxes) >= 87
    row = next(i for i, boxes in enumerate(examples.boxes) if len(boxes))
    start = chunks["start_s"].iloc[row]
    sound = read(dataset.path(chunks["recording"].iloc[row]), start_s=start, end_s=start + 10.24)
    np.testing.assert_allclose(examples[row].waveform.numpy(), sound - sound.mean(), atol=1e-6)
