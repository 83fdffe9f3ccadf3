"""Run the server, and open it in the browser."""

from __future__ import annotations

import atexit
import secrets
import shutil
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from mast.errors import ConfigError
from mast.files import write_atomic

if TYPE_CHECKING:
    from starlette.types import ASGIApp


def serve(
    create: Callable[[str], ASGIApp],
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = None,
    browser: bool = True,
    say: Callable[[str], None] = print,
) -> None:
    """Serve a page until it is stopped.

    Args:
        create: makes the application, given the token that requests must carry.
        host: the address to listen on.
        port: the port to listen on; 0 takes any that is free.
        token: requests must carry it; generated if not given.
        browser: open the page.
        say: called with the address.

    Raises:
        ConfigError: the port is taken, or the address is not this machine's.
    """
    import uvicorn

    secret = token or secrets.token_urlsafe(24)
    listening = _listen(host, port)
    shown = _browser_host(host)
    address = f"http://{shown}:{listening.getsockname()[1]}/?token={quote(secret, safe='')}"
    config = uvicorn.Config(
        create(secret), log_level="warning", access_log=False, timeout_graceful_shutdown=2,
        server_header=False,
    )  # fmt: skip
    server = uvicorn.Server(config)
    say(address)
    if browser:
        # once the server answers: it listens already, so a moment is enough
        threading.Timer(0.5, webbrowser.open, [_private_page(address)]).start()
    try:
        server.run(sockets=[listening])
    finally:
        listening.close()


def _private_page(address: str) -> str:
    """A page that only its owner can read and that forwards to an address.

    Everybody on a machine can see the address with which a browser is started, and so would see the token.
    """
    page = Path(tempfile.mkdtemp(prefix="mast-")) / "open.html"  # a folder that only its owner can open
    atexit.register(shutil.rmtree, page.parent, ignore_errors=True)
    write_atomic(
        page, f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(address)}">'.encode()
    )
    return page.as_uri()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # explicitly TCP, or asyncio lets the kernel delay each short answer by some 40 ms
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host.strip("[]"), port))
        listening.listen(128)
    except (OSError, OverflowError) as error:
        listening.close()
        if isinstance(error, OSError) and error.errno in (98, 48, 10048):  # Linux, macOS, Windows
            raise ConfigError(
                f"port {port} is taken, perhaps by another page of mast; choose another with --port, or 0 for any"
            ) from None
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"cannot listen on {host}:{port} ({reason}); check --host and --port") from None
    return listening


def _browser_host(host: str) -> str:
    """An address that a browser can open: this machine's name if the server listens on all of its addresses."""
    if host in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host.strip('[]')}]" if ":" in host else host
