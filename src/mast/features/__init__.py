"""From sound to what the model sees: Kaldi log-mel, its normalisation, and a cache of it on disk."""

from mast.features.cache import FeatureCache, RecordingFeatures, content_digest
from mast.features.logmel import FEATURE_VERSION, LogMel, mel_bank
from mast.features.normalisation import Normalisation, RunningStats, quiet_level, running_stats

__all__ = [
    "FEATURE_VERSION",
    "FeatureCache",
    "LogMel",
    "Normalisation",
    "RecordingFeatures",
    "RunningStats",
    "content_digest",
    "mel_bank",
    "quiet_level",
    "running_stats",
]
