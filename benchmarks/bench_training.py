"""The training loop, including the data path, compared with the bare model step on random tensors, in one run.

    python benchmarks/bench_training.py --size base --runs pretrain:512 fine:64 pretrain:64 --steps 40 --warm 12 \\
        --recordings 240 --out results/training_speed.json

``detector`` is the paper's, ``fine`` the one in the preset `premise` (cells of 4 × 2, a second look).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.record import write_result
from mast.data.chunk_dataset import collate
from mast.data.simulate.dataset import Simulation, simulate_dataset
from mast.models.mae import MaskedAutoencoder
from mast.models.mast_detector import MastDetector
from mast.normalisation import Normalisation
from mast.training.batches import Batches
from mast.training.chosen_chunks import hold_out, unlabelled_chunks
from mast.training.detector_training import train_detector
from mast.training.machine import prepare_machine
from mast.training.pretraining import pretrain
from mast.training.recipe import Recipe, load_recipe
from mast.training.spectrograms import FrontEndPipeline
from mast_studies.presets import load_preset


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--runs", nargs="+", default=["pretrain:4", "detector:4"], help="kind:batch size")
    parser.add_argument("--steps", type=int, default=6, help="steps measured")
    parser.add_argument("--warm", type=int, default=2, help="warm-up steps, including compilation")
    parser.add_argument("--recordings", type=int, default=8, help="simulated minutes to train on")
    parser.add_argument("--workers", type=int, default=None, help="decoding processes")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)

    figures: dict[str, Any] = {"size": options.size, "matmul_tflops": matmul_ceiling(), "runs": []}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        simulation = Simulation(
            recordings=options.recordings, duration_s=60, sites=1, days=1, hours=(5, 9), format="wav"
        )
        simulate_dataset(data, simulation, workers=12 if torch.cuda.is_available() else 1)
        for wanted in options.runs:
            kind, _, batch = wanted.partition(":")
            figures["runs"].append(measure(kind, int(batch), data, Path(folder), options))
            print(figures["runs"][-1], flush=True)
            if options.out:  # after each, so that a run cut short keeps its results
                write_result(options.out, figures)
    for run in figures["runs"]:
        print(
            f"{run['kind']:9} batch {run['batch']:4}: bare {run['bare_chunks_per_s']:8.1f} chunks/s, loop "
            f"{run['loop_chunks_per_s']:8.1f} ({run['loop_share']:.0%} of bare, "
            f"{run['matmul_share']:.0%} of the matmul ceiling)"
        )


def measure(kind: str, batch: int, data: Path, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One kind of training at one batch size: bare, then through the loop."""
    total = options.warm + options.steps
    section = "pretrain" if kind == "pretrain" else "train"
    # as many epochs as the steps need; validation and snapshots only at the end
    overrides: dict[str, Any] = {
        "size": options.size,
        "workers": options.workers,
        f"{section}.batch_size": batch,
        f"{section}.epochs": 10_000,
        f"{section}.validate_every_epochs": 10_000,
        f"{section}.save_every_s": 1e9,
        f"{section}.log_every_steps": 10 if options.steps >= 20 else 1,
    }
    if kind == "fine":
        parts = load_preset("premise").recipe.train.detector
        overrides |= {f"train.detector.{name}": value for name, value in parts.items()}
    recipe = load_recipe("paper", {k: v for k, v in overrides.items() if v is not None})
    bare, flops = bare_step(kind, recipe, batch, options)
    times: list[tuple[int, float]] = []

    def note(done: int, _total: int, text: str) -> None:
        if text.startswith("steps"):  # not the chunks for normalisation, nor those of validation
            times.append((done, time.perf_counter()))

    run = folder / f"{kind}-{batch}"
    if kind == "pretrain":
        pretrain([data], run, recipe, progress=note, stop_after=total)
    else:
        train_detector(data, run, recipe, progress=note, stop_after=total)
    warm = [(done, at) for done, at in times if done >= options.warm]
    loop = (warm[-1][0] - warm[0][0]) * batch / (warm[-1][1] - warm[0][1])
    ceiling = matmul_ceiling()
    data_rate, feature_rate = data_path(data, recipe, batch, options)
    return {
        "kind": kind,
        "batch": batch,
        "bare_chunks_per_s": bare,
        "loop_chunks_per_s": loop,
        "loop_share": loop / bare,
        "decoding_chunks_per_s": data_rate,
        "decoding_and_features_chunks_per_s": feature_rate,
        "gflop_per_chunk": flops / batch / 1e9,
        "matmul_share": loop * flops / batch / 1e12 / ceiling,
    }


def data_path(data: Path, recipe: Recipe, batch: int, options: argparse.Namespace) -> tuple[float, float]:
    """Chunks/s of decoding in workers alone, and of decoding and features on the device, without a model."""
    machine = prepare_machine(recipe)
    chunks, _ = hold_out(unlabelled_chunks([data], recipe.front_end), recipe.front_end, share=0.02, seed=0)
    pipeline = FrontEndPipeline(recipe.front_end, Normalisation(mean=-5.0, std=4.0)).to(machine.device)
    batches = Batches(
        chunks.examples,
        collate,
        batch_size=batch,
        seed=0,
        workers=machine.workers,
        pin=machine.device.type == "cuda",
    )
    rates = []
    for with_features in (False, True):
        started = 0.0
        for step, one in enumerate(batches.steps(0, options.warm + options.steps)):
            if with_features:
                pipeline(one)
            if step + 1 == options.warm:
                started = _now(machine.device)
        rates.append(options.steps * batch / (_now(machine.device) - started))
    return rates[0], rates[1]


def bare_step(kind: str, recipe: Recipe, batch: int, options: argparse.Namespace) -> tuple[float, float]:
    """(chunks/s, FLOP per step) of forward, backward and AdamW on random tensors."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    grid = recipe.front_end
    spectrograms = torch.randn(batch, 1, grid.chunk_frames, grid.n_bins, device=device)
    boxes = [torch.tensor([[100.0, 30, 200, 60], [400, 10, 480, 20], [600, 70, 640, 90]])] * batch
    model: nn.Module
    if kind == "pretrain":
        model = MaskedAutoencoder(recipe.autoencoder).to(device)

        def loss() -> torch.Tensor:
            return model(spectrograms).loss  # type: ignore[no-any-return]
    else:
        detector = MastDetector(recipe.detector).to(device)
        model = detector

        def loss() -> torch.Tensor:
            return detector.loss(spectrograms, boxes)["loss"]

    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            value = loss()
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    prepare_machine(recipe).compile(model, graphs=kind == "pretrain")  # as the loop does
    with FlopCounterMode(display=False) as counter, torch.compiler.set_stance("force_eager"):
        step()
    for _ in range(options.warm):
        step()
    started = _now(device)
    for _ in range(options.steps):
        step()
    return options.steps * batch / (_now(device) - started), float(counter.get_total_flops())


def matmul_ceiling() -> float:
    """TFLOP/s of a large matrix product in the precision that training uses."""
    cuda = torch.cuda.is_available()
    device, n = torch.device("cuda" if cuda else "cpu"), 8_192 if cuda else 1_024
    a = torch.randn(n, n, device=device, dtype=torch.bfloat16 if cuda else torch.float32)
    for _ in range(3):
        a @ a
    started = _now(device)
    for _ in range(10):
        a @ a
    return 10 * 2 * n**3 / (_now(device) - started) / 1e12


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
