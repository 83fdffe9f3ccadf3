"""Pictures of the review page and of the app for the documentation, from simulated sound alone.

    python scripts/review_pictures.py --out docs/images

Simulates three sites, makes detections of them (the truth, a little off, with misses and false alarms), opens the
page in Chromium, works on it as a reviewer would, and photographs it in a laptop's window and in a wide one. The app
searches the same sound with the embedded model.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from scipy.spatial import cKDTree

from mast.audio import read
from mast.data import load_dataset
from mast.data.simulate import Simulation, simulate_dataset
from mast.events import as_events
from mast.inference import ResultsFolder, Searched, Source

LAPTOP, WIDE = {"width": 1280, "height": 720}, {"width": 2200, "height": 1200}
CHROMIUM = "/usr/bin/chromium"
CHROMIUM_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
PATIENCE_MS = 120_000
READY = """() => { const r = mastReview; return r.state.recording && !r.actions.arriving && !r.spectrogram.frame
  && !r.spectrogram.tiles.busy && r.overview.pictures.length && r.outbox.waiting() === 0; }"""
# every small picture in the window is painted
PAINTED = """() => [...document.querySelectorAll(".thumbnail")].every((node) => {
  const { top, bottom, width } = node.getBoundingClientRect();
  if (!width || bottom < 0 || top > innerHeight) return true;
  return node.querySelector("canvas")?.getContext("2d").getImageData(0, 0, 1, 1).data[3] > 0;
})"""
# where a moment and a frequency are on the screen
PLACE = """([s, hz]) => { const { view, plot, canvas } = mastReview.spectrogram, frame = canvas.getBoundingClientRect();
  return [frame.x + plot.left + (s - view.start_s) / (view.end_s - view.start_s) * plot.width,
    frame.y + plot.top + (view.high_hz - hz) / (view.high_hz - view.low_hz) * plot.height]; }"""
# a colleague's decisions, for the learner
DECIDE_MANY = """async () => {
  const { events } = await (await fetch("api/queue?order=random&limit=150")).json();
  for (const { id, version, score } of events) await fetch(`api/events/${id}`, {
    method: "PATCH", headers: { "Content-Type": "application/json", "X-Reviewer": "Bea" },
    body: JSON.stringify({ version, status: score > 0.6 ? "accepted" : "rejected" }),
  });
}"""
_BANDS = 24  # of the features that stand in for a model's embeddings


def simulate(folder: Path, seed: int) -> None:
    """Two dozen minutes from three sites on two mornings."""
    world = Simulation(
        recordings=24, duration_s=60, sites=3, days=2, hours=(4, 9), sample_rate=32_000, seed=seed
    )
    simulate_dataset(folder, world)


def detect_roughly(data: Path, out: Path, seed: int) -> None:
    """What a fair detector would find: most calls, boxes a little off, some false alarms, scores that fit."""
    rng = np.random.default_rng(seed)
    dataset = load_dataset(data)
    truth = dataset.annotations.events
    settings = {"model": "simulated", "threshold": 0.3, "embeddings": 2 * _BANDS}
    audio = data / "audio"
    results = ResultsFolder(out, settings, audio)
    for row in dataset.recordings.to_dict("records"):
        name = str(row["file"])
        path = audio / name
        events = _found(truth[truth["recording"] == name], row, rng)
        sound = read(path)
        vectors = [_features(sound, event, int(row["sample_rate"])) for event in events.itertuples()]
        embeddings = np.array(vectors, np.float16).reshape(len(events), 2 * _BANDS)
        results.add(
            Searched(
                Source(path, name, audio),
                events,
                float(row["duration_s"]),
                int(row["sample_rate"]),
                str(row["site"]),
                str(row["datetime"]),
                embeddings=embeddings,
            )
        )
    results.combine([])


def _found(truth: pd.DataFrame, row: dict[Any, Any], rng: np.random.Generator) -> pd.DataFrame:
    """Detections in one recording."""
    rows: list[dict[str, Any]] = []
    for event in truth.itertuples():
        if rng.random() < 0.12:
            continue  # missed
        length, band = event.end_s - event.start_s, event.high_hz - event.low_hz
        rows.append(
            {
                "start_s": max(0.0, event.start_s + rng.normal(0, 0.04) * length),
                "end_s": event.end_s + rng.normal(0, 0.04) * length,
                "low_hz": max(0.0, event.low_hz + rng.normal(0, 0.04) * band),
                "high_hz": event.high_hz + rng.normal(0, 0.04) * band,
                "score": float(np.clip(rng.beta(6, 2), 0.3, 0.99)),
                "label": event.label,
            }
        )
    for _ in range(rng.poisson(3)):
        start, low = rng.uniform(0, row["duration_s"] - 2), rng.uniform(300, 7_000)
        rows.append(
            {
                "start_s": start,
                "end_s": start + rng.uniform(0.2, 1.2),
                "low_hz": low,
                "high_hz": low + rng.uniform(400, 3_000),
                "score": float(np.clip(rng.beta(2, 3), 0.3, 0.8)),
                "label": "",
            }
        )
    table = pd.DataFrame(rows, columns=["start_s", "end_s", "low_hz", "high_hz", "score", "label"])
    table = table.assign(recording=row["file"], site=row["site"], source="detector", model="simulated")
    start = pd.to_datetime(row["datetime"]) if row["datetime"] else pd.NaT
    clocks = start + pd.to_timedelta(table["start_s"], unit="s")
    table["datetime"] = clocks.dt.strftime("%Y-%m-%dT%H:%M:%S").fillna("") if len(table) else []
    return as_events(table.sort_values("start_s"))


def _features(sound: np.ndarray, event: Any, sample_rate: int) -> np.ndarray:
    """Spectrum and its spread over time within the box, in bands of equal ratio."""
    piece = sound[int(event.start_s * sample_rate) : int(event.end_s * sample_rate) + 512]
    piece = np.pad(piece, (0, max(0, 1024 - len(piece))))
    frames = np.lib.stride_tricks.sliding_window_view(piece, 512)[::128]
    power = np.square(np.abs(np.fft.rfft(frames * np.hanning(512), axis=1)))
    hz = np.fft.rfftfreq(512, 1 / sample_rate)
    power[:, (hz < event.low_hz) | (hz > event.high_hz)] = 1e-9
    edges = np.geomspace(200, sample_rate / 2, _BANDS + 1)
    level = np.log([power[:, (hz >= a) & (hz <= b)].sum(1) + 1e-9 for a, b in pairwise(edges)])
    features = np.concatenate([level.mean(1) - level.mean(), level.std(1)])
    return features / (np.linalg.norm(features) + 1e-9)


@contextmanager
def review_server(folder: Path) -> Iterator[str]:
    """`mast review` in a process of its own; gives its address."""
    program = (
        "import typer; from mast.cli.review import review; typer.run(review)"  # quicker than all of mast
    )
    command = [sys.executable, "-c", program, str(folder), "--port", "0", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with _serving(process) as address:
        yield address


@contextmanager
def app_server(folder: Path) -> Iterator[str]:
    """`mast app` on a folder of recordings, in a process of its own; gives its address."""
    command = [sys.executable, "-m", "mast", "app", str(folder), "--port", "0", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with _serving(process) as address:
        yield address


@contextmanager
def _serving(process: subprocess.Popen[str]) -> Iterator[str]:
    """The address that a server prints; it is ended in the end."""
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = re.search(r"http://\S+", line)
        if address is None:
            raise SystemExit(f"the page did not start: {line!r}")
        yield address[0]
    finally:
        process.terminate()
        process.wait(10)


class Camera:
    """A reviewer with a camera."""

    def __init__(self, page: Any, out: Path) -> None:
        self.page, self.out = page, out

    def open(self, address: str, name: str) -> None:
        """Open the page and give a name."""
        self.page.goto(address)
        self.page.fill("#name-field", name)
        self.page.keyboard.press("Enter")
        self.settle()

    def settle(self) -> None:
        """Wait until tiles and thumbnails are there and nothing moves."""
        self.page.wait_for_function(READY)
        self.page.wait_for_load_state("networkidle")
        self.page.wait_for_selector("#loading", state="hidden")
        self.page.wait_for_function(PAINTED)
        self.page.wait_for_timeout(300)

    def take(self, name: str) -> None:
        """One picture, without passing messages."""
        self.settle()
        while self.page.locator(".toast .cross").count():
            self.page.locator(".toast .cross").first.click()
        _save(self.page, self.out / f"review_{name}.png")


def _save(page: Any, path: Path) -> None:
    whole = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    whole.thumbnail((1600, 1600))
    _reduced(whole).save(path, optimize=True)


def _reduced(image: Image.Image) -> Image.Image:
    """In 256 colours, a third of the bytes: the commonest as they are (the page), the rest for the sound."""
    pixels = np.asarray(image).reshape(-1, 3)
    colours, counts = np.unique(pixels, axis=0, return_counts=True)
    page = colours[np.argsort(-counts)[:128]]
    sound = np.reshape(image.quantize(128).getpalette() or [], (-1, 3))[:128]
    palette = np.concatenate([page, sound])
    nearest = cKDTree(palette).query(pixels)[1].astype(np.uint8)
    reduced = Image.fromarray(nearest.reshape(image.height, image.width), "P")
    reduced.putpalette(palette.astype(np.uint8).tobytes())
    return reduced


def longest_missed(data: Path, results: Path) -> dict[str, Any]:
    """The longest call that was not found, of those in the middle of a recording with nothing found on it."""
    truth = load_dataset(data).annotations.events
    found = pd.read_parquet(results / "detections.parquet")
    missed = []
    for call in truth[(truth["start_s"] > 6) & (truth["end_s"] < 54)].to_dict("records"):
        own = found[found["recording"] == call["recording"]]
        beside = (own["end_s"] < call["start_s"]) | (own["start_s"] > call["end_s"])
        apart = (own["high_hz"] < call["low_hz"]) | (own["low_hz"] > call["high_hz"])
        if (beside | apart).all():
            missed.append(call)
    return {str(name): value for name, value in max(missed, key=lambda c: c["end_s"] - c["start_s"]).items()}


def photograph(address: str, missed: dict[str, Any], out: Path) -> None:
    """All pictures of the tutorial; ``missed`` is drawn by hand."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        laptop = Camera(browser.new_page(viewport=LAPTOP, color_scheme="light"), out)
        laptop.page.set_default_timeout(PATIENCE_MS)
        laptop.open(address, "Ana")
        _review(laptop, missed)
        wide = Camera(browser.new_page(viewport=WIDE, color_scheme="dark"), out)
        wide.page.set_default_timeout(PATIENCE_MS)
        wide.open(address, "Bea")
        _look_around(wide)
        browser.close()


def _review(camera: Camera, missed: dict[str, Any]) -> None:
    page = camera.page
    camera.take("queue")
    for key in "aararaal":
        page.keyboard.press(key)
        camera.settle()
    page.keyboard.type("st")
    camera.take("label")
    page.keyboard.press("Escape")
    page.select_option("[name=order]", "random")
    camera.settle()
    page.keyboard.press("j")
    for key in "aaarraaaaraaaaaraaaaaaraaaaraa":
        page.keyboard.press(key)
        page.wait_for_function(READY)
    page.click("#tab-progress")
    camera.take("progress")
    page.click("#tab-activity")
    camera.take("activity")
    page.keyboard.press("g")
    page.wait_for_selector(".group-card canvas >> nth=8")
    camera.take("groups")
    page.keyboard.press("Escape")
    page.evaluate(DECIDE_MANY)
    page.select_option("[name=order]", "unsure")
    camera.settle()
    page.click(".event-row >> nth=1")
    page.click("#tab-learner")
    page.wait_for_selector("#learner-plan")
    camera.take("learner")
    page.click("#tab-event")
    page.click("#tab-recordings")
    page.fill("[name=search]", missed["recording"].rpartition("/")[2])
    page.wait_for_function("() => mastReview.recordings.total === 1")
    page.click(".recording-row")
    camera.settle()
    _draw(camera, missed)
    page.keyboard.press("m")
    camera.take("draw")
    page.keyboard.press("?")
    camera.take("keys")
    page.keyboard.press("Escape")
    page.click("#export")
    camera.take("export")
    page.keyboard.press("Escape")


def _draw(camera: Camera, missed: dict[str, Any]) -> None:
    """A box by hand, around what the detector missed, in the middle of the window."""
    page = camera.page
    middle = (missed["start_s"] + missed["end_s"]) / 2
    page.evaluate(
        "(s) => { const { spectrogram } = mastReview; "
        "spectrogram.viewport.go({ start_s: s - 4, end_s: s + 4 }); spectrogram.redraw(); }",
        middle,
    )
    camera.settle()
    left_top = page.evaluate(PLACE, [missed["start_s"] - 0.05, missed["high_hz"] + 150])
    right_bottom = page.evaluate(PLACE, [missed["end_s"] + 0.05, missed["low_hz"] - 150])
    page.keyboard.press("d")
    page.mouse.move(*left_top)
    page.mouse.down()
    page.mouse.move(*right_bottom, steps=6)
    page.mouse.up()


def _look_around(camera: Camera) -> None:
    page = camera.page
    page.select_option("[name=order]", "score")
    camera.settle()
    page.keyboard.press("j")
    page.wait_for_function("() => mastReview.state.selected === mastReview.queue.items[0].id")
    camera.take("wide")


def photograph_app(address: str, out: Path) -> None:
    """The app with what it has found."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        page = browser.new_page(viewport=LAPTOP, color_scheme="light")
        page.set_default_timeout(5 * PATIENCE_MS)
        page.goto(address)
        page.wait_for_function("() => document.querySelector('.picture img')?.naturalWidth > 0")
        if not page.locator(".job .badge.done").count():
            page.click("#find")
            page.wait_for_selector(".job .badge.done")
        page.wait_for_load_state("networkidle")
        _save(page, out / "app.png")
        browser.close()


def main() -> None:
    """Make the pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the pictures")
    parser.add_argument(
        "--work", type=Path, help="folder for sound and detections, kept; a temporary one by default"
    )
    parser.add_argument("--seed", type=int, default=3)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        work = given.work or Path(temporary)
        if not (work / "marsh").is_dir():
            simulate(work / "marsh", given.seed)
        if not (work / "detections").is_dir():
            detect_roughly(work / "marsh", work / "detections", given.seed)
        with review_server(work / "detections") as address:
            photograph(address, longest_missed(work / "marsh", work / "detections"), given.out)
        with app_server(work / "marsh") as address:
            photograph_app(address, given.out)
    sys.stdout.write(f"pictures → {given.out}\n")


if __name__ == "__main__":
    main()
