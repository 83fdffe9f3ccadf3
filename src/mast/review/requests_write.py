"""Requests that write. Each decision needs a reviewer's name, and is on disk before it is answered."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Query
from fastapi.responses import FileResponse
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from mast.review import decisions
from mast.review.decided import export_folder, export_zip
from mast.review.decisions import InvalidError
from mast.review.open_review import Review
from mast.review.requests_read import Wanted

_MAX_NAME = 60


def writing_routes(review: Review) -> APIRouter:
    """The routes, on one review."""
    router = APIRouter()
    store = review.store

    @router.post("/recordings/{rid}/events")
    async def add(rid: int, request: Request) -> dict[str, Any]:
        name, given = reviewer_of(request), await body_of(request)
        return await run_in_threadpool(decisions.add_event, store, name, rid, given)

    @router.patch("/events/{eid}")
    async def change(eid: str, request: Request) -> dict[str, Any]:
        name, given = reviewer_of(request), await body_of(request)
        return await run_in_threadpool(decisions.change_event, store, name, eid, given)

    @router.delete("/events/{eid}")
    async def delete(eid: str, request: Request, version: int) -> dict[str, Any]:
        return await run_in_threadpool(decisions.delete_event, store, reviewer_of(request), eid, version)

    @router.post("/undo")
    async def undo(request: Request) -> dict[str, Any]:
        return asdict(await run_in_threadpool(decisions.undo, store, reviewer_of(request)))

    @router.post("/redo")
    async def redo(request: Request) -> dict[str, Any]:
        return asdict(await run_in_threadpool(decisions.redo, store, reviewer_of(request)))

    @router.post("/learner/apply")
    async def apply(request: Request) -> dict[str, Any]:
        name, given = reviewer_of(request), await body_of(request)
        precision = given.get("precision")
        if isinstance(precision, bool) or not isinstance(precision, int | float):
            raise InvalidError("precision: expected a share of decisions that should be right, such as 0.95")
        return await run_in_threadpool(review.learning.apply, name, float(precision))

    @router.post("/learner/undo")
    async def take_back(request: Request) -> dict[str, Any]:
        return {"taken_back": await run_in_threadpool(review.learning.take_back, reviewer_of(request))}

    @router.post("/groups")
    def find_groups() -> dict[str, Any]:
        review.groups.begin()
        return review.groups.state()

    @router.post("/groups/{group}")
    async def decide_group(group: int, request: Request, wanted: Wanted) -> dict[str, Any]:
        name, given = reviewer_of(request), await body_of(request)
        chosen = replace(wanted, group=group)
        decided = await run_in_threadpool(
            review.groups.decide, name, chosen, given.get("status"), given.get("label", "")
        )
        return {"decided": decided}

    @router.post("/recordings/{rid}/reviewed")
    async def reviewed(rid: int, request: Request) -> dict[str, Any]:
        name, given = reviewer_of(request), await body_of(request)
        spans = await run_in_threadpool(
            decisions.mark_reviewed,
            store,
            name,
            rid,
            given.get("start_s"),
            given.get("end_s"),
            given.get("reviewed"),
        )
        return {"reviewed_spans": spans}

    @router.post("/export")
    async def export(request: Request) -> dict[str, Any]:
        reviewer_of(request)
        given = await body_of(request)
        format, folder = given.get("format", "csv"), given.get("folder", "")
        complete, learner = given.get("complete", False), given.get("learner", True)
        if not isinstance(format, str) or not isinstance(folder, str):
            raise InvalidError("expected format and folder as text")
        if not isinstance(complete, bool) or not isinstance(learner, bool):
            raise InvalidError("expected complete and learner as true or false")
        done = await run_in_threadpool(
            export_folder,
            store,
            review.workspace,
            format,
            folder or format,
            complete=complete,
            learner=learner,
        )
        return {**asdict(done), "path": str(done.path)}

    @router.get("/export")
    def download(
        format: Annotated[str, Query(max_length=40)] = "csv", complete: bool = False, learner: bool = True
    ) -> FileResponse:
        with tempfile.NamedTemporaryFile(prefix="mast-review-", suffix=".zip", delete=False) as file:
            path = Path(file.name)
        try:
            export_zip(store, path, format, complete=complete, learner=learner)
        except BaseException:
            path.unlink()
            raise
        return FileResponse(
            path,
            media_type="application/zip",
            filename=f"{review.workspace.title}_{format}.zip",
            headers={"Cache-Control": "no-store"},
            background=BackgroundTask(path.unlink),
        )

    return router


def reviewer_of(request: Request) -> str:
    """The reviewer's name, from the header ``X-Reviewer``.

    Raises:
        InvalidError: there is none, or it is not a name.
    """
    name = " ".join(unquote(request.headers.get("x-reviewer", ""), errors="replace").split())
    if not 1 <= len(name) <= _MAX_NAME or not name.isprintable():
        raise InvalidError(
            f"who is reviewing? Give your name, 1 to {_MAX_NAME} characters, at the top of the page"
        )
    return name


async def body_of(request: Request) -> dict[str, Any]:
    """The JSON object that was sent.

    Raises:
        InvalidError: something else was sent.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise InvalidError("expected a JSON object (Content-Type: application/json)")
    raw = await request.body()
    try:
        given = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise InvalidError("expected a JSON object, found something that is not JSON") from None
    if not isinstance(given, dict):
        raise InvalidError("expected a JSON object, found something else")
    return given


def _no_constant(text: str) -> float:
    raise ValueError(text)  # NaN and Infinity are not JSON
