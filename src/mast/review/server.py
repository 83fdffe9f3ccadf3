"""The application: the page, the groups of requests, and what all our pages share, such as errors as one sentence."""

from __future__ import annotations

import logging
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.staticfiles import StaticFiles

from mast.audio import DamagedAudioWarning
from mast.errors import RUN_AGAIN, AudioError, MastError, machine_fault, shorten
from mast.jobs import Jobs
from mast.review.decisions import ConflictError
from mast.review.learning import TooFewDecisionsError
from mast.review.lookalikes import NoEmbeddingError
from mast.review.open_review import Review
from mast.review.records import NotFoundError
from mast.review.requests_media import media_routes
from mast.review.requests_read import reading_routes
from mast.review.requests_summary import summary_routes
from mast.review.requests_write import writing_routes
from mast.review.safety import Guard
from mast.review.sound import RangeError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

STATIC = Path(__file__).parent / "static"
_log = logging.getLogger("mast.review")


def create_app(review: Review, *, token: str, local_only: bool) -> ASGIApp:
    """The review as a web application.

    Args:
        review: what is open.
        token: every request must carry it.
        local_only: requests must also name this machine as their host.
    """
    return Guard(review_app(review, Jobs()), token=token, local_only=local_only)


def review_app(review: Review, jobs: Jobs, *, home: str = "") -> FastAPI:
    """The same without the guard, for an application that has its own.

    Args:
        review: what is open.
        jobs: the commands that run.
        home: address of the page that the review was opened from, relative to the review; empty if there is none.
    """
    warnings.filterwarnings("ignore", category=DamagedAudioWarning)  # the page says so

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        review.close()

    app = web_app("mast review", lifespan)
    app.include_router(reading_routes(review, home=home), prefix="/api")
    app.include_router(writing_routes(review), prefix="/api")
    app.include_router(media_routes(review), prefix="/api")
    app.include_router(summary_routes(review, jobs), prefix="/api")

    @app.get("/")
    def page() -> FileResponse:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    return app


def web_app(title: str, lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]]) -> FastAPI:
    """An application with the files that our pages share, and errors as one sentence."""
    # no interactive documentation: it would load scripts from elsewhere
    app = FastAPI(title=title, openapi_url=None, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.mount("/static", PageFiles(directory=STATIC), name="static")
    app.add_exception_handler(MastError, _on_mast_error)
    app.add_exception_handler(OSError, _on_os_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_bug)
    return app


class PageFiles(StaticFiles):
    """A page's files, revalidated each time: after an update, old and new files must not be mixed."""

    def file_response(self, *args: Any, **more: Any) -> Any:
        """A file, with the header that makes the browser revalidate it."""
        response = super().file_response(*args, **more)
        response.headers["Cache-Control"] = "no-cache"
        return response


def _error_response(status: int, sentence: str, **more: Any) -> JSONResponse:
    return JSONResponse({"error": shorten(sentence), **more}, status_code=status)


def _on_mast_error(request: Request, error: Exception) -> JSONResponse:
    """An expected error: its own sentence."""
    if isinstance(error, ConflictError):
        return _error_response(409, str(error), **({"event": error.event} if error.event else {}))
    if isinstance(error, NoEmbeddingError | TooFewDecisionsError):
        return _error_response(409, str(error))
    if isinstance(error, NotFoundError):
        return _error_response(404, str(error))
    if isinstance(error, RangeError):
        answer = _error_response(416, str(error))
        answer.headers["Content-Range"] = f"bytes */{error.size}"
        return answer
    if isinstance(error, AudioError):
        return _error_response(422, str(error))
    return _error_response(400, str(error))


def _on_os_error(request: Request, error: Exception) -> JSONResponse:
    """The disk is full, or the like: nothing was saved, and the page keeps the decision until it can be."""
    fault = machine_fault(error)
    return _on_bug(request, error) if fault is None else _error_response(507, fault.removesuffix(RUN_AGAIN))


def _on_invalid(request: Request, error: Exception) -> JSONResponse:
    """A parameter that is missing or makes no sense."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    return _error_response(400, f"{first['loc'][-1]}: {first['msg']}")


def _on_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    plain = {404: "there is no such page", 405: "this cannot be done here"}
    return _error_response(error.status_code, plain.get(error.status_code, str(error.detail)))


def _on_bug(request: Request, error: Exception) -> JSONResponse:
    """A bug of ours: the traceback goes to the terminal, not to the browser."""
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _error_response(500, "something went wrong in mast; the terminal where it runs says what")
