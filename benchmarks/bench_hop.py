"""What overlapping windows gain and cost: a trained detector on labelled recordings at several hops.

    python benchmarks/bench_hop.py --out results/hop.json
    python benchmarks/bench_hop.py --model runs/detector --data dataset/ --split test

By default, the embedded model on half an hour of simulated sound. Everything is done as in `mast detect`: windows,
stitching, the model's own threshold. Recordings should be much longer than a window, because every hop is the same in a
recording of one window. ``f1``, ``precision`` and ``recall`` are at the model's threshold; ``ap50`` comes from a second
pass with all boxes from ``--floor`` up. ``difference`` is from the first hop, with the 95 % interval of a bootstrap
over recordings.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.record import write_result
from mast.data import Dataset, load_dataset
from mast.data.simulate.dataset import Simulation, simulate_dataset
from mast.detect_options import DetectOptions
from mast.evaluation import Evaluation, Scoring, compare, evaluate
from mast.inference import Detector, Source

# a world whose seed is used nowhere else; five minutes are many windows
WORLD = Simulation(recordings=6, duration_s=300.0, sites=3, days=1, hours=(5.0, 9.0), seed=12_000)
HOPS = (0.5, 0.75, 0.9, 1.0)
_METRICS = ("f1", "precision", "recall", "miou")


def main(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="default", help="a run of mast train, or a model folder")
    parser.add_argument("--data", type=Path, help="a dataset with boxes; simulated sound by default")
    parser.add_argument("--split", help="only this split of recordings.csv")
    parser.add_argument("--hops", nargs="+", type=float, default=HOPS, help="the first is the reference")
    parser.add_argument("--threshold", type=float, help="minimum score; the model's own by default")
    parser.add_argument("--floor", type=float, default=0.05, help="minimum score for average precision")
    parser.add_argument("--device")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--resamples", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="JSON file to write")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as temporary:
        if options.data is None:
            simulate_dataset(Path(temporary), WORLD)
        return compare_hops(options, options.data or Path(temporary))


def compare_hops(options: argparse.Namespace, data: Path) -> dict[str, Any]:
    """Every hop on the same recordings."""
    dataset = load_dataset(data).select(split=options.split)
    dataset = dataset.select(recordings=dataset.reviewed_recordings)
    figures: dict[str, Any] = {
        "model": options.model,
        "data": options.data.name if options.data else WORLD.model_dump(mode="json", exclude_defaults=True),
        "split": options.split,
        "recordings": len(dataset),
        "hours": float(dataset.recordings["duration_s"].sum()) / 3600,
        "median_recording_s": float(dataset.recordings["duration_s"].median()),
        "hops": {},
    }
    first: pd.DataFrame | None = None
    for hop in options.hops:
        detector, lenient = (
            Detector(
                options.model,
                DetectOptions(device=options.device, threshold=threshold, batch_size=options.batch, hop=hop),
            )
            for threshold in (options.threshold, options.floor)
        )
        found, figures["hops"][f"{hop:g}"] = measure(detector, lenient, dataset, options, first)
        first = found if first is None else first
        print(f"hop {hop:g}: {figures['hops'][f'{hop:g}']}", flush=True)
        if options.out:  # after each, so that a run cut short keeps its results
            write_result(options.out, figures, seed=options.seed)
    for hop, values in figures["hops"].items():
        # a missing value, such as the precision without detections, is a dash
        shown = (f"{k} {'–' if values[k] is None else format(values[k], '.3f')}" for k in (*_METRICS, "ap50"))
        print(f"hop {hop:>4}: {', '.join(shown)}; {values['times_real_time']:,.0f} × real time")
    return figures


def measure(
    detector: Detector,
    lenient: Detector,
    dataset: Dataset,
    options: argparse.Namespace,
    first: pd.DataFrame | None,
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The events at one hop, how good they are, and what they cost."""
    search(detector, dataset.select(recordings=dataset.reviewed_recordings[:1]))  # compilation, memory pools
    began = time.perf_counter()
    found = search(detector, dataset)
    seconds = time.perf_counter() - began
    everything = search(lenient, dataset)
    truth = dataset.annotations.events
    evaluate_options: dict[str, Any] = {
        "reviewed": dataset.annotations.reviewed,
        "scoring": Scoring(front_end=detector.card.front_end),
        "resamples": options.resamples,
        "seed": options.seed,
    }
    at_threshold = evaluate(truth, found, **evaluate_options)
    ranked = evaluate(truth, everything, **evaluate_options)
    values: dict[str, Any] = {name: at_threshold.metrics[name] for name in _METRICS}
    values["ap50"] = ranked.metrics["ap50"]
    values["intervals"] = {
        **{name: _interval(at_threshold, name) for name in _METRICS},
        "ap50": _interval(ranked, "ap50"),
    }
    if first is not None:
        differences = compare(truth, first, found, **evaluate_options).differences
        values["difference"] = {name: differences[name]._asdict() for name in _METRICS}
    values = _nan_to_none(values)
    sound_s = float(dataset.recordings["duration_s"].sum())
    network: Any = detector.network
    return found, {
        **values,
        "n_truth": at_threshold.n_truth,
        "n_predictions": at_threshold.n_predictions,
        "windows": count_windows(detector, dataset),
        "seconds": seconds,
        "times_real_time": sound_s / seconds,
        "device": str(getattr(network, "device", "cpu")),
        "precision_of_numbers": detector.precision,
        "compiled": getattr(network, "compiled", False),
        "batch_size": network.batch_size,
        "threshold": detector.scores.threshold,
    }


def search(detector: Detector, dataset: Dataset) -> pd.DataFrame:
    """All events in all recordings; one that cannot be read stops the benchmark."""
    sources = [Source(dataset.path(name), name) for name in map(str, dataset.recordings["file"])]
    tables = []
    for outcome in detector.outcomes(sources):
        if outcome.error:
            raise RuntimeError(outcome.error)
        tables.append(outcome.events)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return pd.concat(tables, ignore_index=True)


def count_windows(detector: Detector, dataset: Dataset) -> int:
    """How many windows the recordings are searched in: the cost, whatever the machine."""
    window_s, hop_in = detector.card.front_end.chunk_s, detector._reader.hop_in
    return sum(
        1 + max(0, math.ceil((float(length_s) - window_s) / hop_in(float(length_s)) - 1e-9))
        for length_s in dataset.recordings["duration_s"]
    )


def _interval(result: Evaluation, name: str) -> list[float]:
    return list(result.intervals.get(name, (math.nan, math.nan)))


def _nan_to_none(value: Any) -> Any:
    """For JSON: NaN becomes None."""
    if isinstance(value, dict):
        return {key: _nan_to_none(some) for key, some in value.items()}
    if isinstance(value, list):
        return [_nan_to_none(some) for some in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


if __name__ == "__main__":
    main()
