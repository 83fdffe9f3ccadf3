"""Several reviewers at once, and a server that goes away: nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from browser_reviewer import WAIT_MS, Reviewer, Server, make_results

from mast.review.serve import _private_page


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Iterator[Server]:
    """A server of its own for each test."""
    running = Server(make_results(tmp_path_factory.mktemp("together")))
    yield running
    running.kill()


def test_two_reviewers_keep_each_others_work(browser: Any, server: Server) -> None:
    ana, bea = (Reviewer(browser, server, name) for name in ("Ana", "Béa Müller"))
    first, second = server.events()[:2]
    for reviewer in (ana, bea):
        reviewer.stay_on_event()
        reviewer.select(first)
    ana.press("a")
    assert server.event(first["id"])["status"] == "accepted"
    bea.complaints.clear()
    bea.press("r")  # what she sees is older than what Ana did
    bea.page.wait_for_selector(".toast:has-text('Ana changed this box')")
    assert server.event(first["id"])["reviewer"] == "Ana"
    bea.page.click(".toast button:has-text('Use mine')")
    bea.wait_until("r.outbox.waiting() === 0")
    now = server.event(first["id"])
    assert (now["status"], now["reviewer"]) == ("rejected", "Béa Müller")
    ana.select(second)
    ana.press("a")
    bea.page.evaluate("globalThis.mastReview.actions.refresh()")
    bea.wait_until("r.state.events.get(argument).status === 'accepted'", second["id"])
    assert server.get("progress")["by_reviewer"] == {"Ana": 1, "Béa Müller": 1}
    ana.press("z", "z")  # her second decision; the first is Béa's now and stays
    assert server.event(second["id"])["status"] == "open"
    assert server.event(first["id"])["status"] == "rejected"
    for reviewer in (ana, bea):
        assert all(
            "409" in complaint for complaint in reviewer.complaints
        )  # the browser's own note of a refusal
        reviewer.complaints.clear()
        reviewer.close()


def test_decisions_wait_for_a_server_that_was_killed(browser: Any, server: Server) -> None:
    ana = Reviewer(browser, server, "Ana")
    events = server.events()
    ana.select(events[0])
    ana.page.click("#tab-recordings")
    server.kill()
    ana.page.keyboard.press("a")  # leads to the next open box, which is on the page already
    ana.wait_until("r.state.selected === argument", events[1]["id"])
    ana.page.keyboard.press("r")
    ana.page.wait_for_selector("#banner:has-text('2 decisions are kept here')")
    assert ana.evaluate("r.state.events.get(argument).status", events[0]["id"]) == "accepted"
    server.start()  # with a new token
    ana.try_now()
    ana.page.wait_for_selector("#banner:has-text('This page is private; open the link that mast printed')")
    assert "2 decisions are kept here" in ana.page.inner_text("#banner")
    assert server.event(events[0]["id"])["status"] == "open"
    other = ana.context.new_page()
    other.goto(_private_page(server.link))  # as mast opens it by itself
    other.wait_for_selector("#spectrogram")
    assert other.url.partition("#")[0] == server.address  # the token does not stay in the address
    other.reload()
    other.wait_for_selector("#spectrogram")
    ana.try_now()
    ana.wait_until("r.outbox.waiting() === 0")
    ana.page.wait_for_selector("#banner", state="hidden")
    assert server.event(events[0]["id"])["status"] == "accepted"
    assert server.event(events[1]["id"])["status"] == "rejected"
    ana.complaints.clear()  # the browser notes every request that found nobody
    ana.close()


def test_a_decision_made_as_the_page_closes_is_kept(browser: Any, server: Server) -> None:
    ana = Reviewer(browser, server, "Ana")
    event = server.events()[0]
    ana.select(event)
    ana.page.once("dialog", lambda dialog: dialog.accept())  # yes, leave
    # in one go, before anything has been sent
    ana.page.evaluate("() => { mastReview.actions.decide('accepted'); location.href = 'about:blank'; }")
    ana.page.wait_for_url("about:blank")
    end = time.monotonic() + WAIT_MS / 1000
    while server.event(event["id"])["status"] == "open" and time.monotonic() < end:
        time.sleep(0.05)
    assert server.event(event["id"])["status"] == "accepted"
    ana.close()


def test_the_page_warns_before_it_closes_with_decisions_that_are_not_saved(
    browser: Any, server: Server
) -> None:
    ana = Reviewer(browser, server, "Ana")
    event = server.events()[0]
    ana.stay_on_event()
    ana.select(event)
    server.kill()
    ana.page.keyboard.press("a")
    ana.page.wait_for_selector("#banner:has-text('One decision is kept here')")
    asked = []

    def stay(dialog: Any) -> None:
        asked.append(dialog.type)
        dialog.dismiss()

    ana.page.once("dialog", stay)
    ana.page.close(run_before_unload=True)
    ana.wait_until("r.outbox.waiting() === 1")  # still there
    assert asked == ["beforeunload"]
    ana.complaints.clear()
    ana.close()


def test_refusal_is_said_and_taken_back(browser: Any, server: Server) -> None:
    ana = Reviewer(browser, server, "Ana")
    event = server.events()[0]
    ana.stay_on_event()
    ana.select(event)
    ana.page.route(
        "**/api/events/*",
        lambda route: (
            route.fulfill(status=400, json={"error": "no, because of this"})
            if route.request.method == "PATCH"
            else route.continue_()
        ),
    )
    ana.page.keyboard.press("a")
    ana.page.wait_for_selector(".toast.error:has-text('no, because of this')")
    ana.wait_until("r.state.events.get(argument).status === 'open'", event["id"])
    ana.page.wait_for_timeout(4_500)
    assert ana.page.locator(".toast.error").count() == 1  # errors stay until they are closed
    ana.page.click(".toast.error .cross")
    assert ana.page.locator(".toast.error").count() == 0
    ana.complaints.clear()
    ana.close()


def _press_until_told(ana: Reviewer, key: str, words: str) -> None:
    """Again where a busy page was not ready for the key; deciding the same twice is one decision."""
    for _ in range(10):
        ana.page.keyboard.press(key)
        try:
            ana.page.wait_for_selector(f"#banner:has-text('{words}')", timeout=10_000)
            return
        except Exception as error:  # playwright's own kind, which is not imported where it is missing
            if "Timeout" not in str(error):
                raise
    raise AssertionError(f"the banner never said: {words}")


def test_decisions_wait_for_a_disk_with_space(browser: Any, server: Server) -> None:
    ana = Reviewer(browser, server, "Ana")
    events = server.events()
    full = "review.sqlite: the disk is full; free some space"
    ana.page.route(
        "**/api/events/*",
        lambda route: (
            route.fulfill(status=507, json={"error": full})
            if route.request.method == "PATCH"
            else route.continue_()
        ),
    )
    ana.stay_on_event()
    ana.select(events[0])
    _press_until_told(ana, "a", f"Not saved: {full}. One decision is kept here")
    ana.page.keyboard.press("r")  # on second thought
    ana.page.wait_for_selector("#banner:has-text('2 decisions are kept here')")
    ana.try_now()  # still full
    ana.page.wait_for_selector("#banner:has-text('2 decisions are kept here')")
    assert ana.evaluate("r.state.events.get(argument).status", events[0]["id"]) == "rejected"
    assert server.event(events[0]["id"])["status"] == "open"
    ana.page.unroute("**/api/events/*")
    ana.try_now()
    ana.wait_until("r.outbox.waiting() === 0")
    ana.page.wait_for_selector("#banner", state="hidden")
    now = server.event(events[0]["id"])
    assert (now["status"], now["reviewer"]) == ("rejected", "Ana")
    ana.complaints.clear()  # the browser notes every refusal
    ana.close()


def test_without_a_name_decisions_wait_and_the_question_returns(browser: Any, server: Server) -> None:
    ana = Reviewer(browser, server, "")
    events = server.events()
    escape(ana)
    ana.stay_on_event()
    ana.select(events[0])
    for turn in (1, 2):
        ana.page.keyboard.press("a" if turn == 1 else "r")
        ana.page.wait_for_selector("#name-dialog[open]")
        assert ana.evaluate("r.outbox.waiting()") == turn
        if turn == 1:
            escape(ana)
    assert server.event(events[0]["id"])["status"] == "open"
    assert "not saved" in ana.page.inner_text("#saved")
    ana.page.fill("#name-field", "Ana")
    ana.page.keyboard.press("Enter")
    ana.wait_until("r.outbox.waiting() === 0")
    now = server.event(events[0]["id"])
    assert (now["status"], now["reviewer"], now["version"]) == ("rejected", "Ana", 2)
    ana.close()


def escape(reviewer: Reviewer) -> None:
    """Press Esc until the question for a name is gone: the browser lets a page hold it back only once."""
    while reviewer.page.locator("#name-dialog[open]").count():
        reviewer.page.keyboard.press("Escape")
        reviewer.page.wait_for_timeout(50)
