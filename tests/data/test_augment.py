from __future__ import annotations

import itertools
import math
from functools import partial

import painted_spectrograms
import pytest
import torch
from painted_spectrograms import BRIGHT, LOUD, QUIET
from pydantic import ValidationError
from torch import Tensor

from mast.data import transforms
from mast.data.augment import BY_DEFAULT, OPERATIONS, AugmentConfig, augment_batch
from mast.data.noise_bank import NoiseBank
from mast.data.transforms import BoxTable, Limits, box_table, listed_boxes
from mast.errors import ConfigError

T, F = 128, 64
LIMITS = Limits()
KEEP_ALL = Limits(max_occlusion=1.0, min_frames=1, min_bins=1)


painted = partial(painted_spectrograms.painted, shape=(T, F))


def bright_extent(spectrogram: Tensor) -> list[int]:
    """The smallest box around everything bright: the slow, obvious way to see where the energy is."""
    t, f = (spectrogram[0] > BRIGHT).nonzero(as_tuple=True)
    return [int(t.min()), int(f.min()), int(t.max()) + 1, int(f.max()) + 1]


def only_box(boxes: BoxTable, example: int = 0) -> list[float]:
    (box,) = listed_boxes(boxes)[example]
    return box.tolist()


@pytest.mark.parametrize("frames", [-70, -9, 0, 1, 40, 80])
def test_time_shift_moves_energy_and_box_alike(frames: int) -> None:
    spectrograms, boxes = painted([[30, 10, 90, 20]])
    moved, shifted = transforms.time_shift(spectrograms, boxes, torch.tensor([frames]), LIMITS)
    assert only_box(shifted) == bright_extent(moved[0])


@pytest.mark.parametrize("bins", [-15, -3, 0, 5, 30, 45])
def test_frequency_shift_moves_energy_and_box_alike(bins: int) -> None:
    spectrograms, boxes = painted([[30, 10, 90, 30]])
    moved, shifted = transforms.frequency_shift(spectrograms, boxes, torch.tensor([bins]), LIMITS)
    assert only_box(shifted) == bright_extent(moved[0])


@pytest.mark.parametrize("stretch", [0.8, 0.93, 1.0, 1.07, 1.5])
def test_time_warp_stretches_energy_and_box_alike(stretch: float) -> None:
    spectrograms, boxes = painted([[30, 10, 90, 20]])
    warped, stretched = transforms.time_warp(spectrograms, boxes, torch.tensor([stretch]), LIMITS)
    assert only_box(stretched) == pytest.approx(bright_extent(warped[0]), abs=1.0)


def test_shifts_against_a_loop_over_frames_and_bins() -> None:
    spectrograms, boxes = painted([], [], [])
    frames, bins = torch.tensor([7, -5, 0]), torch.tensor([-4, 9, 0])
    floor = transforms.quiet_floor(spectrograms)
    later, _ = transforms.time_shift(spectrograms, boxes, frames, LIMITS)
    higher, _ = transforms.frequency_shift(spectrograms, boxes, bins, LIMITS)
    for b in range(3):
        for t in range(T):
            s = t - int(frames[b])
            expected = spectrograms[b, 0, s] if 0 <= s < T else floor[b, 0, 0]
            assert torch.equal(later[b, 0, t], expected)
        for f in range(F):
            s = f - int(bins[b])
            expected = spectrograms[b, 0, :, s] if 0 <= s < F else floor[b, 0, 0, f].expand(T)
            assert torch.equal(higher[b, 0, :, f], expected)


def test_time_warp_against_interpolation_frame_by_frame() -> None:
    spectrograms, boxes = painted([[20, 5, 60, 30]], [[20, 5, 60, 30]])
    stretch = torch.tensor([0.9, 1.1])
    warped, _ = transforms.time_warp(spectrograms, boxes, stretch, LIMITS)
    floor = transforms.quiet_floor(spectrograms)
    for b in range(2):
        for t in range(T):
            s = (t + 0.5) / float(stretch[b]) - 0.5
            if s >= T - 0.5:
                expected = floor[b, 0, 0]
            else:
                below = math.floor(s)
                first, second = spectrograms[b, 0, max(below, 0)], spectrograms[b, 0, min(below + 1, T - 1)]
                expected = first + (s - below) * (second - first)
            torch.testing.assert_close(warped[b, 0, t], expected, atol=1e-3, rtol=0)


def test_quiet_floor_is_a_low_percentile_that_calls_do_not_raise() -> None:
    ramp = torch.arange(80.0).reshape(
        1, 1, 80, 1
    )  # frames 0, 8, … 72 are looked at; the lowest tenth is the first
    assert transforms.quiet_floor(ramp).item() == 0.0
    spectrograms, _ = painted([[0, 0, 100, F]])
    assert transforms.quiet_floor(spectrograms).max() < QUIET + 1


def test_a_box_shifted_out_is_dropped_and_a_sliver_too() -> None:
    spectrograms, boxes = painted([[10, 10, 40, 20], [0, 0, 5, 5], [60, 30, 61, 31]])
    _, shifted = transforms.time_shift(spectrograms, boxes, torch.tensor([-35]), LIMITS)
    # 5 frames left of the first: dropped; the second is gone; the third was always small, and is not cut
    assert listed_boxes(shifted)[0].tolist() == [[25, 30, 26, 31]]


@pytest.mark.parametrize(
    ("axis", "start", "end", "kept"),
    [(0, 30, 60, True), (0, 30, 61, False), (1, 10, 15, True), (1, 10, 16, False)],
)
def test_masks_hide_and_drop_what_is_mostly_hidden(axis: int, start: int, end: int, kept: bool) -> None:
    spectrograms, boxes = painted([[30, 10, 90, 20]])
    mask = transforms.time_mask if axis == 0 else transforms.frequency_mask
    masked, left = mask(spectrograms, boxes, torch.tensor([start]), torch.tensor([end]), LIMITS)
    hidden = masked[0, 0, start:end] if axis == 0 else masked[0, 0, :, start:end]
    untouched = torch.cat([masked[0, 0, :start], masked[0, 0, end:]]) if axis == 0 else masked[0, 0, :, end:]
    assert (hidden < QUIET + 1).all()
    assert (untouched == LOUD).any()
    assert len(listed_boxes(left)[0]) == kept


def test_two_masks_together_hide_a_box_that_neither_hides_alone() -> None:
    spectrograms, boxes = painted([[30, 10, 90, 20]])
    once, left = transforms.time_mask(spectrograms, boxes, torch.tensor([30]), torch.tensor([54]), LIMITS)
    assert len(listed_boxes(left)[0]) == 1
    _, left = transforms.frequency_mask(once, left, torch.tensor([10]), torch.tensor([14]), LIMITS)
    assert len(listed_boxes(left)[0]) == 0  # 0.6 × 0.6 of it is visible


def test_mixup_adds_powers_and_keeps_all_boxes() -> None:
    spectrograms, boxes = painted([[10, 5, 40, 15]], [[60, 30, 100, 50], [5, 5, 30, 9]])
    partner = torch.tensor([1, 0])
    mixed, joined = transforms.mixup(
        spectrograms, boxes, spectrograms[partner], boxes.rows(partner), torch.tensor([0.25, 0.5])
    )
    louder = spectrograms[0].mean() - spectrograms[1].mean()
    expected = torch.log(0.75 * spectrograms[0].exp() + 0.25 * (spectrograms[1] + louder).exp())
    torch.testing.assert_close(mixed[0], expected, atol=1e-4, rtol=0)
    assert listed_boxes(joined)[0].tolist() == [[10, 5, 40, 15], [60, 30, 100, 50], [5, 5, 30, 9]]
    assert listed_boxes(joined)[1].tolist() == [[60, 30, 100, 50], [5, 5, 30, 9], [10, 5, 40, 15]]


def test_cutmix_pastes_a_splice_and_clips_both_sets_of_boxes() -> None:
    spectrograms, boxes = painted(
        [[20, 10, 80, 20], [90, 10, 120, 20], [52, 40, 68, 50]], [[60, 30, 100, 50], [0, 0, 20, 5]]
    )
    patch = torch.tensor([[50, 0, 95, F], [0, 0, 1, 1]])
    partner = torch.tensor([1, 0])
    pasted, joined = transforms.cutmix(
        spectrograms, boxes, spectrograms[partner], boxes.rows(partner), patch, LIMITS
    )
    assert torch.equal(pasted[0, 0, 50:95], spectrograms[1, 0, 50:95])
    assert torch.equal(pasted[0, 0, :50], spectrograms[0, 0, :50])
    assert torch.equal(pasted[0, 0, 95:], spectrograms[0, 0, 95:])
    # cut at its end; cut at its start; under the patch: gone; the partner's, cut at the patch; outside: gone
    assert listed_boxes(joined)[0].tolist() == [[20, 10, 50, 20], [95, 10, 120, 20], [60, 30, 95, 50]]


@pytest.mark.parametrize(("patch", "left"), [
    ([45, 0, 55, F], [[20, 10, 45, 20], [55, 10, 80, 20]]),  # cut through: two
    ([25, 0, 65, F], [[65, 10, 80, 20]]),  # the first piece is too short to keep
    ([0, 0, T, F], []),
    ([100, 0, 128, F], [[20, 10, 80, 20]]),
    ([0, 13, 128, 15], [[20, 10, 80, 13], [20, 15, 80, 20]]),
    ([0, 0, 128, 13], [[20, 13, 80, 20]]),  # lower part covered along all of it
    ([40, 12, 80, 18], [[20, 10, 80, 20]]),  # 0.4 hidden, no whole side
    ([22, 8, 80, 19], []),  # 0.87 hidden, no whole side
])  # fmt: skip
def test_what_a_patch_leaves_of_a_box(patch: list[int], left: list[list[int]]) -> None:
    spectrograms, boxes = painted([[20, 10, 80, 20]])
    empty = box_table([torch.empty(0, 4)])
    _, joined = transforms.cutmix(spectrograms, boxes, spectrograms, empty, torch.tensor([patch]), LIMITS)
    assert listed_boxes(joined)[0].tolist() == left


def test_cutmix_drops_partner_boxes_of_which_the_patch_shows_too_little_band() -> None:
    spectrograms, boxes = painted([[20, 10, 80, 20]])
    empty = box_table([torch.empty(0, 4)])
    _, joined = transforms.cutmix(
        spectrograms, empty, spectrograms, boxes, torch.tensor([[0, 16, T, F]]), LIMITS
    )
    assert listed_boxes(joined)[0].tolist() == []
    _, joined = transforms.cutmix(
        spectrograms, empty, spectrograms, boxes, torch.tensor([[0, 14, T, F]]), LIMITS
    )
    assert listed_boxes(joined)[0].tolist() == [[20, 14, 80, 20]]


def test_cutmix_boxes_against_visible_cells() -> None:
    """With whole-band patches and nothing dropped, boxes are what one sees of each call."""
    generator = torch.Generator().manual_seed(3)
    for _ in range(50):
        a, b = (torch.randint(0, 100, (), generator=generator).item() for _ in range(2))
        start = int(torch.randint(0, 90, (), generator=generator))
        patch = [start, 0, start + 30, F]
        spectrograms, boxes = painted([[int(a), 5, int(a) + 25, 15]], [[int(b), 40, int(b) + 25, 50]])
        pasted, joined = transforms.cutmix(
            spectrograms[:1], boxes.rows(torch.tensor([0])), spectrograms[1:], boxes.rows(torch.tensor([1])),
            torch.tensor([patch]), KEEP_ALL,
        )  # fmt: skip
        found = {tuple(box) for box in listed_boxes(joined)[0].tolist()}
        expected = set()
        for band in (slice(5, 15), slice(40, 50)):
            seen = (pasted[0, 0, :, band] > 0).any(dim=1).tolist()
            for value, run in itertools.groupby(range(T), key=seen.__getitem__):
                frames = list(run)
                if value:
                    expected.add(
                        (float(frames[0]), float(band.start), float(frames[-1]) + 1, float(band.stop))
                    )
        assert found == expected


def test_noise_and_gain_have_the_size_asked_for() -> None:
    spectrograms = torch.zeros(3, 1, T, F)
    out = transforms.noise_and_gain(
        spectrograms,
        torch.tensor([0.0, 0.5, 0.0]),
        torch.tensor([10.0, 0.0, 0.0]),
        torch.Generator().manual_seed(0),
    )
    torch.testing.assert_close(out[0], torch.full_like(out[0], math.log(10.0)))
    assert out[1].std().item() == pytest.approx(0.5, rel=0.05)
    assert torch.equal(out[2], spectrograms[2])


def test_background_is_added_as_power_at_the_level_asked_for() -> None:
    spectrograms, background = torch.full((1, 1, T, F), -3.0), torch.full((1, 1, T, F), 5.0)
    out = transforms.mix_background(spectrograms, background, torch.tensor([-10.0]))
    torch.testing.assert_close(out, torch.full_like(out, -3.0 + math.log(1.1)))


def test_padding_round_trip() -> None:
    given = [torch.tensor([[1.0, 2, 3, 4]]), torch.empty(0, 4), torch.tensor([[5, 6, 7, 8], [0, 0, 1, 1]])]
    back = listed_boxes(box_table(given))
    assert [b.tolist() for b in back] == [b.tolist() for b in given]
    assert listed_boxes(box_table([])) == []


def batch_of(n: int) -> tuple[Tensor, list[Tensor]]:
    spectrograms, boxes = painted(*([[20 + i % 7, 10, 80, 20]] for i in range(n)))
    return spectrograms, listed_boxes(boxes)


@pytest.mark.parametrize("operation", BY_DEFAULT)  # of repeats: test_repeats.py
def test_each_operation_alone_changes_examples_and_keeps_shapes(operation: str) -> None:
    spectrograms, boxes = batch_of(8)
    before = spectrograms.clone()
    config = AugmentConfig(probability=1.0, operations=(operation,))
    bank = NoiseBank(torch.randn(3, 1, T, F))
    out = augment_batch(spectrograms, boxes, config, generator=torch.Generator().manual_seed(0), noise=bank)
    assert torch.equal(spectrograms, before)
    assert out.spectrograms.shape == spectrograms.shape
    assert torch.isfinite(out.spectrograms).all()
    assert not torch.equal(out.spectrograms, spectrograms)
    assert len(out.boxes) == 8
    assert all(b.shape[1] == 4 and b.dtype == torch.float32 for b in out.boxes)


@pytest.mark.parametrize("operation", ["time_shift", "frequency_shift", "time_warp", "cutmix"])
def test_boxes_still_surround_the_energy(operation: str) -> None:
    spectrograms, boxes = batch_of(32)
    config = AugmentConfig(
        probability=1.0, operations=(operation,), time_shift=0.4, frequency_shift=0.2, time_warp=0.3
    )
    out = augment_batch(spectrograms, boxes, config, generator=torch.Generator().manual_seed(0))
    for spectrogram, own in zip(out.spectrograms, out.boxes, strict=True):
        bright = spectrogram[0] > 0
        unboxed = bright.clone()
        for t1, f1, t2, f2 in own.round().long().tolist():
            assert bright[t1:t2, f1:f2].float().mean() > 0.9
            unboxed[max(t1 - 1, 0) : t2 + 1, f1:f2] = False
        assert unboxed.sum() < 2 * 10 * LIMITS.min_frames  # all that is left: slivers too small to keep


@pytest.mark.parametrize("operation", BY_DEFAULT)  # the same
def test_doubtful_boxes_take_the_same_way_as_calls(operation: str) -> None:
    spectrograms, boxes = batch_of(16)
    config = AugmentConfig(probability=1.0, operations=(operation,))  # type: ignore[arg-type]
    bank = NoiseBank(torch.randn(3, 1, T, F))

    def augmented(sure: list[Tensor] | None) -> tuple[list[Tensor], list[Tensor]]:
        draws = torch.Generator().manual_seed(0)
        out = augment_batch(spectrograms, boxes, config, generator=draws, sure=sure, noise=bank)
        return out.boxes, out.doubtful

    def rows(*lists: list[Tensor]) -> list[list[list[float]]]:
        return [sorted(torch.cat(own).tolist()) for own in zip(*lists, strict=True)]

    whole, nothing = augmented(None)
    assert [len(own) for own in nothing] == [0] * 16
    some, doubtful = augmented([torch.arange(len(own)) % 2 == 0 for own in boxes])
    assert rows(some, doubtful) == rows(whole)
    no_calls, all_doubtful = augmented([torch.zeros(len(own), dtype=torch.bool) for own in boxes])
    assert [len(own) for own in no_calls] == [0] * 16
    assert rows(all_doubtful) == rows(whole)


def test_the_same_seed_gives_the_same_batch_and_another_another() -> None:
    spectrograms, boxes = batch_of(6)
    runs = [
        augment_batch(spectrograms, boxes, AugmentConfig(), generator=torch.Generator().manual_seed(seed))
        for seed in (4, 4, 5)
    ]
    assert torch.equal(runs[0].spectrograms, runs[1].spectrograms)
    assert all(torch.equal(a, b) for a, b in zip(runs[0].boxes, runs[1].boxes, strict=True))
    assert not torch.equal(runs[0].spectrograms, runs[2].spectrograms)


def test_probability_and_number_of_operations() -> None:
    from mast.data.augment import _choose_operations

    chosen = _choose_operations(
        4_000, 8, AugmentConfig(probability=0.9, most=3), torch.Generator().manual_seed(0)
    )
    count = chosen.sum(dim=1)
    assert (count > 0).float().mean().item() == pytest.approx(0.9, abs=0.02)
    assert count.max() == 3
    assert [(count == k).float().mean().item() for k in (1, 2, 3)] == pytest.approx([0.3, 0.3, 0.3], abs=0.03)
    assert chosen.float().mean(dim=0).tolist() == pytest.approx([0.9 * 2 / 8] * 8, abs=0.03)


def test_probability_zero_changes_nothing() -> None:
    spectrograms, boxes = batch_of(4)
    out = augment_batch(spectrograms, boxes, AugmentConfig(probability=0.0), generator=torch.Generator())
    assert torch.equal(out.spectrograms, spectrograms)
    assert [b.tolist() for b in out.boxes] == [b.tolist() for b in boxes]


def test_no_boxes_and_a_batch_of_one() -> None:
    spectrograms = torch.randn(1, 1, T, F)
    config = AugmentConfig(probability=1.0, most=9)
    for seed in range(5):
        out = augment_batch(
            spectrograms, [torch.empty(0, 4)], config, generator=torch.Generator().manual_seed(seed)
        )
        assert out.boxes[0].shape == (0, 4)
        assert torch.isfinite(out.spectrograms).all()


def test_integer_boxes_are_taken() -> None:
    out = augment_batch(
        torch.randn(2, 1, T, F),
        [torch.tensor([[1, 2, 30, 40]]), torch.empty(0, 4, dtype=torch.long)],
        AugmentConfig(probability=0.0),
        generator=torch.Generator(),
    )
    assert out.boxes[0].tolist() == [[1.0, 2.0, 30.0, 40.0]]


def test_weights_of_mixtures_are_means_by_share() -> None:
    spectrograms, boxes = batch_of(2)
    config = AugmentConfig(probability=1.0, operations=("mixup",), mixup_share=(0.25, 0.25))
    out = augment_batch(
        spectrograms, boxes, config, generator=torch.Generator(), weights=torch.tensor([1.0, 0.2])
    )
    assert out.weights.tolist() == pytest.approx([0.75 + 0.05, 0.15 + 0.25])


def test_nobody_is_its_own_partner() -> None:
    from mast.data.augment import _partners

    for seed in range(20):
        partners = _partners(7, torch.Generator().manual_seed(seed))
        assert sorted(partners.tolist()) == list(range(7))
        assert (partners != torch.arange(7)).all()


def test_a_mixture_does_not_drown_the_quieter_example() -> None:
    spectrograms, boxes = painted([[10, 5, 40, 15]], [[60, 30, 100, 50]])
    partner = torch.tensor([1, 0])
    faint = spectrograms[partner] - 20.0
    mixed, _ = transforms.mixup(spectrograms, boxes, faint, boxes.rows(partner), torch.tensor([0.3, 0.3]))
    inside, outside = mixed[0, 0, 60:100, 30:50].mean(), mixed[0, 0, 60:100, :20].mean()
    assert inside - outside > 8


def test_ranges_in_the_wrong_order_are_errors() -> None:
    with pytest.raises(
        ConfigError, match=r"cutmix_time is 0.5 to 0.2; expected low ≤ high, both within 0.01 to 1"
    ):
        AugmentConfig(cutmix_time=(0.5, 0.2))


def test_a_mask_of_no_width_hides_nothing() -> None:
    spectrograms, boxes = batch_of(4)
    config = AugmentConfig(
        probability=1.0, operations=("time_mask", "frequency_mask"), time_mask=0, frequency_mask=0
    )
    out = augment_batch(spectrograms, boxes, config, generator=torch.Generator())
    assert torch.equal(out.spectrograms, spectrograms)


@pytest.mark.parametrize("operation", sorted(set(OPERATIONS) - {"noise_and_gain"}))  # no generator on "meta"
def test_spectrograms_stay_on_their_device_and_boxes_on_the_cpu(operation: str) -> None:
    """A device without data: reading a value back, as a wait for a GPU would, is an error there."""
    spectrograms = torch.empty(6, 1, T, F, device="meta")
    config = AugmentConfig(probability=1.0, operations=(operation,))
    boxes = [torch.tensor([[10.0, 2, 60, 20]])] * 6
    out = augment_batch(
        spectrograms, boxes, config, generator=torch.Generator(), noise=NoiseBank(spectrograms)
    )
    assert out.spectrograms.device.type == "meta"
    assert all(b.device.type == "cpu" for b in out.boxes)


def test_unknown_settings_are_errors() -> None:
    with pytest.raises(ValidationError, match="time_shifts"):
        AugmentConfig(time_shifts=0.1)  # type: ignore[call-arg]
    with pytest.raises(ValidationError, match="operations"):
        AugmentConfig(operations=("reverse",))  # type: ignore[arg-type]
