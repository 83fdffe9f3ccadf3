"""The studies: their systems, parts and pictures. Each is one table or figure of the paper."""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mast.data.splits import SITE_OOD, TEMPORAL_OOD
from mast.errors import ConfigError
from mast_studies import systems as known
from mast_studies.embedding_studies import summarise_boxes, summarise_chunks, summarise_retrieval
from mast_studies.embedding_tables import Summary
from mast_studies.figures import PART_STYLE, STRATEGY_STYLE, bar_chart, dot_plot, line_plot, part_name
from mast_studies.found import load_about
from mast_studies.pictures import compare_systems
from mast_studies.study_tables import PARTS, Archive, Line, Row
from mast_studies.systems import System, budget_systems

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BUDGETS = (32, 64, 128, 256)  # chunks; our choice: up to half the training part of soundscape-bench
ALL_PARTS = tuple(PARTS)
_WHERE = {"test": "in domain", TEMPORAL_OOD: "on other days", SITE_OOD: "at other sites"}
_BUDGETED = re.compile(r"fcos_(random|time-balanced|sequential)_(\d+)")


@dataclass(frozen=True)
class FigureInputs:
    """The inputs of a picture.

    Attributes:
        study: the study that it belongs to.
        archive: everything that was found.
        rows: the rows of the study's table.
        data: the labelled folder of each dataset, if it is not where it was when the systems ran.
    """

    study: Study
    archive: Archive
    rows: Sequence[Row]
    data: Mapping[str, Path]


@dataclass(frozen=True)
class Study:
    """One table or figure.

    Attributes:
        name: on the command line and in file names.
        title: above the table or figure.
        paper: the table or figure of the paper that this repeats.
        caption: what to look at.
        systems: the systems to train.
        lines: the lines of the table, in order.
        parts: the parts of a dataset that are measured.
        draw: draws the picture; returns None if there is nothing to draw.
        reference: the system that differences are taken from.
        stepwise: take differences from the line above instead.
        elsewhere: measure other datasets than the one trained on, instead of ``parts``.
        budgets: its lines are the label budgets that were run, and all labels.
        whole: measured on whole recordings instead of chunk by chunk.
        summarise: for a study of embeddings, makes everything that it shows; the fields for a table are then not used.
    """

    name: str
    title: str
    paper: str
    caption: str
    systems: tuple[System, ...]
    lines: tuple[Line, ...]
    parts: tuple[str, ...]
    draw: Callable[[FigureInputs], Figure | None]
    reference: str | None = "mast"
    stepwise: bool = False
    elsewhere: bool = False
    budgets: bool = False
    whole: bool = False
    summarise: Callable[[Archive], Summary] | None = None

    def lines_in(self, archive: Archive) -> list[Line]:
        """The lines of its table."""
        if not self.budgets:
            return list(self.lines)
        found = {name for trial in archive.trials for name in trial.systems()}
        budgets = [(match[1], int(match[2])) for name in found if (match := _BUDGETED.fullmatch(name))]
        ordered = sorted(budgets, key=lambda one: (list(STRATEGY_STYLE).index(one[0]), one[1]))
        return [*(Line(f"fcos_{s}_{n}", f"{s}, {n} chunks") for s, n in ordered), Line("fcos", "all labels")]

    def parts_in(self, archive: Archive, dataset: str) -> list[str]:
        """The parts of a dataset that its table has."""
        there = archive.parts(dataset)
        return [p for p in there if (p not in PARTS if self.elsewhere else p in self.parts)]

    def missing_parts(self, archive: Archive, dataset: str) -> list[str]:
        """The study's parts that a dataset lacks, if any of its systems was measured there."""
        lines = {line.system for line in self.lines_in(archive)}
        run = lines & {name for trial in archive.trials_of(dataset) for name in trial.systems()}
        if len(run) < (2 if self.budgets else 1):  # all labels alone are not a study of budgets
            return []
        there = archive.parts(dataset)
        return [part for part in self.parts if part not in there]

    def rows(self, archive: Archive) -> list[Row]:
        """The whole table, dataset by dataset and part by part."""
        chosen = self.lines_in(archive)
        tables = [
            archive.rows(
                dataset, part, chosen, reference=self.reference, stepwise=self.stepwise, starts=self.starts
            )
            for dataset in archive.dataset_names()
            for part in self.parts_in(archive, dataset)
        ]
        # all labels alone are not a study of budgets
        return [row for rows in tables if not self.budgets or len(rows) > 1 for row in rows]

    @property
    def starts(self) -> dict[str, str]:
        """For each self-trained system, the one it started from, unless another column shows that difference."""
        starts = {one.name: one.self_training.start for one in self.systems if one.self_training is not None}
        return {} if self.stepwise else {name: of for name, of in starts.items() if of != self.reference}

    @property
    def reference_label(self) -> str:
        """The reference's name in the table."""
        if self.stepwise:
            return "row above"
        return next((line.label for line in self.lines if line.system == self.reference), "")


def all_studies(budgets: tuple[int, ...] = BUDGETS) -> dict[str, Study]:
    """Every study by name, in the order of the paper."""
    main = tuple(Line(s.name, "" if s.init == "generic" else s.title) for s in known.MAIN)
    generic = Line("audiomae")
    pipeline = (
        known.MAST,
        known.NO_CONTRASTIVE,
        known.PLAIN,
        known.GENERIC,
        known.SCRATCH,
        known.BASELINES[1],
    )
    curricula = (known.MAST, *known.CURRICULA, known.ROUND_1)
    rounds = (known.MAST, known.ROUND_1, known.SELF_TRAINED)
    taught = (known.SCRATCH_ST_1, known.SCRATCH_ST, known.TAUGHT_ST_1, known.TAUGHT_ST)
    steps = (known.SCRATCH_ADAPTER, known.NO_CONTRASTIVE, *rounds)
    studies = [
        Study(
            "in-domain",
            "In-domain detection",
            'Table "In-domain detection performance"',
            "Other recordings of the labelled site and day.",
            known.MAIN,
            main,
            ("test",),
            _draw_dots,
        ),
        Study(
            "ood",
            "Out-of-distribution robustness",
            'Table "Out-of-distribution robustness"',
            "Other days at the labelled site, and other sites; thresholds come from in-domain validation.",
            known.MAIN,
            main,
            (TEMPORAL_OOD, SITE_OOD),
            _draw_dots,
        ),
        Study(
            "overview",
            "Overview",
            'Figure "Performance comparison"',
            "All systems at home, on other days and at other sites.",
            known.MAIN,
            main,
            ALL_PARTS,
            lambda inputs: bar_chart(inputs.rows, title=inputs.study.title),
        ),
        Study(
            "transfer",
            "Transfer to other datasets",
            "beyond the paper",
            "Systems as they are, thresholds included, on datasets that they were not trained on.",
            known.MAIN,
            main,
            (),
            _draw_dots,
            elsewhere=True,
        ),
        Study(
            "pipeline",
            "Pipeline ablation",
            'Table "Pipeline ablation"',
            "Each line has what the line above has, less one thing; the generic and the untrained start replace "
            "pretraining in the line without contrastive loss and adapter, as in the paper.",
            pipeline,
            (
                Line("mast", "MAST (full)"),
                Line("no_contrastive", "− contrastive loss"),
                Line("no_adapter", "− adapter"),
                generic,
                Line("scratch", "− all pretraining (from scratch)"),
                Line("fcos", "FCOS baseline"),
            ),
            ALL_PARTS,
            _draw_dots,
        ),
        Study(
            "adapters",
            "Adapter ablation",
            'Table "Adapter design ablation"',
            "The same detector and training; only the adapter differs.",
            (*known.ADAPTERS, known.MAST),
            (
                Line("adapter_none", "none (1 × 1 projection)"),
                Line("adapter_conv", "conv"),
                Line("adapter_anisotropic", "anisotropic"),
                Line("mast", "upsampling (main)"),
            ),
            ALL_PARTS,
            _draw_dots,
        ),
        Study(
            "curriculum",
            "Self-training curriculum",
            'Table "Ablation of the self-training curriculum"',
            "One round each, all from the same MAST detector.",
            curricula,
            (
                Line("mast", "base (no ST)"),
                Line("st_stage1", "Stage 1 only"),
                Line("st_stage2", "Stage 2 only"),
                Line("st_union", "one-stage union"),
                Line("mast_st_1", "Stage 1 + Stage 2 (full)"),
            ),
            ALL_PARTS,
            _draw_dots,
        ),
        Study(
            "rounds",
            "Rounds of self-training",
            'Figure "Effect of iterative self-training" and Table "Per-round self-training results"',
            "Round 0 is MAST before self-training.",
            rounds,
            (
                Line("mast", "round 0 (no ST)"),
                Line("mast_st_1", "round 1"),
                Line("mast_st", "round 2"),
            ),
            ALL_PARTS,
            _draw_rounds,
        ),
        Study(
            "domain-shift",
            "What each step buys in domain, on other days and at other sites",
            "beyond the paper",
            "Each line has what the line above has, and one thing more. Thresholds come from in-domain validation.",
            steps,
            (
                Line("scratch_adapter", "from scratch"),
                Line("no_contrastive", "pretrained"),
                Line("mast", "+ contrastive"),
                Line("mast_st_1", "+ self-training round 1"),
                Line("mast_st", "+ self-training round 2"),
            ),
            ALL_PARTS,
            _draw_steps,
            reference=None,
            stepwise=True,
        ),
        Study(
            "premise",
            "What unlabelled sound buys, beside the best of the usual detectors",
            "beyond the paper",
            "Every system has the same sound, steps, augmentation and levelling. Self-training starts from the line of "
            "its name; one row is MAST as it was published.",
            (
                *known.BASELINES,
                known.PUBLISHED,
                known.FROM_SCRATCH,
                *taught,
                known.MAST,
                known.MAST_LATENT,
                known.CURRICULA[2],
                known.DOUBTFUL_ST,
                known.SELF_TRAINED,
                known.BASELINE_ST,
            ),
            (
                *(Line(s.name, s.title) for s in known.BASELINES),
                Line("faster_rcnn_st", "Faster R-CNN + ST"),
                Line("mast_paper", "MAST, as published"),
                Line("from_scratch", "MAST, from scratch"),
                *(Line(s.name, s.title) for s in taught),
                Line("mast", "MAST"),
                Line("mast_latent", "MAST, latent targets"),
                Line("st_union", "MAST + ST, one-stage union"),
                Line("st_full_doubt", "MAST + ST, one round, doubtful boxes left out"),
                Line("mast_st", "MAST + ST"),
            ),
            ALL_PARTS,
            _draw_dots,
            reference="faster_rcnn",
        ),
        Study(
            "teachers",
            "Who labels in self-training",
            "beyond the paper",
            "Self-training where MAST labels alone, as in the paper, and where Faster R-CNN labels together with it.",
            (known.BASELINES[0], known.FROM_SCRATCH, *taught),
            (Line("faster_rcnn"), Line("from_scratch"), *(Line(s.name, s.title) for s in taught)),
            ALL_PARTS,
            _draw_dots,
            reference="from_scratch_st",
        ),
        Study(
            "real-sets",
            "Real recordings with a few boxes",
            "beyond the paper",
            "Every system learns from the same boxes: the usual detectors from scratch, MAST as `mast fit --init "
            "default` makes it. What the embedded model learnt from is in its card. Measured on whole recordings, as "
            "`mast detect` searches them.",
            (*known.BASELINES, known.GENERIC, known.FITTED),
            (
                *(Line(s.name, s.title) for s in known.BASELINES),
                generic,
                Line("fitted", "MAST, fitted from the embedded model"),
            ),
            ALL_PARTS,
            _draw_dots,
            reference="fitted",
            whole=True,
        ),
        Study(
            "detail",
            "Convolutions beside the encoder, and long pretraining",
            "beyond the paper",
            "What a convolutional path beside the encoder and the paper's 400 epochs of pretraining are worth, next to "
            "the convolutional detectors.",
            (
                known.SCRATCH_ADAPTER,
                known.SCRATCH_DETAIL,
                known.MAST,
                known.MAST_DETAIL,
                known.MAST_LONG,
                known.MAST_LONG_DETAIL,
                known.SELF_TRAINED,
                known.DETAIL_TRAINED,
                *known.BASELINES[:3],
            ),
            (
                Line("scratch_adapter", "from scratch"),
                Line("scratch_detail", "from scratch, detail path"),
                Line("mast", "MAST"),
                Line("mast_detail", "MAST, detail path"),
                Line("mast_long", "MAST, 400 epochs"),
                Line("mast_long_detail", "MAST, 400 epochs, detail path"),
                Line("mast_st", "MAST + ST"),
                Line("mast_detail_st", "MAST + ST, detail path"),
                *(Line(s.name, s.title) for s in known.BASELINES[:3]),
            ),
            ALL_PARTS,
            _draw_dots,
        ),
        Study(
            "label-budget",
            "Label budget and sampling strategy",
            'Figure "Label-efficiency study"',
            "FCOS from scratch on some of the labelled training chunks, in-domain test; as many optimisation steps at "
            "every budget.",
            (*budget_systems(budgets), known.BASELINES[1]),
            (),
            ("test",),
            _draw_budgets,
            reference=None,
            budgets=True,
        ),
        Study(
            "qualitative",
            "Qualitative comparison",
            'Figure "Qualitative detection comparison"',
            "The same two chunks from other sites, drawn at random among those with a true box, as each system sees "
            "them.",
            known.MAIN,
            main,
            (SITE_OOD,),
            _draw_examples,
        ),
        _embedding_study(
            "retrieval",
            "Retrieval of sounds by box embeddings",
            'Table "Retrieval-based sonotype classification"',
            "Each labelled test box looks for its nearest annotated training boxes, none of its own recording; rank is "
            "the place of the first with its label. A detection has the label of the true box that it overlaps most, "
            "by at least half. The true boxes of those detections show what is due to easier sounds being detected.",
            summarise_retrieval,
        ),
        _embedding_study(
            "umap-chunks",
            "Chunk embeddings by site, hour and number of events",
            'Figure "UMAP visualization of pretrained encoder embeddings"',
            "All labelled chunks as the pretrained encoder sees them, before any label was used. The table says how "
            "much the nearest chunks of other recordings have in common with a chunk, in the full space: a plane only "
            "shows.",
            summarise_chunks,
        ),
        _embedding_study(
            "umap-boxes",
            "Box embeddings by label, truth and detection",
            'Figure "Box-level embedding space induced by MAST detections"',
            "True boxes and detections of all test parts, pooled from the pretrained encoder. The table says how often "
            "the nearest true boxes of other recordings have a box's label, in the full space.",
            summarise_boxes,
        ),
    ]
    return {study.name: study for study in studies}


def _embedding_study(
    name: str, title: str, paper: str, caption: str, summarise: Callable[[Archive], Summary]
) -> Study:
    """A study of MAST's embeddings of boxes and chunks."""
    return Study(
        name,
        title,
        paper,
        caption,
        (known.MAST,),
        (Line("mast"),),
        ALL_PARTS,
        lambda inputs: None,
        reference=None,
        summarise=summarise,
    )


def find_study(name: str, studies: Mapping[str, Study]) -> Study:
    """The study of that name, or a sentence with the nearest one."""
    if name not in studies:
        near = difflib.get_close_matches(name, studies, n=1, cutoff=0.4)
        hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(studies)}"
        raise ConfigError(f"experiment: there is no study '{name}'; {hint} (mast experiment list)")
    return studies[name]


def systems_by_name(studies: Mapping[str, Study]) -> dict[str, System]:
    """Every system of any study."""
    return {system.name: system for study in studies.values() for system in study.systems}


def choose_systems(studies: Sequence[Study], wanted: Sequence[str] | None) -> list[System]:
    """The systems of some studies, each once; only the requested ones, if any are named."""
    systems = {system.name: system for study in studies for system in study.systems}
    for name in wanted or ():
        if name not in systems:
            near = difflib.get_close_matches(name, systems, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(systems)}"
            raise ConfigError(f"experiment: there is no system '{name}' here; {hint}")
    return [system for name, system in systems.items() if wanted is None or name in wanted]


def missing_parts_message(dataset: str, parts: Sequence[str]) -> str:
    """The message that a dataset lacks these parts, and how to add them."""
    *first, last = (_WHERE[part] for part in parts)
    where = f"{', '.join(first)} or {last}" if first else last
    return (
        f"{dataset}: no recordings test {where}; such recordings have {' or '.join(parts)} in the column split of "
        "recordings.csv"
    )


def _draw_dots(inputs: FigureInputs) -> Figure | None:
    return dot_plot(inputs.rows, title=f"{inputs.study.title}: F1")


def _draw_rounds(inputs: FigureInputs) -> Figure | None:
    """A curve per part, over the number of the round."""
    names, styles = _part_curves()
    places = {"mast": 0.0, "mast_st_1": 1.0, "mast_st": 2.0}
    return line_plot(
        inputs.rows, places, names, styles, x_label="round of self-training", title=inputs.study.title
    )


def _draw_steps(inputs: FigureInputs) -> Figure | None:
    """A curve per part, over the lines of the table in order."""
    names, styles = _part_curves()
    places = {line.system: float(place) for place, line in enumerate(inputs.study.lines)}
    ticks = {places[line.system]: textwrap.fill(line.label, 15) for line in inputs.study.lines}
    return line_plot(
        inputs.rows, places, names, styles, x_label="step", title=f"{inputs.study.title}: F1", ticks=ticks
    )


def _part_curves() -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    """The name of each part's curve, and by that name its colour and mark."""
    names = {part: part_name(part) for part in PARTS}
    return names, {names[part]: style for part, style in PART_STYLE.items()}


def _draw_budgets(inputs: FigureInputs) -> Figure | None:
    """A curve per strategy; each ends with FCOS on all labels, where the strategies meet."""
    places: dict[str, float] = {}
    series: dict[str, str] = {}
    rows: list[Row] = []
    for row in inputs.rows:
        if match := _BUDGETED.fullmatch(row.system):
            places[row.system], series[row.system] = float(match[2]), match[1]
            rows.append(row)
            continue
        trials = [
            trial for trial in inputs.archive.trials_of(row.dataset) if row.system not in trial.left_out
        ]
        abouts = [load_about(trial.system(row.system)) for trial in trials]
        counts = [float(about["train_chunks"]) for about in abouts if "train_chunks" in about]
        if counts:
            for strategy in STRATEGY_STYLE:
                name = f"{row.dataset} {strategy}"
                places[name], series[name] = sum(counts) / len(counts), strategy
                rows.append(replace(row, system=name))
    if not rows:
        return None
    return line_plot(
        rows,
        places,
        series,
        STRATEGY_STYLE,
        x_label="labelled training chunks",
        title=inputs.study.title,
        logarithmic=True,
    )


def _draw_examples(inputs: FigureInputs) -> Figure | None:
    for dataset in inputs.archive.dataset_names():
        for trial in inputs.archive.trials_of(dataset):
            figure = compare_systems(
                trial, SITE_OOD, inputs.study.lines, seed=trial.seed, data=inputs.data.get(dataset)
            )
            if figure is not None:
                return figure
    return None
