from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import soundfile as sf
import torch
from toy_recipe import FRONT_END

from mast.data.chunk_dataset import collate
from mast.data.recordings import load_dataset
from mast.training.sources import decode_once, decoded, in_order, labelled_chunks


def test_decoded_chunks_give_the_same_batches(tones: Path) -> None:
    chunks = labelled_chunks(load_dataset(tones), FRONT_END)["train"]
    held = replace(chunks, sound=decoded(chunks, torch.device("cpu")))
    rows = [5, 0, len(chunks) - 1, 5]
    expected, taken = collate([chunks.examples[row] for row in rows]), held.take(rows)
    for one, other in zip(expected, taken, strict=True):
        if isinstance(one, torch.Tensor):
            assert isinstance(other, torch.Tensor)
            assert torch.equal(one, other)
            assert one.dtype == other.dtype
        else:
            assert one == other
    read, kept = (list(in_order(some, batch_size=7)) for some in (chunks, held))
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
