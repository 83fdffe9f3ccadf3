"""Contact sheets: many events at a glance, each a small spectrogram with its box; a PNG grid, and a page with sound.

All tiles of a sheet are equally long and cover the same band, so that shapes can be compared by eye. The page is
self-contained: pictures and sound are embedded, sound as MP3 up to a limit on the page's size. An event whose
recording is missing or damaged is a grey tile that says why; it is never left out.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup

from mast.audio import AUDIO_SUFFIXES
from mast.errors import AudioError
from mast.events import boxes_of
from mast.files import write_atomic
from mast.grid import FrontEnd
from mast.reports.html_page import Section, page, paragraph
from mast.reports.spectrogram import Spectrogram, compute_spectrogram, grey_levels, image_png
from mast.reports.templating import render_macro

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFont import FreeTypeFont, ImageFont

Locate = Callable[[str], Path | None]

WIDTH, HEIGHT = 220, 132  # pixels of a tile's picture (our choice): six fit into a laptop's window
COLUMNS = 6
AUDIO_LIMIT_BYTES = 15_000_000  # of sound in one page (our choice): small enough to send by mail
_BOX = "#e8590c"
_PAPER, _INK, _SOFT, _GREY = "#ffffff", "#1d2327", "#5c6670", "#c9ced3"
_GAP = 12
_CAPTION = 34  # pixels below a tile: two lines
_LOUD = 0.7  # peak that clips are normalised to: field sounds are faint


@dataclass(frozen=True, eq=False)
class Tile:
    """One event as a small picture.

    Attributes:
        picture: :data:`WIDTH` × :data:`HEIGHT`.
        caption: a line or two.
        sound: MP3; empty where there is none.
        problem: why the recording could not be shown; empty where it could.
    """

    picture: Image
    caption: str
    sound: bytes = b""
    problem: str = ""


class Sheet(NamedTuple):
    """Tiles that belong together."""

    title: str
    note: str
    tiles: Sequence[Tile]


def recording_not_found(recording: str) -> AudioError:
    """The error for a recording whose file is not found."""
    return AudioError(f"{recording}: no such recording here; give its folder with --audio")


def make_locator(folders: Iterable[str | Path]) -> Locate:
    """A function that finds a recording below the folders: by its name, in ``audio/``, or anywhere if only one file
    there has that name.
    """
    from mast.annotations.recording_names import RecordingNames
    from mast.audio import find_recordings

    roots = [Path(folder) for folder in folders]

    @cache
    def all_recordings() -> tuple[dict[str, Path], RecordingNames]:
        """Only where a recording has moved: a large archive takes minutes to walk."""
        known: dict[str, Path] = {}
        for root in roots:
            for path in find_recordings(root):
                known.setdefault(path.relative_to(root).as_posix(), path)
        return known, RecordingNames(known)

    def locate(recording: str) -> Path | None:
        for root in roots:
            for path in (root / recording, root / "audio" / recording):
                if path.is_file():
                    return path
        known, names = all_recordings()
        return known.get(names.of_path(recording))

    return locate


def sheet_front_end(events: pd.DataFrame) -> FrontEnd:
    """The paper's band, doubled until the events fit, four times for bats (128 kHz) and at most five."""
    top_hz, own_hz = float(events["high_hz"].max()) if len(events) else 0.0, FrontEnd().high_hz
    times = min(math.ceil(math.log2(max(top_hz / own_hz / 1.05, 1.0))), 5)
    return FrontEnd.for_band(own_hz * 2**times)


def make_tiles(
    events: pd.DataFrame,
    locate: Locate,
    *,
    captions: Sequence[str] | None = None,
    front_end: FrontEnd | None = None,
    sound: bool = True,
) -> list[Tile]:
    """A tile for each event, in order.

    Args:
        events: in the event schema.
        locate: where a recording lies, ``None`` where not known; :func:`make_locator` makes one.
        captions: below each; label, score, recording and time by default.
        front_end: band and bins; by default, chosen to fit the events.
        sound: also make the clips of sound.
    """
    grid = front_end or sheet_front_end(events)
    span_s = tile_span_s(events, grid)
    words = [caption_of(row) for row in events.to_dict("records")] if captions is None else list(captions)
    assert len(words) == len(events)
    tiles = []
    paths: dict[str, Path | None] = {}
    for name, box, caption in zip(events["recording"].astype(str), boxes_of(events), words, strict=True):
        if name not in paths:
            paths[name] = locate(name)
        path = paths[name]
        if path is None:
            tiles.append(_error_tile(caption, f"recording not found: {name}"))
            continue
        try:
            tiles.append(_make_tile(path, box, span_s, grid, caption, sound))
        except (AudioError, OSError) as error:
            tiles.append(_error_tile(caption, str(error).removeprefix(f"{path}: ")))
    return tiles


def tile_span_s(events: pd.DataFrame, front_end: FrontEnd) -> float:
    """Seconds that every tile of a sheet shows: half as much again as nine in ten events need, at most a chunk."""
    if events.empty:
        return front_end.chunk_s / 4
    length = (events["end_s"] - events["start_s"]).to_numpy(dtype=np.float64)
    return float(np.clip(1.5 * np.quantile(length, 0.9), front_end.chunk_s / 10, front_end.chunk_s))


def caption_of(row: Mapping[Any, Any]) -> str:
    """Label and score, where it has them; then recording, with the folder it is in, and time."""
    score, label = float(row.get("score", 1.0)), str(row.get("label", "") or "")
    scored = score < 1.0  # neither a person's box nor without a score
    first = " · ".join(part for part in (label, f"{score:.2f}" if scored else "") if part) or "no label"
    path = Path(str(row["recording"]))
    name = "/".join(path.parts[-2:])  # recorders at different sites give the same names
    if path.suffix.lower() in AUDIO_SUFFIXES:  # shorter, as the page breaks long words anywhere
        name = name.removesuffix(path.suffix)
    return f"{first}\n{name} · {float(row['start_s']):.1f} s"


def sheet_png(sheet: Sheet, *, columns: int = COLUMNS) -> bytes:
    """The sheet as a PNG: title, note, and a grid of tiles with their captions."""
    from PIL import Image, ImageDraw

    wide = max(1, min(columns, len(sheet.tiles) or 1))
    rows = -(-len(sheet.tiles) // wide)
    width = max(wide * (WIDTH + _GAP) + _GAP, 3 * (WIDTH + _GAP) + _GAP)
    note = textwrap.wrap(sheet.note, width=max(30, width // 7))
    top = _GAP + 28 + 18 * len(note) + 6
    canvas = Image.new("RGB", (width, top + rows * (HEIGHT + _CAPTION + _GAP) + _GAP), _PAPER)
    draw = ImageDraw.Draw(canvas)
    draw.text((_GAP, _GAP), _fit_text(sheet.title, _font(20), width - 2 * _GAP), fill=_INK, font=_font(20))
    for k, line in enumerate(note):
        draw.text((_GAP, _GAP + 28 + 18 * k), line, fill=_SOFT, font=_font(13))
    for k, tile in enumerate(sheet.tiles):
        left = _GAP + (k % wide) * (WIDTH + _GAP)
        y = top + (k // wide) * (HEIGHT + _CAPTION + _GAP)
        canvas.paste(tile.picture, (left, y))
        for i, line in enumerate(tile.caption.split("\n")[:2]):
            text = _fit_text(line, _font(12), WIDTH)
            draw.text((left, y + HEIGHT + 3 + 15 * i), text, fill=_INK if i == 0 else _SOFT, font=_font(12))
    return image_png(canvas)


class PageTile(NamedTuple):
    """A tile in a page."""

    png: bytes
    alt: str
    caption: str
    sound: bytes  # empty where it is silent


def tile_grid(tiles: Sequence[Tile]) -> Markup:
    """Tiles without sound, as a part of another page."""
    return render_macro("tiles.html", "style") + render_macro(
        "tiles.html", "grid", [_page_tile(tile, b"") for tile in tiles]
    )


def sheets_page(
    title: str, lead: Markup, sheets: Sequence[Sheet], *, audio_limit_bytes: int = AUDIO_LIMIT_BYTES
) -> str:
    """All sheets as one self-contained page; a click on a tile plays it.

    Args:
        title: plain text.
        lead: below the title.
        sheets: in order.
        audio_limit_bytes: of MP3; tiles beyond it are silent, and the page says so.
    """
    left, silent = audio_limit_bytes, 0
    sections = []
    for number, sheet in enumerate(sheets):
        tiles = []
        for tile in sheet.tiles:
            with_sound = bool(tile.sound) and len(tile.sound) <= left
            silent += bool(tile.sound) and not with_sound
            left -= len(tile.sound) if with_sound else 0
            tiles.append(_page_tile(tile, tile.sound if with_sound else b""))
        body = paragraph(sheet.note, soft=True) + render_macro("tiles.html", "grid", tiles)
        sections.append(Section(sheet.title, f"sheet-{number}", body))
    more = Markup()
    if silent:
        more = paragraph(
            f"The last {silent} tiles are silent: more sound would make this page too large to open or send.",
            soft=True,
        )
    return page(
        title,
        render_macro("tiles.html", "style") + lead + more + render_macro("tiles.html", "script"),
        sections,
    )


def write_sheets(
    folder: Path,
    title: str,
    lead: Markup,
    sheets: Sequence[Sheet],
    names: Sequence[str],
) -> list[Path]:
    """A PNG for each sheet (``sheets/NAME.png``) and one page for all; gives the files written, the page first."""
    files = [folder / "index.html"]
    for sheet, name in zip(sheets, names, strict=True):
        files.append(folder / "sheets" / f"{name}.png")
        write_atomic(files[-1], sheet_png(sheet))
    write_atomic(files[0], sheets_page(title, lead, sheets).encode())
    return files


def _make_tile(
    path: Path, box: np.ndarray, span_s: float, front_end: FrontEnd, caption: str, sound: bool
) -> Tile:
    from mast.audio import probe

    duration_s = probe(path).duration_s
    middle = float(box[0] + box[2]) / 2
    start_s = max(0.0, min(middle - span_s / 2, duration_s - span_s))
    if not box[0] < duration_s:
        raise AudioError(f"the event begins at {box[0]:.1f} s, the recording ends at {duration_s:.1f} s")
    spectrogram = compute_spectrogram(
        path, front_end=front_end, start_s=start_s, end_s=start_s + span_s, max_columns=2 * WIDTH
    )
    picture = _draw_tile(spectrogram, box, start_s, span_s)
    return Tile(picture, caption, clip_mp3(path, start_s, start_s + span_s, front_end) if sound else b"")


def _draw_tile(spectrogram: Spectrogram, box: np.ndarray, start_s: float, span_s: float) -> Image:
    """A grey spectrogram with the box, at the scale of the sheet: a recording that ends early leaves the rest white."""
    from PIL import Image, ImageDraw

    values, low, high = grey_levels(spectrogram)
    shade = np.clip((values - low) / (high - low), 0.0, 1.0)  # (T, F)
    sound = Image.fromarray((255 * (1.0 - shade.T[::-1])).astype(np.uint8))
    left_s, right_s, _, _ = spectrogram.extent
    left, right = (round((edge - start_s) / span_s * WIDTH) for edge in (left_s, right_s))
    canvas = Image.new("RGB", (WIDTH, HEIGHT), _PAPER)
    canvas.paste(
        sound.resize((max(1, right - left), HEIGHT), Image.Resampling.BILINEAR).convert("RGB"), (left, 0)
    )
    front_end = spectrogram.front_end
    hz = np.clip(box[[1, 3]], front_end.low_hz, front_end.high_hz)
    bottom, top = (HEIGHT * (1 - (front_end.hz_to_bins(hz) + 0.5) / front_end.n_bins)).tolist()
    x1, x2 = ((float(t) - start_s) / span_s * WIDTH for t in (box[0], box[2]))
    corners = [
        max(0, x1),
        max(0, top),
        min(WIDTH - 1, max(x2, x1 + 2)),
        min(HEIGHT - 1, max(bottom, top + 2)),
    ]
    draw = ImageDraw.Draw(canvas)
    draw.rectangle(corners, outline=_BOX, width=2)
    draw.rectangle([0, 0, WIDTH - 1, HEIGHT - 1], outline=_GREY)
    return canvas


def clip_mp3(path: str | Path, start_s: float, end_s: float, front_end: FrontEnd) -> bytes:
    """A span of sound as MP3, normalised; ultrasound is slowed down until a person can hear it."""
    import soundfile as sf

    from mast.audio import read

    rate, slow = playback_rate(front_end)
    samples = read(path, start_s=start_s, end_s=end_s, sample_rate=round(rate * slow))
    peak = float(np.abs(samples).max(initial=0.0))
    samples = samples * (_LOUD / peak) if peak > 0 else samples
    buffer = io.BytesIO()
    sf.write(buffer, samples, rate, format="MP3", subtype="MPEG_LAYER_III")
    return buffer.getvalue()


def playback_rate(front_end: FrontEnd) -> tuple[int, float]:
    """Sample rate of a clip as it is played, and how many times it is slowed down: 1 up to 16 kHz.

    >>> playback_rate(FrontEnd()), playback_rate(FrontEnd.for_band(96_000))
    ((16000, 1.0), (16000, 12.0))
    """
    if front_end.high_hz <= 8_000:
        return 16_000, 1.0
    return (32_000, 1.0) if front_end.high_hz <= 16_000 else (16_000, front_end.high_hz / 8_000)


def scale_note(events: pd.DataFrame, front_end: FrontEnd) -> str:
    """What a tile shows, in words."""
    slow = playback_rate(front_end)[1]
    slowed = f"; sound is slowed down {slow:g} times" if slow > 1 else ""
    span = f"{tile_span_s(events, front_end):.2g} s wide"
    return (
        f"each tile is {span}, {front_end.low_hz / 1_000:g}–{front_end.high_hz / 1_000:g} kHz (mel){slowed}"
    )


def _error_tile(caption: str, reason: str) -> Tile:
    from PIL import Image, ImageDraw

    canvas = Image.new("RGB", (WIDTH, HEIGHT), _GREY)
    draw = ImageDraw.Draw(canvas)
    for k, line in enumerate(textwrap.wrap(reason, width=28)[:7]):
        draw.text((8, 8 + 16 * k), line, fill=_INK, font=_font(12))
    return Tile(canvas, caption, problem=reason)


def _page_tile(tile: Tile, sound: bytes) -> PageTile:
    alt = tile.problem or tile.caption.replace("\n", ", ")
    return PageTile(image_png(tile.picture, few_colours=True, of_sound=True), alt, tile.caption, sound)


def _font(size: int) -> FreeTypeFont | ImageFont:
    """matplotlib's own font: it is always installed and covers most scripts."""
    from matplotlib import get_data_path
    from PIL import ImageFont

    return ImageFont.truetype(str(Path(get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")), size)


def _fit_text(text: str, font: FreeTypeFont | ImageFont, width: int) -> str:
    """Text shortened in the middle until it fits: names of recordings differ at both ends."""
    if font.getlength(text) <= width:
        return text
    for keep in range(len(text) - 1, 1, -1):
        short = f"{text[: (keep + 1) // 2]}…{text[len(text) - keep // 2 :]}"
        if font.getlength(short) <= width:
            return short
    return "…"
