"""Which commit results and models say they are of."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mast import version


def git(folder: Path, *words: str) -> str:
    settings = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    done = subprocess.run(["git", *settings, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("a = 1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    monkeypatch.delenv("MAST_COMMIT", raising=False)
    monkeypatch.setattr(version, "_ROOT", tmp_path)
    return tmp_path


def test_a_changed_tree_is_not_called_its_commit(repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    assert version.commit() == head
    (repository / "notes.txt").write_text("not code")
    assert version.commit() == head
    (repository / "src" / "a.py").write_text("a = 2\n")
    assert version.commit() == f"{head}+changes"


def test_a_package_installed_inside_somebody_elses_repository_has_no_commit(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version, "_ROOT", repository / "src")
    assert version.commit() == "unknown"


def test_a_copy_without_history_gets_its_commit_from_the_environment(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAST_COMMIT", "c0ffee")
    assert version.commit() == "c0ffee"
