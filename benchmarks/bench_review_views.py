"""Every view of the review page on 100,000 events in 10,000 recordings, including the learner's views.

    python benchmarks/bench_review_views.py --out results/review_views.json

A server in its own process holds made-up detections (:mod:`benchmarks.bench_review`), each with a vector of 192
numbers. ``cpu_ms`` is the server's CPU time for one request, the mean over some of each kind: the time that a reviewer
waits on a machine that does nothing else. ``wall_ms``, the median, includes delays by other work.

``queue_unsure_after_a_decision`` and ``queue_likely_after_a_decision`` learn again and rank all events; ``next_page``
continues with that ranking. ``plan`` is worked out after each of some decisions, ``apply`` and ``undo`` write and take
back decisions about all events that the learner is sure enough of: the vectors say which are right, because otherwise
it would be sure of none. ``find_groups`` finds groups of look-alikes, once, in a thread; the review continues
meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.bench_review import server, write_detections
from benchmarks.record import write_result

DECISIONS = 200
READS = {
    "session": "/api/session",
    "progress": "/api/progress",
    "activity": "/api/activity",
    "recordings": "/api/recordings?sort=score&limit=100",
    "events_of_a_recording": "/api/recordings/5/events",
    "queue_uncertain": "/api/queue?order=uncertain&limit=50",
    "queue_random": "/api/queue?order=random&limit=50",
    "queue_score": "/api/queue?order=score&limit=50",
    "queue_time": "/api/queue?order=time&limit=50",
    "queue_novel": "/api/queue?order=novel&limit=50",
    "learner": "/api/learner",
    "groups": "/api/groups",
    "queue_typical_of_a_group": "/api/queue?order=typical&group=0&limit=50",
}


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def mark_right_events(folder: Path, each: int) -> None:
    """Let the first number of each vector say whether the event is right: those of every other recording are."""
    rows = np.load(folder / "embeddings.npy", mmap_mode="r+")
    rows[:, 0] = np.where(np.arange(len(rows)) // each % 2 == 0, 30.0, -30.0)
    rows.flush()


def is_right(event: dict[str, Any]) -> bool:
    """What the vectors say; the names of the recordings end with their number."""
    return int(event["recording"].removesuffix(".wav").rpartition("_")[2]) % 2 == 0


class Bench:
    """Sends requests and records their cost."""

    def __init__(self, client: Any, pid: int) -> None:
        self.client, self.pid = client, pid
        self.spent: dict[str, list[tuple[float, float]]] = {}

    def time(self, name: str, ask: Callable[[], Any]) -> Any:
        """Send a request and record its cost."""
        began, computed = time.perf_counter(), cpu_s(self.pid)
        answer = ask()
        answer.raise_for_status()
        self.spent.setdefault(name, []).append((time.perf_counter() - began, cpu_s(self.pid) - computed))
        return answer.json()

    def get(self, name: str, url: str) -> Any:
        """One view."""
        return self.time(name, lambda: self.client.get(url))

    def post(self, name: str, url: str, body: dict[str, Any]) -> Any:
        """One click."""
        return self.time(name, lambda: self.client.post(url, json=body, headers={"X-Reviewer": "Ana"}))

    def decide(self, event: dict[str, Any]) -> None:
        """One decision."""
        body = {"version": event["version"], "status": "accepted" if is_right(event) else "rejected"}
        url, head = f"/api/events/{event['id']}", {"X-Reviewer": "Ana"}
        self.time("decision", lambda: self.client.patch(url, json=body, headers=head))

    def find_groups(self) -> None:
        """Find the groups, and wait for them; polling costs next to nothing."""
        began, computed = time.perf_counter(), cpu_s(self.pid)
        self.client.post("/api/groups").raise_for_status()
        while (state := self.client.get("/api/groups").json())["busy"]:
            time.sleep(1)
        if not state["groups"]:
            raise SystemExit(f"no groups were found: {state['failure']}")
        self.spent["find_groups"] = [(time.perf_counter() - began, cpu_s(self.pid) - computed)]

    def figures(self) -> dict[str, Any]:
        """Mean computing time and median waiting time of each kind."""
        return {
            name: {
                "n": len(spent),
                "cpu_ms": round(1000 * float(np.mean([cpu for _, cpu in spent])), 1),
                "wall_ms": round(1000 * float(np.median([wall for wall, _ in spent])), 1),
            }
            for name, spent in self.spent.items()
        }


def measure(recordings: int, events: int, requests: int, seed: int) -> dict[str, Any]:
    """All views."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "detections"
        write_detections(folder, recordings, events, seed)
        mark_right_events(folder, events // recordings)
        began = time.perf_counter()
        with server(folder) as (client, pid):
            opening = {"wall_s": round(time.perf_counter() - began, 1), "cpu_s": round(cpu_s(pid), 1)}
            bench = Bench(client, pid)
            known = client.get(f"/api/queue?order=random&limit={DECISIONS + 3 * requests}").json()["events"]
            todo = iter(known)
            for _ in range(DECISIONS):
                bench.decide(next(todo))
            bench.find_groups()
            for _ in range(requests):
                for name, url in READS.items():
                    bench.get(name, url)
                bench.get("similar", f"/api/events/{known[0]['id']}/similar?k=12")
                for order_name in ("unsure", "likely"):
                    bench.decide(next(todo))
                    page = bench.get(
                        f"queue_{order_name}_after_a_decision", f"/api/queue?order={order_name}&limit=50"
                    )
                    last = page["events"][-1]["id"]
                    bench.get("next_page", f"/api/queue?order={order_name}&limit=50&after={last}")
                bench.decide(next(todo))
                plan = bench.get("plan", "/api/learner/plan?precision=0.9")
                bench.post("apply", "/api/learner/apply", {"precision": 0.9})
                bench.get("queue_uncertain_after_applying", "/api/queue?order=uncertain&limit=50")
                bench.get("progress_after_applying", "/api/progress")
                bench.post("undo", "/api/learner/undo", {})
            return {
                "events": events,
                "recordings": recordings,
                "first_opening": opening,
                "applied_to": plan["accepted"] + plan["rejected"],
                "views": bench.figures(),
            }


def main() -> None:
    """Read the options, measure, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", help="JSON file to write")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--recordings", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=5, help="requests of each kind")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    figures = measure(args.recordings, args.events, args.requests, args.seed)
    figures["load_average"] = [round(x, 1) for x in os.getloadavg()]
    print(json.dumps(figures, indent=1))
    if args.out:
        data = {
            "detections": f"{args.events} made-up boxes in {args.recordings} recordings, vectors of 192 numbers"
        }
        write_result(args.out, figures, seed=args.seed, data=data)


if __name__ == "__main__":
    main()
