"""A run from top to bottom: scan → statistics → pretrain → train → self-train → calibrate → evaluate → report.

RUN/stages/*.json      what is done, and from what
RUN/scan/              recordings.csv, failures.csv
RUN/statistics/        normalisation.json
RUN/pretrain/          the encoder's run
RUN/start/             the detector to start from, as it comes, on this run's front end
RUN/train/             the detector's run on the expert's boxes
RUN/selftrain/         its rounds on unlabelled sound
RUN/best/              the model to use: the last that beat the start on validation, or the start
RUN/evaluate/          event tables of every part, truth and detections
RUN/metrics.json       how good it is
RUN/report.html        all of it to look at
RUN/earlier/           what was made from other data or settings
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from accelerate.utils import broadcast_object_list

from mast.errors import MastError
from mast.evaluation.operating import StoredCalibration
from mast.evaluation.report import RESAMPLES
from mast.files import replace_folder, write_whole
from mast.fit.forecast import Amounts, forecast, in_words
from mast.fit.measure import measure_detectors
from mast.fit.sources import (
    Sources,
    facts_of,
    labels_of,
    load_sources,
    quiet_about_sources,
    sound_of,
    start_of,
    write_listing,
)
from mast.models.checkpoint import load_card, update_card
from mast.models.detector import DetectorConfig
from mast.reports.fit_report import EXAMPLES, write_fit_report
from mast.reports.fit_verdict import NAMES, SELF_TRAINED, START, TRAINED, f1_table, recommended, verdict
from mast.reports.reconstruction import draw_reconstructions
from mast.runs import UPSTREAM, Ledger, Progress, Say, Stage, flat
from mast.selftrain.rounds import self_train
from mast.training.calibrate import calibrate_checkpoint
from mast.training.detector import adopt, check_front_end, same_fields, train_detector
from mast.training.effort import Rates, measure_rates, suited
from mast.training.machine import Machine, prepare_machine
from mast.training.pretrain import pretrain
from mast.training.recipe import BOOKKEEPING, Recipe
from mast.training.sources import (
    STATISTICS_CHUNKS,
    Chunks,
    hold_out,
    labelled_chunks,
    normalisation_of,
    unlabelled_chunks,
)
from mast.training.start import is_detector, validation_f1
from mast.version import __version__

_STAGES = {START: "start", TRAINED: "train", SELF_TRAINED: "self-train"}  # that made each detector

Bar = Callable[[str], AbstractContextManager[Progress]]


@dataclass(frozen=True)
class Show:
    """How a run tells of itself.

    Attributes:
        say: a line.
        bar: a progress bar for the stage of that name.
    """

    say: Say
    bar: Bar


@dataclass(frozen=True)
class Fitted:
    """What a run ended in."""

    model: Path
    report: Path
    metrics: dict[str, Any]

    def summary(self) -> list[str]:
        """F1 of each detector on each part as a table, and which of them is recommended."""
        sentence = verdict(self.metrics["validation_f1"])
        return [*f1_table(self.metrics), *([sentence] if sentence else [])]


def fit(
    data: Path,
    unlabelled: Sequence[Path],
    out: Path,
    recipe: Recipe,
    *,
    show: Show,
    annotations: Path | None = None,
    init: str | Path | None = None,
    fixed: Collection[str] | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
    examples: int = EXAMPLES,
) -> Fitted:
    """Everything from recordings to a detector and a report; what is done already is not done again.

    Args:
        data: the labelled dataset.
        unlabelled: folders of recordings nobody labelled; without any, there is no self-training.
        out: the run's folder; a killed run there is resumed.
        recipe: all settings.
        show: told of progress.
        annotations: boxes, if not ``data/boxes.csv``.
        init: an encoder or detector to start from, instead of pretraining.
        fixed: where nobody chose the recipe's preset, the settings that somebody did choose, by dotted names: for a
            start from a detector the others follow machine and data. None: the recipe stands.
        seed: of everything random.
        resamples: bootstrap draws for the intervals.
        examples: spectrograms of each kind in the report.
    """
    if out.exists() and not out.is_dir():
        raise MastError(f"{out}: is a file; expected the folder of a run, there or new")
    with warnings.catch_warnings():
        quiet_about_sources()
        machine = prepare_machine(recipe)
        show = show if machine.main else Show(_say_nothing, _show_nothing)  # once, not by every process
        sources = load_sources(data, unlabelled, annotations=annotations, init=init, say=show.say)
        recipe = adopt(recipe, sources.init)
        run = _Run(sources, out.absolute(), recipe, seed, machine, show)
        run.scan()
        run.plan(fixed)
        run.statistics()
        run.pretrain()
        run.start()
        run.train()
        run.self_train()
        run.calibrate()
        metrics = run.evaluate(resamples)
        return Fitted(run.out / "best", run.report(examples), metrics)


class _Run:
    """One run; each stage's method names its inputs, then does it."""

    def __init__(
        self, sources: Sources, out: Path, recipe: Recipe, seed: int, machine: Machine, show: Show
    ) -> None:
        self.sources, self.out, self.recipe, self.seed, self.machine = sources, out, recipe, seed, machine
        self.say, self.show = show.say, show
        self.ledger = Ledger(out, show.say, main=machine.main, wait=machine.accelerator.wait_for_everyone)
        self.prints: dict[str, str] = {}  # fingerprints of the stages so far
        self.detectors: dict[str, Path] = {}  # made so far, by name
        self.f1: dict[str, float | None] = {}  # of each on validation, where there is a start to beat
        self.teacher = TRAINED  # the detector that self-training begins with
        self.common = {
            "seed": seed,
            "size": recipe.size,
            "precision": recipe.precision,
            **flat({"front_end": recipe.front_end.model_dump(mode="json")}),
        }

    @contextmanager
    def bar(self, what: str) -> Iterator[Progress]:
        """A progress bar; what it shows is also how long the stage has taken."""
        with self.show.bar(what) as progress:
            yield self.ledger.timed(progress)

    # what several stages ask of the data

    @cached_property
    def parts(self) -> dict[str, Chunks]:
        """Labelled chunks by part."""
        return labelled_chunks(self.sources.labelled, self.recipe.front_end, seed=self.seed)

    @cached_property
    def heard(self) -> tuple[Chunks, Chunks]:
        """All chunks, labelled or not: to learn from, and to measure reconstruction on."""
        plan = self.recipe.pretrain
        everything = unlabelled_chunks(self.sources.folders, self.recipe.front_end)
        return hold_out(
            everything, self.recipe.front_end, share=plan.held_out, seed=self.seed, most=plan.max_chunks
        )

    @cached_property
    def sound(self) -> dict[str, Any]:
        """Fingerprints of all recordings."""
        found = {"labelled sound": sound_of(self.sources.labelled)}
        for number, dataset in enumerate(self.sources.unlabelled, start=1):
            found[f"unlabelled sound {number}"] = sound_of(dataset)
        return found

    @cached_property
    def labels(self) -> dict[str, Any]:
        """Fingerprints of what a detector learns from."""
        return {
            "labelled sound": self.sound["labelled sound"],
            "labels": labels_of(self.sources.labelled),
        }

    # the stages

    def scan(self) -> None:
        labelled = self.sources.labelled
        spans = labelled.annotations.reviewed
        heard_s = float((spans["end_s"] - spans["start_s"]).sum())
        self.say(
            f"scan: {len(labelled):,} recordings, {in_words(heard_s)} of them listened to, with "
            f"{len(labelled.annotations.events):,} boxes"
        )
        if self.sources.unlabelled:
            n_unlabelled = sum(map(len, self.sources.unlabelled))
            sound_s = sum(float(d.recordings["duration_s"].sum()) for d in self.sources.unlabelled)
            self.say(f"scan: {n_unlabelled:,} unlabelled recordings, {in_words(sound_s)}")
        parts = ", ".join(f"{name} {len(chunks):,}" for name, chunks in self.parts.items())
        self.say(f"scan: labelled chunks of {self.recipe.front_end.chunk_s:g} s by part: {parts}")
        inputs = {f"dataset {i}": facts_of(d) for i, (_, d) in enumerate(self.sources.everything)}

        def work() -> dict[str, Any]:
            if self.machine.main:
                write_listing(self.sources, self.out / "scan")
            return {}

        self._do("scan", {**inputs, **self.sound}, (self.out / "scan" / "recordings.csv",), work)

    def plan(self, fixed: Collection[str] | None) -> None:
        """How long this run trains, and how long that takes here, measured; a resumed run keeps its plan."""
        free = fixed is not None and is_detector(self.sources.init)
        inputs = {**self.common, **self._section("train"), **self.labels}
        if self.sources.init is not None:
            inputs["init"] = start_of(self.sources.init)
        if free:
            inputs["chosen"] = sorted(name for name in fixed or () if name.startswith("train."))
        learn = self.parts["train"]

        def work() -> dict[str, Any]:
            self.say("plan: measuring a few steps")
            scratch = self.sources.init is None
            rates = measure_rates(learn, self.recipe, self.machine, pretrain=scratch)
            rates = Rates(*broadcast_object_list(list(rates)))
            recipe = suited(self.recipe, len(learn), fixed=fixed or (), rates=rates) if free else self.recipe
            device = "this GPU" if self.machine.device.type == "cuda" else "this machine without a GPU"
            self.say(f"plan: {forecast(recipe, self._amounts, rates, device=device)}")
            return dict(rates._asdict())

        found = self._do("plan", inputs, (), work)
        if free:
            self.recipe = suited(self.recipe, len(learn), fixed=fixed or (), rates=Rates(**found))

    @property
    def _amounts(self) -> Amounts:
        others = sum(len(chunks) for name, chunks in self.parts.items() if name not in ("train", "val"))
        sound_s = sum(float(d.recordings["duration_s"].sum()) for d in self.sources.unlabelled)
        unlabelled = round(2 * sound_s / self.recipe.front_end.chunk_s)  # chunks overlap by half
        heard = len(self.heard[0]) if self.sources.init is None else 0
        return Amounts(len(self.parts["train"]), len(self.parts["val"]), others, unlabelled, heard)

    def statistics(self) -> None:
        """μ and σ of the sound, for the first stage that trains."""
        if self.sources.init is not None and self.sources.init.is_dir():
            self.say(f"statistics: those of {self.sources.init} are kept")
            return
        path = self.out / "statistics" / "normalisation.json"
        inputs = {
            **self.common,
            **self._section("pretrain", only=("held_out", "max_chunks")),
            **self.sound,
        }

        def work() -> dict[str, Any]:
            n_chunks = min(sum(map(len, self.heard)), STATISTICS_CHUNKS)
            self.say(f"statistics: mean and spread of {n_chunks:,} chunks")
            if self.machine.main:
                path.unlink(missing_ok=True)
            self.machine.accelerator.wait_for_everyone()
            with self.bar("statistics") as progress:
                found = normalisation_of(
                    self.heard,
                    self.recipe.front_end,
                    path,
                    seed=self.seed,
                    device=self.machine.device,
                    workers=self.machine.workers,
                    progress=progress,
                )
            self.say(f"statistics: mean {found.mean:.3f}, standard deviation {found.std:.3f}")
            return {"mean": found.mean, "std": found.std}

        self._do("statistics", inputs, (path,), work)

    def pretrain(self) -> None:
        if self.sources.init is not None:
            self.say(f"pretrain: skipped, starting from {self.sources.init}")
            return
        folder = self.out / "pretrain"
        inputs = {**self.common, **self._section("pretrain"), **self.sound, **self._after("statistics")}

        def work() -> dict[str, Any]:
            learn, held = self.heard
            if not self.sources.unlabelled:
                self.say(
                    "pretrain: no --unlabeled sound, so the labelled recordings are all there is to listen to"
                )
            self.say(
                f"pretrain: {len(learn):,} chunks of {self.recipe.front_end.chunk_s:g} s, {len(held):,} held out, "
                f"{self.recipe.pretrain.epochs:,} epochs"
            )
            self._hand_over(folder, self.out / "statistics" / "normalisation.json")
            with self.bar("pretrain") as progress:
                result = pretrain(
                    self.sources.folders,
                    folder,
                    self.recipe,
                    seed=self.seed,
                    accelerator=self.machine.accelerator,
                    progress=progress,
                )
            if self.machine.main:
                picture = folder / "reconstruction.png"
                draw_reconstructions(folder / "best", self.sources.labelled.root, picture, seed=self.seed)
            self.say(
                f"pretrain: held-out error {result.best['error']:.3f} (guessing the mean: "
                f"{result.best['mean_patch_error']:.3f}), best after epoch {result.best_epoch}"
            )
            return {**result.best, "epoch": result.best_epoch}

        self._do("pretrain", inputs, (folder / "best" / "model.safetensors",), work, folder)

    def start(self) -> None:
        """The detector to start from as it comes: training has to beat it."""
        init = self.sources.init
        if init is None or not is_detector(init):
            return
        folder = self.out / "start"
        card = load_card(init)
        check_front_end(init, card, self.recipe.front_end)

        def work() -> dict[str, Any]:
            if self.machine.main:
                replace_folder(init, folder)
                update_card(folder, card.model_copy(update={"front_end": self.recipe.front_end}))
            return {}

        self._do("start", {**self.common, "init": start_of(init)}, (folder / "model.json",), work)
        self._made(START, folder)
        self.say(f"start: {init}, as it comes: validation F1 {_f1(self.f1[START])}")

    def train(self) -> None:
        folder = self.out / "train"
        init = self.sources.init or self.out / "pretrain" / "best"
        start = {"init": start_of(self.sources.init)} if self.sources.init else self._after("pretrain")
        foreign = init.is_file()  # AudioMAE's weights come without the statistics of our sound
        if foreign:
            start |= self._after("statistics")
        inputs = {**self.common, **self._section("train"), **self.labels, **start}

        def work() -> dict[str, Any]:
            self.say(
                f"train: {len(self.parts['train']):,} chunks, {len(self.parts['val']):,} to validate on, "
                f"{self.recipe.train.epochs:,} epochs"
            )
            self._hand_over(folder, self.out / "statistics" / "normalisation.json" if foreign else None)
            with self.bar("train") as progress:
                result = train_detector(
                    self.sources.labelled,
                    folder,
                    self.recipe,
                    init=init,
                    seed=self.seed,
                    accelerator=self.machine.accelerator,
                    progress=progress,
                )
            self.say(f"train: validation F1 {result.best['f1']:.3f} after epoch {result.best_epoch}")
            return {**result.best, "epoch": result.best_epoch}

        self._do("train", inputs, (folder / "best" / "model.safetensors",), work, folder)
        self._made(TRAINED, folder / "best")

    def self_train(self) -> None:
        if not self.sources.unlabelled:
            self.say("self-train: skipped, it needs sound without labels (--unlabeled FOLDER)")
            return
        folder = self.out / "selftrain"
        teacher = self.teacher = recommended(self.f1) if self.f1 and self._start_fits() else TRAINED
        inputs = {
            **self.common,
            **self._section("selftrain"),
            **flat({"train.detector": self.recipe.train.detector}),
            **self.labels,
            **{name: value for name, value in self.sound.items() if name.startswith("unlabelled")},
            **self._after(_STAGES[teacher]),
        }

        def work() -> dict[str, Any]:
            n_rounds = self.recipe.selftrain.rounds
            self.say(
                f"self-train: {n_rounds} round{'s' if n_rounds > 1 else ''} at most"
                f"{', from the start, which training did not beat' if teacher == START else ''}"
            )
            self._hand_over(folder)
            initial = self.detectors[teacher]
            try:
                with self.bar("self-train") as progress:
                    rows = self_train(
                        self.sources.labelled,
                        [dataset.root for dataset in self.sources.unlabelled],
                        initial,
                        folder,
                        self.recipe,
                        seed=self.seed,
                        accelerator=self.machine.accelerator,
                        progress=progress,
                        say=lambda text: self.say(f"self-train: {text}"),
                    )
            except MastError as error:
                if not _found_nothing(folder):
                    raise
                # after hours of training a detector and a report are worth more than a refusal
                if self.machine.main:
                    replace_folder(initial, folder / "best")
                self.say(f"self-train: left out, {error}. Continuing with the detector as {NAMES[teacher]}")
                return {"left_out": str(error)}
            kept = rows[rows["kept"]].iloc[0]
            self.say(f"self-train: validation F1 {kept['f1']:.3f}, {rows['f1'].iloc[0]:.3f} before")
            return {"f1": float(kept["f1"]), "before": float(rows["f1"].iloc[0])}

        result = self._do("self-train", inputs, (folder / "best" / "model.safetensors",), work, folder)
        if "left_out" not in result:
            self._made(SELF_TRAINED, folder / "best")

    def calibrate(self) -> None:
        """The model to use: the recommended detector, whose scores mean something."""
        chosen, model = self._recommended, self.out / "best"
        as_it_comes = chosen == START and bool(load_card(self.detectors[START]).calibration)

        def work() -> dict[str, Any]:
            if self.machine.main:
                replace_folder(self.detectors[chosen], model)
                if not load_card(model).calibration:  # a finished run has calibrated its own
                    calibrate_checkpoint(
                        model,
                        self.parts["val"],
                        self.machine,
                        batch_size=self.machine.eval_batch(self.recipe.train.batch_size),
                        least_score=self.recipe.train.score_threshold,
                        seed=self.seed,
                    )
            self.machine.accelerator.wait_for_everyone()
            card = load_card(model)
            stored = StoredCalibration.of_card(card.calibration, model)
            assert stored is not None
            seen = float(stored.calibration.apply(card.thresholds["score"]))
            heard = f"{stored.n_recordings} validation recording{'s' if stored.n_recordings != 1 else ''}"
            origin = "as it comes with the start" if as_it_comes else f"from {heard}"
            self.say(f"calibrate: method {stored.calibration.method}, {origin}; threshold {seen:.2f}")
            return {"method": stored.calibration.method, "threshold": seen}

        products = (model / "model.safetensors", model / "model.json")
        self._do("calibrate", self._after(_STAGES[chosen]), products, work)

    def evaluate(self, resamples: int) -> dict[str, Any]:
        path, detectors = self.out / "metrics.json", self.detectors
        names = list(detectors)
        before = {TRAINED: START, SELF_TRAINED: self.teacher}
        pairs = [(before[name], name) for name in names if before.get(name) in detectors]

        def work() -> dict[str, Any]:
            if not self.machine.main:
                return {}
            parts = {name: chunks for name, chunks in self.parts.items() if name != "train"}
            self.say(f"evaluate: {', '.join(NAMES[name] for name in names)} on {', '.join(parts)}")
            with self.bar("evaluate") as progress:
                found = measure_detectors(
                    detectors,
                    parts,
                    self.out / "evaluate",
                    self.recipe,
                    self.machine,
                    resamples=resamples,
                    seed=self.seed,
                    pairs=pairs,
                    progress=progress,
                )
            val = {name: found["detectors"][name]["parts"]["val"]["f1"] for name in names}
            found |= {"validation_f1": self.f1 or val, "recommended": self._recommended}
            write_whole(path, json.dumps(found, indent=2).encode())
            return {}

        inputs = {**self._after("calibrate"), **self.labels, "resamples": resamples}
        for name in names:
            inputs |= self._after(_STAGES[name])
        self._do("evaluate", inputs, (path, self.out / "evaluate"), work)
        metrics: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return metrics

    def report(self, examples: int) -> Path:
        path = self.out / "report.html"
        facts = {f"dataset {i}": facts_of(d) for i, (_, d) in enumerate(self.sources.everything)}
        inputs = {**self._after("evaluate"), **facts, **self.sound, "mast": __version__, "examples": examples}

        def work() -> dict[str, Any]:
            if self.machine.main:
                write_fit_report(
                    self.out,
                    path,
                    self.sources.labelled,
                    self.sources.unlabelled,
                    self.recipe,
                    seed=self.seed,
                    examples=examples,
                )
                self.say(f"report: {path}")
            return {}

        self._do("report", inputs, (path,), work)
        return path

    # which detector is the best so far

    @property
    def _recommended(self) -> str:
        return recommended(self.f1) if self.f1 else list(self.detectors)[-1]

    def _made(self, name: str, folder: Path) -> None:
        """A detector is made; where there is a start to beat, it is measured on validation."""
        self.detectors[name] = folder
        if START not in self.detectors:
            return

        def work() -> dict[str, Any]:
            mine = validation_f1(folder, self.parts["val"], self.recipe.train, self.machine)
            return {"f1": broadcast_object_list([mine])[0]}  # processes that disagree must not part ways

        self.f1[name] = self._do(
            f"validate-{name}", {**self.common, **self.labels, **self._after(_STAGES[name])}, (), work
        )["f1"]

    def _start_fits(self) -> bool:
        """Whether self-training can go on from the start: it has the architecture of this run."""
        own, wanted = load_card(self.detectors[START]).architecture, self.recipe.detector
        if not isinstance(own, DetectorConfig) or not isinstance(wanted, DetectorConfig):
            return False
        return same_fields(own, wanted)

    # how a stage is named and chained

    def _do(
        self,
        name: str,
        inputs: dict[str, Any],
        products: tuple[Path, ...],
        work: Callable[[], dict[str, Any]],
        folder: Path | None = None,
    ) -> dict[str, Any]:
        stage = Stage(name, inputs, products, folder)
        self.prints[name] = stage.fingerprint
        return self.ledger.do(stage, work)

    def _after(self, name: str) -> dict[str, str]:
        return {f"{UPSTREAM}{name}": self.prints[name]}

    def _section(self, name: str, only: Sequence[str] = ()) -> dict[str, Any]:
        """A section of the recipe, less what changes nothing that is learnt."""
        values = flat({name: getattr(self.recipe, name).model_dump(mode="json")})
        return {
            key: value
            for key, value in values.items()
            if key.rpartition(".")[2] not in BOOKKEEPING and (not only or key.rpartition(".")[2] in only)
        }

    def _hand_over(self, folder: Path, statistics: Path | None = None) -> None:
        """Prepare a stage's folder: the fingerprint guards it, so its own note of all settings is written anew."""
        if self.machine.main:
            (folder / "recipe.json").unlink(missing_ok=True)
            if statistics is not None and statistics.exists():
                write_whole(folder / "normalisation.json", statistics.read_bytes())
        self.machine.accelerator.wait_for_everyone()


def _say_nothing(text: str) -> None:
    pass


def _show_nothing(what: str) -> AbstractContextManager[Progress]:
    return nullcontext(lambda done, total, text: None)


def _found_nothing(folder: Path) -> bool:
    """Whether a round of self-training had no pseudo-box to learn from."""
    return any(
        pd.read_parquet(path, columns=["chunk"]).empty for path in folder.glob("round-*/pseudo.parquet")
    )


def _f1(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.3f}"
