"""Requests that only read the store."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from mast.annotations import FORMATS
from mast.review import listing
from mast.review.learning import LEARNED_ORDERS
from mast.review.listing import ListFilter
from mast.review.open_review import Review
from mast.review.queue import queue
from mast.review.records import read_event, read_recording, read_spans, recording_record

NumberQuery = Annotated[float, Query(allow_inf_nan=False)]
Text = Annotated[str | None, Query(max_length=300)]
Group = Annotated[Literal[""] | Annotated[int, Field(ge=-1, le=10**6)] | None, Query()]
Hour = Annotated[Literal[""] | int | None, Query()]
ScoreQuery = Annotated[Literal[""] | Annotated[float, Field(allow_inf_nan=False)] | None, Query()]


def common_filter(
    site: Text = None, day: Text = None, hour: Hour = None, min_score: ScoreQuery = None
) -> ListFilter:
    """The filter that all lists share; empty fields of the page set no condition."""
    return ListFilter(
        site or None,
        day or None,
        hour if isinstance(hour, int) and 0 <= hour <= 23 else None,
        float(min_score) if isinstance(min_score, int | float) else None,
    )


FilterQuery = Annotated[ListFilter, Depends(common_filter)]


def reading_routes(review: Review, *, home: str = "") -> APIRouter:
    """The routes, on one review; ``home`` is the address of the page that it was opened from."""
    router = APIRouter()
    store = review.store

    @router.get("/session")
    def session() -> dict[str, Any]:
        with store.reading() as db:
            found = listing.session_facts(db)
        return {
            "title": review.workspace.title,
            "home": home,
            "kind": review.workspace.kind,
            "threshold": review.workspace.threshold,
            "has_embeddings": bool(review.lookalikes),
            "compares_drawn": review.lookalikes.compares_drawn,
            "formats": list(FORMATS),
            **found,
        }

    @router.get("/progress")
    def progress(wanted: FilterQuery) -> dict[str, Any]:
        with store.reading() as db:
            return listing.review_progress(db, wanted)

    @router.get("/activity")
    def activity() -> dict[str, Any]:
        with store.reading() as db:
            return listing.count_by_hour(db)

    @router.get("/recordings")
    def recordings(
        wanted: FilterQuery,
        status: Literal["", "open", "started", "done"] = "",
        search: Text = None,
        sort: Literal["name", "time", "events", "score"] = "name",
        offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> dict[str, Any]:
        wanted = replace(wanted, status=status, search=search)
        with store.reading() as db:
            return listing.list_recordings(db, wanted, sort=sort, offset=offset, limit=limit)

    @router.get("/recordings/{rid}")
    def recording(rid: int) -> dict[str, Any]:
        with store.reading() as db:
            found = {**recording_record(read_recording(db, rid)), "reviewed_spans": read_spans(db, rid)}
        return {**found, "silent_spans": review.silent_spans(rid)}

    @router.get("/recordings/{rid}/events")
    def events(
        rid: int,
        start_s: NumberQuery = 0.0,
        end_s: NumberQuery = 1e9,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 2000,
    ) -> dict[str, Any]:
        with store.reading() as db:
            read_recording(db, rid)
            return listing.events_between(db, rid, start_s, end_s, limit)

    @router.get("/events/{eid}")
    def event(eid: str) -> dict[str, Any]:
        with store.reading() as db:
            return read_event(db, eid)

    @router.get("/events/{eid}/similar")
    def similar(eid: str, k: Annotated[int, Query(ge=1, le=200)] = 12) -> dict[str, Any]:
        with store.reading() as db:
            return {"events": review.lookalikes.similar(db, eid, k)}

    @router.get("/queue")
    def next_events(
        wanted: FilterQuery,
        order: Literal[
            "uncertain", "novel", "random", "check", "score", "time", "typical", "unsure", "likely"
        ] = "uncertain",
        label: Annotated[str, Query(max_length=200)] = "",
        status: Literal[
            "",
            "open",
            "accepted",
            "rejected",
            "deleted",
            "learner_accepted",
            "learner_rejected",
            "group_accepted",
            "group_rejected",
        ] = "open",
        search: Text = None,
        group: Group = None,
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
        after: Text = None,
    ) -> dict[str, Any]:
        number = group if isinstance(group, int) else None
        wanted = replace(wanted, status=status, search=search, group=number)
        with store.reading() as db:
            if order in LEARNED_ORDERS:
                return review.learner.queue(db, order, wanted, label=label, limit=limit, after=after)
            if order == "novel":
                return review.lookalikes.novel(db, wanted, limit=limit, after=after)
            return queue(db, order, wanted, limit=limit, after=after)

    @router.get("/groups")
    def groups() -> dict[str, Any]:
        return review.groups.state()

    @router.get("/learner")
    def learner() -> dict[str, Any]:
        return review.learner.state()

    @router.get("/learner/plan")
    def plan(precision: NumberQuery = 0.95) -> dict[str, Any]:
        return asdict(review.learner.plan(precision))

    return router
