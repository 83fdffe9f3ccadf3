"""Pictures of the review page, of the app, of a summary and of a contact sheet for the documentation, from real sound.

    python scripts/review_pictures.py --data FOLDER --out docs/images     # or with MAST_SHARED_DATA set

Takes a day in the Jura (scikit-maad, BSD-3-Clause) and two mornings in Australia (audio-analysis by QUT Ecoacoustics,
Apache-2.0) from anywhere below FOLDER, searches them with the embedded model, names what it finds with BirdNET, opens
the pages in Chromium, works on them as a reviewer would, and takes screenshots in a laptop-sized window and in a wide
one. The reviewer's decisions are made up. Sound is only written to a temporary folder.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from mast.audio import AUDIO_SUFFIXES

RECORDERS = ("S4A03895_", "NEJB_NE465_", "SERF_3_")  # how the names of their recordings begin
MISSED = {  # a faint call on which the embedded model draws no box
    "recording": "NEJB_NE465_20101013-062900",
    "start_s": 19.4,
    "end_s": 20.1,
    "low_hz": 1_800.0,
    "high_hz": 2_200.0,
}
GROUP = "cluster-005"  # the contact sheet to show
LAPTOP, WIDE = {"width": 1280, "height": 720}, {"width": 2200, "height": 1200}
CHROMIUM = "/usr/bin/chromium"
CHROMIUM_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
PATIENCE_MS = 120_000
QUALITY = 60  # of WebP
READY = """() => { const r = mastReview; return r.state.recording && !r.actions.arriving && !r.spectrogram.frame
  && !r.spectrogram.tiles.busy && r.overview.pictures.length && r.outbox.waiting() === 0; }"""
# every thumbnail in the window is painted
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


def copy_recordings(data: Path, folder: Path) -> None:
    """A folder with copies of these recordings; the review page opens no links that leave its folder."""
    found = [path for path in data.rglob("*") if path.suffix.lower() in AUDIO_SUFFIXES]
    folder.mkdir(parents=True)
    for recorder in RECORDERS:
        own = [path for path in found if path.name.startswith(recorder)]
        if not own:
            sys.exit(f"review_pictures: no recording below {data} has a name that begins with {recorder}")
        for path in own:
            shutil.copy(path, folder)


def mast(*arguments: str | Path) -> None:
    """Run a mast command in its own process."""
    subprocess.run([sys.executable, "-m", "mast", *map(str, arguments)], check=True)


def search_and_name(work: Path) -> None:
    """What the embedded model finds, BirdNET's names for it, a summary, and groups of look-alikes."""
    found = work / "detections"
    mast("detect", work / "recordings", "--out", found, "--embed", "--quiet")
    mast("name", found, "--with", "birdnet", "--out", work / "named.csv", "--quiet")
    mast("summarize", found, "--out", work / "summary", "--quiet")
    mast("embed", found, "--out", work / "events", "--quiet")
    mast("cluster", work / "events", "--audio", work / "recordings", "--out", work / "groups", "--quiet")


@contextmanager
def review_server(folder: Path, names: Path) -> Iterator[str]:
    """`mast review` in its own process; yields its address."""
    program = (
        "import typer; from mast.cli.review import review; typer.run(review)"  # quicker than all of mast
    )
    command = [
        sys.executable,
        "-c",
        program,
        str(folder),
        "--names",
        str(names),
        "--port",
        "0",
        "--no-browser",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with _address_of(process) as address:
        yield address


@contextmanager
def app_server(folder: Path) -> Iterator[str]:
    """`mast app` on a folder of recordings, in its own process; yields its address."""
    command = [sys.executable, "-m", "mast", "app", str(folder), "--port", "0", "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with _address_of(process) as address:
        yield address


@contextmanager
def _address_of(process: subprocess.Popen[str]) -> Iterator[str]:
    """Yields the address that a server prints, and stops the server afterwards."""
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
        """Open the page and enter a name."""
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
        """Take one picture, without transient messages."""
        self.settle()
        while self.page.locator(".toast .cross").count():
            self.page.locator(".toast .cross").first.click()
        _save(self.page, self.out / f"review_{name}.webp")


def _save(page: Any, path: Path, **options: Any) -> None:
    """Save as WebP, which takes a quarter of the bytes of PNG: a page of ten pictures has to stay small."""
    whole = Image.open(io.BytesIO(page.screenshot(**options))).convert("RGB")
    whole.thumbnail((1400, 1400))
    whole.save(path, quality=QUALITY, method=6)


def photograph(address: str, out: Path) -> None:
    """All pictures of the tutorial."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        laptop = Camera(browser.new_page(viewport=LAPTOP, color_scheme="light"), out)
        laptop.page.set_default_timeout(PATIENCE_MS)
        laptop.open(address, "Ana")
        _review(laptop)
        wide = Camera(browser.new_page(viewport=WIDE, color_scheme="dark"), out)
        wide.page.set_default_timeout(PATIENCE_MS)
        wide.open(address, "Bea")
        _look_around(wide)
        browser.close()


def _review(camera: Camera) -> None:
    page = camera.page
    page.select_option("[name=order]", "score")
    camera.settle()
    camera.take("queue")
    page.keyboard.press("l")
    page.fill("#label-field", "st")
    camera.take("label")
    page.keyboard.press("Escape")
    page.select_option("[name=order]", "random")
    page.wait_for_timeout(2_000)  # wait for the list
    camera.settle()
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
    page.fill("[name=search]", MISSED["recording"])
    page.wait_for_function("() => mastReview.recordings.total === 1")
    page.click(".recording-row")
    camera.settle()
    _draw(camera)
    page.keyboard.press("m")
    camera.take("draw")
    page.keyboard.press("?")
    camera.take("keys")
    page.keyboard.press("Escape")
    page.click("#export")
    camera.take("export")
    page.keyboard.press("Escape")


def _draw(camera: Camera) -> None:
    """A box by hand, around what the detector missed, in the middle of the window."""
    page = camera.page
    middle = (MISSED["start_s"] + MISSED["end_s"]) / 2
    page.evaluate(
        "(s) => { const { spectrogram } = mastReview; "
        "spectrogram.viewport.go({ start_s: s - 4, end_s: s + 4 }); spectrogram.redraw(); }",
        middle,
    )
    camera.settle()
    left_top = page.evaluate(PLACE, [MISSED["start_s"] - 0.05, MISSED["high_hz"] + 150])
    right_bottom = page.evaluate(PLACE, [MISSED["end_s"] + 0.05, MISSED["low_hz"] - 150])
    page.keyboard.press("d")
    page.mouse.move(*left_top)
    page.mouse.down()
    page.mouse.move(*right_bottom, steps=6)
    page.mouse.up()


def _look_around(camera: Camera) -> None:
    page = camera.page
    page.select_option("[name=order]", "score")
    camera.settle()
    page.wait_for_function("() => mastReview.state.selected === mastReview.queue.items[0].id")
    camera.take("wide")


def photograph_app(address: str, out: Path) -> None:
    """The app with its detections."""
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
        _save(page, out / "app.webp")
        browser.close()


def photograph_summary(page_file: Path, out: Path) -> None:
    """The top of a summary, and its best events."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGUMENTS)
        page = browser.new_page(viewport={"width": 900, "height": 800}, color_scheme="light")
        page.goto(page_file.as_uri())
        _save(page, out / "summary.webp", clip={"x": 0, "y": 0, "width": 900, "height": 740}, full_page=True)
        top, bottom = (page.locator(place).bounding_box()["y"] for place in ("#best", "#doubtful"))
        best = {"x": 0, "y": top - 20, "width": 900, "height": bottom - top - 20}
        _save(page, out / "summary_best.webp", clip=best, full_page=True)
        browser.close()


def main() -> None:
    """Make the pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, default=os.environ.get("MAST_SHARED_DATA"), help="folder of recordings"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the pictures")
    parser.add_argument(
        "--work", type=Path, help="folder for recordings and detections, kept; a temporary one by default"
    )
    given = parser.parse_args()
    if given.data is None:
        sys.exit("review_pictures: give the folder of recordings with --data, or set MAST_SHARED_DATA")
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        work = given.work or Path(temporary)
        if not (work / "recordings").is_dir():
            copy_recordings(Path(given.data), work / "recordings")
            search_and_name(work)
        with review_server(work / "detections", work / "named.csv") as address:
            photograph(address, given.out)
        with app_server(work / "recordings") as address:
            photograph_app(address, given.out)
        photograph_summary(work / "summary" / "summary.html", given.out)
        sheet = Image.open(work / "groups" / "sheets" / f"{GROUP}.png").convert("RGB")
        sheet.thumbnail((1100, 1100))
        sheet.save(given.out / "contact_sheet.webp", quality=QUALITY, method=6)
    sys.stdout.write(f"pictures → {given.out}\n")


if __name__ == "__main__":
    main()
