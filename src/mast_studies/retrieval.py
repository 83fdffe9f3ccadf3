"""How well box embeddings name sounds: Top-1, Top-5, mean rank, for annotated and for detected boxes.

    python -m mast_studies.retrieval --data data/nbm_xc data/tagus_fish --model runs/birds --out results/retrieval.json

As in the paper's retrieval table. *Oracle*: each annotated box looks for its nearest neighbours among the annotated
boxes. *Detected*: each detection that matches an annotated box (IoU ≥ 0.5 on the model's grid) takes that box's label,
and looks for its neighbours among the annotated boxes. Boxes of the query's own recording never answer in the main
figures; ``same_recording_too`` lets them. Intervals (95 %) draw recordings.

Four ways to compare boxes, in the same run on the same queries: the encoder's features inside the box; the projection
of the contrastive head; the baseline, statistics of the mel spectrogram inside the box (mean and deviation of each
bin, length, band; each standardised); and the vector that ``mast embed`` keeps: the encoder's features followed by
simple statistics of the box (``mast.models.box_vectors``). ``differences`` are from the baseline, paired.

Sets are read whole. For ``nbm_xc`` that includes the half that ``zero_shot.py`` keeps for the end, so ``detection``
covers that half, too: do not look at it while a model is being made (docs/zero_shot.md, "The second half").

``--band tagus_fish=2000`` shows that dataset to the model at another band, as if the tape were played at another speed.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mast.audio import DamagedAudioWarning
from mast.data import Dataset, load_dataset
from mast.detect_options import DetectOptions
from mast.errors import AudioError
from mast.evaluation import Scoring
from mast.evaluation.outcome import match_scene
from mast.evaluation.scene import build_scene
from mast.events import boxes_of
from mast.inference import Detector, Source
from mast.models.card import WEIGHTS, load_card
from mast.models.checkpoint import update_card
from mast.retrieval.embedding import BoxEmbedder
from mast_studies.mel_statistics import box_statistics, standardise
from mast_studies.ranks import LabelledVectors, Ranks, paired_difference, rank_queries
from mast_studies.record import write_result
from mast_studies.script import run_script

BASELINE = "mel statistics"
VECTOR = "vector"
WAYS = ("encoder", "projection", BASELINE, VECTOR)


class EmbeddedBoxes(NamedTuple):
    """Boxes, and each way to compare them."""

    events: pd.DataFrame
    vectors: dict[str, NDArray[np.float32]]  # way → (N, …)

    def for_ranking(self, way: str, reference: EmbeddedBoxes) -> LabelledVectors:
        """One way's vectors for the ranking; the baseline is standardised by ``reference``."""
        vectors = self.vectors[way]
        if way == BASELINE:
            vectors = standardise(vectors, reference.vectors[way])
        return LabelledVectors(vectors, list(self.events["label"]), list(self.events["recording"]))


def embed(embedder: BoxEmbedder, dataset: Dataset, events: pd.DataFrame) -> EmbeddedBoxes:
    """Every way of comparing, for boxes of a dataset; those outside the model's band are left out."""
    tables: list[pd.DataFrame] = []
    parts: dict[str, list[NDArray[np.float32]]] = {way: [] for way in WAYS}
    for name, mine in events.groupby("recording", sort=False):
        path, boxes = dataset.path(str(name)), boxes_of(mine)
        try:
            made = embedder.embed_boxes(path, boxes)
            statistics = box_statistics(embedder, path, boxes)
        except AudioError as error:
            print(f"left out: {error}", flush=True)
            continue
        tables.append(mine[made.seen])
        parts["encoder"].append(made.vectors[made.seen, : embedder.chunk_width])
        parts[VECTOR].append(made.vectors[made.seen])
        if made.projections is not None:
            parts["projection"].append(made.projections[made.seen])
        parts[BASELINE].append(statistics[made.seen])
    vectors = {way: np.concatenate(some) for way, some in parts.items() if some}
    return EmbeddedBoxes(pd.concat(tables, ignore_index=True), vectors)


def detect_matched(detector: Detector, dataset: Dataset) -> tuple[pd.DataFrame, dict[str, int]]:
    """Detections that match an annotated box, with its label, and how many there were."""
    labelled = dataset.annotations
    sources = [Source(dataset.path(name), name, dataset.root) for name in dataset.reviewed_recordings]
    tables = [outcome.events for outcome in detector.outcomes(sources) if not outcome.error]
    found = pd.concat(tables, ignore_index=True)
    scoring = Scoring(front_end=detector.card.front_end)
    scene = build_scene(labelled.events, found, reviewed=labelled.reviewed, scoring=scoring)
    matched = match_scene(scene)
    by_score = np.argsort(-scene.scores, kind="stable")  # the order of the outcome
    rows = scene.predictions.row[by_score[matched.hit]]
    truths = scene.truth.row[matched.truth[matched.hit]]
    events = found.iloc[rows].reset_index(drop=True)
    events["label"] = labelled.events["label"].to_numpy()[truths]
    counts = {"detections": len(found), "matched": len(events), "annotated": len(labelled.events)}
    return events[events["label"] != ""].reset_index(drop=True), counts


def compare(
    queries: EmbeddedBoxes, gallery: EmbeddedBoxes | None, *, resamples: int, seed: int
) -> dict[str, Any]:
    """Every way on the same queries, and the differences to the baseline."""
    answers = queries if gallery is None else gallery
    figures: dict[str, Any] = {}
    ranks: dict[str, Ranks] = {}
    for way in queries.vectors:
        ask, answer = queries.for_ranking(way, answers), answers.for_ranking(way, answers)
        for other_recordings in (True, False):
            ranked = rank_queries(ask, None if gallery is None else answer, other_recordings=other_recordings)
            summary = ranked.summary(resamples=resamples, seed=seed)
            if other_recordings:
                figures[way], ranks[way] = summary, ranked
            else:
                figures[way]["same_recording_too"] = {
                    name: summary[name]
                    for name in ("n_queries", "top1", "top5", "mean_rank", "mean_label_rank")
                }
    figures["differences"] = {
        way: paired_difference(ranks[BASELINE], ranks[way], resamples=resamples, seed=seed)
        for way in ranks
        if way != BASELINE
    }
    return figures


def load(model: Path, band_hz: float | None, options: argparse.Namespace) -> Detector:
    """The detector, at another band where one is given."""
    with tempfile.TemporaryDirectory() as temporary:
        if band_hz is not None:
            found = next(folder for folder in (model, model / "best") if (folder / WEIGHTS).is_file())
            model = Path(shutil.copytree(found, Path(temporary) / "model"))
            card = load_card(model)
            update_card(model, card.model_copy(update={"front_end": card.front_end.at_band(band_hz)}))
        return Detector(model, DetectOptions(device=options.device, threshold=options.threshold))


def main() -> None:
    """Read the options, measure, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", type=Path, required=True, help="datasets with labelled boxes")
    parser.add_argument(
        "--model", nargs="+", type=Path, required=True, help="one for all, or one for each dataset"
    )
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--band", action="append", default=[], help="upper edge of a dataset's band: NAME=HZ")
    parser.add_argument("--threshold", type=float, help="of detected boxes; the model's own by default")
    parser.add_argument("--device")
    parser.add_argument("--resamples", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    models = options.model * len(options.data) if len(options.model) == 1 else options.model
    if len(models) != len(options.data):
        parser.error(f"{len(options.model)} models given for {len(options.data)} datasets")
    bands_hz = {name: float(value) for name, value in (given.split("=", 1) for given in options.band)}
    figures: dict[str, Any] = {}
    data: dict[str, Any] = {}
    for folder, model in zip(options.data, models, strict=True):
        detector = load(model, bands_hz.get(folder.name), options)
        embedder, dataset = BoxEmbedder(detector), load_dataset(folder)
        labelled = dataset.annotations.events
        truth = embed(embedder, dataset, labelled[labelled["label"] != ""])
        part: dict[str, Any] = {
            "model": detector.model_id,
            "band_hz": [detector.card.front_end.low_hz, detector.card.front_end.high_hz],
            "boxes": len(labelled),
            "outside_the_band": int((labelled["label"] != "").sum() - len(truth.events)),
            "oracle": compare(truth, None, resamples=options.resamples, seed=options.seed),
        }
        found, counts = detect_matched(detector, dataset)
        part["detection"] = {**counts, "threshold": detector.scores.threshold}
        if len(found):
            queries = embed(embedder, dataset, found)
            part["detected"] = compare(queries, truth, resamples=options.resamples, seed=options.seed)
        figures[folder.name] = part
        data[folder.name] = {
            "recordings": len(dataset),
            "trained_on": detector.card.provenance.get("data", "see the model's own card"),
        }
        for setting in ("oracle", "detected"):
            for way in (w for w in WAYS if w in part.get(setting, {})):
                row = part[setting][way]
                print(
                    f"{folder.name:14} {setting:9} {way:15} n {row['n_queries']:5} labels {row['n_labels']:3} "
                    f"top1 {row['top1']:.3f} top5 {row['top5']:.3f} rank {row['mean_rank']:.2f} "
                    f"(chance {row['top1_of_a_random_order']:.3f})",
                    flush=True,
                )
    write_result(options.out, figures, seed=options.seed, data=data)
    print(f"written to {options.out}")


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedAudioWarning)
        run_script(main)
