"""What benchmarks share: how results are written (what was run, on what, when), and how memory is read."""

from __future__ import annotations

from pathlib import Path

from mast_studies.record import write_result

__all__ = ["peak_mb", "write_result"]


def peak_mb(pid: int) -> float:
    """The peak memory of a process (Linux).

    Not ``ru_maxrss``, which starts at the memory of the process that started this one.
    """
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmHWM; this benchmark needs Linux")
