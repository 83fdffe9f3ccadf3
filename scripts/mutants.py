"""Break the code on purpose, one change at a time, and see which test notices.

    python scripts/mutants.py                                  # all of scripts/mutants.toml
    python scripts/mutants.py ema-of-raw-weights teacher-is-the-first   # these
    python scripts/mutants.py --out results/mutants.json       # keep the results; then only what is missing

Each mutant of the list names a file, a text that stands in it exactly once, what to put there instead, and the tests
that should notice. It is applied to a copy of the working tree, the tests run there, and the first one that fails has
killed it. The tests run once without any change first: a test that fails anyway notices nothing.

Exits with 1 if a mutant survived, and with 2 if the list does not fit the code.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "scripts" / "mutants.toml"
LIMIT_S = 1_800  # for the tests of one mutant, because a mutant may cause an endless loop
# no modules of mast: those are loaded from the changed copy
_SLOW = (
    "torch",
    "accelerate",
    "hypothesis",
    "matplotlib.pyplot",
    "pandas",
    "pyarrow.parquet",
    "pytest",
    "scipy.optimize",
    "sklearn",
    "soundfile",
    "timm",
    "torchvision",
)
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


class MutantError(Exception):
    """The list of mutants does not fit the code, or the tests fail without any change."""


@dataclass(frozen=True)
class Mutant:
    """One change that the tests should notice.

    Attributes:
        name: what it is called on the command line.
        breaks: what goes wrong with it, in a few words.
        file: path in the repository.
        old: a text that stands in the file exactly once.
        new: what stands there instead.
        tests: files or node ids, as pytest takes them.
    """

    name: str
    breaks: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def apply(self, root: Path) -> str:
        """The file's text with the change.

        Raises:
            MutantError: the old text is not there exactly once, or nothing would change.
        """
        path = root / self.file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        found = text.count(self.old)
        if found != 1 or self.old == self.new:
            raise MutantError(
                f"mutant {self.name}: its old text occurs {found} times in {self.file}, expected once, with a new "
                "text that differs"
            )
        return text.replace(self.old, self.new)


def load_mutants(path: Path = LIST) -> list[Mutant]:
    """The mutants of a list, in its order."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    mutants = [Mutant(**{**row, "tests": tuple(row["tests"])}) for row in rows]
    names = [mutant.name for mutant in mutants]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise MutantError(f"{path}: {twice[0]} is listed twice")
    return mutants


def run_mutants(mutants: Sequence[Mutant], root: Path = ROOT) -> Iterator[tuple[Mutant, str]]:
    """Each mutant and the test that noticed it, or an empty text if none did."""
    for mutant in mutants:
        mutant.apply(root)  # the whole list must fit before anything runs
    with _copy_of(root) as copy:
        noticed = _run_tests(copy, sorted({test for mutant in mutants for test in mutant.tests}))
        if noticed:
            raise MutantError(f"{noticed} fails without any change; fix it first")
        for mutant in mutants:
            path = copy / mutant.file
            before = path.read_text(encoding="utf-8")
            path.write_text(mutant.apply(copy), encoding="utf-8")
            try:
                yield mutant, _run_tests(copy, mutant.tests)
            finally:
                path.write_text(before, encoding="utf-8")


@contextmanager
def _copy_of(root: Path) -> Iterator[Path]:
    """A temporary copy of the working tree without what git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=True,
    )
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (root / name).is_file():
                target = Path(folder, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(root / name, target)
        yield Path(folder)


def _run_tests(root: Path, tests: Sequence[str]) -> str:
    """The first test that fails, or an empty text.

    They run in a fork of this process, which has already loaded the slow imports: otherwise most of a run's time.
    """
    _load_slow_libraries()
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if child == 0:
            _run_pytest(root, tests, output.fileno())
        code = _wait(child)
        output.seek(0)
        log = output.read()
    if code is None:
        return f"none in {LIMIT_S} s: the tests do not end"
    if code == 0:
        return ""
    failed = _FAILED.findall(log)
    if code != 1 or not failed:
        raise MutantError(f"{' '.join(tests)}: the tests did not run\n{log[-3000:]}")
    return failed[0]


def _run_pytest(root: Path, tests: Sequence[str], output: int) -> NoReturn:
    """In the fork: run the tests of a tree, and end with pytest's exit code."""
    code = 3
    try:
        os.setsid()  # so that what the tests start can be ended with them
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(root)
        for name in [name for name in sys.modules if name.split(".")[0] in ("mast", "mast_studies")]:
            del sys.modules[name]
        places = [str(root / "src"), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, places))
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # a change within the same second would not be recompiled
        sys.dont_write_bytecode = True
        sys.path[0] = str(root / "src")  # instead of this script's folder
        import pytest

        # in the order of the files, where the cheap tests come first
        code = int(pytest.main(["-x", "-q", "-rfE", "-p", "no:cacheprovider", "-p", "no:randomly", *tests]))
        sys.stdout.flush()
    finally:
        os._exit(code)


def _wait(child: int) -> int | None:
    """The exit code of a fork; None if it had to be killed."""
    until = time.monotonic() + LIMIT_S
    ended = 0
    try:
        while not ended and time.monotonic() < until:
            ended, status = os.waitpid(child, os.WNOHANG)
            time.sleep(0 if ended else 0.1)
        return os.waitstatus_to_exitcode(status) if ended else None
    finally:  # Ctrl-C also ends the tests
        if not ended:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)


@cache
def _load_slow_libraries() -> None:
    for name in _SLOW:
        with suppress(ImportError):
            importlib.import_module(name)


def _load_earlier(out: Path | None, commit: str) -> dict[str, dict[str, str]]:
    """The results of an earlier run on the same commit."""
    if out is None or not out.is_file():
        return {}
    before = json.loads(out.read_text(encoding="utf-8"))
    return {row["name"]: row for row in before["figures"]["mutants"]} if before["commit"] == commit else {}


def _commit() -> str:
    """The commit; refuses a working tree that differs from it."""
    changed = subprocess.run(
        ["git", "status", "--porcelain", "--", "src", "tests", "scripts", "benchmarks"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    if changed:
        raise MutantError(
            "--out: the working tree differs from its commit; commit first, so that the result names what was tested"
        )
    from mast.version import commit

    return commit()


def _write(out: Path, mutants: Sequence[Mutant], found: dict[str, dict[str, str]]) -> None:
    from mast_studies.record import write_result

    rows = [found[mutant.name] for mutant in mutants if mutant.name in found]
    killed = sum(bool(row["killed_by"]) for row in rows)
    write_result(out, {"killed": killed, "survived": len(rows) - killed, "mutants": rows})


def main() -> int:
    """Run the requested mutants; see the top of this file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="mutants to run; all by default")
    parser.add_argument("--list", action="store_true", help="only name them")
    parser.add_argument("--out", type=Path, help="JSON file for the results; needs a clean tree")
    options = parser.parse_args()
    try:
        mutants = load_mutants()
        unknown = sorted(set(options.names) - {mutant.name for mutant in mutants})
        if unknown:
            raise MutantError(f"no mutant is called {unknown[0]}; --list names them")
        if options.list:
            print("\n".join(f"{mutant.name}: {mutant.breaks}" for mutant in mutants))
            return 0
        known = _load_earlier(options.out, _commit()) if options.out else {}
        wanted = [
            m for m in mutants if (not options.names or m.name in options.names) and m.name not in known
        ]
        for mutant, killer in run_mutants(wanted):
            print(f"{'killed  ' if killer else 'SURVIVED'} {mutant.name} {killer}", flush=True)
            row = asdict(mutant)
            known[mutant.name] = {key: row[key] for key in ("name", "breaks", "file")} | {"killed_by": killer}
            if options.out:
                _write(options.out, mutants, known)
    except MutantError as error:
        print(error, file=sys.stderr)
        return 2
    survived = [name for name, row in known.items() if not row["killed_by"]]
    print(f"{len(known) - len(survived)} killed, {len(survived)} survived")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
