"""The application behind `mast app`: its page, its requests, and the reviews that it opens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.responses import FileResponse

from mast.app.contents import Contents
from mast.app.pages import Reviews
from mast.app.requests import routes
from mast.jobs import Jobs
from mast.review.safety import Guard
from mast.review.server import PageFiles, web_app

if TYPE_CHECKING:
    from starlette.types import ASGIApp

STATIC = Path(__file__).parent / "static"


def create_window(first: Path | None = None, *, token: str) -> ASGIApp:
    """The application; it starts commands and reads folders, so every request needs the token.

    Args:
        first: the folder to open with, if any.
        token: every request must carry it.
    """
    jobs = Jobs()
    reviews = Reviews(jobs)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        reviews.close()  # running commands are left to finish

    app = web_app("mast", lifespan)
    app.include_router(routes(first, Contents(), jobs, reviews), prefix="/api")

    @app.get("/")
    def page() -> FileResponse:
        return FileResponse(STATIC / "app.html", headers={"Cache-Control": "no-cache"})

    app.mount("/window", PageFiles(directory=STATIC), name="window")
    app.mount("/review/{key}", reviews, name="review")
    return Guard(app, token=token, local_only=True)
