"""Train systems on one dataset and seed, with everything that they build on: pretraining and teacher detectors.

    WORK/<dataset>-<seed>/runs/pretrain, generic, mast, mast.full2, fcos, …   training runs; a killed one resumes

Several processes may work on the same folder: a run that two of them need is trained by one while the other waits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch.utils.data import ConcatDataset

from mast.data.chunk_dataset import ChunkDataset
from mast.data.chunks import chunk_table
from mast.data.recordings import Dataset, load_dataset
from mast.data.splits import SplitConfig
from mast.errors import MastError
from mast.files import locked, write_atomic
from mast.fit.pipeline import fit
from mast.models.card import WEIGHTS
from mast.models.find import find_model, is_model_name
from mast.runs import ROUNDS, Ledger, Progress, Reporter, Say, Stage, flatten
from mast.selftrain.averaging import AVERAGED
from mast.selftrain.rounds import self_train
from mast.training.chosen_chunks import Chunks, decode_once, labelled_chunks
from mast.training.detector_training import DetectorRun, fit_detector
from mast.training.machine import prepare_machine
from mast.training.pretraining import pretrain
from mast.training.recipe import (
    BOOKKEEPING,
    Recipe,
    SelfTrainRecipe,
    TrainRecipe,
    check_and_save_recipe,
    load_recipe,
)
from mast.training.start import Start
from mast_studies.found import NOT_TESTS, Trial
from mast_studies.label_budgets import sample_budget
from mast_studies.presets import Preset
from mast_studies.pseudo_quality import load_truth, measure_rounds
from mast_studies.systems import LAST_STAGE, SelfTraining, System

RERUN_HINT = "choose another --work, or delete it to start over"


@dataclass(frozen=True)
class StudyData:
    """A dataset as studies use it.

    Attributes:
        name: in tables and as a folder name.
        labelled: the dataset with boxes; its split column, or ``split``, says what trains and what tests.
        unlabelled: folders of more sound.
        generic: for the system that starts from generic pretraining: folders of generic clips to pretrain on, or one
            model folder, or AudioMAE's file.
        elsewhere: labelled datasets that every system is also measured on, without further training.
        split: how the labelled dataset is divided if its split column does not say.
        whole: measure on whole recordings, as users see events, instead of chunk by chunk.
    """

    name: str
    labelled: Path
    unlabelled: tuple[Path, ...] = ()
    generic: tuple[Path, ...] = ()
    elsewhere: tuple[Path, ...] = ()
    split: SplitConfig | None = None
    whole: bool = False

    @property
    def division(self) -> SplitConfig:
        """How it is divided: there has to be a test part, however few boxes there are."""
        return self.split or SplitConfig()


class TrainingRuns:
    """The training runs of one dataset and seed.

    Args:
        source: the dataset.
        work: the folder of all datasets and seeds.
        preset: the recipes.
        known: all systems by name, for those that build on others.
        seed: of everything random.
        show: reports what happens.
    """

    def __init__(
        self,
        source: StudyData,
        work: Path,
        preset: Preset,
        known: Mapping[str, System],
        *,
        seed: int,
        show: Reporter,
    ) -> None:
        self.source, self.preset, self.known, self.seed, self.show = source, preset, known, seed, show
        self.trial = Trial.at(work, source.name, seed)
        self.runs = self.trial.folder / "runs"
        self.ledger = Ledger(self.runs, show.say, instead=RERUN_HINT)

    def model(self, system: System) -> Path:
        """The model folder of a system; trains it and everything that it builds on if need be."""
        if system.init == "embedded":
            return self._fit(system)
        recipe = self.recipe_of(system)
        if system.self_training is None:
            run = self.runs / system.name
            if not self._is_done(run):
                init = self.encoder(system)  # first, so that it does not count in this run's time
                learn = self.labelled(system)
                if system.budget is not None:
                    recipe = with_same_steps(recipe, all_chunks=len(self.chunks["train"]), chunks=len(learn))

                def train(progress: Progress) -> None:
                    self._train(recipe, init, learn, run, progress)

                self._run_once(run, recipe, train)
            return run / "best"
        return self._self_train(system, system.self_training, recipe)

    def _self_train(self, system: System, plan: SelfTraining, recipe: Recipe) -> Path:
        """The model after the round that counts; later rounds need not be finished."""
        run = self.runs / plan.run
        if not self._is_finished(run, plan):
            if not self.source.unlabelled:
                raise MastError(
                    f"{system.name}: self-training needs unlabelled sound; give its folder with --unlabelled"
                )
            start = self.model(self.known[plan.start])
            teachers = [self.model(self.known[name]) for name in plan.teachers]

            def improve(progress: Progress) -> None:
                self_train(
                    self.dataset,
                    list(self.source.unlabelled),
                    start,
                    run,
                    recipe,
                    split=self.source.division,
                    seed=self.seed,
                    teachers=teachers,
                    progress=progress,
                    say=self.show.say,
                )

            self._run_once(run, recipe, improve)
            self._measure_pseudo_labels(run)
        elif not self._is_done(run):
            self._measure_pseudo_labels(run)
        last = AVERAGED if recipe.selftrain.average else LAST_STAGE[plan.curriculum]
        return run / f"round-{plan.used_round}" / last / "best"

    def _is_finished(self, run: Path, plan: SelfTraining) -> bool:
        """Whether the round that counts has ended, according to the table that gets a row after each round."""
        table = run / ROUNDS
        ended = table.is_file() and plan.used_round in set(pd.read_csv(table)["round"])
        return self._is_done(run) or (ended and plan.used_round < plan.rounds)

    def _measure_pseudo_labels(self, run: Path) -> None:
        truth = load_truth(self.source.unlabelled)
        if truth is None:
            return
        for row in measure_rounds(run, truth).itertuples():
            self.show.say(
                f"{run.name}, round {row.round}: {row.precision:.0%} of {row.boxes:,} pseudo-boxes are right, "
                f"{row.recall:.0%} of the calls have one"
            )

    def seconds(self, system: System) -> dict[str, float]:
        """Seconds of training by run: the system's own, and those that it builds on."""
        runs = [system.name if system.self_training is None else system.self_training.run]
        share = 1.0
        if system.self_training is not None:
            # rounds take about equally long; the time of an unfinished run so far is that of the rounds that have ended
            if self._is_done(self.runs / runs[0]):
                share = system.self_training.used_round / system.self_training.rounds
            runs = [*dict.fromkeys((system.self_training.start, *system.self_training.teachers)), *runs]
        needs = {"pretrained": [self.pretraining(system)], "generic": ["generic"]}.get(system.init, [])
        spent = {name: self.ledger.seconds(name) for name in (*needs, *runs)}
        spent[runs[-1]] *= share
        return {name: round(value, 1) for name, value in spent.items() if value}

    def recipe_of(self, system: System) -> Recipe:
        """All settings that a system is trained with."""
        if system.init == "embedded":
            # as `mast fit --init default` without further options, at the band of the others
            return load_recipe("tiny", {"front_end": self.preset.recipe.front_end.model_dump()})
        plan = system.self_training
        recipe = self.preset.recipe_of(system, start=self.known[plan.start] if plan else None)
        if recipe.front_end != self.preset.recipe.front_end:
            raise MastError(
                f"{system.name}: has another front end than the rest, so its boxes cannot be compared"
            )
        return recipe

    def labelled(self, system: System) -> Chunks:
        """The chunks that a system learns from; with a budget, only those that it pays for."""
        learn = self.chunks["train"]
        if system.budget is None:
            return learn
        table = learn.table.reset_index(drop=True)
        rows = sample_budget(table, system.budget.chunks, system.budget.strategy, seed=self.seed)
        own = ChunkDataset(self.dataset, rows, self.preset.recipe.front_end)
        sound = None if learn.sound is None else learn.sound[torch.tensor(rows.index.to_numpy(copy=True))]
        return Chunks(ConcatDataset([own]), rows.reset_index(drop=True), sound)

    def encoder(self, system: System) -> Path | None:
        """The model that a system starts from, pretrained if need be; None if it starts from scratch."""
        if system.init == "none":
            return None
        if system.init == "pretrained":
            sound = [self._list_own_sound(), *self.source.unlabelled]
            return self._pretrain(self.pretraining(system), sound, self.recipe_of(system))
        given = self.source.generic
        if not given:
            raise MastError(
                f"{system.name}: starts from generic pretraining; give --generic AudioMAE's pretrained.pth (from "
                "https://github.com/facebookresearch/AudioMAE), a model folder, or folders of clips to pretrain on"
            )
        if given[0].is_file() or is_model_name(given[0]):
            return find_model(given[0], or_file=True)
        return self._pretrain("generic", list(given), self.recipe_of(system))

    def pretraining(self, system: System) -> str:
        """The pretraining run that a system starts from: the shared one, unless its own settings differ."""
        own, shared = self.recipe_of(system), self.preset.recipe
        name = "pretrain"
        if own.pretrain.epochs != shared.pretrain.epochs:
            name += f"-{own.pretrain.epochs}"
        if own.pretrain.latent_weight != shared.pretrain.latent_weight:
            name += "-latent"
        if own.levelled != shared.levelled:
            name += "-levelled" if own.levelled else "-unlevelled"
        return name

    @cached_property
    def dataset(self) -> Dataset:
        """The labelled dataset."""
        return load_dataset(self.source.labelled)

    @cached_property
    def parts(self) -> dict[str, Chunks]:
        """Its labelled chunks by part, found without reading sound."""
        front_end = self.preset.recipe.front_end
        return labelled_chunks(self.dataset, front_end, split=self.source.division, seed=self.seed)

    @cached_property
    def chunks(self) -> dict[str, Chunks]:
        """The same, plus the chunks of other datasets under their names; decoded once if they fit into memory."""
        recipe = self.preset.recipe
        machine = prepare_machine(recipe)
        parts = dict(self.parts)
        for folder in self.source.elsewhere:
            parts[folder.name] = _all_chunks(load_dataset(folder), recipe)
        return {
            name: decode_once(own, machine.device, workers=machine.workers) for name, own in parts.items()
        }

    def _fit(self, system: System) -> Path:
        """The embedded detector after `mast fit` on the labelled dataset, which `mast fit` divides by its own rules."""
        run, recipe = self.runs / system.name, self.recipe_of(system)

        def learn(progress: Progress) -> None:
            show = Reporter(self.show.say, lambda what: nullcontext(progress))
            fit(
                self.source.labelled, (), run, recipe, reporter=show, init="default", fixed=(), seed=self.seed
            )

        self._run_once(run, recipe, learn)
        return run / "best"

    def _train(self, recipe: Recipe, init: Path | None, learn: Chunks, run: Path, progress: Progress) -> None:
        machine = prepare_machine(recipe)
        about = {
            "kind": "detector",
            "data": str(self.source.labelled),
            "seed": self.seed,
            "init": str(init or ""),
            "split": self.source.division.model_dump(mode="json"),
            "chunks": len(learn),
        }
        check_and_save_recipe(recipe, run, about=about)
        job = DetectorRun(recipe, machine, run, about, Start.find(init), self.seed, plan=recipe.train)
        fit_detector(learn, self.chunks["val"], job, progress=progress)

    def _pretrain(self, name: str, folders: list[Path], settings: Recipe) -> Path:
        # settings of detector training do not affect pretraining, so they may change without a new run
        run = self.runs / name
        recipe = self.preset.recipe.model_copy(
            update={
                "levelled": settings.levelled,
                "pretrain": settings.pretrain,
                "train": TrainRecipe(),
                "selftrain": SelfTrainRecipe(),
            }
        )

        def learn(progress: Progress) -> None:
            pretrain(folders, run, recipe, seed=self.seed, progress=progress)

        self._run_once(run, recipe, learn)
        return run / "best"

    def _list_own_sound(self) -> Path:
        """A listing of the labelled dataset's recordings without those in test parts: nothing may learn from those."""
        tests = [own.table["recording"] for part, own in self.chunks.items() if part not in NOT_TESTS]
        unheard = {str(name) for names in tests for name in names}
        table = self.dataset.recordings
        table = table[~table["file"].isin(unheard)]
        if table.empty:
            raise MastError(
                f"{self.source.labelled}: every recording holds test sound, so there is none of it to pretrain on; "
                "divide it by recording instead of by time"
            )
        folder = self.runs / "sound"
        files = [os.path.relpath(self.dataset.path(str(name)), folder) for name in table["file"]]
        listing = table.assign(file=files)[["file", "site", "datetime", "duration_s", "sample_rate"]]
        write_atomic(folder / "recordings.csv", listing.to_csv(index=False).encode())
        return folder

    def _run_once(self, run: Path, recipe: Recipe, work: Callable[[Progress], None]) -> None:
        """Do a training run unless it is done; its time is added up over kills."""

        def train() -> dict[str, Any]:
            self.show.say(f"{self.trial.folder.name}: training {run.name}")
            with self.show.bar(run.name) as progress:
                work(self.ledger.timed(progress))
            return {}

        settings = flatten(recipe.model_dump(mode="json"))
        decides = {
            name: value for name, value in settings.items() if name.rpartition(".")[2] not in BOOKKEEPING
        }
        with exclusive_lock(run.with_name(f".{run.name}.lock"), self.show.say):
            self.ledger.do(Stage(run.name, decides, (run / "best" / WEIGHTS,), run), train)

    def _is_done(self, run: Path) -> bool:
        return self.ledger.is_done(run.name) and (run / "best" / WEIGHTS).exists()


def exclusive_lock(path: Path, say: Say) -> AbstractContextManager[None]:
    """One process at a time; those that wait say so."""
    what = path.name.removeprefix(".").removesuffix(".lock")
    return locked(path, busy=lambda: say(f"{what}: another process is working on it, waiting"))


def with_same_steps(recipe: Recipe, *, all_chunks: int, chunks: int) -> Recipe:
    """The recipe for some of the chunks, with as many steps as for all of them.

    The paper trains every budget "with identical optimization settings". With the same number of epochs instead, a
    small budget would be trained for fewer steps, and the figure would show that.
    """
    plan = recipe.train
    per_epoch, of_all = (max(1, n // plan.batch_size) for n in (chunks, all_chunks))
    longer = of_all / per_epoch
    changed = {
        "epochs": max(1, round(plan.epochs * longer)),
        "warmup_epochs": plan.warmup_epochs * longer,
        "validate_every_epochs": max(1, round(plan.validate_every_epochs * longer)),
    }
    return recipe.model_copy(update={"train": plan.model_copy(update=changed)})


def _all_chunks(dataset: Dataset, recipe: Recipe) -> Chunks:
    """All labelled chunks of a dataset, end to end, whatever its splits say."""
    table = chunk_table(dataset, recipe.front_end, hop_s=recipe.front_end.chunk_s)
    rows = table[table["labelled"].astype(bool)].reset_index(drop=True).assign(root=str(dataset.root))
    if rows.empty:
        raise MastError(
            f"{dataset.root}: no recording was listened to from end to end, so nothing can be measured there"
        )
    return Chunks(ConcatDataset([ChunkDataset(dataset, rows, recipe.front_end)]), rows)
