"""From sound to what the model sees: Kaldi log-mel, and the statistics it is normalised by."""

from mast.features.logmel import LogMel, mel_bank
from mast.features.statistics import RunningStats, running_stats

__all__ = ["LogMel", "RunningStats", "mel_bank", "running_stats"]
