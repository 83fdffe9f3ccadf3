from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_up_found import write_found, write_many_found

from mast.data.augment import AugmentConfig
from mast.errors import ConfigError
from mast.models.architecture import DetectorConfig
from mast_studies.collect import collect
from mast_studies.page import write_page
from mast_studies.paper import METRICS, paper_tables
from mast_studies.presets import OWN_PRESETS, load_preset
from mast_studies.studies import FigureInputs, all_studies, choose_systems, find_study, systems_by_name
from mast_studies.study_tables import Archive
from mast_studies.training_runs import with_same_steps

STUDIES = all_studies()


def test_an_unknown_study_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="no study 'in-domian'; did you mean 'in-domain'"):
        find_study("in-domian", STUDIES)
    with pytest.raises(ConfigError, match="no system 'mats' here; did you mean 'mast'"):
        choose_systems([STUDIES["rounds"]], ["mats"])


def test_studies_name_systems_that_can_be_trained() -> None:
    known = systems_by_name(STUDIES)
    for study in STUDIES.values():
        lines = {line.system for line in study.lines}
        assert lines <= {system.name for system in study.systems}
        if study.reference:
            assert study.reference in lines
    starts = {s.self_training.start for s in known.values() if s.self_training}
    assert starts <= known.keys()
    # rounds of one run are systems of their own
    first, second = known["mast_st_1"].self_training, known["mast_st"].self_training
    assert first is not None
    assert second is not None
    assert (first.run, first.used_round, second.used_round) == (second.run, 1, 2)


def test_each_step_of_domain_shift_changes_one_thing() -> None:
    known, preset = systems_by_name(STUDIES), load_preset("tiny")
    steps = [known[line.system] for line in STUDIES["domain-shift"].lines]
    scratch, pretrained, contrastive, round_1, round_2 = steps
    detectors = [preset.recipe_of(step).train.detector for step in (scratch, pretrained, contrastive)]
    assert detectors == [{"contrastive_weight": 0.0}, {"contrastive_weight": 0.0}, {}]  # all with the adapter
    assert [step.init for step in steps] == ["none", *["pretrained"] * 4]
    assert round_1.self_training is not None
    assert round_2.self_training is not None
    assert round_1.self_training.start == round_2.self_training.start == contrastive.name
    assert (round_1.self_training.used_round, round_2.self_training.used_round) == (1, 2)


def test_domain_shift_from_found_to_files(tmp_path: Path) -> None:
    study = STUDIES["domain-shift"]
    skills = dict(zip((line.system for line in study.lines), (0.3, 0.5, 0.6, 0.7, 0.75), strict=True))
    parts = {"test": 1.0, "temporal_ood": 0.8, "site_ood": 0.6}
    write_many_found(tmp_path / "work", skills | {"fcos": 0.5}, dataset="bench", seeds=2, parts=parts)
    archive = Archive(tmp_path / "work", resamples=20)
    collected = collect(study, archive, tmp_path / "out")
    table = pd.read_csv(tmp_path / "out" / "domain-shift.csv")
    assert list(table["part"].unique()) == list(parts)
    at_home = table[table["part"] == "test"]
    labels = ["from scratch", "pretrained", "+ contrastive"]
    labels += ["+ self-training round 1", "+ self-training round 2"]
    assert list(at_home["label"]) == labels
    assert at_home["f1_difference"].iloc[1:].tolist() == pytest.approx(
        at_home["f1"].diff().iloc[1:].tolist(), abs=1e-5
    )
    assert (at_home["f1_difference_low"] <= at_home["f1_difference_high"]).iloc[1:].all()
    assert "F1 − row above" in (tmp_path / "out" / "domain-shift.md").read_text()
    assert (
        json.loads((tmp_path / "out" / "domain-shift.json").read_text())["figures"]["differences_to"]
        == "row above"
    )
    figure = study.draw(FigureInputs(study, archive, collected.rows, {}))
    assert figure is not None
    (axis,) = figure.axes
    assert [" ".join(tick.get_text().split()) for tick in axis.get_xticklabels()] == labels
    curves = [line.get_ydata() for line in axis.get_lines() if line.get_linestyle() == "-"]
    assert len(curves) == len(parts)
    np.testing.assert_allclose(np.asarray(curves[0]), at_home["f1"], atol=1e-5)
    assert not axis.get_legend()  # it stands below the panels


def test_results_name_the_unlabelled_sound_and_how_good_its_pseudo_labels_were(tmp_path: Path) -> None:
    rounds = [{"round": 1, "boxes": 9, "precision": 0.66666, "recall": 0.5}]
    for system, further in (
        ("faster_rcnn", {"unlabelled": []}),
        ("mast_st", {"unlabelled": ["far", "/scratch/of/world/unlabelled"], "pseudo_labels": rounds}),
    ):
        write_found(tmp_path, system, hits={"a": 2}, truths={"a": 3}, data="near", **further)
    collect(STUDIES["in-domain"], Archive(tmp_path, resamples=20), tmp_path / "out")
    told = json.loads((tmp_path / "out" / "in-domain.json").read_text())
    assert told["data"]["made_up"]["unlabelled"] == ["far", "world/unlabelled"]
    (quality,) = told["figures"]["pseudo_labels"]
    assert quality == {
        "dataset": "made_up",
        "system": "mast_st",
        "seed": 0,
        "round": 1,
        "boxes": 9,
        "precision": 0.6667,
        "recall": 0.5,
    }


def test_a_picture_says_which_system_has_fewer_seeds(tmp_path: Path) -> None:
    parts = {"test": 1.0}
    write_many_found(tmp_path, {"mast": 0.6, "fcos": 0.5}, dataset="bench", seeds=2, parts=parts)
    shutil.rmtree(Archive(tmp_path).trials[1].system("fcos"))
    for name in ("in-domain", "overview"):
        study = STUDIES[name]
        archive = Archive(tmp_path, resamples=20)
        figure = study.draw(FigureInputs(study, archive, study.rows(archive), {}))
        assert figure is not None
        (axis,) = figure.axes
        words = [tick.get_text() for tick in axis.get_yticklabels()]
        words += [text.get_text() for legend in figure.legends for text in legend.get_texts()]
        assert "FCOS (1 of 2 seeds)" in words, name
        assert "MAST" in words


def test_the_papers_tables_have_all_numbers() -> None:
    for study in STUDIES:
        for where, rows in paper_tables(study):
            assert where
            assert all(len(numbers) == len(METRICS) for _, numbers in rows)
    (table,) = paper_tables("curriculum")
    assert table.rows[-1] == ("Stage 1 + Stage 2 (full)", ["0.5044", "0.5909", "0.5442", "0.3864", "0.6067"])


def test_every_recipe_of_a_preset_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "preset.toml"
    path.write_text(
        'size = "tiny"\n[train]\nepochs = 5\ndetector = { channels = 32 }\n'
        "[systems.fcos.train]\nlr = 1e-5\n[systems.no_adapter.train]\nepochs = 7\n"
    )
    preset = load_preset(path, {"train.batch_size": 16})
    known = systems_by_name(STUDIES)
    preset.check_names({*known, "fcos"})
    recipes = {
        name: preset.recipe_of(s, start=known[s.self_training.start] if s.self_training else None)
        for name, s in known.items()
    }
    assert {recipe.train.batch_size for recipe in recipes.values()} == {16}
    assert recipes["fcos"].model == "fcos"
    assert recipes["fcos"].train.detector == {}  # MAST's channels mean nothing to it
    assert recipes["fcos_random_32"].train.lr == 1e-5
    assert recipes["no_adapter"].train.epochs == 7
    assert recipes["no_adapter"].train.detector == {
        "channels": 32,
        "contrastive_weight": 0.0,
        "adapter": "none",
    }
    assert recipes["mast"].train.epochs == 5
    assert recipes["st_union"].selftrain.curriculum == "union"
    assert recipes["st_union"].train == recipes["mast"].train
    assert recipes["mast_st"] == recipes["mast_st_1"]  # one run


def test_a_table_for_no_system_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "preset.toml"
    path.write_text("[systems.fcoss.train]\nlr = 1e-5\n")
    with pytest.raises(ConfigError, match=r"\[systems.fcoss\] names no system; did you mean 'fcos'"):
        load_preset(path).check_names(["mast", "fcos"])
    with pytest.raises(ConfigError, match="no such preset"):
        load_preset(tmp_path / "none.toml")


@pytest.mark.parametrize("name", ["rounds", "curriculum", "stop_when_no_gain", "measure_other_parts"])
def test_a_setting_that_every_system_has_of_its_own_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"selftrain.{name}: each system of an experiment has its own"):
        load_preset("premise", {f"selftrain.{name}": 1})


def test_premise_has_one_row_as_published_and_the_same_training_for_all_others() -> None:
    study, preset = find_study("premise", STUDIES), load_preset("premise")
    named = systems_by_name({"premise": study})
    recipes = {
        name: preset.recipe_of(
            system, start=named[system.self_training.start] if system.self_training else None
        )
        for name, system in named.items()
    }
    published = recipes.pop("mast_paper")
    paper = DetectorConfig.named("small", channels=256)
    assert published.detector == paper
    assert published.train.augmentation == AugmentConfig()
    assert not published.levelled
    assert {recipe.levelled for recipe in recipes.values()} == {True}
    assert len({recipe.train.augmentation for recipe in recipes.values()}) == 1
    assert len({(r.train.epochs, r.train.batch_size) for n, r in recipes.items() if n != "detr"}) == 1
    assert recipes["mast"].detector == recipes["from_scratch"].detector
    assert recipes["mast"].train == recipes["from_scratch"].train
    assert recipes["faster_rcnn_st"].selftrain.stage1 == recipes["st_union"].selftrain.stage1


def test_presets_of_the_repository_are_valid() -> None:
    known = systems_by_name(STUDIES)
    assert {"half_hour", "label_budget", "premise", "real_sets"} == set(OWN_PRESETS)
    for name in OWN_PRESETS:
        preset = load_preset(name)
        preset.check_names({*known, *(system.detector for system in known.values())})
        for system in known.values():
            plan = system.self_training
            preset.recipe_of(system, start=known[plan.start] if plan else None)


@pytest.mark.parametrize(("chunks", "epochs"), [(512, 10), (64, 80), (8, 160)])
def test_a_smaller_budget_has_as_many_steps(chunks: int, epochs: int) -> None:
    recipe = load_preset("tiny", {"train.batch_size": 32, "train.epochs": 10}).recipe
    small = with_same_steps(recipe, all_chunks=512, chunks=chunks).train
    assert small.epochs == epochs
    assert small.epochs * max(1, chunks // 32) == 10 * 512 // 32


def test_collecting_writes_every_file(tmp_path: Path) -> None:
    systems = {"mast": 0.6, "mast_st_1": 0.7, "fcos": 0.5, "fcos_random_32": 0.3, "fcos_sequential_64": 0.3}
    write_many_found(
        tmp_path / "work", systems, dataset="bench", seeds=2, parts={"test": 1.0, "site_ood": 0.6}
    )
    archive = Archive(tmp_path / "work", resamples=20)
    out = tmp_path / "out"
    collected = [
        collect(STUDIES[name], archive, out) for name in ("ood", "rounds", "label-budget", "transfer")
    ]
    for name in ("ood", "rounds", "label-budget"):
        assert pd.read_csv(out / f"{name}.csv")["f1"].between(0, 1).all()
        assert (out / f"{name}.md").read_text().count("| --- |") >= 1
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    ood, rounds, budget, transfer = collected
    assert {row.system for row in ood.rows} == {"mast", "fcos"}
    assert {row.part for row in ood.rows} == {"site_ood"}
    assert "mast_st" in rounds.missing
    assert [row.label for row in budget.rows] == ["random, 32 chunks", "sequential, 64 chunks", "all labels"]
    assert transfer.files == []
    record = json.loads((out / "ood.json").read_text())
    assert record["seed"] == [0, 1]
    assert {"command", "commit", "hardware", "data"} <= record.keys()
    trained = {name for one in record["trainings"] for name in one["seeds"]}
    assert {name.rpartition(", ")[2] for name in trained} == {"mast", "fcos"}
    assert all(one["recipe"]["front_end"] for one in record["trainings"])
    assert "two training runs with the same recipe and seed differed" in (out / "ood.md").read_text()
    page = write_page(collected, out).read_text()
    assert page.count("data:image/png;base64") == 3
    assert "Not run yet: transfer" in page
    assert "http" not in page.replace("http-equiv", "")
