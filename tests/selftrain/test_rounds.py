from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from toy_recipe import save_small_detector, small_recipe

from mast.data.recordings import Dataset, load_dataset
from mast.data.splits import NO_TEST, SplitConfig
from mast.errors import MastError
from mast.models.architecture import DetectorConfig
from mast.models.card import load_card
from mast.models.checkpoint import load_checkpoint
from mast.selftrain import rounds as rounds_module
from mast.selftrain.rounds import self_train
from mast.training.chosen_chunks import Chunks, labelled_chunks
from mast.training.detector_training import train_detector
from mast.training.pretraining import pretrain
from mast.training.recipe import Recipe, load_recipe
from mast.training.start import same_fields
from mast.training.training_run import TrainingRun


def rounds_recipe(curriculum: str = "full", rounds: int = 1) -> Recipe:
    stage = {"epochs": 1, "validate_every_epochs": 1, "batch_size": 8}
    return small_recipe(
        train__epochs=6,
        train__validate_every_epochs=6,
        selftrain__rounds=rounds,
        selftrain__curriculum=curriculum,
        selftrain__threshold=0.02,
        selftrain__max_chunks=12,
        **{f"selftrain__stage{n}__{key}": value for n in (1, 2) for key, value in stage.items()},
    )


@pytest.fixture(scope="module")
def detector(tones: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("detector")
    train_detector(tones, out, rounds_recipe(), split=SplitConfig())
    return out / "last"


def test_a_baseline_improves_itself_in_the_same_way(tones: Path, tmp_path: Path) -> None:
    small = {"backbone": "resnet18", "width": 16, "channels": 32, "frequency_stretch": 2}
    recipe = rounds_recipe()  # whose stages unfreeze encoder blocks, of which a baseline has none
    plan = recipe.train.model_copy(update={"detector": small, "epochs": 1, "validate_every_epochs": 1})
    recipe = recipe.model_copy(update={"model": "fcos", "train": plan})
    train_detector(tones, tmp_path / "start", recipe)
    start = tmp_path / "start" / "last"
    rows = self_train(tones, [tones / "audio"], start, tmp_path / "out", recipe)
    assert rows["stage"].tolist() == ["initial", "stage1", "stage2"]
    assert rows["pseudo_boxes"][1] > 0
    before, after = (
        load_checkpoint(folder).model.state_dict() for folder in (start, tmp_path / "out" / "best")
    )
    assert not torch.equal(after["log_scales"], before["log_scales"])
    other = recipe.model_copy(update={"train": plan.model_copy(update={"detector": {**small, "width": 32}})})
    with pytest.raises(MastError, match="not the one this recipe describes"):
        self_train(tones, [tones / "audio"], start, tmp_path / "other", other)


def test_two_rounds_and_again(tones: Path, detector: Path, tmp_path: Path) -> None:
    recipe, told = rounds_recipe(rounds=2), []
    rows = self_train(
        tones, [tones / "audio"], detector, tmp_path, recipe, split=SplitConfig(), say=told.append
    )
    assert rows[["round", "stage"]].values.tolist() == [
        [0, "initial"],
        [1, "stage1"],
        [1, "stage2"],
        [2, "stage1"],
        [2, "stage2"],
    ]
    events = pd.read_parquet(tmp_path / "round-1" / "pseudo.parquet")
    assert set(events["source"]) == {"pseudo-1"}
    assert (events["score"] >= 0.02).all()
    assert (events["end_s"] > events["start_s"]).all()
    metrics = load_card(detector).provenance["metrics"]
    assert (
        metrics["threshold"] > 0
    )  # so that something is compared even where so short a training finds nothing
    assert {name: rows[name][0] for name in metrics} == pytest.approx(metrics)
    assert set(events["root"]) == {str(tones / "audio")}
    assert rows["pseudo_boxes"].tolist()[:2] == [0, len(events)]
    assert rows["kept"].tolist() == [False] * 4 + [True]
    assert rows.filter(like="test_").columns.tolist() == [
        "test_f1",
        "test_precision",
        "test_recall",
        "test_ap50",
    ]
    assert any("pseudo-boxes in" in text for text in told)
    model, card = load_checkpoint(tmp_path / "best")
    assert card.provenance["stage"] == "stage2"
    assert card.provenance["round"] == 2
    seed_model = load_checkpoint(detector).model.state_dict()
    assert any(not torch.equal(t, seed_model[n]) for n, t in model.state_dict().items())
    # a finished run is read, not repeated
    again = self_train(tones, [tones / "audio"], detector, tmp_path, recipe, split=SplitConfig())
    pd.testing.assert_frame_equal(again, rows)


def test_the_union_repeats_the_experts_chunks_up_to_their_share(tones: Path) -> None:
    front_end = rounds_recipe().front_end
    own = labelled_chunks(load_dataset(tones), front_end)["train"]
    expert, pseudo = (
        Chunks(own.examples, own.table.assign(whose=name), torch.full((len(own), 4), float(k)))
        for k, name in enumerate(("expert", "pseudo"))
    )
    for share, times in ((None, 1), (0.1, 1), (0.75, 3), (0.8, 4)):
        both = rounds_module._combine_chunks(expert, pseudo, share)
        assert both.table["whose"].tolist() == ["expert"] * times * len(own) + ["pseudo"] * len(own)
        assert len(both.examples) == len(both.boxes) == len(both) == (times + 1) * len(own)
        assert both.sound is not None
        assert both.sound[:, 0].tolist() == [0.0] * times * len(own) + [1.0] * len(own)
    read = replace(pseudo, sound=None)
    assert rounds_module._combine_chunks(expert, read, 0.5).sound is None


@pytest.mark.parametrize(
    ("curriculum", "stages"), [("stage1", ["stage1"]), ("stage2", ["stage2"]), ("union", ["union"])]
)
def test_ablations(tones: Path, detector: Path, tmp_path: Path, curriculum: str, stages: list[str]) -> None:
    rows = self_train(
        tones, [tones / "audio"], detector, tmp_path, rounds_recipe(curriculum), split=SplitConfig()
    )
    assert rows["stage"].tolist() == ["initial", *stages]


def test_mistakes(tones: Path, detector: Path, tmp_path: Path) -> None:
    recipe = rounds_recipe()
    pretrain([tones], tmp_path / "mae", recipe)
    with pytest.raises(MastError, match="holds a pretrained encoder, not a detector"):
        self_train(tones, [tones], tmp_path / "mae" / "best", tmp_path / "a", recipe)
    other = recipe.model_copy(update={"size": "small"})
    with pytest.raises(MastError, match="not the one this recipe describes"):
        self_train(tones, [tones], detector, tmp_path / "b", other, split=SplitConfig())
    with pytest.raises(MastError, match="holds a pretrained encoder, not a detector"):
        self_train(tones, [tones], detector, tmp_path / "t", recipe, teachers=[tmp_path / "mae" / "best"])
    silent = recipe.model_copy(update={"selftrain": recipe.selftrain.model_copy(update={"threshold": 0.999})})
    with pytest.raises(MastError, match="nothing was found in the unlabelled sound"):
        self_train(tones, [tones], detector, tmp_path / "c", silent, split=SplitConfig())


@pytest.mark.parametrize("command", ["train", "selftrain"])
def test_boxes_outside_the_band_do_not_pay_for_a_test_part(
    tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Of 126 boxes 42 can be seen: too few to test on, and the run says that it was divided so."""
    start, recipe = save_small_detector(tmp_path / "start", score=0.5), small_recipe()
    dataset = load_dataset(tones)
    seen = dataset.annotations.events
    above = seen.assign(low_hz=12_000.0, high_hz=15_000.0)
    every = replace(dataset.annotations, events=pd.concat([above, seen, above], ignore_index=True))
    dataset = replace(dataset, annotations=every)
    found: list[tuple[set[str], TrainingRun]] = []

    def rounds(data: Dataset, parts: dict[str, Chunks], _: object, run: TrainingRun, **__: object) -> None:
        pd.testing.assert_frame_equal(data.annotations.events, seen)
        found.append((set(parts), run))

    monkeypatch.setattr(rounds_module, "fit_rounds", rounds)
    monkeypatch.setattr(
        "mast.training.detector_training.fit_detector",
        lambda learn, held, run, **_: found.append(({"train", "val"}, run)),
    )
    begin = {
        "train": lambda: train_detector(dataset, tmp_path / "run", recipe, init=start),
        "selftrain": lambda: self_train(dataset, [tones], start, tmp_path / "run", recipe),
    }
    with pytest.warns(UserWarning, match="84 of 126 boxes lie outside the band of 20–8000 Hz") as caught:
        begin[command]()
    assert len([w for w in caught if "outside the band" in str(w.message)]) == 1
    ((parts, run),) = found
    assert parts == {"train", "val"}
    assert run.about["split"]["fractions"] == list(NO_TEST)


def test_the_shape_of_the_start_is_that_of_the_rounds(
    tones: Path, detector: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in training: a preset decides how, not what."""
    runs: list[TrainingRun] = []

    def begin(data: object, parts: object, sources: object, run: TrainingRun, **_: object) -> pd.DataFrame:
        runs.append(run)
        return pd.DataFrame()

    monkeypatch.setattr(rounds_module, "fit_rounds", begin)
    self_train(tones, [tones], detector, tmp_path, load_recipe("small"), split=SplitConfig())
    card = load_checkpoint(detector).card
    assert runs[0].recipe.front_end == card.front_end
    wanted = runs[0].recipe.detector_for(runs[0].recipe.selftrain.stage1)
    assert isinstance(wanted, DetectorConfig)
    assert isinstance(card.architecture, DetectorConfig)
    assert same_fields(wanted, card.architecture)
