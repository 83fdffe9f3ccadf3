"""How few boxes a user needs on top of an existing model, compared with training from scratch.

    python -m mast_studies.few_boxes --model runs/default --data data/tagus_fish --band tagus_fish=2000 \\
        --boxes 10 30 100 300 --seeds 2 --work runs/few_boxes --out results/few_boxes.json --figure runs/few_boxes.png

Recordings are halved by their names: boxes come from the first half, the second is the test. A budget of N boxes is a
set of chunks, drawn at random, that hold N boxes; a larger budget contains the smaller. Each budget trains two
detectors of the same architecture for the same number of steps: one starts from the model, one from scratch. A budget
of no boxes is the model as is. WORK holds one file per cell, so a stopped run resumes. ``docs/zero_shot.md`` says more.

With ``--fit`` each budget goes through `mast fit` instead, with the settings it chooses by itself, and its result is
compared with the model as is (:mod:`mast_studies.few_boxes_fit`), on any number of sets.

With ``--habits`` nothing is trained: instead, the boxes decide how the model draws its own
(:mod:`mast_studies.few_boxes_habits`), on any number of sets.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch.utils.data import ConcatDataset

from mast.data.chunk_dataset import ChunkDataset
from mast.data.recordings import Dataset, load_dataset
from mast.detect_options import DetectOptions
from mast.errors import ConfigError
from mast.files import atomic_file, write_atomic
from mast.models.architecture import DetectorConfig
from mast.models.card import load_card
from mast.models.find import find_model
from mast.training.chosen_chunks import Chunks
from mast.training.detector_training import DetectorRun, fit_detector
from mast.training.machine import prepare_machine
from mast.training.recipe import Recipe, load_recipe
from mast.training.start import Start
from mast.version import commit
from mast_studies.few_boxes_chunks import count_boxes, list_chunks, sample_chunks
from mast_studies.few_boxes_fit import FitStudy, summarise_fits
from mast_studies.few_boxes_habits import measure_habits
from mast_studies.few_boxes_table import Cell, summarise, write_figure
from mast_studies.record import TrainingRecord, write_result
from mast_studies.script import run_script
from mast_studies.whole_recordings import search_twice
from mast_studies.zero_shot_measure import measure_thresholds
from mast_studies.zero_shot_sets import (
    HALVED,
    PAPER_BAND_HZ,
    LabelledSet,
    half_of,
    load_set,
    parse_pairs,
    write_variant,
)

STARTS = ("model", "scratch")
VALIDATION_EVERY = 4  # every fourth chunk chooses epoch and threshold, from this many chunks on
# our choice: from scratch the tiny preset's rate; on top of a model, a twentieth of it, because larger steps undo what
# it knows (at a quarter, ten boxes took a model from F1 0.72 to 0.32)
RATES = {"model": {"lr": 1e-4, "backbone": 0.3}, "scratch": {"lr": 2e-3, "backbone": 1.0}}


def main() -> None:
    """Read the options, train what is missing, collect."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True, help="a model folder or a run")
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="a labelled dataset, or several")
    parser.add_argument(
        "--habits", action="store_true", help="choose how boxes are drawn; nothing is trained"
    )
    parser.add_argument("--fit", action="store_true", help="through `mast fit`, against the model as is")
    parser.add_argument("--band", action="append", default=[], help="upper edge of its band: NAME=HZ")
    parser.add_argument(
        "--half", action="append", default=[], help="NAME=first: only this half is read, and halved again"
    )
    parser.add_argument("--boxes", type=int, nargs="+", default=[10, 30, 100, 300])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=120, help="steps of every training run")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--device", help="device for detection on the test recordings, as in mast detect")
    parser.add_argument("--work", type=Path, help="folder for the training runs")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.habits:
        return write_habits(options)
    if options.work is None:
        parser.error("training needs --work")
    if options.fit:
        return write_fits(options)
    if len(options.data) > 1:
        parser.error("curves need one --data at a time")
    study = FewBoxesStudy.from_options(options)
    cells = [Cell("model", 0, 0)]
    cells += [
        Cell(start, boxes, seed)
        for boxes in study.budgets
        for seed in range(options.seeds)
        for start in STARTS
    ]
    trained: list[TrainingRecord] = []
    for number, cell in enumerate(cells, start=1):
        row = study.measure(cell)
        if cell.boxes:
            name = f"{cell.boxes} boxes, from {'the model' if cell.start == 'model' else cell.start}"
            trained.append(TrainingRecord(name, cell.seed, row.get("commit", ""), row.get("recipe")))
        f1 = row["metrics"]["own threshold"]["f1"]
        print(f"{number}/{len(cells)} {cell.name}: F1 {f1}, {row['seconds']:.0f} s", flush=True)
    figures = summarise(study.folder, study.test, cells)
    write_result(
        options.out,
        {"steps": options.steps, "batch": options.batch, "rates": RATES, study.test.name: figures},
        seed=list(range(options.seeds)),
        data={study.test.name: study.about()},
        trainings=trained,
    )
    if options.figure:
        write_figure(figures, options.figure, title=f"{study.test.name}: boxes on top of a model")


def write_habits(options: argparse.Namespace) -> None:
    """Measure the ways of drawing boxes on each set, and write the result."""
    bands_hz = {name: float(value) for name, value in parse_pairs(options.band)}
    model = find_model(options.model)
    figures: dict[str, Any] = {}
    for folder in options.data:
        halves = [half for name, half in parse_pairs(options.half) if name == folder.resolve().name]
        for half in halves or [""]:
            chosen = {folder.resolve().name: half} if half else {}
            labelled_set = load_set(folder, bands_hz=bands_hz, halves=chosen)
            name = f"{labelled_set.name}, {half} half" if half else labelled_set.name
            figures[name] = measure_habits(labelled_set, model, options) | {"data": labelled_set.about()}
            print(name, json.dumps(figures[name], indent=1), flush=True)
            write_result(
                options.out, {"boxes": options.boxes, "sets": figures}, seed=list(range(options.seeds))
            )


def write_fits(options: argparse.Namespace) -> None:
    """Fit on each set, and write the results."""
    bands_hz = {name: float(value) for name, value in parse_pairs(options.band)}
    figures: dict[str, Any] = {}
    data: dict[str, Any] = {}
    trained: list[TrainingRecord] = []
    for folder in options.data:
        study = FitStudy(folder, options, bands_hz.get(folder.resolve().name))
        rows = [study.measure(cell) for cell in study.cells]
        trained += [study.training(cell) for cell in study.cells]
        figures[study.name], data[study.name] = summarise_fits(study.cells, rows), study.about()
        seeds = list(range(options.seeds))
        write_result(options.out, {"sets": figures}, seed=seeds, data=data, trainings=trained)


class FewBoxesStudy:
    """A dataset cut in two, and the cells that are measured on it."""

    def __init__(
        self, model: Path, learn: Dataset, test: LabelledSet, folder: Path, options: argparse.Namespace
    ) -> None:
        self.folder, self.test, self.options = folder, test, options
        self.learn = learn
        self.model = write_variant(model, folder / "model", band_hz=test.band_hz)
        self.card = load_card(self.model)
        if not isinstance(self.card.architecture, DetectorConfig):
            raise ConfigError(f"{model}: is not a detector of MAST, so nothing can be trained on top of it")
        self.recipe = recipe_of(self.card.architecture, self.card.front_end)
        self.table = list_chunks(learn, self.card.front_end.chunk_s)
        counts = count_boxes(learn, self.table)
        self.counts = counts
        # budgets larger than the dataset become one budget of all its boxes
        self.budgets = list(dict.fromkeys(min(n, int(counts.sum())) for n in sorted(options.boxes)))

    @classmethod
    def from_options(cls, options: argparse.Namespace) -> FewBoxesStudy:
        """Read the dataset and halve it."""
        (folder,) = options.data
        name = folder.resolve().name
        band_hz = dict(parse_pairs(options.band)).get(name)
        dataset = load_dataset(folder)
        half = dict(parse_pairs(options.half)).get(name)
        what = "second half of its recordings"
        if half is not None:
            dataset = dataset.select(recordings=half_of([str(f) for f in dataset.recordings["file"]], half))
            what = f"second half of the {half} half of its recordings"
        elif name in HALVED:
            print(f"{name}: its second half, which was kept for the end, is now used as the test", flush=True)
        files = [str(f) for f in dataset.recordings["file"]]
        learn, test = (dataset.select(recordings=half_of(files, part)) for part in ("first", "second"))
        labelled_set = LabelledSet(name, what, test, float(band_hz or PAPER_BAND_HZ))
        work = options.work / (name if half is None else f"{name}-{half}")
        return cls(find_model(options.model), learn, labelled_set, work, options)

    def about(self) -> dict[str, Any]:
        """For the result file."""
        return {
            "test": self.test.about(),
            "boxes to learn from": int(self.counts.sum()),
            "recordings to learn from": len(self.learn),
            "chunk_s": self.card.front_end.chunk_s,
        }

    def measure(self, cell: Cell) -> dict[str, Any]:
        """A cell's metrics on the test; trained if need be."""
        path = self.folder / f"{cell.name}.json"
        made_with = {
            "model": self.card.weights_sha256[:16],
            "steps": self.options.steps,
            "batch": self.options.batch,
            **RATES[cell.start],
        }
        if path.is_file():
            row: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if row["made_with"] == made_with:
                return row
        started = time.perf_counter()
        chunks = self._choose_chunks(cell) if cell.boxes else []
        run = self.folder / "runs" / cell.name
        learn, held_out = split_chunks(chunks)
        recipe = self._plan(cell, len(learn))
        model = self._train(cell, recipe, learn, held_out, run) if cell.boxes else self.model
        trained_s = time.perf_counter() - started
        detect_options = DetectOptions(device=self.options.device, band_hz=self.test.band_hz)
        found = search_twice(model, self.test.dataset, options=detect_options)
        with atomic_file(self.folder / f"{cell.name}.parquet") as part:
            found.events.to_parquet(part, index=False)
        row = {
            "made_with": made_with,
            "commit": commit(),
            "recipe": recipe.model_dump(mode="json"),
            "boxes": int(self.counts[chunks].sum()),
            "chunks": len(chunks),
            "seconds": round(trained_s, 1),
            "metrics": measure_thresholds(self.test, found),
        }
        write_atomic(path, json.dumps(row, indent=2).encode())  # last: a cell is there or not
        shutil.rmtree(run, ignore_errors=True)
        return row

    def _choose_chunks(self, cell: Cell) -> list[int]:
        return sample_chunks(self.table, self.counts, cell.boxes, seed=cell.seed)

    def _train(
        self, cell: Cell, recipe: Recipe, learn: Sequence[int], held_out: Sequence[int], run: Path
    ) -> Path:
        about = {"kind": "detector", "data": self.test.name, "seed": cell.seed, "boxes": cell.boxes}
        start = Start.find(self.model if cell.start == "model" else None)
        learnt, tuned = (self._chunks(rows, recipe) for rows in (learn, held_out))
        machine, threshold = prepare_machine(recipe), start.threshold(tuned)
        job = DetectorRun(
            recipe, machine, run, about, start, cell.seed, plan=recipe.train, threshold=threshold
        )
        fit_detector(learnt, tuned, job)
        return run / "best"

    def _plan(self, cell: Cell, n_chunks: int) -> Recipe:
        """The same number of steps for every budget, however many steps an epoch has."""
        batch, steps = self.options.batch, self.options.steps
        epochs = math.ceil(steps / max(1, n_chunks // batch))
        rates = RATES[cell.start]
        plan = self.recipe.train.model_copy(
            update={
                "batch_size": batch,
                "epochs": epochs,
                "warmup_epochs": 0.1 * epochs,
                "validate_every_epochs": max(1, epochs // 3),
                "lr": rates["lr"],
                "backbone_lr_multiplier": rates["backbone"],
                "ema_decay": 0.95,
            }
        )
        return self.recipe.model_copy(update={"train": plan})

    def _chunks(self, rows: Sequence[int], recipe: Recipe) -> Chunks:
        table = self.table.iloc[list(rows)].reset_index(drop=True)
        return Chunks(ConcatDataset([ChunkDataset(self.learn, table, recipe.front_end)]), table)


def recipe_of(architecture: DetectorConfig, front_end: Any) -> Recipe:
    """The tiny preset's training for this architecture and front end."""
    settings = {"front_end": front_end.model_dump(), "workers": 0}
    settings |= {
        f"train.detector.{name}": value for name, value in architecture.model_dump(mode="json").items()
    }
    return load_recipe("tiny", settings)


def split_chunks(rows: Sequence[int]) -> tuple[list[int], list[int]]:
    """Chunks to learn from, and chunks that choose epoch and threshold: every fourth, or all if there are few."""
    if len(rows) < VALIDATION_EVERY:
        return list(rows), list(rows)
    held_out = list(rows[VALIDATION_EVERY - 1 :: VALIDATION_EVERY])
    return [row for row in rows if row not in held_out], held_out


if __name__ == "__main__":
    run_script(main)
