"""`mast search`: one table on stdout, one sentence on a mistake."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner, Result

from mast.cli.search import search
from mast.data import load_dataset
from mast.detect_options import DetectOptions
from mast.errors import MastError
from mast.inference import Detector
from mast.retrieval.embedding import BoxEmbedder
from mast.retrieval.embedding_sources import labelled_batches
from mast.retrieval.event_store import EventStore

sys.path.insert(0, str(Path(__file__).parents[1] / "retrieval"))
from toy_embedder import save_embedder, write_species

app = typer.Typer()
app.command()(search)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["--device", "cpu", *map(str, arguments)])


def table(*arguments: str | Path) -> pd.DataFrame:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return pd.read_csv(io.StringIO(result.stdout), keep_default_na=False)


def failing(*arguments: str | Path) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, MastError), result.output
    return str(result.exception)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_embedder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def species(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_species(tmp_path_factory.mktemp("species") / "data", recordings=4, seconds=6)


@pytest.fixture(scope="module")
def store(model: Path, species: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    embedder = BoxEmbedder(Detector(model, DetectOptions(device="cpu")))
    uri = tmp_path_factory.mktemp("store") / "s"
    made = EventStore.create(
        uri, embedder.width, embedder.model_id, projection_width=16, model_folder=str(model)
    )
    made.add(labelled_batches(embedder, load_dataset(species), lambda *row: pytest.fail(str(row))))
    return uri


def test_listing_shows_ids(store: Path) -> None:
    listed = table(store, "-k", "5", "--site", "OAK")
    assert len(listed) == 5
    assert set(listed["site"]) == {"OAK"}
    assert listed["id"].str.match(r"e[0-9a-f]{20}").all()
    assert table(store, "--label", "nobody").empty


def test_by_event(store: Path) -> None:
    event = table(store, "-k", "1").iloc[0]
    result = run(store, "--event", event["id"], "-k", "4")
    assert f"4 of {len(EventStore.open(store))} events like {event['id']}" in result.stderr
    found = table(store, "--event", event["id"], "-k", "4")
    assert list(found.columns[:4]) == ["rank", "id", "distance", "recording"]
    assert found["rank"].tolist() == [1, 2, 3, 4]
    assert event["id"] not in set(found["id"])
    assert set(found["label"]) == {event["label"]}
    others = table(store, "--event", event["id"], "--other-recordings", "--projection")
    assert event["recording"] not in set(others["recording"])


def test_by_file_and_box_and_by_clip(store: Path, species: Path, tmp_path: Path) -> None:
    event = table(store, "-k", "1").iloc[0]
    path = load_dataset(species).path(event["recording"])
    box = ",".join(str(event[c]) for c in ("start_s", "end_s", "low_hz", "high_hz"))
    found = table(store, "--file", path, "--box", box, "-k", "2")
    assert found["id"][0] == event["id"]
    assert found["distance"][0] < 1e-3
    assert table(store, "--clip", path, "--box", box, "-k", "2")["id"].tolist() == found["id"].tolist()
    elsewhere = table(store, "--file", path, "--box", box, "-k", "5", "--other-recordings")
    assert event["recording"] not in set(elsewhere["recording"])
    clip = run(store, "--clip", path, "-k", "3")
    assert "detections in it" in clip.stderr
    assert len(pd.read_csv(io.StringIO(clip.stdout))) == 3


def test_sounds_are_searched_for_in_the_band_of_the_store(model: Path, species: Path, tmp_path: Path) -> None:
    """The same box is found again, as it was heard; others are outside."""
    low = BoxEmbedder(Detector(model, DetectOptions(device="cpu", band_hz=1_500)))
    uri = tmp_path / "s"
    made = EventStore.create(uri, low.width, low.model_id, model_folder=str(model), band_hz=1_500)
    made.add(labelled_batches(low, load_dataset(species), lambda *row: None))
    event = table(uri, "-k", "1", "--label", "tone").iloc[0]
    path = load_dataset(species).path(event["recording"])
    box = ",".join(str(event[c]) for c in ("start_s", "end_s", "low_hz", "high_hz"))
    found = table(uri, "--file", path, "--box", box, "-k", "1")
    assert found["id"].tolist() == [event["id"]]
    assert found["distance"][0] < 1e-3
    assert "(3.75–1500 Hz)" in failing(uri, "--file", path, "--box", "0.5,1,3000,4000")


def test_filters(store: Path) -> None:
    event = table(store, "-k", "1").iloc[0]
    found = table(
        *(
            store,
            "--event",
            event["id"],
            "-k",
            "50",
            "--site",
            "ELM",
            "--hours",
            "5-9",
            "--low",
            "500",
            "--high",
            "1000",
        ),
        *("--start", "2024-05-01", "--end", "2024-05-02T00:00", "--min-score", "0.5", "--label", "tone"),
    )
    assert len(found)
    assert set(found["site"]) == {"ELM"}
    assert set(found["label"]) == {"tone"}
    assert found["datetime"].str[11:13].astype(int).between(5, 8).all()


def test_mistakes(store: Path, species: Path, tmp_path: Path) -> None:
    path = sorted((species / "audio").iterdir())[0]
    assert "no such folder" in failing(tmp_path / "none", "--event", "e0")
    (tmp_path / "old" / "events.lance").mkdir(parents=True)
    assert "a store of an earlier mast" in failing(tmp_path / "old")
    assert "there is no event e0" in failing(store, "--event", "e0")
    assert "--event and --clip given" in failing(store, "--event", "e0", "--clip", path)
    assert "say which sound" in failing(store, "--file", path)
    assert "nothing given" in failing(store, "--box", "1,2,3,4")
    assert "expected four numbers" in failing(store, "--file", path, "--box", "1,2,3")
    assert "holds nothing" in failing(store, "--file", path, "--box", "2,1,500,900")
    assert "its own" in failing(store, "--event", "e0", "--box", "1,2,500,900")
    assert "--hours dawn" in failing(store, "--hours", "dawn")
    assert "not a valid time" in failing(store, "--start", "spring")
    other = save_embedder(tmp_path / "other", seed=3)
    assert "cannot be compared" in failing(store, "--clip", path, "--model", other)
    homeless = EventStore.create(tmp_path / "s", 32, "mast-x", model_folder="/gone")
    assert "it is no longer at /gone" in failing(homeless.uri, "--clip", path)
