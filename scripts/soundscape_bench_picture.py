"""One 10 s chunk of every site of a soundscape-bench, with its boxes, as a grid.

    mast simulate bench-0/ --benchmark soundscape-bench --seed 0
    python scripts/soundscape_bench_picture.py bench-0/ docs/images/soundscape_bench.webp

A site's chunk is the one in its test recordings whose number of boxes is nearest to the median; home comes first.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from mast.data import Dataset, load_dataset
from mast.files import atomic_file
from mast.reports.spectrogram import TRUTH_COLOUR, boxes_in_view, compute_spectrogram, frequency_ticks

CHUNK_S = 10.24
ROWS, COLUMNS = 4, 2


def main() -> None:
    """Read the options, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bench", type=Path, help="folder of the benchmark")
    parser.add_argument("out", type=Path, help="WebP to write")
    options = parser.parse_args()
    made = json.loads((options.bench / "benchmark.json").read_text(encoding="utf-8"))["found"]
    dataset = load_dataset(options.bench / "labelled")
    figure = draw(dataset, home=made["home"], never_heard=made["never_heard"])
    with atomic_file(options.out) as part:
        figure.savefig(part, format="webp", pil_kwargs={"quality": 60})


def draw(dataset: Dataset, *, home: str, never_heard: list[str]) -> Figure:
    """The grid: home, then the other sites."""
    figure = Figure(figsize=(14.0, 12.5), dpi=72, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(ROWS, COLUMNS, sharex=True, sharey=True)
    others = sorted(set(dataset.recordings["site"]) - {home})
    for axes, site in zip(grid.flat, [home, *others], strict=True):
        recording, start_s = typical_chunk(dataset, site)
        events = dataset.annotations.events
        spectrogram = compute_spectrogram(dataset.path(recording), start_s=start_s, end_s=start_s + CHUNK_S)
        shown = boxes_in_view(events[events["recording"] == recording], spectrogram)
        bins = spectrogram.front_end
        values = spectrogram.values - np.percentile(spectrogram.values, 20, axis=0)
        low, high = np.percentile(values, (30, 99.8))
        left, right, bottom, top = spectrogram.extent
        extent = (left - start_s, right - start_s, bottom, top)
        axes.imshow(
            values.T,
            origin="lower",
            aspect="auto",
            extent=extent,
            cmap="gray_r",
            vmin=low,
            vmax=max(high, low + 4),
        )
        edges = bins.hz_to_bins(np.clip(shown[["low_hz", "high_hz"]].to_numpy(), bins.low_hz, bins.high_hz))
        times = shown[["start_s", "end_s"]].to_numpy() - start_s
        for (start, end), (bottom_bin, top_bin) in zip(times, edges, strict=True):
            axes.add_patch(
                Rectangle(
                    (start, bottom_bin),
                    end - start,
                    top_bin - bottom_bin,
                    fill=False,
                    ec=TRUTH_COLOUR,
                    lw=1.3,
                )
            )
        kind = (
            "home (labelled)"
            if site == home
            else "never heard"
            if site in never_heard
            else "heard unlabelled"
        )
        clock = dataset.recordings.set_index("file")["datetime"][recording].replace("T", " ")[:16]
        axes.set_title(f"{site}, {kind}: {clock}, {len(shown)} boxes", loc="left", fontsize=11)
        ticks = frequency_ticks(bins, max_ticks=7)
        axes.set_yticks(bins.hz_to_bins(ticks), [f"{hz / 1_000:g}" for hz in ticks])
        axes.set_xlim(0, CHUNK_S)
        axes.set_ylim(-1, bins.n_bins)
    for axes in grid[-1]:
        axes.set_xlabel("Time (s)", fontsize=11)
    for axes in grid[:, 0]:
        axes.set_ylabel("Frequency (kHz)", fontsize=11)
    return figure


def typical_chunk(dataset: Dataset, site: str) -> tuple[str, float]:
    """The test chunk of a site whose number of boxes is nearest to their median, the first of equals."""
    table = dataset.recordings
    tests = table[(table["site"] == site) & ~table["split"].isin(["train", "val"])]
    events = dataset.annotations.events
    rows = []
    for recording, duration in zip(tests["file"], tests["duration_s"], strict=True):
        own = events[events["recording"] == recording]
        for start in np.arange(0.0, duration - CHUNK_S, CHUNK_S):
            count = int(((own["start_s"] < start + CHUNK_S) & (own["end_s"] > start)).sum())
            rows.append((recording, float(start), count))
    chunks = pd.DataFrame(rows, columns=["recording", "start_s", "boxes"])
    wanted = max(3.0, float(chunks["boxes"].median()))
    best = chunks.iloc[int((chunks["boxes"] - wanted).abs().argmin())]
    return str(best["recording"]), float(best["start_s"])


if __name__ == "__main__":
    main()
