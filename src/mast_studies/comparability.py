"""Whether the systems of a table were run alike: compares what they should share, not what defines each system."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from os.path import abspath
from typing import Any, NamedTuple

from mast.runs import flatten, short_value
from mast.training.recipe import BOOKKEEPING
from mast_studies.found import load_about
from mast_studies.study_tables import Archive
from mast_studies.systems import System

_MAX_SHOWN = 3  # maximum number of differences
_NONE = "none"


class _Run(NamedTuple):
    """A system as it was run: its name in sentences, and the settings (by name) that it should share with others."""

    label: str
    system: System
    facts: Mapping[str, str]


def comparability_notes(
    archive: Archive, systems: Collection[System], measured: Collection[str]
) -> list[str]:
    """For each dataset whose systems were not run alike, a sentence that says which systems differ, and in what.

    Args:
        archive: what was found.
        systems: the known systems; others count as trained from scratch.
        measured: names of the systems that a table shows.
    """
    known = {system.name: system for system in systems}
    sentences = []
    for dataset in archive.dataset_names():
        runs: list[_Run] = []
        for trial in archive.trials_of(dataset):
            of_seed = f" of seed {trial.seed}" if len(archive.trials_of(dataset)) > 1 else ""
            for name in trial.systems():
                if name in measured:
                    facts = _shared_settings(load_about(trial.system(name)), of_seed)
                    label = name + of_seed.replace(" of", " with")
                    runs.append(_Run(label, known.get(name, System(name, name)), facts))
        if differences := _differences(runs):
            more = f"; and {len(differences) - _MAX_SHOWN} more" if len(differences) > _MAX_SHOWN else ""
            shown = "; ".join(differences[:_MAX_SHOWN])
            sentences.append(
                f"{dataset}: not all systems were run alike ({shown}{more}), which may be why they "
                "differ; to compare them, run them again with the same options in another --work"
            )
    return sentences


def _shared_settings(about: Mapping[str, Any], of_seed: str) -> dict[str, str]:
    """The recorded settings of a system that others should share; folders may differ from seed to seed."""
    facts = {}
    for name in ("data", "unlabelled"):
        if name in about:
            folders = [about[name]] if isinstance(about[name], str) else about[name]
            facts[name + of_seed] = ", ".join(sorted(map(abspath, folders))) or _NONE
    settings = {
        name: about[key] for name, key in (("split", "split"), ("measured on", "measured")) if key in about
    }
    settings |= flatten(about.get("shared", {}))  # not written by earlier versions
    for name, value in settings.items():
        if name.rpartition(".")[2] not in BOOKKEEPING:
            facts[name] = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return facts


def _differences(runs: Collection[_Run]) -> list[str]:
    """What they differ in, such as ``train.epochs is 30 for fcos, 50 for the others``."""
    differences = []
    for name in dict.fromkeys(name for run in runs for name in run.facts):
        values: dict[str, list[str]] = {}
        for label, system, facts in runs:
            # a setting that is missing where others are recorded was not set
            if _affects(name, system) and (name in facts or ("." in name and "size" in facts)):
                values.setdefault(facts.get(name, _NONE), []).append(label)
        *unusual, (usual, usual_labels) = sorted(values.items(), key=lambda item: len(item[1])) or [("", [])]
        if unusual:
            parts = [f"{short_value(value)} for {' and '.join(own)}" for value, own in unusual]
            others = "the others" if len(usual_labels) > 1 else usual_labels[0]
            differences.append(f"{name} is {', '.join(parts)}, {short_value(usual)} for {others}")
    return differences


def _affects(name: str, system: System) -> bool:
    """Whether a setting affects a system."""
    part, self_trained = name.replace(" ", ".").partition(".")[0], system.self_training is not None
    if system.init == "embedded":
        return part in ("data", "measured", "front_end")  # `mast fit` decides the rest
    if part == "selftrain":
        return self_trained
    if part == "pretrain":
        return system.init != "none"
    return part != "unlabelled" or self_trained or system.init == "pretrained"
