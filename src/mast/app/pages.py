"""Reviews that are open, and the reports that commands wrote."""

from __future__ import annotations

import base64
import binascii
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool

from mast.annotations.detections import DETECTIONS, read_run
from mast.app.work import REPORT_PAGE, results_root
from mast.errors import ConfigError
from mast.jobs import Jobs
from mast.review.open_review import Review, open_review
from mast.review.records import NotFoundError
from mast.review.requests_summary import SUMMARY, SUMMARY_PAGE, report_file
from mast.review.server import review_app

if TYPE_CHECKING:
    from fastapi import FastAPI
    from fastapi.responses import FileResponse
    from starlette.types import Receive, Scope, Send

_PAGES = {"found": SUMMARY_PAGE, "summary": f"{SUMMARY}/{SUMMARY_PAGE}", "report": REPORT_PAGE}


class _OpenReview(NamedTuple):
    stamp: int
    review: Review
    app: FastAPI


class Reviews:
    """Reviews of results folders, each opened on the first request for it, below ``/review/KEY/``.

    Args:
        jobs: the commands that run.
    """

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._open: dict[Path, _OpenReview] = {}
        self._lock = threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the review that its address names."""
        folder = folder_from_key(scope["path_params"]["key"])
        found = await run_in_threadpool(self._get, folder)
        await found.app(scope, receive, send)

    def review(self, folder: Path) -> Review:
        """The review of a folder.

        Raises:
            ConfigError: it is not a results folder, or its recordings are not there.
        """
        return self._get(folder).review

    def _get(self, folder: Path) -> _OpenReview:
        with self._lock:
            stamp = _stamp(folder)
            known = self._open.get(folder)
            if known is not None and known.stamp == stamp:
                return known
            # searched again since: the new tables are read, and decisions stay
            review = open_review(folder)
            if known is not None:
                known.review.close()
            self._open[folder] = _OpenReview(
                stamp, review, review_app(review, self._jobs, home=_home_url(folder))
            )
            return self._open[folder]

    def close(self) -> None:
        """Close all reviews."""
        with self._lock:
            for one in self._open.values():
                one.review.close()
            self._open.clear()


def _home_url(folder: Path) -> str:
    """The first page, at the recordings of a results folder; at the folder itself where it lies elsewhere."""
    run = read_run(folder)
    recordings = Path(run.root) if run is not None else folder
    chosen = recordings if results_root(recordings) == folder.parent else folder
    return f"../../#folder={quote(str(chosen), safe='')}"


def folder_key(folder: Path) -> str:
    """A folder as part of an address."""
    return base64.urlsafe_b64encode(os.fsencode(folder)).decode().rstrip("=")


def folder_from_key(key: str) -> Path:
    """The folder that an address names.

    Raises:
        NotFoundError: it names none.
    """
    try:
        folder = Path(os.fsdecode(base64.urlsafe_b64decode(key + "=" * (-len(key) % 4))))
    except (ValueError, binascii.Error):
        raise NotFoundError("there is no such review; open it from the first page") from None
    if not folder.is_absolute() or "\0" in str(folder) or not (folder / DETECTIONS).is_file():
        raise NotFoundError("there is nothing to review in this folder; open it from the first page")
    return folder


def report_page(folder: Path, which: str) -> FileResponse:
    """A page that a command wrote into its folder.

    Raises:
        ConfigError: there is none.
    """
    name = _PAGES.get(which)
    if name is None:
        raise ConfigError(f"{which[:40]!r}: expected one of {', '.join(_PAGES)}")
    return report_file(folder / name)


def _stamp(folder: Path) -> int:
    try:
        return (folder / DETECTIONS).stat().st_mtime_ns
    except OSError:
        raise ConfigError(f"{folder}: nothing has been found here yet; let Find finish first") from None
