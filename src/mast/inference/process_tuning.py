"""Settings of a process that only searches recordings: not for a library to change behind a caller's back."""

from __future__ import annotations

import ctypes
import gc
import os

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's names for them in mallopt(3)
_KEEP_BYTES = 2**30  # free memory that is not given back
_OWN_PAGES_BYTES = 2**25  # the most that glibc takes; larger pieces get pages of their own
_USERS_OWN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD")


def tune_process() -> None:
    """Once all is loaded: keep freed memory for the next batch, and leave what is loaded out of garbage collection.

    A layer's output of some megabytes is otherwise given back to the system and requested again, page by page and
    zeroed, at every layer of every batch: a tenth of the time. What is loaded stays to the end; looking through all of
    torch's objects for garbage takes a fifth of a second when the process ends, and now and then before.
    """
    gc.freeze()
    keep_freed_memory()


def keep_freed_memory() -> bool:
    """Let the C library keep what is freed; ``False`` if it is not glibc, or the user has set this already."""
    if any(name in os.environ for name in _USERS_OWN):
        return False
    try:
        if not (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc"):
            return False
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, ValueError):  # Windows, macOS, musl
        return False
    settled = [mallopt(_TRIM_THRESHOLD, _KEEP_BYTES), mallopt(_MMAP_THRESHOLD, _OWN_PAGES_BYTES)]
    return all(settled)
