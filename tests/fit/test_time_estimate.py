"""What `mast fit` says about its time before it begins."""

from __future__ import annotations

import pytest

from mast.fit.time_estimate import ChunkCounts, describe_estimate, format_duration, seconds_by_stage
from mast.training.effort import Rates
from mast.training.recipe import load_recipe

RECIPE = load_recipe("tiny", {"train.epochs": 10, "train.batch_size": 8, "train.validate_every_epochs": 5})


def test_every_stage_counts() -> None:
    rates = Rates(train=1.0, detect=0.5, pretrain=0.25)
    few = seconds_by_stage(RECIPE, ChunkCounts(80, 10), rates)
    assert few == {"training": pytest.approx(800 + 3 * 5), "measuring": pytest.approx(2 * 10)}
    all_of_it = seconds_by_stage(RECIPE, ChunkCounts(80, 10, 20, 160, 240), rates)
    assert all_of_it["pretraining"] == pytest.approx(8 * 240 * 0.25)
    assert all_of_it["self-training"] > RECIPE.selftrain.rounds * 6 * (160 + 80)
    assert all_of_it["measuring"] > few["measuring"]
    capped = load_recipe("tiny", {"selftrain.max_chunks": 16})
    assert (
        seconds_by_stage(capped, ChunkCounts(80, 10, 20, 160), rates)["self-training"]
        < all_of_it["self-training"]
    )


def test_the_sentence_names_the_time_and_what_it_was_made_from() -> None:
    said = describe_estimate(
        RECIPE, ChunkCounts(80, 10), Rates(0.45, 0.1), device="this machine without a GPU"
    )
    assert said == (
        "about 6 minutes on this machine without a GPU (training 6 minutes, measuring 4 seconds): 10 epochs of 80 "
        "chunks at 0.45 s each, as just measured"
    )
    once = load_recipe("tiny", {"train.epochs": 1})
    assert "1 epoch of 1 chunk at" in describe_estimate(
        once, ChunkCounts(1, 1), Rates(0.4, 0.1), device="a GPU"
    )


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.1, "1 second"),
        (60, "60 seconds"),
        (100, "2 minutes"),
        (3600, "60 minutes"),
        (6000, "2 hours"),
        (1e6, "12 days"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words
