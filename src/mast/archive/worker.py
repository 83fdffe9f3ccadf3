"""What a worker receives and what it answers: the same for a process on this machine and an actor on a cluster."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from mast.detect_options import DEFAULT_OPTIONS, DetectOptions
from mast.errors import MastError, machine_fault
from mast.hardware import might_have_gpu
from mast.inference import Detector
from mast.inference.process_tuning import keep_freed_memory, tune_process
from mast.models.card import CARD, WEIGHTS
from mast.models.find import find_model


class DetectorFacts(NamedTuple):
    """What a results folder has to know about the detector that fills it."""

    settings: Mapping[str, str | float]
    operating_point: Mapping[str, object] | None
    sentence: str
    band_hz: tuple[float, float] = (0.0, 0.0)  # that is searched

    @classmethod
    def of(cls, detector: Detector) -> DetectorFacts:
        """Those of a loaded detector."""
        scores, front_end = detector.scores, detector.card.front_end
        band_hz = (front_end.low_hz, front_end.high_hz)
        return cls(detector.settings, scores.operating_point, scores.sentence, band_hz)


@dataclass(frozen=True)
class DetectorSpec:
    """A detector that can be sent to another process or machine and loaded there.

    Attributes:
        model: as :class:`mast.inference.Detector` takes it.
        options: how it searches.
        threads: of each worker on a CPU; by default, chosen for the machine.
        files: of the model's folder, for machines that do not see this one's disk.
    """

    model: str
    options: DetectOptions = DEFAULT_OPTIONS
    threads: int | None = None
    files: Mapping[str, bytes] | None = None

    def with_files(self) -> DetectorSpec:
        """A copy that contains the model's files.

        Raises:
            MastError: there is no such model here.
        """
        folder = find_model(self.model)
        # the weights hold a copy of the card
        names = (name for name in (CARD, WEIGHTS) if (folder / name).is_file())
        return replace(self, files={name: (folder / name).read_bytes() for name in names})

    def load(self, number: int = 0) -> Detector:
        """The detector, on this machine; the process is then tuned to search (:mod:`mast.inference.process_tuning`).

        Args:
            number: of the worker; the workers on a machine share its GPUs.

        Raises:
            MastError: it cannot be loaded; also where the machine refuses, so that every kind of worker reports it.
        """
        keep_freed_memory()  # loading takes and frees the same megabytes several times
        try:
            detector = self._detector(self._with_gpu(number))
        except Exception as error:
            if (fault := machine_fault(error)) is None:
                raise
            raise MastError(fault) from error
        tune_process()
        return detector

    def _with_gpu(self, number: int) -> DetectOptions:
        """The options with one of this machine's GPUs, where it has any and none is named."""
        if self.options.device not in (None, "cuda") or not might_have_gpu():
            return self.options
        from mast.device import gpu_of_worker

        gpu = gpu_of_worker(number)
        return self.options if gpu is None else self.options.model_copy(update={"device": gpu})

    def _detector(self, options: DetectOptions) -> Detector:
        if self.files is None:
            return Detector(self.model, options, threads=self.threads)
        with tempfile.TemporaryDirectory(prefix="mast-model-") as temporary:
            for name, content in self.files.items():
                Path(temporary, name).write_bytes(content)
            return Detector(temporary, options, threads=self.threads)
