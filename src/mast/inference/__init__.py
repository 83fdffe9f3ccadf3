"""A trained detector on recordings of any length and archives of any size."""

from mast.inference.detector import Detector, Searched
from mast.inference.pieces import Source

__all__ = ["Detector", "Searched", "Source"]
