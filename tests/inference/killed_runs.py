"""Start `mast detect` in a child again and again and kill it, each time a little later; then let it finish.

Imports are done once, before the first child is made: most moments then fall into the work itself.
Arguments: how many kills, the results' folder, then those of the command.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
import typer

import mast.inference  # noqa: F401 (for the children)
from mast.cli.detect import detect


def start(arguments: list[str]) -> int:
    child = os.fork()
    if child == 0:
        app = typer.Typer()
        app.command()(detect)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        app(arguments)
    return child


def main() -> None:
    torch.set_num_threads(1)  # as in the tests: sums in another order differ in the last digit
    kills, out, arguments = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    rng = random.Random(0)
    killed = 0
    for k in range(kills):
        child = start(arguments)
        # a kill somewhere after the next recording is done, so that every child brings the run forward a little;
        # towards the end the children finish, and the kills fall into the making of the tables
        wanted = min(k, 12)
        while len(list((out / "recordings").rglob("[!.]*.parquet"))) < wanted:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.15))
        os.kill(child, signal.SIGKILL)
        killed += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    last = os.waitpid(start(arguments), 0)[1]
    print(killed, os.waitstatus_to_exitcode(last))


if __name__ == "__main__":
    main()
