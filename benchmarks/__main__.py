"""Run every benchmark here, one after another, and print one table.

    python -m benchmarks            # sizes that take a few minutes in all
    python -m benchmarks --full     # the benchmarks' own sizes
    python -m benchmarks features --out results/

Each runs in its own process, so that none inherits another's memory or threads.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

NEED_GPU = {"gpu"}  # run it separately, on a machine with a GPU

# Smaller than the benchmarks' own sizes, where those take more than a minute.
QUICK_ARGUMENTS = {
    "review": [
        *("--short-minutes", "2", "--long-minutes", "30", "--events", "20000"),
        *("--recordings", "200", "--requests", "3"),
    ],
    "search": ["--events", "120000", "--few-events", "60000", "--queries", "10"],
    "speed": ["--minutes", "4", "--rounds", "1", "--stage-minutes", "1"],
    "archive": ["--recordings", "4", "--repeats", "1", "--kept", "400"],
    "features": ["--repeats", "3"],
    "hop": ["--hops", "0.5", "0.75", "--resamples", "100"],
    "detect": ["--short-minutes", "2", "--long-minutes", "12", "--stage-minutes", "2"],
    "memory": ["--short-minutes", "5", "--long-minutes", "30"],
    "scan": ["--files", "2000"],
    "summarize": ["--events", "10000", "--recordings", "500"],
}


def flatten(figures: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Nested figures as (dotted name, value) pairs."""
    if isinstance(figures, dict):
        for key, value in figures.items():
            yield from flatten(value, f"{name}.{key}" if name else str(key))
    elif isinstance(figures, float):
        yield name, f"{figures:,.4g}" if abs(figures) < 1_000 else f"{figures:,.0f}"
    elif isinstance(figures, list):
        yield (
            name,
            ", ".join(value for _, value in (pair for item in figures for pair in flatten(item, name))),
        )
    else:
        yield name, f"{figures:,}" if isinstance(figures, int) else str(figures)


def run(name: str, arguments: list[str], out: Path) -> Any:
    """Run one benchmark and return its figures, or ``None`` if it failed."""
    done = subprocess.run(
        [sys.executable, str(HERE / f"bench_{name}.py"), *arguments, "--out", str(out)], stdout=sys.stderr
    )
    return json.loads(out.read_text(encoding="utf-8"))["figures"] if done.returncode == 0 else None


def main(argv: list[str] | None = None) -> int:
    available = sorted({path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py")} - NEED_GPU)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run: {', '.join(available)}")
    parser.add_argument("--full", action="store_true", help="the benchmarks' own sizes")
    parser.add_argument("--out", type=Path, help="folder for a JSON file of each")
    arguments = parser.parse_args(argv)
    unknown = sorted(set(arguments.names) - set(available))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(available)}")

    rows: list[tuple[str, str, str]] = []
    failed = False
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.out or Path(temporary)
        for name in arguments.names or available:
            print(f"== {name}", file=sys.stderr, flush=True)
            figures = run(
                name, [] if arguments.full else QUICK_ARGUMENTS.get(name, []), folder / f"{name}.json"
            )
            failed |= figures is None
            rows += [(name, *pair) for pair in (flatten(figures) if figures else [("failed", "see above")])]
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    for name, figure, value in rows:
        print(f"{name:<{widths[0]}}  {figure:<{widths[1]}}  {value}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
