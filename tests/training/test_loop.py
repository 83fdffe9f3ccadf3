from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
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


def job_of(
    objective: nn.Module, *, validate: Callable[[nn.Module], dict[str, float]] | None = None
) -> Job[Tensor]:
    """Eight steps in two epochs, on numbers of which no two are equal."""
    rows = TensorDataset(torch.arange(1.0, 5.0)[:, None])
    return Job(
        objective=objective,
        model=objective.model,  # type: ignore[arg-type]
        batches=Batches(rows, lambda rows: torch.stack([row[0] for row in rows]), batch_size=1, seed=0),
        optimisation=Optimisation(batch_size=1, epochs=2, warmup_epochs=0, validate_every_epochs=2),
        groups=lambda: [{"params": list(objective.parameters()), "base_lr": 1e-2}],
        set_trainable=lambda epoch: False,
        validate=validate or (lambda model: {"f1": 0.5}),
        save=lambda model, folder, about: None,
    )


@pytest.fixture(autouse=True)
def ctrl_c_interrupts() -> Iterator[None]:
    """As in a terminal; where tests run in the background of a script, Ctrl-C is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Interrupted(Objective):
    """Presses Ctrl-C in the middle of some steps, as often as is said."""

    def __init__(self, presses: dict[int, int]) -> None:
        super().__init__()
        self.presses, self.taken = presses, list[int]()

    def forward(self, batch: Tensor, step: int) -> dict[str, Tensor]:
        self.taken.append(step)
        for _ in range(self.presses.get(step, 0)):
            signal.raise_signal(signal.SIGINT)
        return super().forward(batch, step)


def trained(out: Path, objective: Objective) -> Tensor:
    torch.manual_seed(0)
    nn.init.ones_(objective.model.weight)
    nn.init.zeros_(objective.model.bias)
    train(job_of(objective), Accelerator(cpu=True), out)
    return objective.model.weight.detach()


def test_a_run_that_is_stopped_keeps_every_step(tmp_path: Path) -> None:
    expected = trained(tmp_path / "whole", Objective())
    first = Interrupted({5: 1})
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "run", first)
    assert first.taken == [0, 1, 2, 3, 4, 5]
    again = Interrupted({})
    torch.testing.assert_close(trained(tmp_path / "run", again), expected, rtol=0, atol=0)
    assert again.taken == [6, 7]


def test_where_ctrl_c_is_ignored_it_stays_ignored(tmp_path: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a script
    objective = Interrupted({5: 1})
    trained(tmp_path / "run", objective)
    assert objective.taken == list(range(8))
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_second_ctrl_c_does_not_wait_and_no_half_step_is_kept(tmp_path: Path) -> None:
    expected = trained(tmp_path / "whole", Objective())
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "run", Interrupted({5: 2}))
    assert not (tmp_path / "run" / "state").exists()
    again = Interrupted({})
    torch.testing.assert_close(trained(tmp_path / "run", again), expected, rtol=0, atol=0)
    assert again.taken == list(range(8))


def test_a_validation_that_is_stopped_is_done_again(tmp_path: Path) -> None:
    looked: list[str] = []

    def validate(model: nn.Module) -> dict[str, float]:
        looked.append("")
        if len(looked) == 1:
            signal.raise_signal(signal.SIGINT)
        return {"f1": 0.5}

    with pytest.raises(KeyboardInterrupt):
        train(job_of(Objective(), validate=validate), Accelerator(cpu=True), tmp_path)
    result = train(job_of(Objective(), validate=validate), Accelerator(cpu=True), tmp_path)
    assert (result.steps, result.best, len(looked)) == (8, {"f1": 0.5}, 2)


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
