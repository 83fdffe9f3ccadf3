"""A trained detector on recordings of any length and archives of any size."""

from mast.inference.detector import Detector, Searched
from mast.inference.pieces import Source
from mast.inference.results import ResultsFolder, Totals
from mast.inference.stitch import Embeddings, ScoredBoxes, Stitcher

__all__ = [
    "Detector",
    "Embeddings",
    "ResultsFolder",
    "ScoredBoxes",
    "Searched",
    "Source",
    "Stitcher",
    "Totals",
]
