"""Training: one visible loop, three recipes.

| file | holds |
|---|---|
| ``recipe.py`` | what can be set, with the paper's values as defaults; presets list differences only |
| ``schedule.py`` | warm-up + cosine, gradual unfreezing |
| ``groups.py`` | component-wise learning rates, what is frozen |
| ``ema.py`` | the moving average that is evaluated and shipped |
| ``batches.py`` | chunks in a seeded order → spectrograms on the device |
| ``state.py`` | atomic snapshots of a run; resuming continues exactly |
| ``loop.py`` | the loop |
| ``pretraining.py``, ``detector_training.py`` | masked pretraining; the box detector |

Everything random at step *n* is a function of (seed, *n*), so a resumed run needs no generator state.
"""
