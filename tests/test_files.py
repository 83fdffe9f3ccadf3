from __future__ import annotations

from pathlib import Path

import pytest

from mast.files import remove_parts, whole_file, write_whole


def test_the_new_content_replaces_the_old_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "a.json"
    for content in (b"old", b"", b"new"):
        write_whole(path, content)
        assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_whole(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_somebody_else_writes(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    with whole_file(path) as part:
        part.write_bytes(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"

    def half() -> None:
        with whole_file(path) as part:
            part.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_only_the_parts_of_that_file_are_removed(tmp_path: Path) -> None:
    for name in (".a.json.12.part", ".a.json.345.part", ".b.json.12.part", "a.json"):
        (tmp_path / name).touch()
    remove_parts(tmp_path / "a.json")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".b.json.12.part", "a.json"]
    remove_parts(tmp_path / "nowhere" / "a.json")


def test_a_new_file_has_ordinary_permissions_whoever_writes_it(tmp_path: Path) -> None:
    (tmp_path / "ordinary").touch()
    (tmp_path / "private").touch(mode=0o600)
    with whole_file(tmp_path / "a") as part:
        (tmp_path / "private").replace(part)  # as safetensors does
    write_whole(tmp_path / "b", b"")
    modes = {path.name: path.stat().st_mode for path in tmp_path.iterdir()}
    assert modes["a"] == modes["b"] == modes["ordinary"]
