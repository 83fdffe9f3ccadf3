import subprocess
import sys

import pytest

AFTERWARDS = """
import atexit, sys, threading, time

class Loaded:
    def __del__(self):
        print("taken apart")

loaded = Loaded()
{before}
from mast.cli.fast_exit import exit_at_once
with exit_at_once():
    atexit.register(print, "registered")
    threading.Thread(target=lambda: (time.sleep(0.2), print("waited for"))).start()
    print("done")
    {last}
"""


def run(last: str, before: str = "") -> subprocess.CompletedProcess[str]:
    text = AFTERWARDS.format(last=last, before=before)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("last", "status"), [("pass", 0), ("sys.exit()", 0), ("sys.exit(0)", 0), ("sys.exit(4)", 4)]
)
def test_all_is_done_and_nothing_taken_apart(last: str, status: int) -> None:
    ended = run(last)
    assert ended.returncode == status
    assert ended.stdout.split("\n") == ["done", "waited for", "registered", ""]
    assert not ended.stderr


@pytest.mark.parametrize(
    ("last", "said"),
    [("sys.exit('a reason')", "a reason"), ("raise ValueError('a bug')", "ValueError: a bug")],
)
def test_what_python_has_to_say_is_said(last: str, said: str) -> None:
    ended = run(last)
    assert ended.returncode == 1
    assert ended.stderr.strip().endswith(said)
    assert ended.stdout.split("\n")[:3] == ["done", "waited for", "registered"]


def test_without_standard_output() -> None:
    ended = run("pass", before="sys.stdout = sys.stderr = None; print = lambda *_: None")
    assert ended.returncode == 0
