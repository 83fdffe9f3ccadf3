"""A table says where its systems were not run alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_up_found import write_found

from mast.training.recipe import load_recipe
from mast_studies.collect import collect
from mast_studies.comparability import comparability_notes
from mast_studies.studies import all_studies
from mast_studies.study_tables import Archive

STUDY = all_studies()["in-domain"]
SAME = {"data": "near", "unlabelled": ["far"], "split": "column", "measured": "chunks"}


def shared(**overrides: Any) -> dict[str, Any]:
    """The recipe that all systems share, as a run writes it down."""
    settings = {name.replace("__", "."): value for name, value in overrides.items()}
    return load_recipe("tiny", settings).model_dump(mode="json")


def add(work: Path, system: str, seed: int = 0, **about: Any) -> None:
    write_found(
        work, system, seed=seed, hits={"a": 2}, truths={"a": 3}, **{**SAME, "shared": shared(), **about}
    )


def told(work: Path) -> list[str]:
    return comparability_notes(Archive(work), STUDY.systems, {system.name for system in STUDY.systems})


def test_systems_that_were_run_alike_are_not_remarked_on(tmp_path: Path) -> None:
    for seed in (0, 1):
        for system in ("mast", "mast_st", "fcos"):
            add(tmp_path, system, seed, data=f"near-{seed}", unlabelled=[f"far-{seed}"])
    assert told(tmp_path) == []


def test_what_differs_is_named_in_one_sentence(tmp_path: Path) -> None:
    add(tmp_path, "mast")
    add(tmp_path, "mast_st", unlabelled=[])
    add(tmp_path, "fcos", shared=shared(train__epochs=7), measured="whole recordings")
    (sentence,) = told(tmp_path)
    assert sentence.startswith("made_up: not all systems were run alike (unlabelled is ")
    assert f"{Path('far').absolute()} for mast" in sentence
    assert "none for mast_st" in sentence
    assert "measured on is whole recordings for fcos, chunks for the others" in sentence
    assert f"train.epochs is 7 for fcos, {load_recipe('tiny').train.epochs} for the others)" in sentence


@pytest.mark.parametrize(
    ("system", "about"),
    [
        ("fcos", {"unlabelled": []}),  # which it does not hear
        ("fcos", {"shared": shared(pretrain__epochs=3)}),
        ("mast", {"shared": shared(selftrain__max_chunks=9)}),
        ("fcos", {"shared": shared(workers=3)}),  # changes nothing
        ("fcos", {"data": str(Path("near").absolute())}),
    ],
)
def test_what_changes_nothing_about_a_system_is_no_difference(
    system: str, about: dict[str, Any], tmp_path: Path
) -> None:
    for name in ("mast", "mast_st", "fcos"):
        add(tmp_path, name, **(about if name == system else {}))
    assert told(tmp_path) == []


def test_a_setting_that_only_some_were_given(tmp_path: Path) -> None:
    add(tmp_path, "mast")
    add(tmp_path, "mast_st", shared=shared(train__detector={"adapter": "fine"}))
    assert "train.detector.adapter is " in told(tmp_path)[0]
    assert "fine for mast_st" in told(tmp_path)[0]
    assert "none for mast" in told(tmp_path)[0]


def test_seeds_of_other_settings(tmp_path: Path) -> None:
    for seed in (0, 1):
        for system in ("mast", "fcos"):
            given = shared(train__lr=0.5) if (system, seed) == ("mast", 1) else shared()
            add(tmp_path, system, seed, shared=given)
    assert "(train.lr is 0.5 for mast with seed 1, " in told(tmp_path)[0]


def test_results_of_earlier_versions_have_no_settings(tmp_path: Path) -> None:
    add(tmp_path, "mast")
    write_found(tmp_path, "fcos", hits={"a": 2}, truths={"a": 3})
    assert told(tmp_path) == []


def test_the_sentence_stands_below_the_title_and_is_said(tmp_path: Path) -> None:
    add(tmp_path / "work", "mast")
    add(tmp_path / "work", "fcos", data="elsewhere")
    collected = collect(STUDY, Archive(tmp_path / "work", resamples=20), tmp_path / "out")
    (note,) = collected.notes
    assert "data is " in note
    assert f"\n\n{note}.\n\n" in (tmp_path / "out" / "in-domain.md").read_text()
