"""Working through the queue in a real browser after an order or a filter was chosen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browser_reviewer import Reviewer, Server, make_results, reviewing

@pytest.fixture
def ana(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Iterator[Reviewer]:
    with reviewing(browser, Server(make_results(tmp_path_factory.mktemp("queue")))) as reviewer:
        yield reviewer


def test_a_list_that_was_opened_and_left_as_it_is_takes_no_letters(ana: Reviewer) -> None:
    before = ana.selected
    ana.page.click("select[name=order]")
    ana.page.keyboard.press("Enter")  # what is chosen already: nothing changes
    ana.page.keyboard.press("r")
    ana.until("r.outbox.waiting() === 0 && r.state.selected !== argument", before)
    assert ana.server.event(before)["status"] == "rejected"
    assert ana.page.input_value("select[name=order]") == "uncertain"
