"""The grid of groups in a real browser, at two sizes and with the keyboard alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_reviewer import LAPTOP, TABLET, Reviewer, Server, make_results, reviewing
from review_folders import kind_of, results_of_kinds


@pytest.fixture
def ana(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Iterator[Reviewer]:
    with reviewing(browser, Server(results_of_kinds(tmp_path_factory.mktemp("groups")))) as reviewer:
        yield reviewer


def cards(ana: Reviewer) -> list[list[str]]:
    """The lines of each card."""
    found: list[str] = ana.page.locator(".group-card").all_inner_texts()
    return [[line for line in text.splitlines() if line] for text in found]


def test_groups_lie_in_a_grid_and_lead_to_their_boxes_by_keyboard(ana: Reviewer) -> None:
    assert ana.page.is_hidden("#group-row")
    ana.press("g")
    ana.page.wait_for_selector(".group-card >> nth=2")
    assert cards(ana) == [
        ["unnamed", "30 boxes", "0 decided"],
        ["unnamed", "24 boxes", "0 decided"],
        ["unnamed", "18 boxes", "0 decided"],
    ]
    ana.page.wait_for_function("document.activeElement === document.querySelector('.group-card')")
    ana.page.keyboard.press("ArrowRight")
    ana.page.keyboard.press("Enter")
    ana.wait_until("r.queue.wish().group === '1' && r.queue.total === 24")
    ana.wait_until("r.state.selected === r.queue.items[0].id")
    ana.settle()
    assert ana.page.is_hidden("#groups-dialog")
    assert {kind_of(event) for event in ana.evaluate("r.queue.items")} == {"middle"}
    assert ana.page.input_value("select[name=group]") == "1"

    ana.press("a", "r", "l")
    ana.page.keyboard.type("Robin")
    ana.page.keyboard.press("Enter")
    ana.wait_until("r.outbox.waiting() === 0")
    ana.press("g")
    ana.page.wait_for_selector(".group-card >> text=Robin")
    assert cards(ana)[1] == ["Robin", "24 boxes", "3 decided"]
    ana.page.keyboard.press("Escape")
    assert "2: Robin (24)" in ana.page.inner_text("select[name=group]")

    ana.page.click("#clear-filters")
    ana.wait_until("r.queue.wish().group === '' && r.queue.total === 69")


def test_a_whole_group_is_named_or_rejected_at_once_and_one_undo_takes_it_back(ana: Reviewer) -> None:
    ana.press("g")
    ana.page.wait_for_selector(".group-card >> nth=2")
    ana.page.click(".group-card >> nth=1")
    ana.wait_until(
        "r.queue.wish().group === '1' && r.queue.total === 24 && r.state.selected === r.queue.items[0].id"
    )
    ana.settle()
    ana.press("r")
    ana.page.wait_for_selector("#name-all:text-is('Name all 23…')")
    assert ana.page.evaluate(
        "() => ['.side.left', '#group-decisions'].map((s) => document.querySelector(s))"
        ".every((node) => node.scrollWidth <= node.clientWidth)"
    )
    ana.page.click("#name-all")
    ana.page.keyboard.type("Robin")
    ana.page.keyboard.press("Enter")
    ana.page.wait_for_selector(".toast >> text=23 boxes named Robin.")
    ana.page.wait_for_selector("#list-count:text-is('Nothing left here')")
    ana.page.wait_for_selector("#group-decisions", state="hidden")
    assert ana.server.get("progress")["group_accepted"] == 23
    ana.press("g")
    ana.page.wait_for_selector(".group-card >> text=Robin")
    assert cards(ana)[1] == ["Robin", "24 boxes", "24 decided"]
    ana.page.keyboard.press("Escape")
    ana.page.select_option("select[name=status]", "group_accepted")
    ana.wait_until("r.queue.total === 23")

    ana.page.click(".toast >> text=Undo")
    ana.wait_until("r.state.filters.status === 'open' && r.queue.total === 23")
    assert ana.server.get("progress")["group_accepted"] == 0
    ana.page.click("#reject-all")
    assert ana.page.is_hidden("#decide-group-name")
    ana.page.click("#decide-group-do")
    ana.page.wait_for_selector(".toast >> text=23 boxes rejected.")
    ana.page.wait_for_selector("#list-count:text-is('Nothing left here')")
    ana.press("z")
    ana.wait_until("r.queue.total === 23")
    ana.press("z")  # the one box that was rejected before
    ana.wait_until("r.state.events.get(r.state.selected)?.status === 'open'")
    assert ana.server.get("progress")["reviewed"] == 0


@pytest.mark.parametrize("viewport", [LAPTOP, TABLET], ids=["laptop", "tablet"])
def test_the_grid_fits(ana: Reviewer, viewport: dict[str, int]) -> None:
    ana.page.set_viewport_size(viewport)
    ana.page.click("#groups")
    ana.page.wait_for_selector(".group-card canvas >> nth=2")
    for selector in ("body", ".top", "#groups-dialog", "#groups-grid"):
        wide, there = ana.page.evaluate(
            "(s) => { const n = document.querySelector(s); return [n.scrollWidth, n.clientWidth]; }", selector
        )
        assert wide <= there, selector
    boxes = [ana.page.locator(".group-card").nth(k).bounding_box() for k in range(3)]
    assert len({box["y"] for box in boxes}) == 1  # beside each other
    assert all(box["width"] >= 140 for box in boxes)
    assert boxes[2]["x"] + boxes[2]["width"] <= viewport["width"]


def test_without_vectors_one_sentence(tmp_path: Path, browser: Any) -> None:
    folder = make_results(tmp_path)
    (folder / "embeddings.npy").unlink()
    server = Server(folder)
    ana = Reviewer(browser, server, "Ana")
    ana.press("g")
    ana.page.wait_for_selector("#groups-text >> text=run mast detect with --embed")
    assert ana.page.locator(".group-card").count() == 0
    ana.close()
    server.kill()
