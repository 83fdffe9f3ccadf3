"""Headers of many recordings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile as sf

from mast.data.header_scan import scan_headers
from mast.data.recordings import recordings_in


def test_what_is_read_and_what_is_not_in_the_order_given(tmp_path: Path) -> None:
    for n in range(12):
        sf.write(tmp_path / f"N1_20240501_{n:02}0000.wav", np.zeros(160 * (n + 1)), 16_000)
    (tmp_path / "N1_20240501_050000.wav").write_bytes(b"RIFF")
    (tmp_path / "recordings.csv").write_text("file,site\nN1_20240501_070000.wav,Oak\n", encoding="utf-8")
    paths = recordings_in(tmp_path)
    told: list[None] = []
    found = scan_headers(paths, tmp_path, advance=lambda: told.append(None))
    assert len(told) == len(paths) == 12
    assert [one.name for one in found.recordings] == [name for name in paths if "_050000" not in name]
    assert [one.info.frames // 160 for one in found.recordings] == [n + 1 for n in range(12) if n != 5]
    by_name = {one.name: one.about for one in found.recordings}
    assert by_name["N1_20240501_070000.wav"].site == "Oak"  # as listed, whatever the name says
    assert by_name["N1_20240501_080000.wav"].site == "N1"
    when = by_name["N1_20240501_070000.wav"].datetime
    assert when is not None
    assert when.isoformat() == "2024-05-01T07:00:00"
    (broken,) = found.unreadable
    assert (broken.name, broken.path.name) == ("N1_20240501_050000.wav", "N1_20240501_050000.wav")
    assert str(broken.path) in str(broken.error)
