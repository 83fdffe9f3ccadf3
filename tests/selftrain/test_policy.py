from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from toy_recipe import FRONT_END

from mast.arrays import FloatArray
from mast.errors import ConfigError
from mast.evaluation.part_tables import PartTables
from mast.events import as_events, pairwise_iou
from mast.grid import FrontEnd
from mast.models.decode import Detections, select_boxes
from mast.probability import Calibration
from mast.selftrain import pseudo
from mast.selftrain.policy import Trust, measure_trust, recording_thresholds
from mast.training.recipe import SelfTrainRecipe, load_recipe


def lowest_threshold(
    scores: FloatArray, chances: FloatArray, *, min_threshold: float, max_threshold: float, precision: float
) -> float:
    """Try every threshold from below, for one recording."""
    for threshold in [min_threshold, *sorted(s for s in scores if s > min_threshold)]:
        if threshold > max_threshold:
            break
        if chances[scores >= threshold].mean() >= precision:
            return threshold
    return max_threshold


def test_thresholds_against_every_threshold_tried() -> None:
    rng = np.random.default_rng(0)
    for trial in range(60):
        scores = rng.uniform(0.1, 1, 40).round(1 if trial % 2 else 3)  # with and without equals
        chances = Calibration(method="platt", slope=rng.uniform(0.5, 2), intercept=rng.normal()).apply(
            scores.clip(0.001, 0.999)
        )
        recordings = rng.integers(0, 8, 40)
        limits = {
            "min_threshold": 0.1,
            "max_threshold": float(rng.uniform(0.1, 0.8)),
            "precision": float(rng.uniform(0.2, 0.9)),
        }
        found = recording_thresholds(scores, chances, recordings, **limits)
        for number in np.unique(recordings):
            own = recordings == number
            expected = lowest_threshold(scores[own], chances[own], **limits)
            assert len(set(found[own])) == 1
            kept, meant = scores[own] >= found[own][0], scores[own] >= expected
            assert kept.tolist() == meant.tolist()
            assert 0.1 <= found[own][0] <= limits["max_threshold"]


def test_doubtful_recordings_lose_their_doubtful_boxes() -> None:
    scores = np.array([0.9, 0.2, 0.2, 0.7])
    found = recording_thresholds(
        scores, scores, [0, 0, 1, 1], min_threshold=0.1, max_threshold=0.5, precision=0.5
    )
    assert found.tolist() == [
        0.1,
        0.1,
        0.5,
        0.5,
    ]  # 0.55 is enough; 0.45 is not, and 0.7 lies beyond the limit
    # what the detector would report by itself stays, however doubtful
    assert recording_thresholds(
        [0.6], [0.1], [0], min_threshold=0.1, max_threshold=0.5, precision=0.9
    ).tolist() == [0.5]
    assert recording_thresholds([], [], [], min_threshold=0.1, max_threshold=0.5, precision=0.9).shape == (0,)


def boxes_at(starts: list[float], **columns: Any) -> pd.DataFrame:
    table = pd.DataFrame({"recording": "a", "start_s": starts, "low_hz": 500.0, "high_hz": 900.0})
    return as_events(table.assign(end_s=table["start_s"] + 1, **columns))


def test_trust_is_learnt_on_validation() -> None:
    rng = np.random.default_rng(1)
    starts = (np.arange(200) * 2.0).tolist()
    score = rng.uniform(0.1, 1, 200)
    right = rng.uniform(size=200) < score
    reviewed = pd.DataFrame({"recording": ["a"], "start_s": 0.0, "end_s": np.inf})
    truth = boxes_at([s for s, r in zip(starts, right, strict=True) if r])
    held = PartTables(truth, boxes_at(starts, score=score), reviewed, FrontEnd())
    trust = measure_trust(held)
    assert trust is not None
    assert trust.precision == pytest.approx(right.mean())
    assert trust.calibration.apply(score).mean() == pytest.approx(right.mean(), abs=0.01)
    assert measure_trust(replace(held, found=boxes_at([]))) is None


def naive_operator(boxes: FloatArray, scores: FloatArray, q: float, recipe: SelfTrainRecipe) -> list[int]:
    """Π_q of one chunk, box by box."""
    kept: list[int] = []
    for k in np.argsort(-scores):
        overlaps = [pairwise_iou(boxes[k], boxes[j])[0, 0] > recipe.nms_iou for j in kept]
        if scores[k] >= q and not any(overlaps):
            kept.append(int(k))
    frames = FRONT_END.chunk_frames

    def valid(k: int) -> bool:
        t1, f1, t2, f2 = boxes[k]
        whole = t2 > recipe.border_frames and t1 < frames - recipe.border_frames
        return bool(t2 - t1 >= recipe.min_frames and f2 - f1 >= recipe.min_bins and whole)

    return [k for k in kept if valid(k)]


class AnyDetector:
    """Random boxes for each chunk, thresholded and suppressed as the real one's."""

    front_end = FRONT_END

    def __init__(self, n_chunks: int) -> None:
        rng = np.random.default_rng(2)
        start = rng.uniform([-20, 0], [250, 60], (n_chunks, 60, 2))
        size = rng.uniform([2, 1], [80, 20], (n_chunks, 60, 2))
        frame = [FRONT_END.chunk_frames, FRONT_END.n_bins] * 2
        self.boxes = np.clip(np.concatenate([start, start + size], axis=2), 0, frame)
        scores = rng.uniform(0.02, 0.98, (n_chunks, 60)) ** np.linspace(0.5, 4, n_chunks)[:, None]
        self.scores = scores.astype(np.float32).astype(np.float64)

    def detect(self, rows: torch.Tensor, *, score_threshold: float, nms_iou: float) -> list[Detections]:
        return select_boxes(
            torch.from_numpy(self.boxes)[rows].float(),  # as a model gives them
            torch.from_numpy(self.scores)[rows].float(),
            chunk=(FRONT_END.chunk_frames, FRONT_END.n_bins),
            score_threshold=score_threshold,
            nms_iou=nms_iou,
        )


def test_operator_with_adaptive_thresholds_against_box_by_box(monkeypatch: pytest.MonkeyPatch) -> None:
    n_chunks, recipe = 8, SelfTrainRecipe(adaptive="recording", min_frames=10, min_bins=2)
    detector = AnyDetector(n_chunks)
    names = [
        f"r{k // 2}.wav" for k in range(n_chunks)
    ]  # two chunks a recording; the two halves in two folders
    roots = ["x"] * 4 + ["y"] * 4
    names[4:] = names[:4]  # the same names in the other folder are other recordings
    table = pd.DataFrame({"recording": names, "start_s": 0.0, "site": "", "root": roots})
    batches = [SimpleNamespace(waveforms=rows) for rows in torch.arange(n_chunks).split(3)]
    monkeypatch.setattr(pseudo, "ordered_batches", lambda *a, **k: batches)
    fixed: Any = (detector, SimpleNamespace(table=table, __len__=lambda: n_chunks))
    events = pseudo.pseudo_label(*fixed, recipe, threshold=0.1, source="pseudo-1")
    trust = Trust(Calibration(), precision=0.55)  # a score is its own probability
    found = pseudo.keep_trusted(events, trust, recipe, max_threshold=0.6)
    wary = recipe.model_copy(update={"doubtful": 0.1})
    # what is not trusted is doubtful instead
    both = pseudo.keep_trusted(events, trust, wary, max_threshold=0.6)
    assert len(both) == len(events) > len(found)
    assert both[both["sure"]][["chunk", "score"]].values.tolist() == found[["chunk", "score"]].values.tolist()

    thresholds: set[float] = set()
    for folder in ("x", "y"):
        for name in ("r0.wav", "r1.wav"):
            chunks = [k for k in range(n_chunks) if (roots[k], names[k]) == (folder, name)]
            candidates = [naive_operator(detector.boxes[k], detector.scores[k], 0.1, recipe) for k in chunks]
            scores = np.concatenate(
                [detector.scores[k][rows] for k, rows in zip(chunks, candidates, strict=True)]
            )
            q = lowest_threshold(scores, scores, min_threshold=0.1, max_threshold=0.6, precision=0.55)
            thresholds.add(q)
            for k in chunks:
                expected = naive_operator(detector.boxes[k], detector.scores[k], q, recipe)
                own = found[found["chunk"] == k]
                assert own["score"].tolist() == pytest.approx(detector.scores[k][expected].tolist())
                assert np.allclose(own[pseudo.CELLS].to_numpy(), detector.boxes[k][expected], atol=1e-4)
                assert np.allclose(own["threshold"], q)
    assert len(thresholds) > 2  # or the test would not see an adaptive threshold
    assert len(found) < len(events)
    assert pseudo.keep_trusted(events.iloc[:0], trust, recipe, max_threshold=0.6).empty


def test_off_by_default_and_without_room_a_mistake() -> None:
    recipe = SelfTrainRecipe(min_frames=10, min_bins=2)
    assert (recipe.adaptive, recipe.stop_when_no_gain, recipe.measure_other_parts) == ("none", False, True)
    with pytest.raises(ConfigError, match="nothing to adapt"):
        load_recipe("tiny", {"selftrain.adaptive": "recording", "selftrain.threshold": "validation"})
