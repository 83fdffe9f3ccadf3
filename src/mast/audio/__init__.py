"""Any field recording in constant memory: probe, read, stream, resample, cut into windows, date and place."""

from mast.audio.clock import Metadata, metadata
from mast.audio.probe import AUDIO_SUFFIXES, AudioInfo, find_recordings, probe
from mast.audio.stream import DamagedAudioWarning, read, stream
from mast.audio.windows import Window, Windows, centre_and_pad, window_batches, windows

__all__ = [
    "AUDIO_SUFFIXES",
    "AudioInfo",
    "DamagedAudioWarning",
    "Metadata",
    "Window",
    "Windows",
    "centre_and_pad",
    "find_recordings",
    "metadata",
    "probe",
    "read",
    "stream",
    "window_batches",
    "windows",
]
