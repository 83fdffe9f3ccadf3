"""Tiles against a picture made one window at a time."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
from numpy.typing import NDArray
from review_folders import write_tones

from mast.errors import AudioError
from mast.review import tiles
from mast.review.colours import colour_table, encode_png
from mast.review.tile_cache import TileCache
from mast.review.tiles import View, choose_layout, levels_db, render_tile, to_levels


def naive(path: Path, view: View) -> NDArray[np.float64]:
    """One column, one window, one row at a time, from the whole recording."""
    sound, rate = sf.read(path, dtype="float64", always_2d=True)
    sound = sound.mean(axis=1)
    plan = choose_layout(view, rate)
    n = plan.window
    taper = np.array([0.5 - 0.5 * np.cos(2 * np.pi * k / n) for k in range(n)])
    picture = np.full((view.height, view.width), -200.0)
    for column in range(view.width):
        loudest = np.zeros(n // 2 + 1)
        for k in range(plan.per_column):
            centre = view.start_s * rate + (column + (k + 0.5) / plan.per_column) * plan.column
            first = int(np.rint(centre - n / 2))
            window = np.array([sound[i] if 0 <= i < len(sound) else 0.0 for i in range(first, first + n)])
            loudest = np.maximum(loudest, np.abs(np.fft.rfft(window * taper) * 2 / taper.sum()) ** 2)
        level = 10 * np.log10(np.maximum(loudest, 1e-20))
        for row in range(view.height):
            low = view.low_hz + (view.high_hz - view.low_hz) * row / view.height
            high = view.low_hz + (view.high_hz - view.low_hz) * (row + 1) / view.height
            a, b = low * n / rate, high * n / rate
            if a > n // 2 + 0.5:
                continue
            if b - a > 1:
                begin = min(int(np.rint(a)), n // 2)
                end = max(
                    min(int(np.rint(b)), n // 2) if row + 1 < view.height else int(np.rint(b)), begin + 1
                )
                value = level[begin:end].max()
            else:
                value = np.interp((a + b) / 2, np.arange(n // 2 + 1), level)
            picture[view.height - 1 - row, column] = value
    return picture


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tones(tmp_path_factory.mktemp("tiles") / "a.wav")


VIEWS = {
    "whole": View(0, 6, 0, 8000, 24, 16),
    "one second": View(2, 3, 500, 2500, 20, 30),
    "zoomed in": View(1.25, 1.3125, 0, 8000, 16, 64),
    "past the end": View(4, 8, 0, 8000, 16, 16),
    "only past the end": View(16, 32, 0, 8000, 8, 8),
    "above Nyquist": View(0, 2, 4000, 12000, 8, 32),
    "narrow band": View(0, 4, 990, 1010, 16, 8),
    "mostly past the end": View(0, 90, 0, 8000, 3, 16),
    "one pixel": View(0, 6, 0, 8000, 1, 1),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_tile_is_the_naive_picture(sound: Path, name: str) -> None:
    view = VIEWS[name]
    found, expected = levels_db(sound, view), naive(sound, view)
    assert found.shape == (view.height, view.width)
    np.testing.assert_allclose(np.maximum(found, -110), np.maximum(expected, -110), atol=0.02)


def test_blocks_make_no_difference(sound: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    views = [VIEWS["whole"], VIEWS["zoomed in"], VIEWS["mostly past the end"], VIEWS["one pixel"]]
    before = [levels_db(sound, view) for view in views]
    monkeypatch.setattr(tiles, "_BLOCK", 5_000)
    for view, expected in zip(views, before, strict=True):
        np.testing.assert_allclose(levels_db(sound, view), expected, atol=1e-3)


def test_neighbours_fit_together(sound: Path) -> None:
    whole = levels_db(sound, View(0, 4, 0, 8000, 64, 32))
    left = levels_db(sound, View(0, 2, 0, 8000, 32, 32))
    right = levels_db(sound, View(2, 4, 0, 8000, 32, 32))
    np.testing.assert_allclose(np.hstack([left, right]), whole, atol=1e-3)


def test_a_full_scale_sine_is_at_0_db_where_it_is(tmp_path: Path) -> None:
    time = np.arange(48_000 * 4) / 48_000
    sf.write(tmp_path / "sine.wav", np.sin(2 * np.pi * 6_000 * time), 48_000, subtype="FLOAT")
    view = View(1, 3, 0, 24_000, 16, 48)
    picture = levels_db(tmp_path / "sine.wav", view)
    loudest = picture.argmax(axis=0)
    assert set(loudest.tolist()) <= {35, 36}  # 6 kHz is a quarter from the bottom
    assert picture.max() == pytest.approx(0.0, abs=1.5)


def test_a_click_is_seen_at_any_zoom(tmp_path: Path) -> None:
    sound = np.zeros(16_000 * 120)
    sound[16_000 * 75] = 1.0
    sf.write(tmp_path / "click.wav", sound, 16_000)
    for span in (4.0, 60.0, 120.0, 3600.0):
        start = 75.0 // span * span
        picture = levels_db(tmp_path / "click.wav", View(start, start + span, 0, 8000, 32, 4))
        column = int((75.0 - start) / span * 32)
        assert abs(int(picture.max(axis=0).argmax()) - column) <= 1
        assert picture.max() > -90


def test_only_the_samples_needed_are_read(sound: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[float, float]] = []
    original = tiles.read

    def spy(path: Path, *, start_s: float, end_s: float) -> NDArray[np.float32]:
        asked.append((start_s, end_s))
        return original(path, start_s=start_s, end_s=end_s)

    monkeypatch.setattr(tiles, "read", spy)
    levels_db(sound, View(2, 3, 0, 8000, 64, 64))
    assert sum(end - start for start, end in asked) < 1.3
    asked.clear()
    levels_db(sound, View(16, 32, 0, 8000, 64, 64))
    assert asked == []


def test_a_budget_bounds_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "_BUDGET", 1 << 16)
    plan = choose_layout(View(0, 3600, 0, 8000, 16, 16), 384_000)
    assert plan.window * plan.per_column * 16 <= 2 << 16


def test_a_column_beyond_the_budget_is_seen_in_its_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tones(tmp_path / "a.wav", 60.0)
    view = View(0, 60, 0, 8000, 6, 16)
    whole = levels_db(path, view)
    monkeypatch.setattr(tiles, "_BUDGET", 6 * 2048 * 4)
    reads: list[tuple[float, float]] = []
    original = tiles.read

    def spy(path: Path, *, start_s: float, end_s: float) -> NDArray[np.float32]:
        reads.append((start_s, end_s))
        return original(path, start_s=start_s, end_s=end_s)

    monkeypatch.setattr(tiles, "read", spy)
    part = levels_db(path, view)
    assert len(reads) == 6
    for column, (start, end) in enumerate(reads):
        assert (start + end) / 2 == pytest.approx(10 * column + 5, abs=0.1)
    assert (part <= whole + 3).all()  # the loudest of a part
    np.testing.assert_allclose(part.max(axis=0), whole.max(axis=0), atol=3)


def test_stereo_is_the_mean_of_its_channels(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sound = rng.normal(0, 0.1, (16_000, 2))
    sf.write(tmp_path / "two.wav", sound, 16_000, subtype="FLOAT")
    sf.write(tmp_path / "one.wav", sound.mean(axis=1), 16_000, subtype="FLOAT")
    view = View(0, 1, 0, 8000, 32, 32)
    np.testing.assert_allclose(
        levels_db(tmp_path / "two.wav", view), levels_db(tmp_path / "one.wav", view), atol=0.01
    )


@pytest.mark.parametrize("colours", ["magma", "grey", "viridis"])
def test_the_png_holds_the_levels(sound: Path, colours: str) -> None:
    from PIL import Image

    view = View(0, 6, 0, 8000, 40, 20, colours=colours)
    picture = Image.open(io.BytesIO(render_tile(sound, view)))
    assert picture.size == (40, 20)
    levels = to_levels(levels_db(sound, view), view)
    table = np.frombuffer(colour_table(colours), np.uint8).reshape(256, 3)
    np.testing.assert_array_equal(np.asarray(picture.convert("RGB")), table[levels])


def test_levels_span_the_range() -> None:
    view = View(0, 1, 0, 1, 3, 1, floor_db=-90, range_db=60)
    assert to_levels(np.array([[-200.0, -60.0, 0.0]], np.float32), view).tolist() == [[0, 128, 255]]


def test_an_empty_picture_is_a_png() -> None:
    assert encode_png(np.zeros((1, 1), np.uint8), "grey").startswith(b"\x89PNG")


def test_a_broken_recording_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty.wav").write_bytes(b"")
    with pytest.raises(AudioError, match="0 bytes"):
        render_tile(tmp_path / "empty.wav", View(0, 1, 0, 8000))


def test_a_truncated_recording_shows_what_exists(tmp_path: Path) -> None:
    whole = write_tones(tmp_path / "a.wav")
    (tmp_path / "cut.wav").write_bytes(whole.read_bytes()[: 16_000 * 2 * 3])
    view = View(0, 6, 0, 8000, 12, 8)
    found = levels_db(tmp_path / "cut.wav", view)
    np.testing.assert_allclose(found[:, :5], levels_db(whole, view)[:, :5], atol=0.01)
    assert found[:, 7:].max() < -100


def test_the_cache_forgets_what_was_not_asked_for_longest() -> None:
    cache = TileCache(max_bytes=30)
    for key in "abc":
        cache.put(key, bytes(10))
    assert cache.get("a") is not None
    cache.put("d", bytes(10))
    assert cache.get("b") is None
    assert [key for key in "acd" if cache.get(key)] == ["a", "c", "d"]
    cache.put("a", bytes(25))
    assert [key for key in "acd" if cache.get(key)] == ["a"]
    cache.put("e", bytes(99))  # too large to be held at all
    assert cache.get("e") is None
