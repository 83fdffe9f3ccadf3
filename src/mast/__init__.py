"""mast: detection of animal sounds as time–frequency boxes (Masked Audio pretraining and Self-Training)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from mast.version import __version__ as __version__

if TYPE_CHECKING:
    from pathlib import Path

    from mast.inference import Detector


def load(
    name: str | Path = "default",
    *,
    device: str | None = None,
    threshold: float | None = None,
    precision: float | None = None,
    hop: float = 0.75,
    thorough: bool = False,
    batch_size: int | None = None,
    embed: bool = False,
    runtime: Literal["torch", "onnx"] | None = None,
    compile: bool | None = None,
    band_hz: float | Literal["fish", "frogs", "birds", "bats"] | None = None,
    box: Literal["all", "strongest"] | None = None,
    join_s: float | None = None,
) -> Detector:
    """A trained detector, ready for recordings.

    Args:
        name: ``"default"`` for the model that ships with mast; a run of ``mast fit`` or ``mast train``, or a model
            folder; ``"hf://owner/name"`` or ``"hf://owner/name@revision"`` for a model on the Hugging Face hub.
        device: ``"cpu"``, ``"cuda"`` …; by default, the GPU if there is one.
        threshold: minimum score of an event; the model's own, tuned on validation, by default.
        precision: share of events that should be right; picks the threshold that reached it on validation.
        hop: step from window to window as a share of the window.
        thorough: search at three playing speeds and merge what is found: better for recorders that the model does not
            know, but three times slower; not with ``embed``.
        batch_size: windows at once; by default, chosen for the device.
        embed: make :meth:`~mast.inference.Detector.detect_and_embed` possible.
        runtime: what runs the network. By default, ONNX Runtime in eight bits on CPUs without bfloat16; there,
            ``"torch"`` keeps float32.
        compile: compile the model for the GPU: slow start, then faster; MAST on CUDA by default.
        band_hz: upper edge of the band to search, in Hz or by the animals' name, as with ``--band``; the model's own by
            default.
        box: ``"all"`` of a call, or its ``"strongest"`` harmonic alone, without echo. The model's own habit by default:
            the embedded model draws all of a call, but above 50 kHz the strongest harmonic.
        join_s: merge boxes of a similar band that are at most this many seconds apart.

    >>> import mast
    >>> events = mast.load().detect("sim/audio/S01_20240512_055800.flac")
    >>> events[["start_s", "end_s", "score"]].round(1)
       start_s  end_s  score
    0      0.6    1.5    1.0
    1      3.8    4.7    1.0
    2      5.5    5.8    0.9
    3      7.6    8.2    1.0
    """
    from mast.detect_options import DetectOptions
    from mast.grid import upper_edge_hz
    from mast.inference import Detector  # imported late: pandas takes most of a second
    from mast.settings import parse_settings

    given = {
        "device": device,
        "threshold": threshold,
        "precision_target": precision,
        "hop": hop,
        "thorough": thorough,
        "batch_size": batch_size,
        "embed": embed,
        "runtime": runtime,
        "compile": compile,
        "band_hz": None if band_hz is None else upper_edge_hz(band_hz),
        "box": box,
        "join_s": join_s,
    }
    return Detector(name, parse_settings(DetectOptions, given, where="mast.load"))
