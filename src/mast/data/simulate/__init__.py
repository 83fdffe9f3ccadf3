"""Soundscapes with known truth: a world of species, sites and days, and the boxes a person would draw.

:func:`mast.data.simulate.dataset.simulate_dataset` writes files. A single chunk:

>>> import numpy as np
>>> from mast.data.simulate.soundscape import simulate_chunk
>>> from mast.data.simulate.world import World
>>> world = World(seed=1)
>>> scene = simulate_chunk(np.random.default_rng(0), world.site(0), world.day(0), hour=6.0)
>>> scene.waveform.shape, scene.waveform.dtype.name
((163840,), 'float32')
"""
