"""mast: detection of animal sounds as time–frequency boxes (Masked Audio pretraining and Self-Training)."""

__version__ = "0.1.0"
