"""soundscape-bench: fixed, large enough, and without a minute used twice."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
import typer
from typer.testing import CliRunner

from mast.cli.simulate import simulate
from mast.data import load_dataset, soundscape_bench
from mast.data.simulate.dataset import PlannedRecording, Simulation
from mast.data.simulate.material import ClipSpecies
from mast.data.simulate.soundscape import Soundscape
from mast.data.simulate.visible import Event
from mast.data.simulate.world import World
from mast.data.soundscape_bench import (
    BACKGROUND_LABELS,
    CALL_LABELS,
    TEST_PARTS,
    SoundscapeBench,
    make_soundscape_bench,
    plan_part,
)
from mast.errors import ConfigError

SMALL = SoundscapeBench(
    train=2,
    val=1,
    unlabelled=1,
    test=1,
    test_step=1,
    most_test=9,
    test_boxes=4,
    duration_s=3.0,
    density=8.0,
    home=0,
)
TINY = SoundscapeBench(train=1, val=1, unlabelled=1, test=1, test_boxes=0, duration_s=0.5, home=0)
PARTS = ("train", "val", *TEST_PARTS, "unlabelled")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bench") / "bench"
    make_soundscape_bench(out, SMALL)
    return out


def test_the_benchmark_itself_is_fixed() -> None:
    bench = SoundscapeBench()
    sizes = [bench.train, bench.val, bench.unlabelled, bench.test, bench.test_step, bench.test_boxes]
    assert sizes == [48, 12, 6_000, 40, 10, 2_000]
    assert bench.simulation.species == 60
    assert (bench.simulation.sites, bench.simulation.days) == (8, 6)


def test_every_part_is_where_it_should_be_and_no_minute_is_used_twice() -> None:
    bench = SoundscapeBench(seed=3, home=2)
    planned = {part: plan_part(bench, part, 200) for part in ("temporal_ood", "site_ood")}
    planned |= {"train": plan_part(bench, "train", bench.train), "val": plan_part(bench, "val", bench.val)}
    planned |= {"test": plan_part(bench, "test", 200), "unlabelled": plan_part(bench, "unlabelled", 210)}
    everything = [one for own in planned.values() for one in own]
    assert len({one.file for one in everything}) == len(everything)
    assert len({one.number for one in everything}) == len(everything)
    for part in ("train", "val", "test"):
        assert {(one.site, one.day) for one in planned[part]} == {(2, 0)}
    assert {(one.site, one.day) for one in planned["temporal_ood"]} == {(2, day) for day in range(1, 6)}
    assert {one.site for one in planned["site_ood"]} == set(range(8)) - {2}
    assert {one.day for one in planned["site_ood"]} == set(range(6))
    unlabelled = {(one.site, one.day) for one in planned["unlabelled"]}
    assert unlabelled == {(site, day) for site in range(6) for day in range(6)} - {(2, 0)}


@pytest.mark.parametrize("part", PARTS)
def test_a_longer_plan_begins_with_the_shorter_one(part: str) -> None:
    assert plan_part(SMALL, part, 9)[:4] == plan_part(SMALL, part, 4)


def test_it_is_two_folders_as_a_user_would_have_them(written: Path) -> None:
    labelled, unlabelled = load_dataset(written / "labelled"), load_dataset(written / "unlabelled")
    assert set(labelled.recordings["split"]) == {"train", "val", *TEST_PARTS}
    assert len(labelled.reviewed_recordings) == len(labelled)
    assert len(unlabelled) == 1
    assert unlabelled.reviewed_recordings == []
    assert set(unlabelled.recordings["split"]) == {""}
    for name in (*labelled.recordings["file"], *unlabelled.recordings["file"]):
        where = labelled if name in set(labelled.recordings["file"]) else unlabelled
        assert sf.info(where.path(name)).duration == pytest.approx(3.0)
    assert (written / "unlabelled_truth.csv").is_file()


def test_test_parts_grow_until_they_have_their_boxes(written: Path) -> None:
    labelled = load_dataset(written / "labelled")
    split = dict(zip(labelled.recordings["file"], labelled.recordings["split"], strict=True))
    boxes = labelled.annotations.events["recording"].map(split).value_counts()
    sizes = json.loads((written / "benchmark.json").read_text())["found"]["parts"]
    for part in TEST_PARTS:
        assert boxes[part] == sizes[part]["boxes"] >= 4
        own = labelled.recordings[labelled.recordings["split"] == part]["file"]
        if len(own) > SMALL.test:  # no longer than it had to be
            before = labelled.annotations.events["recording"].isin(own[:-1]).sum()
            assert before < 4


def test_the_result_depends_on_the_seed_alone_and_is_not_made_twice(tmp_path: Path) -> None:
    for workers in (1, 2):
        make_soundscape_bench(tmp_path / str(workers), TINY, workers=workers)
    one, two = ({p.relative_to(d): p for p in d.rglob("*.*")} for d in (tmp_path / "1", tmp_path / "2"))
    assert one.keys() == two.keys()
    assert all(one[name].read_bytes() == two[name].read_bytes() for name in one)
    made: list[int] = []
    sizes = make_soundscape_bench(tmp_path / "1", TINY, on_recording=lambda: made.append(1))
    assert made == []
    assert sizes["train"].recordings == 1


def test_an_unfinished_benchmark_is_rebuilt_and_other_files_are_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "bench"
    left = out / "labelled" / "audio" / "left.flac"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"")
    with pytest.raises(ConfigError, match="holds files that are not this benchmark"):
        make_soundscape_bench(out, TINY)
    assert left.exists()
    (out / "benchmark.json").write_text('{"found": null}')
    make_soundscape_bench(out, TINY)
    assert not left.exists()
    assert len(load_dataset(out / "labelled")) == 5


def test_too_few_boxes_are_reported(tmp_path: Path) -> None:
    poor = SMALL.model_copy(update={"most_test": 2, "test_boxes": 100_000})
    with pytest.raises(ConfigError, match=r"test has only .* boxes after 2 recordings, expected 100000"):
        make_soundscape_bench(tmp_path / "bench", poor)


def test_a_pool_is_filtered_by_its_labels(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = []
    for label in ("crow", "AMRE", "Frog", "rain", "Wind", "Speaking"):
        for number in range(3):
            sf.write(tmp_path / f"{label}{number}.wav", rng.normal(0, 0.1, 16_000), 16_000)
            rows.append({"file": f"{label}{number}.wav", "source": "x", "label": label})
    sf.write(tmp_path / "hen.wav", rng.normal(0, 0.1, 16_000), 16_000)
    rows.append({"file": "hen.wav", "source": "x", "label": "hen"})
    bench = SoundscapeBench(calls=tmp_path, backgrounds=tmp_path)
    assert bench.simulation.call_labels == ()  # no table: everything is a call
    pd.DataFrame(rows).to_csv(tmp_path / "clips.csv", index=False)
    bench = SoundscapeBench(calls=tmp_path, backgrounds=tmp_path)
    world = bench.simulation.world
    assert [caller.label for caller in world.species[30:]] == ["AMRE", "crow"]
    assert world.material is not None
    assert world.material.backgrounds is not None
    assert [path.stem for path in world.material.backgrounds.paths] == ["rain0"]
    assert not set(CALL_LABELS) & set(BACKGROUND_LABELS)


def test_nothing_real_is_in_two_of_learning_validation_and_test(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    counts = {"crow": 17, "frog": 4, "dog": 3, "hen": 1, "rain": 24}
    for label, count in counts.items():
        (tmp_path / label).mkdir()
        for number in range(count):
            sf.write(tmp_path / label / f"{number:02}.wav", rng.normal(0, 0.1, 16_000), 16_000)
    bench = SoundscapeBench(calls=tmp_path, backgrounds=tmp_path / "rain", home=0)
    worlds = [bench.simulation_of(share).world for share in ("learning", "validation", "test")]
    labels = [[caller.label for caller in world.species] for world in worlds]
    assert labels[0] == labels[1] == labels[2]
    assert "hen" not in labels[0]  # one call cannot be divided
    for label, sizes in {"crow": (7, 2, 8), "frog": (1, 1, 2), "dog": (1, 1, 1), "rain": (9, 3, 12)}.items():
        own = [set(_paths(world, label)) for world in worlds]
        assert tuple(map(len, own)) == sizes
        assert len(set.union(*own)) == sum(sizes)
    for number in range(3):  # the same places, with other recordings of rain
        sites = [world.site(number) for world in worlds]
        heard = [set(site.backgrounds.paths) for site in sites if site.backgrounds is not None]
        assert len(heard) == 3
        assert len(set.union(*heard)) == sum(map(len, heard))
        assert (
            len({(site.full_scale_db, site.self_noise_db, tuple(site.levels_db.items())) for site in sites})
            == 1
        )


def _paths(world: World, label: str) -> tuple[Path, ...]:
    """The real calls of one label."""
    (caller,) = (caller for caller in world.species if caller.label == label)
    assert isinstance(caller, ClipSpecies)
    return caller.paths


def test_of_two_recordings_one_is_for_tests_and_the_other_for_all_else(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / "crow").mkdir(exist_ok=True)
        sf.write(
            tmp_path / "crow" / f"{number}.wav", np.random.default_rng(number).normal(0, 0.1, 16_000), 16_000
        )
    bench = SoundscapeBench(calls=tmp_path, home=0)
    own = [_paths(bench.simulation_of(share).world, "crow") for share in ("learning", "validation", "test")]
    assert [[path.stem for path in paths] for paths in own] == [["0"], ["0"], ["1"]]


def test_each_part_is_made_of_the_share_it_should_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, str | None] = {}

    @contextmanager
    def recording_writer(simulation: Simulation, workers: int) -> Iterator[object]:
        def simulate(
            tasks: Iterable[tuple[PlannedRecording, Path]],
        ) -> Iterator[tuple[list[Event], list[Event]]]:
            for planned, _ in tasks:
                made[planned.split] = simulation.share
                yield [], []

        yield simulate

    monkeypatch.setattr(soundscape_bench, "recording_writer", recording_writer)
    make_soundscape_bench(tmp_path / "bench", TINY)
    assert made == {
        "train": "learning",
        "unlabelled": "learning",
        "val": "validation",
        **dict.fromkeys(TEST_PARTS, "test"),
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--benchmark", "other"], "no such benchmark; there is soundscape-bench"),
        (["--benchmark", "soundscape-bench", "--density", "2"], "--density is fixed by the benchmark"),
        (["--benchmark", "soundscape-bench", "--call-labels", "x"], "--call-labels is fixed"),
        (["--unlabelled-minutes", "60"], "is for the benchmark; give --benchmark soundscape-bench"),
    ],
)
def test_options_that_would_change_the_benchmark(tmp_path: Path, options: list[str], message: str) -> None:
    app = typer.Typer(rich_markup_mode=None)
    app.command()(simulate)
    result = CliRunner().invoke(app, [str(tmp_path / "out"), *options])
    assert isinstance(result.exception, ConfigError)
    assert message in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_home_is_the_site_with_the_usual_number_of_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    per_recording = [0, 200, 3, 17, 60, 1, 40, 9]  # of 20 s; 17 is 51 a minute

    def listen(_: object, planned: PlannedRecording) -> Soundscape:
        few = planned.site == 6 and planned.day > 0  # busy on its first day alone
        return Soundscape(np.zeros(1, np.float32), [None] * (0 if few else per_recording[planned.site]), [])  # type: ignore[list-item]

    monkeypatch.setattr("mast.data.soundscape_bench.simulate_recording", listen)
    assert SoundscapeBench().places == (3, 0, 1, 2, 4, 5, 6, 7)
