"""Contact sheets: the box where the sound is, grey tiles for what is missing, pages of a sane size."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
from markupsafe import Markup
from PIL import Image

from mast.events import as_events
from mast.grid import FrontEnd
from mast.reports import contact_sheet as module
from mast.reports.contact_sheet import (
    HEIGHT,
    WIDTH,
    Sheet,
    caption_of,
    clip_mp3,
    make_locator,
    make_tiles,
    playback_rate,
    scale_note,
    sheet_front_end,
    sheet_png,
    sheets_page,
    tile_span_s,
    write_sheets,
)
from mast.reports.spectrogram import image_png


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Ten seconds of faint noise with a loud tone of 2 kHz from 6 s to 7 s."""
    root = tmp_path / "recordings"
    (root / "site").mkdir(parents=True)
    rng = np.random.default_rng(0)
    sound = rng.normal(0, 0.001, 16_000 * 10)
    sound[6 * 16_000 : 7 * 16_000] += 0.1 * np.sin(2 * np.pi * 2_000 * np.arange(16_000) / 16_000)
    sf.write(root / "site" / "dawn.wav", sound, 16_000)
    (root / "broken.wav").write_bytes(b"RIFF")
    return root


def events(*rows: tuple[str, float, float, float, float]) -> pd.DataFrame:
    return as_events(pd.DataFrame(rows, columns=["recording", "start_s", "end_s", "low_hz", "high_hz"]))


TONE = ("site/dawn.wav", 6.0, 7.0, 1_700.0, 2_300.0)


def test_the_box_is_around_the_sound(archive: Path) -> None:
    tile = make_tiles(events(TONE), make_locator([archive]))[0]
    assert tile.picture.size == (WIDTH, HEIGHT)
    pixels = np.asarray(tile.picture).astype(int)
    orange = (pixels[:, :, 0] - pixels[:, :, 2] > 120) & (pixels[:, :, 1] < 140)
    rows, columns = np.nonzero(orange)
    dark = pixels.sum(axis=2) < 150
    inside = np.zeros_like(dark)
    inside[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1] = True
    assert dark.sum() > 100
    assert (dark & inside).sum() > 0.85 * dark.sum()
    # the tone fills two thirds of the tile: 1 s of 1.5 s, in the middle
    assert (columns.max() - columns.min()) / WIDTH == pytest.approx(2 / 3, abs=0.03)
    assert (columns.max() + columns.min()) / 2 / WIDTH == pytest.approx(0.5, abs=0.02)


def test_a_tile_at_the_start_or_end_keeps_the_scale(archive: Path) -> None:
    rows = events(("site/dawn.wav", 0.0, 1.0, 500.0, 900.0), ("site/dawn.wav", 9.2, 10.2, 500.0, 900.0))
    for tile, edge in zip(make_tiles(rows, make_locator([archive])), (0.0, 1.0), strict=True):
        assert tile.problem == ""
        pixels = np.asarray(tile.picture).astype(int)
        columns = np.nonzero((pixels[:, :, 0] - pixels[:, :, 2] > 120).any(axis=0))[0]
        near = columns.min() if edge == 0 else WIDTH - 1 - columns.max()
        assert near <= 1


def test_what_cannot_be_shown_is_grey_with_a_reason(archive: Path) -> None:
    rows = events(
        ("gone.wav", 0, 1, 100, 200), ("broken.wav", 0, 1, 100, 200), ("site/dawn.wav", 20, 21, 100, 200)
    )
    tiles = make_tiles(rows, make_locator([archive]))
    assert [tile.problem.split(":")[0][:26] for tile in tiles] == [
        "recording not found",
        tiles[1].problem.split(":")[0][:26],
        "the event begins at 20.0 s",
    ]
    assert tiles[1].problem
    assert all(tile.sound == b"" for tile in tiles)
    for tile in tiles:
        colours = tile.picture.getcolors(100_000)
        assert max(colours)[1] == (201, 206, 211)


def test_recordings_are_found_by_path_in_audio_or_by_name(archive: Path, tmp_path: Path) -> None:
    locate = make_locator([archive])
    assert locate("site/dawn.wav") == archive / "site" / "dawn.wav"
    assert locate("/somewhere/else/dawn.wav") == archive / "site" / "dawn.wav"
    assert locate("dusk.wav") is None
    data = tmp_path / "data" / "audio"
    data.mkdir(parents=True)
    sf.write(data / "noon.wav", np.zeros(160), 16_000)
    assert make_locator([archive, tmp_path / "data"])("noon.wav") == data / "noon.wav"


def test_sound_is_loud_and_as_long_as_the_tile(archive: Path) -> None:
    sound, rate = sf.read(io.BytesIO(clip_mp3(archive / "site" / "dawn.wav", 5.75, 7.25, FrontEnd())))
    assert rate == 16_000
    assert len(sound) / rate == pytest.approx(1.5, abs=0.15)  # an MP3 has frames
    assert np.abs(sound).max() == pytest.approx(0.7, abs=0.1)
    silent = archive / "silent.wav"
    sf.write(silent, np.zeros(16_000), 16_000)
    assert clip_mp3(silent, 0, 1, FrontEnd())


def test_ultrasound_is_slowed_down(tmp_path: Path) -> None:
    bats = FrontEnd.for_band(96_000)
    path = tmp_path / "bat.wav"
    t = np.arange(192_000 // 10) / 192_000
    sf.write(path, np.sin(2 * np.pi * 48_000 * t), 192_000)
    sound, rate = sf.read(io.BytesIO(clip_mp3(path, 0.0, 0.1, bats)))
    assert playback_rate(bats) == (16_000, 12.0)
    assert len(sound) / rate == pytest.approx(1.2, abs=0.15)
    spectrum = np.abs(np.fft.rfft(sound))
    assert np.argmax(spectrum) * rate / len(sound) == pytest.approx(4_000, rel=0.02)
    rows = events(("bat.wav", 0.01, 0.02, 40_000, 60_000))
    assert "slowed down 12 times" in scale_note(rows, bats)


def test_pictures_show_the_papers_band_doubled_until_the_events_fit() -> None:
    tops = (2_000, 8_000, 8_400, 12_000, 60_000, 100_000, 130_000, 250_000, 1e9)
    bands = [sheet_front_end(events(("a.wav", 0, 1, 100, top))).high_hz for top in tops]
    assert bands == [8_000, 8_000, 8_000, 16_000, 64_000, 128_000, 128_000, 256_000, 256_000]
    assert sheet_front_end(events(TONE)) == sheet_front_end(events()) == FrontEnd()


def test_the_grid_is_a_png_of_the_size_of_its_tiles(archive: Path) -> None:
    tiles = make_tiles(events(*[TONE] * 7), make_locator([archive]), sound=False)
    seven = Image.open(io.BytesIO(sheet_png(Sheet("Seven", "a note", tiles), columns=3)))
    six = Image.open(io.BytesIO(sheet_png(Sheet("Six", "a note", tiles[:6]), columns=3)))
    assert seven.size[0] == six.size[0]
    assert seven.size[1] - six.size[1] == HEIGHT + module._CAPTION + module._GAP
    assert Image.open(io.BytesIO(sheet_png(Sheet("None", "", [])))).size[0] > WIDTH


def test_a_picture_of_sound_has_the_same_pixels_in_about_as_many_bytes(archive: Path) -> None:
    """A pure tone, of which more repeats than of any recording; one of field sound is smaller this way."""
    picture = make_tiles(events(TONE), make_locator([archive]), sound=False)[0].picture
    slowly, quickly = (image_png(picture, few_colours=True, of_sound=sound) for sound in (False, True))
    assert slowly != quickly
    assert len(quickly) < 1.5 * len(slowly)
    pixels = [np.asarray(Image.open(io.BytesIO(png)).convert("RGB")) for png in (slowly, quickly)]
    np.testing.assert_array_equal(*pixels)


def test_long_and_strange_words_fit(archive: Path) -> None:
    caption = "Грач" * 40 + "\n" + "<script>alert(1)</script>"
    tile = make_tiles(events(TONE), make_locator([archive]), captions=[caption])[0]
    assert sheet_png(Sheet("x" * 500, "y " * 500, [tile]))
    page = sheets_page("Title", Markup(), [Sheet("<b>", "note", [tile])])
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "&lt;b&gt;" in page


def test_the_page_needs_nothing_else_and_plays(archive: Path) -> None:
    tiles = make_tiles(events(TONE, ("gone.wav", 0, 1, 100, 200)), make_locator([archive]))
    page = sheets_page("Groups", "<p>lead</p>", [Sheet("Group 1", "a note", tiles)])
    assert re.findall(r'(?:src|href)="(?!data:|#)', page) == []
    assert page.count("<audio") == 1
    assert page.count('class="tile"') == 2
    assert "silent" not in page
    few = sheets_page("Groups", "", [Sheet("Group 1", "a note", tiles)], audio_limit_bytes=100)
    assert few.count("<audio") == 0
    assert "The last 1 tiles are silent" in few


def test_files_are_written(archive: Path, tmp_path: Path) -> None:
    sheet = Sheet("One", "note", make_tiles(events(TONE), make_locator([archive])))
    files = write_sheets(tmp_path / "out", "All", "", [sheet], ["one"])
    assert files == [tmp_path / "out" / "index.html", tmp_path / "out" / "sheets" / "one.png"]
    assert all(file.stat().st_size for file in files)


def test_captions_and_spans() -> None:
    row = {"recording": "site/dawn.wav", "start_s": 6.04, "label": "", "score": 0.5}
    assert caption_of(row) == "0.50\nsite/dawn · 6.0 s"
    assert caption_of(row | {"recording": "v1.2"}) == "0.50\nv1.2 · 6.0 s"
    assert caption_of(row | {"label": "wren", "score": 1.0}).startswith("wren\n")
    assert tile_span_s(events(), FrontEnd()) == pytest.approx(2.56)
    assert tile_span_s(events(("a", 0, 0.01, 1, 2)), FrontEnd()) == pytest.approx(1.024)
    assert tile_span_s(events(("a", 0, 100, 1, 2)), FrontEnd()) == pytest.approx(10.24)
    assert make_tiles(events(), lambda name: None) == []
