"""A run from top to bottom: scan → statistics → pretrain → train → self-train → calibrate → evaluate → report.

RUN/stages/*.json      what is done, and from what
RUN/scan/              recordings.csv, failures.csv
RUN/statistics/        normalisation.json
RUN/pretrain/          the encoder's run
RUN/start/             the detector to start from, as is, on this run's front end
RUN/habit/             the same, drawing boxes as yours are drawn
RUN/train/             the detector's run on the expert's boxes; in habit/, the detector as it is to draw them
RUN/selftrain/         its rounds on unlabelled sound; likewise
RUN/best/              the model to use: the last that beat the start on validation, or the start
RUN/evaluate/          event tables of every part, truth and detections
RUN/metrics.json       how good it is
RUN/report.html        all of it as a page
RUN/earlier/           what was made from other data or settings
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mast.detect_options import DEFAULT_OPTIONS, DetectOptions
from mast.errors import MastError
from mast.evaluation.report import RESAMPLES
from mast.fit import draw, judge, learn
from mast.fit.fit_run import FitRun
from mast.fit.inputs import ignore_source_warnings, load_sources
from mast.reports.fit_report import EXAMPLES
from mast.reports.fit_verdict import f1_table, read_learnt, read_tallies, verdict
from mast.runs import SILENT, STAGES, Reporter, refuse_foreign_files
from mast.training.machine import prepare_machine
from mast.training.recipe import Recipe


@dataclass(frozen=True)
class Fitted:
    """The result of a run."""

    model: Path
    report: Path
    metrics: dict[str, Any]

    def summary(self) -> list[str]:
        """F1 of each detector on each part as a table, and which of them is recommended."""
        sentence = verdict(read_tallies(self.metrics), read_learnt(self.metrics))
        return [*f1_table(self.metrics), *([sentence] if sentence else [])]


def fit(
    data: Path,
    unlabelled: Sequence[Path],
    out: Path,
    recipe: Recipe,
    *,
    reporter: Reporter,
    annotations: Path | None = None,
    init: str | Path | None = None,
    drawn: DetectOptions = DEFAULT_OPTIONS,
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
        reporter: called with progress.
        annotations: boxes, if not ``data/boxes.csv``.
        init: an encoder or detector to start from, instead of pretraining.
        drawn: how the start draws boxes: its ``box`` and ``join_s`` count; as the model does by default.
        fixed: if the user did not choose the preset, the settings that the user did choose, by dotted names; with a
            start from a detector, the others follow machine and data. None keeps the recipe unchanged.
        seed: of everything random.
        resamples: bootstrap draws for the intervals.
        examples: spectrograms of each kind in the report.
    """
    if out.exists() and not out.is_dir():
        raise MastError(f"{out}: is a file; expected the folder of a run, new or existing")
    refuse_foreign_files(out, STAGES)
    with warnings.catch_warnings():
        ignore_source_warnings()
        machine = prepare_machine(recipe)
        reporter = reporter if machine.is_main else SILENT  # once, not by every process
        sources = load_sources(data, unlabelled, annotations=annotations, init=init, say=reporter.say)
        recipe = sources.start.adapt_recipe(recipe)
        sources = sources.within_band(recipe.front_end, reporter.say).without_leakage(
            recipe.front_end, seed, reporter.say
        )
        run = FitRun(sources, out.absolute(), recipe, seed, machine, reporter)
        judge.scan(run)
        learn.plan(run, fixed)
        learn.statistics(run)
        learn.pretrain(run)
        learn.start(run, drawn)
        draw.apply_habit(run)
        learn.train(run)
        learn.self_train(run)
        judge.calibrate(run)
        metrics = judge.evaluate(run, resamples)
        return Fitted(run.out / "best", judge.report(run, examples), metrics)
