"""Which model labels a round, which one each stage starts from, and which boxes with which weights it learns from.

Nothing is trained here: each stage leaves other random weights, so that every model is told from every other.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from untrained_detector import gain_recipe, save_untrained

from mast.data import load_dataset
from mast.loaded_model import LoadedModel
from mast.models.card import load_card
from mast.models.checkpoint import load_checkpoint
from mast.models.mast_detector import MastDetector
from mast.selftrain import rounds
from mast.selftrain.averaging import AVERAGED
from mast.selftrain.committee import Committee
from mast.selftrain.labelling import TOGETHER
from mast.selftrain.pseudo import CELLS, UNLABELLED
from mast.selftrain.unlabelled import sample_chunks
from mast.training.chosen_chunks import Chunks, labelled_chunks
from mast.training.chunk_scores import chunk_metrics, detect_by_plan
from mast.training.detector_training import DetectorRun, fit_detector
from mast.training.loop import Result
from mast.training.machine import prepare_machine

STAGES = [(1, "stage1"), (1, "stage2"), (2, "stage1"), (2, "stage2")]


class Stage(NamedTuple):
    learn: Chunks
    held: Chunks
    run: DetectorRun


class Labeller(NamedTuple):
    members: list[dict[str, Tensor]]  # their weights
    threshold: float

    def is_made_of(self, *folders: Path) -> bool:
        return [True] * len(self.members) == [
            same_weights(own, folder) for own, folder in zip(self.members, folders, strict=True)
        ]


class Seen(NamedTuple):
    """What two rounds of self-training did."""

    out: Path
    init: Path
    stages: list[Stage]
    labellers: list[Labeller]


def same_weights(weights: dict[str, Tensor], folder: Path) -> bool:
    there = load_checkpoint(folder).model.state_dict()
    return all(torch.equal(tensor, there[name]) for name, tensor in weights.items())


@pytest.fixture(scope="module")
def seen(tones: Path, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return watch_two_rounds(tones, tmp_path_factory.mktemp("rounds"))


def watch_two_rounds(tones: Path, out: Path, *, teachers: Sequence[Path] = (), average: bool = False) -> Seen:
    stages, labellers = list[Stage](), list[Labeller]()
    init = save_untrained(out / "init", seed=0, threshold=0.5)

    def fit(learn: Chunks, held: Chunks, run: DetectorRun, **_: Any) -> Result:
        stages.append(Stage(learn, held, run))
        n = len(stages)
        save_untrained(run.out / "best", seed=n, threshold=0.4 + 0.01 * n)
        metrics = dict.fromkeys(("f1", "precision", "recall", "threshold", "ap50", "miou"), 0.5)
        return Result(1, metrics, metrics, 1, 0.0)

    def label(model: LoadedModel | Committee, *args: Any, **options: Any) -> pd.DataFrame:
        members = model.members if isinstance(model, Committee) else [model]
        labellers.append(Labeller([one.model.state_dict() for one in members], options["threshold"]))
        return pseudo_label(model, *args, **options)

    pseudo_label = rounds.pseudo_label
    recipe = gain_recipe(
        selftrain__rounds=2,
        selftrain__threshold="validation",
        selftrain__measure_other_parts=False,
        selftrain__average=average,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "fit_detector", fit)
        patch.setattr(rounds, "pseudo_label", label)
        rounds.self_train(tones, [tones / "audio"], init, out / "run", recipe, teachers=teachers)
    assert [(s.run.about["round"], s.run.about["stage"]) for s in stages] == STAGES
    return Seen(out / "run", init, stages, labellers)


def test_a_round_is_labelled_by_the_model_that_the_last_one_ended_in(seen: Seen) -> None:
    ends = [seen.init, seen.out / "round-1" / "stage2" / "best"]
    assert len(seen.labellers) == 2
    for labeller, folder in zip(seen.labellers, ends, strict=True):
        assert labeller.is_made_of(folder)
    assert not seen.labellers[1].is_made_of(seen.init)  # the models can be told apart
    # "validation" is the threshold that the labelling model brings along
    assert [labeller.threshold for labeller in seen.labellers] == [0.5, pytest.approx(0.42)]


def test_teachers_label_every_round_together_with_the_model(tones: Path, tmp_path: Path) -> None:
    """Detectors of other shapes are fine, and the threshold is chosen on validation for all of them together."""
    teachers = [
        save_untrained(tmp_path / f"teacher-{n}", seed=n, threshold=0.45, channels=64) for n in (8, 9)
    ]
    seen = watch_two_rounds(tones, tmp_path / "out", teachers=teachers)
    models = [seen.init, seen.out / "round-1" / "stage2" / "best"]
    held = labelled_chunks(load_dataset(tones), gain_recipe().front_end)["val"]
    machine, stage = prepare_machine(gain_recipe()), gain_recipe().selftrain.stage1
    for number, model in enumerate(models, start=1):
        labeller = seen.labellers[number - 1]
        assert labeller.is_made_of(model, *teachers)
        together = json.loads((seen.out / f"round-{number}" / TOGETHER).read_text(encoding="utf-8"))
        assert labeller.threshold == together["threshold"]
        committee = Committee([machine.load(folder) for folder in (model, *teachers)])
        measured = chunk_metrics(detect_by_plan(committee, held, stage, machine, nms_iou=stage.nms_iou))
        assert labeller.threshold == pytest.approx(measured["threshold"], abs=1e-3)
    assert seen.stages[0].run.start.path == seen.init
    assert seen.stages[0].run.about["teachers"] == [str(folder) for folder in teachers]


def test_the_mean_of_all_rounds_labels_and_is_kept_while_training_continues_from_the_last(
    tones: Path, tmp_path: Path
) -> None:
    seen = watch_two_rounds(tones, tmp_path, average=True)
    ends = [load_checkpoint(seen.out / f"round-{n}" / "stage2" / "best").model.state_dict() for n in (1, 2)]
    assert same_weights(ends[0], seen.out / "round-1" / AVERAGED / "best")
    mean = {name: (ends[0][name] + ends[1][name]) / 2 for name in ends[0]}
    kept = load_checkpoint(seen.out / "best").model.state_dict()
    for name, expected in mean.items():
        if expected.is_floating_point():
            torch.testing.assert_close(kept[name], expected)
    assert seen.labellers[1].is_made_of(seen.out / "round-1" / AVERAGED / "best")
    assert (
        seen.labellers[1].threshold == load_card(seen.out / "round-1" / AVERAGED / "best").thresholds["score"]
    )
    assert seen.stages[2].run.start.path == seen.out / "round-1" / "stage2" / "best"
    rows = pd.read_csv(seen.out / "rounds.csv")
    assert rows["stage"].tolist() == ["initial", *["stage1", "stage2", AVERAGED] * 2]
    assert rows["kept"].tolist() == [False] * 6 + [True]
    card = load_card(seen.out / "best")
    assert card.calibration is not None
    assert card.provenance["averaged_rounds"] == 2
    assert card.thresholds["score"] == rows["threshold"].iloc[-1]


def test_a_stage_starts_where_the_stage_before_it_ended(seen: Seen) -> None:
    ends = [seen.out / f"round-{n}" / stage / "best" for n, stage in STAGES]
    assert [stage.run.start.path for stage in seen.stages] == [seen.init, *ends[:-1]]
    assert [stage.run.about["init"] for stage in seen.stages] == [str(p) for p in [seen.init, *ends[:-1]]]
    assert len({stage.run.seed for stage in seen.stages}) == 2  # another order of chunks in each round


def test_stage_1_learns_from_pseudo_labels_and_stage_2_from_the_expert(seen: Seen, tones: Path) -> None:
    recipe = seen.stages[0].run.recipe
    expert = labelled_chunks(load_dataset(tones), recipe.front_end)
    for stage in seen.stages:
        boxes = [row.tolist() for own in stage.learn._labels[0] for row in own]
        if stage.run.about["stage"] == "stage2":
            assert boxes == [row.tolist() for own in expert["train"]._labels[0] for row in own]
            assert stage.learn.table["recording"].tolist() == expert["train"].table["recording"].tolist()
            assert stage.run.plan == recipe.selftrain.stage2
        else:
            found = pd.read_parquet(seen.out / f"round-{stage.run.about['round']}" / "pseudo.parquet")
            assert len(found) > 0
            assert (
                boxes == found.sort_values("chunk", kind="stable")[CELLS].astype(np.float32).values.tolist()
            )
            assert stage.run.plan == recipe.selftrain.stage1
        # thresholds and epochs are chosen on the expert's validation chunks, always
        pd.testing.assert_frame_equal(stage.held.table, expert["val"].table)


def test_each_round_hears_other_chunks_until_all_were_heard(seen: Seen) -> None:
    """Eight of all chunks a round: no chunk in two rounds, and pseudo-labels are those of the chunks beside them."""
    heard = [pd.read_parquet(seen.out / f"round-{number}" / UNLABELLED) for number in (1, 2)]
    places = [set(zip(own["recording"], own["start_s"], strict=True)) for own in heard]
    assert [len(own) for own in places] == [8, 8]
    assert not places[0] & places[1]
    for number, own in enumerate(heard, start=1):
        learnt = next(s.learn for s in seen.stages if s.run.about["round"] == number)
        assert learnt.table[["recording", "start_s"]].equals(own[["recording", "start_s"]])
        pseudo = pd.read_parquet(seen.out / f"round-{number}" / "pseudo.parquet")
        assert (own["recording"].to_numpy()[pseudo["chunk"]] == pseudo["recording"]).all()


def test_samples_begin_again_when_all_chunks_were_heard(tones: Path) -> None:
    dataset = load_dataset(tones)
    table = pd.DataFrame({"start_s": range(10)})
    taken = [
        sample_chunks([(dataset, table)], 4, seed=1, number=number)[0][1]["start_s"].tolist()
        for number in (1, 2, 3)
    ]
    assert all(len(set(own)) == 4 and own == sorted(own) for own in taken)
    assert set().union(*taken) == set(range(10))
    assert not set(taken[0]) & set(taken[1])
    whole = [(dataset, table)]
    assert sample_chunks(whole, 10, seed=1, number=2) is whole  # then nothing has to be read again


def test_confidence_reaches_the_loss(seen: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean score of each chunk's pseudo-boxes stands beside exactly these boxes when the loss is taken."""
    learn, held, run = seen.stages[0]
    found = pd.read_parquet(seen.out / "round-1" / "pseudo.parquet")
    assert found["chunk"].nunique() > 3
    expected = {  # boxes of a chunk → their weight
        tuple(map(tuple, own[CELLS].to_numpy(np.float32).tolist())): own["score"].mean()
        for _, own in found.groupby("chunk")
    }
    expected[()] = run.recipe.selftrain.empty_weight
    given: list[tuple[list[Tensor], Tensor | None]] = []
    loss = MastDetector.loss

    def noted(self: MastDetector, spectrograms: Tensor, boxes: list[Tensor], **options: Any) -> Any:
        given.append((boxes, options["weights"]))
        return loss(self, spectrograms, boxes, **options)

    monkeypatch.setattr(MastDetector, "loss", noted)
    unchanged = run.plan.model_copy(update={"augmentation": None})
    again = DetectorRun(
        run.recipe, prepare_machine(run.recipe), tmp_path, run.about, run.start, run.seed, plan=unchanged
    )
    fit_detector(learn, held, again, stop_after=1)
    (boxes, weights), *rest = given
    assert not rest
    assert weights is not None
    wanted = [expected[tuple(map(tuple, own.tolist()))] for own in boxes]
    assert weights.tolist() == pytest.approx(wanted, rel=1e-6)
    assert len({round(w, 6) for w in wanted}) > 3  # weights that are all alike would prove nothing
