"""The whole way in a real browser: a folder of recordings, Find, stop, resume, review, summary, export, learning."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from app_folders import write_sound
from toy_recipe import save_small_detector
from typer.testing import CliRunner

from mast.annotations import read_annotations
from mast.annotations.detections import read_run, write_run
from mast.cli.main import app
from mast.events import as_events
from mast.progress import read_progress

sys.path.insert(0, str(Path(__file__).parents[1] / "review"))
from browser_reviewer import LAPTOP, WAIT_MS, open_browser
from review_folders import add_detections, write_tones

TABLET = {"width": 768, "height": 1024}
OVERFLOWING = """
[...document.querySelectorAll("body *")].filter((node) => node.offsetParent !== null
  && node.getBoundingClientRect().right > innerWidth + 1).map((node) => node.id || node.className || node.tagName)
"""

DROP = """(address) => {
  const dataTransfer = new DataTransfer();
  dataTransfer.setData("text/uri-list", `# a comment\\r\\n${address}\\r\\n`);
  document.body.dispatchEvent(new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer }));
}"""


# `mast` whose page trains for two epochs, which is all the time that a test has
TWO_EPOCHS = """
import sys
import mast.jobs
run = "from mast.cli.main import main; import sys; sys.argv += ['--set', 'train.epochs=2']; main()"
mast.jobs._PROGRAM = (sys.executable, "-c", run)
from mast.cli.main import main
main()
"""


class Window:
    """`mast app` in a process of its own."""

    def __init__(self, folder: Path, *program: str) -> None:
        self.folder, self.program = folder, program or ("-m", "mast")
        self.start()

    def start(self) -> None:
        """Start it, and wait until it says where it is."""
        command = [sys.executable, *self.program, "app", "--port", "0", "--no-browser", "--quiet"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HOME": str(self.folder)}
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=self.folder,
        )
        assert self.process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", self.process.stdout.readline())
        assert found is not None
        self.address = found[0]

    def kill(self) -> None:
        """End it without a chance to tidy up."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for all tests."""
    with open_browser() as opened:
        yield opened


@pytest.fixture
def window(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Window]:
    """A server; of another program than mast itself where a test says so."""
    opened = Window(tmp_path, *getattr(request, "param", ()))
    yield opened
    opened.kill()


def _page(browser: Any, address: str, viewport: dict[str, int] = LAPTOP) -> Any:
    page = browser.new_context(viewport=viewport, accept_downloads=True).new_page()
    page.set_default_timeout(WAIT_MS)
    page.complaints = []
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("console", lambda said: said.type == "error" and page.complaints.append(said.text))
    page.goto(address)
    page.wait_for_selector("#folders li")
    return page


def _choose(page: Any, folder: Path) -> None:
    """Type a path, look at it, use it; all with the keyboard."""
    page.fill("#path", str(folder))
    page.keyboard.press("Enter")
    page.wait_for_function("(path) => document.getElementById('here').textContent === path", arg=str(folder))
    page.focus("#use")
    page.keyboard.press("Enter")
    page.wait_for_selector("#work:not([hidden])")


def _begun(page: Any, recordings: int) -> None:
    """Wait until a few recordings are done."""
    page.wait_for_function(
        "(n) => mastWindow.state.work.results.some((job) => job.total > 0 && job.done > 0 && job.done < n)",
        arg=recordings,
    )


def test_from_a_folder_to_an_export(browser: Any, window: Window, tmp_path: Path) -> None:
    wood, out = tmp_path / "wood", tmp_path / "wood-mast" / "birds"
    made = CliRunner().invoke(
        app, ["simulate", str(wood), "--recordings", "30", "--duration", "20", "--seed", "3", "-q"]
    )
    assert made.exit_code == 0
    (wood / "audio" / "broken.wav").write_bytes(b"no sound")
    page = _page(browser, window.address)
    _choose(page, wood)
    page.wait_for_selector(".big-facts")
    assert page.inner_text(".big-facts div:first-child b") == "30"
    assert "broken.wav" in page.inner_text(".more-facts")
    page.wait_for_function("() => document.querySelector('.picture img').naturalWidth > 0")
    assert page.evaluate("document.activeElement.id") == "find"
    page.keyboard.press("Enter")

    _begun(page, 30)
    page.click("text=Stop")
    page.wait_for_selector(".badge.stopped")
    assert "What is done is kept." in page.inner_text(".job")
    kept = {path.name for path in (out / "recordings" / "audio").glob("*.parquet")}
    assert kept

    # the server is killed with the command running and the page closed; the next one finds both
    page.click("text=Resume")
    page.wait_for_selector(".badge.running")
    page.context.close()
    window.kill()
    window.start()
    page, other = _page(browser, window.address), _page(browser, window.address, TABLET)
    for one in (page, other):
        _choose(one, wood)
        one.wait_for_selector(".badge.done")
        assert " found in 30 recordings. 1 file could not be searched." in one.inner_text(".job")
        assert one.evaluate(OVERFLOWING) == []
    assert kept <= {path.name for path in (out / "recordings" / "audio").glob("*.parquet")}
    other.context.close()

    page.click("text=Review…")
    page.wait_for_selector("#name-dialog[open]")
    page.fill("#name-field", "Ana")
    page.keyboard.press("Enter")
    page.wait_for_function("() => mastReview.state.selected !== null && !mastReview.actions.arriving")
    for _ in range(2):
        chosen = page.evaluate("mastReview.state.selected")
        page.keyboard.press("a")
        page.wait_for_function(
            "(chosen) => mastReview.outbox.waiting() === 0 && mastReview.state.selected !== chosen",
            arg=chosen,
        )
    page.click("#home")

    page.wait_for_selector(".job .badge.done")
    page.click("text=Summarise")
    page.wait_for_selector("a:text('Summary')")
    with page.expect_popup() as opened:
        page.click("a:text('Summary')")
    opened.value.wait_for_selector("h1")
    assert (
        opened.value.evaluate("getComputedStyle(document.body).maxWidth") == "1080px"
    )  # its own style is let in
    assert (out / "summary" / "counts.csv").is_file()

    page.select_option("select[name=format]", "csv")
    with page.expect_download() as download:
        page.click("text=Export")
    with zipfile.ZipFile(download.value.path()) as archive:
        archive.extractall(tmp_path / "export")
    assert len(read_annotations(tmp_path / "export" / "boxes.csv").events) == 2
    assert page.complaints == []
    page.context.close()


def test_what_goes_wrong_is_one_sentence(browser: Any, window: Window, tmp_path: Path) -> None:
    page = _page(browser, window.address)
    page.fill("#path", str(tmp_path / "none"))
    page.keyboard.press("Enter")
    page.wait_for_selector(".toast.error")
    assert "none: no such folder; expected a folder of recordings" in page.inner_text(".toast.error")
    empty = tmp_path / "empty"
    empty.mkdir()
    _choose(page, empty)
    page.wait_for_selector("#contents-failed")
    assert "no recordings found" in page.inner_text("#contents-failed")
    assert page.is_disabled("#find")
    page.click("#change")
    names = tuple(f"N1_202405{day}_0{hour}0000.wav" for day in range(10, 20) for hour in range(8))
    wood = write_sound(tmp_path / "wood", names)
    page.evaluate(DROP, wood.as_uri())  # as file managers give it
    page.wait_for_function("(path) => document.getElementById('here').textContent === path", arg=str(wood))
    _choose(page, wood)
    page.wait_for_selector(".big-facts")
    page.click("#find")
    page.wait_for_selector(".badge.running")
    out = tmp_path / "wood-mast" / "birds"
    page.wait_for_function("() => mastWindow.state.work.results[0].total > 0")
    told = read_progress(out)
    assert told is not None
    os.kill(told.process, signal.SIGKILL)
    page.wait_for_selector(".badge.stopped")
    page.click("text=Resume")
    page.wait_for_selector(".badge.done")
    assert " found in 80 recordings." in page.inner_text(".job")
    window.kill()
    page.wait_for_selector("#banner:not([hidden])")
    assert "The server does not answer." in page.inner_text("#banner")
    page.context.close()


def _found(root: Path) -> Path:
    """Three short recordings with three tones each, and a results folder of them from a small detector."""
    audio, tables = root / "wood", {}
    for seed, name in enumerate(("A_20240501_050000.wav", "B_20240501_050000.wav", "C_20240501_050000.wav")):
        write_tones(audio / name, 2.5, seed=seed)
        times = {"start_s": [0.0, 1.0, 2.0], "end_s": [0.5, 1.5, 2.5]}
        table = pd.DataFrame(times).assign(recording=name, low_hz=800.0, high_hz=1200.0, score=0.6)
        tables[name] = as_events(table.assign(source="detector"))
    out = add_detections(root / "wood-mast" / "birds", audio, tables)
    run = read_run(out)
    assert run is not None
    write_run(out, replace(run, model=str(save_small_detector(root / "model", score=0.1))))
    return out


@pytest.mark.parametrize("window", [("-c", TWO_EPOCHS)], indirect=True, ids=["two epochs"])
def test_learning_from_what_was_checked_ends_in_its_report(
    browser: Any, window: Window, tmp_path: Path
) -> None:
    out = _found(tmp_path)
    page = _page(browser, window.address)
    _choose(page, tmp_path / "wood")
    assert page.get_by_role("button", name="Adapt to these recordings").is_visible()
    page.click("text=Learn from what I checked")
    page.wait_for_selector(".toast.error >> text=nothing has been accepted yet")
    page.click(".toast.error .cross")
    page.click("text=Review…")
    page.fill("#name-field", "Ana")
    page.keyboard.press("Enter")
    page.wait_for_function("() => mastReview.state.selected !== null && !mastReview.actions.arriving")
    for left in range(8, -1, -1):
        page.keyboard.press("a")
        page.wait_for_function(
            "(left) => mastReview.outbox.waiting() === 0 && !mastReview.actions.arriving"
            " && [...mastReview.queue.items].filter((event) => event.status === 'open').length === left",
            arg=left,
        )
    page.click("#home")
    page.click("text=Learn from what I checked")
    learned = page.locator("article", has_text="what was learned")
    learned.locator(".badge.running").wait_for()
    learned.locator(".badge.done").wait_for(timeout=2 * WAIT_MS)
    with page.expect_popup() as opened:
        learned.locator("a:text('Report')").click()
    report = opened.value
    report.wait_for_selector("h1")
    assert "boxes by experts, 7.5 seconds of sound in all" in report.inner_text("body")
    assert report.locator("img").count() > 0
    # what was learned can be chosen to search with
    options = page.locator("#model option").all_inner_texts()
    assert options == ["the detector that comes with mast", "birds-learned"]
    assert not [
        text for text in page.complaints if "400" not in text
    ]  # the browser's own note of the refusal
    page.context.close()
    assert (out.with_name("birds-learned") / "report.html").is_file()


STRANGER = """async ({ target, folder }) => {
  const body = JSON.stringify({ path: folder, sought: "birds" });
  const json = { "Content-Type": "application/json" };
  const tries = [
    () => fetch(`${target}api/find`, { method: "POST", mode: "no-cors", credentials: "include", body }),
    () => fetch(`${target}api/find`, { method: "POST", credentials: "include", headers: json, body }),
    () => fetch(`${target}api/folders?path=${folder}`, { credentials: "include" }).then((answer) => answer.text()),
    () => new Promise((resolve, reject) => {
      const frame = document.createElement("iframe");
      frame.onload = () => { try { resolve(frame.contentDocument.body.innerText); } catch (e) { reject(e); } };
      frame.src = target;
      document.body.append(frame);
    }),
  ];
  const seen = [];
  for (const attempt of tries) {
    try {
      const found = await attempt();
      seen.push(typeof found === "string" ? found : `${found.type} ${found.status}`);
    } catch (error) { seen.push("refused"); }
  }
  return seen;
}"""


def test_a_page_of_another_origin_starts_and_reads_nothing(
    browser: Any, window: Window, tmp_path: Path
) -> None:
    """Beside the window, in the same browser, with its cookie: another server of this machine."""
    wood = write_sound(tmp_path / "wood")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "index.html").write_text("<!doctype html><title>elsewhere</title>")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "elsewhere"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        page = _page(browser, window.address)
        stranger = page.context.new_page()
        stranger.goto(f"http://127.0.0.1:{other.server_port}/")
        target = window.address.partition("?")[0]
        seen = stranger.evaluate(STRANGER, {"target": target, "folder": str(wood)})
        other.shutdown()
    assert seen == ["refused"] * 4
    assert not (tmp_path / "wood-mast").exists()
    listed = page.evaluate(
        "(url) => fetch(url).then((answer) => answer.json())", f"{target}api/folders?path={wood}"
    )
    assert listed["recordings"] == 2  # the window itself may
    page.context.close()
