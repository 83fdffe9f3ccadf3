"""Presets of experiments: a recipe, and a table ``[systems.NAME]`` for a system that needs its own settings.

[train]
epochs = 50

[systems.detr.train]      # for every system with this detector; then for the system of this name
lr = 1e-4
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mast.errors import ConfigError
from mast.settings import parse_settings
from mast.training.recipe import PRESETS, Recipe, load_recipe
from mast_studies.systems import SelfTraining, System

OWN_PRESETS = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.toml"))}


@dataclass(frozen=True)
class Preset:
    """The recipes of all systems.

    Attributes:
        source: where it was read from, for messages.
        values: the recipe that all systems share, as nested tables; settings that are not there have the recipe's
            defaults.
        systems: what differs for a detector or a system.
    """

    source: str
    values: Mapping[str, Any]
    systems: Mapping[str, Mapping[str, Any]]

    @property
    def recipe(self) -> Recipe:
        """The recipe that all systems share, for example for pretraining."""
        return _validate(self.values, self.source)

    def recipe_of(self, system: System, *, start: System | None = None) -> Recipe:
        """The recipe of one system: the shared one, then the system's own settings, then the preset's settings for it.

        ``start``: the system that a self-trained one improves; its settings come first.
        """
        values = dict(self.values)
        for one in (start, system) if start else (system,):
            if one.detector != "mast":
                values = merge(values, {"model": one.detector})
                # options of MAST's detector mean nothing to another
                values["train"] = {**values.get("train", {}), "detector": {}}
            values = merge(values, nest(one.settings))
            if one.self_training is not None:
                values = merge(values, {"selftrain": _self_training(one.self_training)})
            for name in dict.fromkeys((one.detector, one.name)):
                values = merge(values, self.systems.get(name, {}))
        return _validate(values, f"{self.source}, {system.name}")

    def check_names(self, known: Collection[str]) -> None:
        """Refuse a table for an unknown system: its settings would change nothing."""
        for name in self.systems:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(sorted(known))}"
                raise ConfigError(f"{self.source}: [systems.{name}] names no system; {hint}")


def _self_training(plan: SelfTraining) -> dict[str, Any]:
    """What a comparison of rounds needs: all of them, whether they help or not, measured afterwards."""
    return {
        "curriculum": plan.curriculum,
        "rounds": plan.rounds,
        "stop_when_no_gain": False,
        "measure_other_parts": False,
    }


def load_preset(source: str | Path, overrides: Mapping[str, Any] | None = None) -> Preset:
    """Read a preset: of mast, of :data:`OWN_PRESETS`, or a file; ``overrides`` as in ``{"train.epochs": 5}``.

    Raises:
        ConfigError: the preset or an override is invalid, or sets what every system decides for itself.
    """
    decided = {f"selftrain.{name}" for name in _self_training(SelfTraining(""))}
    for name in overrides or {}:
        if name in decided:
            raise ConfigError(
                f"{name}: each system of an experiment has its own; choose among them with --systems, or use "
                "mast selftrain"
            )
    systems: Mapping[str, Mapping[str, Any]] = {}
    if str(source) in PRESETS:
        values = load_recipe(source).model_dump(mode="json", exclude_unset=True)
    else:
        path = OWN_PRESETS.get(str(source), Path(source))
        if not path.is_file():
            names = ", ".join((*PRESETS, *OWN_PRESETS))
            raise ConfigError(f"{source}: no such preset; expected a TOML file, or one of {names}")
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{source}: not valid TOML ({error})") from None
        systems = values.pop("systems", {})
    preset = Preset(str(source), merge(values, nest(overrides or {})), systems)
    _ = preset.recipe  # a mistake is reported now, not an hour into the run
    return preset


def nest(settings: Mapping[str, Any]) -> dict[str, Any]:
    """``{"train.epochs": 5}`` → ``{"train": {"epochs": 5}}``."""
    tables: dict[str, Any] = {}
    for dotted, value in settings.items():
        *above, last = dotted.split(".")
        table = tables
        for key in above:
            table = table.setdefault(key, {})
        table[last] = value
    return tables


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables, one over the other; neither is changed."""
    both = dict(below)
    for key, value in above.items():
        old = both.get(key)
        is_table = isinstance(value, Mapping)
        both[key] = merge(old if isinstance(old, Mapping) else {}, value) if is_table else value
    return both


def _validate(values: Mapping[str, Any], where: str) -> Recipe:
    recipe = parse_settings(Recipe, values, where=where)
    _ = recipe.detector
    return recipe
