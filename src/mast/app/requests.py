"""The page's requests: folders, their contents, and commands on them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import FileResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from mast.annotations import FORMATS
from mast.annotations.detections import DetectionRun, read_run
from mast.app.contents import Contents, picture
from mast.app.folders import list_folder, parse_folder, starting_places
from mast.app.pages import Reviews, folder_key, report_page
from mast.app.work import Work, adapted_folder, describe_results, find_work, learned_folder, list_models
from mast.errors import ConfigError
from mast.grid import BANDS_HZ
from mast.jobs import Jobs
from mast.progress import STARTING
from mast.review.decisions import InvalidError
from mast.review.export_review import export_folder
from mast.review.requests_summary import SUMMARY, summary_command
from mast.review.requests_write import read_body
from mast.review.store import STORE, Store

_WHOLE = "whole"  # what is sought, where it is not a name in BANDS_HZ
_CHECKED = "checked"  # the export to learn from
Path_ = Annotated[str, Query(max_length=4096)]


def routes(first: Path | None, contents: Contents, jobs: Jobs, reviews: Reviews) -> APIRouter:
    """The routes.

    Args:
        first: the folder to open with, if any.
        contents: the contents of folders.
        jobs: the commands that run.
        reviews: the reviews that are open.
    """
    router = APIRouter()

    @router.get("/start")
    def start() -> dict[str, Any]:
        return {
            "folder": str(first) if first is not None else "",
            "places": [{"name": name, "path": path} for name, path in starting_places()],
            "bands": [{"name": name, "high_hz": edge} for name, edge in BANDS_HZ.items()],
            "formats": list(FORMATS),
        }

    @router.get("/folders")
    def folders(path: Path_) -> dict[str, Any]:
        return asdict(list_folder(parse_folder(path)))

    @router.get("/contents")
    def read_contents(path: Path_, again: bool = False) -> dict[str, Any]:
        return contents.describe(parse_folder(path), again=again)

    @router.get("/picture")
    def show_picture(path: Path_, file: Path_) -> Response:
        made = picture(parse_folder(path), file)
        return Response(made, media_type="image/png", headers={"Cache-Control": "no-store"})

    @router.get("/work")
    def work(path: Path_) -> dict[str, Any]:
        return _describe_work(find_work(parse_folder(path)), jobs)

    @router.get("/page")
    def page(folder: Path_, which: str) -> FileResponse:
        return report_page(parse_folder(folder), which)

    @router.post("/find")
    async def find(request: Request) -> dict[str, Any]:
        body = await read_body(request)
        chosen = find_work(parse_folder(read_text_field(body, "path")))
        sought, model = read_text_field(body, "sought"), read_text_field(body, "model", "")
        command, out = await run_in_threadpool(_find_command, chosen, sought, model, contents)
        await run_in_threadpool(jobs.start, command, out)
        return {"folder": str(out)}

    @router.post("/stop")
    async def stop(request: Request) -> dict[str, Any]:
        folder = parse_folder(read_text_field(await read_body(request), "folder"))
        await run_in_threadpool(jobs.stop, folder)
        return {"folder": str(folder)}

    @router.post("/resume")
    async def resume(request: Request) -> dict[str, Any]:
        folder = parse_folder(read_text_field(await read_body(request), "folder"))
        await run_in_threadpool(jobs.resume, folder)
        return {"folder": str(folder)}

    @router.post("/summarize")
    async def summarize(request: Request) -> dict[str, Any]:
        folder = parse_folder(read_text_field(await read_body(request), "folder"))
        out = folder / SUMMARY
        command = await run_in_threadpool(_summarize_command, folder)
        await run_in_threadpool(jobs.start, command, out)
        return {"folder": str(out)}

    @router.post("/learn")
    async def learn(request: Request) -> dict[str, Any]:
        body = await read_body(request)
        folder, complete = parse_folder(read_text_field(body, "folder")), body.get("complete", False)
        if not isinstance(complete, bool):
            raise InvalidError("expected complete to be true or false")
        command, out = await run_in_threadpool(_learn_command, folder, complete, reviews)
        await run_in_threadpool(jobs.start, command, out)
        return {"folder": str(out)}

    @router.post("/adapt")
    async def adapt(request: Request) -> dict[str, Any]:
        folder = parse_folder(read_text_field(await read_body(request), "folder"))
        command, out = await run_in_threadpool(_adapt_command, folder)
        await run_in_threadpool(jobs.start, command, out)
        return {"folder": str(out)}

    return router


def read_text_field(body: dict[str, Any], name: str, default: str | None = None) -> str:
    """A text that was sent.

    Raises:
        InvalidError: it is missing, or is something else.
    """
    value = body.get(name, default)
    if not isinstance(value, str):
        raise InvalidError(f"expected {name} to be text")
    return value


def _describe_work(work: Work, jobs: Jobs) -> dict[str, Any]:
    results = []
    for folder in work.results:
        found = describe_results(folder)
        if found["what"] == STARTING and jobs.is_running(folder):
            found |= {"state": "running", "can_resume": False}
        if found["kind"] == "find":
            summary = folder / SUMMARY
            found["summary"] = (
                describe_results(summary) if summary.is_dir() or jobs.is_running(summary) else None
            )
            found["key"] = folder_key(folder)
        results.append(found)
    return {
        "recordings": str(work.recordings),
        "root": str(work.root),
        "results": results,
        "models": [{"name": path.name, "folder": str(path)} for path in list_models(work)],
    }


def _find_command(work: Work, sought: str, model: str, contents: Contents) -> tuple[list[str], Path]:
    """The command that searches the recordings, and the folder it writes."""
    command = ["detect", str(work.recordings)]
    if model:
        if model not in {str(path) for path in list_models(work)}:
            raise ConfigError(f"{model}: holds no model that was trained here; choose one from the list")
        out = work.root / f"{Path(model).name}-found"
        return [*command, "--out", str(out), "--embed", "--model", model], out
    if sought == _WHOLE:
        highest_hz = contents.highest_hz(work.recordings)
        if not highest_hz:
            raise ConfigError(f"{work.recordings}: is still being read; wait until its hours are shown")
        band = f"{highest_hz:.0f}"
    elif sought in BANDS_HZ:
        band = sought
    else:
        raise ConfigError(f"{sought[:40]!r}: expected one of {', '.join(BANDS_HZ)}, {_WHOLE}")
    out = work.root / (sought if sought != _WHOLE else f"whole-{band}-Hz")
    return [*command, "--out", str(out), "--embed", "--band", band], out


def _summarize_command(folder: Path) -> list[str]:
    """The command that summarises what was found; no review is created if there is none."""
    if not (folder / STORE).is_file():
        return summary_command(folder, None)
    with closing(Store(folder / STORE)) as store:
        return summary_command(folder, store)


def _adapt_command(folder: Path) -> tuple[list[str], Path]:
    """The command that adapts a search's model to its recordings, and the folder it writes."""
    run, out = _read_search(folder), adapted_folder(folder)
    return ["adapt", run.root, "--model", run.model or "default", "--out", str(out), *_band_options(run)], out


def _band_options(run: DetectionRun) -> list[str]:
    """The options that make another command use the band that was searched."""
    return [] if run.band_hz is None else ["--band", f"{run.band_hz[1]:g}"]


def _read_search(folder: Path) -> DetectionRun:
    """The search behind a results folder."""
    run = read_run(folder)
    if run is None:
        raise ConfigError(f"{folder}: is not a folder that Find made; choose one")
    return run


def _learn_command(folder: Path, complete: bool, reviews: Reviews) -> tuple[list[str], Path]:
    """Write what was checked as a dataset; the command that learns from it, and the folder it writes."""
    run = _read_search(folder)
    review = reviews.review(folder)
    exported = export_folder(
        review.store, review.workspace, "csv", _CHECKED, complete=complete, learner=False
    )
    if not exported.events:
        raise ConfigError("nothing has been accepted yet; open the review and accept some boxes first")
    out = learned_folder(folder)
    command = ["fit", str(exported.path), "--init", run.model or "default", "--out", str(out)]
    command += _band_options(run)
    if run.options.box is not None:  # the way in which the checked boxes were drawn
        command += ["--box", run.options.box]
    if run.options.join_s is not None:
        command += ["--join", f"{run.options.join_s:g}"]
    return command, out
