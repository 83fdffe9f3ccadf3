"""A model has the same names in every command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import get_type_hints

import pytest
from typer.testing import CliRunner, Result

from mast.cli.main import SUMMARIES, app, load_command
from mast.errors import MastError
from mast.models import find
from mast.models.card import load_card
from mast.retrieval.event_store import EventStore

sys.path.insert(0, str(Path(__file__).parents[1] / "retrieval"))
from toy_embedder import save_embedder, write_species

EXPECTED = (
    "expected default (the model that ships with mast), a run of mast fit or mast train, a model folder"
)
# a command with a model of that name, and all else that it needs
COMMANDS = {
    "detect": "detect {data} --out {out} --device cpu --model",
    "embed": "embed {data} --out {out}/store --device cpu --model",
    "plan": "plan {data}/audio --out {out}/tasks --clips 1 --device cpu --model",
    "search": "search {store} --clip {clip} --device cpu --model",
    "classify": "classify {store} --examples {data} --out {out}/named.csv --device cpu --model",
    "export": "export --format hub --out {out}/hub",
    "train": "train {data} --out {out}/run --init",
    "fit": "fit {data} --out {out}/run --init",
    "pretrain": "pretrain {data} --out {out}/run --init",
    "selftrain": "selftrain {data} --unlabelled {data} --out {out}/run --init",
    "adapt": "adapt {data} --out {out}/run --model",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_species(tmp_path_factory.mktemp("species") / "data", recordings=3, seconds=5)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the model that ships lies; ``default`` in it is a small one."""
    return save_embedder(tmp_path_factory.mktemp("pretrained") / "default").parent


@pytest.fixture(scope="module")
def store(data: Path, shipped: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(find, "_pretrained", lambda: shipped)
        done = CliRunner().invoke(app, [*COMMANDS["embed"].format(data=data, out=out).split(), "default"])
    assert done.exit_code == 0, done.output
    return out / "store"


def run(name: str, model: str, data: Path, store: Path, out: Path) -> Result:
    clip = next((data / "audio").iterdir())
    words = COMMANDS[name].format(data=data, store=store, clip=clip, out=out).split()
    return CliRunner().invoke(app, [*words, model])


@pytest.mark.parametrize("name", ["plan", "search", "classify", "export"])
def test_default_is_a_model(
    name: str, data: Path, store: Path, shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "_pretrained", lambda: shipped)
    done = run(name, "default", data, store, tmp_path)
    assert done.exit_code == 0, (done.output, done.exception)


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_not_a_model_is_one_sentence(name: str, data: Path, store: Path, tmp_path: Path) -> None:
    done = run(name, str(tmp_path / "none"), data, store, tmp_path)
    assert isinstance(done.exception, MastError), done.output
    assert str(done.exception).startswith(f"{tmp_path / 'none'}: no such folder; {EXPECTED}")


def test_names_of_models_reach_commands_as_they_were_typed() -> None:
    """A path would lose a slash of hf://, and the ./ that tells a folder from the model that ships."""
    kinds = {
        command: kind
        for command in SUMMARIES
        for name, kind in get_type_hints(load_command(command).callback).items()
        if name in ("model", "init")
    }
    assert kinds.keys() == COMMANDS.keys() - {"export"}
    assert all(kind in (str, str | None) for kind in kinds.values())


def test_a_store_finds_its_model_again(
    data: Path, store: Path, shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the name it was made with; where nobody said one, the model that ships is tried."""
    assert EventStore.open(store).model_folder == "default"
    clip = next((data / "audio").iterdir())
    unnamed = EventStore.open(store)
    uri = tmp_path / "unnamed"
    made = EventStore.create(uri, unnamed.width, unnamed.model_id, projection_width=unnamed.projection_width)
    made.add(unnamed.batches())
    search = ["--clip", str(clip), "--device", "cpu", "--quiet"]
    with monkeypatch.context() as patch:
        patch.setattr(find, "_pretrained", lambda: shipped)
        assert load_card(find.find_model("default")).weights_sha256[:12] in unnamed.model_id
        for folder in (store, uri):
            done = CliRunner().invoke(app, ["search", str(folder), *search])
            assert done.exit_code == 0, (done.output, done.exception)
    monkeypatch.setattr(find, "_pretrained", lambda: tmp_path)
    refused = CliRunner().invoke(app, ["search", str(uri), *search])
    assert "needs the store's model" in str(refused.exception)
