"""Servers of `mast review` that start at once: forks of a process that has imported all that they need.

As a program, it reads a line for each server, with the name of a pipe and the command's words, as JSON; it answers with
the server's process. What the server says goes into the pipe.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from functools import cache


@cache
def _starter() -> subprocess.Popen[str]:
    """One for all tests of this process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    atexit.register(started.communicate)  # closes what it reads from, which ends it
    return started


def start_review(pipe: str, *words: str) -> int:
    """Start a server that writes into a pipe; its process."""
    starter = _starter()
    assert starter.stdin is not None
    assert starter.stdout is not None
    starter.stdin.write(json.dumps([pipe, *words]) + "\n")
    starter.stdin.flush()
    return int(starter.stdout.readline())


def main() -> None:
    import typer
    import uvicorn.lifespan.on
    import uvicorn.loops.auto
    import uvicorn.protocols.http.auto
    import uvicorn.protocols.websockets.auto  # noqa: F401

    import mast.review.open_review
    import mast.review.serve
    import mast.review.server  # noqa: F401
    from mast.cli.review import review

    running: list[int] = []
    for line in sys.stdin:
        pipe, *words = json.loads(line)
        child = os.fork()
        if child == 0:
            said = os.open(pipe, os.O_WRONLY)  # waits for the reader
            os.dup2(said, 1)
            os.dup2(said, 2)
            os.close(said)
            sys.argv = ["review", *words]
            typer.run(review)
        print(child, flush=True)
        running = [one for one in running if not os.waitpid(one, os.WNOHANG)[0]] + [child]


if __name__ == "__main__":
    main()
