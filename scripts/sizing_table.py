"""Write the tables of docs/scaling.md from results/*.json: `python scripts/sizing_table.py` (`--check` compares)."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from mast_studies.study_tables import markdown_table

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "scaling.md"
ARCHIVES_H = (1_000, 100_000, 10_000_000)
EVENTS_PER_H = 600  # our assumption: one every six seconds, as in results/archive.json
_WAV_BYTES_PER_H = 48_000 * 2 * 3_600  # 48 kHz, 16 bit, one channel
_HOP = 0.75  # of `mast detect`, in windows


class Rate(NamedTuple):
    """How fast something searches, and where that was measured."""

    name: str
    times_real_time: float
    measured: str


def main() -> None:
    """Replace each `<!-- table NAME -->…<!-- end -->` by its table."""
    text = PAGE.read_text(encoding="utf-8")
    fresh = render(text)
    if "--check" in sys.argv:
        differs = "docs/scaling.md: its tables are not those of results/; run scripts/sizing_table.py"
        sys.exit(0 if fresh == text else differs)
    PAGE.write_text(fresh, encoding="utf-8")


def render(text: str) -> str:
    """The page with every table rebuilt."""
    tables = {"compute": compute_table, "storage": storage_table, "side_by_side": side_by_side_table}
    missing = "*Not measured yet: `python benchmarks/bench_archive.py --out results/archive.json`.*"

    def fill(match: re.Match[str]) -> str:
        made = tables[match[1]]() if load_result("archive") is not None else missing
        return f"<!-- table {match[1]} -->\n{made}\n<!-- end -->"

    return re.sub(r"<!-- table (\w+) -->.*?<!-- end -->", fill, text, flags=re.DOTALL)


def load_result(name: str) -> dict[str, Any] | None:
    """One result file, if it exists."""
    path = ROOT / "results" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def rates() -> list[Rate]:
    """How much sound one core, and one GPU, searches in a second."""
    archive = load_result("archive")
    assert archive is not None
    found = archive["figures"]["search"]
    core = archive["hardware"]["cpu"]
    own = found["model"].split(",")[0]
    known = [Rate(f"one CPU core, `{own}`", found["cpu_times_real_time"], f"{core}; `results/archive.json`")]
    gpu = load_result("gpu_speed")
    if gpu is not None:
        ends = {name: run for name, run in gpu["figures"]["end_to_end"].items() if "steady" in run}
        name, run = max(ends.items(), key=lambda one: float(one[1]["steady"]["times_real_time"]))
        size, workers = gpu["figures"]["model"]["size"], name.partition("_")[0]
        processes = "one process" if workers == "1" else f"{workers} processes"
        measured = f"{gpu['hardware']['gpu']}, {processes}; `results/gpu_speed.json`"
        # measured with windows end to end
        known.append(Rate(f"one GPU, `{size}` (ViT-B)", _HOP * run["steady"]["times_real_time"], measured))
    return known


def compute_table() -> str:
    """Hours of cores and GPUs for each size of archive."""
    header = ["", "× real time", *(f"{hours:,} h of sound" for hours in ARCHIVES_H), "measured on"]
    rows = [
        [
            rate.name,
            f"{rate.times_real_time:,.0f}",
            *(format_hours(hours / rate.times_real_time) for hours in ARCHIVES_H),
            rate.measured,
        ]
        for rate in rates()
    ]
    return markdown_table(header, rows)


def storage_table() -> str:
    """Bytes of sound and results for each size of archive."""
    archive = load_result("archive")
    assert archive is not None
    found = archive["figures"]["results_all"]
    marks = {
        "minutes": 60 * found["mark_bytes"],
        # a longer recording has one marker with more events in it
        "hours": found["mark_bytes"] + (EVENTS_PER_H - 10) * found["parquet_bytes_per_event"],
    }
    rows = [
        [
            "the sound itself, 48 kHz 16 bit WAV",
            *(format_bytes(_WAV_BYTES_PER_H * hours) for hours in ARCHIVES_H),
        ],
        ["events, one every six seconds", *(format_count(EVENTS_PER_H * hours) for hours in ARCHIVES_H)],
        *(
            [
                f"`{name}`",
                *(format_bytes(found[f"{key}_bytes_per_event"] * EVENTS_PER_H * h) for h in ARCHIVES_H),
            ]
            for name, key in (
                ("detections.parquet", "parquet"),
                ("partitioned/", "partitioned"),
                ("detections.csv", "csv"),
            )
        ),
        *(
            [
                f"`recordings/`, files of {'a minute' if name == 'minutes' else 'an hour'}",
                *(
                    f"{format_bytes(each * h)} in {format_count(h * (60 if name == 'minutes' else 1))} files"
                    for h in ARCHIVES_H
                ),
            ]
            for name, each in marks.items()
        ),
        [
            "making the tables, files of a minute, one core",
            *(format_hours(60 * h / found["merged_recordings_per_cpu_second"] / 3_600) for h in ARCHIVES_H),
        ],
    ]
    return markdown_table(["", *(f"{hours:,} h" for hours in ARCHIVES_H)], rows)


def side_by_side_table() -> str:
    """One process against several on the machine of the benchmark."""
    archive = load_result("archive")
    assert archive is not None
    found = archive["figures"]["search"]
    names = {
        "one_process_one_thread": "one process, one thread",
        "one_process_all_threads": f"one process, {found['cores']} threads (the default)",
        "one_worker_per_core": f"`--workers {found['cores']}`",
        "ray_one_worker_per_core": f"`--engine ray --workers {found['cores']}`",
    }
    rows = [
        [
            name,
            f"{found[key]['seconds']:.0f} s",
            f"{found[key]['cpu_seconds']:.0f} s" if "cpu_seconds" in found[key] else "",
        ]
        for key, name in names.items()
        if key in found
    ]
    sound = f"{found['recordings']} recordings of {60 * found['minutes_each']:.0f} s, start-up included"
    note = (
        f"{archive['hardware']['cpu']}, {found['cores']} cores, load average {found['load_average']:.0f}: "
        "where it is above the number of cores, others were working too, and wall time says little."
    )
    return f"{markdown_table([sound, 'wall time', 'CPU time'], rows)}\n\n{note}"


def format_hours(hours: float) -> str:
    """Hours to two digits."""
    if hours < 0.1:
        return f"{60 * hours:.2g} min"
    return f"{round(hours, 2 - len(str(int(hours)))):,.0f} h" if hours >= 10 else f"{hours:.2g} h"


def format_bytes(n_bytes: float) -> str:
    """Bytes to two digits."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if n_bytes < 999.5:
            return f"{n_bytes:.0f} {unit}" if n_bytes >= 10 else f"{n_bytes:.2g} {unit}"
        n_bytes /= 1_000
    return f"{n_bytes:,.0f} PB" if n_bytes >= 10 else f"{n_bytes:.2g} PB"


def format_count(number: float) -> str:
    """A count in readable words."""
    for unit, word in ((1e9, "billion"), (1e6, "million")):
        if number >= unit:
            return f"{number / unit:.3g} {word}"
    return f"{number:,.0f}"


if __name__ == "__main__":
    main()
