"""Where a trained model comes from, as its card records it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mast.models.card import LEARNT_FROM
from mast.training.recipe import Recipe
from mast.version import provenance_of_code


@dataclass(frozen=True)
class Origin:
    """What is known when training starts.

    Attributes:
        n_chunks: number of chunks that it learns from.
        note: about the weights it started from; may be empty.
        learnt: for a detector, the labelled sound that it and its starts have learnt from (mast.training.leakage).
        code: version and commit.
    """

    n_chunks: int
    note: str
    learnt: Mapping[str, Any] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=provenance_of_code)

    def provenance(
        self, about: Mapping[str, Any], state: Mapping[str, Any], recipe: Recipe
    ) -> dict[str, Any]:
        """The card's ``provenance``.

        Args:
            about: what the command knows, such as the data.
            state: of the training when the model was saved.
            recipe: as it was trained with.
        """
        return {
            **about,
            **state,
            "notes": [self.note] if self.note else [],
            "chunks": self.n_chunks,
            **({LEARNT_FROM: dict(self.learnt)} if self.learnt else {}),
            "recipe": recipe.model_dump(mode="json"),
            **self.code,
        }
