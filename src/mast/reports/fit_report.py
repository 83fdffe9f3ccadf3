"""``report.html`` of `mast fit`: the data, how training went, how good the detector is, and how to use it.

Everything is read from the run's folder and the recordings; the page needs no other file and no network.
"""

from __future__ import annotations

import json
import platform
import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from markupsafe import Markup

from mast.annotations.detections import model_id
from mast.data.recordings import Dataset
from mast.evaluation.bootstrap import TRAINING_NOISE
from mast.evaluation.part_tables import PartTables
from mast.files import write_atomic
from mast.habit import Habit
from mast.models.card import ModelCard, load_card
from mast.reports.fit_data import hours_figure, sites_header, sites_table, time_unit
from mast.reports.fit_examples import choose_examples, example_pictures
from mast.reports.fit_figures import (
    curves_figure,
    parts_figure,
    precision_recall_figure,
    read_curves,
    reliability_figure,
)
from mast.reports.fit_verdict import (
    HABIT,
    NAMES,
    SELF_TRAINED,
    START,
    part_title,
    read_learnt,
    read_tallies,
    verdict,
    with_interval,
)
from mast.reports.html_page import (
    Section,
    cards,
    code,
    embedded_png,
    folded,
    heading,
    page,
    paragraph,
    picture,
    table,
)
from mast.reports.rounds_page import rounds_html
from mast.runs import ROUNDS, flatten
from mast.training.part_list import UnusedBoxes
from mast.training.recipe import Recipe
from mast.version import __version__
from mast.wording import counted

_PARTS = {
    "val": "recordings kept from training to choose thresholds and the best epoch",
    "test": "recordings kept out of training and of all decisions",
    "temporal_ood": "days kept out of training and of all decisions (temporal_ood)",
    "site_ood": "sites kept out of training and of all decisions (site_ood)",
}
_METRICS = {
    "f1": "F1",
    "precision": "precision",
    "recall": "recall",
    "ap50": "AP50",
    "miou": "mIoU",
}
_FEW = 10  # recordings (our choice): with fewer, a single one decides
EXAMPLES = 3  # of each kind from the main part, one of each from the others; our choice


class _ReportContext:
    """What the sections share."""

    def __init__(
        self,
        run: Path,
        labelled: Dataset,
        unlabelled: Sequence[Dataset],
        recipe: Recipe,
        unused: UnusedBoxes,
        seed: int,
        examples: int,
    ) -> None:
        self.run, self.labelled, self.recipe, self.seed, self.examples = run, labelled, recipe, seed, examples
        self.unused = unused
        self.datasets = [("labelled", labelled), *(("unlabelled", dataset) for dataset in unlabelled)]
        self.metrics: dict[str, Any] = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
        self.card: ModelCard = load_card(run / "best")
        self.stored, self.calibration = self.card.calibration, self.card.probabilities
        self.detectors = list(self.metrics["detectors"])
        self.chosen: str = self.metrics["recommended"]
        self.verdict = verdict(read_tallies(self.metrics), read_learnt(self.metrics))
        self.main_part = "test" if "test" in self.metrics["parts"] else "val"

    def names(self) -> dict[str, str]:
        """Names of the detectors, in words."""
        return NAMES if len(self.detectors) > 1 else dict.fromkeys(self.detectors, "the detector")

    def keeps_start_calibration(self) -> bool:
        """Whether the starting model's calibration was kept: for the start itself, or with few boxes to validate on."""
        before = load_card(self.run / "start").calibration if START in self.detectors else None
        return (
            before is not None and self.stored is not None and before.calibration == self.stored.calibration
        )

    def part(self, part: str, detector: str) -> PartTables:
        """What a detector found in a part."""
        return PartTables.load(self.run / "evaluate" / detector, part)


def write_fit_report(
    run: Path,
    out: Path,
    labelled: Dataset,
    unlabelled: Sequence[Dataset],
    recipe: Recipe,
    *,
    unused: UnusedBoxes,
    seed: int = 0,
    examples: int = EXAMPLES,
) -> Path:
    """Write the report of a run that has written ``metrics.json``.

    Args:
        run: the run's folder.
        out: the page to write.
        labelled: the dataset it was trained on.
        unlabelled: further sound.
        recipe: all settings.
        unused: labelled boxes in none of the parts.
        seed: of the run, and of the choice of examples.
        examples: spectrograms of hits, of misses and of false alarms.
    """
    context = _ReportContext(run, labelled, unlabelled, recipe, unused, seed, examples)
    sections = [
        Section("Data", "data", _data(context)),
        Section("Accuracy", "accuracy", _accuracy(context)),
        Section("Scores", "scores", _scores(context)),
        Section("Examples", "examples", _examples(context)),
        Section("Self-training", "rounds", _rounds(context)),
        Section("Training curves", "curves", _curves(context)),
        Section("Use the model", "use", _use(context)),
        Section("Settings and versions", "settings", _settings(context)),
    ]
    write_atomic(out, page(f"mast fit: {run.name}", _lead(context), sections).encode())
    return out


def _lead(context: _ReportContext) -> Markup:
    part = context.metrics["detectors"][context.chosen]["parts"][context.main_part]
    sound_s = sum(float(d.recordings["duration_s"].sum()) for _, d in context.datasets)
    time = time_unit(context.datasets)
    where = "test recordings" if context.main_part == "test" else "validation recordings"
    boxes = len(context.labelled.annotations.events)
    used = f"of {counted(boxes, 'expert’s box')} used" if context.unused.boxes else "boxes by experts"
    facts = [
        (_format_metric(part, "f1"), f"F1 on {where}{_format_interval(part, 'f1')}"),
        (
            _format_metric(part, "precision"),
            f"of detections are right (precision){_format_interval(part, 'precision')}",
        ),
        (
            _format_metric(part, "recall"),
            f"of the expert’s boxes are found (recall){_format_interval(part, 'recall')}",
        ),
        (
            f"{boxes - context.unused.boxes:,}",
            f"{used}, {sound_s / time.seconds:,.1f} {time.plural} of sound in all",
        ),
    ]
    words = "A detector of animal sounds as boxes in time and frequency, trained on your recordings."
    if context.chosen in (START, HABIT):
        words = (
            "A detector of animal sounds as boxes in time and frequency: the one that this run started from."
        )
    words += f" {context.verdict}" if context.verdict else ""
    if context.main_part == "val":
        words += (
            " There is no test part, so accuracy is shown on validation recordings, which helped to choose the model "
            "and threshold: expect a little less on new ones."
        )
    heard = int(context.metrics["parts"][context.main_part]["recordings"])
    few = (
        f"These figures rest on {counted(heard, 'recording')}. With fewer than {_FEW}, they say little about others: "
        "label more, from other days and sites, before you trust them."
    )
    return paragraph(words) + cards(facts) + (paragraph(few) if heard < _FEW else Markup())


def _data(context: _ReportContext) -> Markup:
    time = time_unit(context.datasets)
    body = table(sites_header(context.datasets), sites_table(context.datasets), words=(0, 1))
    figure = hours_figure(context.datasets)
    if figure is None:
        body += paragraph(
            "The clock time of the recordings is not known, so nothing is shown by hour.", soft=True
        )
    else:
        body += picture(figure)
    failures = sum(len(dataset.failures) for _, dataset in context.datasets)
    if failures:
        body += paragraph(
            f"Recordings that are missing or could not be read: {failures:,}; scan/failures.csv lists them."
        )
    if context.unused.boxes:
        body += paragraph(f"{context.unused.sentence}.")
    rows = [
        [
            part_title(name),
            f"{p['recordings']:,}",
            f"{p['seconds'] / time.seconds:,.1f}",
            f"{p['boxes']:,}",
            _PARTS.get(name, f"recordings that recordings.csv assigns to {name}"),
        ]
        for name, p in context.metrics["parts"].items()
    ]
    body += heading("Parts that the detector is measured on")
    body += table(["part", "recordings", time.plural, "boxes", "what it is"], rows, words=(0, 4))
    heard = " Pretraining hears all recordings, including those of every part, without their boxes."
    return body + paragraph(
        "Boxes are counted in chunks laid end to end; one that crosses from a chunk into the next counts in both."
        + (heard if (context.run / "pretrain").exists() else ""),
        soft=True,
    )


def _accuracy(context: _ReportContext) -> Markup:
    names = context.names()
    rows = []
    for part in context.metrics["parts"]:
        for detector in context.detectors:
            result = context.metrics["detectors"][detector]["parts"][part]
            cells = [with_interval(result, key) for key in _METRICS]
            rows.append([part_title(part), names[detector], *cells, f"{result['n_truth']:,}"])
    body = paragraph(
        "A detection is right if it overlaps an expert’s box by at least half (intersection over union, in time and "
        "frequency). In brackets: the range in which the value lies with 95 % certainty, judged by how much recordings "
        "differ. Thresholds were chosen on validation alone"
        + (
            "; the starting model keeps its own, unless another one fits your boxes better."
            if START in context.detectors
            else "."
        )
    )
    body += table(["part", "detector", *_METRICS.values(), "expert boxes"], rows, words=(0, 1))
    body += picture(
        parts_figure(context.metrics, names, {p: part_title(p) for p in context.metrics["parts"]})
    )
    if context.verdict:
        body += paragraph(context.verdict)
    for pair in context.metrics["differences"]:
        what = {
            SELF_TRAINED: "self-training",
            HABIT: "adjusting the starting model to your boxes",
        }.get(pair["of"], "training")
        body += heading(f"What {what} changed")
        body += table(
            ["part", *(f"{word}, after − before" for word in list(_METRICS.values())[:4])],
            [
                [part_title(part), *(_format_difference(found[key]) for key in list(_METRICS)[:4])]
                for part, found in pair["parts"].items()
            ],
        )
    if context.metrics["differences"]:
        body += paragraph(
            "A range that includes 0 means that no difference could be shown. Without a range, from a single "
            f"recording, a difference may be chance. {TRAINING_NOISE}",
            soft=True,
        )
    parts = {names[d]: context.part(context.main_part, d) for d in context.detectors}
    body += picture(precision_recall_figure(parts, part_title(context.main_part)))
    body += paragraph("The dot is the threshold that the model carries.", soft=True)
    return body + _recall_by_kind(context)


def _recall_by_kind(context: _ReportContext) -> Markup:
    """Recall by size and band of the sound."""
    groups = context.metrics["detectors"][context.chosen]["parts"][context.main_part]["recall_by"]
    words = {"size": "size on the spectrogram", "length": "length", "band": "frequency"}
    rows = [
        [
            words[by],
            kind["group"],
            f"{kind['n_truth']:,}",
            f"{kind['n_found']:,}",
            f"{kind['n_found'] / kind['n_truth']:.2f}",
        ]
        for by in words
        for kind in groups.get(by, [])
    ]
    if not rows:
        return Markup()
    return (
        heading(f"Which sounds are found ({part_title(context.main_part)})")
        + table(["by", "group", "expert boxes", "found", "recall"], rows, words=(0, 1))
        + paragraph("Small: under 32 × 32 cells (frames × mel bins); large: 96 × 96 and over.", soft=True)
    )


def _scores(context: _ReportContext) -> Markup:
    outcome = context.part(context.main_part, context.chosen).match()
    if not len(outcome.scores):
        return paragraph("The detector finds nothing here, so its scores cannot be judged.")
    body = paragraph(
        "After calibration a score is a probability: of detections with score 0.8, about eight in ten should be right. "
        "On the diagonal, scores mean what they say."
    )
    body += picture(reliability_figure(outcome, context.calibration, part_title(context.main_part)))
    if context.stored is None:
        return body
    rows = []
    for target in (0.5, 0.7, 0.8, 0.9, 0.95):
        point = context.stored.threshold_for(target)
        if point is None:
            rows.append([f"{target:g}", "not reached", "–", "–"])
        else:
            interval = "" if point.low is None else f" ({point.low:.2f}–{point.high:.2f})"
            rows.append(
                [
                    f"{target:g}",
                    f"{context.stored.shown_threshold(point):.2f}",
                    f"{point.precision:.2f}{interval}",
                    f"{point.recall:.2f}",
                ]
            )
    body += heading("How sure should a detection be?")
    where = "on validation"
    if context.keeps_start_calibration():
        where = "there"
        body += paragraph(
            f"This calibration came with the starting model: it is from {context.stored.n_recordings} other "
            "recordings, not from yours. In your recordings precision and recall may be quite different."
        )
    body += table(["--precision", "minimum score", f"precision {where}", f"recall {where}"], rows)
    return body + paragraph(
        "Higher precision means fewer false alarms and more missed sounds. mast detect --precision 0.9 uses this table."
    )


def _examples(context: _ReportContext) -> Markup:
    order = [context.main_part, *(p for p in context.metrics["parts"] if p not in ("val", "test"))]
    body = paragraph(
        "Drawn at random at the model’s own threshold. Green: the expert’s boxes; dashed blue: detections with their "
        "score; the orange frame marks the box in question. Measuring cuts sound into chunks end to end, so a call "
        "across a cut is two boxes here; mast detect joins such pieces."
    )
    for part in order:
        tables = context.part(part, context.chosen)
        each = context.examples if part == context.main_part else min(1, context.examples)
        examples = choose_examples(tables, each=each, seed=context.seed)
        body += heading(part_title(part))
        missing = [k for k in ("hit", "miss", "false alarm") if k not in {e.kind for e in examples}]
        if missing:
            body += paragraph(f"There is no {' and no '.join(missing)} here.", soft=True)
        body += Markup().join(example_pictures(examples, tables, context.labelled))
    return body


def _rounds(context: _ReportContext) -> Markup:
    if not (context.run / "selftrain" / ROUNDS).exists() or SELF_TRAINED not in context.detectors:
        return Markup()
    return rounds_html(context.run / "selftrain", n_samples=min(2, max(1, context.examples)))


def _curves(context: _ReportContext) -> Markup:
    runs = [("pretrain", "Pretraining"), ("train", "Training on the expert’s boxes")]
    if SELF_TRAINED in context.detectors:
        for folder in sorted((context.run / "selftrain").glob("round-*/*/curves.jsonl")):
            number, stage = folder.parent.parent.name.removeprefix("round-"), folder.parent.name
            words = {"stage1": "stage 1 (pseudo-boxes)", "stage2": "stage 2 (expert’s boxes)"}.get(
                stage, stage
            )
            runs.append((f"selftrain/round-{number}/{stage}", f"Self-training, round {number}, {words}"))
    found = [read_curves(context.run / where / "curves.jsonl", title) for where, title in runs]
    figure = curves_figure([curves for curves in found if curves is not None])
    caption = "Left: the loss, thin at each step, thick its running mean. Right: on sound that was held out."
    body = picture(figure, caption) if figure is not None else Markup()
    reconstruction = context.run / "pretrain" / "reconstruction.png"
    if reconstruction.exists():
        body += heading("What the encoder learnt from listening") + embedded_png(
            reconstruction.read_bytes(),
            "The original sound, what the encoder was shown of it, and its reconstruction of the hidden parts.",
            small=True,
        )
    return body


def _use(context: _ReportContext) -> Markup:
    model = shlex.quote(str(context.run))
    threshold = float(context.calibration.apply(context.card.thresholds["score"]))
    body = paragraph("Find sounds in other recordings; results come as tables, also for Raven and Audacity:")
    body += code(f"mast detect recordings/ --model {model} --out detections --formats csv,raven")
    body += paragraph("Fewer false alarms, at the price of more missed sounds:")
    body += code(f"mast detect recordings/ --model {model} --out sure --precision 0.9")
    body += paragraph("From Python:")
    load = f"detector = mast.load({str(context.run)!r})"
    body += code(f'import mast\n\n{load}\nevents = detector.detect("dawn.wav")  # a pandas table')
    front_end = context.recipe.front_end
    return body + paragraph(
        f"The model listens to {front_end.low_hz:g}–{front_end.high_hz:g} Hz in windows of {front_end.chunk_s:g} s and "
        f"reports detections that score {threshold:.2f} or more. It says where something calls, not which species."
        f"{_habit_sentence(context.card.habit)}"
    )


def _habit_sentence(habit: Habit | None) -> str:
    """How the model draws boxes, where it does not leave them unchanged."""
    if habit is None or habit.changes_nothing:
        return ""
    return f" It draws {habit}, as your boxes are drawn; --box all gives its boxes as they are."


def _settings(context: _ReportContext) -> Markup:
    rows = [
        ["model", f"{model_id(context.card.weights_sha256)} in {context.run / 'best'}"],
        [
            "size",
            "as the starting model" if "encoder" in context.recipe.train.detector else context.recipe.size,
        ],
        ["seed", str(context.seed)],
        ["mast", __version__],
        ["torch", torch.__version__],
        ["python", platform.python_version()],
        ["machine", f"{platform.system()} {platform.machine()}"],
        ["written", datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")],
    ]
    rows += [[kind, str(dataset.root)] for kind, dataset in context.datasets]
    body = table(["", ""], rows, words=(0, 1))
    values = flatten(context.recipe.model_dump(mode="json"))
    settings = [f"{name}={json.dumps(value)}" for name, value in values.items()]
    body += folded("All settings of the recipe", code("\n".join(settings)))
    calibration = context.calibration.model_dump(mode="json", exclude={"knot_scores", "knot_probabilities"})
    return body + folded("Calibration of scores", code(json.dumps(calibration, indent=2)))


def _format_interval(result: dict[str, Any], key: str) -> str:
    """The interval to append to a headline figure; empty where a single recording gives none."""
    low, high = result["intervals"][key]
    return "" if low is None or result[key] is None else f"; 95 % interval {low:.2f}–{high:.2f}"


def _format_metric(result: dict[str, Any], key: str) -> str:
    return "–" if result[key] is None else f"{result[key]:.2f}"


def _format_difference(found: dict[str, Any]) -> str:
    if found["difference"] is None:
        return "–"
    value, low, high = (_signed(found[key]) for key in ("difference", "low", "high"))
    return value if found["low"] is None else f"{value} ({low} to {high})"


def _signed(value: float | None) -> str:
    if value is None:
        return "–"
    return "0.00" if abs(value) < 0.005 else f"{value:+.2f}".replace("-", "−")
