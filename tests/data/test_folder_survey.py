"""What is in a folder of recordings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from mast.data.folder_survey import COLUMNS, add_up, survey
from mast.errors import AudioError


def _folder(root: Path) -> Path:
    root.mkdir()
    for name, rate, seconds in (("N1_20240501_050000", 8000, 9), ("N2_20240503_060000", 16_000, 27)):
        sf.write(root / f"{name}.wav", np.zeros(rate * seconds), rate)
    sf.write(root / "undated.wav", np.zeros(8000 * 36), 8000)
    (root / "broken.wav").write_bytes(b"no sound")
    return root


def test_a_folder_is_added_up(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    found = survey(_folder(tmp_path / "a"), progress=lambda done, total: seen.append((done, total)))
    assert [tuple(row) for row in found.rows] == [COLUMNS] * 3
    assert [row["file"] for row in found.failures] == ["broken.wav"]
    assert (found.files, seen[-1]) == (4, (4, 4))
    every = add_up(found.rows)
    assert every.hours == pytest.approx(72 / 3600)
    assert dict(every.sample_rates) == {8000: 2, 16_000: 1}
    assert every.days == ["2024-05-01", "2024-05-03"]
    assert every.undated == 1


def test_a_folder_without_sound(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(AudioError, match="no recordings found"):
        survey(tmp_path)


def test_a_folder_where_nothing_is_readable_names_the_first(tmp_path: Path) -> None:
    (tmp_path / "broken.wav").write_bytes(b"no sound")
    found = survey(tmp_path)
    assert str(found.unreadable_error(tmp_path)).startswith(
        f"{tmp_path}: no recording can be read (1 tried); broken.wav: "
    )
