"""`mast embed`: detections and datasets into a store, nothing twice, nothing of another model."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner, Result

from mast.cli.detect import detect
from mast.cli.embed import embed
from mast.cli.options import EXIT_SOME_FAILED
from mast.errors import MastError
from mast.retrieval.event_ids import event_ids
from mast.retrieval.event_store import EventStore

sys.path.insert(0, str(Path(__file__).parents[1] / "retrieval"))
from toy_embedder import save_embedder, write_species

app = typer.Typer()
app.command()(embed)
app.command()(detect)


def run(command: str, *arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [command, "--quiet", "--device", "cpu", *map(str, arguments)])


def failing(*arguments: str | Path) -> str:
    result = run("embed", *arguments)
    assert isinstance(result.exception, MastError), result.output
    return str(result.exception)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_embedder(tmp_path_factory.mktemp("run") / "best").parent


@pytest.fixture(scope="module")
def species(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_species(tmp_path_factory.mktemp("species") / "data", recordings=3, seconds=5)


@pytest.fixture(scope="module")
def detections(species: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("found") / "detections"
    result = run("detect", species, "--model", model, "--out", out, "--embed", "--no-summary")
    assert result.exit_code == 0, result.output
    return out


def test_detections_with_embeddings_need_no_model(detections: Path, tmp_path: Path) -> None:
    result = run("embed", detections, "--out", tmp_path / "s")
    assert result.exit_code == 0, result.output
    store = EventStore.open(tmp_path / "s")
    table = pd.read_parquet(detections / "detections.parquet")
    assert len(store) == len(table) > 10
    assert f"{len(table):,} events ({len(table):,} new)" in result.output
    ids = event_ids(table)
    pd.testing.assert_frame_equal(store.get(ids).drop(columns="id"), table, check_dtype=False)
    vectors = np.load(detections / "embeddings.npy").astype(np.float32)
    expected = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(store.vectors(ids), expected, atol=2e-5)
    again = run("embed", detections, "--out", tmp_path / "s")
    assert "(nothing new)" in again.output
    assert len(EventStore.open(tmp_path / "s")) == len(table)


def test_detections_from_the_sound_are_the_same_and_have_projections(
    detections: Path, model: Path, tmp_path: Path
) -> None:
    plain = shutil.copytree(detections, tmp_path / "plain")
    (plain / "embeddings.npy").unlink()
    assert "give --model" in failing(plain, "--out", tmp_path / "none")
    assert run("embed", plain, "--model", model, "--out", tmp_path / "s").exit_code == 0
    store = EventStore.open(tmp_path / "s")
    table = pd.read_parquet(detections / "detections.parquet")
    assert len(store) == len(table)
    assert store.projection_width == 16
    assert np.isfinite(store.vectors(event_ids(table), projection=True)).all()
    vectors = np.load(detections / "embeddings.npy").astype(np.float32)
    made = store.vectors(event_ids(table))
    cosine = (made * vectors).sum(axis=1) / np.linalg.norm(vectors, axis=1)
    assert np.median(cosine) > 0.999
    assert run("embed", detections, "--again", "--model", model, "--out", tmp_path / "s").exit_code == 0
    assert len(EventStore.open(tmp_path / "s")) == len(table)


def test_events_are_embedded_in_the_band_that_was_searched(
    species: Path, model: Path, tmp_path: Path
) -> None:
    """Played slower to the model, as `mast detect --band` did: otherwise bats are outside, and fish sound otherwise."""
    found, plain = tmp_path / "found", tmp_path / "plain"
    options = ("--model", model, "--band", 4_000, "--hop", 0.5, "--no-summary")
    assert run("detect", species, "--out", found, "--embed", *options).exit_code == 0
    assert run("detect", species, "--out", plain, *options).exit_code == 0
    assert run("embed", found, "--out", tmp_path / "taken_over").exit_code == 0
    assert run("embed", plain, "--model", model, "--out", tmp_path / "made").exit_code == 0
    stores = [EventStore.open(tmp_path / name) for name in ("taken_over", "made")]
    assert [store.band_hz for store in stores] == [4_000, 4_000]
    ids = event_ids(pd.read_parquet(plain / "detections.parquet"))
    assert len(ids) > 10
    alike = np.sum(stores[0].vectors(ids) * stores[1].vectors(ids), axis=1)
    assert np.median(alike) > 0.999
    asked = run("embed", plain, "--again", "--model", model, "--band", 8_000, "--out", tmp_path / "other")
    assert asked.exit_code == 0, asked.output
    assert EventStore.open(tmp_path / "other").band_hz == 8_000
    assert (
        np.median(np.sum(EventStore.open(tmp_path / "other").vectors(ids) * stores[1].vectors(ids), axis=1))
        < 0.99
    )
    assert "band up to 8000 Hz" in failing(species, "--model", model, "--out", tmp_path / "made")
    assert "leave --band out" in failing(found, "--band", 8_000, "--out", tmp_path / "t")
    assert run("embed", species, "--model", model, "--band", 4_000, "--out", tmp_path / "made").exit_code == 0


def test_a_dataset_of_boxes(species: Path, model: Path, tmp_path: Path) -> None:
    root = shutil.copytree(species, tmp_path / "data")
    result = run("embed", root, "--model", model, "--out", tmp_path / "s")
    assert result.exit_code == 0, result.output
    boxes = pd.read_csv(root / "boxes.csv")
    store = EventStore.open(tmp_path / "s")
    assert len(store) == len(boxes)
    assert sorted(store.find(k=500)["label"]) == sorted(boxes["label"])
    assert store.model_folder == str(model / "best")

    boxes.loc[0, "label"] = "corrected"  # one renamed, one gone
    boxes.drop(index=1).to_csv(root / "boxes.csv", index=False)
    later = run("embed", root, "--model", model, "--out", tmp_path / "s")
    assert "1 changed, 1 removed" in later.output
    assert "corrected" in set(EventStore.open(tmp_path / "s").find(k=500)["label"])


def test_what_fails_is_listed_and_the_rest_is_done(species: Path, model: Path, tmp_path: Path) -> None:
    root = shutil.copytree(species, tmp_path / "data")
    boxes = pd.read_csv(root / "boxes.csv")
    names = boxes["file"].unique()
    pd.DataFrame({"file": names, "duration_s": 5.0, "sample_rate": 16_000}).to_csv(
        root / "recordings.csv", index=False
    )
    boxes.loc[boxes["file"] == names[0], ["low_hz", "high_hz"]] = [1.0, 9.0]  # below the band
    boxes.to_csv(root / "boxes.csv", index=False)
    (root / "audio" / names[1]).write_bytes(b"a card that was pulled out")
    result = run("embed", root, "--model", model, "--out", tmp_path / "s")
    assert result.exit_code == EXIT_SOME_FAILED, result.output
    assert f"{names[0]}: " in result.output
    assert "outside the recording or the model's band" in result.output
    assert f"{names[1]}: not readable as sound" in result.output
    assert EventStore.open(tmp_path / "s").recordings() == [names[2]]


def test_mistakes(detections: Path, species: Path, model: Path, tmp_path: Path) -> None:
    other = save_embedder(tmp_path / "other", seed=1)
    store = tmp_path / "s"
    assert run("embed", detections, "--out", store).exit_code == 0
    assert "cannot be compared" in failing(species, "--model", other, "--out", store)
    (tmp_path / "old" / "events.lance").mkdir(parents=True)
    assert "rebuild it with mast embed" in failing(detections, "--out", tmp_path / "old")
    assert "add --again" in failing(detections, "--model", other, "--out", tmp_path / "t")
    assert "give --model" in failing(species, "--out", store)
    assert "no such folder" in failing(tmp_path / "none", "--out", store)
    broken = shutil.copytree(detections, tmp_path / "broken")
    np.save(broken / "embeddings.npy", np.zeros((3, 32), np.float16))
    assert "has 3 rows for" in failing(broken, "--out", tmp_path / "u")
    (species / "empty").mkdir(exist_ok=True)
    unboxed = shutil.copytree(species, tmp_path / "unboxed")
    (unboxed / "boxes.csv").unlink()
    assert "holds no boxes" in failing(unboxed, "--model", model, "--out", tmp_path / "v")
    moved = tmp_path / "moved"
    shutil.copytree(detections, moved)
    run_json = (moved / "run.json").read_text().replace(str(species), str(tmp_path / "gone"))
    (moved / "run.json").write_text(run_json)
    again = (moved, "--again", "--model", model, "--out", tmp_path / "w")
    assert "gone: no such folder; give the folder of the recordings with --audio" in failing(*again)
    assert "run.json: is a file; give the folder" in failing(*again, "--audio", moved / "run.json")
    found = run("embed", moved, "--again", "--model", model, "--audio", species, "--out", tmp_path / "w")
    assert found.exit_code == 0, found.output
