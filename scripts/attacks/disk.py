"""Every command on a faulty machine: a disk that is full, small, read-only or forbidden, or a file in the way.

    python -m scripts.attacks.disk

The command must end with one sentence that names the place, or do its work if a small disk has room for it. Full, small
and read-only disks are mounted (tmpfs), which needs root on Linux; without it these are left out, and the output says
so.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.attacks.commands import (
    ENV,
    MAST,
    find_fault,
    prepare,
    reading_commands,
    run,
    with_output,
    writing_commands,
)
from scripts.attacks.summary import Summary, parser

DISKS = {"full": "64k", "small": "600k", "read-only": "8m"}


@contextmanager
def disk(place: Path, kind: str) -> Iterator[bool]:
    """Mount a small disk at ``place``; yields false if that is impossible."""
    place.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISKS[kind]}", "none", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        yield False
        return
    try:
        if kind == "full":
            (place / "fill").write_bytes(bytes(64 * 1024))
        if kind == "read-only":
            subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        yield True
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


def judge(summary: Summary, what: str, done: subprocess.CompletedProcess[str], place: str) -> None:
    """Count one try."""
    if why := find_fault(done, place):
        summary.add_failure(what, why)
    else:
        summary.add_pass(what, "one sentence")


def attack(summary: Summary, work: Path, name: str, command: tuple[object, ...]) -> None:
    """One command in every bad place."""
    for kind in DISKS:
        with disk(work / "disk", kind) as mounted:
            if mounted:
                done = run(*with_output(command, work / "disk" / "o"))
                if kind == "small" and done.returncode == 0:
                    summary.add_pass(f"{name} on a {kind} disk", "had room")
                else:
                    judge(summary, f"{name} on a {kind} disk", done, "disk/o")
            else:
                summary.add_pass(f"{name} on a {kind} disk", "not tried: needs root")
    in_the_way = work / "file"
    in_the_way.write_text("x")
    judge(summary, f"{name} through a file", run(*with_output(command, in_the_way / "o")), "file")
    if shutil.which("setpriv"):
        denied = work / "denied"
        shutil.rmtree(denied, ignore_errors=True)
        denied.mkdir(mode=0o755)
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        env = {**ENV, "HOME": "/nonexistent", "MPLCONFIGDIR": "/nonexistent"}
        done = run(*with_output(command, denied / "o"), prefix=nobody, env=env)
        judge(summary, f"{name} in a folder of another user", done, "denied")


def main() -> None:
    """All commands."""
    options = parser(__doc__).parse_args()
    summary = Summary(options.summary)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        work.chmod(0o755)
        toy = prepare(work)
        for name, command in writing_commands(toy).items():
            attack(summary, work, name, command)
        for name, command in reading_commands(toy).items():
            with open("/dev/full", "w") as full:
                words = [*MAST, *map(str, command)]
                done = subprocess.run(
                    words, stdout=full, stderr=subprocess.PIPE, text=True, env=ENV, check=False
                )
            judge(summary, f"{name} printing to a full disk", done, "")
    summary.write()


if __name__ == "__main__":
    main()
