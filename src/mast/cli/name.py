"""`mast name`: names for boxes from BirdNET or any other classifier."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mast.cli.event_files import check_table, locate_recordings, process_recordings, report_outcome
from mast.cli.options import AudioFolder, BoxesArgument, Quiet, count, number, progress_counter, say, score
from mast.wording import counted, format_names

if TYPE_CHECKING:
    import pandas as pd

    from mast.classifiers.box_names import NamingOptions
    from mast.classifiers.classifier import Classifier
    from mast.classifiers.species_lists import PossibleLabels
    from mast.classifiers.thresholds import NameThresholds
    from mast.reports.contact_sheet import Locate

BIRDNET = "birdnet"
THRESHOLD = 0.5  # our choice; results/naming.json says what it reaches


def name(
    detections: BoxesArgument,
    with_: Annotated[
        str, typer.Option("--with", metavar="birdnet|MODEL", help="birdnet, or a .onnx or .tflite file.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The named boxes: a .csv or .parquet file.")],
    labels: Annotated[
        Path | None, typer.Option(help="Labels of MODEL, one per line in the order of its outputs.")
    ] = None,
    rate: Annotated[
        int | None,
        count("--rate", low=1_000, help="Sample rate that MODEL expects, if its input does not say."),
    ] = None,
    window: Annotated[
        float | None,
        number("--window", low=0.01, high=600.0, help="Seconds per window, if MODEL takes any length."),
    ] = None,
    softmax: Annotated[
        bool, typer.Option("--softmax", help="MODEL gives logits of mutually exclusive classes.")
    ] = False,
    species: Annotated[
        Path | None,
        typer.Option(
            help="List of possible species, one per line, or a .csv with sites and seasons; no other names are given."
        ),
    ] = None,
    threshold: Annotated[float, score(help="Minimum score for a name.")] = THRESHOLD,
    reviewed: Annotated[
        Path | None,
        typer.Option(
            help="Boxes that people named, to choose a threshold per label: a reviewed folder, or any format."
        ),
    ] = None,
    precision: Annotated[float, score(help="Share of names that should be right, with --reviewed.")] = 0.9,
    band: Annotated[bool, typer.Option("--band", help="Let MODEL hear only the band of each box.")] = False,
    common: Annotated[
        bool, typer.Option("--common", help="Use common names where the labels have both.")
    ] = False,
    audio: AudioFolder = None,
    quiet: Quiet = False,
) -> None:
    """Name boxes by what a classifier hears, or call them unknown.

    Each box is classified in windows of the length and sample rate that the classifier expects. Boxes in similar bands
    within twenty seconds of each other are named together. A name whose score is below its threshold is "unknown". With
    --reviewed, labels that people have checked ten times or more get a threshold of their own.

    The table has the event columns, with the name as label; label_score, from 0 to 1; label_source, the classifier;
    likely_label, the likeliest name regardless of score; and given_label, the earlier label. mast convert turns it
    into Raven tables and other formats; mast review --names shows it. The thresholds are written next to it, as
    OUT.calibration.json. Rows whose recording is missing or cannot be read are unknown and have no score.

    BirdNET comes with the birdnet extra; its weights are for non-commercial use (CC BY-NC-SA 4.0).

    Exit code: 0 when all were classified, 4 when some could not be, 2 when none could.

    \b
    Examples:
      mast name detections/ --with birdnet --out named.csv
      mast name detections/ --with birdnet --species birds_here.txt --common --out named.csv
      mast name detections/ --with perch.onnx --labels perch.txt --softmax --out named.csv
    """
    from mast.annotations import read_annotations
    from mast.errors import AnnotationError

    check_table(out)
    classifier = _load_classifier(with_, labels, rate, window, softmax, quiet)
    possible = _possible_species(classifier, species, quiet)
    events = read_annotations(detections).events
    if events.empty:
        raise AnnotationError(f"{detections}: holds no boxes; there is nothing to name")
    if possible is not None:
        _warn_of_unknown_sites(species, possible, events, quiet)
    likeliest, failures = _classify_boxes(
        events, locate_recordings(detections, audio), classifier, possible, band, quiet
    )
    named = _with_likeliest_names(events, likeliest, classifier, common)
    thresholds = _choose_thresholds(named, reviewed, precision, threshold, classifier, common)
    _write_names(named, thresholds, out, with_, species, band)
    report_outcome(f"{_count_sentence(named, thresholds)} → {out}", failures, quiet=quiet)


def _load_classifier(
    with_: str, labels: Path | None, rate: int | None, window: float | None, softmax: bool, quiet: bool
) -> Classifier:
    from mast.classifiers.birdnet import LICENCE, load_birdnet
    from mast.classifiers.classifier import load_classifier
    from mast.errors import ConfigError

    if with_.casefold() == BIRDNET:
        if labels is not None or rate is not None or window is not None or softmax:
            raise ConfigError(
                "--labels, --rate, --window and --softmax are for other classifiers; BirdNET has its own"
            )
        found = load_birdnet()
        say(LICENCE, quiet=quiet)
        return found
    if not Path(with_).is_file():
        raise ConfigError(
            f"--with {with_}: no such classifier or file; expected {BIRDNET}, or a .onnx or .tflite file"
        )
    if labels is None:
        raise ConfigError(f"--with {with_}: give its labels too, --labels FILE with one per line")
    return load_classifier(with_, labels, sample_rate=rate, window_s=window, softmax=softmax)


def _possible_species(classifier: Classifier, species: Path | None, quiet: bool) -> PossibleLabels | None:
    """Which names are possible, where there is a list."""
    from mast.classifiers.species_lists import read_species

    if species is None:
        return None
    possible = read_species(species, classifier.labels)
    if possible.unknown_names:
        some = ", ".join(possible.unknown_names[:3]) + (", …" if len(possible.unknown_names) > 3 else "")
        warning = f"{classifier.name} does not know {len(possible.unknown_names):,} of its names ({some})"
        say(f"mast: warning: {species}: {warning}", quiet=quiet)
    if possible.unused:
        several = len(possible.unused) > 1
        columns = (
            f"{'columns' if several else 'column'} {', '.join(possible.unused)} {'are' if several else 'is'}"
        )
        say(f"mast: warning: {species}: {columns} not used", quiet=quiet)
    return possible


def _warn_of_unknown_sites(
    species: Path | None, possible: PossibleLabels, events: pd.DataFrame, quiet: bool
) -> None:
    """Point out sites of a list that no detection has, perhaps misspelt."""
    known = sorted({str(site) for site in events["site"]} - {""})
    others = [site for site in possible.sites if site not in known]
    if not others:
        return
    which = format_names(known, 3) if known else "they have none"
    say(
        f"mast: warning: {species}: site{'s' if len(others) > 1 else ''} {format_names(others, 3)} "
        f"{'are' if len(others) > 1 else 'is'} not among these detections' sites ({which})",
        quiet=quiet,
    )


def _hearing_options(
    classifier: Classifier, possible: PossibleLabels | None, band: bool, events: pd.DataFrame
) -> NamingOptions:
    """What the classifier hears of a recording, and which names are possible at its site and on its day."""
    import numpy as np

    from mast.classifiers.box_names import NamingOptions
    from mast.errors import ConfigError

    if possible is None:
        return NamingOptions(np.arange(len(classifier.labels)), band)
    recording, site, begin = (str(events[name].iloc[0]) for name in ("recording", "site", "datetime"))
    day = begin[5:10]
    rows = possible.rows(site, day)
    if not len(rows):
        raise ConfigError(
            f"{recording}: the list of species has none for site {site!r} on {day or 'any day'}"
        )
    return NamingOptions(rows, band)


def _classify_boxes(
    events: pd.DataFrame,
    locate: Locate,
    classifier: Classifier,
    possible: PossibleLabels | None,
    band: bool,
    quiet: bool,
) -> tuple[pd.DataFrame, dict[str, str]]:
    """The likeliest name of each box, and why some recordings have none."""
    import pandas as pd

    from mast.classifiers.box_names import name_boxes
    from mast.errors import AudioError

    def work(path: Path, own: pd.DataFrame) -> pd.DataFrame:
        return name_boxes(path, own, classifier, _hearing_options(classifier, possible, band, own))

    with progress_counter(quiet, "name", "boxes", len(events)) as advance:
        found, failures = process_recordings(events, locate, work, advance)
    if not found:
        raise AudioError(
            f"no box could be classified ({len(events):,} tried); {next(iter(failures.values()))}"
        )
    return pd.concat(found), failures


def _with_likeliest_names(
    events: pd.DataFrame, likeliest: pd.DataFrame, classifier: Classifier, common: bool
) -> pd.DataFrame:
    """The events with the likeliest names, regardless of score."""
    from mast.classifiers.species_lists import common_name, scientific_name

    spell = common_name if common else scientific_name
    rows = likeliest["likely"].reindex(events.index, fill_value=-1)
    return events.assign(
        given_label=events["label"],
        likely_label=[spell(classifier.labels[row]) if row >= 0 else "" for row in rows],
        label_score=likeliest["label_score"],
        label_source=classifier.name,
    )


def _choose_thresholds(
    named: pd.DataFrame,
    reviewed: Path | None,
    precision: float,
    threshold: float,
    classifier: Classifier,
    common: bool,
) -> NameThresholds:
    """Thresholds chosen from reviewed boxes, or the same for all."""
    from mast.classifiers.species_lists import match_spelling
    from mast.classifiers.thresholds import NameThresholds, choose_thresholds, match_reviewed_names
    from mast.errors import ConfigError

    if reviewed is None:
        return NameThresholds(threshold)
    expert = _read_reviewed(reviewed)
    expert = expert.assign(label=match_spelling(expert["label"].tolist(), classifier.labels, common=common))
    rows, truth = match_reviewed_names(named, expert)
    if not len(rows):
        raise ConfigError(
            f"--reviewed {reviewed}: none of its {len(expert):,} boxes matches one that is to be named; expected "
            "reviewed boxes of the same recordings"
        )
    own = named.iloc[rows]
    return choose_thresholds(
        own["likely_label"].tolist(), own["label_score"], truth, precision=precision, default=threshold
    )


def _read_reviewed(path: Path) -> pd.DataFrame:
    """Boxes with the names that people gave; those that they rejected have none."""
    from mast.annotations import read_annotations
    from mast.review.export_review import decided_boxes
    from mast.review.store import STORE

    if (path / STORE).is_file():
        return decided_boxes(path / STORE)
    events = read_annotations(path).events
    return events[events["label"] != ""]


def _write_names(
    named: pd.DataFrame,
    thresholds: NameThresholds,
    out: Path,
    with_: str,
    species: Path | None,
    band: bool,
) -> None:
    """Write the table, and next to it what its names depend on."""
    from dataclasses import asdict

    import numpy as np

    from mast.files import write_json
    from mast.retrieval.naming import UNKNOWN
    from mast.table_files import write_table

    believed = thresholds.accepts(named["likely_label"].tolist(), named["label_score"])
    table = named.assign(label=np.where(believed, named["likely_label"], UNKNOWN))
    write_table(out, table)
    content = {"with": with_, "species": None if species is None else str(species), "band": band}
    content |= asdict(thresholds)
    calibration_file = out.with_name(f"{out.name}.calibration.json")
    write_json(calibration_file, content)


def _count_sentence(named: pd.DataFrame, thresholds: NameThresholds) -> str:
    believed = thresholds.accepts(named["likely_label"].tolist(), named["label_score"])
    labels = named.loc[believed, "likely_label"].nunique()
    sentence = (
        f"{int(believed.sum()):,} of {counted(len(named), 'box')} named ({counted(labels, 'different name')}), "
        "the others unknown"
    )
    if thresholds.precision is not None:
        n_labels = len(thresholds.by_label)
        sentence += (
            f"; {counted(thresholds.reviewed, 'reviewed box')} gave {counted(n_labels, 'label')} a threshold of "
            f"{'its' if n_labels == 1 else 'their'} own, the others have {thresholds.default:g}"
        )
    return sentence
