"""What this machine may be able to do, found out without torch, which takes seconds to import.

Where that cannot be known, the answer is yes: then torch is imported, and decides (:mod:`mast.device`).
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from pathlib import Path

_CPU = Path("/proc/cpuinfo")
_AMD = Path("/dev/kfd")  # how programs reach an AMD GPU, which torch treats as a CUDA device
_AVX512F = 41  # as Windows numbers it
_X86 = {"x86_64", "amd64", "i386", "i686"}


def might_have_gpu() -> bool:
    """Whether torch may find a GPU that it uses without being told to: CUDA's own count, or an AMD GPU's driver."""
    return _cuda_gpus() > 0 or _AMD.exists()


def might_have_bfloat16() -> bool:
    """Whether the CPU may multiply bfloat16 itself: it has one of the features that :mod:`mast.device` checks for."""
    if platform.machine().lower() not in _X86:
        return False
    if sys.platform == "darwin":  # no Mac with an Intel CPU does
        return False
    if sys.platform != "linux":
        return _has_avx512()
    try:
        lines = _CPU.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return True
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), None)
    return flags is None or not {"avx512_bf16", "amx_tile"}.isdisjoint(flags)


def _has_avx512() -> bool:
    """Whether Windows reports AVX-512; every x86 CPU with bfloat16 has it, most laptops do not."""
    system = getattr(ctypes, "windll", None)
    return system is None or bool(system.kernel32.IsProcessorFeaturePresent(_AVX512F))


def cpu_threads() -> int:
    """Threads that a computation on this CPU may use: ``OMP_NUM_THREADS``, else the cores this process may run on."""
    requested = os.environ.get("OMP_NUM_THREADS", "")
    if requested.isdecimal() and int(requested) > 0:
        return int(requested)
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cuda_gpus() -> int:
    """GPUs that CUDA's driver shows to this process; 0 without a driver."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        count = ctypes.c_int(0)
        if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
            return 0
    except (OSError, AttributeError):
        return 0
    return count.value
