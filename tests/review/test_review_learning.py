"""Learning while reviewing: ranks, decides, takes back; and nobody takes its decisions for a person's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from review_folders import detections, review_client, small_results, write_tones
from starlette.testclient import TestClient

from mast.annotations import read_annotations
from mast.evaluation.corrected_counts import stratify
from mast.inference.detector import Searched
from mast.inference.pieces import Source
from mast.inference.results import ResultsFolder
from mast.reports.searched_recordings import read_events
from mast.review import learning
from mast.review.decisions import InvalidError, change_event, redo, undo
from mast.review.export_review import collect_annotations, decided_boxes, export_folder
from mast.review.learning import TooFewDecisionsError
from mast.review.listing import ListFilter, count_by_hour, estimate_precision, review_progress
from mast.review.lookalikes import NoEmbeddingError
from mast.review.open_review import Review, open_review
from mast.review.sample import read_check_progress

OPEN = ListFilter(status="open")
EVENTS = 100  # in each of three recordings
WIDTH = 6


def results(root: Path) -> Path:
    """Detections whose vectors tell which are right, and which of those are of label a: the score says nothing."""
    audio, folder = root / "audio", root / "detections"
    written = ResultsFolder(folder, {"model": "m", "threshold": 0.3, "embeddings": WIDTH}, audio)
    for k in range(3):
        name = f"S_{k}.wav"
        write_tones(audio / name, seed=k)
        rng = np.random.default_rng(k)
        vectors = rng.normal(0, 0.2, (EVENTS, WIDTH))
        vectors[:, 0] += np.where(rng.random(EVENTS) < 0.5, 1.0, -1.0)
        vectors[:, 1] += np.where(rng.random(EVENTS) < 0.5, 1.0, -1.0)
        source = Source(audio / name, name, audio)
        found = detections(name, EVENTS, seed=k).assign(site="S")
        written.add(
            Searched(
                source, found, 6.0, 16_000, "S", "2024-05-01T05:00:00", embeddings=vectors.astype(np.float16)
            )
        )
    written.combine(["csv"])
    return folder


@pytest.fixture
def review(tmp_path: Path) -> Review:
    return open_review(results(tmp_path))


def truth(review: Review) -> dict[str, tuple[bool, str]]:
    """Of each event: whether it is right, and its label."""
    vectors: NDArray[np.float32] = np.load(review.workspace.folder / "embeddings.npy").astype(np.float32)
    with review.store.reading() as db:
        rows = db.execute(
            "SELECT e.id, r.first_row + e.ordinal FROM events e JOIN recordings r ON r.id = e.recording_id"
        ).fetchall()
    return {row[0]: (bool(vectors[row[1], 0] > 0), "a" if vectors[row[1], 1] > 0 else "b") for row in rows}


def decide(review: Review, count: int, *, named: bool = False) -> list[str]:
    """A person decides about the first of the random order, rightly."""
    known = truth(review)
    with review.store.reading() as db:
        rows = db.execute(
            "SELECT id, version FROM events WHERE status = 'open' ORDER BY rank LIMIT ?", (count,)
        ).fetchall()
    for event_id, version in rows:
        right, label = known[event_id]
        given: dict[str, Any] = {"version": version, "status": "accepted" if right else "rejected"}
        if right and named:
            given["label"] = label
        change_event(review.store, "Ana", event_id, given)
    return [row[0] for row in rows]


def page(review: Review, order: str, **more: Any) -> list[dict[str, Any]]:
    with review.store.reading() as db:
        found: list[dict[str, Any]] = review.learner.queue(
            db, order, more.pop("wanted", OPEN), **{"limit": 50, "after": None, **more}
        )["events"]
    return found


def learned(review: Review) -> dict[str, tuple[str, str]]:
    with review.store.reading() as db:
        return {row[0]: (row[1], row[2]) for row in db.execute("SELECT event_id, status, label FROM learned")}


def test_before_any_decision_the_order_is_that_of_the_scores(review: Review) -> None:
    scores = [event["score"] for event in page(review, "likely")]
    assert scores == sorted(scores, reverse=True)
    np.testing.assert_allclose([e["chance"] for e in page(review, "likely")], scores, atol=2e-3)
    away = [round(abs(event["chance"] - 0.5), 6) for event in page(review, "unsure")]
    assert away == sorted(away)


def test_decisions_bring_what_is_right_to_the_front(review: Review) -> None:
    decided = decide(review, 60)
    known = truth(review)
    first = page(review, "likely")
    assert np.mean([known[event["id"]][0] for event in first]) == 1.0
    assert not {event["id"] for event in first} & set(decided)
    before = [event["id"] for event in first]
    assert [event["id"] for event in page(review, "likely")] == before  # the same decisions, the same order


def test_a_label_is_sought(review: Review) -> None:
    decide(review, 80, named=True)
    known = truth(review)
    for label in ("a", "b"):
        first = page(review, "likely", label=label, limit=30)
        assert np.mean([known[event["id"]] == (True, label) for event in first]) > 0.95
    assert sorted(review.learner.state()["labels"]) == ["a", "b"]
    with pytest.raises(InvalidError, match="'c' is not learnt; accept at least 5"):
        page(review, "likely", label="c")


def decided_ids(review: Review) -> set[str]:
    with review.store.reading() as db:
        return {row[0] for row in db.execute("SELECT id FROM events WHERE reviewer <> ''")}


def test_pages_continue_while_one_decides(review: Review) -> None:
    decide(review, 60)
    first = page(review, "likely", limit=20)
    known = truth(review)
    for event in first[:10]:
        status = "accepted" if known[event["id"]][0] else "rejected"
        change_event(review.store, "Ana", event["id"], {"version": event["version"], "status": status})
    second = page(review, "likely", limit=20, after=first[-1]["id"])
    whole = page(review, "likely", limit=300)  # the first page of a new ranking
    assert not {e["id"] for e in first} & {e["id"] for e in second}
    assert len(whole) == 3 * EVENTS - 70


def test_filters_apply(review: Review) -> None:
    decide(review, 60)
    found = page(review, "unsure", wanted=ListFilter(status="open", search="S_1"), limit=300)
    assert {event["recording"] for event in found} == {"S_1.wav"}
    assert {e["status"] for e in page(review, "likely", wanted=ListFilter(status="accepted"))} == {"accepted"}


def test_one_button_decides_about_the_rest_and_keeps_its_promise(review: Review) -> None:
    decided = decide(review, 80, named=True)
    known = truth(review)
    plan = review.learner.plan(0.95)
    assert (plan.precision, plan.decisions) == (0.95, 80)
    applied = review.learner.apply("Ana", 0.95)
    assert {name: applied[name] for name in ("accepted", "rejected", "named", "right", "left")} == {
        name: getattr(plan, name) for name in ("accepted", "rejected", "named", "right", "left")
    }
    verdicts = learned(review)
    assert not set(verdicts) & set(decided)
    assert len(verdicts) == plan.accepted + plan.rejected > 150
    assert len(verdicts) + plan.left == 3 * EVENTS - 80
    right = [(status == "accepted") == known[event][0] for event, (status, _) in verdicts.items()]
    assert np.mean(right) >= 0.95
    assert plan.right >= 0.95 * len(verdicts)
    names = {event: label for event, (_, label) in verdicts.items() if label}
    assert len(names) == plan.named > 30
    assert np.mean([known[event] == (True, label) for event, label in names.items()]) >= 0.95
    assert review.learner.state()["applied"]["by"] == "Ana"


def test_the_whole_application_is_taken_back(review: Review) -> None:
    decide(review, 80)
    with review.store.reading() as db:
        before = [tuple(row) for row in db.execute("SELECT * FROM events ORDER BY seq")]
    applied = review.learner.apply("Ana", 0.9)
    assert review.learner.take_back("Ana") == applied["accepted"] + applied["rejected"]
    with review.store.reading() as db:
        assert [tuple(row) for row in db.execute("SELECT * FROM events ORDER BY seq")] == before
        kinds = [row[0] for row in db.execute("SELECT kind FROM log ORDER BY id DESC LIMIT 2")]
    assert kinds == ["take_back", "apply"]
    assert learned(review) == {}
    assert review.learner.state()["applied"] is None
    assert review.learner.take_back("Ana") == 0  # nothing is left to take back


def test_a_persons_decision_stands_before_and_after(review: Review) -> None:
    """Someone decides against the learner; neither applying again nor taking back touches that."""
    decide(review, 80)
    review.learner.apply("Ana", 0.9)
    event_id, (status, _) = next(iter(learned(review).items()))
    other = "rejected" if status == "accepted" else "accepted"
    change_event(review.store, "Bo", event_id, {"version": 0, "status": other})
    review.learner.apply("Ana", 0.9)
    assert event_id not in learned(review)
    review.learner.take_back("Ana")
    with review.store.reading() as db:
        now = db.execute("SELECT status, reviewer FROM events WHERE id = ?", (event_id,)).fetchone()
    assert tuple(now) == (other, "Bo")


def test_undo_takes_back_an_application_and_then_the_decision_before_it(review: Review) -> None:
    last = decide(review, 80)[-1]
    applied = review.learner.apply("Änne", 0.9)
    assert [event["id"] for event in undo(review.store, "Ana").events] == [
        last
    ]  # Änne's is not Ana's to undo
    redo(review.store, "Ana")
    assert len(learned(review)) == applied["accepted"] + applied["rejected"]

    done = undo(review.store, "Änne")
    assert done.many
    assert done.what == f"Undone: {applied['accepted'] + applied['rejected']} decisions by the learner"
    assert (done.events, done.recording_id) == ([], None)
    assert learned(review) == {}
    assert review.learner.state()["applied"] is None
    assert not undo(review.store, "Änne").done
    assert not redo(review.store, "Änne").done

    review.learner.apply("Ana", 0.9)
    assert undo(review.store, "Ana").many
    done = undo(review.store, "Ana")
    assert not done.many
    assert [event["id"] for event in done.events] == [last]


def test_undo_passes_over_an_application_that_no_longer_stands(review: Review) -> None:
    last = decide(review, 80)[-1]
    review.learner.apply("Ana", 0.9)
    review.learner.take_back("Bo")
    assert [event["id"] for event in undo(review.store, "Ana").events] == [last]
    redo(review.store, "Ana")
    review.learner.apply("Ana", 0.9)
    review.learner.apply("Bo", 0.95)  # in its place
    assert [event["id"] for event in undo(review.store, "Ana").events] == [last]
    assert review.learner.state()["applied"]["by"] == "Bo"
    assert learned(review)


def test_undo_after_a_further_decision_takes_that_back_first(review: Review) -> None:
    decide(review, 80)
    review.learner.apply("Ana", 0.9)
    event_id = next(iter(learned(review)))
    change_event(review.store, "Ana", event_id, {"version": 0, "status": "accepted"})
    assert [event["id"] for event in undo(review.store, "Ana").events] == [event_id]
    assert learned(review)
    assert undo(review.store, "Ana").many
    assert not learned(review)


def test_the_learner_does_not_learn_from_itself(review: Review) -> None:
    decide(review, 80)
    before = page(review, "likely", wanted=ListFilter(), limit=300)
    review.learner.apply("Ana", 0.9)
    assert review.learner.plan(0.9).decisions == 80
    assert [e["id"] for e in page(review, "likely", wanted=ListFilter(), limit=300)] == [
        e["id"] for e in before
    ]


def test_what_the_learner_decided_leaves_the_queue_and_can_be_checked(review: Review) -> None:
    decide(review, 80)
    applied = review.learner.apply("Ana", 0.9)
    left = page(review, "unsure", limit=300)
    assert len(left) == applied["left"]
    accepted = page(review, "likely", wanted=ListFilter(status="learner_accepted"), limit=300)
    assert len(accepted) == applied["accepted"]
    assert {event["learned"]["status"] for event in accepted} == {"accepted"}
    assert {event["status"] for event in accepted} == {"open"}


def test_counts_keep_people_and_learner_apart(review: Review) -> None:
    decide(review, 80)
    with review.store.reading() as db:
        before, sure = review_progress(db, ListFilter()), estimate_precision(db, ListFilter())
        active = count_by_hour(db)
    applied = review.learner.apply("Ana", 0.9)
    with review.store.reading() as db:
        after = review_progress(db, ListFilter())
        assert estimate_precision(db, ListFilter()) == sure
        fewer = np.array(active["counts"]).sum() - np.array(count_by_hour(db)["counts"]).sum()
    assert (after["learner_accepted"], after["learner_rejected"]) == (
        applied["accepted"],
        applied["rejected"],
    )
    assert {k: v for k, v in after.items() if "learner" not in k} == {
        k: v for k, v in before.items() if "learner" not in k
    }
    assert fewer == applied["rejected"]


def test_corrected_counts_do_not_take_it_for_a_review(review: Review) -> None:
    """mast summarize: a stratum counts as checked only where people decided about all of it."""
    decide(review, 80)
    folder = review.workspace.folder
    table = pd.read_parquet(folder / "detections.parquet")
    strata = stratify(table["label"].to_numpy(dtype=object), table["score"].to_numpy())
    before = read_check_progress(folder, read_events(folder), strata)
    applied = review.learner.apply("Ana", 0.6)
    assert applied["left"] == 0  # the learner has decided about all the rest
    after = read_check_progress(folder, read_events(folder), strata)
    assert (after.drawn, after.open, after.sample is None) == (
        before.drawn,
        before.open,
        before.sample is None,
    )
    assert after.sample is None
    assert len(decided_boxes(folder / "review.sqlite")) == len(
        [v for k, v in truth(review).items() if k in decided_ids(review) and not v[0]]
    )


def test_exports_say_who_accepted(review: Review, tmp_path: Path) -> None:
    decided = decide(review, 80)
    people = sum(truth(review)[event][0] for event in decided)
    with review.store.reading() as db:
        before = collect_annotations(db)
    applied = review.learner.apply("Ana", 0.9)
    with review.store.reading() as db:
        after = collect_annotations(db, complete=True)
        without = collect_annotations(db, complete=True, learner=False)
    counts = after.events["source"].value_counts().to_dict()
    assert counts == {"expert": people, "learner": applied["accepted"]}
    pd.testing.assert_frame_equal(
        after.reviewed, before.reviewed
    )  # nobody has heard what the learner accepted
    pd.testing.assert_frame_equal(without.events, before.events)
    done = export_folder(review.store, review.workspace, "csv", "out")
    assert read_annotations(done.path / "boxes.csv").events["source"].value_counts().to_dict() == counts


def test_from_few_decisions_it_does_not_decide(review: Review) -> None:
    decide(review, 79)
    with pytest.raises(
        TooFewDecisionsError, match=r"needs at least 80 decisions.*so far there are \d+ accepted and \d+ rej"
    ):
        review.learner.plan(0.9)
    with pytest.raises(TooFewDecisionsError):
        review.learner.apply("Ana", 0.9)
    assert learned(review) == {}


@pytest.mark.parametrize("wrong", [0.4, 1.0, -1.0, 7.0])
def test_precision_must_make_sense(review: Review, wrong: float) -> None:
    decide(review, 60)
    with pytest.raises(InvalidError, match=r"expected a share from 0\.5 to 0\.999"):
        review.learner.plan(wrong)


def test_without_vectors_a_sentence(tmp_path: Path) -> None:
    review = open_review(small_results(tmp_path, embed=False))
    assert review.learner.state()["available"] is False
    with pytest.raises(NoEmbeddingError, match="--embed"):
        page(review, "likely")


def test_folds_are_as_the_rest_is() -> None:
    decided = np.array([1, 1, 2])
    assert learning._held_out_groups(decided, np.array([3, 4, 5])).tolist() == [1, 1, 2]  # other recordings
    assert learning._held_out_groups(decided, np.array([1, 2, 3])).tolist() == [0, 1, 2]
    assert learning._held_out_groups(decided, np.zeros(0, np.int64)).tolist() == [0, 1, 2]


def test_a_review_that_was_begun_before_there_was_a_learner(review: Review) -> None:
    with review.store.writing() as db:
        db.execute("DROP TABLE learned")
    folder = review.workspace.folder
    review.close()
    again = open_review(folder)
    decide(again, 80)
    assert again.learner.apply("Ana", 0.9)["accepted"] > 0


def test_requests(review: Review) -> None:
    client = review_client(review)
    head = {"X-Reviewer": "Ana"}
    assert client.get("/api/learner").json()["accepted"] == 0
    few = client.get("/api/learner/plan?precision=0.9")
    assert (few.status_code, "80 decisions" in few.json()["error"]) == (409, True)
    decide(review, 80)
    plan = client.get("/api/learner/plan?precision=0.9").json()
    done = client.post("/api/learner/apply", json={"precision": 0.9}, headers=head)
    assert done.status_code == 200
    assert {k: done.json()[k] for k in plan} == plan
    shown = client.get("/api/queue?order=likely&status=learner_rejected&limit=500").json()
    assert shown["total"] == plan["rejected"]
    assert client.post("/api/learner/undo", headers=head).json() == {
        "taken_back": plan["accepted"] + plan["rejected"]
    }


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({}, "precision: expected a share"),
        ({"precision": "high"}, "precision: expected a share"),
        ({"precision": True}, "precision: expected a share"),
        ({"precision": 3}, "expected a share from 0.5 to 0.999"),
    ],
)
def test_bad_requests_get_one_sentence(review: Review, body: dict[str, Any], sentence: str) -> None:
    decide(review, 60)
    client = review_client(review)
    answer = client.post("/api/learner/apply", json=body, headers={"X-Reviewer": "Ana"})
    assert (answer.status_code, sentence in answer.json()["error"]) == (400, True)
    assert client.post("/api/learner/apply", json={"precision": 0.9}).status_code == 400  # nobody's name
    assert client.get("/api/learner/plan?precision=nan").status_code == 400
    assert client.get("/api/queue?order=likely&label=nothing").status_code == 400


def test_only_the_page_itself_may_apply_or_take_back(review: Review) -> None:
    decide(review, 60)
    here = review_client(review)
    stranger = TestClient(here.app, base_url="http://127.0.0.1:8765")  # without the token
    for url in ("/api/learner/apply", "/api/learner/undo"):
        for wrong in (
            {"Origin": "http://evil.example"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Host": "evil.example"},
        ):
            answer = here.post(url, json={"precision": 0.9}, headers={"X-Reviewer": "A", **wrong})
            assert answer.status_code == 403
        assert stranger.post(url, json={"precision": 0.9}, headers={"X-Reviewer": "A"}).status_code == 403
    for url in ("/api/learner", "/api/learner/plan?precision=0.9"):
        assert here.get(url, headers={"Host": "evil.example"}).status_code == 403
        assert stranger.get(url).status_code == 403
    assert learned(review) == {}
