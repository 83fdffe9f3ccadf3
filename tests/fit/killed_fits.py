"""Start a fit in a child again and again and kill it at random moments; then let it finish and compare.

    python tests/fit/killed_fits.py --kills 20

Imports are done once, before the first child is made: most moments then fall into the work itself. Prints, as JSON, how
many kills fell before the end, in which stages, and what differs from a run that was left alone (nothing, it is hoped).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import pandas as pd
import pytest
import torch
from toy_archive import run_fit, write_both
from toy_recipe import use_smaller_models

STAGES = ("scan", "statistics", "pretrain", "train", "self-train", "calibrate", "evaluate", "report")


def start(labelled: Path, archive: Path, out: Path) -> int:
    """A fit in a child; its process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        run_fit(labelled, [archive], out, examples=0)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def stage_seconds(whole: Path) -> dict[str, float]:
    """How long each stage took in a run that was left alone, by the times of its notes."""
    ends = [(whole / "stages" / f"{stage}.json").stat().st_mtime for stage in STAGES]
    return {s: max(0.02, e - b) for s, b, e in zip(STAGES, [ends[0] - 0.2, *ends[:-1]], ends, strict=True)}


def kill_in(stage: str, child: int, out: Path, delay_s: float) -> bool:
    """Kill a child some time after it has started a stage, or a later one; whether it was still at work then."""
    notes = [out / "stages" / f"{s}.json" for s in STAGES[STAGES.index(stage) :]]
    before = {note: note.stat().st_mtime_ns for note in notes if note.exists()}
    # a note is written when its stage begins; a stage that is done already is never begun
    while not any(note.exists() and note.stat().st_mtime_ns != before.get(note) for note in notes):
        if os.waitpid(child, os.WNOHANG)[0]:
            return False  # it had nothing left to do
        time.sleep(0.002)
    time.sleep(delay_s)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def differences(a: Path, b: Path) -> list[str]:
    """Files of results that are not the same in two runs."""
    names = ["metrics.json", "selftrain/rounds.csv", "statistics/normalisation.json"]
    names += [
        path.relative_to(a).as_posix() for path in sorted((a / "evaluate").rglob("*")) if path.is_file()
    ]
    found = []
    for name in names:
        if not (b / name).exists():
            found.append(f"{name} is missing")
        elif name.endswith(".parquet"):
            if not pd.read_parquet(a / name).equals(pd.read_parquet(b / name)):
                found.append(name)
        elif (a / name).read_bytes() != (b / name).read_bytes():
            found.append(name)
    for folder in ("pretrain/best", "train/best", "best"):
        cards = [json.loads((run / folder / "model.json").read_text()) for run in (a, b)]
        if any(cards[0][key] != cards[1][key] for key in ("weights_sha256", "calibration", "thresholds")):
            found.append(folder)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--whole", type=Path, help="a finished run beside its labelled/ and archive/; made by default"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)  # sums in another order differ in the last digit
    use_smaller_models(pytest.MonkeyPatch())  # as in the tests, of which --whole may be
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        whole = options.whole or work / "whole"
        labelled, archive = whole.parent / "labelled", whole.parent / "archive"
        if options.whole is None:
            write_both(work)
            assert os.waitpid(start(labelled, archive, whole), 0)[1] == 0
        seconds = stage_seconds(whole)

        rng = random.Random(options.seed)
        # long stages are killed more often (by the root: short ones have their turn); in order, so that there is
        # still something to kill
        chosen = rng.choices(STAGES, weights=[seconds[s] ** 0.5 for s in STAGES], k=options.kills)
        landed = []
        for stage in sorted(chosen, key=STAGES.index):
            child = start(labelled, archive, work / "killed")
            if kill_in(stage, child, work / "killed", rng.uniform(0, 0.7) * seconds[stage]):
                landed.append(stage)
        last = os.waitpid(start(labelled, archive, work / "killed"), 0)[1]
        result = {
            "kills": options.kills,
            "landed": len(landed),
            "stages": {stage: landed.count(stage) for stage in STAGES if stage in landed},
            "exit_code": os.waitstatus_to_exitcode(last),
            "differences": differences(whole, work / "killed") if last == 0 else ["not finished"],
            "leftovers": [p.name for p in (work / "killed").glob(".*")],
        }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
