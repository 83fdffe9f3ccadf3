"""Hostile requests to an open review: every answer is a result or one sentence, and the server stays up.

python -m scripts.attacks.requests --count 1000
"""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import subprocess
import tempfile
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

from scripts.attacks.commands import ENV, MAST, prepare
from scripts.attacks.summary import Summary, parser

NUMBERS = [
    *(
        "0",
        "-1",
        "1",
        "1.5",
        "nan",
        "inf",
        "-inf",
        "1e300",
        "-1e300",
        "1e400",
        "1e-320",
        "0x10",
        "",
        " ",
        "abc",
    ),
    *("%00", "1;2", "true", "null", "\u0661", "1_000", "+5", "9" * 5_000),
    *map(str, (2**63, 2**63 - 1, -(2**63) - 1)),
]
TEXTS = [
    *(
        "",
        " ",
        "a",
        "%",
        "_",
        "' OR 1=1 --",
        "\0",
        "\x1b[2J",
        "x" * 250,
        "x" * 100_000,
        "../../etc/passwd",
        "..",
    ),
    *(".", "/", "CON", "a\nb", "\u202e", "\N{PARROT}" * 60, "<script>", "=1+1"),
]
VALUES = [
    *(
        0,
        -1,
        1,
        0.5,
        2**63,
        -(2**63) - 1,
        10**400,
        1e300,
        -1e300,
        1e-320,
        True,
        False,
        None,
        [],
        {},
        [[[]]],
        {"a": 1},
    ),
    *TEXTS,
]
BODIES = [
    *(
        b"",
        b"{",
        b"[" * 60_000,
        b'{"a":' * 9_000,
        b"\xff\xfe",
        b'{"start_s": NaN}',
        b"9" * 60_000,
        b"x" * 70_000,
    ),
    b'{"start_s": 1e999}',
]
HEADERS = [
    *(("X-Reviewer", "%00"), ("X-Reviewer", "x" * 5_000), ("X-Reviewer", "%ED%A0%80")),
    *(("Range", f"bytes={'9' * 19}-"), ("Range", "bytes=-0"), ("Range", "bytes=5-2,7-8")),
]


class Server:
    """`mast review` in its own process."""

    def __init__(self, folder: Path) -> None:
        words = [*MAST, "review", str(folder), "--port", "0", "--no-browser", "--quiet"]
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 (open as long as the server)
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=self._said, text=True, env=ENV)
        assert self._process.stdout is not None
        link = re.search(r"(http://[^/]+/)\?token=(\S+)", self._process.stdout.readline())
        assert link is not None, "the server did not say where it is"
        self.address, self.token = link[1], link[2]

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        raw: bytes | None = None,
        headers: tuple[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Send a request; returns status and content, with status 0 if there was no answer."""
        data = raw if raw is not None or body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.address}api/{path}", data=data, method=method)
        for name, value in (
            ("Content-Type", "application/json"),
            ("X-Reviewer", "Eve"),
            ("Authorization", f"Bearer {self.token}"),
            *([headers] if headers else []),
        ):
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError as error:
            return 0, repr(error).encode()

    def close(self) -> str:
        """Stop the server; returns what it printed on its terminal."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.seek(0)
        return self._said.read()


def find_fault(status: int, content: bytes) -> str:
    """What is wrong with an answer; empty if nothing is."""
    if status == 0 or status >= 500:
        return f"answered {status}: {content[:120]!r}"
    if status < 400:
        return ""
    try:
        sentence = json.loads(content)["error"]
    except (ValueError, LookupError, TypeError):
        return f"no sentence: {content[:120]!r}"
    return "" if len(sentence) <= 450 and "\n" not in sentence else f"no plain sentence: {sentence[:120]}"


def random_request(rng: random.Random, event: str) -> tuple[str, str, Any]:
    """A request: method, path, body."""

    def number() -> str:
        return quote(rng.choice(NUMBERS))

    def text() -> str:
        return quote(rng.choice(TEXTS))

    def value() -> object:
        return rng.choice(VALUES)

    recording = quote(rng.choice(["1", "1", "1", *NUMBERS]))
    span = f"start_s={number()}&end_s={number()}"
    band = f"low_hz={number()}&high_hz={number()}"
    order = rng.choice(["uncertain", "novel", "random", "score", "time", "x"])
    corners = ("start_s", "end_s", "low_hz", "high_hz", "label")
    choices: list[tuple[str, str, Any]] = [
        ("GET", f"recordings/{recording}{rng.choice(['', '/events', '/audio'])}", None),
        (
            "GET",
            f"recordings/1/tile?{span}&{band}&width={number()}&height={number()}&floor_db={number()}",
            None,
        ),
        ("GET", f"recordings/1/tile?start_s=0&end_s=1&{band}", None),
        ("GET", f"recordings/1/clip?start_s=0&end_s=1&{band}&speed={number()}", None),
        ("GET", f"recordings/1/clip?{span}&gain_db={number()}", None),
        ("GET", f"recordings/1/events?{span}&limit={number()}", None),
        (
            "GET",
            f"recordings?site={text()}&day={text()}&hour={number()}&search={text()}&offset={number()}",
            None,
        ),
        ("GET", f"queue?order={order}&after={text()}&min_score={number()}&limit={number()}", None),
        ("GET", f"progress?site={text()}&day={text()}&hour={number()}&min_score={number()}", None),
        ("GET", f"events/{rng.choice([text(), event])}/similar?k={number()}", None),
        ("POST", f"recordings/{recording}/events", {key: value() for key in corners}),
        ("POST", "recordings/1/events", {"start_s": 0, "end_s": value(), "low_hz": 0, "high_hz": value()}),
        ("PATCH", f"events/{event}", {"version": value(), rng.choice(["label", "status", "x"]): value()}),
        ("PATCH", f"events/{text()}", {"version": 0}),
        ("DELETE", f"events/{event}?version={number()}", None),
        (
            "POST",
            f"recordings/{recording}/reviewed",
            {key: value() for key in ("start_s", "end_s", "reviewed")},
        ),
        ("POST", "export", {"format": rng.choice(["csv", "raven", value()]), "folder": value()}),
        (*(("POST", rng.choice(["undo", "redo"]))), value()),
    ]
    return rng.choice(choices)


def main() -> None:
    """Send requests, and judge every answer."""
    options = parser(__doc__, count=1_000).parse_args()
    summary = Summary(options.summary)

    def judge(what: str, answer: tuple[int, bytes]) -> None:
        if why := find_fault(*answer):
            summary.add_failure(what[:160], why)
        else:
            summary.add_pass(what[:160], "answered" if answer[0] < 400 else "refused")

    with tempfile.TemporaryDirectory() as folder:
        toy = prepare(Path(folder))
        shutil.copytree(toy.found, Path(folder) / "review")
        server = Server(Path(folder) / "review")
        events = json.loads(server.ask("GET", "recordings/1/events")[1])["events"]
        event = str(events[0]["id"]) if events else "none"
        for k in range(options.count):
            method, path, body = random_request(random.Random(f"{options.seed}/{k}"), event)
            judge(f"{method} {path} {body if body is not None else ''}", server.ask(method, path, body))
        for raw in BODIES:
            judge(f"body {raw[:20]!r}", server.ask("POST", "recordings/1/events", raw=raw))
        for header in HEADERS:
            judge(f"header {header}", server.ask("GET", "recordings/1/audio", headers=header))
        with ThreadPoolExecutor(8) as pool:
            same = {"format": "csv", "folder": "same"}
            for answer in pool.map(lambda _: server.ask("POST", "export", same), range(40)):
                judge("exports to one name at once", answer)
        if "Traceback" in (said := server.close()):
            summary.add_failure("the server's terminal", said.strip().splitlines()[-1][:200])
    summary.write()


if __name__ == "__main__":
    main()
