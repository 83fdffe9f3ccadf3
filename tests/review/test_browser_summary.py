"""The summary tab in a real browser: make it, open it, and know when it is out of date."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from browser_reviewer import LAPTOP, TABLET, Reviewer, Server, make_results
from review_folders import write_dataset


def test_it_is_made_and_opened(tmp_path: Path, browser: Any) -> None:
    server = Server(make_results(tmp_path))
    ana = Reviewer(browser, server, "Ana")
    ana.page.click("#tab-summary")
    ana.page.click("#summary-make")
    ana.page.wait_for_selector("#panel-summary progress")
    ana.page.wait_for_selector("#summary-open")
    assert "nothing was decided since" in ana.page.inner_text("#summary-made")
    with ana.context.expect_page() as opening:
        ana.page.click("#summary-open")
    summary = opening.value
    summary.wait_for_selector("h1")
    assert "18\nevents found" in summary.inner_text("body")
    assert summary.locator("img").count() > 1
    summary.close()

    for _ in range(2):
        ana.press("a")
        ana.settle()  # a key that comes while the next recording is opened is not a decision
    ana.page.wait_for_selector("#summary-made >> text=2 decisions since")
    for viewport in (LAPTOP, TABLET):
        ana.page.set_viewport_size(viewport)
        for selector in ("body", "#panel-summary", ".side.right .tabs"):
            wide, there = ana.page.evaluate(
                "(s) => { const n = document.querySelector(s); return [n.scrollWidth, n.clientWidth]; }",
                selector,
            )
            assert wide <= there, selector

    other = tmp_path / "results" / "summary" / "mine.txt"
    other.write_text("mine")
    ana.page.click("#summary-make")
    ana.page.wait_for_selector("#panel-summary .failed >> text=holds other files than a summary")
    ana.close()
    server.kill()


def test_a_dataset_has_none(tmp_path: Path, browser: Any) -> None:
    server = Server(write_dataset(tmp_path))
    ana = Reviewer(browser, server, "Ana")
    ana.page.click("#tab-summary")
    ana.page.wait_for_selector("#panel-summary >> text=run mast detect on it first")
    assert ana.page.locator("#summary-make").count() == 0
    ana.close()
    server.kill()
