"""Simulated chunks without end, for training."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from mast.data.simulate.boxes import BoxStyle
from mast.data.simulate.dataset import play
from mast.data.simulate.material import Material
from mast.data.simulate.scene import simulate_chunk
from mast.data.simulate.world import World
from mast.grid import FrontEnd

WORLD_RATE = (
    16_000  # the world is always made in the paper's band; another front end hears it sped up or slowed down
)
_GROUP, _CHUNK = 23, 29  # first words of seeds


class SimulatedStream(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    """An endless stream of ``(waveform (chunk_samples,), boxes (M, 4))``, boxes in seconds and hertz.

    Every ``chunks_per_place`` chunks the world is drawn anew: other species, another site. Which chunks exist
    depends on the seed alone; worker processes and shards take places in turn.

    Args:
        seed: of everything.
        front_end: sets chunk length and sample rate. A band other than the paper's is simulated as in the
            paper's and played at another speed, so that it looks the same on the front end's own grid.
        style: how boxes are drawn; a pair draws each place's annotator between the two.
        density: factor on the number of animals.
        n_species: in each world.
        chunks_per_place: more are cheaper, fewer are more varied.
        material: real calls and backgrounds at 16 kHz, used in a ``material_share`` of places.
        material_share: 0–1.
        shard: (which, of how many), for several machines.
        first_place: start here instead of at the beginning, to go on where a run stopped.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        front_end: FrontEnd | None = None,
        style: BoxStyle | tuple[BoxStyle, BoxStyle] | None = None,
        density: float = 1.5,
        n_species: int = 16,
        chunks_per_place: int = 64,
        material: Material | None = None,
        material_share: float = 0.5,
        shard: tuple[int, int] = (0, 1),
        first_place: int = 0,
    ) -> None:
        self.seed = seed
        self.front_end = front_end or FrontEnd()
        self.style = style or BoxStyle()
        self.density = density
        self.n_species = n_species
        self.chunks_per_place = chunks_per_place
        self.material = material
        self.material_share = material_share
        self.shard = shard
        self.first_place = first_place

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        worker = get_worker_info()
        turn, turns = (worker.id, worker.num_workers) if worker else (0, 1)
        which, shards = self.shard
        place = self.first_place + which * turns + turn
        while True:
            yield from self.place(place)
            place += shards * turns

    def place(self, number: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The chunks of one place."""
        rng = np.random.default_rng([self.seed, _GROUP, number])
        real = self.material if rng.random() < self.material_share else None
        world = World(int(rng.integers(1 << 31)), self.n_species, WORLD_RATE, real, loop_s=14.0)
        site = world.site(0)
        style = (
            self.style
            if isinstance(self.style, BoxStyle)
            else self.style[0].between(self.style[1], rng.random())
        )
        tape = self.front_end.sample_rate / WORLD_RATE
        duration_s = self.front_end.chunk_samples / WORLD_RATE
        for k in range(self.chunks_per_place):
            chunk = np.random.default_rng([self.seed, _CHUNK, number, k])
            day, hour = world.day(int(chunk.integers(12))), chunk.uniform(0.0, 24.0)
            scene = simulate_chunk(
                chunk, site, day, hour, duration_s=duration_s, style=style, density=self.density
            )
            boxes = np.array([play(event, tape).row for event in scene.events], dtype=np.float32).reshape(
                -1, 4
            )
            yield torch.from_numpy(scene.waveform), torch.from_numpy(boxes)
