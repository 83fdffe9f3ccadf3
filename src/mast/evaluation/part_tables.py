"""One part of a dataset as a detector was measured on it: tables that can be matched again, exactly as measured.

    FOLDER/<part>.truth.parquet    the expert's boxes, as they lie in chunks laid end to end
           <part>.found.parquet    the detector's boxes, with the scores it gives
           <part>.heard.parquet    the recordings, from the first chunk to the end of the last
           <part>.json             front end, threshold, and what scores mean

All boxes are in seconds and hertz. They are compared on the grid that the detector works on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from mast.errors import MastError
from mast.evaluation.outcome import Outcome, match_scene
from mast.evaluation.report import Evaluation, evaluate
from mast.evaluation.scene import Scoring, build_scene
from mast.events import as_events
from mast.files import write_atomic, write_json
from mast.grid import FrontEnd
from mast.probability import Calibration

TABLES = ("found", "heard", "truth")  # in the order they are written: once the truth is there, all are


@dataclass(frozen=True)
class PartTables:
    """One part of a dataset as a detector was measured on it.

    Attributes:
        truth: the expert's boxes, in the event schema.
        found: the detector's boxes, in the event schema; ``score`` is the detector's own.
        heard: ``recording, start_s, end_s`` of what was listened to.
        front_end: the grid on which boxes are compared.
        threshold: score from which a box counts, chosen on validation; None before that.
        calibration: how scores become the probabilities that users see.
    """

    truth: pd.DataFrame
    found: pd.DataFrame
    heard: pd.DataFrame
    front_end: FrontEnd
    threshold: float | None = None
    calibration: Calibration = field(default_factory=Calibration)

    @property
    def recordings(self) -> list[str]:
        """Names of the recordings that were listened to, sorted."""
        return sorted(self.heard["recording"].astype(str).unique())

    @property
    def above_threshold(self) -> pd.DataFrame:
        """The detector's boxes from its threshold up."""
        return self.found if self.threshold is None else self.found[self.found["score"] >= self.threshold]

    def with_probabilities(self, found: pd.DataFrame) -> pd.DataFrame:
        """Rows of :attr:`found` as users see them: with probabilities for scores."""
        return found.assign(score=self.calibration.apply(found["score"].to_numpy(dtype=float)))

    @property
    def _scoring(self) -> Scoring:
        return Scoring(space="cells", front_end=self.front_end)

    def match(self) -> Outcome:
        """Which detections are right."""
        return match_scene(build_scene(self.truth, self.found, reviewed=self.heard, scoring=self._scoring))

    def evaluate(self, *, resamples: int = 0, seed: int = 0) -> Evaluation:
        """How good the detector is here, at its threshold.

        Args:
            resamples: bootstrap draws over recordings; 0 for no intervals.
            seed: of the draws.
        """
        return evaluate(
            self.truth,
            self.found,
            reviewed=self.heard,
            scoring=self._scoring,
            threshold=self.threshold,
            resamples=resamples,
            seed=seed,
        )

    def save(self, folder: Path, part: str) -> None:
        """Write the tables below ``folder``; each file is there whole or not at all, the truth last."""
        settings = {
            "front_end": self.front_end.model_dump(mode="json"),
            "threshold": self.threshold,
            "calibration": self.calibration.model_dump(mode="json"),
        }
        write_json(folder / f"{part}.json", settings)
        for kind in TABLES:
            table: pd.DataFrame = getattr(self, kind)
            write_atomic(folder / f"{part}.{kind}.parquet", table.to_parquet(index=False, compression="zstd"))

    @classmethod
    def load(cls, folder: Path, part: str) -> PartTables:
        """Read what :meth:`save` wrote."""
        try:
            settings = json.loads((folder / f"{part}.json").read_text(encoding="utf-8"))
            found, heard, truth = (pd.read_parquet(folder / f"{part}.{kind}.parquet") for kind in TABLES)
            return cls(
                as_events(truth),
                as_events(found),
                heard,
                FrontEnd.model_validate(settings["front_end"]),
                settings["threshold"],
                Calibration.model_validate(settings["calibration"]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise MastError(
                f"{folder}: its tables of {part} cannot be read ({error}); delete the folder and measure again"
            ) from None


def merge_parts(parts: Sequence[PartTables]) -> PartTables:
    """Several parts that one detector was measured on as one."""
    tables = {kind: pd.concat([getattr(part, kind) for part in parts], ignore_index=True) for kind in TABLES}
    return replace(parts[0], **tables)


def has_part(folder: Path, part: str) -> bool:
    """Whether all tables of a part are there."""
    return (folder / f"{part}.{TABLES[-1]}.parquet").is_file()


def parts_in(folder: Path) -> list[str]:
    """The parts whose tables are in a folder, by name."""
    suffix = f".{TABLES[-1]}.parquet"
    return sorted(path.name.removesuffix(suffix) for path in folder.glob(f"*{suffix}"))
