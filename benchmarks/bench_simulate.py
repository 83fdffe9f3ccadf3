"""How fast soundscapes are simulated, on one core, and whether sites and days really differ.

    python benchmarks/bench_simulate.py --out results/simulate.json

Speed is CPU time per chunk, so that other work on the machine does not count; a transform of fixed size is
timed with it for comparison between machines. The shift is measured with the simplest statistic there is,
the mean log-mel spectrum of a recording less its own mean: how often the nearest other recording is from the
same site (or, within a site, the same day), and the chance level.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy import fft

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.record import write_result
from mast.data.simulate.soundscape import simulate_chunk
from mast.data.simulate.world import World
from mast.features.logmel import LogMel
from mast.grid import FrontEnd


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU seconds that ``work`` takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


def chunk_speed(chunks: int, seed: int) -> dict[str, float]:
    """Chunks from four sites at random hours; the sites are made beforehand and timed separately."""
    world = World(seed, n_species=24)
    hours = np.random.default_rng(seed).uniform(0, 24, chunks)
    counts: list[int] = []

    def simulate_one(k: int, density: float = 1.0) -> None:
        rng = np.random.default_rng([seed, k])
        scene = simulate_chunk(rng, world.site(k % 4), world.day(k % 5), hours[k], density=density)
        counts.append(len(scene.events))

    # loops are drawn when they are needed
    making = cpu_seconds(lambda: [simulate_one(k) for k in range(min(chunks, 40))])
    counts.clear()
    seconds_each = np.array([cpu_seconds(lambda k=k: simulate_one(k)) for k in range(chunks)])  # type: ignore[misc]
    noise = np.random.default_rng(0).standard_normal(FrontEnd().chunk_samples, dtype=np.float32)
    reference = min(cpu_seconds(lambda: fft.rfft(noise)) for _ in range(50))
    return {
        "ms_per_chunk": 1e3 * float(seconds_each.mean()),
        "ms_per_chunk_median": 1e3 * float(np.median(seconds_each)),
        "ms_per_chunk_p95": 1e3 * float(np.quantile(seconds_each, 0.95)),
        "times_real_time": FrontEnd().chunk_s / float(seconds_each.mean()),
        "first_40_chunks_s": making,
        "boxes_per_chunk": float(np.mean(counts)),
        "chunks_without_box": float(np.mean(np.array(counts) == 0)),
        "ms_rfft_of_a_chunk": 1e3 * reference,
    }


def measure_shift(seed: int, *, sites: int = 6, days: int = 4, repeats: int = 3) -> dict[str, float]:
    """Nearest neighbours by mean log-mel spectrum."""
    import torch

    world = World(seed, n_species=24, loop_s=10.0)
    log_mel = LogMel(FrontEnd())
    spectra, site_of, day_of = [], [], []
    for s in range(sites):
        for d in range(days):
            for r in range(repeats):
                rng = np.random.default_rng([seed, s, d, r])
                scene = simulate_chunk(rng, world.site(s), world.day(d), rng.uniform(0, 24))
                with torch.no_grad():
                    spectrum = log_mel(torch.from_numpy(scene.waveform)[None]).mean(dim=1)[0].numpy()
                spectra.append(spectrum - spectrum.mean())
                site_of.append(s)
                day_of.append(d)
    features, site_of, day_of = np.array(spectra), np.array(site_of), np.array(day_of)
    distances = np.linalg.norm(features[:, None] - features[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    same_site = site_of[distances.argmin(axis=1)] == site_of
    within = np.where(site_of[:, None] == site_of[None], distances, np.inf)
    same_day = day_of[within.argmin(axis=1)] == day_of
    by_site = np.array([features[site_of == s].mean(axis=0) for s in range(sites)])
    by_day = np.array(
        [
            [features[(site_of == s) & (day_of == d)].mean(axis=0) - by_site[s] for d in range(days)]
            for s in range(sites)
        ]
    )
    decibel = 10 / np.log(10)
    return {
        "nearest_is_same_site": float(same_site.mean()),
        "nearest_is_same_site_by_chance": (days * repeats - 1) / (len(features) - 1),
        "nearest_within_site_is_same_day": float(same_day.mean()),
        "nearest_within_site_is_same_day_by_chance": (repeats - 1) / (days * repeats - 1),
        "spread_between_sites_db": decibel * float(by_site.std(axis=0).mean()),
        "spread_between_days_db": decibel * float(by_day.std(axis=1).mean()),
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/simulate.json"))
    parser.add_argument("--chunks", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    worlds = [measure_shift(options.seed + k) for k in range(4)]
    figures = {
        "chunks": chunk_speed(options.chunks, options.seed),
        "shift": {key: float(np.mean([world[key] for world in worlds])) for key in worlds[0]},
    }
    write_result(options.out, figures, seed=options.seed)
    for name, values in figures.items():
        print(name, {key: round(value, 3) for key, value in values.items()})


if __name__ == "__main__":
    main()
