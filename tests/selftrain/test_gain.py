"""Which model a run ends in, and what that may depend on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from untrained_detector import gain_recipe, save_untrained

from mast.annotations import AnnotationSet
from mast.data import load_dataset
from mast.data.recordings import Dataset
from mast.evaluation.part_tables import PartTables
from mast.events import as_events
from mast.grid import FrontEnd
from mast.loaded_model import LoadedModel
from mast.models.card import load_card
from mast.models.checkpoint import load_checkpoint, save_checkpoint
from mast.selftrain import rounds
from mast.selftrain.watch import part_metrics
from mast.training.chosen_chunks import Chunks, labelled_chunks
from mast.training.chunk_scores import chunk_metrics, detect_chunks
from mast.training.detector_training import DetectorRun
from mast.training.loop import Result

OOD = ("S1_20240501_100000.wav", "S1_20240501_110000.wav")


@pytest.fixture(scope="module")
def dataset(tones: Path) -> Dataset:
    """Six recordings as they are, two called another site."""
    whole = load_dataset(tones)
    split = np.where(whole.recordings["file"].isin(OOD), "site_ood", "")
    return replace(whole, recordings=whole.recordings.assign(split=split))


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_untrained(tmp_path_factory.mktemp("detector") / "best")


Fit = Callable[..., Result]


def fit_that_scores(f1_by_round: dict[int, float], *, killed_in: int = 0) -> Fit:
    """Training that leaves the model as it is and says how good it is; a kill in the stage 2 of some round."""

    def fit(learn: Chunks, held: Chunks, run: DetectorRun, **_: Any) -> Result:
        number = run.about["round"]
        if number == killed_in and run.about["stage"] == "stage2":
            raise KeyboardInterrupt
        assert run.start.path is not None
        model, card = load_checkpoint(run.start.path)
        save_checkpoint(run.out / "best", model, card.model_copy(update={"provenance": run.about}))
        # Stage 1 may look splendid: the round is judged by where it ends
        f1 = f1_by_round[number] if run.about["stage"] == "stage2" else 0.99
        metrics = {"f1": f1, "precision": f1, "recall": f1, "threshold": 0.1, "ap50": f1, "miou": f1}
        return Result(1, metrics, metrics, 1, 0.0)

    return fit


@pytest.mark.parametrize(
    ("f1", "n_rounds", "kept"),
    [
        ({1: 0.999}, 1, 1),
        ({1: 0.8, 2: 0.9, 3: 0.85, 4: 1.0}, 3, 2),  # the third did not help, the fourth is not tried
        ({1: 0.8, 2: 0.8, 3: 1.0}, 2, 1),  # the same is not a gain
        ({1: -0.1, 2: 1.0}, 1, 0),
    ],
)
def test_stops_when_a_round_does_not_help(
    dataset: Dataset,
    detector: Path,
    tones: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    f1: dict[int, float],
    n_rounds: int,
    kept: int,
) -> None:
    recipe = gain_recipe(
        selftrain__stop_when_no_gain=True, selftrain__rounds=len(f1), selftrain__measure_other_parts=False
    )
    monkeypatch.setattr(rounds, "chunk_metrics", lambda measured: {"f1": 0.5, "threshold": 0.2})
    told: list[str] = []

    def run() -> pd.DataFrame:
        return rounds.self_train(dataset, [tones / "audio"], detector, tmp_path, recipe, say=told.append)

    monkeypatch.setattr(rounds, "fit_detector", fit_that_scores(f1, killed_in=n_rounds))
    with pytest.raises(KeyboardInterrupt):
        run()
    assert not (tmp_path / "best").exists()
    monkeypatch.setattr(rounds, "fit_detector", fit_that_scores(f1))
    rows = run()
    assert rows["round"].tolist() == [0, *(n for n in range(1, n_rounds + 1) for _ in range(2))]
    best = load_card(tmp_path / "best")
    assert best.provenance.get("round", 0) == kept
    row = rows[rows["kept"]]
    assert row["round"].tolist() == [kept]
    assert row["stage"].tolist() == ["stage2" if kept else "initial"]
    assert best == load_card(tmp_path / f"round-{kept}" / "stage2" / "best" if kept else detector)
    stopped = [text for text in told if "did not help" in text]
    assert len(stopped) == (kept != n_rounds)
    on_disk = pd.read_csv(tmp_path / "rounds.csv")
    pd.testing.assert_frame_equal(on_disk, rows)
    pd.testing.assert_frame_equal(run(), rows)  # a finished run stays as it is


def test_without_the_switch_the_last_round_is_kept(
    dataset: Dataset, detector: Path, tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "fit_detector", fit_that_scores({1: 0.8, 2: -0.1}))
    recipe = gain_recipe(selftrain__curriculum="stage2")
    watch = {"elsewhere": labelled_chunks(dataset, recipe.front_end)["site_ood"]}
    rows = rounds.self_train(dataset, [tones / "audio"], detector, tmp_path, recipe, watch=watch)
    assert rows["kept"].tolist() == [False, False, True]
    assert load_card(tmp_path / "best").provenance["round"] == 2
    # the same model on the same chunks, whoever names them
    assert rows["elsewhere_f1"].tolist() == rows["site_ood_f1"].tolist()


def test_initial_row_is_the_initial_model(
    dataset: Dataset, detector: Path, tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "fit_detector", fit_that_scores({1: 0.8}))
    recipe = gain_recipe(selftrain__rounds=1, selftrain__measure_other_parts=False)
    row = rounds.self_train(dataset, [tones / "audio"], detector, tmp_path, recipe).iloc[0]
    held = labelled_chunks(dataset, recipe.front_end)["val"]
    expected = chunk_metrics(detect_chunks(LoadedModel.load(detector, device="cpu"), held))
    assert {key: row[key] for key in expected} == pytest.approx(expected, abs=1e-6)
    assert row["threshold"] != 0.5  # of its own, not what stands in for none
    assert not [name for name in row.index if name.startswith(("test_", "site_ood_"))]
    experts = pd.read_parquet(tmp_path / "expert.parquet")
    learnt = labelled_chunks(dataset, recipe.front_end)["train"].table["recording"]
    own = dataset.annotations.events["recording"].isin(set(learnt))
    assert len(experts) == own.sum()  # recordings are not cut here


def test_labels_out_of_domain_change_no_choice(
    dataset: Dataset, detector: Path, tones: Path, tmp_path: Path
) -> None:
    recipe = gain_recipe(
        selftrain__rounds=1,
        selftrain__curriculum="stage1",
        selftrain__stop_when_no_gain=True,
        selftrain__adaptive="recording",
    )
    given = dataset.annotations
    elsewhere = given.events["recording"].isin(OOD)
    emptied = AnnotationSet(given.events[~elsewhere], given.reviewed, given.recordings)
    tables = []
    for name, labels in (("as-is", given), ("emptied", emptied)):
        changed = replace(dataset, annotations=labels)
        tables.append(rounds.self_train(changed, [tones / "audio"], detector, tmp_path / name, recipe))
    ood = [c for c in tables[0].columns if c.startswith("site_ood_")]
    assert len(ood) == 4
    assert tables[0]["site_ood_recall"].notna().all()
    assert tables[1]["site_ood_recall"].isna().all()  # the labels did change
    pd.testing.assert_frame_equal(tables[0].drop(columns=ood), tables[1].drop(columns=ood))
    fingerprints = {load_card(tmp_path / name / "best").weights_sha256 for name in ("as-is", "emptied")}
    assert len(fingerprints) == 1


def test_part_metrics_use_the_given_threshold() -> None:
    table = pd.DataFrame(
        {"recording": "a", "start_s": [0.0, 2], "low_hz": 500.0, "end_s": [1.0, 3], "high_hz": 900.0}
    )
    truth, heard = as_events(table), pd.DataFrame({"recording": ["a"], "start_s": 0.0, "end_s": np.inf})
    found = as_events(table.assign(score=[0.9, 0.3]))
    part = PartTables(truth, found, heard, FrontEnd())
    low, high = (part_metrics(part, threshold=t) for t in (0.2, 0.5))
    assert (low["recall"], high["recall"]) == (1.0, 0.5)
    assert low["ap50"] == high["ap50"] == 1.0
    nothing = part_metrics(replace(part, truth=truth.iloc[:0], found=found.iloc[:0]), threshold=0.5)
    assert all(np.isnan(value) for value in nothing.values())
