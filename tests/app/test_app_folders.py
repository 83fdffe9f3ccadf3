"""Choosing a folder: what is typed, dropped, missing or forbidden."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from app_folders import write_sound

from mast.app.folders import list_folder, parse_folder, starting_places
from mast.errors import ConfigError


def test_a_path_is_taken_as_people_give_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "wood & meadow"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    for text in (str(folder), f"  {folder}/ ", f'"{folder}"', folder.as_uri(), "~/wood & meadow"):
        assert parse_folder(text) == folder


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "no folder was given"), ("wood", "expected the full path"), ("/nowhere/at/all", "no such folder")],
)
def test_what_is_no_folder_is_said_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_folder(text)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"")
    with pytest.raises(ConfigError, match="is a file"):
        parse_folder(str(tmp_path / "a.wav"))


def test_a_folder_lists_its_folders_and_counts_its_recordings(tmp_path: Path) -> None:
    write_sound(tmp_path)
    for name in ("b", "A", ".hidden"):
        (tmp_path / name).mkdir()
    (tmp_path / "notes.txt").write_text("")
    found = list_folder(tmp_path)
    assert (found.folders, found.recordings, found.is_results) == (["A", "b"], 2, False)
    assert found.parent == str(tmp_path.parent)
    assert list_folder(Path("/")).parent == ""


def test_a_folder_that_may_not_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(ConfigError, match="cannot be listed"):
        list_folder(tmp_path)


def test_one_can_begin_at_home() -> None:
    assert starting_places()[0] == ("Home", str(Path.home()))
