"""What pretraining, the contrastive loss and self-training buy on other days and at other sites.

    python experiments/domain_shift.py run --seed 0 --work runs/shift
    python experiments/domain_shift.py run --real data/tagus_fish --band 2000 --unlabelled data/pool --work runs/shift
    python experiments/domain_shift.py collect --work runs/shift --out results/domain_shift.json

``run`` trains five systems on one dataset and keeps, for each system and each test part, the truth and the detections
in ``WORK/<dataset>-<seed>/found``. ``collect`` reads those and writes the table and the figure: it can be run anywhere.
Training, measuring and what is on disk are :mod:`mast.experiments`; ``mast experiment`` has the paper's own studies.

Simulated data: one labelled site on one day (30 minutes to train, 8 to tune on), 168 minutes from four other sites and
two other days, most of them unlabelled. Tests: other recordings of that site and day, other days of that site, other
sites; no test recording is in the unlabelled sound, nor is one heard in pretraining. Thresholds come from validation;
nothing is chosen on a test part.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from domain_shift_table import write_table

from mast.data.simulate import Simulation, simulate_dataset
from mast.data.splits import SplitConfig
from mast.experiments.presets import load_preset
from mast.experiments.runner import Runner, Source
from mast.experiments.systems import NO_CONTRAST, SelfTraining, System
from mast.fit.pipeline import Show
from mast.grid import FrontEnd
from mast.training.loop import Progress
from mast.training.recipe import parse_override

RECIPE = Path(__file__).with_suffix(".toml")
SYSTEMS = (
    System("from scratch", "from scratch", settings=NO_CONTRAST),
    System("pretrained", "pretrained", init="pretrained", settings=NO_CONTRAST),
    System("+ contrastive", "+ contrastive", init="pretrained"),
    *(
        System(
            f"+ self-training {number}",
            f"+ self-training {number}",
            init="pretrained",
            self_training=SelfTraining("+ contrastive", taken_after=number),
        )
        for number in (1, 2)
    ),
)


def main() -> None:
    """Read the options, run or collect."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--seed", type=int, default=0)
    run.add_argument("--recipe", default=str(RECIPE), help="a preset or a TOML file")
    run.add_argument("--set", action="append", default=[], help="as in mast train")
    run.add_argument("--real", type=Path, help="a labelled dataset with its splits; simulated by default")
    run.add_argument("--split", choices=("recording", "time"), default="recording", help="how --real is cut")
    run.add_argument("--band", type=float, help="upper edge of the band, Hz")
    run.add_argument("--unlabelled", type=Path, nargs="*", default=[], help="folders, with --real")
    run.add_argument(
        "--minutes", type=float, default=1.0, help="factor on the simulated minutes, for a rehearsal"
    )
    run.add_argument("--systems", help="only these, separated by commas")
    run.add_argument("--workers", type=int, default=12, help="simulating processes")
    run.add_argument("--work", type=Path, required=True)
    collect = commands.add_parser("collect")
    collect.add_argument("--work", type=Path, required=True)
    collect.add_argument("--out", type=Path, required=True)
    collect.add_argument("--figure", type=Path)
    options = parser.parse_args()
    if options.command == "run":
        run_all(options)
    else:
        write_table(options.work, options.out, options.figure)


def run_all(options: argparse.Namespace) -> None:
    """Train every system on one dataset and keep what each finds in the test parts."""
    name = options.real.name if options.real else "simulated"
    if options.real:
        split = SplitConfig(by=options.split, fractions=(0.7, 0.3, 0.0))
        source = Source(name, options.real, tuple(options.unlabelled), split=split)
    else:
        work = options.work / f"{name}-{options.seed}"
        source = Source(name, *make_world(work, options.seed, options.minutes, options.workers))
    overrides = dict(parse_override(text) for text in options.set)
    if options.band:
        overrides["front_end"] = FrontEnd.for_band(options.band).model_dump()
    preset = load_preset(options.recipe, overrides)
    show = Show(say=lambda text: print(text, flush=True), bar=_silent)
    runner = Runner(source, options.work, preset, {s.name: s for s in SYSTEMS}, seed=options.seed, show=show)
    failed = runner.run([s for s in SYSTEMS if not options.systems or s.name in options.systems.split(",")])
    if failed:
        raise SystemExit("\n".join(f"{system}: {why}" for system, why in failed.items()))


@contextmanager
def _silent(what: str) -> Iterator[Progress]:
    yield lambda done, total, text: None


def make_world(work: Path, seed: int, minutes: float, workers: int) -> tuple[Path, tuple[Path, ...]]:
    """A labelled dataset with its tests, and unlabelled sound of the same world, as a user would have them."""
    labelled, elsewhere = work / "labelled", work / "elsewhere"
    common: dict[str, Any] = {"duration_s": 60.0, "hours": (5.0, 9.0), "seed": seed, "format": "wav"}
    if (elsewhere / "recordings.csv").exists():
        return labelled, (elsewhere,)
    home, per_site_day = max(4, round(60 * minutes)), max(3, round(12 * minutes))
    one_day = {"sites": 1, "days": 1, "ood_sites": 0, "ood_days": 0}
    simulate_dataset(labelled, Simulation(recordings=home, **one_day, **common), workers=workers)
    everywhere = {"sites": 5, "days": 3, "ood_sites": 4, "ood_days": 2}
    simulate_dataset(
        work / "world", Simulation(recordings=15 * per_site_day, **everywhere, **common), workers=workers
    )
    listing, boxes = (pd.read_csv(labelled / name, dtype=str) for name in ("recordings.csv", "boxes.csv"))
    n_train, n_val = home // 2, max(1, round(home * 8 / 60))
    listing["split"] = ["train"] * n_train + ["val"] * n_val + ["test"] * (home - n_train - n_val)
    world, world_boxes = (pd.read_csv(work / "world" / n, dtype=str) for n in ("recordings.csv", "boxes.csv"))
    home_site, home_day = listing["site"].iloc[0], listing["datetime"].str[:10].iloc[0]
    day = world["datetime"].str[:10]
    world = world[(world["site"] != home_site) | (day != home_day)].assign(day=day)
    # of each other day at home most recordings are tests; of each day elsewhere a sixth
    place = world.groupby(["site", "day"]).cumcount()
    at_home = world["site"] == home_site
    test = place < at_home.map({True: round(per_site_day * 2 / 3), False: max(1, per_site_day // 6)})
    world["split"] = at_home.map({True: "temporal_ood", False: "site_ood"}).where(test, "")
    for folder, rows in ((labelled, world[test]), (elsewhere, world[~test])):
        (folder / "audio").mkdir(parents=True, exist_ok=True)
        for file in rows["file"]:
            (work / "world" / "audio" / file).rename(folder / "audio" / file)
    tests = world[test].drop(columns="day")
    pd.concat([listing, tests]).to_csv(labelled / "recordings.csv", index=False)
    pd.concat([boxes, world_boxes[world_boxes["file"].isin(tests["file"])]]).to_csv(
        labelled / "boxes.csv", index=False
    )
    world[~test].drop(columns="day").to_csv(elsewhere / "recordings.csv", index=False)
    return labelled, (elsewhere,)


if __name__ == "__main__":
    main()
