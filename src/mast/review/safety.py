"""Which requests are allowed: only those with the token; none from other web pages; no large ones.

* Every request needs the token, or other users of the machine could send some. It is compared in constant time and kept
  in a cookie that other sites' requests do not carry.
* Bound to localhost, requests must also name a localhost ``Host``: a web page that points its own name at 127.0.0.1
  (DNS rebinding) does not get in.
* Writes must come from the page itself (``Origin``, ``Sec-Fetch-Site``).
* Bodies are limited, and every response forbids the browser to load from or send to anywhere else.
"""

from __future__ import annotations

import hmac
import json
import re
from html import escape
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.exceptions import HTTPException

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "mast_token"
MAX_BODY_BYTES = 64 * 1024  # the largest decision is a few hundred
_TOO_LARGE = f"more than {MAX_BODY_BYTES // 1024} kB were sent; expected one decision"
_PRIVATE = "this page is private; open the link that mast printed in the terminal when it was started"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
# a report holds its own pictures and styles, and may neither load anything nor act as our page
REPORT_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]


def is_loopback(host: str) -> bool:
    """Whether an address is reached only from this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0"), is_loopback("::1")
    (True, False, True)
    """
    return host.strip("[]").lower() in _LOOPBACK or bool(re.fullmatch(r"127(\.\d{1,3}){3}", host))


class Guard:
    """Stands in front of the application and lets only allowed requests through.

    Args:
        app: the application.
        token: every request must carry it.
        local_only: requests must also name this machine as their host.
    """

    def __init__(self, app: ASGIApp, *, token: str, local_only: bool) -> None:
        assert token, "without a token, every user of the machine could ask"
        self.app, self.token, self.local_only = app, token, local_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # no websockets here
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if (refused := self._refusal(scope, headers)) is not None:
            await _refuse(send, *refused, as_text="text/html" in headers.get("accept", ""))
            return
        if scope["method"] == "GET" and (place := self._url_without_token(scope)) is not None:
            cookie = (
                f"{_cookie_name(headers)}={self.token}; HttpOnly; SameSite=Strict; Path=/; Max-Age=2592000"
            )
            await _forward_with_cookie(send, place, cookie)
            return
        received = 0

        async def limited_receive() -> Message:
            nonlocal received
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > MAX_BODY_BYTES:
                    raise HTTPException(413, _TOO_LARGE)
            return message

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = message.get("headers", [])
                stated = {name.lower() for name, _ in own}
                more = [(name, value) for name, value in _HEADERS if name not in stated]
                message = {**message, "headers": [*own, *more]}
            await send(message)

        await self.app(scope, limited_receive, send_with_headers)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        """A status and a sentence if a request is not allowed."""
        host = headers.get("host", "")
        if self.local_only and _host_name(host) not in _LOOPBACK:
            return 403, "this page is only for this machine; open it as http://127.0.0.1 with its port"
        if not self._has_token(scope, headers):
            return 403, _PRIVATE
        if scope["method"] not in _SAFE_METHODS:
            origin = headers.get("origin")
            if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
                return 403, "changes are taken only from the page itself"
            if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
                return 403, "changes are taken only from the page itself"
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length[:18]) > MAX_BODY_BYTES:
            return 413, _TOO_LARGE
        return None

    def _has_token(self, scope: Scope, headers: dict[str, str]) -> bool:
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        given = [shown.strip()] if scheme.lower() == "bearer" else []
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(_cookie_name(headers))
            given += [cookie.value] if cookie is not None else []
        except CookieError:
            pass
        if scope["method"] == "GET" and scope["path"] == "/":
            given += [value for name, value in _query(scope) if name == "token"]
        return any(hmac.compare_digest(some.encode(), self.token.encode()) for some in given)

    def _url_without_token(self, scope: Scope) -> str | None:
        """The first page's address without its token, which should not stay in the browser's history."""
        query = _query(scope)
        if scope["path"] != "/" or not any(name == "token" for name, _ in query):
            return None
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        return f"/?{rest}" if rest else "/"


def _query(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)


def _host_name(host: str) -> str:
    """The name in a ``Host`` header, without its port."""
    match = re.fullmatch(r"\[([0-9a-fA-F:.]+)\](?::\d+)?|([^:\[\]]+)(?::\d+)?", host.strip())
    return "" if match is None else (match[1] or match[2]).lower()


def _cookie_name(headers: dict[str, str]) -> str:
    """The name of this server's own cookie: browsers do not tell the ports of a machine apart."""
    port = headers.get("host", "").rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isascii() and port.isdigit() else COOKIE


async def _refuse(send: Send, status: int, sentence: str, *, as_text: bool) -> None:
    """Answer with one sentence: as text to a person opening a page, as JSON to a page's own request."""
    if as_text:
        await _respond(send, status, b"text/plain; charset=utf-8", f"mast: {sentence}.".encode())
    else:
        await _respond(send, status, b"application/json", json.dumps({"error": sentence}).encode())


async def _forward_with_cookie(send: Send, place: str, cookie: str) -> None:
    """Set the cookie, and forward to a page.

    Not by a redirect: if the browser came from another page, such as the file that ``serve`` opens, it would follow
    the redirect without the strict cookie. From this page, it sends the cookie.
    """
    no_icon = '<link rel="icon" href="data:,">'  # or the browser requests one
    onward = f'<meta http-equiv="refresh" content="0; url={escape(place)}">'
    page = f"<!doctype html><title>mast</title>{no_icon}{onward}"
    headers = [(b"set-cookie", cookie.encode()), (b"cache-control", b"no-store")]
    await _respond(send, 200, b"text/html; charset=utf-8", page.encode(), headers)


async def _respond(
    send: Send, status: int, kind: bytes, body: bytes, more: list[tuple[bytes, bytes]] | None = None
) -> None:
    headers = [
        (b"content-type", kind),
        (b"content-length", str(len(body)).encode()),
        *(more or []),
        *_HEADERS,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
