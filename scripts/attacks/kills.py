"""Kills: detect, fit and the review server are killed at random moments, and no finished work may be lost.

    python -m scripts.attacks.kills

Runs the test suite's kill tests, which compare with an undisturbed run, and ``--count`` kills of a fit.
"""

from __future__ import annotations

import json
import subprocess
import sys

from scripts.attacks.commands import ROOT
from scripts.attacks.summary import Summary, parser

TESTS = ("tests/cli/test_detect.py", "tests/review/test_review_killed.py", "tests/archive")


def main() -> None:
    """Kill, and compare."""
    options = parser(__doc__, count=20).parse_args()
    summary = Summary(options.summary)
    for tests in TESTS:
        words = [sys.executable, "-m", "pytest", "-q", "-k", "kill", "-p", "no:cacheprovider", tests]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            summary.add_failure(tests, done.stdout.strip().splitlines()[-1][:200])
        else:
            summary.add_pass(tests, "nothing lost")
    words = [
        sys.executable,
        "tests/fit/killed_fits.py",
        "--kills",
        str(options.count),
        "--seed",
        str(options.seed),
    ]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    try:
        found = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        found = {"differences": [(done.stderr.strip() or "no answer")[-200:]]}
    if done.returncode or found.get("differences"):
        summary.add_failure(f"{options.count} kills of a fit", str(found.get("differences"))[:300])
    else:
        summary.add_pass(f"{options.count} kills of a fit", "nothing lost")
    summary.write()


if __name__ == "__main__":
    main()
