"""Pictures and sound, made on request."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from mast.errors import AudioError
from mast.review.decisions import InvalidError
from mast.review.open_review import Review
from mast.review.requests_read import NumberQuery
from mast.review.sound import (
    MAX_CLIP_S,
    MAX_SPEED,
    MIN_SPEED,
    Clip,
    Wav,
    open_wav,
    parse_range,
    render_clip,
)
from mast.review.tiles import MAX_HEIGHT, MAX_SPAN_S, MAX_WIDTH, View, render_tile
from mast.spans import TimeSpan

_RENDERER = 1  # to be changed when the same view should look different
_CONCURRENT = max(2, min(4, os.cpu_count() or 2))  # tiles and clips made at once: each takes some 30 MB
_CLIENT_CLOSED = 499  # nobody waits for the answer any more
Edge = Annotated[float | None, Query(allow_inf_nan=False, ge=0, le=1e7)]  # of a band, in hertz


def media_routes(review: Review) -> APIRouter:
    """The routes, on one review."""
    router = APIRouter()
    limiter = anyio.CapacityLimiter(_CONCURRENT)

    async def run_in_turn(request: Request, function: Any, *arguments: Any) -> Any:
        """Do the work in turn, and not at all if the browser has scrolled on meanwhile."""
        async with limiter:
            if await request.is_disconnected():
                return None
            try:
                return await run_in_threadpool(function, *arguments)
            except AudioError as error:
                raise review.hide_root(error) from error

    @router.get("/recordings/{rid}/tile")
    async def tile(
        request: Request,
        rid: int,
        start_s: NumberQuery,
        end_s: NumberQuery,
        low_hz: Annotated[float, Query(allow_inf_nan=False, ge=0)] = 0.0,
        high_hz: Annotated[float, Query(allow_inf_nan=False, gt=0, le=1e7)] = 24_000.0,
        width: Annotated[int, Query(ge=1, le=MAX_WIDTH)] = 512,
        height: Annotated[int, Query(ge=1, le=MAX_HEIGHT)] = 256,
        floor_db: Annotated[float, Query(ge=-300, le=100)] = -90.0,
        range_db: Annotated[float, Query(ge=1, le=300)] = 60.0,
        colours: Literal["magma", "grey", "viridis"] = "magma",
    ) -> Response:
        if not 0 < end_s - start_s <= MAX_SPAN_S or not 0 <= start_s <= 1e8 or not low_hz < high_hz:
            raise InvalidError(
                f"a picture from {start_s:g} to {end_s:g} s and {low_hz:g} to {high_hz:g} Hz: expected start before "
                f"end, at most {MAX_SPAN_S:g} s, and low below high"
            )
        view = View(start_s, end_s, low_hz, high_hz, width, height, floor_db, range_db, colours)
        path = await run_in_threadpool(review.path_of, rid)
        key = (rid, _file_stamp(path), view)
        headers = {
            "ETag": _etag(_RENDERER, key),
            "Cache-Control": "private, max-age=3600",
        }
        if headers["ETag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        picture = review.tiles.get(key)
        if picture is None:
            picture = await run_in_turn(request, render_tile, path, view)
            if picture is None:
                return Response(status_code=_CLIENT_CLOSED)
            review.tiles.put(key, picture)
        return Response(picture, media_type="image/png", headers=headers)

    @router.get("/recordings/{rid}/clip")
    async def clip(
        request: Request,
        rid: int,
        start_s: NumberQuery,
        end_s: NumberQuery,
        low_hz: Edge = None,
        high_hz: Edge = None,
        speed: Annotated[float, Query(ge=MIN_SPEED, le=MAX_SPEED)] = 1.0,
        gain_db: Annotated[float, Query(ge=-60, le=60)] = 0.0,
    ) -> Response:
        if not 0 < end_s - start_s <= MAX_CLIP_S or (
            low_hz is not None and high_hz is not None and low_hz >= high_hz
        ):
            raise InvalidError(
                f"a clip from {start_s:g} to {end_s:g} s: expected start before end, at most {MAX_CLIP_S:g} s, and low "
                "below high"
            )
        path = await run_in_threadpool(review.path_of, rid)
        silent = await run_in_threadpool(review.silent_spans, rid)
        wanted = Clip(start_s, end_s, low_hz, high_hz, speed, gain_db)
        headers = _revalidated_headers(rid, path, silent, wanted)
        if headers["ETag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        sound = await run_in_turn(request, render_clip, path, wanted, silent)
        if sound is None:
            return Response(status_code=_CLIENT_CLOSED)
        return Response(sound, media_type="audio/wav", headers=headers)

    @router.api_route("/recordings/{rid}/audio", methods=["GET", "HEAD"])
    async def audio(request: Request, rid: int) -> Response:
        path = await run_in_threadpool(review.path_of, rid)
        silent = await run_in_threadpool(review.silent_spans, rid)
        wav: Wav | None = await run_in_turn(request, open_wav, path, silent)
        if wav is None:
            return Response(status_code=_CLIENT_CLOSED)
        wanted = parse_range(request.headers.get("range"), wav.size)
        first, stop = wanted or (0, wav.size)
        headers = {
            "Accept-Ranges": "bytes",
            "Content-Length": str(stop - first),
            **_revalidated_headers(rid, path, silent),
        }
        if wanted is not None:
            headers["Content-Range"] = f"bytes {first}-{stop - 1}/{wav.size}"
        status = 206 if wanted is not None else 200
        if request.method == "HEAD":
            return Response(status_code=status, headers=headers, media_type="audio/wav")
        return StreamingResponse(wav.bytes_between(first, stop), status, headers, "audio/wav")

    return router


def _revalidated_headers(rid: int, path: Path, silent: tuple[TimeSpan, ...], *more: Clip) -> dict[str, str]:
    """Headers of sound: the browser caches it but revalidates it each time, as speech may have been found since."""
    return {"Cache-Control": "private, no-cache", "ETag": _etag(rid, _file_stamp(path), silent, *more)}


def _etag(*parts: Any) -> str:
    """An ETag for a response, made from what it depends on."""
    return f'"{blake2b(repr(parts).encode(), digest_size=12).hexdigest()}"'


def _file_stamp(path: Path) -> tuple[int, int]:
    """Changes when the file does."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size
