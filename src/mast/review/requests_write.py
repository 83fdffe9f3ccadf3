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
from mast.review.decisions import InvalidError
from mast.review.export_review import export_folder, export_zip
from mast.review.open_review import Review
from mast.review.requests_read import FilterQuery

_MAX_NAME = 60


def writing_routes(review: Review) -> APIRouter:
    """The routes, on one review."""
    router = APIRouter()
    store = review.store

    @router.post("/recordings/{rid}/events")
    async def add(rid: int, request: Request) -> dict[str, Any]:
        name, body = read_reviewer(request), await read_body(request)
        return await run_in_threadpool(decisions.add_event, store, name, rid, body)

    @router.patch("/events/{eid}")
    async def change(eid: str, request: Request) -> dict[str, Any]:
        name, body = read_reviewer(request), await read_body(request)
        return await run_in_threadpool(decisions.change_event, store, name, eid, body)

    @router.delete("/events/{eid}")
    async def delete(eid: str, request: Request, version: int) -> dict[str, Any]:
        return await run_in_threadpool(decisions.delete_event, store, read_reviewer(request), eid, version)

    @router.post("/undo")
    async def undo(request: Request) -> dict[str, Any]:
        return asdict(await run_in_threadpool(decisions.undo, store, read_reviewer(request)))

    @router.post("/redo")
    async def redo(request: Request) -> dict[str, Any]:
        return asdict(await run_in_threadpool(decisions.redo, store, read_reviewer(request)))

    @router.post("/learner/apply")
    async def apply(request: Request) -> dict[str, Any]:
        name, body = read_reviewer(request), await read_body(request)
        precision = body.get("precision")
        if isinstance(precision, bool) or not isinstance(precision, int | float):
            raise InvalidError("precision: expected a share of decisions that should be right, such as 0.95")
        return await run_in_threadpool(review.learner.apply, name, float(precision))

    @router.post("/learner/undo")
    async def take_back(request: Request) -> dict[str, Any]:
        return {"taken_back": await run_in_threadpool(review.learner.take_back, read_reviewer(request))}

    @router.post("/groups")
    def find_groups() -> dict[str, Any]:
        review.groups.begin()
        return review.groups.state()

    @router.post("/groups/{group}")
    async def decide_group(group: int, request: Request, wanted: FilterQuery) -> dict[str, Any]:
        name, body = read_reviewer(request), await read_body(request)
        chosen = replace(wanted, group=group)
        decided = await run_in_threadpool(
            review.groups.decide, name, chosen, body.get("status"), body.get("label", "")
        )
        return {"decided": decided}

    @router.post("/recordings/{rid}/reviewed")
    async def reviewed(rid: int, request: Request) -> dict[str, Any]:
        name, body = read_reviewer(request), await read_body(request)
        spans = await run_in_threadpool(
            decisions.mark_reviewed,
            store,
            name,
            rid,
            body.get("start_s"),
            body.get("end_s"),
            body.get("reviewed"),
        )
        return {"reviewed_spans": spans}

    @router.post("/export")
    async def export(request: Request) -> dict[str, Any]:
        read_reviewer(request)
        body = await read_body(request)
        format, folder = body.get("format", "csv"), body.get("folder", "")
        complete, learner = body.get("complete", False), body.get("learner", True)
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


def read_reviewer(request: Request) -> str:
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


async def read_body(request: Request) -> dict[str, Any]:
    """The JSON object that was sent.

    Raises:
        InvalidError: something else was sent.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise InvalidError("expected a JSON object (Content-Type: application/json)")
    raw = await request.body()
    try:
        given = json.loads(raw, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        raise InvalidError("expected a JSON object, found something that is not JSON") from None
    if not isinstance(given, dict):
        raise InvalidError("expected a JSON object, found something else")
    return given


def _reject_constant(text: str) -> float:
    raise ValueError(text)  # NaN and Infinity are not JSON
