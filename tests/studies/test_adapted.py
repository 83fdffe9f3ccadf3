"""The study of `mast adapt`: which recordings a model adapts to, and which it then searches."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from toy_recipe import save_small_detector

from mast.data.recordings import Dataset, load_dataset
from mast.selftrain.adaptation import Adapted
from mast_studies import adapted
from mast_studies.adapted import HEARD, OTHERS, TWICE, measure_set
from mast_studies.whole_recordings import SearchResult, search_twice
from mast_studies.zero_shot_sets import load_set


def test_halves_are_searched_by_a_model_that_adapted_to_the_other_half(
    tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, model = load_set(tones), save_small_detector(tmp_path / "model", score=0.002)
    names = set(own.dataset.recordings["file"])
    learnt: list[set[str]] = []
    starts: list[Path] = []
    searched: list[set[str]] = []

    def unchanged(recordings: Sequence[Path], out: Path, *, init: Path, **_: Any) -> Adapted:
        starts.append(init)
        sound = load_dataset(recordings[0])
        assert sound.annotations.events.empty  # the boxes stay where they are
        learnt.append({Path(name).name for name in sound.recordings["file"]})
        return Adapted(model, heard=10, boxes=3, learnt=5)

    def watched(
        folder: Path, dataset: Dataset, files: Sequence[str] | None = None, **more: Any
    ) -> SearchResult:
        searched.append(names if files is None else set(files))
        return search_twice(folder, dataset, files, **more)

    monkeypatch.setattr(adapted, "adapt", unchanged)
    monkeypatch.setattr(adapted, "search_twice", watched)
    options = argparse.Namespace(device="cpu", work=tmp_path / "work", seeds=1, no_others=False)
    result = measure_set(own, model, options)
    assert learnt[:2] == searched[1:3] == [names, names]
    once = tmp_path / "work" / own.name / "seed-0" / "whole" / "run"
    assert starts == [model, once, model, model]
    for one, other in zip(learnt[2:], searched[3:], strict=True):
        assert one
        assert not one & other
        assert one | other == names
    (heard,), (twice,), (others,) = result[HEARD], result[TWICE], result[OTHERS]
    assert (heard["chunks"], others["chunks"]) == (10, 20)
    # a model that did not change finds the same, in one search or in two halves
    assert heard["f1_minus_model"]["difference"] == others["f1_minus_model"]["difference"] == 0
    for row in (heard, twice, others):
        assert row["own threshold"]["n_predictions"] == result["mast"]["own threshold"]["n_predictions"] > 0
