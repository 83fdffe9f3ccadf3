"""What docs/review.md says in words about learning while reviewing, against the results."""

from __future__ import annotations

from typing import Any

from page_figures import figures, page_text

PAGE = page_text("docs/review.md")
FIGURES: dict[str, Any] = figures("review_learning")
SETS: dict[str, Any] = FIGURES["sets"]


def test_how_it_was_measured() -> None:
    assert "down to a score of 0.1" in PAGE
    assert FIGURES["threshold"] == 0.1
    assert "Forty simulated reviewers went through" in PAGE
    assert "had a random three quarters of the recordings" in PAGE
    assert (FIGURES["reviewers"], FIGURES["share_of_recordings"]) == (40, 0.75)
    assert "hold 90 % of the right boxes at a precision of 95 %" in PAGE
    assert FIGURES["sought"] == {"precision": 0.95, "recall": 0.9}


def test_what_is_saved() -> None:
    assert "nearly every reviewer saves decisions: " in PAGE
    assert "about a fifth of them on `nbm_xc` and two fifths on `tagus_fish`" in PAGE
    for name, share in (("nbm_xc", 0.2), ("tagus_fish", 0.4)):
        saved = SETS[name]["saved_against_best_score"]
        assert saved["reviewers_who_save"] >= 0.9 * FIGURES["reviewers"]
        assert abs(saved["share"] - share) < 0.06
    assert "`birdeep_am1` there is no clear gain" in PAGE
    low, high = SETS["birdeep_am1"]["saved_against_best_score"]["interval"]
    assert low < 0 < high
    assert "the order *uncertain* needs hardly more decisions than the learner's" in PAGE
    fish = SETS["tagus_fish"]["decisions"]
    assert 0 <= fish["uncertain"]["mean"] - fish["learner"]["mean"] < 10


def test_the_promise() -> None:
    assert "The promise is too optimistic by up to two percentage points" in PAGE
    over = [
        done["promised"] - done["right"]
        for own in SETS.values()
        for done in own["button"]["learner"].values()
    ]
    assert over
    assert min(over) > 0
    assert max(over) < 0.025
