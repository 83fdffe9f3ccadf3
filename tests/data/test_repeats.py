from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import painted_spectrograms
import pytest
import torch
from painted_spectrograms import BRIGHT, QUIET
from torch import Tensor

from mast.data.augment import BY_DEFAULT, AugmentConfig, augment_batch
from mast.data.repeats import USUAL_GAP, dividing_gap, repeat_calls
from mast.data.transforms import BoxTable, listed_boxes

T, F = 512, 64
GAP = 20.0
CALL = [240, 20, 260, 30]


painted = partial(painted_spectrograms.painted, shape=(T, F))


def repeated(spectrograms: Tensor, boxes: BoxTable, seed: int = 0) -> tuple[Tensor, list[Tensor]]:
    out, table = repeat_calls(spectrograms, boxes, gap=GAP, generator=torch.Generator().manual_seed(seed))
    return out, listed_boxes(table)


def bright_runs(spectrogram: Tensor) -> list[tuple[int, int]]:
    """First and past-the-last frame of each stretch of bright frames."""
    bright = (spectrogram[0] > BRIGHT).any(dim=1).tolist()
    runs = [(value, len(list(own))) for value, own in itertools.groupby(bright)]
    ends = np.cumsum([length for _, length in runs]).tolist()
    return [(end - length, end) for (value, length), end in zip(runs, ends, strict=True) if value]


def bright_band(spectrogram: Tensor, first: int, last: int) -> tuple[int, int]:
    bins = (spectrogram[0, first:last] > BRIGHT).any(dim=0).nonzero().flatten()
    return int(bins[0]), int(bins[-1]) + 1


def test_close_repeats_have_one_box_and_distant_ones_a_box_each() -> None:
    spectrograms, boxes = painted(*[[CALL]] * 64)
    out, listed = repeated(spectrograms, boxes)
    songs = rows = 0
    for spectrogram, own in zip(out, listed, strict=True):
        runs = bright_runs(spectrogram)
        gaps = [later[0] - earlier[1] for earlier, later in itertools.pairwise(runs)]
        assert len(runs) > 1
        if len(own) == 1:
            songs += 1
            assert max(gaps) < 1.1 * GAP
            low, high = bright_band(spectrogram, 0, T)
            assert own[0].tolist() == pytest.approx([runs[0][0], low, runs[-1][1], high], abs=1e-4)
        else:
            rows += 1
            assert min(gaps) > GAP
            found = sorted((t1, t2) for t1, _, t2, _ in own.tolist())
            assert found == runs
            for t1, f1, t2, f2 in own.tolist():
                assert (f1, f2) == bright_band(spectrogram, int(t1), int(t2)) == (20, 30)
    assert songs > 20
    assert rows > 10


def test_notes_of_some_songs_differ_in_pitch_and_stay_within_the_band() -> None:
    spectrograms, boxes = painted(*[[[240, 1, 250, 9]]] * 64)
    out, listed = repeated(spectrograms, boxes)
    lows = set()
    for spectrogram, own in zip(out, listed, strict=True):
        for first, last in bright_runs(spectrogram):
            low, high = bright_band(spectrogram, first, last)
            assert high - low == 8
            lows.add(low)
        assert (own[:, 1] >= 0).all()
        assert (own[:, 3] <= F).all()
    assert min(lows) == 0
    assert len(lows) > 4


@pytest.mark.parametrize(
    ("boxes", "why"),
    [
        ([], "no call"),
        ([[100, 20, 190, 30]], "too long for a note"),
        ([[100, 20, 120, 30], [110, 25, 130, 40]], "two calls that touch"),
        ([[0, 20, 20, 30]], "cut off by the chunk's edge"),
    ],
)
def test_what_cannot_be_repeated_stays_as_it_is(boxes: list[list[int]], why: str) -> None:
    spectrograms, table = painted(boxes, [CALL])
    out, listed = repeated(spectrograms, table)
    assert torch.equal(out[0], spectrograms[0]), why
    assert listed[0].tolist() == boxes
    assert not torch.equal(out[1], spectrograms[1])


def test_doubtful_and_dropped_calls_are_not_repeated() -> None:
    spectrograms, boxes = painted([CALL], [CALL])
    boxes.sure[0], boxes.kept[1] = False, False
    out, _ = repeated(spectrograms, boxes)
    assert torch.equal(out, spectrograms)


def test_inputs_are_left_as_they_were() -> None:
    spectrograms, boxes = painted([CALL], [CALL, [10, 40, 40, 50]])
    before, cells, kept = spectrograms.clone(), boxes.cells.clone(), boxes.kept.clone()
    for seed in range(8):
        repeated(spectrograms, boxes, seed)
    assert torch.equal(spectrograms, before)
    assert torch.equal(boxes.cells, cells)
    assert torch.equal(boxes.kept, kept)


def test_only_the_call_is_heard_again_not_the_noise_around_it() -> None:
    """A box of which one corner is bright: the rest of it adds next to nothing elsewhere."""
    spectrograms, boxes = painted([CALL])
    spectrograms[0, 0, 250:260, 20:30] = QUIET
    out, _ = repeated(spectrograms, boxes, seed=3)
    changed = (out - spectrograms)[0, 0]
    assert (changed > 6).sum() == (out[0, 0] > 0).sum() - 100
    assert changed[(changed < 6)].abs().max() < 1e-3


def test_calls_that_a_song_swallows_lose_their_boxes_and_others_keep_them() -> None:
    """Beside the note that is repeated: a call right in the song's way, and one above it."""
    seen = 0
    for seed in range(30):
        spectrograms, boxes = painted([CALL, [270, 20, 345, 30], [240, 45, 310, 60]])
        _, (own,) = repeated(spectrograms, boxes, seed)
        rows = own.tolist()
        assert [240, 45, 310, 60] in rows
        song = next(
            (
                row
                for row in rows
                if row[2] - row[0] > 60 and row[0] <= 270 and row[2] >= 345 and row[1] <= 20
            ),
            None,
        )
        if song is not None and song != [270, 20, 345, 30] and len(rows) == 2:
            seen += 1
            assert [270, 20, 345, 30] not in rows
    assert seen > 3


def rows_of_calls(gaps: list[float]) -> Tensor:
    """Calls of one animal with these gaps between them."""
    starts = np.cumsum([5.0, *(12 + gap for gap in gaps)])
    return torch.tensor([[at, 10, at + 12, 20] for at in starts.tolist()], dtype=torch.float64)


def test_the_gap_that_divides_against_a_list_of_gaps() -> None:
    rng = np.random.default_rng(0)
    gaps = [rng.uniform(10, 140, 6).tolist() for _ in range(80)]
    chunks = [rows_of_calls(own) for own in gaps]
    expected = np.quantile([gap for own in gaps for gap in own if gap < 100], 0.2)
    assert dividing_gap(chunks) == pytest.approx(expected)
    shuffled = [own[torch.from_numpy(rng.permutation(len(own)))] for own in chunks]
    assert dividing_gap(shuffled) == pytest.approx(expected)
    another_band = [torch.cat([own, own + torch.tensor([3.0, 30, 3, 30])]) for own in chunks]
    assert dividing_gap(another_band) == pytest.approx(expected, abs=0.5)


def test_the_gap_without_rows_is_the_usual_one() -> None:
    assert dividing_gap([]) == USUAL_GAP
    assert dividing_gap([torch.zeros(0, 4), torch.tensor([[1.0, 2, 3, 4]])]) == USUAL_GAP
    overlapping = torch.tensor([[1.0, 2, 30, 40], [10.0, 2, 50, 40]])
    assert dividing_gap([overlapping]) == USUAL_GAP


def test_repeats_happen_only_where_they_are_asked_for() -> None:
    assert "repeats" not in BY_DEFAULT
    assert AugmentConfig().operations == BY_DEFAULT
    spectrograms, boxes = painted(*[[CALL]] * 8)
    config = AugmentConfig(probability=1.0, most=1, operations=("repeats",), song_gap=GAP)
    out = augment_batch(spectrograms, listed_boxes(boxes), config, generator=torch.Generator().manual_seed(0))
    assert all(len(bright_runs(spectrogram)) > 1 for spectrogram in out.spectrograms)
