"""Learning while reviewing in a real browser: rank again, let the learner decide, take it back."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser_reviewer import LAPTOP, RATE, Reviewer, Server, make_results, reviewing
from review_folders import write_short_tones

from mast.events import as_events
from mast.inference import Searched, Source
from mast.inference.results import ResultsFolder

EVENTS = 100
TABLET = {"width": 1024, "height": 768}


def learnable(root: Path) -> Path:
    """Two recordings of many short tones; those above 4 kHz are right, which the vectors tell and the scores do not."""
    audio, out = root / "audio", root / "results"
    audio.mkdir(parents=True)
    rng = np.random.default_rng(0)
    results = ResultsFolder(out, {"model": "tones", "threshold": 0.5, "embeddings": 4}, audio)
    for name in ("N1_20240501_050000.wav", "N1_20240501_060000.wav"):
        hz = rng.uniform(1_000, 7_000, EVENTS)
        boxes = write_short_tones(audio / name, 0.3 + 0.55 * np.arange(EVENTS), hz, seconds=60.0, rng=rng)
        events = boxes.assign(score=rng.uniform(0.3, 0.9, EVENTS), site="N1", source="detector")
        vectors = rng.normal(0, 0.2, (EVENTS, 4))
        vectors[:, 0] += np.where(hz > 4_000, 1.0, -1.0)
        results.add(
            Searched(
                Source(audio / name, name, audio),
                as_events(events),
                60.0,
                RATE,
                "N1",
                f"2024-05-01T0{name[-9]}:00:00",
                embeddings=vectors.astype(np.float16),
            )
        )
    results.combine([])
    return out


def is_right(event: dict[str, Any]) -> bool:
    return float(event["low_hz"]) + 200 > 4_000


def decide_elsewhere(server: Server, count: int) -> None:
    """A colleague decides, rightly, about the first of the random order."""
    for event in server.get(f"queue?order=random&limit={count}")["events"]:
        status = "accepted" if is_right(event) else "rejected"
        body = json.dumps({"version": event["version"], "status": status}).encode()
        head = {**server.token, "Content-Type": "application/json", "X-Reviewer": "Bo"}
        request = urllib.request.Request(
            f"{server.address}api/events/{event['id']}", body, head, method="PATCH"
        )
        urllib.request.urlopen(request, timeout=20).close()


@pytest.fixture
def ana(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Iterator[Reviewer]:
    server = Server(learnable(tmp_path_factory.mktemp("learner")))
    decide_elsewhere(server, 75)
    with reviewing(browser, server) as reviewer:
        yield reviewer


def queue_ids(ana: Reviewer) -> list[str]:
    found: list[str] = ana.evaluate("r.queue.items.map((event) => event.id)")
    return found


def test_the_queue_is_ranked_again_and_the_box_looked_at_stays(ana: Reviewer) -> None:
    ana.page.wait_for_selector(
        "#filters select[name=order] option[value=unsure]:not([hidden])", state="attached"
    )
    ana.page.select_option("select[name=order]", "unsure")
    ana.wait_until(
        "r.queue.items.length >= 50 && r.queue.wish().order === 'unsure' && r.queue.items[0].chance !== undefined"
    )
    ana.select(ana.evaluate("r.queue.items[0]"))
    before = queue_ids(ana)
    for n in range(10):
        event = ana.server.event(ana.selected)
        assert event["id"] == before[n]
        with ana.page.expect_response(lambda answer: "api/queue" in answer.url) if n == 9 else _nothing():
            ana.press("a" if is_right(event) else "r")
        ana.wait_until("r.state.selected !== argument", event["id"])
    ana.wait_until("r.queue.decisions === 0")
    ana.page.wait_for_timeout(300)
    after = queue_ids(ana)
    place = after.index(ana.selected)
    assert after[:10] == before[:10]  # what was gone through stays where it was
    assert place == 10  # and so does the one looked at
    assert after[place + 1 :] != before[place + 1 : len(after)]
    assert ana.evaluate("r.queue.last") == 10
    assert len(set(after)) == len(after)


class _nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *what: object) -> None: ...


def test_it_decides_about_the_rest_and_one_click_takes_it_back(ana: Reviewer) -> None:
    ana.page.click("#tab-learner")
    ana.page.wait_for_selector("text=5 more decisions to go")
    decide_elsewhere(ana.server, 10)
    ana.page.click("#tab-learner")
    ana.page.select_option("#learner-precision", "0.9")
    ana.page.wait_for_selector("#learner-apply")
    plan = ana.server.get("learner/plan?precision=0.9")
    text = ana.page.inner_text("#learner-plan")
    decided = plan["accepted"] + plan["rejected"]
    assert f"About {plan['right']} of these {decided} will be right" in text
    assert decided > 60
    people = {e["id"]: e["status"] for k in (1, 2) for e in ana.server.events(k) if e["reviewer"]}

    ana.page.click("#learner-apply")
    ana.page.wait_for_selector("#learner-undo")
    events = [event for k in (1, 2) for event in ana.server.events(k)]
    verdicts = {e["id"]: (e["learned"]["status"] == "accepted", is_right(e)) for e in events if e["learned"]}
    assert len(verdicts) == decided
    assert np.mean([said == true for said, true in verdicts.values()]) > 0.95
    assert not set(verdicts) & set(people)
    ana.wait_until(
        "r.queue.items.every((event) => !event.learned)"
    )  # they have left the queue of open events
    ana.page.click("text=Check accepted")
    ana.wait_until(
        "r.queue.items.length > 0 && r.queue.items.every((event) => event.learned?.status === 'accepted')"
    )
    assert "(✓)" in ana.page.inner_text("#left-body")
    ana.page.click("#left-body .row:first-child")
    ana.settle()
    ana.page.click("#tab-event")
    ana.page.wait_for_selector("#panel-event .facts >> text=accepted it")
    replaced = ana.selected
    ana.press("r")  # a person's decision replaces it
    assert ana.server.event(replaced)["status"] == "rejected"
    people[replaced] = "rejected"
    ana.page.click("#tab-learner")
    ana.page.click("#export")
    assert ana.page.is_visible("#export-learner")
    ana.page.keyboard.press("Escape")

    ana.page.click("#learner-undo")
    ana.page.wait_for_selector("#learner-apply")
    events = [event for k in (1, 2) for event in ana.server.events(k)]
    assert all(event["learned"] is None for event in events)
    assert {e["id"]: e["status"] for e in events if e["reviewer"]} == people
    ana.wait_until(
        "r.state.filters.status === 'open' && r.queue.total === argument", 2 * EVENTS - len(people)
    )


def test_z_takes_it_back(ana: Reviewer) -> None:
    decide_elsewhere(ana.server, 10)
    ana.page.click("#tab-learner")
    ana.page.wait_for_selector("#learner-apply")
    ana.page.click("#learner-apply")
    ana.page.wait_for_selector("#learner-undo")
    ana.page.click("text=Check accepted")
    ana.wait_until("r.queue.items.length > 0 && r.queue.items.every((event) => event.learned)")
    ana.press("z")
    ana.page.wait_for_selector(".toast >> text=decisions by the learner")
    ana.page.wait_for_selector("#learner-apply")  # the panel offers it again
    ana.wait_until("r.state.filters.status === 'open' && r.queue.total === argument", 2 * EVENTS - 85)
    assert all(event["learned"] is None for k in (1, 2) for event in ana.server.events(k))
    ana.press("z")
    ana.page.wait_for_selector(".toast >> text=There is nothing to undo")


@pytest.mark.parametrize("viewport", [LAPTOP, TABLET], ids=["laptop", "tablet"])
def test_the_panel_fits(ana: Reviewer, viewport: dict[str, int]) -> None:
    ana.page.set_viewport_size(viewport)
    decide_elsewhere(ana.server, 10)
    ana.page.click("#tab-learner")
    ana.page.wait_for_selector("#learner-plan")
    for selector in ("body", "#panel-learner", ".side.right .tabs"):
        wide, there = ana.page.evaluate(
            "(s) => { const n = document.querySelector(s); return [n.scrollWidth, n.clientWidth]; }", selector
        )
        assert wide <= there, selector


def test_without_vectors_one_sentence(tmp_path: Path, browser: Any) -> None:
    folder = make_results(tmp_path)
    (folder / "embeddings.npy").unlink()
    server = Server(folder)
    ana = Reviewer(browser, server, "Ana")
    ana.page.click("#tab-learner")
    ana.page.wait_for_selector("text=run mast detect with --embed, or mast embed with --out in this folder")
    assert ana.page.is_hidden("select[name=order] option[value=unsure]")
    ana.close()
    server.kill()
