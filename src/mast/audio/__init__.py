"""Any field recording in constant memory: probe, read, stream, resample, cut into windows, date and place."""

from mast.audio.clock import Metadata, metadata
from mast.audio.describe import as_audio_errors, describe
from mast.audio.probe import AUDIO_SUFFIXES, AudioInfo, Unlisted, find_recordings, no_recordings_error, probe
from mast.audio.stream import DamagedAudioWarning, read, stream
from mast.audio.text_names import names_on_disk, text_names
from mast.audio.windows import centre_and_pad, spread_hop, window_batches, windows

__all__ = [
    "AUDIO_SUFFIXES",
    "AudioInfo",
    "DamagedAudioWarning",
    "Metadata",
    "Unlisted",
    "as_audio_errors",
    "centre_and_pad",
    "describe",
    "find_recordings",
    "metadata",
    "names_on_disk",
    "no_recordings_error",
    "probe",
    "read",
    "spread_hop",
    "stream",
    "text_names",
    "window_batches",
    "windows",
]
