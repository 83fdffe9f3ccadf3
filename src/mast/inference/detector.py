"""A trained detector on recordings of any length.

Windows → batches → features → boxes in cells → stitched → events in seconds and hertz. Decoding runs ahead while
the model works; several threads take a batch each, and the batches are put together again in their order: on a CPU
with a core to each of them, on a GPU with a stream to each, so that it works on one batch while another comes and
goes. Front end, normalisation and thresholds are those of the checkpoint.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from threading import Lock

import numpy as np
import pandas as pd
import torch
from torch import nn

from mast.annotations.detections import model_id
from mast.annotations.redraw import Redrawn, redraw
from mast.arrays import FloatArray, IntArray
from mast.audio import AudioInfo, Metadata, failing_alone
from mast.detect_options import DEFAULT_OPTIONS, DetectOptions
from mast.device import find_device, has_bfloat16, send
from mast.errors import AudioError, ConfigError, MastError
from mast.events import empty_events
from mast.grid import grid_to_events
from mast.hearing import HearingModel, Precision
from mast.inference.graph import Graph
from mast.inference.pieces import End, Piece, Reader, Source, full_batches
from mast.inference.prefetch import concurrently
from mast.inference.scores import settle_scores
from mast.inference.stitch import Embeddings, ScoredBoxes, Stitcher, without_nested
from mast.models.interface import BoxDetector
from mast.models.mast_detector import DenseOutput, MastDetector
from mast.models.packed import arrange_convolutions, pack_encoder

# windows at once, our choice: ten minutes on a GPU (benchmarks/bench_gpu.py); elsewhere 4, which fills a core
_BATCH = {"cuda": 64}
# batches at once on a CPU, our choice: with a core to each, none waits for another after every product, and what a
# batch gives does not depend on the number of cores (benchmarks/bench_speed.py times both, "sharing"). More than these
# would wait for each other in Python and hold more memory; further cores then share the work within a batch
_MOST_WORKERS = 8
# batches at once on a GPU, our choice: while the boxes of one are chosen and fetched, the other's network runs
_STREAMS = 2
# recordings read at once for a GPU, our choice: one core reads ten minutes in the time that a GPU searches twenty
# (results/gpu_speed.json, "read_and_cut" and "network"); two batches of each wait in memory
_MOST_READERS = 4
# windows read at once for a GPU, our choice: 10 MB, which the C library keeps and gives again; with 42 MB reading takes
# twice as long, for pages that the system clears each time
_PIECE = 16
_MP3_SLACK_S = 1.0  # lengths in mp3 headers may be estimates


Seen = tuple[torch.Tensor, DenseOutput]  # spectrograms, and what the network says of them


@dataclass(frozen=True, eq=False)
class Searched:
    """What became of one recording: events and facts, or the reason why there are none.

    Attributes:
        source: the recording.
        events: in the event schema, by time; empty where ``error`` is not.
        duration_s: seconds of sound searched.
        sample_rate: of the file, Hz.
        site: where known.
        datetime: wall-clock start of the recording, ISO 8601, where known.
        damage: a sentence where the sound ends before the header says; what exists was searched.
        error: a sentence where the recording could not be read.
        embeddings: (events, D) half-precision features of each event, in the order of ``events``; ``None`` unless
            the detector embeds.

    >>> from pathlib import Path
    >>> from mast.inference import Detector, Source
    >>> found = next(Detector("default").outcomes([Source(Path("sim/audio/S01_20240512_055800.flac"), "S01.flac")]))
    >>> len(found.events), found.duration_s, found.sample_rate, found.error
    (4, 10.0, 16000, '')
    """

    source: Source
    events: pd.DataFrame
    duration_s: float = 0.0
    sample_rate: int = 0
    site: str = ""
    datetime: str = ""
    damage: str = ""
    error: str = ""
    embeddings: Embeddings | None = None


class Detector:
    """A trained detector, ready for recordings.

    Args:
        folder: a model folder, or a training run that holds one as ``best``; ``"default"`` or ``"hf://owner/name"``,
            see :func:`mast.models.find.find_model`.
        options: how it searches.

    Attributes:
        hearing: the loaded model, arranged for searching.
        card: what the checkpoint says about itself.
        options: as given.
        habit: how boxes are drawn.
        scores: calibration, and the threshold as users see it and as a raw score; for a precision, what was reached.
        model_id: ``mast-`` and the start of the weights' fingerprint, as in the column ``model``.
        precision: ``"bfloat16"`` where the hardware multiplies it natively, else ``"float32"``.
        workers: batches searched at once.

    >>> from mast.detect_options import DetectOptions
    >>> from mast.inference import Detector
    >>> detector = Detector("default", DetectOptions(threshold=0.5))
    >>> detector.scores.threshold, detector.card.front_end.chunk_s
    (0.5, 10.24)
    """

    def __init__(self, folder: str | Path, options: DetectOptions = DEFAULT_OPTIONS) -> None:
        self.options = options
        self.device = find_device(options.device)
        self.precision: Precision = "bfloat16" if has_bfloat16(self.device) else "float32"
        self.hearing = HearingModel.load(
            folder, device=self.device, band_hz=options.band_hz, precision=self.precision
        )
        self.card = self.hearing.card
        model: BoxDetector = self.hearing.mast_detector if options.embed else self.hearing.box_detector
        self.scores = settle_scores(
            self.card,
            self.hearing.folder,
            threshold=options.threshold,
            precision_target=options.precision_target,
        )
        self.nms_iou = self.hearing.nms_iou
        self.habit = options.habit(self.card.habit)
        self.batch_size = options.batch_size or _BATCH.get(self.device.type, 4)
        self.model_id = model_id(self.card.weights_sha256)
        # a baseline's compilation takes longer than most searches; it is compiled where that is asked for
        worth_it = isinstance(model, MastDetector) and _can_compile(self.device)
        self.compiled = worth_it if options.compile is None else options.compile
        if self.compiled and self.device.type != "cuda":
            raise ConfigError(
                f"compile on {self.device.type}: only models on a CUDA GPU are compiled; leave it out"
            )
        self.workers = min(torch.get_num_threads(), _MOST_WORKERS) if self.device.type == "cpu" else _STREAMS
        # one size for all batches: compiled once, and a recording's events do not depend on those before it
        self._full = self.device.type != "cpu"
        if self.precision == "bfloat16" and isinstance(model, MastDetector):
            _cast_products(model)
            if self.device.type == "cpu":
                pack_encoder(model.encoder, self.batch_size)
                arrange_convolutions(model)
            else:  # a GPU's units for bfloat16 want channels last, too
                model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._model = model
        self._nested = model.config.nested if isinstance(model, MastDetector) else 1.0
        if self.compiled:
            self._model.compile(dynamic=False)  # the dense forward pass; choosing boxes stays as it is
        self._first = Lock()  # held while compiling and recording, which are for one thread at a time
        self._begun = not self.compiled
        self._graphs: list[Graph[Seen]] = []  # of the network, recorded and not in use; a thread takes one
        self._reader = Reader(
            self.card.front_end,
            hop_s=options.hop * self.card.front_end.chunk_s,
            batch_size=min(self.batch_size, _PIECE) if self._full else self.batch_size,
            several=1 if self.device.type == "cpu" else min(_MOST_READERS, os.cpu_count() or 1),
        )

    @property
    def settings(self) -> dict[str, str | float]:
        """All that changes the events it finds; batch size and device only round differently."""
        seen = self.card.front_end.model_dump_json() + self.card.normalisation.model_dump_json()
        decided: dict[str, str | float] = {"nested_in_recording": self._nested} if self._nested < 1 else {}
        return decided | {
            "model": self.card.weights_sha256,
            "input": hashlib.sha256(seen.encode()).hexdigest()[:12],
            "calibration": self.scores.fingerprint,
            "threshold": self.scores.threshold,
            "raw_threshold": self.scores.raw_threshold,
            "nms_iou": self.nms_iou,
            "hop": self.options.hop,
            **self.habit.settings,
            "precision": self.precision,
            "embeddings": self.embedding_width if self.options.embed else 0,
        }

    @property
    def embedding_width(self) -> int:
        """Of a box's vector; 0 for a baseline, which has none."""
        return self._model.embedding_width if isinstance(self._model, MastDetector) else 0

    def detect(self, path: str | Path, *, root: str | Path | None = None) -> pd.DataFrame:
        """The events of one recording, by time.

        Args:
            path: the recording.
            root: the dataset's folder: recordings are named relative to it, and folders below it may name the site.

        Returns:
            A table in the event schema (:data:`mast.events.EVENT_COLUMNS`).

        Raises:
            AudioError: the recording cannot be read.

        >>> import mast
        >>> events = mast.load(threshold=0.5).detect("sim/audio/S01_20240512_055800.flac", root="sim")
        >>> events[["recording", "site", "source"]].head(2)
                                recording site    source
        0  audio/S01_20240512_055800.flac  S01  detector
        1  audio/S01_20240512_055800.flac  S01  detector
        """
        return next(self.stream([path], root=root))

    def detect_and_embed(
        self, path: str | Path, *, root: str | Path | None = None
    ) -> tuple[pd.DataFrame, Embeddings]:
        """The events of one recording and (events, D) embeddings, row by row.

        An embedding is the encoder's map averaged inside the box (App. "Box-Level Embeddings") and what the box looks
        like (:mod:`mast.models.box_vectors`), each of length one, in half precision. Of an event that several windows
        heard it comes from the one that saw most of it.

        Raises:
            ConfigError: the detector was loaded without ``embed=True``.
            AudioError: the recording cannot be read.

        >>> import mast
        >>> events, vectors = mast.load(embed=True).detect_and_embed("sim/audio/S01_20240512_055800.flac")
        >>> len(events), vectors.shape, vectors.dtype
        (4, (4, 323), dtype('float16'))
        """
        if not self.options.embed:
            raise ConfigError("this detector gives no embeddings; load it with embed=True")
        outcome = next(self.outcomes([_source(Path(path), root)]))
        if outcome.error:
            raise AudioError(outcome.error)
        assert outcome.embeddings is not None
        return outcome.events, outcome.embeddings

    def stream(
        self, paths: Iterable[str | Path], *, root: str | Path | None = None
    ) -> Iterator[pd.DataFrame]:
        """The events of each recording in turn, in constant memory.

        Raises:
            AudioError: at a recording that cannot be read. :meth:`outcomes` continues instead.

        >>> from pathlib import Path
        >>> import mast
        >>> recordings = sorted(Path("sim/audio").glob("*.flac"))
        >>> for events in mast.load().stream(recordings):
        ...     print(len(events))
        4
        0
        1
        """
        for outcome in self.outcomes(_source(Path(path), root) for path in paths):
            if outcome.error:
                raise AudioError(outcome.error)
            yield outcome.events

    def outcomes(
        self, sources: Iterable[Source], *, progress: Callable[[float], None] | None = None
    ) -> Iterator[Searched]:
        """What became of each recording in turn; one that cannot be read is an outcome too.

        Args:
            sources: recordings; drawn from a background thread.
            progress: called with seconds of sound as they are done.

        >>> from pathlib import Path
        >>> import mast
        >>> from mast.inference import Source
        >>> sources = [Source(Path("sim/audio/S01_20240512_055800.flac"), "S01.flac"), Source(Path("gone.wav"), "lost")]
        >>> for found in mast.load().outcomes(sources):
        ...     print(found.source.recording, len(found.events), found.error or "searched")
        S01.flac 4 searched
        lost 0 gone.wav: no such file; check the name and the folder
        """
        stitcher, events, end_s = Stitcher(), [], 0.0
        for piece, found in chain.from_iterable(self._searched(sources)):
            if isinstance(piece, End):
                events.append(stitcher.finish())
                yield self._outcome_or_failure(piece, events, end_s)
                stitcher, events, end_s = Stitcher(), [], 0.0
                continue
            events += self._stitched(piece, found, stitcher)
            if progress is not None:
                progress(piece.end_s - end_s)
            end_s = piece.end_s

    def _searched(self, sources: Iterable[Source]) -> Iterator[list[tuple[Piece | End, list[ScoredBoxes]]]]:
        """Batch by batch, every piece in order with the boxes in each of its windows; some batches at once."""

        def search(batch: tuple[Piece | End, ...]) -> list[tuple[Piece | End, list[ScoredBoxes]]]:
            sounds = [torch.from_numpy(piece.sound) for piece in batch if isinstance(piece, Piece)]
            found = iter(self._boxes(self._batch(sounds)) if sounds else [])
            return [
                (piece, [] if isinstance(piece, End) else list(islice(found, len(piece.sound))))
                for piece in batch
            ]

        pieces = self._reader(sources)
        batches = full_batches(pieces, self.batch_size) if self._full else ((piece,) for piece in pieces)
        threads = torch.get_num_threads()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # the weights have arrived before another stream reads them

        def start() -> None:
            if self.device.type == "cuda":
                torch.cuda.set_stream(torch.cuda.Stream(self.device))  # type: ignore[no-untyped-call]
            elif self.device.type == "cpu":
                torch.set_num_threads(max(1, threads // self.workers))
                torch.get_num_threads()  # a thread settles its number when first asked, by what was set last anywhere

        for _, found in concurrently(search, batches, workers=self.workers, start=start):
            if self.device.type == "cpu":  # the setting is each thread's own, but new threads take the latest
                torch.set_num_threads(threads)
            yield found

    def _stitched(self, piece: Piece, found: list[ScoredBoxes], stitcher: Stitcher) -> list[ScoredBoxes]:
        """Events that are complete once these windows and what was found in them are seen, in cells."""
        done = []
        for start_s, valid_s, inside in zip(piece.starts_s, piece.valid_s, found, strict=True):
            start, valid = start_s / self.card.front_end.hop_s, valid_s / self.card.front_end.hop_s
            heard = inside.boxes[:, 0] < valid  # what begins in the padding is not an event
            boxes, scores = inside.boxes[heard], inside.scores[heard]
            embeddings = None if inside.embeddings is None else inside.embeddings[heard]
            boxes[:, 2] = np.minimum(boxes[:, 2], valid)
            boxes[:, 0::2] += start
            done.append(stitcher.add(start, start + valid, boxes, scores, embeddings))
        return [some for some in done if len(some.scores)]  # most windows of a quiet day hold nothing

    def _batch(self, sounds: list[torch.Tensor]) -> torch.Tensor:
        """The (B, samples) of some pieces as one, filled up with silence where batches are of one size."""
        if not self._full:
            return sounds[0]  # each piece is a batch of its own
        n = sum(map(len, sounds))
        shape = (self.batch_size, sounds[0].shape[1])
        batch = torch.empty(shape, pin_memory=self.device.type == "cuda")
        torch.cat(sounds, out=batch[:n])
        batch[n:] = 0.0
        return batch

    def _boxes(self, sound: torch.Tensor) -> list[ScoredBoxes]:
        """(B, samples) → B times boxes in cells of the window."""
        if self.compiled and isinstance(self._model, MastDetector):
            with self._first:
                graph = self._graphs.pop() if self._graphs else Graph(self._dense, sound, self.device)
            try:
                return self._found(sound, graph)
            finally:
                self._graphs.append(graph)
        with nullcontext() if self._begun else self._first:
            found = self._found(sound, self._dense)
            self._begun = True
        return found

    @torch.inference_mode()
    def _found(self, sound: torch.Tensor, dense: Callable[[torch.Tensor], Seen]) -> list[ScoredBoxes]:
        model, features, sound = self._model, None, send(sound, self.device)
        least, nms_iou = self.scores.raw_threshold, self.nms_iou
        with self.hearing.autocast():
            if isinstance(model, MastDetector):
                spectrograms, output = dense(sound)
                found = model.select(output, score_threshold=least, nms_iou=nms_iou)
                if self.options.embed:
                    features = model.vectors(output.tokens, spectrograms, [some.boxes for some in found])
            else:
                spectrograms = self.hearing.spectrograms(sound)
                found = model.detect(spectrograms, score_threshold=least, nms_iou=nms_iou)
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
    def _dense(self, sound: torch.Tensor) -> Seen:
        """(B, samples) there → the spectrograms and all that the network says of them."""
        with self.hearing.autocast():
            spectrograms = self.hearing.spectrograms(sound)
            return spectrograms, self._model(spectrograms)

    def _outcome_or_failure(self, end: End, found: list[ScoredBoxes], end_s: float) -> Searched:
        """What became of a recording; whatever goes wrong with it is its own failure."""
        try:
            with failing_alone(end.source.path):
                return self._outcome(end, found, end_s)
        except MastError as error:
            return Searched(end.source, empty_events(), error=str(error))

    def _outcome(self, end: End, found: list[ScoredBoxes], end_s: float) -> Searched:
        source, info, about, error = end
        if info is None:
            return Searched(source, empty_events(), error=error)
        if end_s == 0:
            return Searched(
                source, empty_events(), error=f"{source.path}: holds no sound; remove it or copy it again"
            )
        # resampling may add or take a sample; more is a header that promised something else
        duration_s = info.duration_s if abs(info.duration_s - end_s) < 0.01 else end_s
        cells = np.concatenate([some.boxes for some in found])
        scores = np.concatenate([some.scores for some in found])
        alone = without_nested(cells, scores, self._nested) if self._nested < 1 else np.arange(len(scores))
        cells, scores = cells[alone], scores[alone]
        events, rows = self._events(cells, scores, source, info, about, duration_s)
        embeddings = None
        if self.options.embed:
            parts = [some.embeddings for some in found if some.embeddings is not None]
            nothing = np.zeros((0, self.embedding_width), dtype=np.float16)
            embeddings = np.concatenate([nothing, *parts])[alone[rows]]
        return Searched(
            source=source,
            events=events,
            duration_s=duration_s,
            sample_rate=info.sample_rate,
            site=about.site or "",
            datetime=about.clock_at(0.0, timespec="auto"),
            damage=_damage(info, end_s),
            embeddings=embeddings,
        )

    def _events(
        self,
        cells: FloatArray,
        scores: FloatArray,
        source: Source,
        info: AudioInfo,
        about: Metadata,
        duration_s: float,
    ) -> tuple[pd.DataFrame, IntArray]:
        """(K, 4) cells from the recording's start → the event schema, by time, inside what the file can hold.

        Also gives the rows of ``cells`` that the events are.
        """
        boxes, rows = self._drawn(
            grid_to_events(cells, self.card.front_end), scores, source, info, duration_s
        )
        # a microsecond and a millihertz: finer than any grid, and tables stay readable
        start_s, end_s = boxes[:, 0].round(6), np.minimum(boxes[:, 2].round(6), duration_s)
        low_hz, high_hz = boxes[:, 1].round(3), np.minimum(boxes[:, 3].round(3), info.sample_rate / 2)
        inside = np.flatnonzero((end_s > start_s) & (high_hz > low_hz))
        by_time = np.lexsort([column[inside] for column in (high_hz, end_s, low_hz, start_s)])
        drawn = inside[by_time]
        rows = rows[drawn]
        if (n := len(rows)) == 0:
            return empty_events(), rows
        columns = {
            "recording": [source.recording] * n,
            "start_s": start_s[drawn],
            "end_s": end_s[drawn],
            "low_hz": low_hz[drawn],
            "high_hz": high_hz[drawn],
            "score": self.scores.calibration.apply(scores[rows]).round(6),
            "label": [""] * n,
            "site": [about.site or ""] * n,
            "datetime": [about.clock_at(start) for start in start_s[drawn].tolist()],
            "source": ["detector"] * n,
            "model": [self.model_id] * n,
        }
        # in the schema from the start: bringing a table into it takes as long as searching half a minute
        return pd.DataFrame(columns), rows

    def _drawn(
        self, boxes: FloatArray, scores: FloatArray, source: Source, info: AudioInfo, duration_s: float
    ) -> Redrawn:
        """A recording's boxes as the habit draws them, and which of those given each one has its score from."""
        if self.habit.changes_nothing:
            return Redrawn(boxes, np.arange(len(boxes)))
        limits = [duration_s, info.sample_rate / 2] * 2
        heard = np.minimum(boxes, limits)
        inside = np.flatnonzero((heard[:, 2:] > heard[:, :2]).all(axis=1))
        drawn = redraw(heard[inside], scores[inside], self.habit, source.path, self.card.front_end)
        return Redrawn(drawn.boxes, inside[drawn.rows])


def _source(path: Path, root: str | Path | None) -> Source:
    if root is None:
        return Source(path, path.name)
    try:
        return Source(path, path.absolute().relative_to(Path(root).absolute()).as_posix(), Path(root))
    except ValueError:
        raise AudioError(
            f"{path}: does not lie in {root}; give the folder that holds all recordings"
        ) from None


def _cast_products(model: MastDetector) -> None:
    """Cast once what autocast would cast at every call: the same numbers, a tenth faster on a CPU."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
            layer.to(torch.bfloat16)


def _can_compile(device: torch.device) -> bool:
    """Whether torch can make code for this GPU here: it needs Triton, a C compiler, and a card from 2017 or later."""
    if device.type != "cuda" or find_spec("triton") is None:
        return False
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    return compiler is not None and torch.cuda.get_device_capability(device) >= (7, 0)


def _damage(info: AudioInfo, end_s: float) -> str:
    slack_s = _MP3_SLACK_S if info.format == "MP3" else 0.01
    if end_s < info.duration_s - slack_s:
        return (
            f"damaged, sound ends at {end_s:.2f} s of {info.duration_s:.2f} s; what comes before was searched"
        )
    return (
        f"cut short, the header promises more than {end_s:.2f} s; what is there was searched"
        if info.truncated
        else ""
    )
