"""Stretches in which people speak, found with silero-vad so that they are not published.

The model's weights (MIT licence) are in the package silero-vad, which is only looked for, never imported. It hears
32 ms at a time, at 16 kHz, and gives the probability of speech. A stretch of speech has at least a quarter of a second
above the threshold, without a pause of half a second.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from mast.arrays import FloatArray, Samples
from mast.audio import probe, read
from mast.errors import ConfigError
from mast.spans import TimeSpan

RATE, FRAME = 16_000, 512
THRESHOLD = 0.3  # lowest that does not take birds for speech: results/voices.json
_BEFORE = 64  # samples before a frame that the model hears with it
_SHORTEST_S, _PAUSE_S = 0.25, 0.5
_AROUND_S = 3.0  # heard before and after the requested span: a word alone is hard to recognise
_QUIET = 1e-4  # quieter sound is not amplified any further


class VoiceFinder:
    """The speech detector.

    Raises:
        ConfigError: it is not installed.
    """

    def __init__(self) -> None:
        package = find_spec("silero_vad")
        if package is None or package.origin is None or find_spec("onnxruntime") is None:
            raise ConfigError(
                "--no-voices: silero-vad is not installed; run `pip install 'mast-audio[voices]'`"
            )
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session: Any = onnxruntime.InferenceSession(
            str(Path(package.origin).parent / "data" / "silero_vad_16k_op15.onnx"),
            options,
            providers=["CPUExecutionProvider"],
        )

    def __call__(self, path: Path, start_s: float, end_s: float) -> list[TimeSpan]:
        """Stretches of speech that touch a span of a recording, in seconds of the recording.

        Raises:
            AudioError: the recording cannot be read.
        """
        first_s = max(0.0, start_s - _AROUND_S)
        last_s = min(probe(path).duration_s, end_s + _AROUND_S)
        if not first_s < last_s:
            return []
        found = speech_spans(self.probabilities(read(path, start_s=first_s, end_s=last_s, sample_rate=RATE)))
        spans = [(first_s + begin, first_s + end) for begin, end in found]
        return [(begin, end) for begin, end in spans if begin < end_s and end > start_s]

    def probabilities(self, sound: Samples) -> FloatArray:
        """How likely speech is in each frame of 32 ms; the sound is first normalised to its peak."""
        peak = max(float(np.abs(sound).max(initial=0.0)), _QUIET)
        padded = np.pad(sound / peak, (_BEFORE, -len(sound) % FRAME)).astype(np.float32)
        state = np.zeros((2, 1, 128), np.float32)
        rate = np.array(RATE, np.int64)
        found = np.empty((len(padded) - _BEFORE) // FRAME)
        for k in range(len(found)):
            frame = padded[None, k * FRAME : (k + 1) * FRAME + _BEFORE]
            out, state = self._session.run(None, {"input": frame, "state": state, "sr": rate})
            found[k] = out[0, 0]
        return found


def speech_spans(probabilities: FloatArray, threshold: float = THRESHOLD) -> list[TimeSpan]:
    """Stretches of speech, in seconds from the first frame.

    >>> speech_spans(np.array([0.0] * 10 + [0.9] * 10 + [0.0] * 10))
    [(0.32, 0.64)]
    """
    frame_s = FRAME / RATE
    found: list[list[int]] = []
    for k in np.flatnonzero(probabilities >= threshold).tolist():
        if found and (k - found[-1][-1] - 1) * frame_s < _PAUSE_S:
            found[-1].append(k)
        else:
            found.append([k])
    return [
        (round(frames[0] * frame_s, 6), round((frames[-1] + 1) * frame_s, 6))
        for frames in found
        if len(frames) * frame_s >= _SHORTEST_S
    ]
