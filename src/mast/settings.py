"""Checks of what users set: a mistake becomes one sentence."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from mast.errors import ConfigError

SettingsT = TypeVar("SettingsT", bound=BaseModel)


def parse_settings(
    model: type[SettingsT], values: Mapping[str, Any], *, where: str, what: str = "setting"
) -> SettingsT:
    """Validate settings.

    Args:
        model: the settings that exist.
        values: as they were given, nested.
        where: where they were given, for the message.
        what: what one of them is called in the message.

    Raises:
        ConfigError: names the setting and, for a typo, the closest known name.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        *above, last = [str(part) for part in first["loc"]] or [""]
        name = ".".join([*above, last])
        if first["type"] == "extra_forbidden":
            known = _fields_at(model, above)
            near = difflib.get_close_matches(last, known, n=1)
            hint = (
                f"did you mean '{'.'.join([*above, *near])}'?"
                if near
                else f"known: {', '.join(sorted(known))}"
            )
            raise ConfigError(f"{where}: unknown {what} '{name}'; {hint}") from None
        raise ConfigError(f"{where}: {name} is {first['input']!r}: {first['msg'].lower()}") from None


def _fields_at(model: type[BaseModel], path: list[str]) -> list[str]:
    """Names of the fields of the model that ``path`` leads to."""
    for key in path:
        annotation = model.model_fields[key].annotation if key in model.model_fields else None
        options = [annotation, *getattr(annotation, "__args__", ())]
        nested = [o for o in options if isinstance(o, type) and issubclass(o, BaseModel)]
        if not nested:
            return []
        model = nested[0]
    return list(model.model_fields)
