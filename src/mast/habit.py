"""What counts as one box: a habit of whoever draws boxes, which a model may have, learn from a few boxes, or be given.

Some people box a call with all its harmonics and its echo, others the strongest harmonic alone; some box notes,
others the songs they make. ``mast.annotations.redraw`` draws a model's boxes as a habit says.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Box = Literal["all", "strongest"]
# Hz, above which experts box the strongest harmonic alone rather than the whole call; measured on Costa Rican bats,
# results/habits.json
STRONGEST_ABOVE_HZ = 50_000.0


class Habit(BaseModel):
    """How boxes are drawn; the default leaves them as a model gives them."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    box: Box = Field(
        default="all", description="all of a call, or its strongest harmonic alone, without echo"
    )
    band_db: float = Field(
        default=25.0, gt=0, description="strongest: the band ends this far below its strongest frequency"
    )
    time_db: float = Field(
        default=15.0, gt=0, description="strongest: the call ends this far below its strongest moment"
    )
    join_s: float | None = Field(
        default=None, ge=0, description="boxes of a similar band at most this many seconds apart are one"
    )

    @property
    def changes_nothing(self) -> bool:
        """Whether boxes stay as a model gives them."""
        return self.box == "all" and self.join_s is None

    @property
    def settings(self) -> dict[str, str | float]:
        """The settings that change boxes, for ``run.json``."""
        strongest = f"strongest, {self.band_db:g} dB of its band and {self.time_db:g} dB of its time"
        return {
            "box": strongest if self.box == "strongest" else "all",
            "join": "none" if self.join_s is None else self.join_s,
        }

    def __str__(self) -> str:
        """For people, as in "the strongest harmonic, joined over gaps of up to 0.3 s"."""
        words = {
            "all": "whole calls",
            "strongest": f"the strongest harmonic (down to {self.band_db:g} dB), without echo ({self.time_db:g} dB)",
        }[self.box]
        return words if self.join_s is None else f"{words}, joined over gaps of up to {self.join_s:g} s"

    def played_slower(self, times: float) -> Habit:
        """The same habit for sounds that are this many times as long."""
        return (
            self if self.join_s is None else self.model_copy(update={"join_s": round(self.join_s * times, 9)})
        )
