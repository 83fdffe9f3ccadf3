"""What the stages of one run share: data, recipe, machine, the detectors so far, and how a stage is done once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list

from mast.data.chunks import default_split_of
from mast.data.splits import SplitConfig
from mast.evaluation.evidence import Tally, TrainingEvidence
from mast.fit.inputs import Sources, describe_inputs, describe_labels, describe_sound
from mast.habit import Habit
from mast.models.architecture import DetectorConfig
from mast.normalisation import Normalisation
from mast.reports.fit_verdict import START, TRAINED, recommend_detector
from mast.runs import UPSTREAM, Ledger, Progress, Reporter, Stage, flatten
from mast.training.calibrate import calibrate_checkpoint
from mast.training.chosen_chunks import Chunks, hold_out, labelled_chunks, unlabelled_chunks
from mast.training.machine import Machine
from mast.training.part_list import UnusedBoxes, list_parts, unused_boxes
from mast.training.recipe import BOOKKEEPING, Recipe
from mast.training.start import same_fields
from mast.training.start_comparison import learnt_from, validation_tally


class FitRun:
    """One run. Its stages are functions that name their inputs, then do their work: ``learn.py`` and ``judge.py``."""

    def __init__(
        self, sources: Sources, out: Path, recipe: Recipe, seed: int, machine: Machine, reporter: Reporter
    ) -> None:
        self.sources, self.out, self.recipe, self.seed, self.machine = sources, out, recipe, seed, machine
        self.say, self.reporter = reporter.say, reporter
        self.ledger = Ledger(
            out,
            reporter.say,
            main=machine.is_main,
            wait=machine.accelerator.wait_for_everyone,
            called=describe_inputs(sources),
        )
        self.fingerprints: dict[str, str] = {}  # fingerprints of the stages so far
        self.normalisation: Normalisation | None = None  # of the sound, where the start has none
        self.habit = Habit()  # how the user's boxes are drawn, if there is a start to compare them with
        self.threshold: float | None = None  # of the start, as chosen on the user's boxes
        self.detectors: dict[str, Path] = {}  # made so far, by name
        self.made_by: dict[str, str] = {}  # the stage that made each
        self.tallies: dict[str, Tally] = {}  # of each on validation, where there is a start to beat
        self.teacher = TRAINED  # the detector that self-training begins with
        self.common = {
            "seed": seed,
            "size": recipe.size,
            "precision": recipe.precision,
            **flatten({"front_end": recipe.front_end.model_dump(mode="json")}),
            **({"levelled": True} if recipe.levelled else {}),
        }

    @contextmanager
    def bar(self, what: str) -> Iterator[Progress]:
        """A progress bar; what it shows is also how long the stage has taken."""
        with self.reporter.bar(what) as progress:
            yield self.ledger.timed(progress)

    @cached_property
    def parts(self) -> dict[str, Chunks]:
        """Labelled chunks by part."""
        return labelled_chunks(self.sources.labelled, self.recipe.front_end, seed=self.seed)

    @cached_property
    def unused(self) -> UnusedBoxes:
        """Labelled boxes in none of the parts."""
        labelled = self.sources.labelled
        return unused_boxes(labelled, list_parts(labelled, self.parts), self.recipe.front_end)

    @cached_property
    def all_chunks(self) -> tuple[Chunks, Chunks]:
        """All chunks, labelled or not: to learn from, and to measure reconstruction on."""
        plan = self.recipe.pretrain
        everything = unlabelled_chunks(self.sources.folders, self.recipe.front_end)
        return hold_out(
            everything, self.recipe.front_end, share=plan.held_out, seed=self.seed, max_chunks=plan.max_chunks
        )

    @cached_property
    def sound(self) -> dict[str, Any]:
        """Fingerprints of all recordings."""
        found = {"labelled sound": describe_sound(self.sources.labelled)}
        for number, dataset in enumerate(self.sources.unlabelled, start=1):
            found[f"unlabelled sound {number}"] = describe_sound(dataset)
        return found

    @cached_property
    def labels(self) -> dict[str, Any]:
        """Fingerprints of what a detector learns from."""
        tested = default_split_of(self.sources.labelled) == SplitConfig()
        return {
            "labelled sound": self.sound["labelled sound"],
            "labels": describe_labels(self.sources.labelled),
            **({} if tested else {"division": "70/30, no test part"}),
        }

    @property
    def start_fits(self) -> bool:
        """Whether a training can continue from all weights of the start: it has the architecture of this run."""
        own, wanted = self.sources.start.detector, self.recipe.detector
        return own is not None and isinstance(wanted, DetectorConfig) and same_fields(own, wanted)

    @property
    def given_threshold(self) -> float | None:
        """The start's threshold, for what is made from it when validation has too few boxes to choose one."""
        own = self.sources.start.threshold(self.parts["val"])
        return own if own is None or self.threshold is None else self.threshold

    @cached_property
    def _boxed(self) -> TrainingEvidence:
        """The boxes to learn from."""
        return learnt_from(self.parts["train"], self.sources.labelled, self.recipe.front_end)

    @property
    def learnt(self) -> TrainingEvidence:
        """What there is to learn from, and how."""
        return self._boxed._replace(averaged=self.sources.start.gentle_plan(self.recipe).start_share > 0)

    @property
    def recommended(self) -> str:
        """The best detector so far."""
        return recommend_detector(self.tallies, self.learnt) if self.tallies else list(self.detectors)[-1]

    def add_detector(self, name: str, folder: Path, stage: str) -> None:
        """Add the detector that a stage has made; where there is a start to beat, it is measured on validation."""
        self.detectors[name], self.made_by[name] = folder, stage
        if START not in self.detectors:
            return

        def work() -> dict[str, Any]:
            mine = validation_tally(folder, self.parts["val"], self.recipe.train, self.machine)
            # all processes must take the same branch
            return {"counts": broadcast_object_list([mine.as_lists()])[0]}

        inputs = {**self.common, **self.labels, **self.upstream(stage), "counted": "by recording"}
        self.tallies[name] = Tally.of(self.do(f"validate-{name}", inputs, (), work)["counts"])

    def calibrate(self, folder: Path) -> None:
        """Write what a model's scores mean into its card: measured on validation, or taken from the start."""
        calibrate_checkpoint(
            folder,
            self.parts["val"],
            self.machine,
            batch_size=self.machine.eval_batch(self.recipe.train.batch_size),
            min_score=self.recipe.train.score_threshold,
            seed=self.seed,
            kept=self.sources.start.calibration(self.parts["val"]),
        )

    def do(
        self,
        name: str,
        inputs: dict[str, Any],
        products: tuple[Path, ...],
        work: Callable[[], dict[str, Any]],
        folder: Path | None = None,
    ) -> dict[str, Any]:
        """Do a stage, unless it is done; see :class:`mast.runs.Stage`."""
        stage = Stage(name, inputs, products, folder)
        self.fingerprints[name] = stage.fingerprint
        return self.ledger.do(stage, work)

    def upstream(self, name: str) -> dict[str, str]:
        """The input of a stage that builds on another one."""
        return {f"{UPSTREAM}{name}": self.fingerprints[name]}

    def recipe_section(self, name: str, only: Sequence[str] = ()) -> dict[str, Any]:
        """A section of the recipe, without what does not change what is learnt."""
        values = flatten({name: getattr(self.recipe, name).model_dump(mode="json")})
        return {
            key: value
            for key, value in values.items()
            if key.rpartition(".")[2] not in BOOKKEEPING and (not only or key.rpartition(".")[2] in only)
        }


def format_f1(value: float | None) -> str:
    """An F1 in a sentence."""
    return "not defined" if value is None else f"{value:.3f}"
