"""Stretches in which people speak."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from hypothesis import given
from hypothesis import strategies as st

from mast.classifiers import voices
from mast.classifiers.voices import FRAME, RATE, VoiceFinder, speech_spans
from mast.errors import ConfigError


class PretendedSession:
    """A frame's loudest sample is how likely speech is; counts its frames in its state."""

    def run(self, _: None, given: dict[str, Any]) -> tuple[Any, Any]:
        assert given["input"].shape == (1, 64 + FRAME)
        assert given["input"].dtype == np.float32
        return np.array([[abs(given["input"][0, 64:]).max()]]), given["state"] + 1


@pytest.fixture
def finder(monkeypatch: pytest.MonkeyPatch) -> VoiceFinder:
    found = VoiceFinder.__new__(VoiceFinder)
    found._session = PretendedSession()
    return found


def test_stretches_by_hand() -> None:
    frames = np.zeros(100)
    frames[[10, 11, 12, 13, 14, 15, 16, 17]] = 0.3  # 0.256 s
    frames[[25, 26]] = 0.9  # 0.224 s later: the same
    frames[[60, 61, 62]] = 1.0  # too short
    assert speech_spans(frames) == [(0.32, 0.864)]
    assert speech_spans(frames, 0.31) == []
    assert speech_spans(np.zeros(0)) == []


@given(st.lists(st.booleans(), max_size=120))
def test_stretches_of_a_naive_twin(spoken: list[bool]) -> None:
    found, frame_s = [], FRAME / RATE
    k = 0
    while k < len(spoken):
        if spoken[k]:
            last, count, at = k, 1, k + 1
            while at < len(spoken) and (spoken[at] or (at - last) * frame_s < 0.5):
                if spoken[at]:
                    last, count = at, count + 1
                at += 1
            if count * frame_s >= 0.25:
                found.append((round(k * frame_s, 6), round((last + 1) * frame_s, 6)))
            k = last + 1
        else:
            k += 1
    assert speech_spans(np.array(spoken, dtype=np.float64)) == found


def test_times_are_those_of_the_recording_and_faint_sound_is_made_louder(
    finder: VoiceFinder, tmp_path: Path
) -> None:
    sound = np.zeros(60 * RATE, np.float32)
    sound[20 * RATE : 21 * RATE] = 0.01
    sf.write(tmp_path / "a.wav", sound, RATE)
    ((start, end),) = finder(tmp_path / "a.wav", 19.5, 20.5)
    assert (start, end) == pytest.approx((20, 21), abs=0.04)
    assert finder(tmp_path / "a.wav", 21.2, 22.0) == []  # heard around it, but not in it
    assert finder(tmp_path / "a.wav", 40.0, 41.0) == []
    assert finder(tmp_path / "a.wav", 70.0, 71.0) == []  # after the end
    assert len(finder.probabilities(sound[:700])) == 2
    assert len(finder.probabilities(sound[:0])) == 0


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voices, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"silero-vad is not installed; run `pip install 'mast-audio\[voices\]'`"
    ):
        VoiceFinder()


def test_tones_and_noise_are_not_speech() -> None:
    try:
        finder = VoiceFinder()
    except ConfigError as error:
        pytest.skip(str(error))
    time = np.arange(4 * RATE) / RATE
    noise = np.random.default_rng(0).normal(0, 0.1, len(time)).astype(np.float32)
    tone = (0.3 * np.sin(2 * np.pi * 3_000 * time) * (time % 0.5 < 0.2)).astype(np.float32)
    for sound in (noise, tone, np.zeros_like(noise)):
        found = finder.probabilities(sound)
        assert len(found) == 125
        assert speech_spans(found) == []
