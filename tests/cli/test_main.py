"""How errors reach the user, whatever the command."""

from __future__ import annotations

import pytest

from mast.cli import main as cli
from mast.errors import MOST_SHOWN, ConfigError


def ends(monkeypatch: pytest.MonkeyPatch, error: BaseException, *, debug: bool = False) -> int:
    """The exit code of a command that raises this."""

    def app() -> None:
        raise error

    monkeypatch.setattr(cli, "app", app)
    monkeypatch.setattr("sys.argv", ["mast", "scan", *(["--debug"] if debug else [])])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert isinstance(end.value.code, int)
    return end.value.code


def test_exit_codes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends(monkeypatch, ConfigError("--band 0: expected more")) == 2
    assert ends(monkeypatch, KeyboardInterrupt()) == 130
    assert ends(monkeypatch, ZeroDivisionError("division by zero")) == 3
    assert capsys.readouterr().err.splitlines() == [
        "mast: --band 0: expected more",
        "mast: stopped.",
        "mast: internal error: ZeroDivisionError: division by zero (--debug shows where)",
    ]
    with pytest.raises(ConfigError):
        ends(monkeypatch, ConfigError("--band 0: expected more"), debug=True)


@pytest.mark.parametrize("kind", [ConfigError, ValueError])
def test_no_message_is_longer_than_a_few_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: type[Exception]
) -> None:
    ends(monkeypatch, kind("found " + "9\n" * 100_000 + "; expected a number"))
    shown = capsys.readouterr().err
    assert len(shown) < MOST_SHOWN + 60
    assert shown.count("\n") == 1
    assert "expected a number" in shown
