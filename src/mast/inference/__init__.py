"""A trained detector on recordings of any length and archives of any size."""

from mast.inference.detector import DEFAULT_HOP, Detector, Outcome
from mast.inference.pieces import Source
from mast.inference.results import ResultsFolder, Totals
from mast.inference.stitch import Boxes, Embeddings, Stitcher

__all__ = [
    "DEFAULT_HOP",
    "Boxes",
    "Detector",
    "Embeddings",
    "Outcome",
    "ResultsFolder",
    "Source",
    "Stitcher",
    "Totals",
]
