"""A store of a million events: how long it takes to build and in how much memory, and how fast and right searches are.

    python benchmarks/bench_search.py --out results/search.json

Vectors are made up: clusters of about 500, in which any two have a cosine of about 0.7, so that the nearest of a
cluster differ little. Searches are for vectors of these clusters, and (``far``) for random directions, whose nearest
are spread over many clusters and so over the index. Building and searching run in processes of their own. A smaller
store shows whether the memory of building grows: ``peak_ratio`` is that of the large store over that of the small one,
which has ``size_ratio`` times fewer events.
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
_NOISE = 0.65  # length of what a vector has beside its cluster's direction
_MODEL = "mast-benchmark"
_MAXRSS_PER_MB = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, kilobytes on Linux


def directions(n: int, seed: int) -> Any:
    """(n, WIDTH) random directions."""
    import numpy as np

    made = np.random.default_rng(seed).normal(size=(n, WIDTH)).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def around(centres: Any, n: int, seed: int) -> Any:
    """(n, WIDTH) vectors around some of the centres."""
    import numpy as np

    rng = np.random.default_rng(seed)
    return centres[rng.integers(len(centres), size=n)] + _NOISE * directions(n, seed + 1)


def batches(events: int, seed: int) -> Iterator[Any]:
    """Events of recordings of a minute with their vectors, one batch in memory at a time."""
    import numpy as np
    import pandas as pd

    from mast.retrieval.store import EventBatch

    centres = directions(max(1, events // _CLUSTER), seed)
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
        yield EventBatch(table, around(centres, n, seed + 2 + first))


def build(uri: str, events: int, seed: int) -> dict[str, Any]:
    """Seconds of adding and of indexing, and the most memory that adding took."""
    import resource

    from mast.retrieval.store import EventStore

    store = EventStore.create(uri, WIDTH, _MODEL)
    began, used = time.perf_counter(), time.process_time()
    added = store.add(batches(events, seed))
    assert added.new == events
    middle = time.perf_counter()
    add_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    store.build_index()
    return {
        "events": events,
        "add_s": middle - began,
        "index_s": time.perf_counter() - middle,
        "cpu_s": time.process_time() - used,
        "add_peak_mb": add_peak / _MAXRSS_PER_MB,
    }


def searches(uri: str, events: int, seed: int, queries: int) -> dict[str, Any]:
    """Times of exact, approximate and filtered searches, and how many of the nearest the approximate ones find."""
    import numpy as np

    from mast.retrieval.filters import Filter
    from mast.retrieval.store import EventStore

    store = EventStore.open(uri)
    wanted = around(directions(max(1, events // _CLUSTER), seed), queries, seed + 1_000_003)
    one_site = Filter(sites=("site7",), hours=(5, 9), min_score=0.3)
    figures: dict[str, Any] = {
        "queries": queries,
        "k": K,
        "share_that_meets_the_filter": store.count(one_site) / len(store),
    }
    found: dict[str, list[set[str]]] = {}
    kinds = {
        "exact": (None, True),
        "approximate": (None, False),
        "exact_filtered": (one_site, True),
        "approximate_filtered": (one_site, False),
    }
    for name, (where, exact) in kinds.items():
        store.search(wanted[0], K, where, exact)  # opens files, fills caches
        seconds, busy, found[name] = [], [], []
        for vector in wanted:
            began, used = time.perf_counter(), time.process_time()
            ids = store.search(vector, K, where, exact)["id"]
            seconds.append(time.perf_counter() - began)
            busy.append(
                time.process_time() - used
            )  # of all threads: it hardly minds what else the machine does
            found[name].append(set(ids))
        figures[name] = {
            "median_ms": 1_000 * float(np.median(seconds)),
            "p95_ms": 1_000 * float(np.percentile(seconds, 95)),
            "median_cpu_ms": 1_000 * float(np.median(busy)),
        }
    far = [
        [set(store.search(vector, K, None, exact)["id"]) for vector in directions(queries, seed + 1_000_033)]
        for exact in (True, False)
    ]
    figures["approximate"][f"far_recall_at_{K}"] = float(
        np.mean([len(a & b) / len(a) for a, b in zip(*far, strict=True)])
    )
    for suffix in ("", "_filtered"):
        pairs = zip(found[f"exact{suffix}"], found[f"approximate{suffix}"], strict=True)
        shares = [len(a & b) / len(a) for a, b in pairs if a]
        figures[f"approximate{suffix}"][f"recall_at_{K}"] = float(np.mean(shares))
    return figures


def in_child(step: str, *words: object) -> dict[str, Any]:
    """What a step printed, and the peak memory of its process."""
    child = subprocess.Popen(
        [sys.executable, __file__, "--step", step, *map(str, words)], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    said = child.stdout.read().decode()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{step} ended with {child.returncode}: {said}")
    return {**json.loads(said.splitlines()[-1]), "peak_mb": used.ru_maxrss / _MAXRSS_PER_MB}


def size_mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", help="JSON file to write")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--few-events", type=int, default=FEW_EVENTS, help="of the smaller store")
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        step, uri, events, seed, *further = options.step
        made = (
            build(uri, int(events), int(seed))
            if step == "build"
            else searches(uri, int(events), int(seed), int(further[0]))
        )
        print(json.dumps(made))
        return

    figures: dict[str, Any] = {
        "width": WIDTH,
        "load_before": os.getloadavg()[
            0
        ],  # other programs' work slows all of this down; memory does not mind
    }
    with tempfile.TemporaryDirectory() as temporary:
        for name, events in (("few", options.few_events), ("many", options.events)):
            uri = Path(temporary) / name
            figures[name] = in_child("build", uri, events, options.seed)
            figures[name]["disk_mb"] = size_mb(uri)
            print(f"{events:,} events: {figures[name]}", flush=True)
        figures["vectors_mb"] = options.events * WIDTH * 4 / 2**20
        figures["size_ratio"] = options.events / options.few_events
        for kind in ("peak", "add_peak"):
            figures[f"{kind}_ratio"] = figures["many"][f"{kind}_mb"] / figures["few"][f"{kind}_mb"]
        figures["search"] = in_child("search", uri, options.events, options.seed, options.queries)
        print(f"searches: {figures['search']}", flush=True)
    figures["load_after"] = os.getloadavg()[0]
    if options.out:
        write_result(options.out, figures, seed=options.seed)
        print(f"written to {options.out}")


if __name__ == "__main__":
    main()
