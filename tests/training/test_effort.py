"""How long a start from a detector is trained, and what that takes on a machine."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from toy_recipe import FRONT_END, small_recipe

from mast.data.recordings import load_dataset
from mast.evaluation.evidence import FEW_BOXES
from mast.training.chosen_chunks import labelled_chunks
from mast.training.effort import (
    LOOKS,
    MAX_TRAINING_S,
    Rates,
    adjust_recipe,
    chunks_seen,
    measure_rates,
    training_seconds,
)
from mast.training.machine import prepare_machine
from mast.training.recipe import load_recipe


@pytest.mark.parametrize(
    ("n_chunks", "epochs", "batch"), [(4, 40, 4), (10, 20, 4), (40, 12, 4), (800, 12, 8)]
)
def test_epochs_follow_the_labelled_chunks(n_chunks: int, epochs: int, batch: int) -> None:
    plan = adjust_recipe(load_recipe("tiny"), n_chunks, held_boxes=FEW_BOXES).train
    assert (plan.epochs, plan.batch_size) == (epochs, batch)
    assert chunks_seen(plan, n_chunks) >= LOOKS
    assert plan.epochs / plan.validate_every_epochs <= 12
    assert plan.warmup_epochs < plan.epochs / 10


@pytest.mark.parametrize(("held_boxes", "validations"), [(FEW_BOXES, 6), (FEW_BOXES - 1, 1), (0, 1)])
def test_few_boxes_do_not_choose_an_epoch(held_boxes: int, validations: int) -> None:
    """Of six boxes nearly all are right after the first epochs already, and training would end there."""
    plan = adjust_recipe(load_recipe("tiny"), 50, held_boxes=held_boxes).train
    assert math.ceil(plan.epochs / plan.validate_every_epochs) == validations


def test_the_share_of_the_start_is_kept_unless_somebody_chose_another() -> None:
    recipe = load_recipe("tiny", {"train.start_share": 0.2})
    assert adjust_recipe(recipe, 10, held_boxes=9, start_share=0.5).train.start_share == 0.5
    fixed = ("train.start_share",)
    assert adjust_recipe(recipe, 10, held_boxes=9, start_share=0.5, fixed=fixed).train.start_share == 0.2


def test_a_slow_machine_trains_for_at_most_an_hour() -> None:
    fast, slow = Rates(train=0.01, detect=0.003), Rates(train=1.0, detect=0.3)
    recipe = load_recipe("tiny")
    assert adjust_recipe(recipe, 800, held_boxes=99, rates=fast).train.epochs == 12
    chosen = adjust_recipe(recipe, 800, held_boxes=99, rates=slow).train
    assert chosen.epochs == 4
    assert chunks_seen(chosen, 800) * slow.train <= MAX_TRAINING_S
    assert (
        adjust_recipe(recipe, 100_000, held_boxes=99, rates=slow).train.epochs == 3
    )  # some training it has to be


def test_what_was_chosen_stays() -> None:
    recipe = load_recipe("tiny", {"train.epochs": 5, "train.batch_size": 2, "selftrain.stage1.lr": 7e-4})
    fixed = ("train.epochs", "train.batch_size", "selftrain.stage1.lr")
    found = adjust_recipe(recipe, 10, held_boxes=99, fixed=fixed, rates=Rates(9.0, 9.0))
    assert (found.train.epochs, found.train.batch_size) == (5, 2)
    assert found.selftrain.stage1.lr == 7e-4
    # steps of self-training are no larger than those of training from a detector
    assert found.selftrain.stage2.lr == recipe.train.lr * recipe.train.start_lr_multiplier


def test_seconds_are_counted_as_the_loop_counts_steps() -> None:
    plan = load_recipe(
        "tiny", {"train.epochs": 6, "train.batch_size": 8}
    ).train  # validates at epochs 4 and 6
    assert chunks_seen(plan, 20) == 6 * 16  # what does not fill a batch waits
    assert chunks_seen(plan, 3) == 6 * 8
    assert training_seconds(plan, 20, 10, Rates(1.0, 0.5)) == pytest.approx(96 + (1.5 + 1) * 5)


def test_rates_are_measured_without_touching_the_random_numbers_of_a_run(tones: Path) -> None:
    recipe = small_recipe()
    learn = labelled_chunks(load_dataset(tones), FRONT_END)["train"]
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    rates = measure_rates(learn, recipe, prepare_machine(recipe), pretrain=True)
    assert torch.equal(torch.rand(3), expected)
    assert min(rates) > 0
