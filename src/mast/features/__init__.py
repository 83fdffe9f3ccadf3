"""From sound to what the model sees: Kaldi log-mel and its normalisation."""

from mast.features.logmel import LogMel, mel_bank
from mast.features.normalisation import Normalisation, RunningStats, quiet_level, running_stats

__all__ = [
    "LogMel",
    "Normalisation",
    "RunningStats",
    "mel_bank",
    "quiet_level",
    "running_stats",
]
