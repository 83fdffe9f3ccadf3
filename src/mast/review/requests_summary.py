"""The summary of the folder under review: `mast summarize` in its own process, with the decisions as they stand."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from fastapi.responses import FileResponse

from mast.errors import ConfigError
from mast.jobs import Jobs
from mast.progress import CommandProgress, read_progress
from mast.review.open_review import Review
from mast.review.safety import REPORT_POLICY
from mast.review.store import Store
from mast.review.suggestions import given_names_path

SUMMARY, SUMMARY_PAGE = "summary", "summary.html"  # the folder below the results, and the page in it


def summary_routes(review: Review, jobs: Jobs) -> APIRouter:
    """The routes, on one review."""
    router = APIRouter()
    out = review.workspace.folder.resolve() / SUMMARY

    @router.get("/summary")
    def state() -> dict[str, Any]:
        # first: a command that ends meanwhile has recorded its outcome before the next line reads it
        running = jobs.is_running(out)
        progress, made = read_progress(out), _written_at(out / SUMMARY_PAGE)
        shown = progress or CommandProgress([], "", 0, "")
        return {
            "available": review.workspace.kind == "detections",
            "state": _state(progress, running=running, made=bool(made)),
            **{name: getattr(shown, name) for name in ("sentence", "what", "done", "total")},
            "made": made,
            "decisions_since": _decisions_since(review, _decisions_read_at(progress) or made) if made else 0,
        }

    @router.post("/summary")
    def begin() -> dict[str, Any]:
        space = review.workspace
        if space.kind != "detections":
            raise ConfigError(
                "a summary is made of what mast detect has found, and this is a folder of recordings with boxes; run "
                "mast detect on it first"
            )
        further = ["--audio", str(space.audio.resolve())] if space.moved else []
        jobs.start([*summary_command(out.parent, review.store), *further], out)
        return state()

    @router.get("/summary/page")
    def page() -> FileResponse:
        return report_file(out / SUMMARY_PAGE)

    return router


def summary_command(results: Path, store: Store | None) -> list[str]:
    """The arguments of ``mast`` that summarise a results folder, with the names given to its review, if any."""
    command = ["summarize", str(results), "--out", str(results / SUMMARY)]
    names = None if store is None else given_names_path(store)
    return command if names is None else [*command, "--names", str(names)]


def report_file(path: Path) -> FileResponse:
    """A page that a command wrote.

    Raises:
        ConfigError: there is none.
    """
    if not path.is_file():
        raise ConfigError(f"there is no {path.name} yet; let the command that writes it finish first")
    headers = {"Cache-Control": "no-cache", "Content-Security-Policy": REPORT_POLICY}
    return FileResponse(path, media_type="text/html", headers=headers)


def _state(progress: CommandProgress | None, *, running: bool, made: bool) -> str:
    if running:
        return "running"
    if progress is not None and progress.state in ("failed", "stopped"):
        return progress.state
    return "done" if made else "none"


def _written_at(page: Path) -> str:
    """When a page was written, in UTC; empty where there is none."""
    try:
        return datetime.fromtimestamp(os.stat(page).st_mtime, UTC).isoformat(timespec="milliseconds")
    except OSError:
        return ""


def _decisions_read_at(progress: CommandProgress | None) -> str:
    """The time after which decisions may be missing from the summary: when its command began, if known."""
    return progress.began if progress is not None and progress.state == "done" else ""


def _decisions_since(review: Review, moment: str) -> int:
    with review.store.reading() as db:
        found = db.execute(
            "SELECT count(*) FROM log WHERE time > ? AND kind IN ('add', 'change', 'delete', 'undo', 'redo')",
            (moment,),
        )
        return int(found.fetchone()[0])
