"""Log-mel: ours compared with torchaudio's, and with the same features as one matrix product, in one run.

    python benchmarks/bench_features.py --out results/features.json

``speed_up`` is torchaudio's time over ours, for the same chunks of 10.24 s, taken in turns: over 1 means that
ours is faster. ``difference`` is the largest difference from torchaudio in log-mel."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torchaudio.compliance import kaldi

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.record import write_result
from mast.features.logmel import LogMel
from mast.features.mel_bank import FLOOR, PREEMPHASIS, mel_bank
from mast.grid import FrontEnd


def kaldi_fbank(waveforms: Tensor) -> Tensor:
    """(B, samples) → (B, T, 128) by the paper's library, which takes one waveform at a time."""
    return torch.stack(
        [
            kaldi.fbank(
                waveform[None],
                htk_compat=True,
                window_type="hanning",
                use_energy=False,
                dither=0.0,
                num_mel_bins=128,
                frame_shift=10,
                low_freq=20,
                high_freq=8_000,
            )
            for waveform in waveforms
        ]
    )


class MatrixLogMel:
    """The alternative: frame mean, pre-emphasis, window and DFT are linear, hence one matrix."""

    def __init__(self, front_end: FrontEnd, device: str) -> None:
        width = front_end.window_samples
        unit = torch.eye(width, dtype=torch.float64)
        frames = unit - unit.mean(dim=1, keepdim=True)
        frames[:, 1:] -= PREEMPHASIS * frames[:, :-1].clone()
        frames = frames * torch.hann_window(width, periodic=False, dtype=torch.float64)
        spectrum = torch.fft.rfft(frames, 512)[:, :256]
        self.front_end = front_end
        self.basis = torch.cat([spectrum.real, spectrum.imag], dim=1).float().to(device)  # (400, 512)
        self.bank = torch.from_numpy(mel_bank(front_end)[:256]).to(device)

    def __call__(self, waveforms: Tensor) -> Tensor:
        def log_mel(waveform: Tensor) -> Tensor:
            frames = waveform.unfold(-1, self.front_end.window_samples, self.front_end.hop_samples)
            parts = (frames @ self.basis).square_()
            return ((parts[..., :256] + parts[..., 256:]) @ self.bank).clamp_(min=FLOOR).log_()

        if waveforms.device.type != "cpu":
            return log_mel(waveforms)
        return torch.stack([log_mel(waveform) for waveform in waveforms])


def time_in_turns(functions: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Best of ``repeats`` rounds in which each takes its turn, in seconds: a busy machine slows all of them equally."""
    best = dict.fromkeys(functions, float("inf"))
    for function in functions.values():
        function()
    for _ in range(repeats):
        for name, function in functions.items():
            began = time.perf_counter()
            function()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            best[name] = min(best[name], time.perf_counter() - began)
    return best


def compare(device: str, threads: int, n_batch: int, repeats: int, sound: Tensor) -> dict[str, float]:
    torch.set_num_threads(threads)
    ours, matrix = LogMel(FrontEnd()).to(device), MatrixLogMel(FrontEnd(), device)
    batch = sound[:n_batch].to(device)
    best = time_in_turns(
        {
            "torchaudio": lambda: kaldi_fbank(batch),
            "ours": lambda: ours(batch),
            "matrix": lambda: matrix(batch),
        },
        repeats,
    )
    reference = kaldi_fbank(sound[:n_batch])
    return {
        **{f"{name}_ms_per_chunk": 1e3 * seconds / n_batch for name, seconds in best.items()},
        "speed_up": best["torchaudio"] / best["ours"],
        "matrix_speed_up": best["torchaudio"] / best["matrix"],
        "difference": float((ours(batch).cpu() - reference).abs().max()),
        "matrix_difference": float((matrix(batch).cpu() - reference).abs().max()),
    }


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", help="JSON file to write")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)

    n_max = max([*args.batches, 256 if torch.cuda.is_available() else 1])
    sound = 0.1 * torch.randn(n_max, 163_840, generator=torch.Generator().manual_seed(args.seed))
    figures: dict[str, Any] = {}
    cases = [("cpu", threads, n_batch) for threads in args.threads for n_batch in args.batches]
    cases += [("cuda", 1, n_batch) for n_batch in (8, 256) if torch.cuda.is_available()]
    for device, threads, n_batch in cases:
        case = compare(device, threads, n_batch, args.repeats, sound)
        where = f"{device}_{threads}_thread{'s' * (threads > 1)}" if device == "cpu" else "gpu"
        figures.setdefault(where, {})[f"batch_{n_batch}"] = case
        print(
            f"{where}, batch {n_batch}: torchaudio {case['torchaudio_ms_per_chunk']:.3g} ms, "
            f"ours {case['ours_ms_per_chunk']:.3g} ms ({case['speed_up']:.2f} ×, off by "
            f"{case['difference']:.1e}), matrix {case['matrix_ms_per_chunk']:.3g} ms "
            f"({case['matrix_speed_up']:.2f} ×, off by {case['matrix_difference']:.1e})",
            flush=True,
        )
    if args.out:
        write_result(args.out, figures, seed=args.seed)
        print(f"written to {args.out}")


if __name__ == "__main__":
    main()
