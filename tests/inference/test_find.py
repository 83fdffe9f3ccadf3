"""Models by name: the one that ships, those on a hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub
import pytest
from random_detector import save_detector, write_sound

import mast
from mast.errors import MastError
from mast.models import find
from mast.models.find import absolute_name, find_model, is_model_name

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_a_run_is_its_best_and_a_model_folder_itself(model: Path) -> None:
    for name in (model, str(model), model / "best", str(model / "best")):
        assert find_model(name) == model / "best"
        assert is_model_name(name)
        assert absolute_name(name) == str(model / "best")
    assert is_model_name("default")
    assert absolute_name("default") == "default"
    assert absolute_name("hf://owner/name") == "hf://owner/name"


def test_no_model_is_the_same_sentence_for_all(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, found in (("", "holds no model"), ("none", "no such folder"), ("file", "is a file")):
        with pytest.raises(MastError, match=rf"{found}; expected default .*, a run .*, hf://owner/name$"):
            find_model(tmp_path / name)
    assert find_model(tmp_path / "file", or_file=True) == tmp_path / "file"
    with pytest.raises(MastError, match=r"hf://owner/name, a file such as pretrained\.pth$"):
        find_model(tmp_path, or_file=True)


def test_a_run_that_has_not_finished_is_called_one(tmp_path: Path) -> None:
    kinds = {"detector": "train", "pretrain": "pretrain", "selftrain": "selftrain", "adapted": "adapt"}
    for kind, command in kinds.items():
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "recipe.json").write_text(json.dumps({"kind": kind, "recipe": {}}))
        told = f"{kind}: mast {command} has not finished there; if it was stopped, run it again$"
        with pytest.raises(MastError, match=told):
            find_model(tmp_path / kind)
    (tmp_path / "fit" / "stages").mkdir(parents=True)
    with pytest.raises(MastError, match="fit: mast fit has not finished there"):
        find_model(tmp_path / "fit")
    (tmp_path / "cake").mkdir()
    for text in ("", "[]", '{"kind": "cake"}'):
        (tmp_path / "cake" / "recipe.json").write_text(text)
        with pytest.raises(MastError, match="cake: holds no model"):
            find_model(tmp_path / "cake")


def test_the_model_that_ships(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "_pretrained", lambda: tmp_path)
    with pytest.raises(
        MastError, match=r"no model ships with this copy of mast .*default/model\.safetensors is missing"
    ):
        mast.load("default")
    save_detector(tmp_path / "default", threshold=0.4)
    detector = mast.load(device="cpu")
    assert detector.scores.raw_threshold == 0.4
    assert len(detector.detect(write_sound(tmp_path / "a.wav", 4)))
    assert (
        mast.load(Path("default"), device="cpu").model_id == detector.model_id
    )  # as the command line gives it


def test_a_folder_of_ones_own_called_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_detector(tmp_path / "default" / "best")
    assert find_model(Path("default")) == Path("default/best")
    assert find_model("./default") == Path("default/best")
    assert find_model("default") != Path(
        "default/best"
    )  # nobody's folder takes the place of the model that ships


@pytest.mark.parametrize(
    "name", ["hf://", "hf://owner", "hf://owner/name/more", "hf://owner/na me", "hf:owner/name"]
)
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(MastError, match="expected hf://owner/name"):
        find_model(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hf://owner/some-model.v1", ("owner/some-model.v1", None)),
        ("hf://owner/name@refs/pr/1", ("owner/name", "refs/pr/1")),
        (Path("hf://owner/name@v2"), ("owner/name", "v2")),  # a path has lost one of the slashes
    ],
)
def test_only_weights_and_card_are_asked_for(
    model: Path, monkeypatch: pytest.MonkeyPatch, name: str | Path, expected: tuple[str, str | None]
) -> None:
    asked: list[tuple[str, str | None]] = []

    def give(repository: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append((repository, revision))
        assert sorted(allow_patterns) == ["model.json", "model.safetensors"]
        return str(model / "best")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", give)
    assert find_model(name) == model / "best"
    assert asked == [expected]


def test_a_repository_without_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(tmp_path))
    with pytest.raises(MastError, match=r"hf://a/b: holds no model\.safetensors and no model\.json"):
        find_model("hf://a/b")


def test_a_download_that_breaks_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object, **__: object) -> str:
        raise RuntimeError("peer closed connection\nand much more")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", breaks)
    with pytest.raises(MastError, match=r"cannot be downloaded \(peer closed connection\); try again"):
        find_model("hf://a/b")


class FakeHub(BaseHTTPRequestHandler):
    """One repository, me/birds, with more in it than a model needs."""

    files: dict[str, bytes]
    given: list[str]

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        here = f"/api/models/me/birds/tree/{COMMIT}"
        if path in ("/api/models/me/birds", "/api/models/me/birds/revision/main"):
            siblings = [{"rfilename": name} for name in self.files]
            self.answer(json.dumps({"id": "me/birds", "sha": COMMIT, "siblings": siblings}).encode())
        elif path == here:
            rows = [
                {"type": "file", "path": name, "size": len(content), "oid": f"{i:040x}"}
                for i, (name, content) in enumerate(self.files.items())
            ]
            self.answer(json.dumps(rows).encode())
        elif path.startswith("/me/birds/resolve/") and path.rsplit("/", 1)[1] in self.files:
            name = path.rsplit("/", 1)[1]
            self.given.append(name)
            self.answer(self.files[name], tag=f'"{list(self.files).index(name):040x}"')
        elif "/me/birds" in path:
            self.answer(b"{}", status=404, error="RevisionNotFound")
        else:
            self.answer(b"{}", status=404, error="RepoNotFound")

    def answer(self, content: bytes, *, tag: str = "", status: int = 200, error: str = "") -> None:
        self.send_response(status)
        headers = {
            "Content-Length": str(len(content)),
            "X-Repo-Commit": COMMIT,
            "ETag": tag,
            "X-Error-Code": error,
        }
        for key, value in headers.items():
            if value:
                self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint(model: Path) -> Iterator[str]:
    FakeHub.files = {path.name: path.read_bytes() for path in (model / "best").iterdir()}
    FakeHub.files["huge.bin"] = b"not needed"
    FakeHub.given = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeHub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_from_a_hub_then_from_the_cache_then_nowhere(model: Path, tmp_path: Path, endpoint: str) -> None:
    """With the hub's own library in a process of its own, which knows where its hub is from the start."""

    def ask(*names: str, where: str, cache: str = "cache") -> list[str]:
        code = (
            "import sys; from mast.models.find import find_model; from mast.errors import MastError\n"
            "for name in sys.argv[1:]:\n"
            "    try: print(sorted(p.name for p in find_model(name).iterdir()))\n"
            "    except MastError as error: print(error)"
        )
        environment = os.environ | {"HF_ENDPOINT": where, "HF_HOME": str(tmp_path / cache)}
        for proxy in ("http_proxy", "https_proxy", "all_proxy"):
            environment.pop(proxy, None)
            environment.pop(proxy.upper(), None)
        environment |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1"}
        done = subprocess.run(
            [sys.executable, "-c", code, *names], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.strip().split("\n")

    files = "['model.json', 'model.safetensors']"
    found, revision, missing = ask("hf://me/birds", "hf://me/birds@v9", "hf://me/fish", where=endpoint)
    assert found == files
    assert set(FakeHub.given) == {"model.json", "model.safetensors"}
    assert "no revision v9" in revision
    assert "no such model on the hub" in missing
    nobody = "http://127.0.0.1:9"
    assert ask("hf://me/birds", where=nobody) == [files]
    (told,) = ask("hf://me/birds", where=nobody, cache="empty")  # one line
    assert "is not on this machine and the hub cannot be reached" in told
