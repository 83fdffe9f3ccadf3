"""Commands report on themselves: figures while they run, and what became of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from mast.cli.options import lock_folder, progress_bar, say
from mast.cli.reporting import report_command
from mast.errors import ConfigError
from mast.progress import PROGRESS, REPORT_IN, read_progress


def test_bars_and_lines_are_reported_also_when_quiet(tmp_path: Path) -> None:
    with report_command(), lock_folder(tmp_path / "out"):
        say("a line", quiet=True)
        with progress_bar(True, unit="recordings") as bar:
            task = bar.add_task("detect", total=3)
            bar.advance(task)
            bar.update(task, description="other work")
        found = read_progress(tmp_path / "out")
    assert found is not None
    assert (found.what, found.done, found.total, found.unit) == ("other work", 1, 3, "recordings")
    assert found.notes == ["a line"]
    after = read_progress(tmp_path / "out")
    assert after is not None
    assert after.state == "done"


def test_the_folder_given_is_used_from_the_first_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REPORT_IN, str(tmp_path))
    seen = []

    def refuse() -> None:
        seen.append(read_progress(tmp_path))
        raise ConfigError("no such model; choose another")

    with pytest.raises(ConfigError), report_command():
        refuse()
    assert seen[0] is not None
    assert seen[0].state == "running"
    found = read_progress(tmp_path)
    assert found is not None
    assert (found.state, found.sentence) == ("failed", "no such model; choose another")


@pytest.mark.parametrize(
    ("raised", "state", "sentence"),
    [
        (KeyboardInterrupt(), "stopped", ""),
        (typer.Exit(130), "stopped", ""),
        (typer.Exit(4), "done", ""),
        (OSError(28, "No space left on device", "/x"), "failed", "/x: the disk is full"),
        (ZeroDivisionError("oops"), "failed", "internal error: ZeroDivisionError: oops"),
    ],
)
def test_what_became_of_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: BaseException, state: str, sentence: str
) -> None:
    monkeypatch.setenv(REPORT_IN, str(tmp_path))
    with pytest.raises(type(raised)), report_command():
        raise raised
    found = read_progress(tmp_path)
    assert found is not None
    assert found.state == state
    assert found.sentence.startswith(sentence)


def test_a_refused_command_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError), report_command(), lock_folder(tmp_path / "out"):
        raise ConfigError("refused before anything was done")
    assert not (tmp_path / "out").exists()


def test_nothing_is_reported_where_no_folder_is_written(tmp_path: Path) -> None:
    with report_command(), progress_bar(True) as bar:
        bar.add_task("look", total=1)
    assert not list(tmp_path.rglob(PROGRESS))
