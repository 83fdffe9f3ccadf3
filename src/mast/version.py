"""The version, in a place that imports nothing."""

__version__ = "0.1.0"
