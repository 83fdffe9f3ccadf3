"""How errors reach the user, whatever the command."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest
import soundfile as sf
import typer
from typer.testing import CliRunner

from mast.cli import main as cli
from mast.errors import MAX_SHOWN, ConfigError, MastError, machine_fault
from mast.files import holds_files


def ends(monkeypatch: pytest.MonkeyPatch, error: BaseException, *, debug: bool = False) -> int:
    """The exit code of a command that raises this."""

    def failing() -> None:
        raise error

    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(cli.with_debug(failing))
    monkeypatch.setattr(cli, "app", app)
    monkeypatch.setattr("sys.argv", ["mast", *(["--debug"] if debug else [])])
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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train", "x", "--lr", "0.1"], "No such option: --lr (Possible options: --set train.lr=…)"),
        (["pretrain", "x", "--lr", "0.1"], "--lr (Possible options: --set pretrain.lr=…)"),
        (
            ["selftrain", "x", "--max-chunks", "9"],
            "--max-chunks (Possible options: --set selftrain.max_chunks=…)",
        ),
        (["train", "x", "--levelled"], "--levelled (Possible options: --set levelled=…)"),
        (["train", "x", "--presett", "tiny"], "--presett (Possible options: --preset, --set)"),
        (["detect", "x", "--thresold", "0.1"], "--thresold (Possible options: --help, --threshold)"),
        (["fit", "x", "--lr", "0.1"], "--lr (Possible options: --set train.lr=…)"),
        (["detect", "x", "--lr", "0.1"], "--lr"),
    ],
)
def test_a_setting_that_is_no_option_is_named_with_set(words: list[str], told: str) -> None:
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code == 2
    assert told in result.stderr
    assert ("--set" in result.stderr) == ("--set" in told)


@pytest.mark.parametrize("kind", [ConfigError, ValueError])
def test_no_message_is_longer_than_a_few_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: type[Exception]
) -> None:
    ends(monkeypatch, kind("found " + "9\n" * 100_000 + "; expected a number"))
    shown = capsys.readouterr().err
    assert len(shown) < MAX_SHOWN + 60
    assert shown.count("\n") == 1
    assert "expected a number" in shown


def test_a_warning_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def app() -> None:  # pytest keeps what is really warned of
        sys.stderr.write(warnings.formatwarning("2 boxes start after\nthe end", UserWarning, "a.py", 1))

    monkeypatch.setattr(cli, "app", app)
    monkeypatch.setattr("sys.argv", ["mast", "scan"])
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    cli.main()
    assert capsys.readouterr().err == "mast: warning: 2 boxes start after the end\n"


def test_what_the_machine_refuses_is_not_our_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "out/run.json")
    assert ends(monkeypatch, full) == 2
    told = "mast: out/run.json: the disk is full; free some space, then run the same command again\n"
    assert capsys.readouterr().err == told
    with pytest.raises(OSError, match=r"run\.json"):
        ends(monkeypatch, full, debug=True)


def test_a_thread_s_traceback_is_shown_for_bugs_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)  # put back afterwards
    ends(monkeypatch, KeyboardInterrupt())
    capsys.readouterr()
    for error, shown in ((OSError(errno.ENOSPC, "full"), False), (ValueError("a bug"), True)):

        def fail(error: Exception = error) -> None:
            raise error

        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
        assert ("Traceback" in capsys.readouterr().err) == shown


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_behind_standard_output(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "mast.cli.main", "--version"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == "mast: the disk is full; free some space, then run the same command again\n"


@pytest.mark.parametrize(
    "command", [("simulate", "FILE/out"), ("simulate", "FILE/a/b"), ("scan", ".", "--out", "FILE/a.csv")]
)
def test_a_path_through_a_file(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "audio").mkdir()
    sf.write(tmp_path / "audio" / "a.wav", [0.0] * 16_000, 16_000)
    names = {".": str(tmp_path / "audio")}
    words = [names.get(word, word.replace("FILE", str(tmp_path / "file"))) for word in command]
    result = CliRunner().invoke(cli.app, [*words, "--quiet"])
    assert result.exception is not None
    assert "is a file" in str(machine_fault(result.exception))


@pytest.mark.parametrize(
    "command",
    [
        ("adapt", "FILE", "--out", "OUT"),
        ("pretrain", "FILE", "--out", "OUT", "--preset", "tiny"),
        ("train", "FILE", "--out", "OUT", "--preset", "tiny"),
        ("selftrain", "FILE", "--unlabelled", ".", "--init", "default", "--out", "OUT"),
        ("fit", "FILE", "--out", "OUT"),
        ("plan", "FILE", "--out", "OUT"),
        ("scan", "FILE"),
        ("embed", "FILE", "--out", "OUT"),
        ("review", "FILE", "--no-browser"),
        ("convert", "FILE", "OUT", "--to", "dataset", "--from", "birdeep"),
        ("convert", "FILE", "OUT", "--to", "raven", "--audio", "FILE"),
        ("clips", "FILE", "--out", "OUT", "--audio", "FILE"),
        ("simulate", "OUT", "--backgrounds", "FILE"),
    ],
    ids=" ".join,
)
def test_a_file_where_a_folder_is_expected(tmp_path: Path, command: tuple[str, ...]) -> None:
    table = tmp_path / "boxes.csv"
    table.write_text("recording,start_s,end_s,low_hz,high_hz\na.wav,0,1,1000,2000\n")
    names = {"FILE": str(table), "OUT": str(tmp_path / "out"), ".": str(tmp_path)}
    result = CliRunner().invoke(cli.app, [*(names.get(word, word) for word in command), "--quiet"])
    assert isinstance(result.exception, MastError), result.output
    said = str(result.exception)
    assert f"{table}: is a file; expected " in said
    assert "folder" in said.partition("; ")[2] or "dataset" in said
    assert not holds_files(tmp_path / "out")  # so that the right command may use it


WITHOUT_STUDIES = """
import sys

class Absent:
    def find_spec(self, name, *rest):
        if name == "mast_studies":
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Absent())
from mast.cli.main import main
main()
"""


def test_the_studies_are_in_a_clone_only() -> None:
    words = ["experiment", "ood", "--data", "bench", "--seeds", "0,1"]
    done = subprocess.run([sys.executable, "-c", WITHOUT_STUDIES, *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert "pip install -e .[studies]" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["--unlabelled", "--unlabeled"])
def test_either_spelling_of_an_option_is_understood(option: str, tmp_path: Path) -> None:
    given = ["fit", str(tmp_path / "none"), option, str(tmp_path), "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(cli.app, given)
    assert isinstance(done.exception, MastError), done.output
    assert "no such folder" in str(done.exception)
