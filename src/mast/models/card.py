"""``model.json``: what a model folder says about its weights. Read without torch.

The weights carry a copy of it; :mod:`mast.models.checkpoint`, which writes both, says when the copy counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from safetensors import SafetensorError, safe_open

from mast.errors import MastError, machine_fault
from mast.grid import FrontEnd
from mast.habit import STRONGEST_ABOVE_HZ, Habit
from mast.models.architecture import DetectorConfig, MaeConfig
from mast.models.baselines import BaselineConfig
from mast.models.fingerprint import fingerprint_of
from mast.normalisation import Normalisation
from mast.probability import Calibration, StoredCalibration

WEIGHTS = "model.safetensors"
CARD = "model.json"
LEARNT_FROM = "learnt_from"  # in a card's provenance: the sound that a detector was trained on
_MAX_BYTES = 16_000_000  # bytes of a card; a real one has some ten thousand


class ModelCard(BaseModel):
    """``model.json``: all that is needed to use the weights next to it, and to trust them."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["detector", "mae"]
    architecture: DetectorConfig | BaselineConfig | MaeConfig
    front_end: FrontEnd = FrontEnd()
    normalisation: Normalisation
    thresholds: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(
        default={}, description='operating points, such as {"score": 0.31, "nms_iou": 0.5}'
    )
    calibration: StoredCalibration | None = Field(
        default=None, description="what scores mean; none where it was never calibrated"
    )
    habit: Habit | None = Field(
        default=None, description="how its boxes are redrawn; none where they stay as the model gives them"
    )
    ranges: dict[str, tuple[float, float]] | None = Field(
        default=None,
        description="lowest and highest values of its maps, so that convolutions can be rounded to eight bits; none "
        "where they were not measured (mast.models.onnx_detector)",
    )
    provenance: dict[str, Any] = Field(default={}, description="recipe, data, seeds, versions, metrics")
    licence: str = Field(default="", description="of the weights, as their training data allow")
    weights_sha256: str = Field(default="", description="fingerprint of the weights; filled in on saving")

    @field_validator("calibration", mode="before")
    @classmethod
    def _none_is_empty(cls, field: Any) -> Any:
        """Earlier cards say ``{}`` where there is none."""
        return None if field == {} else field

    def at_band(self, high_hz: float) -> ModelCard:
        """The same model for sound played faster or slower, so that its band ends at ``high_hz``.

        Its habit is changed with the speed. A model trained on lower sounds has none for those above 50 kHz: it then
        starts with boxes around the strongest harmonic alone, as experts draw bats.
        """
        front_end = self.front_end.at_band(high_hz)
        habit = self.habit and self.habit.played_slower(front_end.hop_s / self.front_end.hop_s)
        if habit is None and self.front_end.high_hz <= STRONGEST_ABOVE_HZ < high_hz:
            habit = Habit(box="strongest")
        return self.model_copy(update={"front_end": front_end, "habit": habit})

    @property
    def nms_iou(self) -> float:
        """Of two boxes in a chunk that overlap more than this, one stays."""
        return self.thresholds.get("nms_iou", 0.5)

    @property
    def nested(self) -> float:
        """Of two boxes that share more than this of the smaller one, one stays; 1 where both do."""
        return self.architecture.nested if isinstance(self.architecture, DetectorConfig) else 1.0

    @property
    def probabilities(self) -> Calibration:
        """How scores become probabilities; they stay as they are where the model was never calibrated."""
        return self.calibration.calibration if self.calibration else Calibration()


def load_card(folder: str | Path) -> ModelCard:
    """Read ``model.json``, or the copy inside the weights where a write was cut short between the two."""
    path = Path(folder)
    inside = read_embedded_card(path / WEIGHTS)
    if not (path / CARD).is_file():
        return inside
    beside = _parse_card(_read_text(path / CARD), path / CARD)
    return beside if beside.weights_sha256 == inside.weights_sha256 else inside


def read_embedded_card(path: Path) -> ModelCard:
    """The copy of the card that the weights carry."""
    with open_weights(path) as file:
        metadata = file.metadata() or {}
    if "model.json" not in metadata:
        raise MastError(f"{path}: holds no model.json in its header; expected weights that mast has written")
    return _parse_card(metadata["model.json"], path)


@contextmanager
def open_weights(path: Path, framework: Literal["np", "pt"] = "np") -> Iterator[Any]:
    """A safetensors file, read as NumPy arrays or, with ``"pt"``, as torch tensors."""
    try:
        with safe_open(path, framework=framework, device="cpu") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise _unreadable(path, error) from None


def read_arrays(folder: Path, expected: str) -> dict[str, NDArray[np.float32]] | None:
    """The weights as arrays; none where they are not those that were written, or hold a number that is not finite.

    Args:
        folder: of the model.
        expected: their fingerprint.
    """
    with open_weights(folder / WEIGHTS) as file:
        try:
            stored: dict[str, NDArray[Any]] = {name: file.get_tensor(name) for name in sorted(file.keys())}
        except TypeError:  # a type that NumPy does not have
            return None
    parts = (
        (
            name,
            f"torch.{array.dtype}",
            array.shape,
            np.ascontiguousarray(array).reshape(-1).view(np.uint8).data,
        )
        for name, array in stored.items()
    )
    if fingerprint_of(parts) != expected:
        return None
    arrays = {name: array.astype(np.float32) for name, array in stored.items()}
    return arrays if all(np.isfinite(array).all() for array in arrays.values()) else None


def _read_text(path: Path) -> bytes:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise MastError(
                f"{path}: is {path.stat().st_size / 1e6:,.0f} MB; expected a model's description of at most "
                f"{_MAX_BYTES / 1e6:.0f} MB"
            )
        return path.read_bytes()
    except OSError as error:
        raise _refused(path, error) from None


def _unreadable(path: Path, error: Exception) -> MastError:
    if not path.is_file():
        return MastError(f"{path}: no such file; expected a model folder with {WEIGHTS} and {CARD}")
    try:  # safetensors reports every file that it cannot open as missing
        path.open("rb").close()
    except OSError as refused:
        return _refused(path, refused)
    return MastError(f"{path}: cannot be read as safetensors ({error}); the file is damaged, copy it again")


def _refused(path: Path, error: OSError) -> MastError:
    return MastError(machine_fault(error) or f"{path}: cannot be read ({error})")


def _parse_card(text: str | bytes, source: Path) -> ModelCard:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, thousands of digits or of brackets
        raise MastError(f"{source}: is not a JSON object ({error}); copy the model again") from None
    if not isinstance(fields, dict):
        raise MastError(
            f"{source}: is not a JSON object; expected a model's description, copy the model again"
        )
    where = "architecture."
    try:
        config = _config_class(fields.get("kind"), fields.get("architecture"))
        if "architecture" in fields:
            fields["architecture"] = config.model_validate(fields["architecture"])
        where = ""
        return ModelCard.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = where + ".".join(str(part) for part in first["loc"])
        raise MastError(
            f"{source}: field {field}: {first['msg']}; the model is damaged or was written by another version"
        ) from None
    except MastError as error:
        raise MastError(f"{source}: {error}") from None


def _config_class(kind: Any, architecture: Any) -> type[DetectorConfig | BaselineConfig | MaeConfig]:
    """Which architecture a card describes: they share field names, but only a baseline has a name."""
    if kind == "mae":
        return MaeConfig
    named = isinstance(architecture, dict) and "name" in architecture
    return BaselineConfig if named else DetectorConfig
