from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pandas as pd
import pytest
import torch
from toy_preset import toy_preset
from toy_recipe import use_smaller_models
from typer.testing import CliRunner

from mast.cli.main import app
from mast.data.recordings import load_dataset
from mast.detect_options import DetectOptions
from mast.errors import MastError
from mast.evaluation.part_tables import PartTables
from mast.grid import FrontEnd
from mast.inference import Detector, Source
from mast.models.architecture import MaeConfig
from mast.models.card import load_card
from mast.models.find import find_model
from mast.runs import Reporter
from mast.training.chosen_chunks import labelled_chunks
from mast.training.recipe import Recipe
from mast_studies import runner as module
from mast_studies import training_runs
from mast_studies.command import _choose_split
from mast_studies.presets import load_preset
from mast_studies.systems import FITTED, FROM_SCRATCH, SCRATCH, SCRATCH_ST, Budget, System

PRESET = f"""{toy_preset(pretrain_chunks=48)}
[selftrain]
threshold = 0.001
max_chunks = 16

[selftrain.stage1]
batch_size = 8
epochs = 1
score_threshold = 0.001

[selftrain.stage2]
batch_size = 8
epochs = 1
score_threshold = 0.001
"""


@pytest.fixture(scope="module", autouse=True)
def smaller_models() -> Iterator[None]:
    """What a study trains, keeps and shares does not depend on the size."""
    with pytest.MonkeyPatch.context() as patch:
        use_smaller_models(patch)
        yield


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory, tones: Path) -> Path:
    """Two systems of the pipeline ablation, trained and collected."""
    root = tmp_path_factory.mktemp("experiment")
    (root / "toy.toml").write_text(PRESET)
    told = run(root, "pipeline", tones, "mast,scratch")
    assert told.exit_code == 0, told.output + str(told.exception)
    shutil.copytree(root / "out", root / "first")  # other tests collect into the same folder again
    return root


def run(root: Path, study: str, tones: Path, systems: str, *more: str):  # type: ignore[no-untyped-def]
    command = ["experiment", study, "--data", str(tones), "--unlabelled", str(tones), "--systems", systems]
    command += ["--work", str(root / "work"), "--out", str(root / "out"), "--preset", str(root / "toy.toml")]
    return CliRunner().invoke(app, [*command, "--name", "tones", "--quiet", *more])


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise AssertionError("trained again")

    for name in ("fit_detector", "pretrain", "self_train"):
        monkeypatch.setattr(training_runs, name, refuse)


def test_a_study_from_sound_to_files(work: Path) -> None:
    table = pd.read_csv(work / "first" / "pipeline.csv")
    assert list(table["system"]) == ["mast", "scratch"]
    assert set(table["part"]) == {"test"}
    assert (table["train_seconds"] > 0).all()
    spent = json.loads((work / "work/tones-0/found/mast/about.json").read_text())["seconds"]
    assert set(spent) == {"pretrain", "mast"}
    assert table["parameters"].iloc[0] > table["parameters"].iloc[1]  # the adapter and the projection
    text = (work / "first" / "pipeline.md").read_text()
    assert "− all pretraining" in text
    assert "run alike" not in text
    shared = [
        json.loads((work / f"work/tones-0/found/{name}/about.json").read_text())["shared"]
        for name in ("mast", "scratch")
    ]
    assert shared[0] == shared[1]
    assert shared[0]["train"]["lr"] == 0.0003
    assert (work / "first" / "pipeline.png").stat().st_size > 5_000


def test_what_tests_is_not_heard_in_pretraining(work: Path) -> None:
    found = work / "work" / "tones-0" / "found" / "mast"
    tested = set(pd.read_parquet(found / "test.heard.parquet")["recording"])
    heard = {Path(name).name for name in pd.read_csv(work / "work/tones-0/runs/sound/recordings.csv")["file"]}
    assert tested
    assert not tested & heard
    assert len(tested) + len(heard) == 8


@pytest.mark.usefixtures("no_training")
def test_another_study_does_not_train_what_is_there(work: Path, tones: Path) -> None:
    told = run(work, "adapters", tones, "mast")
    assert told.exit_code == 0, told.output + str(told.exception)
    assert list(pd.read_csv(work / "out" / "adapters.csv")["system"]) == ["mast"]


@pytest.mark.usefixtures("no_training")
def test_a_run_killed_before_measuring_only_measures(work: Path, tones: Path) -> None:
    found = work / "work" / "tones-0" / "found" / "scratch"
    before = pd.read_parquet(found / "test.found.parquet")
    shutil.rmtree(found)
    assert run(work, "pipeline", tones, "scratch").exit_code == 0
    pd.testing.assert_frame_equal(pd.read_parquet(found / "test.found.parquet"), before)


def test_self_training_starts_from_the_system_that_is_there(
    work: Path, tones: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_runs, "fit_detector", None)  # of a study; self-training has its own
    told = run(work, "curriculum", tones, "st_stage1")
    assert told.exit_code == 0, told.output + str(told.exception)
    table = pd.read_csv(work / "out" / "curriculum.csv")
    assert list(table["system"]) == ["mast", "st_stage1"]
    assert table["train_seconds"].iloc[1] > table["train_seconds"].iloc[0]


@pytest.mark.parametrize(("average", "stage"), [(False, "union"), (True, "averaged")])
def test_a_system_is_what_its_round_ends_in(
    average: bool, stage: str, tmp_path: Path, tones: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_runs.TrainingRuns, "_is_done", lambda self, run: True)
    show = Reporter(say=lambda text: None, bar=lambda what: nullcontext(lambda done, total, text: None))
    known = {system.name: system for system in (FROM_SCRATCH, SCRATCH_ST)}
    preset = load_preset("premise", {"selftrain.average": average})
    runner = module.Runner(
        training_runs.TrainingRuns(
            training_runs.StudyData("tones", tones), tmp_path, preset, known, seed=0, show=show
        )
    )
    run = tmp_path / "tones-0" / "runs" / "from_scratch.union2"
    assert runner.training_runs.model(SCRATCH_ST) == run / "round-2" / stage / "best"


def test_a_round_that_is_over_is_taken_before_the_run_ends(tmp_path: Path, tones: Path) -> None:
    show = Reporter(say=lambda text: None, bar=lambda what: nullcontext(lambda done, total, text: None))
    first = replace(SCRATCH_ST, name="first", self_training=replace(SCRATCH_ST.self_training, use_round=1))
    known = {system.name: system for system in (FROM_SCRATCH, SCRATCH_ST, first)}
    source = training_runs.StudyData(
        "tones", tones
    )  # nothing unlabelled: whatever has to be trained is refused
    runner = module.Runner(
        training_runs.TrainingRuns(source, tmp_path, load_preset("premise", {}), known, seed=0, show=show)
    )
    run = tmp_path / "tones-0" / "runs" / "from_scratch.union2"
    run.mkdir(parents=True)

    def training_is_needed(system: System) -> bool:
        try:
            runner.training_runs.model(system)
        except MastError as error:
            return "self-training needs unlabelled sound" in str(error)
        return False

    table = pd.DataFrame({"round": [0], "stage": ["initial"]})
    table.to_csv(run / "rounds.csv", index=False)
    assert training_is_needed(first)
    pd.concat([table, pd.DataFrame({"round": [1], "stage": ["averaged"]})]).to_csv(
        run / "rounds.csv", index=False
    )
    assert runner.training_runs.model(first) == run / "round-1" / "averaged" / "best"
    assert training_is_needed(SCRATCH_ST)
    pd.DataFrame({"round": [1, 2], "stage": ["averaged"] * 2}).to_csv(run / "rounds.csv", index=False)
    assert training_is_needed(SCRATCH_ST)  # of the last round, best has to be there, too


@pytest.mark.usefixtures("no_training")
def test_the_report_needs_neither_data_nor_training(work: Path) -> None:
    folders = ["--work", str(work / "work"), "--out", str(work / "page")]
    told = CliRunner().invoke(app, ["experiment", "report", *folders])
    assert told.exit_code == 0, told.output + str(told.exception)
    page = (work / "page" / "report.html").read_text()
    assert "Pipeline ablation" in page


def test_a_system_that_fails_does_not_stop_the_others(work: Path, tones: Path) -> None:
    told = run(work, "pipeline", tones, "audiomae,scratch")
    assert isinstance(told.exception, MastError)
    sentence = (
        "1 system failed and is left out of the tables; audiomae (seed 0): starts from generic pretraining"
    )
    assert sentence in str(told.exception)


def test_where_all_systems_fail_the_reason_is_said(work: Path, tones: Path, tmp_path: Path) -> None:
    (tmp_path / "toy.toml").write_bytes((work / "toy.toml").read_bytes())
    told = run(tmp_path, "pipeline", tones, "audiomae")
    assert "1 system failed, so no table was written or changed; audiomae (seed 0): starts" in str(
        told.exception
    )


def test_results_of_other_settings_are_not_mixed(work: Path, tones: Path) -> None:
    assert run(work, "pipeline", tones, "mast,scratch").exit_code == 0
    table = work / "out" / "pipeline.csv"
    before = table.read_bytes()
    told = run(work, "pipeline", tones, "scratch", "--set", "train.lr=0.01")
    assert table.read_bytes() == before
    assert "train.lr was 0.0003, now 0.01); choose another --work" in str(told.exception)
    found = work / "work" / "tones-0" / "found" / "scratch"
    found.rename(found.with_name("aside"))
    told = run(work, "pipeline", tones, "mast", "--set", "pretrain.lr=0.01")
    found.with_name("aside").rename(found)
    assert "pretrain.lr was" in str(told.exception)


def test_mistakes_are_reported(tmp_path: Path, tones: Path) -> None:
    def error(*words: str) -> str:
        told = CliRunner().invoke(
            app, ["experiment", *words, "--work", str(tmp_path), "--out", str(tmp_path)]
        )
        assert isinstance(told.exception, MastError)
        return str(told.exception)

    assert "did you mean 'pipeline'" in error("pipelin")
    assert "add --data" in error("pipeline")
    assert "nothing was found here yet" in error("pipeline", "--collect-only")
    assert "--seeds: 'a' is not a list" in error("pipeline", "--seeds", "a")
    assert "add --elsewhere" in error("transfer", "--data", str(tones))


@pytest.mark.parametrize(
    ("column", "tests"),
    [
        (["train"] * 6 + ["temporal_ood", "site_ood"], False),
        (["train"] * 6 + ["test", "site_ood"], True),
        ([""] * 6 + ["temporal_ood", "site_ood"], True),  # to be split
        (["train"] * 6 + ["", "site_ood"], True),
        (["train"] * 8, True),  # nothing would be measured
    ],
)
@pytest.mark.parametrize("by", ["auto", "recording"])
def test_no_test_is_cut_where_the_column_names_others(
    tmp_path: Path, tones: Path, by: Literal["auto", "recording"], column: list[str], tests: bool
) -> None:
    data = tmp_path / "tones"
    shutil.copytree(tones, data)
    listing = load_dataset(tones).recordings.assign(split=column)
    listing.to_csv(data / "recordings.csv", index=False)
    front_end = FrontEnd(n_bins=32, chunk_frames=128)
    source = training_runs.StudyData("tones", data, split=_choose_split(data, by))
    parts = labelled_chunks(load_dataset(data), front_end, split=source.division)
    assert ("test" in parts) == tests
    assert sum(len(parts["val"].examples[i].boxes) for i in range(len(parts["val"]))) > 0
    assert parts.keys() >= {name for name in column if name}


def test_two_processes_that_need_one_run_take_turns(tmp_path: Path) -> None:
    path, told = tmp_path / "runs" / ".pretrain.lock", []
    order: list[str] = []
    held, waiting = threading.Event(), threading.Event()

    def first() -> None:
        with training_runs.exclusive_lock(path, told.append):
            held.set()
            assert waiting.wait(20)  # until the other has found it taken
            order.append("first")

    def noticed(text: str) -> None:
        told.append(text)
        waiting.set()

    thread = threading.Thread(target=first)
    thread.start()
    assert held.wait(20)
    with training_runs.exclusive_lock(path, noticed):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]
    assert told == ["pretrain: another process is working on it, waiting"]


def test_a_budget_keeps_the_boxes_of_its_chunks_alone(tmp_path: Path, tones: Path) -> None:
    (tmp_path / "toy.toml").write_text(PRESET)
    show = Reporter(say=lambda text: None, bar=lambda what: nullcontext(lambda done, total, text: None))
    source = training_runs.StudyData("tones", tones)
    runner = module.Runner(
        training_runs.TrainingRuns(
            source, tmp_path, load_preset(tmp_path / "toy.toml"), {}, seed=0, show=show
        )
    )
    learn = runner.training_runs.chunks["train"]
    some = runner.training_runs.labelled(System("some", "some", budget=Budget("sequential", 7)))
    assert len(some) == len(some.examples) == 7
    earliest = learn.table.sort_values(["datetime", "start_s"]).head(7)
    assert set(some.table["start_s"]) == set(earliest["start_s"])
    for row in range(7):
        chunk = some.table.loc[row]
        same = (learn.table["recording"] == chunk["recording"]) & (learn.table["start_s"] == chunk["start_s"])
        assert torch.equal(some.examples[row].boxes, learn.examples[int(same.to_numpy().argmax())].boxes)


def test_pretraining_with_latent_targets_is_a_run_of_its_own(work: Path, tones: Path) -> None:
    told = run(work, "premise", tones, "mast_latent")
    assert told.exit_code == 0, told.output + str(told.exception)
    about = json.loads((work / "work" / "tones-0" / "found" / "mast_latent" / "about.json").read_text())
    assert set(about["seconds"]) == {"pretrain-latent", "mast_latent"}
    card = load_card(work / "work" / "tones-0" / "runs" / "pretrain-latent" / "best")
    assert isinstance(card.architecture, MaeConfig)
    assert (card.architecture.latent_weight, card.architecture.masking) == (1.0, "blocks")


def test_longer_pretraining_is_a_run_of_its_own_and_shared(work: Path, tones: Path) -> None:
    toy = (work / "toy.toml").read_text()
    longer = "\n".join(
        f"[systems.{name}.pretrain]\nepochs = 2\n" for name in ("mast_long", "mast_long_detail")
    )
    (work / "toy.toml").write_text(f"{toy}\n{longer}")
    try:
        told = run(work, "detail", tones, "mast,mast_long,mast_long_detail,mast_detail_st")
    finally:
        (work / "toy.toml").write_text(toy)
    assert told.exit_code == 0, told.output + str(told.exception)
    runs = work / "work" / "tones-0" / "runs"
    assert {path.name for path in runs.glob("pretrain*")} - {"pretrain-latent"} == {"pretrain", "pretrain-2"}
    about = json.loads((work / "work" / "tones-0" / "found" / "mast_long" / "about.json").read_text())
    assert set(about["seconds"]) == {"pretrain-2", "mast_long"}
    assert about["recipe"]["pretrain"]["epochs"] == 2
    about = json.loads((work / "work" / "tones-0" / "found" / "mast_detail_st" / "about.json").read_text())
    assert about["recipe"]["train"]["detector"]["detail"] == 32
    assert (
        about["parameters"]
        > json.loads((work / "work" / "tones-0" / "found" / "mast" / "about.json").read_text())["parameters"]
    )


def test_the_list_names_every_study() -> None:
    shown = CliRunner().invoke(app, ["experiment", "list"])
    assert shown.exit_code == 0
    assert {"in-domain", "ood", "pipeline", "label-budget", "rounds", "domain-shift"} <= set(
        shown.output.split()
    )


def test_the_embedded_model_is_fitted_as_users_do_it(
    tmp_path: Path, tones: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, object] = {}

    def fit(data: Path, unlabelled: object, out: Path, recipe: Recipe, **options: object) -> None:
        asked.update(options, data=data, unlabelled=unlabelled, band_hz=recipe.front_end.high_hz)
        shutil.copytree(find_model("default"), out / "best")

    monkeypatch.setattr(training_runs, "fit", fit)
    show = Reporter(say=lambda text: None, bar=lambda what: nullcontext(lambda done, total, text: None))
    source = training_runs.StudyData("tones", tones)
    preset = load_preset("real_sets", {"front_end": FrontEnd.for_band(2_000).model_dump()})
    runner = module.Runner(training_runs.TrainingRuns(source, tmp_path, preset, {}, seed=3, show=show))
    assert runner.training_runs.model(FITTED) == tmp_path / "tones-3" / "runs" / "fitted" / "best"
    assert asked["data"] == tones
    assert asked["unlabelled"] == ()  # the baselines have none, either
    assert (asked["init"], asked["seed"], asked["fixed"], asked["band_hz"]) == ("default", 3, (), 2_000)
    assert set(runner.training_runs.seconds(FITTED)) <= {"fitted"}


def test_whole_recordings_are_searched_as_users_do_it(work: Path, tones: Path) -> None:
    show = Reporter(say=lambda text: None, bar=lambda what: nullcontext(lambda done, total, text: None))
    source = training_runs.StudyData("tones", tones, (tones,))
    preset = load_preset(work / "toy.toml")
    chunked = module.Runner(training_runs.TrainingRuns(source, work / "work", preset, {}, seed=0, show=show))
    model, system = chunked.training_runs.model(SCRATCH), replace(SCRATCH, name="whole")
    whole = module.Runner(
        training_runs.TrainingRuns(replace(source, whole=True), work / "whole", preset, {}, seed=0, show=show)
    )
    whole._measure(system, model, ["test"])
    found = PartTables.load(whole.trial.system("whole"), "test")
    by_chunk = PartTables.load(chunked.trial.system(SCRATCH.name), "test")
    # calls at the edges of chunks are whole, and nothing else is counted
    dataset = load_dataset(tones)
    boxes = dataset.annotations.events
    assert len(found.truth) == boxes["recording"].isin(found.recordings).sum() < len(by_chunk.truth)
    assert found.recordings == by_chunk.recordings
    events = [
        outcome.events
        for outcome in Detector(model, DetectOptions()).outcomes(
            [Source(dataset.path(name), name) for name in found.recordings]
        )
    ]
    assert len(found.above_threshold) == sum(map(len, events))
    with pytest.raises(MastError, match="was measured on chunks; choose another --work"):
        module.Runner(
            training_runs.TrainingRuns(
                replace(source, whole=True), work / "work", preset, {}, seed=0, show=show
            )
        ).ensure_measured(SCRATCH)
