"""Train systems on one dataset and seed, and keep what each finds in the test parts.

    WORK/<dataset>-<seed>/runs/                  training runs (mast_studies.training_runs)
    WORK/<dataset>-<seed>/found/<system>/        what it found (mast_studies.found)
    WORK/<dataset>-<seed>/embedded/<system>/     its embeddings of chunks and boxes

A system whose tables exist is not run again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from mast.data.recordings import load_dataset
from mast.errors import MastError
from mast.evaluation.part_tables import PartTables, has_part
from mast.loaded_model import LoadedModel
from mast.models.card import WEIGHTS, load_card
from mast.models.find import is_model_name
from mast.runs import refuse_other_inputs
from mast.training.chunk_scores import detect_by_plan
from mast.training.machine import prepare_machine
from mast.training.recipe import BOOKKEEPING
from mast.version import commit
from mast_studies.embedding_tables import folder_of, save_embedded
from mast_studies.found import NOT_TESTS, load_about, save_about
from mast_studies.label_budgets import check_budgets
from mast_studies.pseudo_quality import TABLE as QUALITY
from mast_studies.systems import System
from mast_studies.training_runs import RERUN_HINT, TrainingRuns, exclusive_lock
from mast_studies.whole_recordings import detect_whole

CHUNKS, WHOLE = "chunks", "whole recordings"


class Runner:
    """One dataset and seed in a work folder.

    Args:
        training_runs: where the models come from.
    """

    def __init__(self, training_runs: TrainingRuns) -> None:
        self.training_runs = training_runs
        self.source, self.trial, self.runs = training_runs.source, training_runs.trial, training_runs.runs

    def run(self, systems: Sequence[System], *, embed: Collection[str] = ()) -> dict[str, str]:
        """Train and measure each system; returns the errors of those that failed, by name.

        A system that cannot be trained (its library is missing, it finds nothing to learn from) does not stop the
        others.

        Args:
            systems: the systems to run.
            embed: names of those that are also embedded.
        """
        failures: dict[str, str] = {}
        for system in systems:
            try:
                self.ensure_measured(system)
                if system.name in embed:
                    self.ensure_embedded(system)
            except MastError as error:
                failures[system.name] = str(error).removeprefix(f"{system.name}: ")
                self._say(f"{system.name}: failed, {failures[system.name]}")
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        return failures

    def check_budgets(self, systems: Iterable[System]) -> None:
        """Refuse systems that learn from more chunks than there are, without reading sound."""
        budgets = [system.budget.chunks for system in systems if system.budget is not None]
        if budgets:
            check_budgets(budgets, len(self.training_runs.parts["train"]), where=str(self.source.labelled))

    def ensure_measured(self, system: System) -> Path:
        """The folder of what a system found; trains and measures it now if that was not done before."""
        folder = self.trial.system(system.name)
        about = load_about(folder)
        if about and about.get("measured", CHUNKS) != self._measured_on:
            raise MastError(f"{folder}: was measured on {about.get('measured', CHUNKS)}; {RERUN_HINT}")
        if before := about.get("recipe"):
            now = self.training_runs.recipe_of(system).model_dump(mode="json")
            refuse_other_inputs(folder, before, now, instead=RERUN_HINT, ignore=BOOKKEEPING)
        if self._missing_parts(system):
            with exclusive_lock(self.runs / f".found-{system.name}.lock", self._say):
                if missing := self._missing_parts(system):
                    self._measure(system, self.training_runs.model(system), missing)
        else:
            self._say(f"{system.name}: is there already")
        return folder

    def ensure_embedded(self, system: System) -> Path:
        """The folder of a system's embeddings of chunks and boxes, made now if they are not there.

        The encoder is compared with itself before training, so the system has to start from pretraining.
        """
        folder = folder_of(self.trial, system.name)
        with exclusive_lock(self.runs / f".embedded-{system.name}.lock", self._say):
            before, now = load_about(folder), self._embedding_sources(system)
            if before and now in (None, before):
                self._say(f"{system.name}: its embeddings are there already")
            else:
                self._embed(system, folder)
        return folder

    def _embed(self, system: System, folder: Path) -> None:
        from mast_studies.embedded import Models, embed_parts  # scikit-learn comes with it

        found, detector = self.trial.system(system.name), self.training_runs.model(system)
        pretrained = self.training_runs.encoder(system)
        if pretrained is None:
            raise MastError(
                f"{system.name}: does not start from pretraining, so its encoder cannot be compared with it"
            )
        away = {path.name for path in self.source.elsewhere}
        parts = {name: own for name, own in self.training_runs.chunks.items() if name not in away}
        recipe = self.training_runs.recipe_of(system)
        machine = prepare_machine(recipe)
        tests = {name: PartTables.load(found, name) for name in parts if name not in NOT_TESTS}
        tables = embed_parts(
            self.training_runs.dataset,
            parts,
            {name: own.above_threshold for name, own in tests.items()},
            Models(pretrained, detector),
            machine,
            batch_size=machine.eval_batch(recipe.train.batch_size),
            seed=self.training_runs.seed,
        )
        save_embedded(folder, tables, self._embedding_sources(system) or {})
        boxes = tables.boxes["kind"].value_counts()
        self._say(
            f"{system.name}: embedded {len(tables.chunks):,} chunks, {boxes.get('truth', 0):,} true and "
            f"{boxes.get('detected', 0):,} detected boxes"
        )

    def _embedding_sources(self, system: System) -> dict[str, Any] | None:
        """What embeddings are made from; None if the models are not here (or no longer)."""
        folders = [
            self.runs / name / "best" for name in (self.training_runs.pretraining(system), system.name)
        ]
        if not all((folder / WEIGHTS).is_file() for folder in folders):
            return None
        pretrained, detector = (load_card(folder).weights_sha256 for folder in folders)
        threshold = PartTables.load(self.trial.system(system.name), "val").threshold
        return {"system": system.name, "pretrained": pretrained, "detector": detector, "threshold": threshold}

    @cached_property
    def _measured_parts(self) -> list[str]:
        """The parts that every system is measured on."""
        return sorted(
            (self.training_runs.parts.keys() - {"train"}) | {folder.name for folder in self.source.elsewhere}
        )

    def _missing_parts(self, system: System) -> list[str]:
        folder = self.trial.system(system.name)
        about = load_about(folder)
        return [part for part in self._measured_parts if not (about and has_part(folder, part))]

    def _measure(self, system: System, model_folder: Path, parts: Collection[str]) -> None:
        recipe = self.training_runs.recipe_of(system)
        machine = prepare_machine(recipe)
        model = LoadedModel.load(model_folder, device=machine.device, precision=machine.precision)
        folder = self.trial.system(system.name)
        for part in parts:
            plan = recipe.train
            if self.source.whole:
                measured = self._measure_whole_recordings(system, model_folder, part)
            else:
                measured = detect_by_plan(
                    model, self.training_runs.chunks[part], plan, machine, nms_iou=plan.nms_iou
                )
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
            "seed": self.training_runs.seed,
            "seconds": self.training_runs.seconds(system),
            "train_chunks": len(self.training_runs.labelled(system)),
            "parameters": sum(p.numel() for p in model.model.parameters()),
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
            "commit": model.card.provenance.get("commit") or commit(),  # of the training, or of now
            "recipe": recipe.model_dump(mode="json"),
            # the same for all systems that are compared
            "shared": self.training_runs.preset.recipe.model_dump(mode="json"),
        }
        if system.self_training is not None:
            quality = self.runs / system.self_training.run / QUALITY
            about["pseudo_labels"] = pd.read_csv(quality).to_dict("records") if quality.exists() else []
        save_about(folder, about)
        spent = sum(self.training_runs.seconds(system).values())
        self._say(
            f"{system.name}: measured on {', '.join(parts)} ({spent:.0f} s of training, with what it builds on)"
        )

    @property
    def _measured_on(self) -> str:
        return WHOLE if self.source.whole else CHUNKS

    def _measure_whole_recordings(self, system: System, model: Path, part: str) -> PartTables:
        chunks, front_end = self.training_runs.chunks[part].table, self.training_runs.preset.recipe.front_end
        away = next((path for path in self.source.elsewhere if path.name == part), None)
        dataset = self.training_runs.dataset if away is None else load_dataset(away)
        ends = (chunks["start_s"] + chunks["valid_s"]).rename("end_s")
        spans = chunks.assign(end_s=ends).groupby("recording")
        heard = spans.agg(start_s=("start_s", "min"), end_s=("end_s", "max")).reset_index()
        floor = self.training_runs.recipe_of(system).train.score_threshold
        return detect_whole(model, dataset, heard, front_end, floor=floor)

    def _title(self, system: System) -> str:
        """The system's name in tables; a generic start is named after what it really was."""
        if system.init != "generic" or not self.source.generic:
            return system.title
        given = self.source.generic
        if given[0].is_file():
            return f"{system.title} ({given[0].name})"
        names = (given[0],) if is_model_name(given[0]) else given
        return f"{system.title} architecture, pretrained on {', '.join(path.name for path in names)}"

    def _say(self, text: str) -> None:
        self.training_runs.show.say(text)
