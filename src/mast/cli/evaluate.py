"""`mast evaluate`: how good a detector's boxes are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from mast.cli.event_files import cut_to_nyquist, front_end_of, read_event_file
from mast.cli.options import Quiet, Seed, count, say, score, upper_edge
from mast.errors import ConfigError, MastError
from mast.wording import counted

if TYPE_CHECKING:
    import pandas as pd

    from mast.annotations.detections import DetectionRun
    from mast.data import Dataset
    from mast.evaluation import Evaluation
    from mast.evaluation.report import Comparison


_LOW_SCORE = 0.05  # our choice: predictions below hardly change AP


class _Truth(NamedTuple):
    """What was boxed, what was listened to and what is known about the recordings; the dataset where there is one."""

    events: pd.DataFrame
    reviewed: pd.DataFrame
    recordings: pd.DataFrame
    dataset: Dataset | None


def evaluate(
    truth: Annotated[
        Path,
        typer.Option(
            "--truth", help="Dataset folder, or annotations in any format that `mast convert` reads."
        ),
    ],
    predictions: Annotated[
        Path,
        typer.Option(
            "--predictions", help="Detections: csv, parquet, any annotation format, or a detect folder."
        ),
    ],
    space: Annotated[
        Literal["grid", "hz"],
        typer.Option(
            "--space", help="Compare boxes on the model's grid (the paper's way) or in seconds × hertz."
        ),
    ] = "grid",
    threshold: Annotated[
        float | None,
        score("--threshold", help="Minimum score of a prediction that counts; all count by default."),
    ] = None,
    tune_split: Annotated[
        str | None,
        typer.Option("--tune-split", help="Take the threshold with the best F1 on this split instead."),
    ] = None,
    split: Annotated[
        str | None, typer.Option("--split", help="Evaluate this split of recordings.csv only.")
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option("--compare", help="A second system's predictions; shows the difference, paired."),
    ] = None,
    band: Annotated[
        float | None,
        upper_edge(
            help="Upper edge of the grid's band; by default the one that detect searched, else 8000.",
        ),
    ] = None,
    iou: Annotated[float, score("--iou", help="Minimum overlap (IoU) for a match.")] = 0.5,
    resamples: Annotated[int, count("--resamples", low=0, help="Bootstrap resamples of recordings.")] = 1_000,
    as_json: Annotated[bool, typer.Option("--json", help="Everything as JSON on stdout.")] = False,
    quiet: Quiet = False,
    seed: Seed = 0,
) -> None:
    """Score detections: precision, recall, F1, average precision, mean IoU and calibration, with 95 % intervals.

    Only what somebody listened to is judged: predictions in other recordings are counted and ignored, but false
    alarms count in recordings that were found to be empty. Boxes are cut to half the sample rate of their recording.
    Precision, recall, F1 and mean IoU use the predictions at or above the threshold; average precision and
    calibration use all, so search with mast detect --threshold 0.01 for these. What cannot be computed (precision
    without predictions, say) is null.

    \b
    Example:
      mast evaluate --truth dataset/ --predictions detections.csv --threshold 0.3 --json
    """
    import json
    import warnings

    from mast.data.band_filter import band_warning
    from mast.evaluation import Scoring, best_threshold
    from mast.evaluation import compare as compare_systems
    from mast.evaluation import evaluate as evaluate_system
    from mast.events import boxes_of
    from mast.grid import FrontEnd, in_band

    if threshold is not None and tune_split is not None:
        raise ConfigError("--threshold and --tune-split both choose the threshold; give one of them")
    paths = [predictions] if compare is None else [predictions, compare]
    front_end = front_end_of(band, *paths) or FrontEnd()
    scoring = Scoring(space, front_end, iou)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        full_truth = _read_truth(truth, quiet)
        part = _select_split(full_truth, split, truth)
        systems = [_read_predictions(path, full_truth, truth, quiet) for path in paths]
        thresholds = [threshold for _ in systems]
        if tune_split is not None:
            tuning = _select_split(full_truth, tune_split, truth)
            tuned = [
                best_threshold(
                    tuning.events,
                    _without_other_parts(system, full_truth, tuning),
                    reviewed=tuning.reviewed,
                    scoring=scoring,
                )
                for system in systems
            ]
            thresholds = [t.value for t in tuned]
        judged = [_without_other_parts(system, full_truth, part) for system in systems]
        options: dict[str, Any] = {"reviewed": part.reviewed, "scoring": scoring, "resamples": resamples}
        result: Evaluation | Comparison
        if len(judged) == 1:
            result = evaluate_system(part.events, judged[0], threshold=thresholds[0], seed=seed, **options)
        else:
            first, second = thresholds
            result = compare_systems(part.events, *judged, thresholds=(first, second), seed=seed, **options)
    for warning in caught:
        if issubclass(warning.category, UserWarning):
            say(f"mast: warning: {warning.message}", quiet=quiet)
    for caveat in _caveats(paths, part, truth):
        say(f"mast: warning: {caveat}", quiet=quiet)
    if full_truth.dataset is None and not len(full_truth.reviewed):
        say(f"{truth} does not say what was listened to: only recordings with boxes are judged", quiet=quiet)
    outside_band = band_warning(part.events, front_end, "truth boxes") if space == "grid" else ""
    if outside_band and not in_band(boxes_of(part.events), front_end).any():
        raise ConfigError(
            f"{truth}: all {len(part.events):,} truth boxes lie outside the band of {front_end.low_hz:g}–"
            f"{front_end.high_hz:g} Hz, so there is nothing to compare; they reach up to "
            f"{part.events['high_hz'].max():g} Hz: give --band, or --space hz"
        )
    if outside_band:
        say(f"mast: warning: {truth}: {outside_band}", quiet=quiet)
    plain = result.as_dict()
    typer.echo(json.dumps(plain, indent=2, allow_nan=False) if as_json else "\n".join(_result_lines(plain)))


def _read_truth(path: Path, quiet: bool) -> _Truth:
    """A dataset folder, or annotations in any format, in the band of their recordings."""
    from mast.annotations import read_annotations
    from mast.audio import find_recordings
    from mast.data import load_dataset

    dataset = None
    if path.is_dir() and find_recordings(path):  # tables alone may have a recordings.csv, too
        # boxes in another format may be next to the recordings
        dataset = load_dataset(path, annotations=None if (path / "boxes.csv").is_file() else path)
    found = (
        cut_to_nyquist(read_annotations(path), "truth boxes", path, quiet=quiet)
        if dataset is None
        else dataset.annotations  # cut on loading
    )
    return _Truth(found.events, found.reviewed, found.recordings, dataset)


def _read_predictions(path: Path, truth: _Truth, truth_path: Path, quiet: bool) -> pd.DataFrame:
    """Events of a detector, under the truth's names for recordings where it has them, in their band."""
    from mast.annotations import AnnotationSet
    from mast.evaluation.scene import align_recordings

    events = read_event_file(path, None if truth.dataset is None else truth.recordings).events
    names = align_recordings(events["recording"], _known_recordings(truth))
    # detect may have searched recordings of the truth and found nothing in them
    if (
        len(events)
        and not names
        and not align_recordings(_searched_recordings(path), _known_recordings(truth))
    ):
        raise ConfigError(
            f"{path}: none of its recordings (the first: {events['recording'].iloc[0]}) is in {truth_path}, so there "
            "is nothing to compare; give detections for the same recordings"
        )
    events = events.assign(recording=[names.get(name, name) for name in events["recording"]])
    known = AnnotationSet(events, recordings=truth.recordings)
    return cut_to_nyquist(known, "predicted boxes", path, quiet=quiet).events


def _searched_recordings(path: Path) -> list[str]:
    """Recordings that detect has searched for this folder; none where it is not one of detect's."""
    from mast.annotations.detections import DONE, marks

    return [name for name, _ in marks(path, DONE)] if path.is_dir() else []


def _caveats(paths: Sequence[Path], part: _Truth, truth_path: Path) -> Iterator[str]:
    """Why the figures of these predictions may be better or worse than the detector is, in words."""
    from mast.annotations.detections import find_run

    runs = {path: find_run(path) for path in paths}
    for path, run in runs.items():
        known = "" if run is None else _training_caveat(run, part, truth_path)
        yield from filter(None, (_unsearched_caveat(path, part, truth_path), known))
    yield from _threshold_caveats(runs)


def _unsearched_caveat(path: Path, part: _Truth, truth_path: Path) -> str:
    """How many recordings with truth boxes detect has not searched, in words; empty where none, or not known."""
    from mast.evaluation.scene import align_recordings

    judged = {*part.events["recording"], *part.reviewed["recording"]}
    searched = _searched_recordings(path)
    left = judged - set(align_recordings(searched, judged).values())
    boxes = int(part.events["recording"].isin(left).sum())
    if not searched or not boxes:
        return ""
    were, their = ("was", "its") if len(left) == 1 else ("were", "their")
    return (
        f"{len(left):,} of the {counted(len(judged), 'recording')} of {truth_path} {were} not searched by {path}; "
        f"{their} {counted(boxes, 'box')} {'counts' if boxes == 1 else 'count'} as missed"
    )


def _training_caveat(run: DetectionRun, part: _Truth, truth_path: Path) -> str:
    """How many recordings the detector was trained on, in words; empty where none, or where that is not known."""
    from mast.models.card import LEARNT_FROM, load_card
    from mast.models.find import find_model

    if part.dataset is None:
        return ""
    try:
        card = load_card(find_model(run.model))
    except MastError:  # it has been moved or deleted
        return ""
    if card.weights_sha256 != run.weights_sha256 or LEARNT_FROM not in card.provenance:
        return ""
    from mast.training.leakage import training_recordings

    known, n = training_recordings(part.dataset, card), len(part.dataset.reviewed_recordings)
    if not known:
        return ""
    return (
        f"{run.model} was trained on {len(known):,} of the {counted(n, 'recording')} of {truth_path}, so the figures "
        "look too good; split.csv in its run folder lists the parts: copy them to the column split of recordings.csv, "
        "and give --split"
    )


def _threshold_caveats(runs: Mapping[Path, DetectionRun | None]) -> Iterator[str]:
    """Where detect left out scores that average precision needs, in words."""
    kept = {path: run.threshold for path, run in runs.items() if run and run.threshold is not None}
    if max(kept.values(), default=0.0) <= _LOW_SCORE:
        return
    if len(set(kept.values())) > 1:
        (a, from_a), (b, from_b) = kept.items()
        yield (
            f"mast detect kept events from score {from_a:.2f} up in {a} and from {from_b:.2f} up in {b}, so their AP "
            "cannot be compared; search both with --threshold 0.01, into new folders"
        )
        return
    for path, lowest in kept.items():
        yield (
            f"{path}: AP counts events from score {lowest:.2f} up, because mast detect kept no others; for the whole "
            "curve search with --threshold 0.01, into a new folder"
        )


def _known_recordings(truth: _Truth) -> set[str]:
    """Every recording the truth knows about, reviewed or not."""
    named = {*truth.events["recording"], *truth.reviewed["recording"]}
    return named if truth.dataset is None else named | set(truth.dataset.recordings["file"])


def _select_split(truth: _Truth, split: str | None, path: Path) -> _Truth:
    """One split of the truth; all of it without a name."""

    if split is None:
        return truth
    if truth.dataset is None:
        raise ConfigError(
            f"{path}: split {split!r} was requested, but this is not a dataset folder; expected a folder of "
            "recordings with a recordings.csv that has a split column"
        )
    chosen = truth.dataset.select(split=split)
    return _Truth(chosen.annotations.events, chosen.annotations.reviewed, truth.recordings, chosen)


def _without_other_parts(events: pd.DataFrame, full_truth: _Truth, part: _Truth) -> pd.DataFrame:
    """The events, without those in recordings that belong to other parts."""
    return events[~events["recording"].isin(_known_recordings(full_truth) - _known_recordings(part))]


_MEANING = {
    "precision": "share of predictions that are right",
    "recall": "share of truth boxes that were found",
    "f1": "pooled over recordings",
    "f1_macro": "mean over chunks",
    "miou": "mean IoU of matches",
    "f1_time": "time only",
    "f1_iom": "intersection over minimum",
    "ap50": "COCO, 101 points, IoU 0.5",
    "ap50_voc11": "PASCAL VOC, 11 points, IoU 0.5 (the paper's mAP)",
    "ap50_95": "COCO, mean over IoU 0.5–0.95",
    "ece": "expected calibration error",
}


def _result_lines(plain: dict[str, Any]) -> Iterator[str]:
    """The result as lines to read."""
    band = plain["band_hz"]
    where = f"grid of {band[0]:g}–{band[1]:g} Hz" if band else "seconds × hertz"
    yield f"space         {where}; a match needs IoU ≥ {plain['iou_threshold']:g}"
    yield f"recordings    {plain['n_recordings']:,} reviewed"
    yield f"truth         {plain['n_truth']:,} boxes"
    other = plain.get("other")
    for name, system in (("predictions", plain), *([("compared", other)] if other else [])):
        lowest = "" if system["min_score"] is None else f", {system['min_score']:.2f} and up"
        above = f"all scores{lowest}" if system["threshold"] is None else f"score ≥ {system['threshold']:.4g}"
        ignored = f"; {system['n_ignored']:,} ignored where nobody listened" if system["n_ignored"] else ""
        yield f"{name:<13} {system['n_predictions']:,} boxes, {above}{ignored}"
    if plain["n_outside"]:
        yield f"left out      {plain['n_outside']:,} boxes outside the band (--band chooses another)"
    if plain["n_ignored_truth"]:
        yield f"left out      {plain['n_ignored_truth']:,} truth boxes outside the reviewed spans"
    yield ""
    yield from _comparison_rows(plain) if other else _metric_rows(plain)
    yield ""
    for by, groups in plain["recall_by"].items():
        found = [
            f"{g['group']} {_format_number(g['recall'])} of {g['n_truth']:,}" for g in groups if g["n_truth"]
        ]
        if found:
            yield f"recall by {by + ':':<8} {'; '.join(found)}"


def _metric_rows(plain: dict[str, Any]) -> Iterator[str]:
    yield f"{'':<12} {'value':>6}   95 % interval"
    for name, meaning in _MEANING.items():
        interval = _format_interval(plain["intervals"][name])
        yield f"{name:<12} {_format_number(plain[name]):>6}   {interval:<15}  {meaning}"


def _comparison_rows(plain: dict[str, Any]) -> Iterator[str]:
    yield f"{'':<12} {'value':>6} {'compared':>9} {'difference':>11}   95 % interval of the difference"
    for name, meaning in _MEANING.items():
        row = plain["differences"][name]
        change = "–" if row["difference"] is None else f"{row['difference']:+.3f}"
        bounds = _format_interval([row["low"], row["high"]], sign="+")
        values = f"{_format_number(row['a']):>6} {_format_number(row['b']):>9} {change:>11}"
        yield f"{name:<12} {values}   {bounds:<17}  {meaning}"


def _format_number(value: float | None, sign: str = "") -> str:
    return "–" if value is None else f"{value:{sign}.3f}"


def _format_interval(bounds: list[float | None], sign: str = "") -> str:
    if bounds[0] is None:
        return "–"
    return f"{_format_number(bounds[0], sign)} to {_format_number(bounds[1], sign)}"
