"""Songs made of calls: a short call repeated in its own chunk, as one animal would.

Experts draw one box around notes that follow each other closely, and one box around each call otherwise. Which gap
divides the two is a habit, and a detector learns it from the few singers that an expert happened to label. Repeating
any call shows the habit in every voice: with gaps that the expert would have closed, the row is one box; with wider
gaps, each call keeps its own. Beyond the paper.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mast.arrays import FloatArray
from mast.data.transforms import NATS_PER_DB, BoxTable, box_table, join_tables, take_frames, to_device_of
from mast.events import pairwise_band_iou

# all of these are our choice
_NOTE_FRAMES = (2, 60)  # length of a call that is repeated
_SONGS = 0.6  # share of the rows that are songs
_SONG_FRAMES = (60.0, 900.0)
_NOTES, _CALLS = (3, 40), (2, 8)  # in a song, in a row of calls
_NARROW, _WIDE = (0.1, 0.9), (1.4, 4.0)  # gaps of songs and of rows, in units of the one that divides them
_SPREADS = (0.0, 0.0, 3.0, 6.0)  # bins by which the notes of a song differ in pitch
_JITTER = 0.08  # of the gap, by which onsets are early or late
_FLICKER_DB, _SWELL_DB = 1.5, 4.0  # from one note to the next, and over the whole row
_ABOVE_DB = 5.0  # a cell this far above the chunk's usual level belongs to the call
_SILENT = -100.0  # nats
_SAME_BAND = 0.6  # minimum overlap of the bands of one animal's calls
_CLOSE_FRAMES = 100.0  # frames: longer gaps say nothing about what is joined
_CHANCE_SHARE = 0.2  # share of the close gaps that are between different animals
_ENOUGH_GAPS = 20  # close gaps to judge by
USUAL_GAP = 25.0  # frames, where there are fewer


class _CallSeries(NamedTuple):
    """A call, and where it is repeated."""

    call: tuple[float, float, float, float]
    onsets: list[int]  # first frames of the copies
    bins: list[int]  # by which they are higher
    nats: list[float]  # by which they are louder
    song: bool

    @property
    def frames(self) -> tuple[int, int]:
        """First frame of the call and the one after its last."""
        return int(self.call[0]), math.ceil(self.call[2])

    @property
    def copies(self) -> Tensor:
        """(K, 4) boxes of the copies."""
        moved = [(onset - self.frames[0], up) for onset, up in zip(self.onsets, self.bins, strict=True)]
        return torch.tensor(self.call) + torch.tensor([[*by, *by] for by in moved], dtype=torch.float32)


def dividing_gap(boxes: Sequence[Tensor]) -> float:
    """The gap in frames below which the expert draws one box around two calls.

    Boxes that follow each other in one band with a shorter gap are two animals' calls, close by chance. In simulated
    worlds, whose gap is known, this is so for about a fifth of the gaps under a second.

    Args:
        boxes: (M, 4) cells of each chunk.
    """
    found = [_gaps(own.double().cpu().numpy()) for own in boxes if len(own)]
    gaps = np.concatenate([np.empty(0), *found])
    close = gaps[(gaps > 0) & (gaps < _CLOSE_FRAMES)]
    return float(np.quantile(close, _CHANCE_SHARE)) if len(close) >= _ENOUGH_GAPS else USUAL_GAP


def _gaps(cells: FloatArray) -> FloatArray:
    """Frames from each box of a chunk to the next in its band; negative where they overlap."""
    cells = cells[np.argsort(cells[:, 0], kind="stable")]
    alike = np.triu(pairwise_band_iou(cells, cells) >= _SAME_BAND, 1)
    first = np.flatnonzero(alike.any(axis=1))
    gaps: FloatArray = cells[alike[first].argmax(axis=1), 0] - cells[first, 2]
    return gaps


def repeat_calls(
    spectrograms: Tensor, boxes: BoxTable, *, gap: float, generator: torch.Generator
) -> tuple[Tensor, BoxTable]:
    """Repeat one short call of each example; one in which no call stands alone stays as it is.

    Args:
        spectrograms: (B, 1, T, F) raw log-mel.
        boxes: of the examples.
        gap: frames that divide a song from a row of calls.
        generator: a CPU generator.
    """
    rng = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
    series: dict[int, _CallSeries] = {}
    for k in range(len(spectrograms)):
        row = _draw_series(boxes.rows(torch.tensor([k])), spectrograms.shape[2:], gap, rng)
        if row is not None:
            series[k] = row
    return _add_copies(spectrograms, series), _add_boxes(boxes, series)


def _draw_series(
    boxes: BoxTable, shape: Sequence[int], gap: float, rng: np.random.Generator
) -> _CallSeries | None:
    """What is repeated in one example, and where."""
    n_frames, n_bins = shape
    alone = _isolated_calls(boxes, n_frames)
    if not len(alone):
        return None
    t1, f1, t2, f2 = boxes.cells[0, int(rng.choice(alone))].tolist()
    first, length = int(t1), math.ceil(t2) - int(t1)
    song = bool(rng.random() < _SONGS)
    between = gap * rng.uniform(*(_NARROW if song else _WIDE))
    step = length + max(1.0, between)
    if song:
        song_frames = np.exp(rng.uniform(*np.log(_SONG_FRAMES)))
        count = int(np.clip(round((song_frames + between) / step), *_NOTES))
    else:
        count = int(rng.integers(*_CALLS, endpoint=True))
    place = int(rng.integers(count))  # of the call itself
    kinds = rng.normal(0.0, rng.choice(_SPREADS), int(rng.integers(1, 5))).round() if song else np.zeros(1)
    kinds[0] = 0
    kinds = kinds.clip(-math.floor(f1), n_bins - math.ceil(f2))
    swell = rng.normal(0.0, _SWELL_DB)
    onsets, bins, nats = [], [], []
    for k in range(count):
        onset = round(first + (k - place) * step + rng.normal(0.0, _JITTER) * between)
        if k == place or onset < 0 or onset + length > n_frames:
            continue
        onsets.append(onset)
        bins.append(int(rng.choice(kinds)))
        nats.append((swell * (k - place) / count + rng.normal(0.0, _FLICKER_DB)) * NATS_PER_DB)
    return _CallSeries((t1, f1, t2, f2), onsets, bins, nats, song) if onsets else None


def _isolated_calls(boxes: BoxTable, n_frames: int) -> np.ndarray:
    """Numbers of the short calls of one example that no other box touches."""
    cells, kept = boxes.cells[0], boxes.kept[0]
    length = cells[:, 2] - cells[:, 0]
    low, high = cells[:, None, :2].maximum(cells[None, :, :2]), cells[:, None, 2:].minimum(cells[None, :, 2:])
    touches = ((high > low).all(dim=-1) & kept[None]).sum(dim=1) > 1  # each touches itself
    fits = (length >= _NOTE_FRAMES[0]) & (length <= _NOTE_FRAMES[1])
    inside = (cells[:, 0] >= 1) & (cells[:, 2] <= n_frames - 1)
    return (kept & boxes.sure[0] & fits & inside & ~touches).nonzero().flatten().numpy()


def _add_copies(spectrograms: Tensor, series: Mapping[int, _CallSeries]) -> Tensor:
    """The examples with the copies of their calls added."""
    batch, _, n_frames, n_bins = spectrograms.shape
    source = torch.zeros(batch, n_frames, dtype=torch.long)  # the frame that is heard again
    bins = torch.zeros(batch, n_frames, dtype=torch.long)
    nats = torch.full((batch, n_frames), _SILENT)
    band = torch.zeros(batch, 2)
    for k, row in series.items():
        first, last = row.frames
        band[k] = torch.tensor(row.call)[1::2]
        for onset, up, louder in zip(row.onsets, row.bins, row.nats, strict=True):
            own = slice(onset, onset + last - first)
            source[k, own], bins[k, own], nats[k, own] = torch.arange(first, last), up, louder
    number = torch.arange(n_bins)
    in_band = (number >= band[:, :1].floor()) & (number < band[:, 1:].ceil())  # (B, F)
    usual = spectrograms[:, :, ::8].median(dim=2, keepdim=True).values  # (B, 1, 1, F)
    clear = (spectrograms > usual + _ABOVE_DB * NATS_PER_DB) & to_device_of(spectrograms, in_band)[
        :, None, None
    ]
    call = take_frames(torch.where(clear, spectrograms, _SILENT), source)
    index = number - bins[:, :, None]  # (B, T, F)
    within = to_device_of(spectrograms, (index >= 0) & (index < n_bins))[:, None]
    moved = call.gather(3, to_device_of(spectrograms, index.clamp(0, n_bins - 1))[:, None])
    copied = torch.where(within, moved, _SILENT) + to_device_of(spectrograms, nats)[:, None, :, None]
    return torch.logaddexp(spectrograms, copied)


def _add_boxes(boxes: BoxTable, series: Mapping[int, _CallSeries]) -> BoxTable:
    """The boxes with those of the copies, or with the song's in place of its notes'."""
    copies = [series[k].copies if k in series else torch.zeros(0, 4) for k in range(len(boxes.cells))]
    table = join_tables(boxes, box_table(copies))
    for k, row in series.items():
        if not row.song:
            continue
        notes = torch.cat([torch.tensor(row.call)[None], copies[k]])
        song = torch.cat([notes[:, :2].amin(dim=0), notes[:, 2:].amax(dim=0)])
        table.kept[k] &= ~_inside_song(table.cells[k], song)
        spare = int((~table.kept[k]).nonzero()[0])  # there is one: the call itself is part of the song
        table.cells[k, spare], table.kept[k, spare] = song, True
        table.visible[k, spare], table.sure[k, spare] = 1.0, True
    return table


def _inside_song(cells: Tensor, song: Tensor) -> Tensor:
    """Which boxes (M, 4) lie mostly in a song: its notes, and calls that can no longer be told from them."""
    low, high = cells[:, :2].maximum(song[:2]), cells[:, 2:].minimum(song[2:])
    shared = (high - low).clamp(min=0) / (cells[:, 2:] - cells[:, :2]).clamp(min=1e-6)
    return (shared >= _SAME_BAND).all(dim=1)
