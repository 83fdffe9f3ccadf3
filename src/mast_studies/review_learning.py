"""What learning while reviewing saves: simulated reviewers go through real detections.

    python -m mast_studies.review_learning --data data/birdeep_am1 data/nbm_xc data/tagus_fish --band tagus_fish=2000 \
        --half nbm_xc=both --out results/review_learning.json

The embedded model searches each set down to a score of 0.1, so that little is missed and much is wrong. A reviewer
knows the expert's boxes: a detection is right if it matches one of them (IoU of one half). Each reviewer works on a
random three quarters of the recordings, so that reviewers differ; intervals are the middle 95 % of them.

Ways to go through the boxes: ``best_score`` (best score first; the rest is ranked by score), ``uncertain`` (scores
nearest to one half first; the rest by score), ``learner`` (what the learner is least sure of first, ranked again after
every ten decisions; the rest by the learner) and ``random_learner`` (at random; the rest by the learner).

``decisions``: how many until the accepted boxes and the best of the rest, wherever the line is drawn best, hold 90 % of
the right boxes at a precision of 95 %. ``kept``: precision and recall after some decisions, if all of the rest that are
more likely right than wrong are kept. ``button``: what the learner decides about the rest after random decisions, with
95 % requested: the share that it promises to be right, the share that is right, and the share of the rest that it
decides about; also the same from the scores alone.

The learner's priors were chosen on simulated recordings and on cr_bats.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mast.arrays import BoolArray, FloatArray, IntArray, Vectors
from mast.detect_options import DetectOptions
from mast.errors import MastError
from mast.events import boxes_of, match_boxes
from mast.grid import FrontEnd
from mast.inference import Detector, Source
from mast.retrieval.nearest import to_unit_length
from mast.review.box_classifier import (
    build_features,
    fit_logit_calibration,
    fit_scaling,
    fit_weights,
    held_out_logits,
    verdicts,
)
from mast_studies.record import write_result
from mast_studies.script import run_script
from mast_studies.zero_shot_sets import LabelledSet, load_set, parse_pairs

THRESHOLD = 0.1
REVIEWERS = 40
SHARE = 0.75  # of the recordings that a reviewer works on
DECISIONS_PER_RANKING = 10  # decisions between two rankings
PRECISION, RECALL = 0.95, 0.9
CHECKPOINTS = (80, 120, 160)  # decisions after which results are measured
MIN_REST = 30  # boxes; a share of fewer would mean little


@dataclass(frozen=True)
class DetectedBoxes:
    """The detections that a reviewer decides about."""

    scores: FloatArray
    features: Vectors  # (n, F) the learner's features
    score_features: Vectors  # the same without the vectors
    right: BoolArray
    recordings: IntArray

    def subset(self, rows: IntArray) -> DetectedBoxes:
        """Some of them."""
        return DetectedBoxes(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


Rank = Callable[[IntArray], FloatArray]  # decided boxes → logits of all


def search_set(labelled_set: LabelledSet) -> DetectedBoxes:
    """What the embedded model finds in a set, and which detections are right."""
    band_hz = None if labelled_set.band_hz == FrontEnd().high_hz else labelled_set.band_hz
    detector = Detector(
        "default", DetectOptions(device="cpu", threshold=THRESHOLD, band_hz=band_hz, embed=True)
    )
    files = [str(file) for file in labelled_set.dataset.recordings["file"]]
    scores, vectors, right, recordings = [], [], [], []
    for k, outcome in enumerate(
        detector.outcomes([Source(labelled_set.dataset.path(file), file) for file in files])
    ):
        if outcome.error or outcome.embeddings is None:
            raise MastError(outcome.error or f"{outcome.source.path}: no vectors")
        truth = labelled_set.truth[labelled_set.truth["recording"] == files[k]]
        hit = np.zeros(len(outcome.events), dtype=bool)
        hit[match_boxes(boxes_of(truth), boxes_of(outcome.events), outcome.events["score"]).prediction] = True
        scores.append(outcome.events["score"].to_numpy(dtype=np.float64))
        vectors.append(to_unit_length(outcome.embeddings))
        right.append(hit)
        recordings.append(np.full(len(hit), k))
    stacked, found = np.concatenate(vectors), np.concatenate(scores)
    nothing = np.zeros((len(found), 1), np.float32)
    return DetectedBoxes(
        found,
        build_features(stacked, found, fit_scaling(stacked)),
        build_features(nothing, found, fit_scaling(nothing)),
        np.concatenate(right),
        np.concatenate(recordings),
    )


def reaches_targets(boxes: DetectedBoxes, decided: IntArray, z: FloatArray) -> bool:
    """Whether some threshold on the rest gives the recall and precision that are sought."""
    accepted = int(boxes.right[decided].sum())
    rest = np.setdiff1d(np.arange(len(z)), decided)
    order = rest[np.argsort(-z[rest], kind="stable")]
    right = accepted + np.concatenate([[0], np.cumsum(boxes.right[order])])
    kept = accepted + np.arange(len(order) + 1)
    fine = (right >= RECALL * boxes.right.sum()) & (right >= PRECISION * kept)
    return bool(fine.any())


def simulate_review(
    boxes: DetectedBoxes, way: str, rng: np.random.Generator
) -> tuple[int, dict[int, tuple[float, float]]]:
    """Decisions until the targets are reached; precision and recall of what is kept at each checkpoint."""
    n = len(boxes.right)
    learns = way in ("learner", "random_learner")
    vectors = boxes.features if learns else boxes.score_features
    shuffled = rng.permutation(n)
    fixed = {
        "best_score": np.argsort(-boxes.scores, kind="stable"),
        "uncertain": np.argsort(np.abs(boxes.scores - 0.5), kind="stable"),
        "random_learner": shuffled,
    }
    decided = np.zeros(0, dtype=np.int64)
    needed: int | None = None
    after: dict[int, tuple[float, float]] = {}
    while True:
        z = vectors @ fit_weights(vectors[decided], boxes.right[decided])
        if needed is None and reaches_targets(boxes, decided, z if learns else boxes.scores):
            needed = len(decided)
        if len(decided) in CHECKPOINTS:
            kept = z > 0
            kept[decided] = boxes.right[decided]
            hits = (kept & boxes.right).sum()
            after[len(decided)] = (float(hits / max(1, kept.sum())), float(hits / boxes.right.sum()))
        if len(decided) == n or (needed is not None and len(decided) >= max(CHECKPOINTS)):
            return n if needed is None else needed, after
        order = fixed[way] if way in fixed else np.argsort(np.abs(z), kind="stable")
        decided = np.concatenate([decided, order[~np.isin(order, decided)][:DECISIONS_PER_RANKING]])


def press_button(boxes: DetectedBoxes, decided: IntArray, vectors: Vectors) -> dict[str, float] | None:
    """What the button does after some decisions: shares promised, right and decided; None if too little is left."""
    rest = np.setdiff1d(np.arange(len(boxes.right)), decided)
    if len(rest) < MIN_REST:
        return None
    known = boxes.right[decided]
    calibration = fit_logit_calibration(
        held_out_logits(vectors[decided], known, np.arange(len(decided))), known
    )
    p = calibration.probability(vectors[rest] @ fit_weights(vectors[decided], known))
    accepted, rejected, promised = verdicts(p, PRECISION)
    is_decided = accepted | rejected
    return {
        "decided": float(is_decided.sum()),
        "promised": promised,
        "right": float((accepted == boxes.right[rest])[is_decided].sum()),
        "rest": float(len(rest)),
    }


def simulate_buttons(
    boxes: DetectedBoxes, rng: np.random.Generator
) -> dict[tuple[str, int], dict[str, float]]:
    """The button after random decisions, with the vectors and with the scores alone."""
    order = rng.permutation(len(boxes.right))
    found = {}
    for count in CHECKPOINTS:
        for name, vectors in (("learner", boxes.features), ("score_alone", boxes.score_features)):
            done = press_button(boxes, order[:count], vectors)
            if done is not None:
                found[name, count] = done
    return found


def mean_and_interval(values: list[float]) -> dict[str, Any]:
    """Mean over reviewers, and the middle 95 % of them."""
    low, high = np.percentile(values, [2.5, 97.5]).tolist()
    return {"mean": round(float(np.mean(values)), 4), "interval": [round(low, 4), round(high, 4)]}


def pool_presses(done: list[dict[str, float]]) -> dict[str, Any]:
    """Shares pooled over all reviewers."""
    total = {name: sum(one[name] for one in done) for name in done[0]}
    shares = [one["right"] / one["decided"] for one in done if one["decided"]]
    return {
        "promised": round(total["promised"] / total["decided"], 4) if total["decided"] else None,
        "right": round(total["right"] / total["decided"], 4) if total["decided"] else None,
        "right_interval": mean_and_interval(shares)["interval"] if shares else None,
        "share_decided": round(total["decided"] / total["rest"], 4),
        "reviewers": len(done),
    }


WAYS = ("best_score", "uncertain", "learner", "random_learner")


def measure(boxes: DetectedBoxes, seed: int) -> dict[str, Any]:
    """All figures of one set."""
    needed: dict[str, list[float]] = {way: [] for way in WAYS}
    kept: dict[str, dict[int, list[tuple[float, float]]]] = {
        way: {n: [] for n in CHECKPOINTS} for way in WAYS
    }
    pressed: dict[tuple[str, int], list[dict[str, float]]] = {}
    sizes = []
    everywhere = np.unique(boxes.recordings)
    for reviewer in range(REVIEWERS):
        rng = np.random.default_rng([seed, reviewer])
        own = rng.choice(everywhere, round(SHARE * len(everywhere)), replace=False)
        part = boxes.subset(np.flatnonzero(np.isin(boxes.recordings, own)))
        sizes.append(float(len(part.right)))
        for way in WAYS:
            count, after = simulate_review(part, way, rng)
            needed[way].append(count)
            for n, values in after.items():
                kept[way][n].append(values)
        for key, done in simulate_buttons(part, rng).items():
            pressed.setdefault(key, []).append(done)
    saved = [a - b for a, b in zip(needed["best_score"], needed["learner"], strict=True)]
    return {
        "boxes": len(boxes.right),
        "right": int(boxes.right.sum()),
        "recordings": len(everywhere),
        "boxes_a_reviewer": mean_and_interval(sizes),
        "decisions": {way: mean_and_interval(values) for way, values in needed.items()},
        "saved_against_best_score": {
            **mean_and_interval(saved),
            "share": round(sum(saved) / sum(needed["best_score"]), 4),
            "reviewers_who_save": sum(value > 0 for value in saved),
        },
        "kept": {
            way: {
                str(n): {
                    "precision": mean_and_interval([a for a, _ in own]),
                    "recall": mean_and_interval([b for _, b in own]),
                }
                for n, own in after.items()
                if len(own) == REVIEWERS
            }
            for way, after in kept.items()
        },
        "button": {
            name: {str(n): pool_presses(pressed[name, n]) for n in CHECKPOINTS if (name, n) in pressed}
            for name in ("learner", "score_alone")
        },
    }


def main() -> None:
    """Read the options, measure, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="datasets with boxes")
    parser.add_argument("--band", action="append", default=[], help="NAME=HZ, where it is not 8 kHz")
    parser.add_argument("--half", action="append", default=[], help="NAME=first, second or both")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    bands = {name: float(value) for name, value in parse_pairs(options.band)}
    figures: dict[str, Any] = {
        "threshold": THRESHOLD,
        "reviewers": REVIEWERS,
        "share_of_recordings": SHARE,
        "ranked_again_after": DECISIONS_PER_RANKING,
        "sought": {"precision": PRECISION, "recall": RECALL},
        "sets": {},
    }
    about = {}
    for folder in options.data:
        own = load_set(folder, bands_hz=bands, halves=dict(parse_pairs(options.half)))
        about[own.name] = own.about()
        found = measure(search_set(own), options.seed)
        figures["sets"][own.name] = found
        print(
            own.name,
            {way: one["mean"] for way, one in found["decisions"].items()},
            found["button"],
            flush=True,
        )
    write_result(options.out, figures, seed=options.seed, data=about)


if __name__ == "__main__":
    run_script(main)
