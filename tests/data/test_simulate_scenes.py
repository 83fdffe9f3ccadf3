"""Species, sites, days and the scenes made of them."""

from __future__ import annotations

import numpy as np
import pytest

from mast.data.simulate.background import background_levels, draw_tracks, read_tracks
from mast.data.simulate.calls import MAX_PHRASE_S, render_phrase
from mast.data.simulate.confounders import CONFOUNDERS
from mast.data.simulate.noise import COMPONENTS, coloured
from mast.data.simulate.soundscape import render, simulate_chunk
from mast.data.simulate.space import Acoustics, draw_echo
from mast.data.simulate.species import CURVE_POINTS, FAUNAS, Species, draw_species, families_for
from mast.data.simulate.visible import BoxStyle, PowerGrid
from mast.data.simulate.world import World
from mast.errors import ConfigError

RATE = 16_000


@pytest.fixture(scope="module")
def world() -> World:
    return World(seed=3, n_species=22, loop_s=5.0)


def species_of(family: str, seed: int = 0, rate: int = RATE) -> Species:
    return draw_species(np.random.default_rng(seed), 0, family, rate)


@pytest.mark.parametrize(
    ("rate", "family"), [(rate, family) for rate in (4_000, RATE, 48_000) for family in families_for(rate)]
)
def test_every_family_calls_within_its_band(rate: int, family: str) -> None:
    species = species_of(family, 1, rate)
    phrase = render_phrase(np.random.default_rng(2), species, octaves=0.0)
    assert phrase.dtype == np.float32
    assert np.isfinite(phrase).all()
    assert np.abs(phrase).max() == pytest.approx(1.0)
    assert len(phrase) <= (MAX_PHRASE_S + 3.0) * rate
    spectrum = np.abs(np.fft.rfft(phrase)) ** 2
    hz = np.fft.rfftfreq(len(phrase), 1 / rate)
    low, high = species.band_hz
    assert spectrum[(hz > 0.7 * low) & (hz < 1.4 * high)].sum() > 0.9 * spectrum.sum()


def test_a_species_is_a_distribution_around_itself() -> None:
    """Two calls of a species differ; another species differs more (centre of gravity of the spectrum)."""

    def centre(species: Species, seed: int) -> float:
        phrase = render_phrase(np.random.default_rng(seed), species)
        power = np.abs(np.fft.rfft(phrase)) ** 2
        return float(np.log2((power * np.fft.rfftfreq(len(phrase), 1 / RATE)).sum() / power.sum()))

    centres = np.array([[centre(species_of("whistle", k), seed) for seed in range(6)] for k in range(8)])
    within, between = centres.std(axis=1).mean(), centres.mean(axis=1).std()
    assert 0 < within < 0.5 * between
    a, b = (render_phrase(np.random.default_rng(seed), species_of("whistle")) for seed in (0, 1))
    assert len(a) != len(b) or not np.array_equal(a, b)


def test_a_motif_is_sung_again_and_again() -> None:
    """Its notes come in the same order, with the pause after the last."""
    singers = [species_of("motif", seed) for seed in range(12)]
    assert {one.song for one in singers} == {True, False}
    assert "motif" not in families_for(RATE)  # only worlds that ask for it have it
    for one in singers:
        assert one.pause_s is not None
        assert 2 <= len(one.syllables) <= 4
        assert 0.2 <= one.pause_s <= 0.8 or (one.song and one.pause_s <= 0.25)
        phrase = render_phrase(np.random.default_rng(5), one)
        assert len(phrase) <= (MAX_PHRASE_S + 2.0) * RATE


def test_a_world_without_motifs_is_as_it_ever_was() -> None:
    plain, some, all_sing = (World(seed=4, n_species=30, motifs=share) for share in (0.0, 0.4, 1.0))
    families = [[one.label.split("-")[0] for one in world.species] for world in (plain, some, all_sing)]
    assert "motif" not in families[0]
    assert 4 <= families[1].count("motif") <= 20
    assert set(families[2]) == {"motif"}
    same = [a for a, b in zip(plain.species, some.species, strict=True) if a == b]
    assert len(same) == 30 - families[1].count("motif")


def test_a_fauna_calls_alone_and_elsewhere_not_at_all() -> None:
    for fauna, families in FAUNAS.items():
        assert {one.family for one in World(seed=1, fauna=fauna).species if isinstance(one, Species)} == set(
            families
        )
        assert not set(families) & set(families_for(16_000))


def test_bats_sweep_down_and_the_strongest_harmonic_may_be_the_second() -> None:
    for k in range(20):
        sweep = draw_species(np.random.default_rng(k), k, "bat_sweep", 16_000)
        assert all(np.all(np.diff(shape.contour) < 0) for shape in sweep.syllables)
    constant = [draw_species(np.random.default_rng(k), k, "bat_constant", 16_000) for k in range(40)]
    second = [int(np.argmax(one.harmonics)) == 1 for one in constant if len(one.harmonics) > 1]
    assert np.mean(second) > 0.8  # uneven voices move it now and then


def test_activity_follows_the_clock_round_midnight() -> None:
    species = species_of("frog", 5)
    hours = np.arange(0, 24, 0.25)
    activity = np.array([species.activity(h) for h in hours])
    assert activity.max() > 5 * activity.min()
    assert species.activity(0.0) == pytest.approx(species.activity(24.0))


def test_distance_weakens_and_dulls() -> None:
    acoustics = Acoustics(
        RATE, 0.02, draw_echo(np.random.default_rng(0), RATE, decay_s=0.5), 100.0, np.zeros(CURVE_POINTS)
    )
    flat = np.zeros(CURVE_POINTS, dtype=np.float32)
    noise = np.random.default_rng(1).standard_normal(RATE).astype(np.float32)

    def bands(distance: float) -> tuple[float, float]:
        power = np.abs(np.fft.rfft(acoustics.transmit(noise, distance, 0.0, flat))) ** 2
        half = len(power) // 2
        return float(10 * np.log10(power[:half].sum())), float(10 * np.log10(power[half:].sum()))

    near, far = bands(10.0), bands(100.0)
    assert near[0] - far[0] > 19  # spreading alone is 20 dB; echoes give a little back
    assert (near[1] - far[1]) > (near[0] - far[0]) + 5
    assert len(acoustics.transmit(noise, 10.0, 0.0, flat)) == len(noise) + len(acoustics.echo)


def test_transmission_equals_a_slow_convolution() -> None:
    echo = draw_echo(np.random.default_rng(0), RATE, decay_s=0.3)
    acoustics = Acoustics(RATE, 0.0, echo, 100.0, np.zeros(CURVE_POINTS))
    dry = np.random.default_rng(1).standard_normal(500).astype(np.float32)
    heard = acoustics.transmit(dry, 50.0, 0.0, np.zeros(CURVE_POINTS, dtype=np.float32))
    slow = np.concatenate([dry, np.zeros(len(echo))])
    slow[: len(dry) + len(echo) - 1] += 0.5 * np.convolve(dry, echo)
    np.testing.assert_allclose(heard, slow / 50.0, atol=1e-5)


@pytest.mark.parametrize("component", COMPONENTS)
def test_loops_have_unit_power_and_close(component: str) -> None:
    loop = COMPONENTS[component](np.random.default_rng(0), 1 << 16, RATE)
    assert loop.dtype == np.float32
    assert np.mean(np.square(loop)) == pytest.approx(1.0, rel=1e-3)
    seam = abs(float(loop[0]) - float(loop[-1]))
    assert seam <= 3 * np.quantile(np.abs(np.diff(loop)), 0.999)


@pytest.mark.parametrize("kind", CONFOUNDERS)
def test_confounders_are_sound(kind: str, world: World) -> None:
    sound = world.site(0).confounder(kind, 1)
    assert np.isfinite(sound).all()
    assert np.abs(sound).max() == pytest.approx(1.0)


def test_coloured_noise_has_the_colour_asked_for() -> None:
    curve = np.where(np.arange(CURVE_POINTS) < 128, 0.0, -40.0)
    power = np.abs(np.fft.rfft(coloured(np.random.default_rng(0), curve, 1 << 15))) ** 2
    ratio = 10 * np.log10(power[: len(power) // 2 - 200].mean() / power[len(power) // 2 + 200 :].mean())
    assert ratio == pytest.approx(40.0, abs=1.0)


def test_the_same_seed_is_the_same_world_in_any_order() -> None:
    one, two = World(seed=5, n_species=6, loop_s=5.0), World(seed=5, n_species=6, loop_s=5.0)
    two.site(2).loop("ambient")
    two.day(4)
    a = simulate_chunk(np.random.default_rng(1), one.site(1), one.day(2), 6.0)
    b = simulate_chunk(np.random.default_rng(1), two.site(1), two.day(2), 6.0)
    assert np.array_equal(a.waveform, b.waveform)
    assert a.events == b.events
    other = World(seed=6, n_species=6, loop_s=5.0)
    assert not np.array_equal(
        a.waveform, simulate_chunk(np.random.default_rng(1), other.site(1), other.day(2), 6.0)[0]
    )


def test_chunks_are_sound_with_boxes_inside(world: World) -> None:
    found = 0
    for k in range(12):
        scene = simulate_chunk(
            np.random.default_rng(k), world.site(k % 2), world.day(k % 3), 6.0, density=1.5
        )
        assert scene.waveform.shape == (163_840,)
        assert scene.waveform.dtype == np.float32
        assert np.abs(scene.waveform).max() <= 1.0
        assert scene.hidden == []
        for event in scene.events:
            assert 0 <= event.start_s < event.end_s <= 10.24
            assert 0 <= event.low_hz < event.high_hz <= RATE / 2
            assert event.distance_m > 0
            assert np.isfinite(event.snr_db)
        found += len(scene.events)
    assert found > 12


def test_nobody_calls_at_density_zero_and_confounders_are_never_boxed(world: World) -> None:
    for k in range(6):
        scene = simulate_chunk(
            np.random.default_rng(k), world.site(0), world.day(k), 14.0, density=0.0, hidden=True
        )
        assert scene.events == []
        assert scene.hidden == []
        assert scene.waveform.std() > 0


def test_boxes_hold_the_sound(world: World) -> None:
    """In the mix itself, loud boxes are brighter inside than the same band just outside them in time."""
    grid = PowerGrid(RATE)
    brighter = []
    for k in range(8):
        scene = simulate_chunk(np.random.default_rng([1, k]), world.site(k % 2), world.day(k % 3), 6.0)
        power = np.log(grid.power(scene.waveform) + 1e-14)
        for e in scene.events:
            f1, f2 = int(e.low_hz / grid.bin_hz), int(np.ceil(e.high_hz / grid.bin_hz)) + 1
            t1, t2 = (round((s * RATE - 120) / grid.hop) for s in (e.start_s, e.end_s))
            if e.snr_db > 10 and t2 - t1 > 5:
                brighter.append(power[t1:t2, f1:f2].mean() > np.median(power[:, f1:f2]))
    assert len(brighter) >= 10
    assert np.mean(brighter) > 0.9


def test_hiding_calls_changes_nothing_else(world: World) -> None:
    unseen = 0
    for k in range(6):
        plain, told = (
            simulate_chunk(
                np.random.default_rng(k), world.site(k), world.day(k), 6.0, duration_s=4.0, hidden=hidden
            )
            for hidden in (False, True)
        )
        assert np.array_equal(plain.waveform, told.waveform)
        assert plain.events == told.events
        unseen += len(told.hidden)
    assert unseen > 0


def test_pieces_join_without_a_seam(world: World) -> None:
    """A recording made in pieces has the same background as one made at once, and calls ring across."""
    kwargs = {"duration_s": 6.0, "style": BoxStyle(), "density": 1.0}
    whole = list(render(np.random.default_rng(8), world.site(0), world.day(0), 6.0, segment_s=60.0, **kwargs))
    pieces = list(render(np.random.default_rng(8), world.site(0), world.day(0), 6.0, segment_s=1.0, **kwargs))
    assert len(whole) == 1
    assert len(pieces) == 6
    joined = np.concatenate([piece.waveform for piece in pieces])
    assert len(joined) == 6 * RATE
    # a call may start one hop elsewhere only if rounding differs, which whole hops per piece exclude
    np.testing.assert_allclose(joined, whole[0].waveform, atol=2e-4)


def test_backgrounds_wrap_round_their_loops(world: World) -> None:
    site = world.site(0)
    tracks = draw_tracks(np.random.default_rng(0), site, world.day(0), 6.0, 40 * RATE)
    whole = read_tracks(tracks, 0, 40 * RATE)
    np.testing.assert_array_equal(read_tracks(tracks, 12_345, 30 * RATE), whole[12_345 : 12_345 + 30 * RATE])


def test_weather_and_hour_move_the_background(world: World) -> None:
    site = world.site(0)
    winds = [
        background_levels(np.random.default_rng(0), site, world.day(d), h)["wind"]
        for d in range(4)
        for h in (2, 14)
    ]
    assert np.ptp(winds) > 10


def mean_spectrum(waveform: np.ndarray) -> np.ndarray:
    return np.log(PowerGrid(RATE).power(waveform, every=4) + 1e-14).mean(axis=0)


def test_sites_differ_more_than_days() -> None:
    """The mean log spectrum alone tells sites apart; days at one site are closer to each other."""
    world = World(seed=11, n_species=22, loop_s=5.0)
    spectra = np.array(
        [
            [
                mean_spectrum(
                    simulate_chunk(
                        np.random.default_rng([s, d]), world.site(s), world.day(d), 9.0, duration_s=4.0
                    )[0]
                )
                for d in range(4)
            ]
            for s in range(4)
        ]
    )  # (sites, days, bins)
    spectra -= spectra.mean(axis=2, keepdims=True)  # gain alone would be too easy
    between_days = spectra.std(axis=1).mean()
    between_sites = spectra.mean(axis=1).std(axis=0).mean()
    assert between_days > 0.05
    assert between_sites > 1.2 * between_days
    flat = spectra.reshape(16, -1)
    apart = np.linalg.norm(flat[:, None] - flat[None], axis=2) + np.eye(16) * 1e9
    assert np.mean(apart.argmin(axis=1) // 4 == np.arange(16) // 4) >= 0.75


def test_nobody_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="there are no species"):
        _ = World(n_species=0).species
    with pytest.raises(
        ConfigError, match=r"too high for a sample rate of 100 Hz .* expected at least 227 Hz"
    ):
        _ = World(sample_rate=100).species
    with pytest.raises(ConfigError, match="expected at least 2544 Hz, times the tape speed"):
        _ = World(sample_rate=2_000, fauna="bats").species
    assert World(sample_rate=2_544, fauna="bats").species
