"""Working through the queue in a real browser: after an order or a filter was chosen, and at the queue's end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browser_reviewer import Reviewer, Server, make_results, reviewing
from review_folders import results_of_kinds

ROW_IN_VIEW = """(id) => {
  const row = document.querySelector(`#left-body .row[data-id="${id}"]`)?.getBoundingClientRect();
  const list = document.querySelector("#left-body").getBoundingClientRect();
  return Boolean(row) && row.top >= list.top - 1 && row.bottom <= list.bottom + 1;
}"""


@pytest.fixture
def ana(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Iterator[Reviewer]:
    with reviewing(browser, Server(make_results(tmp_path_factory.mktemp("queue")))) as reviewer:
        yield reviewer


def choose(ana: Reviewer, name: str, value: str) -> None:
    """Choose with the mouse, which leaves the focus on the list; wait until the queue is there."""
    ana.page.mouse.move(0, 0)
    ana.page.focus(f"select[name={name}]")
    ana.page.dispatch_event(f"select[name={name}]", "pointerdown")
    ana.page.select_option(f"select[name={name}]", value)
    ana.wait_until("String(r.queue.wish()[argument[0]]) === argument[1]", [name, value])
    ana.wait_until("r.queue.ended")


def queue_ids(ana: Reviewer) -> list[str]:
    found: list[str] = ana.evaluate("r.queue.items.map((event) => event.id)")
    return found


def arrive(ana: Reviewer, event_id: str) -> None:
    """Wait until the page shows an event, ready for a decision about it."""
    ana.wait_until("r.state.selected === argument && !r.actions.arriving", event_id)


@pytest.mark.parametrize(("name", "value"), [("order", "random"), ("site", "N2"), ("hour", "6")])
def test_letters_decide_after_a_choice(ana: Reviewer, name: str, value: str) -> None:
    choose(ana, name, value)
    first, second, third = queue_ids(ana)[:3]
    arrive(ana, first)
    ana.page.keyboard.press("a")
    arrive(ana, second)
    ana.press("r")
    arrive(ana, third)
    assert ana.page.input_value(f"select[name={name}]") == value
    assert [ana.server.event(each)["status"] for each in (first, second)] == ["accepted", "rejected"]
    ana.page.keyboard.press("ArrowUp")  # the arrows, too, are the page's again
    arrive(ana, second)


def test_a_list_that_was_opened_and_left_as_it_is_takes_no_letters(ana: Reviewer) -> None:
    before = ana.selected
    ana.page.click("select[name=order]")
    ana.page.keyboard.press("Enter")  # what is chosen already: nothing changes
    ana.page.keyboard.press("r")
    ana.wait_until("r.outbox.waiting() === 0 && r.state.selected !== argument", before)
    assert ana.server.event(before)["status"] == "rejected"
    assert ana.page.input_value("select[name=order]") == "uncertain"


def test_arrows_on_a_list_with_the_focus_go_from_choice_to_choice(ana: Reviewer) -> None:
    ana.page.focus("select[name=site]")
    for site in ("N1", "N2"):
        ana.page.keyboard.press("ArrowDown")
        ana.wait_until("r.state.filters.site === argument && r.queue.ended", site)
        assert ana.page.evaluate("document.activeElement.name") == "site"
    first, second = queue_ids(ana)[:2]
    arrive(ana, first)
    ana.press("a")
    arrive(ana, second)
    assert ana.page.input_value("select[name=site]") == "N2"
    assert ana.server.event(first)["status"] == "accepted"
    assert ana.page.evaluate("document.activeElement === document.body")  # one works on the page now


def test_another_order_begins_at_its_first_event(ana: Reviewer) -> None:
    choose(ana, "order", "time")
    ids = queue_ids(ana)
    assert len(ids) == 18
    ana.select(ana.evaluate("r.queue.items[9]"))
    choose(ana, "order", "score")
    ids = queue_ids(ana)
    arrive(ana, ids[0])
    assert ana.page.evaluate(ROW_IN_VIEW, ids[0])
    ana.settle()
    for n, event_id in enumerate(ids):
        assert ana.selected == event_id
        ana.press("a")
        arrive(ana, ids[min(n + 1, len(ids) - 1)])
    ana.page.wait_for_selector(".toast >> text=That was the last one in this queue.")
    assert ana.server.get("progress")["accepted"] == 18


def test_a_filter_leaves_no_event_outside_the_queue_selected(ana: Reviewer) -> None:
    outside = ana.server.events(1)[0]
    ana.select(outside)
    choose(ana, "site", "N2")
    arrive(ana, queue_ids(ana)[0])
    choose(ana, "hour", "5")  # site N2 has nothing then
    ana.wait_until("r.state.selected === null")
    ana.press("a")
    ana.page.wait_for_selector(".toast >> text=Choose a box first")
    assert ana.server.get("progress")["reviewed"] == 0


def test_keys_wait_for_the_queue_that_was_asked_for(ana: Reviewer) -> None:
    before = ana.selected
    held: list[Any] = []
    ana.page.route("**/api/queue?*", lambda route: held.append(route))
    ana.page.select_option("select[name=order]", "score")
    ana.wait_until("r.queue.starting")
    ana.page.keyboard.press("a")
    for route in held:
        route.continue_()
    ana.page.unroute("**/api/queue?*")
    ana.wait_until("r.queue.ended")
    arrive(ana, queue_ids(ana)[0])
    ana.settle()
    assert ana.server.event(before)["status"] == "open"


def test_the_end_leads_back_to_what_is_still_open(ana: Reviewer) -> None:
    choose(ana, "order", "score")
    ids = queue_ids(ana)
    ana.select(ana.evaluate("r.queue.items[14]"))
    for event_id in ids[14:]:
        arrive(ana, event_id)
        ana.press("r")
    ana.page.wait_for_selector(".toast >> text=14 are still open above; this is the first.")
    arrive(ana, ids[0])
    assert ana.page.evaluate(ROW_IN_VIEW, ids[0])
    ana.select(ana.evaluate("r.queue.items[12]"))
    for event_id in ids[12:14]:
        arrive(ana, event_id)
        ana.press("a")  # the decided ones below are not shown once more
    ana.page.wait_for_selector(".toast >> text=12 are still open above; this is the first.")
    arrive(ana, ids[0])


def test_a_second_thought_leads_to_the_next_event(ana: Reviewer) -> None:
    choose(ana, "order", "score")
    ids = queue_ids(ana)
    for n in range(3):
        arrive(ana, ids[n])
        ana.press("a")
    for n in (2, 1, 0):
        ana.page.keyboard.press("k")
        arrive(ana, ids[n])
    ana.press("r")
    arrive(ana, ids[1])  # decided already, like the one just corrected


def test_what_is_said_of_an_event_is_what_was_decided(ana: Reviewer) -> None:
    ana.stay_on_event()
    for key, status in (("r", "rejected"), ("a", "accepted"), ("z", "rejected")):
        ana.press(key)
        ana.page.wait_for_selector(f"#panel-event .badge:text-is('{status}')")
        assert f", {status}, at " in ana.page.text_content("#spoken")
    ana.page.keyboard.press("Escape")
    ana.wait_until("r.state.selected === null")
    assert ana.page.text_content("#spoken") == ""


def test_an_event_rejected_with_its_group_is_not_called_open(
    tmp_path_factory: pytest.TempPathFactory, browser: Any
) -> None:
    server = Server(results_of_kinds(tmp_path_factory.mktemp("kinds")))
    with reviewing(browser, server) as ana:
        ana.press("g")
        ana.page.click(".group-card >> nth=1")
        ana.wait_until("r.queue.wish().group === '1' && r.queue.total === 24")
        ana.settle()
        ana.page.click("#reject-all")
        ana.page.click("#decide-group-do")
        ana.page.wait_for_selector("#panel-event .badge:text-is('rejected with group')")
        assert ", rejected with group, at " in ana.page.text_content("#spoken")
