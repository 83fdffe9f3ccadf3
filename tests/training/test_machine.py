"""What a recipe leaves to the machine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from toy_recipe import small_recipe

from mast.errors import ConfigError
from mast.training import machine
from mast.training.recipe import load_recipe


@pytest.fixture
def hardware(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without a GPU and without bfloat16."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(machine, "has_bfloat16", lambda device: False)
    return monkeypatch


def test_the_precision_is_one_that_the_hardware_has(hardware: pytest.MonkeyPatch) -> None:
    assert machine._precision(small_recipe()) == "fp32"
    hardware.setattr(machine, "has_bfloat16", lambda device: True)
    assert machine._precision(small_recipe()) == "fp32"
    assert machine._precision(small_recipe(precision="bf16")) == "bf16"
    hardware.setattr(torch.cuda, "is_available", lambda: True)
    assert machine._precision(small_recipe()) == "bf16"
    hardware.setattr(machine, "has_bfloat16", lambda device: False)  # a GPU of before 2020
    assert machine._precision(small_recipe()) == "fp32"
    assert machine._precision(small_recipe(precision="fp16")) == "fp16"


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_precision_that_the_cpu_lacks_is_refused(precision: str, hardware: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=f"precision {precision}: this CPU cannot compute in it; set"):
        machine.prepare_machine(small_recipe(precision=precision))


@pytest.mark.parametrize(
    ("model", "device", "asked", "compiled"),
    [
        ("mast", "cuda", None, True),
        ("faster_rcnn", "cuda", None, False),
        ("faster_rcnn", "cuda", True, True),
        ("mast", "cuda", False, False),
        ("mast", "cpu", None, False),
    ],
)
def test_mast_is_compiled_on_a_gpu_and_baselines_where_that_is_asked_for(
    model: str, device: str, asked: bool | None, compiled: bool
) -> None:
    accelerator: Any = SimpleNamespace(device=torch.device(device), num_processes=1)
    recipe = load_recipe("small", {"model": model, "compile": asked, "workers": 0})
    assert machine.prepare_machine(recipe, accelerator).compiled is compiled
