"""Lists of stretches in which people speak."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from mast.classifiers import voice_lists
from mast.classifiers.voice_lists import HEARD, VOICES, read_voices, update_voice_lists, write_voices
from mast.errors import ConfigError

Span = tuple[float, float]


class Pretended:
    """Finds the stretches that it was given, by file name, where they touch what is asked about."""

    def __init__(self, spoken: dict[str, list[Span]]) -> None:
        self.spoken = spoken
        self.asked: list[tuple[str, float, float]] = []

    def __call__(self, path: Path, start_s: float, end_s: float) -> list[Span]:
        self.asked.append((path.name, start_s, end_s))
        return [(a, b) for a, b in self.spoken.get(path.name, []) if a < end_s and b > start_s]


def _recordings(folder: Path, **seconds: float) -> dict[str, Path]:
    for name, length in seconds.items():
        sf.write(folder / f"{name}.wav", np.zeros(round(length * 1_000)), 1_000)
    return {f"{name}.wav": folder / f"{name}.wav" for name in seconds}


def test_a_list_comes_back_with_its_stretches_joined(tmp_path: Path) -> None:
    write_voices(
        tmp_path / VOICES,
        {"b, c.wav": [(3.0, 4.5), (1.0, 2.0)], "a.wav": [(1.25, 2.0), (1.5, 3.0), (3.0, 4.0)], "c": []},
    )
    text = 'recording,start_s,end_s\na.wav,1.25,4.0\n"b, c.wav",1.0,2.0\n"b, c.wav",3.0,4.5\n'
    assert (tmp_path / VOICES).read_text() == text
    assert read_voices(tmp_path / VOICES) == {"a.wav": [(1.25, 4)], "b, c.wav": [(1, 2), (3, 4.5)]}


def test_no_list_and_an_empty_one_hold_nothing(tmp_path: Path) -> None:
    assert read_voices(tmp_path / VOICES) == {}
    write_voices(tmp_path / VOICES, {})
    assert read_voices(tmp_path / VOICES) == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not a list of speech"),
        (
            "file,start_s,end_s\na,0,1\n",
            "not a list of speech; expected the columns recording, start_s, end_s",
        ),
        (
            "recording,start_s,end_s\na,0,1\na,2,1\n",
            "line 3 says '2' to '1' s; expected a start before an end",
        ),
        ("recording,start_s,end_s\na,,\n", "line 2 says '' to '' s"),
        ("recording,start_s,end_s\na,0,inf\n", "line 2"),
        ("recording,start_s,end_s\na,x,1\n", "line 2"),
    ],
)
def test_what_is_not_a_list_is_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / VOICES).write_text(text)
    with pytest.raises(ConfigError, match=r"voices\.csv: ") as error:
        read_voices(tmp_path / VOICES)
    assert told in str(error.value)


def test_whole_recordings_are_searched_piece_by_piece(tmp_path: Path) -> None:
    recordings = _recordings(tmp_path, a=70, b=5)
    finder = Pretended({"a.wav": [(2, 3), (29, 31), (69, 70)]})
    assert update_voice_lists(recordings, finder, tmp_path) == []
    assert finder.asked == [("a.wav", 0, 30), ("a.wav", 30, 60), ("a.wav", 60, 70), ("b.wav", 0, 5)]
    # each once, with a second around it
    assert read_voices(tmp_path / VOICES) == {"a.wav": [(1, 4), (28, 32), (68, 70)]}
    assert (tmp_path / HEARD).read_text() == "recording\na.wav\nb.wav\n"


def test_a_stopped_search_resumes_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voice_lists, "_SAVE_S", 0.0)
    recordings = _recordings(tmp_path, a=5, b=5, c=5)
    finder = Pretended({"a.wav": [(1, 2)], "c.wav": [(3, 4)]})

    class Stopped(Pretended):
        def __call__(self, path: Path, start_s: float, end_s: float) -> list[Span]:
            if path.name == "c.wav":
                raise KeyboardInterrupt
            return super().__call__(path, start_s, end_s)

    with pytest.raises(KeyboardInterrupt):
        update_voice_lists(recordings, Stopped(finder.spoken), tmp_path)
    assert read_voices(tmp_path / VOICES) == {"a.wav": [(0, 3)]}
    update_voice_lists(recordings, finder, tmp_path)
    assert [name for name, *_ in finder.asked] == ["c.wav"]
    assert read_voices(tmp_path / VOICES) == {"a.wav": [(0, 3)], "c.wav": [(2, 5)]}


def test_stretches_that_somebody_listed_are_kept(tmp_path: Path) -> None:
    write_voices(tmp_path / VOICES, {"a.wav": [(1, 2)]})  # not in the list of those searched
    finder = Pretended({"a.wav": [(5, 6)]})
    update_voice_lists(_recordings(tmp_path, a=9), finder, tmp_path)
    assert read_voices(tmp_path / VOICES) == {"a.wav": [(1, 2), (4, 7)]}


def test_a_recording_that_cannot_be_read_is_told_and_tried_again(tmp_path: Path) -> None:
    recordings = {**_recordings(tmp_path, a=5), "bad.wav": tmp_path / "bad.wav"}
    (tmp_path / "bad.wav").write_bytes(b"no sound")
    (why,) = update_voice_lists(recordings, Pretended({}), tmp_path)
    assert "bad.wav" in why
    assert (tmp_path / HEARD).read_text() == "recording\na.wav\n"
