from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
import torch
from toy_recipe import FRONT_END, small_recipe

from mast.data.chunk_dataset import ChunkDataset, collate
from mast.data.recordings import load_dataset
from mast.errors import MastError
from mast.features.logmel import LogMel
from mast.training.chosen_chunks import (
    cached_normalisation,
    decode_once,
    decoded_chunks,
    hold_out,
    labelled_chunks,
    ordered_batches,
    unlabelled_chunks,
)
from mast.training.machine import prepare_machine


def test_decoded_chunks_give_the_same_batches(tones: Path) -> None:
    chunks = labelled_chunks(load_dataset(tones), FRONT_END)["train"]
    held = replace(chunks, sound=decoded_chunks(chunks, torch.device("cpu")))
    for part in chunks.examples.datasets:
        assert isinstance(part, ChunkDataset)
        part.weights = np.linspace(0.1, 0.9, len(part))  # as pseudo-labels have them
    rows = [5, 0, len(chunks) - 1, 5]
    expected, taken = collate([chunks.examples[row] for row in rows]), held.take(rows)
    for one, other in zip(expected, taken, strict=True):
        if isinstance(one, torch.Tensor):
            assert isinstance(other, torch.Tensor)
            assert torch.equal(one, other)
            assert one.dtype == other.dtype
        else:
            assert one == other
    read, kept = (list(ordered_batches(some, batch_size=7)) for some in (chunks, held))
    assert [batch.counts for batch in read] == [batch.counts for batch in kept]
    assert torch.equal(torch.cat([b.waveforms for b in read]), torch.cat([b.waveforms for b in kept]))


def test_a_cpu_keeps_nothing_in_memory(tones: Path) -> None:
    chunks = labelled_chunks(load_dataset(tones), FRONT_END)["val"]
    assert decode_once(chunks, torch.device("cpu")) is chunks


def test_labelled_clips_shorter_than_half_a_chunk_are_learnt_from(tmp_path: Path) -> None:
    length_s = 0.4 * FRONT_END.chunk_s
    rng = np.random.default_rng(0)
    names = [f"clip{k}.wav" for k in range(8)]
    (tmp_path / "audio").mkdir()
    for name in names:
        sound = rng.normal(0, 0.1, round(length_s * FRONT_END.sample_rate))
        sf.write(tmp_path / "audio" / name, sound, FRONT_END.sample_rate)
    box = {"start_s": 0.1, "end_s": length_s + 5.0, "low_hz": 100.0, "high_hz": 2_000.0, "label": "a"}
    pd.DataFrame([{"file": name, **box} for name in names]).to_csv(tmp_path / "boxes.csv", index=False)
    parts = labelled_chunks(load_dataset(tmp_path), FRONT_END)
    assert sorted(name for part in parts.values() for name in part.table["recording"]) == names
    for part in parts.values():
        for example in (part.examples[row] for row in range(len(part))):
            sounding = round(length_s * FRONT_END.sample_rate)
            assert len(example.waveform) == FRONT_END.chunk_samples
            assert example.waveform[:sounding].abs().max() > 0
            assert example.waveform[sounding:].abs().max() == 0
            assert len(example.boxes) == 1
            assert example.boxes[0, 2] <= np.ceil(length_s / FRONT_END.hop_s)  # none into the padding


def clips(
    root: Path, *, lengths_s: list[float], split: list[str] | None = None, low_hz: float = 100.0
) -> Path:
    """Recordings of noise with a box each."""
    (root / "audio").mkdir(parents=True)
    rng = np.random.default_rng(0)
    names = [f"clip{k}.wav" for k in range(len(lengths_s))]
    for name, length_s in zip(names, lengths_s, strict=True):
        sf.write(root / "audio" / name, rng.normal(0, 0.1, round(length_s * 48_000)), 48_000)
    box = {"start_s": 0.1, "end_s": 0.5, "low_hz": low_hz, "high_hz": low_hz + 1_000.0, "label": "a"}
    pd.DataFrame([{"file": name, **box} for name in names]).to_csv(root / "boxes.csv", index=False)
    rows = pd.DataFrame({"file": names, "split": split or [""] * len(names)})
    rows.to_csv(root / "recordings.csv", index=False)
    return root


def refusal(root: Path) -> str:
    with pytest.raises(MastError) as caught:
        labelled_chunks(load_dataset(root), FRONT_END)
    message = str(caught.value)
    assert len(message) < 450
    return message.removeprefix(f"{root}: ")


def test_nothing_to_train_on_because_all_is_test(tmp_path: Path) -> None:
    message = refusal(clips(tmp_path / "data", lengths_s=[6.0] * 4, split=["test"] * 4))
    assert "recordings.csv puts every labelled recording (4) into test" in message
    assert "clear its column split" in message


def test_nothing_to_train_on_because_nobody_marked_what_was_heard(tmp_path: Path) -> None:
    root = clips(tmp_path / "data", lengths_s=[6.0] * 4)
    pd.read_csv(root / "recordings.csv").assign(reviewed=False).to_csv(root / "recordings.csv", index=False)
    assert "no recording is marked as listened to" in refusal(root)


def test_nothing_to_train_on_because_only_boxes_were_marked_as_heard(tmp_path: Path) -> None:
    """An export of a review in which boxes were accepted and nothing else."""
    root = clips(tmp_path / "data", lengths_s=[6.0] * 4)
    spans = pd.read_csv(root / "boxes.csv")[["file", "start_s", "end_s"]]
    spans.to_csv(root / "reviewed.csv", index=False)
    message = refusal(root)
    assert "a chunk is 2.56 s" in message
    assert "the longest stretch marked as heard lasts 0.4 s" in message


def test_nothing_to_train_on_because_too_little_is_left_beside_the_test(tmp_path: Path) -> None:
    message = refusal(clips(tmp_path / "data", lengths_s=[34.0, 6.0, 6.0], split=["", "test", "test"]))
    assert "only 1 of the labelled recordings may be trained on (the others: test)" in message
    assert "label three recordings or more" in message


def test_nothing_to_validate_on_because_nobody_listened_to_that_part(tmp_path: Path) -> None:
    root = clips(tmp_path / "data", lengths_s=[6.0] * 4, split=["", "", "", "val"])
    pd.DataFrame({"file": [f"clip{k}.wav" for k in range(3)]}).to_csv(root / "reviewed.csv", index=False)
    assert "nothing that recordings.csv puts into val was listened to" in refusal(root)


def test_boxes_above_the_band_ask_for_another(tmp_path: Path) -> None:
    message = refusal(clips(tmp_path / "data", lengths_s=[6.0] * 4, low_hz=20_000.0))
    assert message == (
        "4 of 4 boxes lie outside the band of 20–8000 Hz and are left out (--band 21000 would include them), so "
        "nothing is left to learn from"
    )


def test_parts_get_their_share_of_the_boxes_that_can_be_seen(tmp_path: Path) -> None:
    """Ten recordings, half of which hold insects above the band: those count as empty, not as boxed."""
    root = clips(tmp_path / "data", lengths_s=[6.0] * 10)
    boxes = pd.read_csv(root / "boxes.csv")
    high = boxes.index % 2 == 1
    boxes.loc[high, ["low_hz", "high_hz"]] = [12_000.0, 15_000.0]
    boxes.to_csv(root / "boxes.csv", index=False)
    dataset = load_dataset(root)
    for seed in range(8):
        with pytest.warns(UserWarning, match="5 of 10 boxes lie outside the band of 20–8000 Hz"):
            parts = labelled_chunks(dataset, FRONT_END, seed=seed)
        assert {name for name, part in parts.items() if part.n_boxes} == {"train", "val"}
        # insects are background: none of their chunks is missing, and none has a box
        assert {name for part in parts.values() for name in part.table["recording"]} == set(boxes["file"])
        for part in parts.values():
            boxed = {n for n, own in zip(part.table["recording"], part.boxes, strict=True) if len(own)}
            assert not boxed & set(boxes.loc[high, "file"])


def test_what_is_held_out_is_of_other_recordings(tones: Path) -> None:
    sources = unlabelled_chunks([tones], FRONT_END)
    learn, held = hold_out(sources, FRONT_END, share=0.25, seed=3)
    total = len(sources[0][1])
    assert len(learn) + len(held) == total
    assert held.table["recording"].nunique() == 2
    assert not set(learn.table["recording"]) & set(held.table["recording"])
    fewer, same = hold_out(sources, FRONT_END, share=0.25, seed=3, max_chunks=5)
    assert len(fewer) == 5
    assert not set(fewer.table["recording"]) & set(held.table["recording"])
    pd.testing.assert_frame_equal(same.table, held.table)
    # of a single recording, its end
    one = sources[0][1].iloc[:8]
    learn, held = hold_out([(sources[0][0], one)], FRONT_END, share=0.25, seed=3)
    assert learn.table["start_s"].max() < held.table["start_s"].min()


def test_padding_does_not_count_in_the_statistics(tmp_path: Path) -> None:
    """Clips of 0.6 chunks: the rest of each is digital silence, far below any sound."""
    rng = np.random.default_rng(0)
    samples = round(0.6 * FRONT_END.chunk_samples)
    sounds = rng.normal(0, 0.1, (4, samples))
    for k, sound in enumerate(sounds):
        sf.write(tmp_path / f"clip{k}.wav", sound, FRONT_END.sample_rate, subtype="FLOAT")
    learn, held = hold_out(unlabelled_chunks([tmp_path], FRONT_END), FRONT_END, share=0.25, seed=0)
    recipe = small_recipe()
    found = cached_normalisation([learn, held], recipe, prepare_machine(recipe), tmp_path)
    frames = LogMel(FRONT_END)(torch.from_numpy(sounds).float())  # (4, T, F), all of it sound
    assert found.mean == pytest.approx(float(frames.mean()), abs=0.1)
    assert found.std == pytest.approx(float(frames.std()), rel=0.1)
    again = cached_normalisation([], recipe, prepare_machine(recipe), tmp_path)
    assert again == found  # read, not computed
