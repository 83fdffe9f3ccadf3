"""A trained network in torch: its device, precision and layout, and the boxes in batches of sound.

Several threads search a batch each: on a CPU with a core for each thread, on a GPU with a stream for each, so that it
works on one batch while another is copied to or from it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from threading import Lock

import numpy as np
import torch
from torch import Tensor, nn

from mast.arrays import Samples
from mast.detect_options import DetectOptions
from mast.device import find_device, has_bfloat16, to_device
from mast.errors import ConfigError
from mast.inference.graph import Graph
from mast.inference.network import MAX_WORKERS, ThreadSetting
from mast.inference.stitch import Embeddings, ScoredBoxes
from mast.loaded_model import LoadedModel, Precision
from mast.models.interface import BoxDetector
from mast.models.mast_detector import DenseOutput, MastDetector
from mast.models.packed import arrange_convolutions, pack_encoder

# windows at once, our choice: ten minutes on a GPU (benchmarks/bench_gpu.py); elsewhere 4, which fills a core
_BATCH = {"cuda": 64}
# batches at once on a GPU, our choice: while the boxes of one are chosen and fetched, the other's network runs
_STREAMS = 2
# recordings read at once for a GPU, our choice: one core reads ten minutes in the time that a GPU searches twenty
# (results/gpu_speed.json, "read_and_cut" and "network"); two batches of each wait in memory
_MAX_READERS = 4
# windows read at once for a GPU, our choice: 10 MB, which the C library keeps and reuses; with 42 MB reading takes
# twice as long, because the system clears the pages each time
_PIECE = 16

Seen = tuple[Tensor, DenseOutput]  # spectrograms, and what the network says of them


class TorchNetwork:
    """A network in torch, set up for searching; see :class:`mast.inference.network.Network`.

    Args:
        name: of the model, as :func:`mast.models.find.find_model` takes it.
        options: how it searches.
        threads: of the CPU; torch's own choice by default.

    Attributes:
        loaded_model: the loaded model.
        model: the network itself.
        device: where it runs.
        compiled: whether it is compiled for its GPU.
    """

    def __init__(self, name: str | Path, options: DetectOptions, *, threads: int | None = None) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        self.device = find_device(options.device)
        precision: Precision = "bfloat16" if has_bfloat16(self.device) else "float32"
        self.precision: str = precision
        self.loaded_model = LoadedModel.load(
            name, device=self.device, band_hz=options.band_hz, precision=precision
        )
        self.card, self.folder = self.loaded_model.card, self.loaded_model.folder
        self.model: BoxDetector = (
            self.loaded_model.mast_detector if options.embed else self.loaded_model.box_detector
        )
        self._embed = options.embed
        on_cpu = self.device.type == "cpu"
        self.batch_size = options.batch_size or _BATCH.get(self.device.type, 4)
        # one size for all batches: compiled once, and a recording's events do not depend on those before it
        self.full_batches = not on_cpu
        self.piece_size = self.batch_size if on_cpu else min(self.batch_size, _PIECE)
        self.readers = 1 if on_cpu else min(_MAX_READERS, os.cpu_count() or 1)
        self.workers = min(torch.get_num_threads(), MAX_WORKERS) if on_cpu else _STREAMS
        # a baseline's compilation takes longer than most searches; it is compiled only if that is requested
        worth_it = isinstance(self.model, MastDetector) and _can_compile(self.device)
        self.compiled = worth_it if options.compile is None else options.compile
        if self.compiled and self.device.type != "cuda":
            raise ConfigError(
                f"compile on {self.device.type}: only models on a CUDA GPU are compiled; leave it out"
            )
        self._arrange()
        self._first = Lock()  # held while compiling and recording, which are for one thread at a time
        self._begun = not self.compiled
        self._graphs: list[Graph[Seen]] = []  # of the network, recorded and not in use; a thread takes one

    def _arrange(self) -> None:
        """Bring the weights into the format that this device multiplies fastest."""
        if self.precision == "bfloat16" and isinstance(self.model, MastDetector):
            _cast_products(self.model)
            if self.device.type == "cpu":
                pack_encoder(self.model.encoder, self.batch_size)
                arrange_convolutions(self.model)
            else:  # a GPU's units for bfloat16 want channels last, too
                self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if self.compiled:
            self.model.compile(dynamic=False)  # the dense forward pass; choosing boxes is not compiled

    def thread_setting(self) -> ThreadSetting:
        """On a CPU each worker has its share of the threads, on a GPU a stream of its own."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # the weights have arrived before another stream reads them
            return ThreadSetting(
                start=lambda: torch.cuda.set_stream(torch.cuda.Stream(self.device))  # type: ignore[no-untyped-call]
            )
        return threads_to_share(self.workers) if self.device.type == "cpu" else ThreadSetting()

    def boxes(self, sounds: Sequence[Samples], min_score: float) -> list[ScoredBoxes]:
        """See :class:`Network`."""
        n = sum(map(len, sounds))
        return self._search(self._batch([torch.from_numpy(sound) for sound in sounds]), min_score)[:n]

    def _batch(self, sounds: list[Tensor]) -> Tensor:
        """The (B, samples) of some pieces as one, filled up with silence where batches are of one size."""
        if not self.full_batches:
            return sounds[0]  # each piece is a batch of its own
        n = sum(map(len, sounds))
        shape = (self.batch_size, sounds[0].shape[1])
        batch = torch.empty(shape, pin_memory=self.device.type == "cuda")
        torch.cat(sounds, out=batch[:n])
        batch[n:] = 0.0
        return batch

    def _search(self, sound: Tensor, min_score: float) -> list[ScoredBoxes]:
        """(B, samples) → B times boxes in cells of the window."""
        if self.compiled and isinstance(self.model, MastDetector):
            with self._first:
                graph = self._graphs.pop() if self._graphs else Graph(self._dense, sound, self.device)
            try:
                return self._find_boxes(sound, min_score, graph)
            finally:
                self._graphs.append(graph)
        with nullcontext() if self._begun else self._first:
            found = self._find_boxes(sound, min_score, self._dense)
            self._begun = True
        return found

    @torch.inference_mode()
    def _find_boxes(
        self, sound: Tensor, min_score: float, dense: Callable[[Tensor], Seen]
    ) -> list[ScoredBoxes]:
        model, features, sound = self.model, None, to_device(sound, self.device)
        nms_iou = self.card.nms_iou
        with self.loaded_model.autocast():
            if isinstance(model, MastDetector):
                spectrograms, output = dense(sound)
                found = model.select(output, score_threshold=min_score, nms_iou=nms_iou)
                if self._embed:
                    features = model.vectors(output.tokens, spectrograms, [some.boxes for some in found])
            else:
                spectrograms = self.loaded_model.spectrograms(sound)
                found = model.detect(spectrograms, score_threshold=min_score, nms_iou=nms_iou)
        boxes = torch.cat([some.boxes for some in found]).double().cpu().numpy()  # one copy from the device
        scores = torch.cat([some.scores for some in found]).double().cpu().numpy()
        ends = np.cumsum([len(some.scores) for some in found])[:-1]
        embeddings: list[Embeddings | None] = [None] * len(found)
        if features is not None:
            # half precision: errors far below the difference between two calls, and half the space
            embeddings = [*np.split(torch.cat(features).half().cpu().numpy(), ends)]
        columns = np.split(boxes, ends), np.split(scores, ends), embeddings
        return [ScoredBoxes(*row) for row in zip(*columns, strict=True)]

    @torch.inference_mode()
    def _dense(self, sound: Tensor) -> Seen:
        """(B, samples) there → the spectrograms and all that the network says of them."""
        with self.loaded_model.autocast():
            spectrograms = self.loaded_model.spectrograms(sound)
            return spectrograms, self.model(spectrograms)


def threads_to_share(workers: int) -> ThreadSetting:
    """Settings that give each of several workers on a CPU its share of torch's threads."""
    threads = torch.get_num_threads()

    def start() -> None:
        torch.set_num_threads(max(1, threads // workers))
        torch.get_num_threads()  # a thread fixes its number on first use, to what was last set anywhere

    # each thread has its own setting, but new threads take the latest one
    return ThreadSetting(start, restore=lambda: torch.set_num_threads(threads))


def _cast_products(model: MastDetector) -> None:
    """Cast once the weights that autocast would cast at every call: the same numbers, a tenth faster on a CPU."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
            layer.to(torch.bfloat16)


def _can_compile(device: torch.device) -> bool:
    """Whether torch can make code for this GPU here: it needs Triton, a C compiler, and a card from 2017 or later."""
    if device.type != "cuda" or find_spec("triton") is None:
        return False
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    return compiler is not None and torch.cuda.get_device_capability(device) >= (7, 0)
