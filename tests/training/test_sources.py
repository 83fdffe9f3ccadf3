from __future__ import annotations

from dataclasses import replace
from pathlib import Path

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
