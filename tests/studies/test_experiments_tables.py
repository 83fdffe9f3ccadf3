"""Which results `mast experiment` puts into the tables it writes; nothing is trained here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from made_up_found import write_found
from typer.testing import CliRunner

from mast.cli.main import app
from mast.errors import MastError
from mast_studies import runner as module
from mast_studies.label_budgets import STRATEGIES
from mast_studies.systems import System

TOY = 'size = "tiny"\nfront_end = { n_bins = 32, chunk_frames = 128 }\n'
PARTS = ["train"] * 5 + ["test", "temporal_ood", "site_ood"]


@pytest.fixture(autouse=True)
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The systems that were "trained", in order; each finds two of three calls in every part of its dataset."""
    asked: list[str] = []

    def find(runner: module.Runner, system: System) -> Path:
        asked.append(f"{system.name} {runner.training_runs.seed}")
        _ = runner.training_runs.recipe_of(system)
        made_up(
            runner.trial.folder.parent,
            system.name,
            runner.source.name,
            runner.training_runs.seed,
            *runner._measured_parts,
        )
        return runner.trial.system(system.name)

    monkeypatch.setattr(module.Runner, "ensure_measured", find)
    monkeypatch.setattr(module.Runner, "ensure_embedded", lambda runner, system: runner.trial.folder)
    return asked


def made_up(work: Path, system: str, dataset: str, seed: int, *parts: str) -> None:
    for part in parts:
        write_found(work, system, dataset=dataset, seed=seed, part=part, hits={"a": 2}, truths={"a": 3})


def divided(tones: Path, folder: Path, parts: list[str]) -> Path:
    """The tones with a split column."""
    shutil.copytree(tones, folder)
    listing = pd.read_csv(tones / "recordings.csv").assign(split=parts)
    listing.to_csv(folder / "recordings.csv", index=False)
    return folder


@pytest.fixture
def near(tones: Path, tmp_path: Path) -> Path:
    """A dataset with every part that an experiment tests on."""
    return divided(tones, tmp_path / "near", PARTS)


def run(root: Path, *words: object):  # type: ignore[no-untyped-def]
    (root / "toy.toml").write_text(TOY)
    command = ["experiment", *map(str, words), "--work", str(root / "work"), "--out", str(root / "out")]
    more = () if "--collect-only" in words or "report" in words else ("--preset", str(root / "toy.toml"))
    return CliRunner().invoke(app, [*command, *more])


def datasets(root: Path, study: str) -> set[str]:
    return set(pd.read_csv(root / "out" / f"{study}.csv")["dataset"])


def test_a_table_is_of_the_dataset_that_was_given(tmp_path: Path, near: Path) -> None:
    made_up(tmp_path / "work", "mast", "zoo", 0, "test", "site_ood")
    for study in ("ood", "all"):
        told = run(tmp_path, study, "--data", near, "--systems", "mast")
        assert told.exit_code == 0, told.output + str(told.exception)
        assert datasets(tmp_path, "ood") == {"near"}
    assert "studies on near. Values" in (tmp_path / "out" / "report.html").read_text()
    assert run(tmp_path, "ood", "--data", near, "--name", "mine", "--systems", "mast").exit_code == 0
    assert datasets(tmp_path, "ood") == {"mine"}
    # of what was found before
    for words, expected in (
        (("--data", near), {"near"}),
        (("--data", near, "--name", "zoo"), {"zoo"}),
        (("--name", "mine"), {"mine"}),
        ((), {"near", "mine", "zoo"}),
    ):
        for study in ("ood", "report"):
            told = run(tmp_path, study, "--collect-only", *words)
            assert told.exit_code == 0, told.output + str(told.exception)
            assert datasets(tmp_path, "ood") == expected


def test_seeds_of_a_dataset_are_in_one_table(tmp_path: Path, tones: Path) -> None:
    for seed in (0, 1):
        divided(tones, tmp_path / f"bench-{seed}" / "labelled", PARTS)
    data = tmp_path / "bench-{seed}" / "labelled"
    told = run(tmp_path, "ood", "--data", data, "--systems", "mast", "--seeds", "0,1")
    assert told.exit_code == 0, told.output + str(told.exception)
    table = pd.read_csv(tmp_path / "out" / "ood.csv")
    assert set(table["dataset"]) == {"bench"}
    assert set(table["seeds"]) == {2}
    told = run(tmp_path, "ood", "--collect-only", "--data", data, "--seeds", "1")
    assert told.exit_code == 0, told.output + str(told.exception)
    assert set(pd.read_csv(tmp_path / "out" / "ood.csv")["seeds"]) == {1}


def test_a_dataset_that_is_not_in_the_work_folder_is_named(tmp_path: Path) -> None:
    made_up(tmp_path / "work", "mast", "near", 0, "test")
    made_up(tmp_path / "work", "mast", "far", 0, "test")
    told = run(tmp_path, "in-domain", "--collect-only", "--data", tmp_path / "moved")
    assert "nothing was found in 'moved', only in far, near; choose one with --name" in str(told.exception)
    assert not (tmp_path / "out").exists()


def test_a_study_of_parts_that_a_dataset_does_not_have(
    tmp_path: Path, tones: Path, trained: list[str]
) -> None:
    made_up(tmp_path / "work", "mast", "zoo", 0, "test", "site_ood")
    near = divided(tones, tmp_path / "near", ["train"] * 6 + ["test"] * 2)
    told = run(tmp_path, "ood", "--data", near, "--systems", "mast")
    assert isinstance(told.exception, MastError)
    sentence = (
        "near: no recordings test on other days or at other sites; such recordings have temporal_ood or site_ood in "
        "the column split of recordings.csv"
    )
    assert str(told.exception) == sentence
    assert trained == []
    assert not (tmp_path / "out").exists()
    # other parts remain
    told = run(tmp_path, "overview", "--data", near, "--systems", "mast")
    assert told.exit_code == 0, told.output + str(told.exception)
    assert f"overview: {sentence}\n" in told.output
    # of what was found before
    told = run(tmp_path, "ood", "--data", near, "--collect-only")
    assert str(told.exception) == sentence
    assert not (tmp_path / "out" / "ood.csv").exists()
    # of several studies: said once, and on the page
    told = run(tmp_path, "all", "--data", near, "--systems", "mast")
    assert told.exit_code == 0, told.output + str(told.exception)
    assert told.output.count(sentence) == 1
    assert f"{sentence}." in (tmp_path / "out" / "report.html").read_text()
    assert not (tmp_path / "out" / "ood.csv").exists()
    # of several datasets, that which lacks a part is named
    told = run(tmp_path, "ood", "--collect-only")
    assert told.exit_code == 0, told.output + str(told.exception)
    assert f"ood: {sentence}\n" in told.output
    assert "ood: zoo: no recordings test on other days; such" in told.output
    assert datasets(tmp_path, "ood") == {"zoo"}


def test_a_study_that_was_not_run_does_not_ask_for_parts(tmp_path: Path) -> None:
    made_up(tmp_path / "work", "fcos", "near", 0, "site_ood")
    told = run(tmp_path, "report")
    assert told.exit_code == 0, told.output + str(told.exception)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "near: no recordings test in domain" in page
    absent = page.partition("Not run yet: ")[2].partition(".")[0].split(", ")
    assert {"label-budget", "rounds", "curriculum", "adapters", "transfer"} <= set(absent)
    assert "ood" not in absent


@pytest.fixture
def failing(trained: list[str], monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Systems and seeds that fail, as in "mast 0"; what was found earlier stays where it is."""
    names: set[str] = set()
    find = module.Runner.ensure_measured

    def fail(runner: module.Runner, system: System) -> Path:
        if f"{system.name} {runner.training_runs.seed}" in names:
            raise MastError(f"{system.name}: has nothing to learn from")
        return find(runner, system)

    monkeypatch.setattr(module.Runner, "ensure_measured", fail)
    return names


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_nothing_is_written_where_all_that_was_asked_for_failed(
    tmp_path: Path, near: Path, failing: set[str]
) -> None:
    words = ("--data", near, "--systems", "mast,fcos")
    assert run(tmp_path, "ood", *words).exit_code == 0
    before = files(tmp_path / "out")
    failing |= {"mast 0", "mast_st 0"}
    for study in ("ood", "all"):
        told = run(tmp_path, study, "--data", near, "--systems", "mast,mast_st")
        assert str(told.exception) == (
            f"experiment {study}: 2 systems failed, so no table was written or changed; mast (seed 0): has nothing to "
            "learn from; mast_st (seed 0): has nothing to learn from"
        )
        assert "mast: failed, has nothing to learn from" in told.output
        assert files(tmp_path / "out") == before


def test_what_failed_is_not_in_the_tables(tmp_path: Path, near: Path, failing: set[str]) -> None:
    words = ("--data", near, "--systems", "mast,fcos", "--seeds", "0,1")
    assert run(tmp_path, "ood", *words).exit_code == 0
    failing.add("mast 1")
    told = run(tmp_path, "ood", *words)
    assert str(told.exception) == (
        "experiment ood: 1 system failed and is left out of the tables; mast (seed 1): has nothing to learn from"
    )
    table = pd.read_csv(tmp_path / "out" / "ood.csv")
    assert set(zip(table["system"], table["seeds"], strict=True)) == {("mast", 1), ("fcos", 2)}
    failing.add("mast 0")
    told = run(tmp_path, "ood", *words)
    assert "1 system failed and is left out of the tables; mast (seed 0)" in str(told.exception)
    assert "ood: without faster_rcnn, yolo26, detr, audiomae, mast_st, which are not there yet" in told.output
    assert set(pd.read_csv(tmp_path / "out" / "ood.csv")["system"]) == {"fcos"}
    record = json.loads((tmp_path / "out" / "ood.json").read_text())
    assert {name for one in record["trainings"] for name in one["seeds"]} == {"near, fcos"}
    # other commands take what is there
    assert run(tmp_path, "ood", "--collect-only", "--data", near).exit_code == 0
    assert set(pd.read_csv(tmp_path / "out" / "ood.csv")["system"]) == {"mast", "fcos"}


def test_of_several_studies_those_without_a_result_are_left_alone(
    tmp_path: Path, near: Path, failing: set[str]
) -> None:
    words = ("--data", near, "--systems", "mast,fcos")
    assert run(tmp_path, "all", *words).exit_code == 0
    before = files(tmp_path / "out")
    failing.add("mast 0")
    told = run(tmp_path, "all", *words)
    assert "1 system failed and is left out of the tables; mast (seed 0)" in str(told.exception)
    after = files(tmp_path / "out")
    assert after["rounds.csv"] == before["rounds.csv"]
    assert after["ood.csv"] != before["ood.csv"]
    sentence = "everything requested failed, so no table was written"
    (line,) = [line for line in told.output.splitlines() if line.endswith(sentence)]
    assert {"rounds", "retrieval"} <= set(line.partition(":")[0].split(", "))
    assert f"{sentence}." in (tmp_path / "out" / "report.html").read_text()


def test_budgets_are_checked_before_anything_is_trained(
    tmp_path: Path, near: Path, trained: list[str]
) -> None:
    for study in ("label-budget", "all"):
        told = run(tmp_path, study, "--data", near, "--budgets", "4,128,100,0")
        assert isinstance(told.exception, MastError)
        assert str(told.exception) == (
            f"{near}: 0, 100, 128 chunks asked for (--budgets), but there are 68 to train on; ask for 1 to 68"
        )
        assert trained == []
    told = run(tmp_path, "label-budget", "--data", near)  # of the study
    assert "near: 128, 256 chunks asked for" in str(told.exception)
    assert not (tmp_path / "out").exists()
    assert run(tmp_path, "label-budget", "--data", near, "--budgets", "1,68").exit_code == 0
    # what nobody asked for refuses nothing else
    assert run(tmp_path, "label-budget", "--data", near, "--systems", "fcos").exit_code == 0
    assert trained[-1] == "fcos 0"
    assert run(tmp_path, "all", "--data", near, "--systems", "fcos,fcos_random_256").exit_code == 0


def test_one_system_that_is_no_table_is_not_written(tmp_path: Path, near: Path, failing: set[str]) -> None:
    failing |= {f"fcos_{strategy}_4 0" for strategy in STRATEGIES}
    told = run(tmp_path, "label-budget", "--data", near, "--budgets", "4")
    assert (
        "experiment label-budget: 3 systems failed, so no table was written or changed; fcos_random_4 (seed 0): has"
        in str(told.exception)
    )
