"""What a machine may have, asked without torch."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mast import hardware
from mast.device import has_bfloat16


def test_what_torch_finds_is_never_ruled_out() -> None:
    """On whatever machine this runs."""
    assert hardware.might_have_gpu() or not torch.cuda.is_available()
    assert hardware.might_have_bfloat16() or not has_bfloat16(torch.device("cpu"))


@pytest.mark.parametrize(
    ("machine", "system", "text", "expected"),
    [
        ("x86_64", "linux", "flags\t\t: fpu avx512f avx512_bf16\n", True),
        ("AMD64", "linux", "flags\t\t: fpu amx_tile\n", True),
        ("x86_64", "linux", "processor\t: 0\nflags\t\t: fpu avx512f\nflags\t\t: fpu avx512f\n", False),
        ("x86_64", "linux", "vmx flags\t: avx512_bf16\nflags\t\t: fpu avx512f\n", False),
        ("x86_64", "linux", "nothing that is known\n", True),
        ("x86_64", "linux", None, True),
        ("x86_64", "win32", "flags\t\t: fpu\n", True),
        ("aarch64", "linux", "Features\t: fp asimd bf16\n", False),
        ("arm64", "darwin", None, False),
        ("x86_64", "darwin", None, False),
    ],
)
def test_bfloat16_by_what_the_system_says_of_the_cpu(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    machine: str,
    system: str,
    text: str | None,
    expected: bool,
) -> None:
    """Where nothing is known, torch has to be asked; on other CPUs than x86 it knows of none."""
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(hardware, "_CPU", tmp_path / "cpuinfo")
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr("sys.platform", system)
    assert hardware.might_have_bfloat16() is expected


@pytest.mark.parametrize("answer", [0, 1])
def test_windows_is_asked_for_avx512(monkeypatch: pytest.MonkeyPatch, answer: int) -> None:
    """Seen on a stand-in for Windows alone."""
    asked = []

    def is_present(feature: int) -> int:
        asked.append(feature)
        return answer

    kernel = SimpleNamespace(IsProcessorFeaturePresent=is_present)
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(kernel32=kernel), raising=False)
    monkeypatch.setattr("platform.machine", lambda: "AMD64")
    monkeypatch.setattr("sys.platform", "win32")
    assert hardware.might_have_bfloat16() is bool(answer)
    assert asked == [41]


@pytest.mark.parametrize(("asked", "expected"), [("3", 3), ("0", None), ("many", None), ("", None)])
def test_threads_are_those_asked_for_or_the_cores(
    monkeypatch: pytest.MonkeyPatch, asked: str, expected: int | None
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert hardware.cpu_threads() == (expected or cores)


class Driver:
    """Stands for CUDA's driver."""

    def __init__(self, answer: int, gpus: int) -> None:
        self.answer, self.gpus = answer, gpus

    def cuInit(self, flags: int) -> int:
        return self.answer

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = self.gpus
        return 0


@pytest.mark.parametrize(
    ("driver", "amd", "expected"),
    [
        (None, False, False),
        (None, True, True),
        (Driver(0, 2), False, True),
        (Driver(0, 0), False, False),
        (Driver(100, 2), False, False),  # "no device", as where CUDA_VISIBLE_DEVICES hides them all
        (object(), False, False),  # a library without the functions
    ],
)
def test_gpus_by_what_the_drivers_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: object | None, amd: bool, expected: bool
) -> None:
    def library(name: str) -> object:
        if driver is None:
            raise OSError(f"{name}: cannot open shared object file")
        return driver

    monkeypatch.setattr(ctypes, "CDLL", library)
    monkeypatch.setattr(hardware, "_AMD", tmp_path if amd else tmp_path / "none")
    assert hardware.might_have_gpu() is expected
