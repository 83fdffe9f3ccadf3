"""Attack mast with damaged files, damaged models, a full disk, hostile requests and kills, and see what falls.

    python scripts/attack.py --out results/attack.json        # everything: about half an hour on two cores
    python scripts/attack.py recordings tables --seed 7       # these parts, with other damage
    python scripts/attack.py recordings --count 50            # a quick look

Each part is a separate script in scripts/attacks, runs in its own process, and is stopped when it takes too long or too
much memory. An attack *falls* when mast answers with anything other than a result or one clear sentence: an internal
error, a crash, an endless wait, or a number that cannot be true. Run it by hand before a release.

Exits with 1 if something fell.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Part(NamedTuple):
    """One script of the campaign.

    Attributes:
        count: number of attacks by default; 0 if their number is fixed.
        limit_s: seconds after which it counts as fallen.
        description: in a few words.
    """

    count: int
    limit_s: float
    description: str


PARTS = {
    "recordings": Part(700, 1_800, "damaged recordings through probe, metadata, stream and windows"),
    "tables": Part(800, 1_800, "damaged annotation tables in every format"),
    "models": Part(0, 1_800, "damaged and hostile model folders"),
    "disk": Part(0, 7_200, "every command on a full, read-only or forbidden disk"),
    "requests": Part(1_000, 1_200, "hostile requests to the review server"),
    "kills": Part(20, 7_200, "detect, fit and the review server killed again and again"),
}


def attack(name: str, *, count: int, seed: int) -> dict[str, Any]:
    """Run one part; returns its counts, and what fell."""
    part = PARTS[name]
    with tempfile.TemporaryDirectory(prefix=f"mast-{name}-") as folder:
        summary = Path(folder) / "summary.json"
        words = [
            sys.executable,
            "-m",
            f"scripts.attacks.{name}",
            "--seed",
            str(seed),
            "--summary",
            str(summary),
        ]
        if part.count:
            words += ["--count", str(count or part.count)]
        env = {
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            "TMPDIR": folder,
            "OMP_NUM_THREADS": "1",
        }
        process = subprocess.Popen(words, cwd=ROOT, env=env, start_new_session=True)
        try:
            ended = process.wait(part.limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with the commands that it started
            process.wait()
            return {"attacks": 0, "fell": [f"the part took longer than {part.limit_s:.0f} s"]}
        if not summary.is_file():
            return {"attacks": 0, "fell": [f"the part ended with {ended} and left no summary"]}
        found: dict[str, Any] = json.loads(summary.read_text(encoding="utf-8"))
        return found


def main() -> None:
    """Attack, report, and keep the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"all by default: {', '.join(PARTS)}")
    parser.add_argument("--count", type=int, default=0, help="attacks in each part that draws them at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"{', '.join(sorted(unknown))}: no such part; expected {', '.join(PARTS)}")
    found = {}
    for name in options.parts or PARTS:
        print(f"{name}: {PARTS[name].description}", flush=True)
        found[name] = attack(name, count=options.count, seed=options.seed)
        fell = found[name]["fell"]
        print(f"{name}: {found[name]['attacks']} attacks, {len(fell)} fell", *fell, sep="\n  ", flush=True)
    if options.out:
        from mast_studies.record import write_result

        write_result(options.out, found, seed=options.seed)
        print(f"written to {options.out}")
    sys.exit(1 if any(one["fell"] for one in found.values()) else 0)


if __name__ == "__main__":
    main()
