"""The socket that the server listens at."""

from __future__ import annotations

import asyncio
import socket

import pytest

from mast.errors import ConfigError
from mast.review.serve import _listen


def test_answers_are_sent_at_once() -> None:
    """Where the kernel may gather short answers, each of them waits for the browser's acknowledgement: 40 ms."""

    async def ask() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            line = writer.get_extra_info("socket")
            found.set_result(line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listening = _listen("127.0.0.1", 0)
        async with await asyncio.start_server(on_connection, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            delay = await asyncio.wait_for(found, 30)
            writer.close()
        return delay

    assert asyncio.run(ask()) != 0


def test_a_port_that_is_taken() -> None:
    with _listen("127.0.0.1", 0) as first, pytest.raises(ConfigError, match="is taken"):
        _listen("127.0.0.1", first.getsockname()[1])
