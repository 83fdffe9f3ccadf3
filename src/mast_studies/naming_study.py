"""How often a classifier names boxes right, names them wrong, or leaves them unknown, compared with BirdNET alone.

    python -m mast_studies.naming_study --data data/birdeep_am1 data/nbm_xc --clips data/pool --out results/naming.json

Boxes whose label BirdNET knows are named: those that experts drew, and those that the embedded model finds and that
match one of these (IoU of a half). ``birdnet_alone`` is what its users have: the frames of 3 s, side by side, that a
box touches, and the name with the highest score in them. ``around_the_box`` hears 3 s with the box in the middle. The
others are ways of `mast name`: how many windows start within the length of one, how far apart boxes that decide
together may be, and whether only a box's band is heard. The way is chosen on the first half of the recordings, by the
share of an expert's boxes whose likeliest name is right, the mean over the sets; the second half is what is reported.

``--clips`` is a pool with flight calls of warblers (``clo43sd``), at most ten of each species: a box is a clip. Nothing
was chosen on them. They are also named with only their 42 species as possible names.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import mast
from mast.audio import probe, read
from mast.classifiers.birdnet import load_birdnet
from mast.classifiers.box_names import SONG_GAP_S, NamingOptions, name_boxes
from mast.classifiers.classifier import Classifier, Logits
from mast.classifiers.species_lists import scientific_name
from mast.classifiers.window_grid import HOPS, WindowGrid, read_windows
from mast.data.recordings import load_dataset
from mast.evaluation.bootstrap import draw_weights, interval, round_interval
from mast.evaluation.metrics import ratio
from mast.events import as_events, boxes_of, match_boxes
from mast_studies.record import write_result
from mast_studies.script import run_script
from mast_studies.zero_shot_sets import half_of

THRESHOLD = 0.5
RESAMPLES = 2_000
MAX_CLIPS = 10  # of each species
WARBLERS = {
    "AMRE": "Setophaga ruticilla", "BAWW": "Mniotilta varia", "BBWA": "Setophaga castanea",
    "BLBW": "Setophaga fusca", "BLPW": "Setophaga striata", "BTBW": "Setophaga caerulescens",
    "BTNW": "Setophaga virens", "BTYW": "Setophaga nigrescens", "BWWA": "Vermivora cyanoptera",
    "CAWA": "Cardellina canadensis", "CERW": "Setophaga cerulea", "CMWA": "Setophaga tigrina",
    "CONW": "Oporornis agilis", "COYE": "Geothlypis trichas", "CSWA": "Setophaga pensylvanica",
    "GCWA": "Setophaga chrysoparia", "GRWA": "Setophaga graciae", "GWWA": "Vermivora chrysoptera",
    "HEWA": "Setophaga occidentalis", "HOWA": "Setophaga citrina", "KEWA": "Geothlypis formosa",
    "LOWA": "Parkesia motacilla", "LUWA": "Leiothlypis luciae", "MAWA": "Setophaga magnolia",
    "NAWA": "Leiothlypis ruficapilla", "NOPA": "Setophaga americana", "NOWA": "Parkesia noveboracensis",
    "OCWA": "Leiothlypis celata", "OVEN": "Seiurus aurocapilla", "PAWA": "Setophaga palmarum",
    "PIWA": "Setophaga pinus", "PRAW": "Setophaga discolor", "PROW": "Protonotaria citrea",
    "RFWA": "Cardellina rubrifrons", "TEWA": "Leiothlypis peregrina", "TOWA": "Setophaga townsendi",
    "VIWA": "Leiothlypis virginiae", "WEWA": "Helmitheros vermivorum", "WIWA": "Cardellina pusilla",
    "YEWA": "Setophaga petechia", "YRWA": "Setophaga coronata", "YTWA": "Setophaga dominica",
}  # fmt: skip

BoxNamer = Callable[[Path, pd.DataFrame], pd.DataFrame]  # a recording and its boxes → likely, label_score


def cached_classifier(classifier: Classifier) -> Classifier:
    """The same classifier, which hears no window twice, whichever way requests it."""
    known: dict[int, Logits] = {}

    def run(windows: Any) -> Logits:
        for window in windows:
            if (key := hash(window.tobytes())) not in known:
                known[key] = classifier.run(window[None])[0]
        return np.stack([known[hash(window.tobytes())] for window in windows])

    return replace(classifier, run=run)


def birdnet_alone(classifier: Classifier, how: NamingOptions) -> BoxNamer:
    """The best name in the frames, side by side, that a box touches."""

    def name(path: Path, events: pd.DataFrame) -> pd.DataFrame:
        frame_s = classifier.window_s
        duration_s = probe(path).duration_s
        # padded at the end, as in BirdNET: the last frame starts on the same grid as the others
        grid = WindowGrid(frame_s * np.ceil(duration_s / frame_s), frame_s, hops=1)
        rows = []
        for start_s, end_s in zip(events["start_s"], np.minimum(events["end_s"], duration_s), strict=True):
            touched = range(int(start_s / frame_s), min(int(end_s / frame_s), grid.last_window) + 1)
            sounds = read_windows(path, grid, touched, classifier.sample_rate, classifier.window_samples)
            rows.append(classifier.logits(np.stack([s for _, s in sounds]))[:, how.rows].max(axis=0))
        return _best_names(rows, events, how)

    return name


def around_the_box(classifier: Classifier, how: NamingOptions) -> BoxNamer:
    """The name in one window, with the box in its middle."""

    def name(path: Path, events: pd.DataFrame) -> pd.DataFrame:
        last_s = max(0.0, probe(path).duration_s - classifier.window_s)
        rows = []
        for start_s, end_s in zip(events["start_s"], events["end_s"], strict=True):
            begin_s = float(np.clip((start_s + end_s - classifier.window_s) / 2, 0.0, last_s))
            sound = read(
                path,
                start_s=begin_s,
                end_s=begin_s + classifier.window_s,
                sample_rate=classifier.sample_rate,
            )
            filled = np.pad(sound, (0, max(0, classifier.window_samples - len(sound))))
            rows.append(classifier.logits(filled[None, : classifier.window_samples])[0, how.rows])
        return _best_names(rows, events, how)

    return name


def _best_names(rows: list[Logits], events: pd.DataFrame, how: NamingOptions) -> pd.DataFrame:
    logits = np.stack(rows)
    score = 1 / (1 + np.exp(-logits.max(axis=1).astype(np.float64)))
    return pd.DataFrame(
        {"likely": how.rows[logits.argmax(axis=1)], "label_score": score.round(6)}, index=events.index
    )


def box_namers(classifier: Classifier, how: NamingOptions) -> dict[str, BoxNamer]:
    """Everything that is compared."""

    def ours(**changes: Any) -> BoxNamer:
        return lambda path, events: name_boxes(path, events, classifier, replace(how, **changes))

    found = {
        "birdnet_alone": birdnet_alone(classifier, how),
        "around_the_box": around_the_box(classifier, how),
    }
    for hops in (2, 3, 6):
        for gap_s in (-1.0, 3.0, 10.0, 20.0):
            apart = "alone" if gap_s < 0 else f"songs of {gap_s:g} s"
            found[f"{hops} windows, {apart}"] = ours(hops=hops, song_gap_s=gap_s)
    found[f"{HOPS} windows, songs of {SONG_GAP_S:g} s, band"] = ours(band=True)
    return found


def judge_names(
    boxes: pd.DataFrame, paths: dict[str, Path], namer: BoxNamer, classifier: Classifier
) -> pd.DataFrame:
    """``right`` and ``named`` of each box, with its recording."""
    found = pd.concat([namer(paths[str(r)], own) for r, own in boxes.groupby("recording", sort=False)])
    names = [scientific_name(classifier.labels[row]) if row >= 0 else "" for row in found["likely"]]
    right = pd.Series(names, index=found.index) == boxes["label"]
    named = found["label_score"] >= THRESHOLD
    return pd.DataFrame({"recording": boxes["recording"], "right": right, "named": named})


def shares(outcome: pd.DataFrame, seed: int) -> dict[str, Any]:
    """Shares of all boxes with 95 % intervals over recordings."""
    parts = _parts(outcome)
    counts = (
        pd.DataFrame({**parts, "all": True, "named": outcome["named"]}).groupby(outcome["recording"]).sum()
    )
    weights = draw_weights(len(counts), RESAMPLES, seed)
    total = {name: counts[name].to_numpy(dtype=np.float64) for name in counts}
    ratios = {name: (name, "all") for name in parts} | {"right_of_named": ("right", "named")}
    found: dict[str, Any] = {"boxes": len(outcome), "recordings": len(counts)}
    for name, (upper, lower) in ratios.items():
        drawn = ratio(weights @ total[upper], weights @ total[lower])
        whole = total[lower].sum()
        found[name] = round(float(total[upper].sum() / whole), 4) if whole else None
        found[f"{name}_interval"] = round_interval(interval(drawn)) if whole else None
    return found


def difference(ours: pd.DataFrame, theirs: pd.DataFrame, seed: int) -> dict[str, Any]:
    """How much larger our shares of all boxes are, with 95 % intervals over the same draws of recordings."""
    found: dict[str, Any] = {}
    for name, own in _parts(ours).items():
        more = own.astype(int) - _parts(theirs)[name].astype(int)
        counts = more.groupby(ours["recording"]).agg(["sum", "size"]).to_numpy(dtype=np.float64)
        drawn = draw_weights(len(counts), RESAMPLES, seed) @ counts
        found[name] = round(float(more.mean()), 4)
        found[f"{name}_interval"] = round_interval(interval(drawn[:, 0] / drawn[:, 1]))
    return found


def _parts(outcome: pd.DataFrame) -> dict[str, pd.Series[bool]]:
    return {
        "likeliest_right": outcome["right"],
        "right": outcome["right"] & outcome["named"],
        "wrong": ~outcome["right"] & outcome["named"],
        "unknown": ~outcome["named"],
    }


def match_detections(truth: pd.DataFrame, paths: dict[str, Path]) -> pd.DataFrame:
    """What the embedded model finds and an expert has named, with that name."""
    detector = mast.load("default")
    found = []
    for recording, own in truth.groupby("recording", sort=False):
        events = detector.detect(paths[str(recording)]).assign(recording=recording)
        pairs = match_boxes(boxes_of(own), boxes_of(events), events["score"])
        found.append(events.iloc[pairs.prediction].assign(label=own["label"].to_numpy()[pairs.truth]))
    return as_events(pd.concat(found))


def warbler_clips(pool: Path, seed: int) -> tuple[pd.DataFrame, dict[str, Path]]:
    """Some flight calls of each species; the box is the clip."""
    clips = pd.read_csv(pool / "clips.csv")
    clips = clips[clips["source"] == "clo43sd"]
    names = clips["file"].str.split("/").str[-1].str[:4].map(WARBLERS)
    clips = clips.assign(name=names).dropna(subset="name")
    some = clips.sample(frac=1.0, random_state=seed).groupby("name").head(MAX_CLIPS)
    table = {"recording": some["file"], "start_s": 0.0, "end_s": some["duration_s"], "low_hz": 0.0}
    boxes = as_events(pd.DataFrame({**table, "high_hz": 8_000.0, "label": some["name"]}))
    paths = {str(file): pool / str(file) for file in some["file"]}
    return boxes, {file: path if path.is_file() else pool / "audio" / file for file, path in paths.items()}


def measure_sets(folders: list[Path], classifier: Classifier, seed: int) -> dict[str, Any]:
    """The way that the first halves choose, and the results of every way on the second halves."""
    known = {scientific_name(label) for label in classifier.labels}
    compared = box_namers(classifier, NamingOptions(np.arange(len(classifier.labels))))
    chosen_on: dict[str, dict[str, pd.DataFrame]] = {}
    reported: dict[str, dict[str, dict[str, pd.DataFrame]]] = {}
    for folder in folders:
        dataset = load_dataset(folder)
        truth = dataset.annotations.events
        truth = truth[truth["label"].isin(known)].reset_index(drop=True)
        paths = {str(file): dataset.path(str(file)) for file in truth["recording"].unique()}
        first = truth["recording"].isin(half_of(list(paths), "first"))
        detected = match_detections(truth[~first], paths)
        chosen_on[folder.name], experts, found = {}, {}, {}
        for name, way in compared.items():
            outcome = judge_names(truth, paths, way, classifier)
            chosen_on[folder.name][name], experts[name] = outcome[first], outcome[~first]
            found[name] = judge_names(detected, paths, way, classifier)
            print(folder.name, name, round(experts[name]["right"].mean(), 3), flush=True)
        reported[folder.name] = {"boxes of experts": experts, "detected boxes": found}
    ours = [name for name in compared if "windows" in name]
    chosen = max(ours, key=lambda name: np.mean([one[name]["right"].mean() for one in chosen_on.values()]))
    return {
        "chosen_on_the_first_half": chosen,
        "chosen_minus_birdnet_alone": {
            folder: {part: difference(of[chosen], of["birdnet_alone"], seed) for part, of in parts.items()}
            for folder, parts in reported.items()
        },
        "second_half": {
            folder: {part: {way: shares(one, seed) for way, one in of.items()} for part, of in parts.items()}
            for folder, parts in reported.items()
        },
        "first_half": {
            folder: {way: shares(one, seed) for way, one in of.items()} for folder, of in chosen_on.items()
        },
    }


def main() -> None:
    """Read the options, measure, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="datasets with names of species")
    parser.add_argument("--clips", type=Path, help="a pool with clo43sd")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    classifier = cached_classifier(load_birdnet())
    figures: dict[str, Any] = {"classifier": classifier.name, "threshold": THRESHOLD}
    figures |= measure_sets(options.data, classifier, options.seed)
    chosen = figures["chosen_on_the_first_half"]
    if options.clips:
        boxes, paths = warbler_clips(options.clips, options.seed)
        some = [k for k, label in enumerate(classifier.labels) if scientific_name(label) in WARBLERS.values()]
        possible = {"no list": np.arange(len(classifier.labels)), "a list of 42 species": np.array(some)}
        figures["flight calls"] = {
            name: shares(
                judge_names(boxes, paths, box_namers(classifier, NamingOptions(rows))[chosen], classifier),
                options.seed,
            )
            for name, rows in possible.items()
        }
    write_result(options.out, figures, seed=options.seed)
    print("chosen:", chosen)


if __name__ == "__main__":
    run_script(main)
