"""`mast review`, as a user starts and stops it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import httpx
import pandas as pd
import pytest
import soundfile as sf
import uvicorn
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from mast.classifiers import voices
from mast.cli.main import app, main
from mast.review import serve


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    sf.write(tmp_path / "S1_20240501_060000.wav", [0.0, 0.1] * 8_000, 16_000)
    table = {
        "file": ["S1_20240501_060000.wav"],
        "start_s": [0.1],
        "end_s": [0.4],
        "low_hz": [10],
        "high_hz": [99],
    }
    pd.DataFrame({**table, "label": ["wren"]}).to_csv(tmp_path / "boxes.csv", index=False)
    return tmp_path


def start(*arguments: str) -> subprocess.Popen[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "BROWSER": "false"}
    return subprocess.Popen(
        [sys.executable, "-m", "mast.cli.main", "review", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    match = re.search(r"http://\S+", line)
    assert match is not None, line + (process.stderr.read() if process.stderr else "")
    return match[0]


def test_it_prints_its_address_answers_and_stops(dataset: Path) -> None:
    process = start(str(dataset), "--port", "0", "--no-browser", "--quiet")
    address = address_of(process)
    assert address.startswith("http://127.0.0.1:")
    with httpx.Client(timeout=60) as browser:
        session_url = httpx.URL(address).join("/api/session")
        assert browser.get(session_url).status_code == 403  # anybody on this machine
        assert browser.get(address).status_code == 200  # the link that was printed
        session = browser.get(session_url).json()
    assert (session["recordings"], session["labels"], session["sites"]) == (1, ["wren"], ["S1"])
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode in (0, 130, -signal.SIGINT)
    assert (dataset / "review.sqlite").is_file()


@pytest.mark.parametrize(
    ("options", "elsewhere"),
    [([], 403), (["--host", "0.0.0.0"], 200), (["--token", "our-own-token-for-the-proxy"], 200)],
    ids=["this machine", "all addresses", "own token"],
)
def test_it_needs_its_token_and_knows_its_name(
    dataset: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], elsewhere: int
) -> None:
    """In this process: what the command would run is asked, instead of being run."""
    running: list[uvicorn.Server] = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: running.append(self))
    told = CliRunner().invoke(app, ["review", str(dataset), "--port", "0", "--no-browser", *options])
    assert told.exit_code == 0, told.exception
    token = re.search(r":\d+/\?token=([\w-]{20,})", told.output)[1]  # type: ignore[index]
    here = TestClient(running[0].config.app, base_url="http://127.0.0.1")
    assert here.get("/api/session").status_code == 403
    shown = {"Authorization": f"Bearer {token}"}
    assert here.get("/api/session", headers=shown).status_code == 200
    # the same machine by another name: a page that points its own name here, or a colleague
    assert here.get("/api/session", headers={**shown, "Host": "station"}).status_code == elsewhere


def test_mistakes_are_one_sentence(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module, name in ((threading, "excepthook"), (warnings, "formatwarning")):
        monkeypatch.setattr(module, name, getattr(module, name))  # main puts its own there
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for arguments, said in (
            ((str(dataset), "--port", port, "--no-browser"), f"port {port} is taken"),
            ((str(tmp_path / "none"),), "no such folder"),
            ((str(dataset), "--audio", str(tmp_path / "none")), "--audio"),
        ):
            monkeypatch.setattr(sys, "argv", ["mast", "review", *arguments, "--quiet"])
            with pytest.raises(SystemExit) as ended:
                main()
            assert ended.value.code == 2
            errors = capsys.readouterr().err
            assert said in errors
            assert len(errors.strip().splitlines()) == 1


def test_opening_the_page_needs_no_torch(dataset: Path) -> None:
    code = (
        "import sys; from mast.review.open_review import open_review; from mast.review.server import create_app\n"
        "create_app(open_review(sys.argv[1]), token='x', local_only=True)\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(dataset)]).returncode == 0


def test_speech_is_searched_for_first_and_silenced(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pretended:
        def __call__(self, path: Path, start_s: float, end_s: float) -> list[tuple[float, float]]:
            return [(0.25, 0.5)]

    opened = []
    monkeypatch.setattr(voices, "VoiceFinder", Pretended)
    monkeypatch.setattr(serve, "serve", lambda make, **_: opened.append(make("secret")))
    result = CliRunner().invoke(app, ["review", str(dataset), "--no-voices", "--no-browser"])
    assert result.exit_code == 0, result.exception
    assert (dataset / "voices.csv").read_text() == "recording,start_s,end_s\nS1_20240501_060000.wav,0.0,1.0\n"
    told = f"Speech is silenced on the page: 1 stretch in 1 recording ({dataset / 'voices.csv'})"
    assert told in result.stderr
    page = TestClient(opened[0], base_url="http://localhost", headers={"Authorization": "Bearer secret"})
    clip = page.get("/api/recordings/1/clip?start_s=0.25&end_s=0.5")
    assert clip.status_code == 200
    assert not any(clip.content[44:])
