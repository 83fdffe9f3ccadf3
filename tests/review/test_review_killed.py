"""Two reviewers write through real servers that are killed: what was confirmed to them is there afterwards."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from review_folders import small_results

from mast.review.store import STORE

_SERVE = """
import sys
from mast.review.open_review import open_review
from mast.review.serve import serve
from mast.review.server import create_app
review = open_review(sys.argv[1])
say = lambda address: print(address, flush=True)
create = lambda token: create_app(review, token=token, local_only=True)
serve(create, port=0, browser=False, say=say)
"""


class Server:
    """A server in a process of its own."""

    def __init__(self, folder: Path) -> None:
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(folder)], stdout=subprocess.PIPE, text=True, env=env
        )
        assert self.process.stdout is not None
        self.link = self.process.stdout.readline().strip()
        assert self.link.startswith("http://127.0.0.1:"), self.link

    @contextmanager
    def page(self, reviewer: str = "") -> Iterator[httpx.Client]:
        """Somebody who has opened the link that was printed."""
        base, who = httpx.URL(self.link).join("/"), {"X-Reviewer": reviewer}
        with httpx.Client(base_url=base, headers=who, timeout=60) as client:
            client.get(self.link).raise_for_status()
            yield client

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Reviewer(threading.Thread):
    """Relabels events and draws boxes as fast as the server answers, and remembers what it was told is saved."""

    def __init__(self, name: str, server: Server, events: list[str], begin: int) -> None:
        super().__init__()
        self.who, self.server, self.events, self.at = name, server, events, begin
        self.confirmed: list[tuple[str, str, int]] = []  # event, label, version

    def run(self) -> None:
        with self.server.page(self.who) as client:
            try:
                while True:
                    self.step(client)
            except httpx.HTTPError:
                return  # the server is gone

    def step(self, client: httpx.Client) -> None:
        self.at += 1
        label = f"{self.who} {self.at}"
        if self.at % 5 == 0:
            box = {"start_s": 1, "end_s": 2, "low_hz": 100, "high_hz": 200, "label": label}
            answer = client.post("/api/recordings/1/events", json=box)
        else:
            event = self.events[self.at % len(self.events)]
            version = client.get(f"/api/events/{event}").json()["version"]
            answer = client.patch(f"/api/events/{event}", json={"version": version, "label": label})
        if answer.status_code == 200:
            done: dict[str, Any] = answer.json()
            self.confirmed.append((done["id"], label, done["version"]))
        else:
            assert answer.status_code == 409  # the other one was there first: to be looked at again


def logged(folder: Path) -> set[tuple[str, str]]:
    db = sqlite3.connect(folder / STORE)
    try:
        assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        rows = db.execute("SELECT event_id, after FROM log").fetchall()
        return {(event, json.loads(after)["label"]) for event, after in rows}
    finally:
        db.close()


@pytest.mark.slow
def test_what_was_confirmed_survives_kills(tmp_path: Path) -> None:
    folder = small_results(tmp_path, recordings=1, events=6)
    confirmed: list[tuple[str, str, int]] = []
    for round_number in range(3):
        server = Server(folder)
        with server.page() as client:
            shown = client.get("/api/recordings/1/events?limit=9999").json()["events"]
            by_id = {event["id"]: event for event in shown}
            for event, label, version in confirmed:  # nothing of the rounds before is lost
                assert by_id[event]["version"] > version or by_id[event]["label"] == label
        mine = [event["id"] for event in shown if event["source"] == "detector"]
        people = [Reviewer(name, server, mine, 1000 * round_number) for name in ("Ana", "Ben")]
        for person in people:
            person.start()
        limit = time.monotonic() + 15
        while min(len(p.confirmed) for p in people) < 12 and time.monotonic() < limit:
            time.sleep(0.02)
        server.kill()  # in the middle of whatever it was writing
        for person in people:
            person.join()
            confirmed += person.confirmed
            assert person.confirmed
        saved = logged(folder)
        assert {(event, label) for event, label, _ in confirmed} <= saved
    assert len(confirmed) > 20


@pytest.mark.slow
def test_two_servers_on_one_folder_share_the_work(tmp_path: Path) -> None:
    folder = small_results(tmp_path, recordings=1, events=4)
    servers = [Server(folder), Server(folder)]
    with servers[0].page() as client:
        events = [event["id"] for event in client.get("/api/recordings/1/events").json()["events"]]
    people = [Reviewer(name, s, events, 0) for name, s in zip(("Ana", "Ben"), servers, strict=True)]
    for person in people:
        person.start()
    limit = time.monotonic() + 15
    while min(len(p.confirmed) for p in people) < 8 and time.monotonic() < limit:
        time.sleep(0.02)
    servers[0].kill()
    servers[1].kill()
    for person in people:
        person.join()
        assert person.confirmed
    confirmed = [(event, label) for person in people for event, label, _ in person.confirmed]
    assert set(confirmed) <= logged(folder)
    versions = [(event, version) for person in people for event, _, version in person.confirmed]
    assert len(versions) == len(set(versions))  # no version was given twice
