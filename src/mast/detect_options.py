"""How recordings are searched: one set of options, from the command line and Python to ``run.json`` and back."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, model_validator

from mast.errors import ConfigError
from mast.habit import Box, Habit

# as a share of a window. The paper's chunks overlap by half; 0.75 saves a third of the windows and hardly changes F1 on
# simulated recordings (results/hop.json); calls of up to 2.5 s are still seen whole
DEFAULT_HOP = 0.75
# the step grows up to this in a recording where that saves a window (one in eight in a minute of sound), unless the
# user gives a step; F1 is the same (results/hop_one_minute.json)
LONGEST_DEFAULT_HOP = 0.8125
Runtime = Literal["torch", "onnx"]


class DetectOptions(BaseModel):
    """What a user may choose when a model searches recordings; ``None`` leaves it to the model or the machine.

    Attributes:
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"``; by default, the GPU if there is one.
        threshold: minimum score of an event, as in the column ``score``: a probability if the checkpoint was
            calibrated. By default, the checkpoint's own (tuned on validation).
        precision_target: instead of a threshold: use the lowest one that reached this precision on validation.
        hop: step from window to window as a share of the window, above 0 and at most 1. At 0.5 every sound but the
            ends is seen twice; at 1 once, and calls cut by a window's edge are put together from pieces. The default is
            a little longer in recordings where that saves a window, such as those of a minute.
        thorough: search at three playing speeds and merge what is found, which takes three times as long; not with
            ``embed``.
        batch_size: windows at once; by default, chosen for the device. On a GPU every batch is filled up, with the
            windows of the next recordings or with silence.
        embed: also give the encoder's features inside each event, see :meth:`mast.inference.Detector.detect_and_embed`.
            They are held in memory until the recording is done: 2 D bytes per event, D being the encoder's width.
        runtime: what runs the network, ``"torch"`` or ``"onnx"`` (ONNX Runtime on a CPU, in eight bits). By default,
            ONNX Runtime if there is neither a GPU nor a CPU with bfloat16, and it can run the model.
        compile: compile the model for this GPU, which makes the start slower; MAST on CUDA by default.
        band_hz: upper edge of the band to search, Hz; the model's own by default. Sound is played to the model that
            much faster or slower: one that knows birds up to 8 kHz then finds fish up to 2 kHz, or bats up to 128 kHz.
        box: ``"all"`` of a call, or its ``"strongest"`` harmonic alone; the model's own habit by default.
        join_s: boxes of a similar band at most this many seconds apart are one; the model's own habit by default, none
            where ``box`` is given.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    device: str | None = None
    threshold: float | None = None
    precision_target: float | None = None
    hop: float = DEFAULT_HOP
    thorough: bool = False
    batch_size: int | None = None
    embed: bool = False
    runtime: Runtime | None = None
    compile: bool | None = None
    band_hz: float | None = None
    box: Box | None = None
    join_s: float | None = None

    @model_validator(mode="after")
    def _possible(self) -> DetectOptions:
        if not 0 < self.hop <= 1:
            raise ConfigError(f"hop {self.hop:g}: expected a share of the window above 0 and at most 1")
        if self.thorough and self.embed:
            raise ConfigError(
                "--thorough gives no embeddings: an event that is heard at several speeds has no single one; search "
                "without --embed, then run mast embed with --model on the results"
            )
        if self.batch_size is not None and self.batch_size < 1:
            raise ConfigError(f"batch of {self.batch_size} windows: expected at least 1")
        if self.join_s is not None and not 0 <= self.join_s < float("inf"):
            raise ConfigError(f"join {self.join_s:g}: expected seconds, 0 or more")
        return self

    def resolve_habit(self, own: Habit | None) -> Habit:
        """How boxes are drawn: as requested, else by the model's own habit, else as the model gives them."""
        habit = own or Habit()
        if self.box is not None:
            return habit.model_copy(update={"box": self.box, "join_s": self.join_s})
        return habit if self.join_s is None else habit.model_copy(update={"join_s": self.join_s})


DEFAULT_OPTIONS = DetectOptions()
