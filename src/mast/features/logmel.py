"""Kaldi's log-mel filter bank as a batched torch module.

The paper (App. "Data Processing") computes features with ``torchaudio.compliance.kaldi.fbank``: 25 ms
Hann frames every 10 ms, snipped at the edges, the mean of each frame removed, pre-emphasis 0.97, power
spectrum of the next power of two, HTK-compatible triangles, natural logarithm floored at float32 epsilon.

The steps are done in Kaldi's order on purpose. They are all linear up to the spectrum and could be one
matrix product, but in float32 that differs from Kaldi by 1e-3 on white noise and by 1e-2 on a loud tone
(quiet bins next to loud ones keep only rounding noise), and on a CPU it is two to four times slower than the
FFT (``benchmarks/bench_features.py`` measures both). On a GPU the FFT itself rounds differently: one cell in
some thousands, always among the quietest, is then off by more than 1e-4 (up to 3e-3), and torchaudio's own
features differ as much between CPU and GPU.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from mast.errors import ConfigError
from mast.features.mel_bank import FLOOR, PREEMPHASIS, check_bank, fft_size, mel_bank, narrow_blocks, support
from mast.grid import FrontEnd

# Frames worked on at a time; our choice. On a CPU about one chunk, so that the working set stays near the
# caches (a multiple of eight, for the FFT's vectors); on a GPU enough to fill it, in 0.3 GB.
_CPU_FRAMES = 1_024
_GPU_FRAMES = 16_384


class LogMel(nn.Module):
    """Waveform → Kaldi log-mel, on whatever device the module is. Carries no gradient.

    Args:
        front_end: the grid; :meth:`FrontEnd.for_band` for other bands than the paper's.

    Attributes:
        empty_bins: mel bins that no FFT bin falls into; they hold the floor, log(1.19e-7), always.

    Raises:
        ConfigError: if more than an eighth of the mel bins are empty.

    >>> LogMel(FrontEnd())(torch.zeros(2, 16_000)).shape
    torch.Size([2, 98, 128])
    """

    window: Tensor
    band_index: Tensor
    band_weight: Tensor

    def __init__(self, front_end: FrontEnd | None = None) -> None:
        super().__init__()
        self.front_end = FrontEnd() if front_end is None else front_end
        bank = mel_bank(self.front_end)
        self.empty_bins: list[int] = np.flatnonzero(~bank.any(axis=0)).tolist()
        check_bank(self.front_end, len(self.empty_bins))

        # Buffers follow the module to its device; none of them belongs in a checkpoint.
        window = torch.hann_window(self.front_end.window_samples, periodic=False)
        self.register_buffer("window", window, persistent=False)
        first, width = support(bank)
        index = np.minimum(first[:, None] + np.arange(width.max()), bank.shape[0] - 1)  # (F, W)
        weight = np.take_along_axis(bank.T, index, axis=1)
        self.register_buffer("band_index", torch.from_numpy(index), persistent=False)
        self.register_buffer("band_weight", torch.from_numpy(weight), persistent=False)

        self._blocks = narrow_blocks(bank)
        for i, (rows, bins) in enumerate(self._blocks):
            part = torch.from_numpy(np.ascontiguousarray(bank[rows, bins]))
            self.register_buffer(f"block_{i}", part, persistent=False)

    def n_frames(self, n_samples: int) -> int:
        """Whole frames in ``n_samples`` (Kaldi's snip edges): 1022 in 10.24 s.

        >>> LogMel().n_frames(163_840)
        1022
        """
        spare = n_samples - self.front_end.window_samples
        return 0 if spare < 0 else 1 + spare // self.front_end.hop_samples

    @torch.no_grad()
    def forward(self, waveforms: Tensor) -> Tensor:
        """Log-mel of every whole frame.

        Args:
            waveforms: (B, samples), any float type; computed in float32 whatever the autocast state.

        Returns:
            (B, T, F) float32, natural logarithm of power; T may be 0.

        >>> LogMel()(torch.zeros(2, 16_000)).shape  # two seconds of sound, one each
        torch.Size([2, 98, 128])
        """
        if waveforms.ndim != 2:
            raise ConfigError(
                f"log-mel: got waveforms of shape {tuple(waveforms.shape)}; expected (batch, samples), "
                "so add a batch axis to a single waveform and mix several channels down first"
            )
        return self._full_precision(waveforms)

    @torch.no_grad()
    def chunk_features(self, waveforms: Tensor) -> Tensor:
        """Features of whole chunks, as the detector takes them.

        Each chunk is mean-centred, then zero-padded at its end so that exactly ``chunk_frames`` frames
        come out: the first 1022 are Kaldi's, the last two look past the end into silence. A chunk that is
        already centred and padded, as :func:`mast.audio.windows` gives it, is left as it was to rounding.

        Args:
            waveforms: (B, chunk_samples).

        Returns:
            (B, 1, chunk_frames, n_bins) float32.

        >>> LogMel().chunk_features(torch.zeros(2, 163_840)).shape
        torch.Size([2, 1, 1024, 128])
        """
        grid = self.front_end
        if waveforms.ndim != 2 or waveforms.shape[1] != grid.chunk_samples:
            raise ConfigError(
                f"log-mel: got chunks of shape {tuple(waveforms.shape)}; expected "
                f"(batch, {grid.chunk_samples}), that is {grid.chunk_s:g} s at {grid.sample_rate} Hz, as "
                "mast.audio.windows gives them"
            )
        waveforms = waveforms.float()
        centred = waveforms - waveforms.mean(dim=1, keepdim=True)
        needed = (grid.chunk_frames - 1) * grid.hop_samples + grid.window_samples
        padded = nn.functional.pad(centred, (0, max(0, needed - grid.chunk_samples)))
        return self._full_precision(padded)[:, : grid.chunk_frames].unsqueeze(1)  # (B, 1, T, F)

    def _full_precision(self, waveforms: Tensor) -> Tensor:
        with torch.autocast(waveforms.device.type, enabled=False):
            return self._log_mel(waveforms.float().contiguous())

    def _log_mel(self, waveforms: Tensor) -> Tensor:
        """Log-mel in slices of bounded size: memory beyond the result does not grow with the batch."""
        grid, device = self.front_end, waveforms.device
        n_batch, n_frames = waveforms.shape[0], self.n_frames(waveforms.shape[1])
        result = torch.empty((n_batch, n_frames, grid.n_bins), device=device)
        if result.numel() == 0:
            return result
        frames = waveforms.unfold(1, grid.window_samples, grid.hop_samples)  # (B, T, window), a view
        # On a CPU one waveform at a time: FFTs are done four frames at once and the rest singly, with different
        # rounding, which shows in quiet bins. So a batch is exactly its rows, and each row exactly Kaldi's.
        on_cpu = device.type == "cpu"
        step_t = min(_CPU_FRAMES if on_cpu else _GPU_FRAMES, n_frames)
        step_b = 1 if on_cpu else max(1, _GPU_FRAMES // n_frames)
        # one buffer for all slices; what lies beyond the window stays zero
        padded = torch.zeros((min(step_b, n_batch) * step_t, fft_size(grid)), device=device)
        for b in range(0, n_batch, step_b):
            for t in range(0, n_frames, step_t):
                part = frames[b : b + step_b, t : t + step_t]
                mel = result[b : b + step_b, t : t + step_t].view(-1, grid.n_bins)  # (b · t, F)
                self._mel(self._power(part, padded), out=mel).clamp_(min=FLOOR).log_()
        return result

    def _power(self, frames: Tensor, padded: Tensor) -> Tensor:
        """(b, t, window) frames → (b · t, fft_size // 2 + 1) power. Kaldi's order, hence its rounding too."""
        width = self.front_end.window_samples
        frames = (frames - frames.mean(dim=-1, keepdim=True)).view(-1, width)
        padded = padded[: frames.shape[0]]
        # The first sample has no predecessor, but Kaldi's Hann window is zero there: it stays zero.
        torch.sub(frames[:, 1:], frames[:, :-1] * PREEMPHASIS, out=padded[:, 1:width])
        padded[:, 1:width] *= self.window[1:]
        spectrum = torch.fft.rfft(padded)
        power: Tensor = spectrum.real.square() + spectrum.imag.square()
        return power

    def _mel(self, power: Tensor, out: Tensor) -> Tensor:
        """(n, fft_size // 2 + 1) power → (n, F). Triangles are narrow: only their support is touched."""
        if power.device.type != "cpu":
            # No matrix product here: a trainer may have allowed TF32, which keeps three digits.
            return torch.sum(
                power[:, self.band_index] * self.band_weight, dim=-1, out=out
            )  # (n, F, W) → (n, F)
        for i, (rows, bins) in enumerate(self._blocks):
            torch.mm(power[:, rows], self.get_buffer(f"block_{i}"), out=out[:, bins])
        return out
