"""Which weights are validated, saved and continued from, and by which steps they came about."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from mast.training.batches import Batches
from mast.training.loop import Job, Optimisation, Result, train
from mast.training.schedule import warmup_cosine


class Toy(nn.Module):
    """Its loss pulls one weight towards the batch; holds ``model`` as the loop expects."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Linear(1, 1, bias=False)
        nn.init.constant_(self.model.weight, 5.0)

    def forward(self, batch: Tensor, step: int) -> dict[str, Tensor]:
        return {"loss": (self.model.weight - batch.mean()).square().sum()}


@dataclass
class Watched:
    """A toy job that writes down what the loop does."""

    f1: list[float]  # what each validation says
    objective: Toy = field(default_factory=Toy)
    after_step: list[float] = field(default_factory=list)
    gradients: list[float] = field(default_factory=list)  # as the optimiser takes them
    rates: list[float] = field(default_factory=list)
    validated: list[float] = field(default_factory=list)
    saved: list[tuple[str, float]] = field(default_factory=list)

    def job(self, **plan: Any) -> Job[Tensor]:
        values = [torch.tensor([float(k)]) for k in range(4)]
        model = self.objective.model

        def weight_of(shown: nn.Module) -> float:
            return float(next(iter(shown.parameters())).detach())

        def groups() -> list[dict[str, Any]]:
            return [{"params": [model.weight], "base_lr": 0.1, "lr": 0.1, "weight_decay": 0.0}]

        def validate(shown: nn.Module) -> dict[str, float]:
            self.validated.append(weight_of(shown))
            return {"f1": self.f1[len(self.validated) - 1]}

        def save(shown: nn.Module, folder: Path, about: dict[str, Any]) -> None:
            assert about["metrics"]["f1"] == self.f1[about["epoch"] - 1]
            self.saved.append((f"{folder.name} {about['epoch']}", weight_of(shown)))

        settings = {
            "batch_size": 2,
            "epochs": len(self.f1),
            "warmup_epochs": 0.0,
            "lr": 0.1,
            "ema_decay": 0.9,
        }
        return Job(
            objective=self.objective,
            model=model,
            batches=Batches(values, torch.cat, batch_size=2, seed=0),  # type: ignore[arg-type]
            optimisation=Optimisation(**{**settings, **plan}),
            groups=groups,
            set_trainable=lambda epoch: False,
            validate=validate,
            save=save,
        )

    def train(self, out: Path, *, stop_after: int | None = None, **plan: Any) -> Result:
        def about_to_step(*_: Any) -> None:
            assert self.objective.model.weight.grad is not None
            self.gradients.append(float(self.objective.model.weight.grad.norm()))

        def stepped(optimizer: Any, *_: Any) -> None:
            self.after_step.append(float(self.objective.model.weight.detach()))
            self.rates.append(optimizer.param_groups[0]["lr"])

        hooks = register_optimizer_step_pre_hook(about_to_step), register_optimizer_step_post_hook(stepped)
        try:
            return train(self.job(**plan), Accelerator(cpu=True), out, stop_after=stop_after)
        finally:
            for hook in hooks:
                hook.remove()


def test_the_averaged_weights_are_validated_and_saved(tmp_path: Path) -> None:
    watched = Watched([0.3, 0.5])
    watched.train(tmp_path)
    average, averages = 5.0, []
    for n, weight in enumerate(watched.after_step):  # each weight as the step left it
        decay = min(0.9, (1 + n) / (10 + n))
        average = decay * average + (1 - decay) * weight
        averages.append(average)
    ends = averages[1::2]  # two steps an epoch
    assert watched.validated == pytest.approx(ends, abs=1e-5)
    assert [name for name, _ in watched.saved] == ["best 1", "last 1", "best 2", "last 2"]
    assert [weight for _, weight in watched.saved] == pytest.approx(np.repeat(ends, 2), abs=1e-5)
    # other weights than those of the last step, before or after it
    assert min(abs(np.subtract.outer(watched.after_step, ends)).ravel()) > 1e-3


def test_without_an_average_the_weights_themselves_are(tmp_path: Path) -> None:
    watched = Watched([0.3])
    watched.train(tmp_path, ema_decay=0.0)
    assert watched.validated == pytest.approx(watched.after_step[-1:])


def test_best_is_the_epoch_that_validation_likes_most(tmp_path: Path) -> None:
    watched = Watched([0.2, 0.6, 0.4, 0.6])
    result = watched.train(tmp_path)
    assert [name for name, _ in watched.saved if name.startswith("best")] == ["best 1", "best 2"]
    assert [name for name, _ in watched.saved if name.startswith("last")] == [
        f"last {n}" for n in range(1, 5)
    ]
    assert (result.best, result.last, result.best_epoch) == ({"f1": 0.6}, {"f1": 0.6}, 2)
    assert result.best is not result.last


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    first = Watched([0.2, 0.6]).train(tmp_path)
    again = Watched([0.2, 0.6])
    result = again.train(tmp_path)
    assert not again.after_step
    assert (result.steps, result.best, result.best_epoch) == (first.steps, first.best, first.best_epoch)


def test_a_killed_run_continues_as_if_nothing_had_been(tmp_path: Path) -> None:
    """Weights, their average, its decay and the optimiser's moments are all as they were."""
    f1 = [0.2, 0.6, 0.4]
    whole = Watched(f1)
    expected = whole.train(tmp_path / "whole", clip=100.0)  # clipped to one length, moments would not matter
    first, second = Watched(f1), Watched(f1)
    # the third step was saved, the fourth was not
    first.train(tmp_path / "killed", stop_after=4, save_every_s=1e-9, clip=100.0)
    second.validated += first.validated
    result = second.train(tmp_path / "killed", save_every_s=1e-9, clip=100.0)
    assert first.after_step[:3] + second.after_step == pytest.approx(whole.after_step, abs=1e-7)
    assert second.validated == pytest.approx(whole.validated, abs=1e-7)
    assert (result.best, result.last, result.best_epoch) == (
        expected.best,
        expected.last,
        expected.best_epoch,
    )


def test_the_rate_rises_and_falls_as_the_schedule_says(tmp_path: Path) -> None:
    watched = Watched([0.0] * 4)
    watched.train(tmp_path, warmup_epochs=1.0, min_lr=0.02)
    expected = [0.1 * warmup_cosine(s, total_steps=8, warmup_steps=2, floor=0.2) for s in range(8)]
    assert watched.rates == pytest.approx(expected)
    assert watched.rates[0] == pytest.approx(0.05)
    assert 0.02 < watched.rates[-1] < 0.03


def test_gradients_are_clipped_before_the_step(tmp_path: Path) -> None:
    watched = Watched([0.0])
    watched.train(tmp_path, clip=0.25)
    assert watched.gradients == pytest.approx([0.25] * 2, rel=1e-4)  # several times as long by themselves
