from __future__ import annotations

from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from mast.training.batches import Batches
from mast.training.loop import Job, Optimisation, clip_gradients, train


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_clipping_is_torchs(scale: float) -> None:
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 2)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    for model in models:
        (model(torch.ones(3, 4)).square().sum() * scale).backward()
        model[1].bias.grad = None  # a frozen parameter
    ours = clip_gradients(list(models[0].parameters()), 1.0)
    theirs = nn.utils.clip_grad_norm_(models[1].parameters(), 1.0)
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(*(m.parameters() for m in models), strict=True):
        if a.grad is not None:
            torch.testing.assert_close(a.grad, b.grad)


class Objective(nn.Module):
    """The mean of a linear layer's output."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Linear(1, 1)

    def forward(self, batch: Tensor, step: int) -> dict[str, Tensor]:
        return {"loss": self.model(batch).mean()}


def test_progress_is_shown_before_the_first_step_and_at_every_slow_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only when numbers are read: twenty steps of a large model on a CPU take minutes."""
    objective = Objective()
    told: list[tuple[int, int, str]] = []
    read: list[int] = []

    def collate(rows: list[Tensor]) -> Tensor:
        read.append(len(told))
        return torch.stack(rows)

    job = Job(
        objective=objective,
        model=objective.model,
        batches=Batches(
            TensorDataset(torch.zeros(4, 1)), lambda rows: collate([r[0] for r in rows]), batch_size=1, seed=0
        ),
        optimisation=Optimisation(batch_size=1, epochs=2, warmup_epochs=0, log_every_steps=20),
        groups=lambda: [{"params": list(objective.model.parameters()), "base_lr": 1e-3}],
        set_trainable=lambda epoch: False,
        validate=lambda model: {"f1": 0.5},
        save=lambda model, folder, about: None,
    )
    monkeypatch.setattr("mast.training.loop._SHOW_S", -1.0)
    train(job, Accelerator(cpu=True), tmp_path, progress=lambda *now: told.append(now))
    assert told[0] == (0, 8, "steps, reading the first batch")
    assert read[0] == 1  # said before anything is read
    assert sorted({done for done, _, _ in told}) == list(range(9))
    assert {total for _, total, _ in told} == {8}
    for epoch in (4, 8):
        assert [text.endswith("validating") for done, _, text in told if done == epoch] == [
            False,
            True,
            False,
        ]
