"""Numbers on the command line: every option has its bounds, and nan is within none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest
import typer
from typer.models import OptionInfo
from typer.testing import CliRunner

from mast.cli.main import SUMMARIES, app, load_command
from mast.cli.options import _band_hz, _not_nan, upper_edge
from mast.cli.search import _parse_box
from mast.errors import ConfigError
from mast.grid import BANDS_HZ, FrontEnd


def numeric_options() -> Iterator[tuple[str, str, type]]:
    """Every option that takes a number: command, name, int or float."""
    for command in SUMMARIES:
        for name, hint in get_type_hints(load_command(command).callback, include_extras=True).items():
            kind, *about = get_args(hint) or (hint,)
            kinds = {kind, *get_args(kind)}
            option: Any = next((one for one in about if isinstance(one, OptionInfo)), None)
            if option is not None and kinds & {int, float}:
                names = [text for text in (option.default, *option.param_decls) if str(text).startswith("-")]
                named = max(names, key=len, default=f"--{name.replace('_', '-')}")
                yield command, named, float if float in kinds else int


@pytest.mark.parametrize(("command", "option", "kind"), list(numeric_options()))
def test_numbers_that_no_option_takes(command: str, option: str, kind: type) -> None:
    values = ["nan", "-nan", "inf", "-inf", "-1e9", "1e300"] if kind is float else ["nan", "-9", "9" * 30]
    for value in [*values, "9" * 5_000]:
        shown = CliRunner().invoke(app, [command, f"{option}={value}" if len(option) > 2 else option + value])
        assert shown.exit_code == 2, (value, shown.output, shown.exception)
        assert re.search(rf"Invalid value for [^:]*'{option}'", shown.output)


def test_nan_is_refused_also_where_typer_would_let_it_pass() -> None:
    """Earlier releases compare it with the bounds only, and every comparison with nan is false."""
    assert _not_nan(None) is None
    assert _not_nan(0.5) == 0.5
    with pytest.raises(typer.BadParameter):
        _not_nan(float("nan"))


def test_bands_have_names() -> None:
    assert [_band_hz(text) for text in ("fish", "birds", "bats", "24000", "5e3")] == [
        2e3,
        8e3,
        128e3,
        24e3,
        5e3,
    ]
    assert BANDS_HZ["birds"] == FrontEnd().high_hz
    metavar = upper_edge(help="").metavar
    assert metavar == "|".join(["HZ", *BANDS_HZ])
    for wrong in ("bat", "0", "-8000"):
        with pytest.raises(typer.BadParameter, match=f"'{wrong}' is not a band; expected fish"):
            _band_hz(wrong)


def test_there_are_options_to_look_at() -> None:
    found = {(command, option) for command, option, _ in numeric_options()}
    assert {("search", "-k"), ("search", "--min-score"), ("train", "--band"), ("fit", "--seed")} <= found


@pytest.mark.parametrize("text", ["nan,1,0,100", "0,inf,0,100", "0,1,0", "a,b,c,d"])
def test_boxes_as_text(text: str) -> None:
    with pytest.raises(ConfigError, match="expected four"):
        _parse_box(text)


@pytest.mark.parametrize("high_hz", [0.0, 0.1, float("nan"), -1.0, 1e300, float("inf")])
def test_bands_that_are_none(high_hz: float) -> None:
    for make in (FrontEnd.for_band, FrontEnd().at_band):
        with pytest.raises(ConfigError, match="front end"):
            make(high_hz)
