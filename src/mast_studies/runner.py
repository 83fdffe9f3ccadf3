"""Train systems on one dataset and seed, and keep what each finds in the test parts.

    WORK/<dataset>-<seed>/runs/pretrain, generic, mast, mast.full2, fcos, …   training runs, each continued after a kill
    WORK/<dataset>-<seed>/found/<system>/                                     what it found (mast_studies.found)
    WORK/<dataset>-<seed>/embedded/<system>/                                  what its encoder makes of chunks and boxes

A system whose tables are there is not touched again. Several processes may work on the same folder: a run that two of
them need is trained by one while the other waits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
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
from mast.evaluation.part_tables import PartTables, has_part
from mast.files import locked, write_whole
from mast.fit.pipeline import fit
from mast.hearing import HearingModel
from mast.models.card import WEIGHTS, load_card
from mast.models.find import find_model, names_model
from mast.runs import Ledger, Progress, Say, Show, Stage, flat, refuse_others
from mast.selftrain.averaging import AVERAGED
from mast.selftrain.rounds import self_train
from mast.training.chosen_chunks import Chunks, decode_once, labelled_chunks
from mast.training.chunk_scores import look_at
from mast.training.detector_training import DetectorRun, fit_detector
from mast.training.machine import prepare_machine
from mast.training.pretraining import pretrain
from mast.training.recipe import (
    BOOKKEEPING,
    Recipe,
    SelfTrainRecipe,
    TrainRecipe,
    load_recipe,
    remember_recipe,
)
from mast.training.start import Start
from mast.version import commit
from mast_studies.embedding_tables import about_embedded, folder_of, save_embedded
from mast_studies.found import NOT_TESTS, Trial, load_about, save_about
from mast_studies.label_budgets import check_budgets, sample_budget
from mast_studies.presets import Preset
from mast_studies.pseudo_quality import TABLE as QUALITY
from mast_studies.pseudo_quality import measure_rounds, truth_beside
from mast_studies.systems import LAST_STAGE, System
from mast_studies.whole import detect_whole

CHUNKS, WHOLE = "chunks", "whole recordings"
_INSTEAD = "choose another --work, or delete it to start over"


@dataclass(frozen=True)
class StudyData:
    """A dataset as studies use it.

    Attributes:
        name: in tables and of the folder.
        labelled: the dataset with boxes; its split column, or ``split``, says what trains and what tests.
        unlabelled: folders of further sound.
        generic: for the system that starts from generic pretraining: folders of generic clips to pretrain on, or one
            model folder, or AudioMAE's file.
        elsewhere: labelled datasets that every system is also measured on, as it is.
        split: how the labelled dataset is divided where its split column does not say.
        whole: measure on whole recordings, as users hear of events, instead of chunk by chunk.
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
        """How it is divided: something has to test, however few boxes there are."""
        return self.split or SplitConfig()


class Runner:
    """One dataset and seed in a work folder.

    Args:
        source: the dataset.
        work: holds all datasets and seeds.
        preset: the recipes.
        known: all systems by name, for those that build on others.
        seed: of everything random.
        show: told what happens.
    """

    def __init__(
        self,
        source: StudyData,
        work: Path,
        preset: Preset,
        known: Mapping[str, System],
        *,
        seed: int,
        show: Show,
    ) -> None:
        self.source, self.preset, self.known, self.seed, self.show = source, preset, known, seed, show
        self.trial = Trial.at(work, source.name, seed)
        self.runs = self.trial.folder / "runs"
        self.ledger = Ledger(self.runs, show.say, instead=_INSTEAD)

    def run(self, systems: Sequence[System], *, embed: Collection[str] = ()) -> dict[str, str]:
        """Train and measure each; returns what went wrong with those that failed, by name.

        A system that cannot be trained (its library is missing, it finds nothing to learn from) does not keep the
        others from it.

        Args:
            systems: which.
            embed: names of those whose encoder is looked at, too.
        """
        failures: dict[str, str] = {}
        for system in systems:
            try:
                self.find(system)
                if system.name in embed:
                    self.embed(system)
            except MastError as error:
                failures[system.name] = str(error).removeprefix(f"{system.name}: ")
                self._say(f"{system.name}: failed, {failures[system.name]}")
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        return failures

    def check_budgets(self, systems: Iterable[System]) -> None:
        """Refuse systems that learn from more chunks than there are; known without reading sound."""
        budgets = [system.budget.chunks for system in systems if system.budget is not None]
        if budgets:
            check_budgets(budgets, len(self.parts["train"]), where=str(self.source.labelled))

    def find(self, system: System) -> Path:
        """The folder of what a system found, trained and measured now if it was not before."""
        folder = self.trial.system(system.name)
        told = load_about(folder)
        if told and told.get("measured", CHUNKS) != self._measured_on:
            raise MastError(f"{folder}: was measured on {told.get('measured', CHUNKS)}; {_INSTEAD}")
        if before := told.get("recipe"):
            now = self._recipe(system).model_dump(mode="json")
            refuse_others(folder, before, now, instead=_INSTEAD, ignore=BOOKKEEPING)
        if self._missing(system):
            with alone(self.runs / f".found-{system.name}.lock", self._say):
                if missing := self._missing(system):
                    self._measure(system, self.model(system), missing)
        else:
            self._say(f"{system.name}: is there already")
        return folder

    def embed(self, system: System) -> Path:
        """The folder of what a system's encoder makes of chunks and boxes, looked at now if it was not before.

        Its encoder is compared with what it was before training, so the system has to start from pretraining.
        """
        folder = folder_of(self.trial, system.name)
        with alone(self.runs / f".embedded-{system.name}.lock", self._say):
            before, now = about_embedded(folder), self._embedded_from(system)
            if before and now in (None, before):
                self._say(f"{system.name}: its embeddings are there already")
            else:
                self._embed(system, folder)
        return folder

    def _embed(self, system: System, folder: Path) -> None:
        from mast_studies.embedded import Models, embed_parts  # scikit-learn comes with it

        found, detector = self.trial.system(system.name), self.model(system)
        pretrained = self._encoder(system)
        if pretrained is None:
            raise MastError(
                f"{system.name}: does not start from pretraining, so its encoder cannot be compared with it"
            )
        away = {path.name for path in self.source.elsewhere}
        parts = {name: own for name, own in self.chunks.items() if name not in away}
        recipe = self._recipe(system)
        machine = prepare_machine(recipe)
        tests = {name: PartTables.load(found, name) for name in parts if name not in NOT_TESTS}
        tables = embed_parts(
            self.dataset,
            parts,
            {name: own.counted for name, own in tests.items()},
            Models(pretrained, detector),
            machine,
            batch_size=machine.eval_batch(recipe.train.batch_size),
            seed=self.seed,
        )
        save_embedded(folder, tables, self._embedded_from(system) or {})
        boxes = tables.boxes["kind"].value_counts()
        self._say(
            f"{system.name}: embedded {len(tables.chunks):,} chunks, {boxes.get('truth', 0):,} true and "
            f"{boxes.get('detected', 0):,} detected boxes"
        )

    def _embedded_from(self, system: System) -> dict[str, Any] | None:
        """What embeddings are made from; None where the models are not here (any more)."""
        folders = [self.runs / name / "best" for name in (self._pretraining(system), system.name)]
        if not all((folder / WEIGHTS).is_file() for folder in folders):
            return None
        pretrained, detector = (load_card(folder).weights_sha256 for folder in folders)
        threshold = PartTables.load(self.trial.system(system.name), "val").threshold
        return {"system": system.name, "pretrained": pretrained, "detector": detector, "threshold": threshold}

    def model(self, system: System) -> Path:
        """The model folder of a system, trained if need be, with all that it builds on."""
        if system.init == "embedded":
            return self._fitted(system)
        recipe = self._recipe(system)
        if system.self_training is None:
            run = self.runs / system.name
            if not self._is_done(run):
                init = self._encoder(system)  # before the clock of this run starts
                learn = self._labelled(system)
                if system.budget is not None:
                    recipe = same_steps(recipe, all_chunks=len(self.chunks["train"]), chunks=len(learn))

                def train(progress: Progress) -> None:
                    self._train(recipe, init, learn, run, progress)

                self._once(run, recipe, train)
            return run / "best"
        plan = system.self_training
        run = self.runs / plan.run
        last = AVERAGED if recipe.selftrain.average else LAST_STAGE[plan.curriculum]
        taken = run / f"round-{plan.taken}" / last / "best"
        if self._is_done(run):
            return taken
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
                say=self._say,
            )

        self._once(run, recipe, improve)
        truth = truth_beside(self.source.unlabelled)
        if truth is not None:
            for row in measure_rounds(run, truth).itertuples():
                self._say(
                    f"{run.name}, round {row.round}: {row.precision:.0%} of {row.boxes:,} pseudo-boxes are right, "
                    f"{row.recall:.0%} of the calls have one"
                )
        return taken

    def _fitted(self, system: System) -> Path:
        """The embedded detector after `mast fit` on the labelled dataset, which divides it by its own rules."""
        run, recipe = self.runs / system.name, self._recipe(system)

        def learn(progress: Progress) -> None:
            show = Show(self._say, lambda what: nullcontext(progress))
            fit(self.source.labelled, (), run, recipe, show=show, init="default", fixed=(), seed=self.seed)

        self._once(run, recipe, learn)
        return run / "best"

    def seconds(self, system: System) -> dict[str, float]:
        """What training took, by run: its own, and what it builds on."""
        runs = [system.name if system.self_training is None else system.self_training.run]
        share = 1.0
        if system.self_training is not None:
            # rounds take about equally long
            share = system.self_training.taken / system.self_training.rounds
            runs = [*dict.fromkeys((system.self_training.start, *system.self_training.teachers)), *runs]
        needs = {"pretrained": [self._pretraining(system)], "generic": ["generic"]}.get(system.init, [])
        spent = {name: self.ledger.seconds(name) for name in (*needs, *runs)}
        spent[runs[-1]] *= share
        return {name: round(value, 1) for name, value in spent.items() if value}

    @cached_property
    def dataset(self) -> Dataset:
        """The labelled dataset."""
        return load_dataset(self.source.labelled)

    @cached_property
    def parts(self) -> dict[str, Chunks]:
        """Its labelled chunks by part; known without reading sound."""
        front_end = self.preset.recipe.front_end
        return labelled_chunks(self.dataset, front_end, split=self.source.division, seed=self.seed)

    @cached_property
    def chunks(self) -> dict[str, Chunks]:
        """The same, with those of datasets elsewhere by their names; decoded once if they fit."""
        recipe = self.preset.recipe
        machine = prepare_machine(recipe)
        parts = dict(self.parts)
        for folder in self.source.elsewhere:
            parts[folder.name] = _everything(load_dataset(folder), recipe)
        return {
            name: decode_once(own, machine.device, workers=machine.workers) for name, own in parts.items()
        }

    @cached_property
    def _wanted(self) -> list[str]:
        """The parts that every system is measured on."""
        return sorted((self.parts.keys() - {"train"}) | {folder.name for folder in self.source.elsewhere})

    def _missing(self, system: System) -> list[str]:
        folder = self.trial.system(system.name)
        told = load_about(folder)
        return [part for part in self._wanted if not (told and has_part(folder, part))]

    def _recipe(self, system: System) -> Recipe:
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
        remember_recipe(recipe, run, about=about)
        job = DetectorRun(recipe, machine, run, about, Start.find(init), self.seed, plan=recipe.train)
        fit_detector(learn, self.chunks["val"], job, progress=progress)

    def _labelled(self, system: System) -> Chunks:
        """What it learns from: with a budget the chunks that this pays for, and no boxes of the others."""
        learn = self.chunks["train"]
        if system.budget is None:
            return learn
        table = learn.table.reset_index(drop=True)
        rows = sample_budget(table, system.budget.chunks, system.budget.strategy, seed=self.seed)
        own = ChunkDataset(self.dataset, rows, self.preset.recipe.front_end)
        sound = None if learn.sound is None else learn.sound[torch.tensor(rows.index.to_numpy(copy=True))]
        return Chunks(ConcatDataset([own]), rows.reset_index(drop=True), sound)

    def _encoder(self, system: System) -> Path | None:
        if system.init == "none":
            return None
        if system.init == "pretrained":
            sound = [self._own_sound(), *self.source.unlabelled]
            return self._pretrained(self._pretraining(system), sound, self._recipe(system))
        given = self.source.generic
        if not given:
            raise MastError(
                f"{system.name}: starts from generic pretraining; give --generic AudioMAE's pretrained.pth (from "
                "https://github.com/facebookresearch/AudioMAE), a model folder, or folders of clips to pretrain on"
            )
        if given[0].is_file() or names_model(given[0]):
            return find_model(given[0], or_file=True)
        return self._pretrained("generic", list(given), self._recipe(system))

    def _pretraining(self, system: System) -> str:
        """The run of pretraining that a system starts from: the one all share, unless its own differs."""
        own, shared = self._recipe(system), self.preset.recipe
        name = "pretrain"
        if own.pretrain.epochs != shared.pretrain.epochs:
            name += f"-{own.pretrain.epochs}"
        if own.pretrain.latent_weight != shared.pretrain.latent_weight:
            name += "-latent"
        if own.levelled != shared.levelled:
            name += "-levelled" if own.levelled else "-unlevelled"
        return name

    def _pretrained(self, name: str, folders: list[Path], of: Recipe) -> Path:
        # what detectors are trained with says nothing about pretraining, and may change without it
        run = self.runs / name
        recipe = self.preset.recipe.model_copy(
            update={
                "levelled": of.levelled,
                "pretrain": of.pretrain,
                "train": TrainRecipe(),
                "selftrain": SelfTrainRecipe(),
            }
        )

        def learn(progress: Progress) -> None:
            pretrain(folders, run, recipe, seed=self.seed, progress=progress)

        self._once(run, recipe, learn)
        return run / "best"

    def _own_sound(self) -> Path:
        """A listing of the labelled dataset's recordings without those that test: they stay unheard until then."""
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
        write_whole(folder / "recordings.csv", listing.to_csv(index=False).encode())
        return folder

    def _measure(self, system: System, model_folder: Path, parts: Collection[str]) -> None:
        recipe = self._recipe(system)
        machine = prepare_machine(recipe)
        model = HearingModel.load(model_folder, device=machine.device, precision=machine.precision)
        folder = self.trial.system(system.name)
        for part in parts:
            plan = recipe.train
            if self.source.whole:
                measured = self._on_whole_recordings(system, model_folder, part)
            else:
                measured = look_at(model, self.chunks[part], plan, machine, nms_iou=plan.nms_iou)
                measured = replace(measured, threshold=model.card.thresholds["score"])
            measured.save(folder, part)
        about = {
            "system": system.name,
            "title": self._title(system),
            "dataset": self.source.name,
            "data": str(self.source.labelled),
            "unlabelled": [str(path) for path in self.source.unlabelled],
            "split": self.source.split.model_dump(mode="json") if self.source.split else "column",
            "measured": self._measured_on,
            "seed": self.seed,
            "seconds": self.seconds(system),
            "train_chunks": len(self._labelled(system)),
            "parameters": sum(p.numel() for p in model.model.parameters()),
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
            "commit": model.card.provenance.get("commit") or commit(),  # of the training, or of now
            "recipe": recipe.model_dump(mode="json"),
            "shared": self.preset.recipe.model_dump(mode="json"),  # with all systems that are compared
        }
        if system.self_training is not None:
            quality = self.runs / system.self_training.run / QUALITY
            about["pseudo_labels"] = pd.read_csv(quality).to_dict("records") if quality.exists() else []
        save_about(folder, about)
        spent = sum(self.seconds(system).values())
        self._say(
            f"{system.name}: measured on {', '.join(parts)} ({spent:.0f} s of training, with what it builds on)"
        )

    @property
    def _measured_on(self) -> str:
        return WHOLE if self.source.whole else CHUNKS

    def _on_whole_recordings(self, system: System, model: Path, part: str) -> PartTables:
        chunks, front_end = self.chunks[part].table, self.preset.recipe.front_end
        away = next((path for path in self.source.elsewhere if path.name == part), None)
        dataset = self.dataset if away is None else load_dataset(away)
        ends = (chunks["start_s"] + chunks["valid_s"]).rename("end_s")
        spans = chunks.assign(end_s=ends).groupby("recording")
        heard = spans.agg(start_s=("start_s", "min"), end_s=("end_s", "max")).reset_index()
        floor = self._recipe(system).train.score_threshold
        return detect_whole(model, dataset, heard, front_end, floor=floor)

    def _title(self, system: System) -> str:
        """As tables call it; a generic start is named after what it really was."""
        if system.init != "generic" or not self.source.generic:
            return system.title
        given = self.source.generic
        if given[0].is_file():
            return f"{system.title} ({given[0].name})"
        names = (given[0],) if names_model(given[0]) else given
        return f"{system.title} architecture, pretrained on {', '.join(path.name for path in names)}"

    def _once(self, run: Path, recipe: Recipe, work: Callable[[Progress], None]) -> None:
        """Do a training run unless it is done; the time it takes is added up over kills."""

        def train() -> dict[str, Any]:
            self._say(f"{self.trial.folder.name}: training {run.name}")
            with self.show.bar(run.name) as progress:
                work(self.ledger.timed(progress))
            return {}

        settings = flat(recipe.model_dump(mode="json"))
        decides = {
            name: value for name, value in settings.items() if name.rpartition(".")[2] not in BOOKKEEPING
        }
        with alone(run.with_name(f".{run.name}.lock"), self._say):
            self.ledger.do(Stage(run.name, decides, (run / "best" / WEIGHTS,), run), train)

    def _is_done(self, run: Path) -> bool:
        return self.ledger.is_done(run.name) and (run / "best" / WEIGHTS).exists()

    def _say(self, text: str) -> None:
        self.show.say(text)


def alone(path: Path, say: Say) -> AbstractContextManager[None]:
    """One process at a time; those who wait say so."""
    what = path.name.removeprefix(".").removesuffix(".lock")
    return locked(path, busy=lambda: say(f"{what}: another process is at it, waiting"))


def same_steps(recipe: Recipe, *, all_chunks: int, chunks: int) -> Recipe:
    """The recipe for a part of the chunks with as many steps as for all of them.

    The paper trains every budget "with identical optimization settings". With as many epochs instead, a small budget
    would be trained for less, and the figure would show that.
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


def _everything(dataset: Dataset, recipe: Recipe) -> Chunks:
    """All labelled chunks of a dataset, end to end, whatever its splits say."""
    table = chunk_table(dataset, recipe.front_end, hop_s=recipe.front_end.chunk_s)
    rows = table[table["labelled"].astype(bool)].reset_index(drop=True).assign(root=str(dataset.root))
    if rows.empty:
        raise MastError(
            f"{dataset.root}: no recording was listened to from end to end, so nothing can be measured there"
        )
    return Chunks(ConcatDataset([ChunkDataset(dataset, rows, recipe.front_end)]), rows)
