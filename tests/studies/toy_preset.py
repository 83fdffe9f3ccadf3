"""A preset for studies that trains in seconds."""

from __future__ import annotations


def toy_preset(*, pretrain_chunks: int) -> str:
    """Pretraining on this many chunks, and a small detector; as TOML, to which more may be added."""
    return f"""
size = "tiny"
front_end = {{ n_bins = 32, chunk_frames = 128 }}

[pretrain]
batch_size = 16
epochs = 1
held_out = 0.2
max_chunks = {pretrain_chunks}

[train]
batch_size = 16
epochs = 1
score_threshold = 0.001
detector = {{ channels = 32, levels = 3, head_convs = 1 }}
"""
