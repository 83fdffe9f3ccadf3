"""A trained detector on recordings of any length.

Windows → batches → features → boxes in cells → stitched → events in seconds and hertz. Decoding runs ahead while
the model works; several threads take a batch each, and the batches are put together again in their order. Front end,
normalisation and thresholds are those of the checkpoint. What finds the boxes in a batch is the detector's
:class:`~mast.inference.network.Network`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mast.annotations.detections import model_id
from mast.annotations.redraw import redraw
from mast.audio import AudioInfo, Metadata, as_audio_errors, find_recordings, no_recordings_error
from mast.detect_options import DEFAULT_HOP, DEFAULT_OPTIONS, LONGEST_DEFAULT_HOP, DetectOptions
from mast.errors import AudioError, ConfigError, MastError
from mast.events import empty_events
from mast.grid import events_to_cells, grid_to_events
from mast.hardware import might_have_bfloat16, might_have_gpu
from mast.inference.fusion import fusion_threshold
from mast.inference.in_memory import as_recording
from mast.inference.network import Network
from mast.inference.pieces import End, Piece, Reader, Source, full_batches
from mast.inference.prefetch import map_concurrently
from mast.inference.scores import resolve_scores
from mast.inference.speed_passes import SPEEDS, Events, SpeedPass, combine_speeds
from mast.inference.stitch import Embeddings, ScoredBoxes, suppress_fused
from mast.models.architecture import DetectorConfig

if TYPE_CHECKING:
    from mast.inference.onnx_network import OnnxNetwork
    from mast.loaded_model import LoadedModel

_MP3_SLACK_S = 1.0  # lengths in mp3 headers may be estimates


@dataclass(frozen=True, eq=False)
class Searched:
    """What became of one recording: events and facts, or the reason why there are none.

    Attributes:
        source: the recording.
        events: in the event schema, by time; empty if there is an ``error``.
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
        threads: of the CPU; by default, chosen for the machine.

    Attributes:
        network: what finds the boxes in each window.
        card: what the checkpoint says about itself.
        options: as given.
        habit: how boxes are drawn.
        scores: calibration, and the threshold as users see it and as a raw score; for a precision, what was reached.
        model_id: ``mast-`` and the start of the weights' fingerprint, as in the column ``model``.

    >>> from mast.detect_options import DetectOptions
    >>> from mast.inference import Detector
    >>> detector = Detector("default", DetectOptions(threshold=0.5))
    >>> detector.scores.threshold, detector.card.front_end.chunk_s
    (0.5, 10.24)
    """

    def __init__(
        self, folder: str | Path, options: DetectOptions = DEFAULT_OPTIONS, *, threads: int | None = None
    ) -> None:
        self.options = options
        self.network = _network(folder, options, threads)
        self.card = self.network.card
        self.scores = resolve_scores(
            self.card,
            self.network.folder,
            threshold=options.threshold,
            precision_target=options.precision_target,
        )
        if options.thorough and self.scores.sentence:
            sentence = self.scores.sentence
            sentence += "; all of this without --thorough, whose scores are means over three speeds"
            self.scores = replace(self.scores, sentence=sentence)
        self.habit = options.resolve_habit(self.card.habit)
        self.model_id = model_id(self.card.weights_sha256)
        self._nested = self.card.nested
        chunk_s = self.card.front_end.chunk_s
        self._reader = Reader(
            self.card.front_end,
            hop_s=options.hop * chunk_s,
            longest_s=(LONGEST_DEFAULT_HOP if options.hop == DEFAULT_HOP else options.hop) * chunk_s,
            batch_size=self.network.piece_size,
            n_parallel=self.network.readers,
            speeds=SPEEDS if options.thorough else (1.0,),
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
            "nms_iou": self.card.nms_iou,
            "hop": self.options.hop,
            "speeds": ", ".join(f"{speed:g}" for speed in self._reader.speeds),
            **self.habit.settings,
            "precision": self.precision,
            "embeddings": self.embedding_width if self.options.embed else 0,
        }

    @property
    def precision(self) -> str:
        """``"bfloat16"`` where the hardware multiplies it natively, ``"int8"`` on other CPUs, else ``"float32"``."""
        return self.network.precision

    @property
    def embedding_width(self) -> int:
        """Length of a box's vector; 0 for a baseline, which has none."""
        architecture = self.card.architecture
        return architecture.embedding_width if isinstance(architecture, DetectorConfig) else 0

    @cached_property
    def loaded_model(self) -> LoadedModel:
        """The model in torch, for more than boxes; loaded only now if boxes are found without it."""
        from mast.inference.onnx_embedding import EmbeddingOnnxNetwork
        from mast.inference.torch_network import TorchNetwork
        from mast.loaded_model import LoadedModel

        if isinstance(self.network, TorchNetwork | EmbeddingOnnxNetwork):
            return self.network.loaded_model
        return LoadedModel.load(self.network.folder, device="cpu", band_hz=self.options.band_hz)

    def detect(
        self,
        recording: str | Path | NDArray[Any],
        *,
        sample_rate: float | None = None,
        root: str | Path | None = None,
    ) -> pd.DataFrame:
        """The events of one recording, by time.

        Args:
            recording: its path; or its samples as an array, (n,) or (n, channels), which are mixed down as those of a
                file are. Floats have a full scale of −1 to 1; integers (8, 16 or 32 bits) are taken as PCM.
            sample_rate: of an array, Hz; a file states its own.
            root: the dataset's folder: recordings are named relative to it, and folders below it may name the site.

        Returns:
            A table in the event schema (:data:`mast.events.EVENT_COLUMNS`). Events of an array have ``samples`` as
            their recording, and no site or clock time.

        Raises:
            AudioError: the recording cannot be read.
            ConfigError: an array without a sample rate, or a path with one.

        >>> import mast
        >>> events = mast.load(threshold=0.5).detect("sim/audio/S01_20240512_055800.flac", root="sim")
        >>> events[["recording", "site", "source"]].head(2)
                                recording site    source
        0  audio/S01_20240512_055800.flac  S01  detector
        1  audio/S01_20240512_055800.flac  S01  detector

        >>> import soundfile
        >>> samples, sample_rate = soundfile.read("sim/audio/S01_20240512_055800.flac")
        >>> events = mast.load(threshold=0.5).detect(samples, sample_rate=sample_rate)
        >>> events[["recording", "source"]].head(2)
          recording    source
        0   samples  detector
        1   samples  detector
        """
        return self._search_one(recording, sample_rate, root).events

    def detect_and_embed(
        self,
        recording: str | Path | NDArray[Any],
        *,
        sample_rate: float | None = None,
        root: str | Path | None = None,
    ) -> tuple[pd.DataFrame, Embeddings]:
        """The events of one recording and (events, D) embeddings, row by row.

        An embedding is the encoder's map averaged inside the box (App. "Box-Level Embeddings") and what the box looks
        like (:mod:`mast.models.box_vectors`), each of length one, in half precision. For an event in several windows,
        it comes from the one that saw most of it.

        Args:
            recording: as in :meth:`detect`.
            sample_rate: as in :meth:`detect`.
            root: as in :meth:`detect`.

        Raises:
            ConfigError: the detector was loaded without ``embed=True``; or as :meth:`detect`.
            AudioError: the recording cannot be read.

        >>> import mast
        >>> events, vectors = mast.load(embed=True).detect_and_embed("sim/audio/S01_20240512_055800.flac")
        >>> len(events), vectors.shape, vectors.dtype
        (4, (4, 323), dtype('float16'))
        """
        if not self.options.embed:
            raise ConfigError("this detector gives no embeddings; load it with embed=True")
        outcome = self._search_one(recording, sample_rate, root)
        assert outcome.embeddings is not None
        return outcome.events, outcome.embeddings

    def _search_one(
        self, recording: str | Path | NDArray[Any], sample_rate: float | None, root: str | Path | None
    ) -> Searched:
        """What became of one recording, given by its path or its samples, if it could be read."""
        if isinstance(recording, str | os.PathLike):
            if sample_rate is not None:
                raise ConfigError(
                    f"{recording}: sample_rate belongs to an array; a file states its own, so leave it out"
                )
            outcome = next(self.outcomes([_source(Path(recording), root)]))
        elif root is not None:
            raise ConfigError(f"root {root}: belongs to a path; an array lies in no folder, so leave it out")
        else:
            with as_recording(recording, sample_rate) as source:
                outcome = next(self.outcomes([source]))
        if outcome.error:
            raise AudioError(outcome.error)
        return outcome

    def stream(
        self, paths: str | Path | Iterable[str | Path], *, root: str | Path | None = None
    ) -> Iterator[pd.DataFrame]:
        """The events of each recording in turn, in constant memory.

        Args:
            paths: the recordings; or a folder, for all recordings in it and its subfolders, sorted.
            root: as in :meth:`detect`; where a folder is given, that folder by default.

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
        if isinstance(paths, np.ndarray):
            raise ConfigError(
                "stream takes recordings, not samples; detect(samples, sample_rate=…) takes an array"
            )
        if isinstance(paths, str | os.PathLike):
            paths, root = _list_recordings(Path(paths), root)
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
        passes = self._start_passes()
        for piece, found in chain.from_iterable(self._search_batches(sources)):
            if isinstance(piece, End):
                yield self._outcome_or_failure(piece, passes)
                passes = self._start_passes()
                continue
            current = passes[piece.speed]
            if progress is not None:
                progress((piece.end_s - current.end_s) / len(passes))
            current.add(piece, found)

    def _min_score(self) -> float:
        """The minimum score of boxes, on the detector's own scale: a low one if speeds have to agree."""
        raised = self.scores.raw_threshold
        fused = fusion_threshold(self.card) if self.options.thorough else None
        return raised if fused is None else min(fused, raised)

    def _start_passes(self) -> list[SpeedPass]:
        """A pass over a recording at each speed, still empty."""
        return [SpeedPass(front_end) for front_end in self._reader.front_ends]

    def _search_batches(
        self, sources: Iterable[Source]
    ) -> Iterator[list[tuple[Piece | End, list[ScoredBoxes]]]]:
        """Batch by batch, every piece in order with the boxes in each of its windows; some batches at once."""
        network, min_score = self.network, self._min_score()

        def search(batch: tuple[Piece | End, ...]) -> list[tuple[Piece | End, list[ScoredBoxes]]]:
            sounds = [piece.sound for piece in batch if isinstance(piece, Piece)]
            found = iter(network.boxes(sounds, min_score) if sounds else [])
            return [
                (piece, [] if isinstance(piece, End) else list(islice(found, len(piece.sound))))
                for piece in batch
            ]

        pieces = self._reader(sources)
        full = network.full_batches
        batches = full_batches(pieces, network.batch_size) if full else ((piece,) for piece in pieces)
        setting = network.thread_setting()
        for _, found in map_concurrently(search, batches, workers=network.workers, start=setting.start):
            setting.restore()
            yield found

    def _outcome_or_failure(self, end: End, passes: list[SpeedPass]) -> Searched:
        """What became of a recording; whatever goes wrong with it is its own failure."""
        try:
            with as_audio_errors(end.source.path):
                return self._outcome(end, passes)
        except MastError as error:
            return Searched(end.source, empty_events(), error=str(error))

    def _outcome(self, end: End, passes: list[SpeedPass]) -> Searched:
        source, info, about, error = end
        if info is None:
            return Searched(source, empty_events(), error=error)
        end_s = passes[0].end_s
        if end_s == 0:
            return Searched(
                source, empty_events(), error=f"{source.path}: holds no sound; remove it or copy it again"
            )
        # resampling may add or drop a sample; a larger difference means that the header was wrong
        duration_s = info.duration_s if abs(info.duration_s - end_s) < 0.01 else end_s
        found = [self._redraw(one, source, info, duration_s) for one in passes]
        events, embeddings = self._build_table(
            found[0] if len(found) == 1 else self._combine_speeds(found), source, info, about, duration_s
        )
        return Searched(
            source=source,
            events=events,
            duration_s=duration_s,
            sample_rate=info.sample_rate,
            site=about.site or "",
            datetime=about.clock_at(0.0, timespec="auto"),
            damage=_describe_damage(info, end_s),
            embeddings=embeddings,
        )

    def _redraw(self, speed_pass: SpeedPass, source: Source, info: AudioInfo, duration_s: float) -> Events:
        """What was found at one speed, with boxes as the habit draws them."""
        cells, scores, embeddings = speed_pass.finish(self._nested)
        boxes, rows = grid_to_events(cells, speed_pass.front_end), np.arange(len(scores))
        if not self.habit.changes_nothing:
            boxes = np.minimum(boxes, [duration_s, info.sample_rate / 2] * 2)
            inside = np.flatnonzero((boxes[:, 2:] > boxes[:, :2]).all(axis=1))
            drawn = redraw(
                boxes[inside],
                scores[inside],
                self.habit,
                source.path,
                speed_pass.front_end,
                threshold=self.scores.raw_threshold,
            )
            boxes, rows = drawn.boxes, inside[drawn.rows]
        if self.options.embed and embeddings is None:  # nothing was found
            embeddings = np.zeros((0, self.embedding_width), dtype=np.float16)
        return Events(
            boxes,
            self.scores.calibration.apply(scores[rows]),
            None if embeddings is None else embeddings[rows],
        )

    def _combine_speeds(self, found: list[Events]) -> Events:
        """The events that count among those found at several speeds."""
        front_ends = self._reader.front_ends
        boxes, scores, _ = combine_speeds(found, front_ends)
        rows = np.flatnonzero(scores >= self.scores.threshold)
        rows = rows[
            suppress_fused(
                events_to_cells(boxes[rows], front_ends[0]), scores[rows], self.card.nms_iou, self._nested
            )
        ]
        return Events(boxes[rows], scores[rows])

    def _build_table(
        self, found: Events, source: Source, info: AudioInfo, about: Metadata, duration_s: float
    ) -> tuple[pd.DataFrame, Embeddings | None]:
        """Events in the event schema, by time, inside what the file can hold; and their embeddings."""
        boxes = found.boxes
        # a microsecond and a millihertz: finer than any grid, and tables stay readable
        start_s, end_s = boxes[:, 0].round(6), np.minimum(boxes[:, 2].round(6), duration_s)
        low_hz, high_hz = boxes[:, 1].round(3), np.minimum(boxes[:, 3].round(3), info.sample_rate / 2)
        inside = np.flatnonzero((end_s > start_s) & (high_hz > low_hz))
        rows = inside[np.lexsort([column[inside] for column in (high_hz, end_s, low_hz, start_s)])]
        embeddings = None if found.embeddings is None else found.embeddings[rows]
        if (n := len(rows)) == 0:
            return empty_events(), embeddings
        columns = {
            "recording": [source.recording] * n,
            "start_s": start_s[rows],
            "end_s": end_s[rows],
            "low_hz": low_hz[rows],
            "high_hz": high_hz[rows],
            "score": found.scores[rows].round(6),
            "label": [""] * n,
            "site": [about.site or ""] * n,
            "datetime": [about.clock_at(start) for start in start_s[rows].tolist()],
            "source": ["detector"] * n,
            "model": [self.model_id] * n,
        }
        # in the schema from the start: bringing a table into it takes as long as searching half a minute
        return pd.DataFrame(columns), embeddings


def _network(name: str | Path, options: DetectOptions, threads: int | None) -> Network:
    """What finds the boxes. Imported when it is needed: torch takes seconds, and half a gigabyte of memory."""
    if prefers_onnx(options):
        network = _onnx_class(options).open(name, options, threads=threads)
        if network is not None:
            return network
        if options.runtime == "onnx":
            raise ConfigError(f"{name}: cannot be run in ONNX Runtime; leave runtime out")
    from mast.inference.torch_network import TorchNetwork

    return TorchNetwork(name, options, threads=threads)


def _onnx_class(options: DetectOptions) -> type[OnnxNetwork]:
    if options.embed:
        from mast.inference.onnx_embedding import EmbeddingOnnxNetwork

        return EmbeddingOnnxNetwork
    from mast.inference.onnx_network import OnnxNetwork

    return OnnxNetwork


def prefers_onnx(options: DetectOptions) -> bool:
    """Whether ONNX Runtime is requested, or faster here: on a CPU that does not multiply bfloat16 itself."""
    if options.runtime is not None:
        return options.runtime == "onnx"
    if options.compile or options.device not in (None, "cpu"):
        return False
    if options.device is None and might_have_gpu():
        from mast.device import find_device

        if find_device().type != "cpu":
            return False
    if might_have_bfloat16():
        from mast.device import find_device, has_bfloat16

        return not has_bfloat16(find_device("cpu"))
    return True


def _list_recordings(path: Path, root: str | Path | None) -> tuple[list[Path], str | Path | None]:
    """A recording, or all those in a folder, and what they are named relative to."""
    if not path.is_dir():
        return [path], root
    if not (found := find_recordings(path)):
        raise no_recordings_error(path)
    return found, path if root is None else root


def _source(path: Path, root: str | Path | None) -> Source:
    if root is None:
        return Source(path, path.name)
    try:
        return Source(path, path.absolute().relative_to(Path(root).absolute()).as_posix(), Path(root))
    except ValueError:
        raise AudioError(f"{path}: is not in {root}; give the folder that holds all recordings") from None


def _describe_damage(info: AudioInfo, end_s: float) -> str:
    slack_s = _MP3_SLACK_S if info.format == "MP3" else 0.01
    if end_s < info.duration_s - slack_s:
        return (
            f"damaged, the sound ends at {end_s:.2f} s of {info.duration_s:.2f} s; everything before that was "
            "searched"
        )
    return (
        f"cut short, the header promises more than {end_s:.2f} s; the sound that is there was searched"
        if info.truncated
        else ""
    )
