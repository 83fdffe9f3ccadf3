"""The training loop, top to bottom. Pretraining, detector training and self-training all run through here.

What differs between them is passed in: the objective (a module whose forward gives the loss terms), the
batches, which parameters train in an epoch, and how the model is validated and saved.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from accelerate import Accelerator
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from mast.errors import MastError
from mast.files import name_in_errors, write_atomic
from mast.runs import Progress
from mast.training.batches import Batches
from mast.training.ema import Ema
from mast.training.schedule import warmup_cosine
from mast.training.state import latest_state, save_state

B = TypeVar("B")


class Optimisation(BaseModel):
    """How any of the models is optimised. Each recipe sets its table's values as defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    batch_size: int = Field(64, gt=0)
    epochs: int = Field(200, gt=0)
    warmup_epochs: float = Field(10.0, ge=0)
    lr: float = Field(3e-4, gt=0)
    min_lr: float = Field(0.0, ge=0)
    weight_decay: float = Field(1e-3, ge=0)
    betas: tuple[float, float] = (0.9, 0.999)
    clip: float = Field(1.0, gt=0, description="gradient norm")
    ema_decay: float = Field(0.9995, ge=0, lt=1, description="0 switches the average off")
    validate_every_epochs: int = Field(1, gt=0)
    save_every_s: float = Field(300.0, gt=0, description="seconds between snapshots within an epoch")
    log_every_steps: int = Field(20, gt=0, description="reading numbers waits for the GPU: not at every step")


@dataclass
class Job(Generic[B]):
    """One training run: what the loop needs to know, and nothing else."""

    objective: nn.Module  # forward(batch, step) -> {"loss": ..., other terms}; holds .model
    model: nn.Module  # what is averaged, validated and saved
    batches: Batches[B]
    optimisation: Optimisation
    groups: Callable[[], list[dict[str, Any]]]  # AdamW parameter groups with "base_lr"
    set_trainable: Callable[[int], bool]  # epoch → freeze and unfreeze; says whether anything changed
    validate: Callable[[nn.Module], dict[str, float]]  # metrics of a model; must hold `better`
    save: Callable[[nn.Module, Path, dict[str, Any]], None]  # model, folder, what is known about it
    best_metric: str = "f1"  # the metric that chooses "best": larger is better, negate an error
    describe: Callable[[int], str] = field(default=lambda step: "")  # the recordings behind a step's batch
    follow: Callable[[nn.Module], None] | None = (
        None  # called once with the average of the model, if there is one
    )


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    steps: int
    best: dict[str, float]
    last: dict[str, float]
    best_epoch: int
    chunks_per_s: float


_SHOW_S = 0.5  # steps that take longer are shown one by one, before their numbers are read; our choice


def train(
    job: Job[B],
    accelerator: Accelerator,
    out: Path,
    *,
    progress: Progress | None = None,
    stop_after: int | None = None,
) -> Result:
    """Train until the last epoch; continue where a killed run in ``out`` stopped.

    Ctrl-C lets a step finish and keeps it; only a validation that it interrupts is lost, with the steps since the last
    snapshot. ``stop_after`` ends the call after that many steps in all, as a kill would (for tests).
    """
    plan, learner = job.optimisation, _Learner(job, accelerator, out)
    screen = _Screen(progress, learner.total)
    first_step, started_at = learner.step, time.monotonic()
    saved_at = started_at
    if learner.step < learner.total:
        screen.show(learner.step, "reading the first batch")
    with learner.save_on_interrupt():
        for batch in job.batches.steps(learner.step, learner.total):
            learner.take_step(batch)
            step, (epoch, in_epoch) = learner.step, divmod(learner.step, job.batches.steps_per_epoch)
            if len(learner.pending) >= plan.log_every_steps or in_epoch == 0:
                screen.loss = f"loss {learner.flush_log()['loss']:.4f}"
                screen.show(step, screen.loss)
            elif time.monotonic() - screen.shown_at > _SHOW_S:
                screen.show(step, screen.loss)
            if stop_after is not None and step >= stop_after:
                return learner.result(0.0)

            is_last = step == learner.total
            if learner.validation_due:
                screen.show(step, f"{screen.loss}, validating")
                learner.validate(epoch)
                screen.show(step, screen.loss)
            if time.monotonic() - saved_at > plan.save_every_s or is_last:
                learner.save_state()
                saved_at = time.monotonic()
    accelerator.wait_for_everyone()
    learner.close()
    seconds, n_steps = time.monotonic() - started_at, learner.step - first_step
    return learner.result(n_steps * plan.batch_size / seconds if n_steps else 0.0)


class _Learner(Generic[B]):
    """A model in training: its average, its optimiser, and its progress. It resumes from what :meth:`save_state` kept.

    Args:
        job: what is learnt.
        accelerator: device, precision and processes.
        out: the run's folder.
    """

    def __init__(self, job: Job[B], accelerator: Accelerator, out: Path) -> None:
        plan, steps_per_epoch = job.optimisation, job.batches.steps_per_epoch
        self.job, self.accelerator, self.out = job, accelerator, out
        self.total = plan.epochs * steps_per_epoch
        self.warmup = round(plan.warmup_epochs * steps_per_epoch)
        job.objective.to(accelerator.device)
        self.optimizer = accelerator.prepare_optimizer(
            torch.optim.AdamW(job.groups(), lr=plan.lr, betas=plan.betas, fused=True)
        )
        self.weights = list(job.model.parameters())
        self.ema = Ema(job.model, plan.ema_decay) if plan.ema_decay else None
        self.evaluated = self.ema.model if self.ema else job.model  # what is validated and saved
        if self.ema and job.follow:
            job.follow(self.ema.model)
        self.step, self.best_epoch, self.validated = 0, -1, 0
        self.best: dict[str, float] = {}
        self.last: dict[str, float] = {}
        self._resume()
        self.log = _Log(out, self.step) if accelerator.is_main_process else None
        self.pending: list[tuple[int, dict[str, Tensor]]] = []  # values of steps, not read yet
        self._wrapped: nn.Module | None = None
        self._between_steps = True  # no step is half done

    def _resume(self) -> None:
        snapshot = latest_state(self.out / "state")
        if snapshot is not None:
            self.step, self.best_epoch = snapshot["step"], snapshot["best_epoch"]
            self.validated = self.step
            self.best, self.last = snapshot["best"], snapshot["last"]
            self.job.model.load_state_dict(snapshot["model"])
            self.optimizer.load_state_dict(snapshot["optimizer"])
            if self.ema:
                self.ema.model.load_state_dict(snapshot["ema"])
                self.ema.updates = snapshot["ema_updates"]

    @contextmanager
    def save_on_interrupt(self) -> Iterator[None]:
        """Keep the steps that were taken when the user stops the block, unless a validation is still due after them."""
        first = self.step
        try:
            yield
        except KeyboardInterrupt:
            if self.step > first and self._between_steps and not self.validation_due:
                self.save_state()
            raise

    @property
    def validation_due(self) -> bool:
        """Whether the last step ended an epoch that validation follows, and nothing has been validated since."""
        epoch, in_epoch = divmod(self.step, self.job.batches.steps_per_epoch)
        scheduled = epoch % self.job.optimisation.validate_every_epochs == 0 or self.step == self.total
        return in_epoch == 0 and scheduled and self.validated < self.step

    def take_step(self, batch: B) -> None:
        """Learn from one batch; Ctrl-C takes effect after that, a second one at once."""
        with defer_interrupts():
            self._between_steps = False
            self._take_step(batch)
            self._between_steps = True

    def _take_step(self, batch: B) -> None:
        job, plan, accelerator = self.job, self.job.optimisation, self.accelerator
        epoch, in_epoch = divmod(self.step, job.batches.steps_per_epoch)
        if in_epoch == 0 or self._wrapped is None:
            job.objective.train()
            if job.set_trainable(epoch) or self._wrapped is None:
                self._wrapped = _distribute(job.objective, accelerator)
        floor = plan.min_lr / plan.lr
        factor = warmup_cosine(self.step, total_steps=self.total, warmup_steps=self.warmup, floor=floor)
        for group in self.optimizer.param_groups:
            group["lr"] = group["base_lr"] * factor

        with accelerator.autocast():
            terms = self._wrapped(batch, self.step)
        accelerator.backward(terms["loss"])
        accelerator.unscale_gradients()
        norm = clip_gradients(self.weights, plan.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.ema:
            self.ema.update()

        # reading a number waits for the GPU, so numbers are read a few steps at a time
        seen = accelerator.reduce({k: v.detach() for k, v in terms.items()}, "mean")
        self.pending.append((self.step, {**seen, "gradient": norm, "lr_factor": torch.tensor(factor)}))
        self.step += 1

    def validate(self, epochs: int) -> None:
        """Measure the model after this many epochs; save it as the last and, if it is the best so far, as the best."""
        job, main = self.job, self.accelerator.is_main_process
        self.evaluated.eval()
        # other shapes than in training: not worth compiling
        with torch.compiler.set_stance("force_eager"):
            self.last = job.validate(self.evaluated)
        about = {"epoch": epochs, "step": self.step, "metrics": self.last}
        if self.log:
            self.log.write(self.step - 1, {f"validation/{k}": v for k, v in self.last.items()})
        if not self.best or self.last[job.best_metric] > self.best[job.best_metric]:
            self.best, self.best_epoch = self.last, epochs
            if main:
                job.save(self.evaluated, self.out / "best", about)
        if main:
            job.save(self.evaluated, self.out / "last", about)
        self.validated = self.step

    def save_state(self) -> None:
        """A snapshot to resume from."""
        self.flush_log()  # what is not finite must not be saved, and what is logged must not be missing
        if self.accelerator.is_main_process:
            state = {
                "step": self.step,
                "best": self.best,
                "last": self.last,
                "best_epoch": self.best_epoch,
                "model": self.job.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "ema": self.ema.model.state_dict() if self.ema else {},
                "ema_updates": self.ema.updates if self.ema else 0,
            }
            save_state(self.out / "state", self.step, state)

    def flush_log(self) -> dict[str, float]:
        """Write down the numbers of the last steps; returns those of the very last."""
        return _flush_log(self.pending, self.log, self.job.describe)

    def result(self, chunks_per_s: float) -> Result:
        """How far training has come."""
        return Result(self.step, self.best, self.last, self.best_epoch, chunks_per_s)

    def close(self) -> None:
        """Close the log."""
        if self.log:
            self.log.close()


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Ctrl-C in the block is raised at its end; a second one at once."""
    before = signal.getsignal(signal.SIGINT)
    # Ctrl-C reaches only the main thread; a command in the background of a script does not receive it
    if threading.current_thread() is not threading.main_thread() or before is signal.SIG_IGN:
        yield
        return
    interrupts: list[int] = []

    def note(number: int, _: object) -> None:
        interrupts.append(number)
        if len(interrupts) > 1:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.default_int_handler)
    if interrupts:
        raise KeyboardInterrupt


class _Screen:
    """What a user sees of a training run."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total = progress, total
        self.loss, self.shown_at = "", time.monotonic()

    def show(self, step: int, words: str) -> None:
        """How many steps are done, and what else there is to say."""
        self.shown_at = time.monotonic()
        if self._progress:
            self._progress(step, self._total, f"steps, {words}" if words else "steps")


@torch.no_grad()
def clip_gradients(weights: list[nn.Parameter], max_norm: float) -> Tensor:
    """Scale all gradients so that their common norm is at most ``max_norm``; returns the norm before.

    torch's own function sorts the tensors by device and type first, in Python: with that, clipping took 4 of a step's
    47 ms of CPU time at paper size on an H200.
    """
    gradients = [w.grad for w in weights if w.grad is not None]
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    torch._foreach_mul_(gradients, (max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm


def _distribute(objective: nn.Module, accelerator: Accelerator) -> nn.Module:
    """The objective itself, or wrapped for a run of several processes.

    Wrapped again when the set of trainable parameters changes: gradients are averaged over processes for those
    that trained when it was wrapped.
    """
    if accelerator.num_processes == 1:
        return objective
    devices = [accelerator.device] if accelerator.device.type == "cuda" else None
    return nn.parallel.DistributedDataParallel(objective, device_ids=devices, broadcast_buffers=False)


def _flush_log(
    pending: list[tuple[int, dict[str, Tensor]]],
    log: _Log | None,
    describe: Callable[[int], str],
) -> dict[str, float]:
    """Read the numbers of the last steps, stop on a loss that is not finite, and write them down."""
    latest: dict[str, float] = {}
    for step, terms in pending:
        latest = {k: float(v) for k, v in terms.items()}
        bad = [k for k, v in latest.items() if v != v or v in (float("inf"), float("-inf"))]
        if bad:
            names = describe(step)
            raise MastError(
                f"training: {', '.join(bad)} became {latest[bad[0]]} at step {step}"
                f"{f' on the batch of {names}' if names else ''}; the last snapshot is intact. "
                "Lower the learning rate, or look at these recordings"
            )
        if log:
            log.write(step, {f"train/{k}": v for k, v in latest.items()})
    pending.clear()
    return latest


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a run's `curves.jsonl`: ``step`` and numbers by name; none where there is no such file."""
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(json.JSONDecodeError):  # the line a kill cut short
                yield json.loads(line)


class _Log:
    """Curves as JSON lines; a resumed run overwrites what it repeats."""

    def __init__(self, out: Path, step: int) -> None:
        self._path = out / "curves.jsonl"
        kept = [json.dumps(row) + "\n" for row in read_log(self._path) if row["step"] < step]
        write_atomic(self._path, "".join(kept).encode())  # a kill just here keeps the curves too
        self._file = self._path.open("a")

    def write(self, step: int, values: dict[str, float]) -> None:
        with name_in_errors(self._path):
            self._file.write(json.dumps({"step": step} | values) + "\n")
            self._file.flush()

    def close(self) -> None:
        with name_in_errors(self._path):
            self._file.close()
