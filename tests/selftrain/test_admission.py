"""Which detectors may label: everything is refused before a run writes anything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest
from toy_calibration import stored_calibration
from untrained_detector import gain_recipe, save_untrained

from mast.data.recordings import load_dataset
from mast.errors import MastError
from mast.models.card import LEARNT_FROM, load_card
from mast.models.checkpoint import update_card
from mast.probability import Calibration
from mast.selftrain.admission import band_of, check_labellers
from mast.selftrain.rounds import self_train
from mast.training.chosen_chunks import Chunks, labelled_chunks
from mast.training.leakage import fingerprint


def with_hits(folder: Path, n_hits: int) -> Path:
    scale = Calibration(method="none", n_predictions=20, n_hits=n_hits)
    update_card(folder, load_card(folder).model_copy(update={"calibration": stored_calibration(scale)}))
    return folder


def test_a_teacher_is_another_detector_that_found_something(tmp_path: Path) -> None:
    recipe = gain_recipe()
    own, teacher, same = (
        save_untrained(tmp_path / name, seed=k) for name, k in (("a", 0), ("b", 1), ("c", 0))
    )
    check_labellers(own, [teacher], recipe)
    for twice in ([own], [same], [teacher, teacher]):
        with pytest.raises(MastError, match="holds the same detector as"):
            check_labellers(own, twice, recipe)
    check_labellers(own, [with_hits(teacher, 1)], recipe)
    with pytest.raises(MastError, match="found nothing right in the recordings that it was validated on"):
        check_labellers(own, [with_hits(teacher, 0)], recipe)
    check_labellers(with_hits(own, 0), [], recipe)  # where to start from is the user's choice


def test_a_detector_may_be_played_at_another_speed_but_not_cut_otherwise(tmp_path: Path) -> None:
    folder, recipe = save_untrained(tmp_path / "a"), gain_recipe()
    card = load_card(folder)
    assert band_of(folder, card, recipe) == recipe.front_end.high_hz
    fish = recipe.model_copy(update={"front_end": recipe.front_end.at_band(2_000.0)})
    assert band_of(folder, card, fish) == 2_000.0
    shorter = recipe.front_end.model_copy(update={"chunk_frames": 128})
    with pytest.raises(
        MastError, match=r"trained on other spectrograms than this run's \(256 frames.*not 128"
    ):
        band_of(folder, card, recipe.model_copy(update={"front_end": shorter}))


@pytest.mark.parametrize("who", ["own", "teacher"])
def test_nothing_is_held_back_that_a_detector_has_learnt_from(
    tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    recipe, dataset = gain_recipe(), load_dataset(tones)
    own, teacher = (save_untrained(tmp_path / name, seed=k) for k, name in enumerate(("own", "teacher")))
    known = str(labelled_chunks(dataset, recipe.front_end)["val"].table["recording"].iloc[0])
    learnt = {LEARNT_FROM: {fingerprint(dataset.path(known)): [[0.0, 11.0]]}}
    update_card(tmp_path / who, load_card(tmp_path / who).model_copy(update={"provenance": learnt}))
    given: list[Mapping[str, Chunks]] = []

    def catch(dataset: object, parts: Mapping[str, Chunks], *_: object, **__: object) -> pd.DataFrame:
        given.append(parts)
        return pd.DataFrame()

    monkeypatch.setattr("mast.selftrain.rounds.fit_rounds", catch)
    said: list[str] = []
    self_train(tones, [tones / "audio"], own, tmp_path / "run", recipe, teachers=[teacher], say=said.append)
    (parts,) = given
    assert known in set(parts["train"].table["recording"])
    assert known not in {
        name for part in ("val", "test") for name in parts.get(part, parts["val"]).table["recording"]
    }
    assert said[0].startswith(f"{tmp_path / who} was trained on 1 of these 8 recordings")  # who, not both


def test_what_is_refused_leaves_nothing_behind(tones: Path, tmp_path: Path) -> None:
    own = save_untrained(tmp_path / "own")
    with pytest.raises(MastError, match="holds the same detector as"):
        self_train(tones, [tones / "audio"], own, tmp_path / "run", gain_recipe(), teachers=[own])
    with pytest.raises(MastError, match="no such folder"):
        self_train(tones, [tmp_path / "archive"], own, tmp_path / "run", gain_recipe())
    assert not (tmp_path / "run").exists()
