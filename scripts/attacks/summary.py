"""What each part of the campaign counts and reports."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path


class Summary:
    """The outcomes: one line for each on the terminal, and all of them in a file at the end."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.outcomes: Counter[str] = Counter()
        self.fell: list[str] = []

    def add_pass(self, what: str, outcome: str) -> None:
        """An attack that mast answered as it should; ``outcome`` in a word or two."""
        self.outcomes[outcome] += 1
        print(f"ok    {what}: {outcome}", flush=True)

    def add_failure(self, what: str, why: str) -> None:
        """An attack that hurt."""
        self.fell.append(f"{what}: {why}")
        print(f"FELL  {what}: {why}", flush=True)

    def write(self) -> None:
        """Keep all of it for scripts/attack.py."""
        if self.path is not None:
            total = self.outcomes.total() + len(self.fell)
            content = {"attacks": total, "stood": dict(self.outcomes), "fell": self.fell}
            self.path.write_text(json.dumps(content, indent=1), encoding="utf-8")


def parser(doc: str | None, *, count: int | None = None) -> argparse.ArgumentParser:
    """A parser with the options that all parts have."""
    found = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--seed", type=int, default=0)
    found.add_argument("--summary", type=Path, help="JSON file to write")
    if count is not None:
        found.add_argument("--count", type=int, default=count, help="attacks to make")
    return found
