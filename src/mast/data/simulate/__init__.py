"""Soundscapes with known truth: a world of species, sites and days, and the boxes a person would draw.

Files: :func:`simulate_dataset`. One chunk: :func:`simulate_chunk`.

>>> import numpy as np
>>> world = World(seed=1)
>>> scene = simulate_chunk(np.random.default_rng(0), world.site(0), world.day(0), hour=6.0)
>>> scene.waveform.shape, scene.waveform.dtype.name
((163840,), 'float32')
"""

from mast.data.simulate.dataset import Simulation, plan_recordings, simulate_dataset, simulate_recording
from mast.data.simulate.material import ClipSpecies, Material, load_material
from mast.data.simulate.soundscape import Soundscape, simulate_chunk
from mast.data.simulate.species import FAMILIES, Species
from mast.data.simulate.visible import BoxStyle, Event
from mast.data.simulate.world import Day, Site, World

__all__ = [
    "FAMILIES",
    "BoxStyle",
    "ClipSpecies",
    "Day",
    "Event",
    "Material",
    "Simulation",
    "Site",
    "Soundscape",
    "Species",
    "World",
    "load_material",
    "plan_recordings",
    "simulate_chunk",
    "simulate_dataset",
    "simulate_recording",
]
