"""The pages that come with an exported model: what it is, how to use it, how well it did."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mast.models.architecture import DetectorConfig
from mast.models.card import ModelCard
from mast.version import __version__

# names of the hub's list of licences; others are "other" there
_HUB_LICENCES = {
    *("apache-2.0", "mit", "bsd-3-clause", "gpl-3.0", "agpl-3.0"),
    *("cc0-1.0", "cc-by-3.0", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0", "cc-by-nc-sa-4.0"),
}
_METRICS = {
    "f1": "F1",
    "precision": "precision",
    "recall": "recall",
    "ap50": "average precision at IoU 0.5",
    "miou": "mean IoU of matched boxes",
}


def hub_readme(card: ModelCard, name: str) -> str:
    """The model card of a hub repository, all of it from ``model.json``.

    Args:
        card: what the model says about itself.
        name: what the model is to be called, ``owner/name`` or a title.
    """
    front_end, about = card.front_end, card.provenance
    words = [
        f"# {name.split('/')[-1]}",
        f"Finds animal sounds in field recordings as boxes in time and frequency, whatever the species. A detector "
        f"made with [mast](https://pypi.org/project/mast-audio/) (masked audio pretraining and self-training) for "
        f"{front_end.low_hz:g}–{front_end.high_hz:g} Hz.",
        "## Use",
        _code(
            "python",
            f'import mast\n\ndetector = mast.load("hf://{name if "/" in name else "OWNER/" + name}")\n'
            'events = detector.detect("dawn.wav")  # start_s, end_s, low_hz, high_hz, score, …',
        ),
        _code(
            "",
            f"mast detect recordings/ --model hf://{name if '/' in name else 'OWNER/' + name} --out detections",
        ),
        "The repository holds `model.safetensors` (weights; no code is run on loading) and `model.json` (architecture, "
        "front end, normalisation, threshold, calibration, training).",
        "## Training data",
        _training_data(about),
        "## Measured",
        _measurements(card),
        _thresholds(card),
        _habit_note(card),
        "## Limits",
        "\n".join(f"- {limit}" for limit in _limits(card)),
        "## Licence",
        card.licence or "Not stated; ask whoever trained it before you use it for more than a trial.",
    ]
    return _front_matter(card) + "\n\n".join(part for part in words if part) + "\n"


def onnx_readme(card: ModelCard, score_difference: float, box_difference: float) -> str:
    """How to use an exported graph."""
    front_end = card.front_end
    points = "every point of the detector's grid"
    words = [
        "# A detector of animal sounds as ONNX",
        _code(
            "", "pip install numpy soundfile onnxruntime soxr\npython detect_onnx.py dawn.wav > events.csv"
        ),
        "`detect_onnx.py` is short, needs neither torch nor mast, and is meant to be read and changed: windows, the "
        "graph, non-maximum suppression in numpy, seconds and hertz.",
        "## The graph",
        f"| | name | shape | |\n| --- | --- | --- | --- |\n"
        f"| input | `sound` | (batch, {front_end.chunk_samples}) float32 | {front_end.chunk_s:g} s of one channel at "
        f"{front_end.sample_rate} Hz, full scale ±1, mean subtracted; a shorter one is padded with silence |\n"
        f"| output | `boxes` | (batch, points, 4) float32 | `t1, f1, t2, f2` in cells, for {points} |\n"
        f"| output | `scores` | (batch, points) float32 | between 0 and 1 |",
        f"Log-mel features and normalisation are part of the graph. A cell is {1000 * front_end.hop_s:g} ms by one of "
        f"{front_end.n_bins} mel bins; `mel_bins_to_hz` in the script turns bins into hertz. Drop what is scored below "
        f"`thresholds.score` in `model.json`, then suppress boxes that overlap a better one by an IoU above "
        f"`thresholds.nms_iou`, and those that share more of the smaller one than `architecture.nested`, where that is "
        "below 1. Scores are the model's own; `mast detect` shows them calibrated where `model.json` "
        "holds a calibration.",
        f"On made-up sound the graph differs from the PyTorch model by at most {score_difference:.1g} in score and "
        f"{box_difference:.1g} cells.",
        "Where windows overlap, `mast detect` joins the pieces of an event that a window's edge cuts; the script only "
        "keeps the better of two boxes.",
        _missing_habit_note(card),
        "## The model",
        _training_data(card.provenance),
        _measurements(card),
        "\n".join(f"- {limit}" for limit in _limits(card)),
        f"Licence: {card.licence or 'not stated; ask whoever trained it'}.",
    ]
    return "\n\n".join(part for part in words if part) + "\n"


def _habit_note(card: ModelCard) -> str:
    if card.habit is None or card.habit.changes_nothing:
        return ""
    return f"It draws {card.habit}; `mast detect --box all` gives its boxes as they are."


def _missing_habit_note(card: ModelCard) -> str:
    if card.habit is None or card.habit.changes_nothing:
        return ""
    return (
        f"`mast detect` draws {card.habit}, as `habit` in `model.json` says. Neither the graph nor the script "
        "does: they give whole calls, as the detector finds them."
    )


def _front_matter(card: ModelCard) -> str:
    fields: dict[str, Any] = {
        "library_name": "mast",
        "pipeline_tag": "audio-classification",
        "tags": ["bioacoustics", "sound-event-detection", "passive-acoustic-monitoring", "mast"],
    }
    licence = card.licence.lower()
    if licence in _HUB_LICENCES:
        fields = {"license": licence, **fields}
    elif licence:
        fields = {"license": "other", "license_name": card.licence, **fields}
    # JSON values are YAML values, quoting included
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items()]
    return "\n".join(["---", *lines, "---", "", ""])


def _training_data(about: Mapping[str, Any]) -> str:
    data = about.get("data")
    return f"Trained on: {data if isinstance(data, str) else json.dumps(data)}." if data else "Not stated."


def _measurements(card: ModelCard) -> str:
    metrics = card.provenance.get("metrics")
    known = {name: metrics[key] for key, name in _METRICS.items() if key in metrics} if metrics else {}
    if not known:
        return "The checkpoint holds no figures; measure it on your own recordings with `mast evaluate`."
    head = f"| {' | '.join(known)} |\n|{' --- |' * len(known)}\n| {' | '.join(f'{v:.3f}' for v in known.values())} |"
    stored = card.calibration
    where = stored.recordings if stored and stored.data else "validation recordings of the training data"
    return f"On {where}; boxes matched at IoU 0.5:\n\n{head}"


def _thresholds(card: ModelCard) -> str:
    score = card.thresholds.get("score")
    if score is None:
        return ""
    shown = (
        "calibrated: shown as the probability that an event is right"
        if card.calibration
        else "not calibrated"
    )
    return f"Events count if they score {score:.3g} or more, a threshold tuned on validation; scores are {shown}."


def _limits(card: ModelCard) -> list[str]:
    front_end, architecture = card.front_end, card.architecture
    decides = isinstance(architecture, DetectorConfig) and architecture.nested < 1
    return [
        f"Hears {front_end.low_hz:g}–{front_end.high_hz:g} Hz; recordings are resampled to {front_end.sample_rate} Hz.",
        f"Looks at {front_end.chunk_s:g} s at a time; longer calls are put together from pieces.",
        f"Boxes are no finer than {1000 * front_end.hop_s:g} ms by a mel bin; they say where a sound is, not what.",
        *(
            ["Where one box lies inside another, it gives only the better of the two: a phrase or its notes."]
            if decides
            else []
        ),
        "Expect fewer hits and more false alarms at sites, seasons and recorders unlike those it was trained on; "
        "check some of them (`mast evaluate`, `mast review`) before counting anything.",
        f"Made with mast {__version__}; read by this version and later ones.",
    ]


def _code(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"
