"""Average precision is COCO's, to the sixth decimal, where no two scores are equal."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pandas as pd
import pytest
from faster_coco_eval import COCO, COCOeval_faster

from mast.evaluation import Scoring, evaluate


def coco_scores(truth: pd.DataFrame, predictions: pd.DataFrame, n_images: int) -> tuple[float, float]:
    """``ap50`` and ``ap50_95`` by faster-coco-eval."""

    def bbox(row) -> list[float]:
        return [row.start_s, row.low_hz, row.end_s - row.start_s, row.high_hz - row.low_hz]

    annotations = [
        {"id": k + 1, "image_id": int(row.recording), "category_id": 1, "bbox": bbox(row), "iscrowd": 0}
        for k, row in enumerate(truth.itertuples())
    ]
    for annotation in annotations:
        annotation["area"] = annotation["bbox"][2] * annotation["bbox"][3]
    detections = [
        {"image_id": int(row.recording), "category_id": 1, "bbox": bbox(row), "score": row.score}
        for row in predictions.itertuples()
    ]
    dataset = {
        "images": [{"id": i, "width": 100, "height": 100} for i in range(n_images)],
        "annotations": annotations,
        "categories": [{"id": 1, "name": "sound"}],
    }
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(dataset)
        evaluation = COCOeval_faster(
            coco, coco.loadRes(detections), iouType="bbox", print_function=lambda *_: None
        )
        evaluation.params.maxDets = [1, 10, 10_000]
        evaluation.evaluate()
        evaluation.accumulate()
    precision = evaluation.eval["precision"][
        :, :, 0, 0, -1
    ]  # (10 IoUs, 101 recalls), all areas, most detections
    return float(precision[0].mean()), float(precision.mean())


def random_set(seed: int, *, n_images: int, per_image: int, lattice: bool):
    """Truths and jittered detections, all with different scores; some images without either."""
    rng = np.random.default_rng(seed)
    tables = []
    truth_boxes = []
    for image in range(n_images):
        n = 0 if rng.random() < 0.2 else int(rng.integers(1, per_image))
        corner, size = rng.uniform(10, 60, (n, 2)), rng.uniform(2, 12, (n, 2))
        truth_boxes.append((image, np.concatenate([corner, corner + size], axis=1)))
    for jitter, copies in ((0.0, 1), (0.12, 3)):
        rows = []
        for image, boxes in truth_boxes:
            n = len(boxes)
            size = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
            for _ in range(copies):
                kept = rng.random(n) < (0.7 if jitter else 1.0)
                moved = (boxes + rng.normal(0, jitter, boxes.shape) * size)[kept] if jitter else boxes
                rows += [(image, *box) for box in moved]
            if jitter and rng.random() < 0.7:
                corner = rng.uniform(0, 50, (5, 2))
                rows += [(image, *c, *(c + 4)) for c in corner]
        boxes = np.array(rows, dtype=float).reshape(-1, 5)
        if lattice:
            boxes = np.rint(boxes)
        boxes[:, 3:] = np.maximum(boxes[:, 3:], boxes[:, 1:3] + 1)
        tables.append(
            pd.DataFrame(
                {
                    "recording": [f"{int(i):04d}" for i in boxes[:, 0]],
                    "start_s": boxes[:, 1],
                    "low_hz": boxes[:, 2],
                    "end_s": boxes[:, 3],
                    "high_hz": boxes[:, 4],
                    "score": rng.permutation(len(boxes)) / len(boxes),
                }
            )
        )
    return tables


@pytest.mark.parametrize("lattice", [False, True], ids=["continuous", "whole cells with tied IoU"])
@pytest.mark.parametrize(
    ("n_images", "per_image"),
    [(1, 5), (4, 8), (12, 30), (3, 150)],
    ids=["one", "few", "many", "over 100 each"],
)
def test_ap_agrees_with_coco(n_images, per_image, lattice):
    compared = 0
    for seed in range(6):
        truth, predictions = random_set(seed, n_images=n_images, per_image=per_image, lattice=lattice)
        if truth.empty or predictions.empty:
            continue
        reviewed = pd.DataFrame(
            {"recording": [f"{i:04d}" for i in range(n_images)], "start_s": 0.0, "end_s": np.nan}
        )
        ours = evaluate(
            truth, predictions, reviewed=reviewed, scoring=Scoring(space="hz"), resamples=0
        ).metrics
        ap50, ap50_95 = coco_scores(truth, predictions, n_images)
        assert ours["ap50"] == pytest.approx(ap50, abs=1e-6)
        assert ours["ap50_95"] == pytest.approx(ap50_95, abs=1e-6)
        compared += 1
    assert compared >= 3
