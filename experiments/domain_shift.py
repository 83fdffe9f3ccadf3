"""What pretraining, the contrastive loss and self-training buy on other days and at other sites.

    python experiments/domain_shift.py run --seed 0 --work runs/shift
    python experiments/domain_shift.py run --real data/tagus_fish --band 2000 --unlabelled data/pool --work runs/shift
    python experiments/domain_shift.py collect --work runs/shift --out results/domain_shift.json

``run`` trains five systems on one dataset and keeps, for each system and each test part, the truth and the detections
in ``WORK/<dataset>-<seed>/found``. ``collect`` reads those and writes the table and the figure: it can be run anywhere.

Simulated data: one labelled site on one day (30 minutes to train, 8 to tune on), 168 minutes from four other sites and
two other days, most of them unlabelled. Tests: other recordings of that site and day, other days of that site, other
sites; no test recording is in the unlabelled sound. Thresholds come from validation; nothing is chosen on a test part.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from mast.cli.recipes import recipe_from
from mast.data.recordings import Dataset, load_dataset
from mast.data.simulate import Simulation, simulate_dataset
from mast.data.splits import SplitConfig
from mast.models.checkpoint import load_checkpoint
from mast.selftrain.rounds import self_train
from mast.training.detector import train_detector
from mast.training.measure import detect_chunks
from mast.training.pretrain import pretrain
from mast.training.recipe import Recipe
from mast.training.sources import labelled_chunks
from mast.training.spectrograms import FrontEndPipeline

RECIPE = Path(__file__).with_suffix(".toml")
SYSTEMS = ("from scratch", "pretrained", "+ contrastive", "+ self-training 1", "+ self-training 2")
NO_CONTRASTIVE = "train.detector={contrastive_weight=0.0}"


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
        from experiments.domain_shift_table import write_table

        write_table(options.work, options.out, options.figure)


def run_all(options: argparse.Namespace) -> None:
    """Train every system on one dataset and keep what each finds in the test parts."""
    name = options.real.name if options.real else "simulated"
    work = options.work / f"{name}-{options.seed}"
    split = None
    if options.real:
        data, unlabelled = options.real, options.unlabelled
        split = SplitConfig(by=options.split, fractions=(0.7, 0.3, 0.0))
    else:
        data, elsewhere = make_world(work, options.seed, options.minutes, options.workers)
        unlabelled = [elsewhere]
    recipe = recipe_from(options.recipe, options.band, options.set)
    plain = recipe_from(options.recipe, options.band, [*options.set, NO_CONTRASTIVE])
    dataset = load_dataset(data)
    costs: dict[str, float] = {}
    started = time.perf_counter()
    for system, model in systems(dataset, unlabelled, work, recipe, plain, split, options.seed):
        costs[system] = round(time.perf_counter() - started, 1)
        keep_found(model, dataset, recipe, split, work / "found" / system, options.seed)
        about = {"dataset": name, "seed": options.seed, "recipe": recipe.model_dump(mode="json")}
        about |= {"seconds": costs, "split": split.model_dump(mode="json") if split else "column"}
        about["unlabelled"] = [path.name for path in unlabelled]
        about["device"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        (work / "found" / "about.json").write_text(json.dumps(about, indent=2))
        print(f"{name} seed {options.seed}: {system} after {costs[system]:.0f} s", flush=True)
        started = time.perf_counter()


def systems(
    dataset: Dataset,
    unlabelled: list[Path],
    work: Path,
    recipe: Recipe,
    plain: Recipe,
    split: SplitConfig | None,
    seed: int,
) -> Iterator[tuple[str, Path]]:
    """The rows of the table, each with its model folder; the later ones build on the earlier."""
    common: dict[str, Any] = {"split": split, "seed": seed}
    train_detector(dataset, work / "scratch", plain, **common)
    yield SYSTEMS[0], work / "scratch" / "best"
    learnt = pretrain([dataset.root, *unlabelled], work / "pretrain", recipe, seed=seed)
    print(f"pretraining: {learnt.best}", flush=True)
    encoder = work / "pretrain" / "best"
    train_detector(dataset, work / "pretrained", plain, init=encoder, **common)
    yield SYSTEMS[1], work / "pretrained" / "best"
    train_detector(dataset, work / "contrastive", recipe, init=encoder, **common)
    detector = work / "contrastive" / "best"
    yield SYSTEMS[2], detector
    rows = self_train(dataset, unlabelled, detector, work / "selftrain", recipe, **common)
    print(rows.to_string(), flush=True)
    for number in (1, 2):
        yield SYSTEMS[2 + number], work / "selftrain" / f"round-{number}" / "stage2" / "best"


def keep_found(
    model_folder: Path, dataset: Dataset, recipe: Recipe, split: SplitConfig | None, out: Path, seed: int
) -> None:
    """Truth, detections and listened-to spans of every part but train, as tables; the threshold beside them."""
    model, card = load_checkpoint(model_folder)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    pipeline = FrontEndPipeline.of(card).to(device)
    out.mkdir(parents=True, exist_ok=True)
    parts = labelled_chunks(dataset, recipe.front_end, split=split, seed=seed)
    for part in parts.keys() - {"train"}:
        found = detect_chunks(model.to(device), parts[part], pipeline, batch_size=32)
        for kind, table in found._asdict().items():
            table.to_parquet(out / f"{part}.{kind}.parquet", index=False)
    (out / "threshold.json").write_text(json.dumps(card.thresholds))


def make_world(work: Path, seed: int, minutes: float, workers: int) -> tuple[Path, Path]:
    """A labelled dataset with its tests, and unlabelled sound of the same world, as a user would have them."""
    labelled, elsewhere = work / "labelled", work / "elsewhere"
    common: dict[str, Any] = {"duration_s": 60.0, "hours": (5.0, 9.0), "seed": seed, "format": "wav"}
    if (elsewhere / "recordings.csv").exists():
        return labelled, elsewhere
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
    return labelled, elsewhere


if __name__ == "__main__":
    main()
