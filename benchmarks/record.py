"""What every benchmark writes beside its figures: what was run, on what, when."""

from __future__ import annotations

from mast_studies.record import write_result

__all__ = ["write_result"]
