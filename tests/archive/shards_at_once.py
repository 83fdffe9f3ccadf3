"""`mast detect --shard i/n` for all i at the same time, each in a process of its own. Arguments: n, then the command's.

Imports are done once, before the children are made; they start as nearly together as can be.
"""

from __future__ import annotations

import os
import sys

import torch
import typer

import mast.archive  # noqa: F401 (for the children)
from mast.cli.detect import detect


def main() -> None:
    torch.set_num_threads(1)  # as in the tests: sums in another order differ in the last digit
    n, arguments = int(sys.argv[1]), sys.argv[2:]
    children = []
    for i in range(n):
        child = os.fork()
        if child == 0:
            app = typer.Typer()
            app.command()(detect)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            app([*arguments, "--shard", f"{i}/{n}"])
        children.append(child)
    print(*[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])


if __name__ == "__main__":
    main()
