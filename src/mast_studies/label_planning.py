"""F1 against the number of annotated clips, by the strategy of ``mast plan`` that chose them.

    python -m mast_studies.label_planning run --seed 0 --seed 1 --work runs/planning
    python -m mast_studies.label_planning collect --work runs/planning --out results/label_planning.json

Simulated sound at four sites over three days, around the clock. A third of the recordings are the test, some tune
thresholds (the same for every strategy), and all others are the archive to choose from. One encoder is pretrained on
that archive for each seed and shared by all strategies. Each strategy chooses clips of one chunk; their true boxes are
revealed, and a detector is trained on them with as many steps at every budget. ``diverse`` works as a user would: the
pretrained encoder chooses the first clips, and for each later budget the detector of the budget before it chooses more.
``coverage`` (on request) is diverse without the detector's doubt: the pretrained encoder chooses all clips.

A killed ``run`` resumes; ``--rehearse`` shrinks everything to see that it works. ``collect`` reads the results and
writes the table and the figure.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch.utils.data import ConcatDataset

from mast.annotations import AnnotationSet
from mast.data import load_dataset
from mast.data.chunk_dataset import ChunkDataset
from mast.data.chunks import chunk_table
from mast.data.recordings import Dataset
from mast.data.simulate.dataset import Simulation, simulate_dataset
from mast.evaluation.part_tables import has_part
from mast.grid import FrontEnd
from mast.loaded_model import LoadedModel
from mast.planning.candidates import candidate_clips
from mast.planning.choose import choose_clips
from mast.planning.survey import Surveyor
from mast.runs import refuse_other_inputs
from mast.training.chosen_chunks import Chunks
from mast.training.chunk_scores import detect_chunks
from mast.training.detector_training import DetectorRun, fit_detector
from mast.training.machine import prepare_machine
from mast.training.pretraining import pretrain
from mast.training.recipe import BOOKKEEPING, Recipe, check_and_save_recipe, load_recipe, parse_override
from mast.training.start import Start
from mast.version import commit
from mast_studies.collect import training_records
from mast_studies.figures import line_plot
from mast_studies.found import Trial, load_about, save_about
from mast_studies.record import write_result
from mast_studies.script import run_script
from mast_studies.study_tables import Archive, Line, Row, as_cells, as_json, markdown_table
from mast_studies.training_runs import with_same_steps

NAME = "simulated"
STYLES = {
    "diverse": ("#0b8a2a", "^"),
    "time-balanced": ("#1b6ca8", "o"),
    "random": ("#d98c21", "s"),
    "sequential": ("#a83232", "D"),
    "coverage": ("#7a4fb5", "v"),
}
DEFAULT = ("diverse", "time-balanced", "random", "sequential")
BUDGETS = (16, 32, 64, 128)  # clips of one chunk: 3 to 22 minutes
WORLD = {"recordings": 144, "duration_s": 61.44, "sites": 4, "days": 3, "ood_sites": 0, "ood_days": 0}
# a world of minutes on 1.28 s chunks: shows that everything runs, says nothing about strategies
SMALL_WORLD = WORLD | {"recordings": 16, "duration_s": 6.4, "sites": 2, "days": 1}
SMALL = {
    "front_end.n_bins": 32,
    "front_end.chunk_frames": 128,
    "pretrain.epochs": 1,
    "train.epochs": 2,
    "train.validate_every_epochs": 1,
    "train.score_threshold": 0.001,
    "train.detector.channels": 32,
    "train.detector.levels": 3,
    "train.detector.head_convs": 1,
}


@dataclass(frozen=True)
class PlanningRun:
    """Data and settings of one seed."""

    trial: Trial
    recipe: Recipe
    dataset: Dataset
    part_of: dict[str, str]  # recording → pool, val or test
    budgets: tuple[int, ...]
    seed: int

    def recordings(self, part: str) -> list[str]:
        """Their names."""
        return [name for name, own in self.part_of.items() if own == part]

    def chunks(self, part: str) -> Chunks:
        """The labelled chunks of a part, end to end."""
        table = chunk_table(self.dataset, self.recipe.front_end, hop_s=self.recipe.front_end.chunk_s)
        return self.reveal(table[table["recording"].isin(self.recordings(part))])

    def reveal(self, rows: pd.DataFrame) -> Chunks:
        """Some chunks with their true boxes."""
        own = rows.assign(labelled=True, root=str(self.dataset.root)).reset_index(drop=True)
        return Chunks(ConcatDataset([ChunkDataset(self.dataset, own, self.recipe.front_end)]), own)

    def candidates(self) -> pd.DataFrame:
        """The archive as clips of one chunk that nobody has listened to."""
        pool = self.dataset.select(recordings=self.recordings("pool"))
        unheard = replace(pool, annotations=AnnotationSet())
        return candidate_clips(unheard, self.recipe.front_end, self.recipe.front_end.chunk_s)


def main() -> None:
    """Read the options, run or collect."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument(
        "--seed", type=int, action="append", help="may be given several times; 0 and 1 by default"
    )
    run.add_argument("--preset", default="tiny", help="a preset or a TOML file")
    run.add_argument("--set", action="append", default=[], help="as in mast train")
    run.add_argument("--budgets", default=",".join(map(str, BUDGETS)))
    run.add_argument("--strategies", default=",".join(DEFAULT), help=f"of {', '.join(STYLES)}")
    run.add_argument("--workers", type=int, default=2, help="simulating processes")
    run.add_argument("--rehearse", action="store_true", help="a tiny world and model, to see that it works")
    run.add_argument("--work", type=Path, required=True)
    collect = commands.add_parser("collect")
    collect.add_argument("--work", type=Path, required=True)
    collect.add_argument("--out", type=Path, required=True)
    collect.add_argument("--figure", type=Path, help="next to --out by default")
    options = parser.parse_args()
    if options.command == "run":
        run_all(options)
    else:
        write_table(options.work, options.out, options.figure or options.out.with_suffix(".png"))


def run_all(options: argparse.Namespace) -> None:
    """Every strategy at every budget, seed by seed."""
    overrides = dict(parse_override(text) for text in options.set)
    recipe = load_recipe(options.preset, (SMALL if options.rehearse else {}) | overrides)
    budgets = tuple(sorted(int(n) for n in options.budgets.split(",")))
    strategies = options.strategies.split(",")
    seeds = options.seed or [0, 1]
    clock, trained, left = time.perf_counter(), 0, len(seeds) * len(strategies) * len(budgets)
    for seed in seeds:
        planning_run = prepare(options, recipe, budgets, seed)
        encoder = pretrain_encoder(planning_run)
        print(f"seed {seed}: encoder ready after {time.perf_counter() - clock:.0f} s", flush=True)
        # budgets in the outer loop, so that a run that is stopped early has whole columns of the table
        for budget in budgets:
            for strategy in strategies:
                began = time.perf_counter()
                left -= 1
                if measure(planning_run, strategy, budget, encoder):
                    trained += 1
                    spent = time.perf_counter() - began
                    print(
                        f"seed {seed}, {strategy}, {budget} clips: {spent:.0f} s; {left} more of about that long, "
                        f"{left * spent / 60:.0f} min",
                        flush=True,
                    )
    print(f"{trained} detectors trained in {(time.perf_counter() - clock) / 60:.1f} min")


def prepare(options: argparse.Namespace, recipe: Recipe, budgets: tuple[int, ...], seed: int) -> PlanningRun:
    """The world of a seed, divided by recording, with each site and day in every part."""
    trial = Trial.at(options.work, NAME, seed)
    root = trial.folder / "world"
    world = SMALL_WORLD if options.rehearse else WORLD
    if not (root / "recordings.csv").is_file():
        simulate_dataset(root, Simulation(**world, seed=seed, format="wav"), workers=options.workers)
    dataset = load_dataset(root)
    order = np.random.default_rng([seed, 61]).permutation(len(dataset))
    n_test, n_val = len(dataset) // 3, max(2, len(dataset) // 12)
    parts = ["test"] * n_test + ["val"] * n_val + ["pool"] * (len(dataset) - n_test - n_val)
    part_of = {str(dataset.recordings["file"][row]): part for row, part in zip(order, parts, strict=True)}
    return PlanningRun(trial, recipe, dataset, part_of, budgets, seed)


def pretrain_encoder(planning_run: PlanningRun) -> Path:
    """One encoder for all strategies, pretrained on the archive alone."""
    run, listing = (
        planning_run.trial.folder / "runs" / "pretrain",
        planning_run.trial.folder / "runs" / "sound",
    )
    if not (run / "done").exists():
        listing.mkdir(parents=True, exist_ok=True)
        table = planning_run.dataset.recordings
        table = table[table["file"].isin(planning_run.recordings("pool"))]
        files = [str(planning_run.dataset.path(str(name)).resolve()) for name in table["file"]]
        columns = ["file", "site", "datetime", "duration_s", "sample_rate"]
        table.assign(file=files)[columns].to_csv(listing / "recordings.csv", index=False)
        pretrain([listing], run, planning_run.recipe, seed=planning_run.seed)
        (run / "done").touch()
    return run / "best"


def measure(planning_run: PlanningRun, strategy: str, budget: int, encoder: Path) -> bool:
    """Choose, train, detect; returns whether anything had to be done."""
    system = f"{strategy}_{budget}"
    folder = planning_run.trial.system(system)
    settings = planning_run.recipe.model_dump(mode="json")
    before = load_about(folder)
    if before:
        refuse_other_inputs(
            folder, before["recipe"], settings, instead="choose another --work", ignore=BOOKKEEPING
        )
    if has_part(folder, "test") and before:
        return False
    clips = choose_budget(planning_run, strategy, budget, encoder)
    rows = clips.assign(valid_s=clips["end_s"] - clips["start_s"])
    learn = planning_run.reveal(rows)
    recipe = with_same_steps(planning_run.recipe, all_chunks=max(planning_run.budgets), chunks=budget)
    machine = prepare_machine(recipe)
    run = planning_run.trial.folder / "runs" / system
    about = {
        "kind": "detector",
        "data": NAME,
        "seed": planning_run.seed,
        "strategy": strategy,
        "chunks": budget,
    }
    check_and_save_recipe(recipe, run, about=about)  # refuses a half-finished run with other settings
    began = time.perf_counter()
    job = DetectorRun(recipe, machine, run, about, Start.find(encoder), planning_run.seed, plan=recipe.train)
    fit_detector(learn, planning_run.chunks("val"), job)
    spent = time.perf_counter() - began
    model = LoadedModel.load(run / "best", device=machine.device)
    found = detect_chunks(
        model,
        planning_run.chunks("test"),
        batch_size=machine.eval_batch(recipe.train.batch_size),
        workers=machine.workers,
        score_threshold=recipe.train.score_threshold,
        nms_iou=recipe.train.nms_iou,
    )
    replace(found, threshold=model.card.thresholds["score"]).save(folder, "test")
    truth = planning_run.dataset.annotations.events
    labels, boxes = set[str](), 0
    for name, start, end in clips[["recording", "start_s", "end_s"]].itertuples(index=False):
        own = truth[(truth["recording"] == name) & (truth["start_s"] < end) & (truth["end_s"] > start)]
        labels, boxes = labels | set(own["label"]), boxes + len(own)
    seconds = {system: round(spent, 1)}
    facts = {"boxes": boxes, "species": len(labels), "hours": int(clips["hour"].nunique())}
    world = json.loads((planning_run.dataset.root / "simulation.json").read_text(encoding="utf-8"))
    details = {"title": f"{strategy}, {budget} clips", "seconds": seconds, "recipe": settings, "world": world}
    save_about(folder, {**about, **facts, **details, "commit": commit()})
    return True


def choose_budget(planning_run: PlanningRun, strategy: str, budget: int, encoder: Path) -> pd.DataFrame:
    """The clips of a budget, best first; saved, because a later budget builds on them."""
    file = planning_run.trial.folder / "chosen" / f"{strategy}_{budget}.json"
    candidates = planning_run.candidates()
    if file.is_file():
        rows: list[int] = json.loads(file.read_text(encoding="utf-8"))
        return candidates.iloc[rows]
    if strategy in ("time-balanced", "random", "sequential"):
        rows = choose_clips(candidates, budget, strategy, seed=planning_run.seed).index.tolist()  # type: ignore[arg-type]
    else:
        smaller = [n for n in planning_run.budgets if n < budget] if strategy == "diverse" else []
        before = choose_budget(planning_run, strategy, smaller[-1], encoder).index.tolist() if smaller else []
        model = (
            planning_run.trial.folder / "runs" / f"{strategy}_{smaller[-1]}" / "best" if smaller else encoder
        )
        open_rows = candidates.drop(index=before)
        survey = Surveyor(model).survey(planning_run.dataset, open_rows, candidates.loc[before])
        more = choose_clips(open_rows, budget - len(before), "diverse", survey=survey)
        rows = [*before, *more.index.tolist()]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps([int(row) for row in rows]), encoding="utf-8")
    return candidates.iloc[rows]


def write_table(work: Path, out: Path, picture: Path) -> None:
    """F1 of every strategy and budget with intervals, differences to random, and the figure."""
    archive = Archive(work)
    trials = archive.trials_of(NAME)
    systems = sorted({name for trial in trials for name in trial.systems()})
    budgets = sorted({int(name.rpartition("_")[2]) for name in systems})
    everything: list[Row] = []
    table: dict[str, Any] = {}
    for budget in budgets:
        names = [f"{strategy}_{budget}" for strategy in STYLES if f"{strategy}_{budget}" in systems]
        lines = [Line(name, name.rpartition("_")[0]) for name in names]
        rows = archive.rows(NAME, "test", lines, reference=f"random_{budget}")
        everything += rows
        for row, plain in zip(rows, as_json(rows), strict=True):
            abouts = [load_about(trial.system(row.system)) for trial in trials]
            counted = {
                key: float(np.mean([about[key] for about in abouts if key in about]))
                for key in ("boxes", "species", "hours")
            }
            keep = (
                "seeds",
                "f1",
                "precision",
                "recall",
                "ap50",
                "intervals",
                "by_seed",
                "differences",
                "n_truth",
            )
            table.setdefault(row.label, {})[str(budget)] = {key: plain[key] for key in keep} | counted
        print(f"\n{budget} clips\n{markdown_table(*as_cells(rows, reference='random'))}")
    about = next(about for trial in trials for name in systems if (about := load_about(trial.system(name))))
    front_end = FrontEnd.model_validate(about["recipe"]["front_end"])
    data = {
        "world": about["world"],
        "clip_s": front_end.chunk_s,
        "test": "other recordings of the same sites",
    }
    write_result(
        out,
        {"budgets": budgets, "strategies": table},
        seed=[trial.seed for trial in trials],
        data=data,
        trainings=training_records(archive, systems),
    )
    places = {row.system: float(row.system.rpartition("_")[2]) for row in everything}
    series = {row.system: row.label for row in everything}
    styles = {name: style for name, style in STYLES.items() if name in series.values()}
    figure = line_plot(
        everything,
        places,
        series,
        styles,
        x_label=f"annotated clips of {front_end.chunk_s:g} s",
        title="F1 by how clips were chosen",
        logarithmic=True,
    )
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture)
    print(f"\n{out} and {picture}")


if __name__ == "__main__":
    run_script(main)
