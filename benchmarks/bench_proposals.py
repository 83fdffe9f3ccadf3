"""Faster R-CNN's choice of proposals: all pictures at once, compared with torchvision's one picture after another.

    python benchmarks/bench_proposals.py --out results/proposals_speed.json

Random objectness and deltas at the anchors of the preset `premise`: 32 pictures of 1024 × 256 pixels in training.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torchvision.models.detection.rpn import RegionProposalNetwork

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.record import write_result
from mast.models.baselines import BaselineConfig, build_baseline
from mast.models.baselines.torchvision_detectors import FasterRcnnDetector


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = BaselineConfig(
        name="faster_rcnn", chunk_frames=1024, n_bins=128, options={"frequency_stretch": 2}
    )
    model = build_baseline(config)
    assert isinstance(model, FasterRcnnDetector)
    model.to(device).train()
    rpn, shape, counts = model.rpn, model._picture, model._counts
    draw = torch.Generator(device).manual_seed(0)
    anchors = model.anchors.expand(options.batch, -1, -1)
    moved = torch.randn(anchors.shape, generator=draw, device=device) * 0.1
    boxes = rpn.box_coder.decode(moved.reshape(-1, 4), list(anchors)).reshape(options.batch, -1, 4)
    objectness = torch.randn(boxes.shape[:2], generator=draw, device=device)

    def one_by_one() -> list[torch.Tensor]:
        shapes = [shape] * options.batch
        return RegionProposalNetwork.filter_proposals(rpn, boxes, objectness, shapes, counts)[0]

    def together() -> list[torch.Tensor]:
        return rpn.filter_batch(boxes, objectness, shape, counts)[0]

    ours, theirs = together(), one_by_one()
    seconds: dict[str, list[float]] = {"one by one": [], "together": []}
    for _ in range(options.rounds):
        for name, choose in (("one by one", one_by_one), ("together", together)):
            seconds[name].append(time_call(choose))
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    figures = {
        "batch": options.batch,
        "milliseconds": {name: round(1000 * value, 2) for name, value in middle.items()},
        "times_faster": round(middle["one by one"] / middle["together"], 2),
        "proposals": {"one by one": sum(map(len, theirs)), "together": sum(map(len, ours))},
        "same_corners_share": round(share_identical(ours, theirs), 5),
    }
    print(figures)
    if options.out:
        write_result(options.out, figures)


def time_call(choose: Callable[[], object]) -> float:
    """Seconds of one call, including all of its work on the GPU."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    began = time.perf_counter()
    choose()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began


def share_identical(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    """Share of torchvision's proposals that are among ours, to the bit."""
    found = sum(
        len({tuple(box) for box in own.tolist()} & {tuple(box) for box in other.tolist()})
        for own, other in zip(ours, theirs, strict=True)
    )
    return found / max(1, sum(map(len, theirs)))


if __name__ == "__main__":
    main()
