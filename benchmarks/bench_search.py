"""A store of a million events: the time and memory that building it takes, and how fast searches are.

    python benchmarks/bench_search.py --out results/search.json

Vectors are made up: clusters of about 500, in which any two have a cosine of about 0.7. Every search compares with
every event that meets the filter. Building and searching run in separate processes, on a small and on a large store:
``…_peak_ratio`` is the peak memory with the large store over that with the small one, which has ``size_ratio`` times
fewer events.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.record import write_result

EVENTS, FEW_EVENTS, WIDTH, K = 1_000_000, 100_000, 323, 10  # as wide as the embedded model's vectors
_BATCH = 10_000
_CLUSTER = 500  # events
_NOISE = 0.65  # length of a vector's part that is not along its cluster's direction
_MODEL = "mast-benchmark"
_MAXRSS_PER_MB = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, kilobytes on Linux


def random_directions(n: int, seed: int) -> Any:
    """(n, WIDTH) random directions."""
    import numpy as np

    made = np.random.default_rng(seed).normal(size=(n, WIDTH)).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def vectors_around(centres: Any, n: int, seed: int) -> Any:
    """(n, WIDTH) vectors around some of the centres."""
    import numpy as np

    rng = np.random.default_rng(seed)
    return centres[rng.integers(len(centres), size=n)] + _NOISE * random_directions(n, seed + 1)


def batches(events: int, seed: int) -> Iterator[Any]:
    """Events of recordings of a minute with their vectors, one batch in memory at a time."""
    import numpy as np
    import pandas as pd

    from mast.retrieval.event_store import EventBatch

    centres = random_directions(max(1, events // _CLUSTER), seed)
    for first in range(0, events, _BATCH):
        n = min(_BATCH, events - first)
        rng = np.random.default_rng([seed, first])
        row = np.arange(first, first + n)
        start_s = (row % 20 * 3.0) + rng.uniform(0, 2, n).round(3)
        low_hz = rng.uniform(100, 6_000, n).round(1)
        recording = row // 20
        table = pd.DataFrame(
            {
                "recording": [f"site{r % 50}/{r:07d}.wav" for r in recording],
                "start_s": start_s,
                "end_s": start_s + 0.8,
                "low_hz": low_hz,
                "high_hz": low_hz + 900,
                "score": rng.uniform(0.1, 1, n).round(4),
                "site": [f"site{r % 50}" for r in recording],
                "datetime": [f"2024-05-{1 + r // 24 % 30:02d}T{r % 24:02d}:00:00.000" for r in recording],
                "source": "detector",
                "model": _MODEL,
            }
        )
        yield EventBatch(table, vectors_around(centres, n, seed + 2 + first))


def build(uri: str, events: int, seed: int) -> dict[str, Any]:
    """Seconds for adding events, and for adding the same ones again, which changes nothing."""
    from mast.retrieval.event_store import EventStore

    store = EventStore.create(uri, WIDTH, _MODEL)
    began, used = time.perf_counter(), time.process_time()
    added = store.add(batches(events, seed))
    assert added.new == events
    figures = {"events": events, "s": time.perf_counter() - began, "cpu_s": time.process_time() - used}
    began = time.perf_counter()
    assert store.add(batches(events, seed)).unchanged == events
    return {**figures, "again_s": time.perf_counter() - began}


def time_searches(uri: str, events: int, seed: int, queries: int) -> dict[str, Any]:
    """Times of searches among all events, among few, and among many."""
    import numpy as np

    from mast.retrieval.event_store import EventStore
    from mast.retrieval.filters import Filter

    store = EventStore.open(uri)
    queried = vectors_around(random_directions(max(1, events // _CLUSTER), seed), queries, seed + 1_000_003)
    filters = {
        "all": None,
        "one_site_and_hours": Filter(sites=("site7",), hours=(5, 9), min_score=0.3),
        "half": Filter(min_score=0.55),
    }
    figures: dict[str, Any] = {"queries": queries, "k": K}
    for name, where in filters.items():
        store.search(queried[0], K, where)  # opens files, fills caches
        seconds, busy = [], []
        for vector in queried:
            began, used = time.perf_counter(), time.process_time()
            store.search(vector, K, where)
            seconds.append(time.perf_counter() - began)
            # CPU time of all threads, which other work on the machine hardly affects
            busy.append(time.process_time() - used)
        figures[name] = {
            "share": store.count(where) / len(store),
            "median_ms": 1_000 * float(np.median(seconds)),
            "p95_ms": 1_000 * float(np.percentile(seconds, 95)),
            "median_cpu_ms": 1_000 * float(np.median(busy)),
        }
    return figures


def in_child(step: str, *words: object) -> dict[str, Any]:
    """What a step printed, and the peak memory of its process."""
    child = subprocess.Popen(
        [sys.executable, __file__, "--step", step, *map(str, words)], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    output = child.stdout.read().decode()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{step} ended with {child.returncode}: {output}")
    return {**json.loads(output.splitlines()[-1]), "peak_mb": used.ru_maxrss / _MAXRSS_PER_MB}


def size_mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", help="JSON file to write")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--few-events", type=int, default=FEW_EVENTS, help="events in the smaller store")
    parser.add_argument("--queries", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        step, uri, events, seed, *further = options.step
        made = (
            build(uri, int(events), int(seed))
            if step == "build"
            else time_searches(uri, int(events), int(seed), int(further[0]))
        )
        print(json.dumps(made))
        return

    # other programs slow all of this down, but do not affect memory
    figures: dict[str, Any] = {"width": WIDTH, "load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as temporary:
        for name, events in (("few", options.few_events), ("many", options.events)):
            uri = Path(temporary) / name
            made = in_child("build", uri, events, options.seed)
            found = in_child("search", uri, events, options.seed, options.queries)
            vectors_mb = events * WIDTH * 4 / 2**20  # as numbers of 32 bits
            figures[name] = {"add": made, "search": found, "disk_mb": size_mb(uri), "vectors_mb": vectors_mb}
            print(f"{events:,} events: {json.dumps(figures[name], indent=2)}", flush=True)
    figures["size_ratio"] = options.events / options.few_events
    for step in ("add", "search"):
        figures[f"{step}_peak_ratio"] = figures["many"][step]["peak_mb"] / figures["few"][step]["peak_mb"]
    figures["load_after"] = os.getloadavg()[0]
    if options.out:
        write_result(options.out, figures, seed=options.seed)
        print(f"written to {options.out}")


if __name__ == "__main__":
    main()
