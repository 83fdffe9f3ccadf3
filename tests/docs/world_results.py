"""What was measured in the simulated worlds, in one shape: system, part, metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from page_figures import figures, results

Systems = dict[str, dict[str, Any]]
PARTS = ("test", "temporal_ood", "site_ood")  # in domain, on other days, at other sites
METRICS = ("f1", "ap50")
WITH_TWO = [6, 8, 9, 10]  # worlds with two teachers; world 8 after one round

# The entries of `later` in results/premise_development.json, by the commit at which each was measured
TWO_ROUNDS = "4f33871"
SONGS_SPARED = "a63ca8d"
REPEATED_CALLS = "74f7a90"
MEANS_OF_ROUNDS = "9891f13"
LABELLED_TOGETHER = "d427254"
LONGER_ROUNDS = "284d93e"


def by_system(rows: Iterable[dict[str, Any]]) -> Systems:
    """Rows of a table, one for each system and part."""
    systems: Systems = {}
    for row in rows:
        assert row["part"] not in systems.setdefault(row["system"], {})
        systems[row["system"]][row["part"]] = row
    return systems


def premise(world: int) -> Systems:
    """The systems of `mast experiment premise`; worlds 0 and 1 share a table, and world 2 has none."""
    if world > 1:
        return by_system(figures(f"experiments/world_{world}/premise")["rows"])
    dataset = ("development world", "soundscape-bench")[world]
    rows = figures("experiments/second_edition/premise")["rows"]
    return by_system(row for row in rows if row["dataset"] == dataset)


def teachers(world: int) -> Systems:
    """The systems of `mast experiment teachers`, by round and by who labels."""
    return by_system(figures(f"experiments/world_{world}/teachers")["rows"])


def pseudo_labels(world: int, system: str) -> list[dict[str, Any]]:
    """How good a system's pseudo-labels were, round by round."""
    rows = figures(f"experiments/world_{world}/premise")["pseudo_labels"]
    own = [row for row in rows if row["system"] == system]
    assert [row["round"] for row in own] == list(range(1, len(own) + 1))
    return own


def trial(commit: str) -> dict[str, Any]:
    """A later trial in the development worlds."""
    (found,) = (one for one in results("premise_development")["later"] if one["commit"].startswith(commit))
    return dict(found)


def trained(commit: str) -> Systems:
    """The systems of a trial, as ``NAME, world N``."""
    return {f"{run['name']}, world {run['world']}": run for run in trial(commit)["runs"]}


def mean_of_rounds(*rounds: int) -> dict[str, Any]:
    """World 5, with the mean of the weights after these rounds; 0 is the start."""
    (found,) = (one for one in trial(MEANS_OF_ROUNDS)["runs"] if one["rounds averaged"] == list(rounds))
    return dict(found)


def last_round() -> dict[str, Any]:
    """World 5 after self-training: `mast experiment` lost its detections, so it was measured right after training."""
    return mean_of_rounds(3)


def paired(measured: Mapping[str, Any], pair: str, where: str = "other_sites") -> dict[str, list[float]]:
    """For each metric the difference ``A - B`` in a trial, with the ends of its interval."""
    differences = measured[where]["differences"][pair]
    return {
        metric: [one[end] for end in ("difference", "low", "high")] for metric, one in differences.items()
    }


def first_trial() -> dict[str, Any]:
    """What was first tried in world 0."""
    return dict(results("premise_development"))


def faster_rcnn_of_world_0() -> dict[str, Any]:
    """Faster R-CNN with the settings of every other system."""
    (found,) = (run for run in first_trial()["runs"] if run["system"] == "rcnn_strong")
    return dict(found)


def at_other_sites(world: int) -> Systems:
    """What `python -m mast_studies.other_sites` found out about each system, site by site and error by error."""
    name = "other_sites" if world < 3 else f"other_sites_world_{world}"
    (found,) = (one for one in figures(name)["worlds"] if one["seed"] == world)
    return dict(found["systems"])


def best_f1(system: Mapping[str, Any]) -> float:
    """F1 at other sites with the threshold that is best there."""
    return float(system["threshold"]["f1 with the best"])


def gain(world: int) -> dict[str, float]:
    """What self-training gains at other sites over its start.

    In world 8 this is after one round, in worlds 9 and 10 with two teachers.
    """
    systems = premise(world)
    names = ("from_scratch_st", "from_scratch_st_1", "taught_st")
    after = last_round() if world == 5 else next(systems[name] for name in names if name in systems)
    start = systems["from_scratch"]
    return {metric: after["site_ood"][metric] - start["site_ood"][metric] for metric in METRICS}


def leads(part: str, system: str = "from_scratch_st") -> dict[str, list[list[float]]]:
    """How far MAST with self-training is ahead of Faster R-CNN, world by world, with intervals."""
    return {metric: own["by_world"] for metric, own in _over_worlds(part, system, "differences").items()}


def mean_lead(
    part: str, system: str = "from_scratch_st", *, over: str = "differences"
) -> dict[str, list[float]]:
    """The mean of these worlds, with its interval; of what self-training gained where that is asked for."""
    return {
        metric: [own[end] for end in ("mean", "low", "high")]
        for metric, own in _over_worlds(part, system, over).items()
    }


def _over_worlds(part: str, system: str, over: str) -> dict[str, Any]:
    table, worlds = {
        "from_scratch_st": ("worlds", [3, 4, 6, 7]),
        "taught_st": ("worlds_two_teachers", WITH_TWO),
    }[system]
    row = by_system(figures(table)["rows"])[system][part]
    assert row["worlds"] == worlds
    return {metric: row[over][metric] for metric in METRICS}


def gain_of_fusing(world: int) -> list[float]:
    """What fusing the boxes of Faster R-CNN and MAST gains over the better of the two at other sites: F1 and AP50."""
    systems = figures("fused_systems")["worlds"][f"{world}"]
    pair, *alone = (
        systems[name]["site_ood"] for name in ("faster_rcnn+from_scratch", "faster_rcnn", "from_scratch")
    )
    return [pair[metric] - max(one[metric] for one in alone) for metric in METRICS]


def cells(system: Mapping[str, Any], parts: Iterable[str] = PARTS) -> str:
    """A system's cells in a table: F1 and AP50 of each part."""
    return " | ".join(f"{system[part][metric]:.3f}" for part in parts for metric in METRICS)


def pair_of(measured: Mapping[str, float]) -> str:
    """F1 / AP50."""
    return f"{measured['f1']:.3f} / {measured['ap50']:.3f}"
