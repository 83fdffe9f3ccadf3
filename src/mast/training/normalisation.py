"""What a checkpoint says about its model's input, as the features take it.

Apart from the pipeline of training, which brings augmentation and datasets along that a search does not need.
"""

from __future__ import annotations

from mast.features import Normalisation
from mast.models.checkpoint import ModelCard


def normalisation_of_card(card: ModelCard) -> Normalisation:
    """The statistics a checkpoint's model was trained with; its deviation holds the ε already."""
    return Normalisation(**card.normalisation.model_dump(), epsilon=0.0)
