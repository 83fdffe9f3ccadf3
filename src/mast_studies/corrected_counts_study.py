"""How often the intervals of corrected counts contain the true number, in simulation.

    python -m mast_studies.corrected_counts_study --draws 6000 --out results/corrected_counts.json
    python -m mast_studies.corrected_counts_study --sites --draws 400 --out results/corrected_counts_sites.json

Each draw makes a population of detections with scores, decides which are right, draws a sample as
`mast summarize --check` does, and checks whether the interval contains the true number. Scores may be calibrated (power
1), underconfident (below 1: more is right than they say) or overconfident (above 1). A 95 % interval should contain it
in 93–97 % of draws; with 6,000 draws this share is known to ± 0.6 %. One process per core: some 40 minutes of CPU time.

With ``--sites`` there are two sites, and the question is how often the interval in each site's row contains its true
number: with one sample over both, and with the same number of events drawn at each (``mast summarize --check 30
--each-site``).
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from mast.evaluation.corrected_counts import Checked, allocate, correct, stratify, stratify_by_site
from mast_studies.record import write_result
from mast_studies.script import run_script

POPULATIONS, SAMPLES, POWERS = (300, 3_000), (60, 120), (0.5, 1.0, 3.0)
SITE_POWERS = ((1.0, 1.0), (0.5, 3.0))  # both alike; then much more is wrong at one of them


def simulate(
    population: int, sample: int, power: float, *, draws: int, seed: int, labels: int = 1
) -> dict[str, Any]:
    """Coverage, half the interval's width and the error of the estimate, both as shares of the truth."""
    generator = np.random.default_rng([seed, population, sample, round(10 * power), labels])
    held, halves, errors = [], [], []
    for _ in range(draws):
        scores = np.clip(generator.beta(3, 2, population), 0.2, 1.0)
        names = generator.integers(0, labels, population).astype(str).astype(object)
        right = generator.random(population) < scores**power
        strata = stratify(names, scores)
        codes = strata.of(names, scores)
        drawn = [
            generator.choice(np.flatnonzero(codes == k), n, replace=False)
            for k, n in enumerate(allocate(strata.sizes, strata.expected, sample))
        ]
        checked = np.array([len(rows) for rows in drawn])
        found = np.array([right[rows].sum() for rows in drawn])
        unchecked = (strata.sizes - checked)[None]
        estimate, low, high = correct(Checked(strata.sizes, checked, found), unchecked, [found.sum()])
        truth = int(right.sum())
        held.append(bool(low[0] <= truth <= high[0]))
        halves.append(float(high[0] - low[0]) / 2 / truth)
        errors.append(float(estimate[0]) / truth - 1)
    return {
        "events": population,
        "checked": sample,
        "power": power,
        "labels": labels,
        "precision": round(float(right.mean()), 3),
        "coverage": round(float(np.mean(held)), 4),
        "half_width": round(float(np.mean(halves)), 4),
        "mean_error": round(float(np.mean(errors)), 4),
    }


def simulate_sites(
    sample: int, powers: tuple[float, float], *, draws: int, seed: int, each: bool
) -> dict[str, Any]:
    """The same for each of two sites with 300 events; ``sample`` are drawn at each, or twice as many over both."""
    generator = np.random.default_rng([seed, sample, *(round(10 * power) for power in powers)])
    names, sites = np.full(600, "", dtype=object), np.repeat(np.array(["A", "B"], dtype=object), 300)
    here = np.stack([sites == "A", sites == "B"])  # (2, N)
    held, halves = [], []
    for _ in range(draws):
        scores = np.clip(generator.beta(3, 2, 600), 0.2, 1.0)
        right = generator.random(600) < scores ** np.repeat(powers, 300)
        strata = stratify_by_site(names, scores, sites) if each else stratify(names, scores)
        codes, wanted = strata.of(names, scores, sites), strata.allocate(sample if each else 2 * sample)
        is_drawn = np.zeros(600, dtype=bool)
        for k, n in enumerate(wanted):
            is_drawn[generator.choice(np.flatnonzero(codes == k), n, replace=False)] = True
        counts = [np.bincount(codes[mask], minlength=len(strata)) for mask in (is_drawn, is_drawn & right)]
        unchecked = [np.bincount(codes[own & ~is_drawn], minlength=len(strata)) for own in here]
        known = [(own & is_drawn & right).sum() for own in here]
        _, low, high = correct(Checked(strata.sizes, counts[0], counts[1]), unchecked, known)
        truth = (here & right).sum(axis=1)
        held.append((low <= truth) & (truth <= high))
        halves.append((high - low) / 2 / truth)
    return {
        "checked": 2 * sample,
        "powers": list(powers),
        "each_site": each,
        "coverage": np.mean(held, axis=0).round(4).tolist(),
        "half_width": np.mean(halves, axis=0).round(4).tolist(),
    }


def _site_case(case: tuple[int, tuple[float, float], bool], *, draws: int, seed: int) -> dict[str, Any]:
    sample, powers, each = case
    return simulate_sites(sample, powers, draws=draws, seed=seed, each=each)


def _case(case: tuple[int, int, float, int], *, draws: int, seed: int) -> dict[str, Any]:
    population, sample, power, labels = case
    return simulate(population, sample, power, draws=draws, seed=seed, labels=labels)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", help="JSON file to write")
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sites", action="store_true", help="the rows of two sites, not the total")
    args = parser.parse_args()
    if args.sites:
        sites = [(k, powers, each) for k in (30, 60) for powers in SITE_POWERS for each in (False, True)]
        with ProcessPoolExecutor() as pool:
            found = list(pool.map(partial(_site_case, draws=args.draws, seed=args.seed), sites))
        print(*found, sep="\n")
        if args.out:
            write_result(args.out, {"draws": args.draws, "cases": found}, seed=args.seed)
        return
    cases = [(n, k, power, 1) for n in POPULATIONS for k in SAMPLES for power in POWERS]
    cases += [(3_000, 120, power, 4) for power in POWERS]
    rows = []
    with ProcessPoolExecutor() as pool:
        for row in pool.map(partial(_case, draws=args.draws, seed=args.seed), cases):
            rows.append(row)
            print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    mean = float(np.mean([row["coverage"] for row in rows]))
    figures = {"draws": args.draws, "mean_coverage": round(mean, 4), "cases": rows}
    print(f"mean coverage {mean:.3f} over {len(rows)} cases of {args.draws} draws")
    if args.out:
        write_result(args.out, figures, seed=args.seed)


if __name__ == "__main__":
    run_script(main)
