from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from made_up_embedded import LABELS, part
from made_up_found import write_found
from typer.testing import CliRunner

from mast.cli.main import app
from mast.data.chunk_dataset import ChunkDataset
from mast.data.recordings import load_dataset
from mast.data.splits import SplitConfig
from mast.errors import MastError
from mast.evaluation.bootstrap import draw_weights
from mast.grid import FrontEnd, grid_to_events
from mast.training.chosen_chunks import labelled_chunks
from mast_studies import neighbours
from mast_studies.collect import collect
from mast_studies.embedded import best_matches, drop_overlapping, labelled_boxes
from mast_studies.embedding_studies import summarise_boxes, summarise_chunks, summarise_retrieval
from mast_studies.embedding_tables import (
    EmbeddedTables,
    RecordingBootstrap,
    folder_of,
    load_embedded,
    save_embedded,
)
from mast_studies.found import Trial
from mast_studies.neighbours import EmbeddedPart, box_neighbours, chunk_neighbours, project_to_plane
from mast_studies.page import write_page
from mast_studies.paper import paper_metrics, paper_tables
from mast_studies.studies import all_studies
from mast_studies.study_tables import Archive

STUDIES = all_studies()
NAMES = ("retrieval", "umap-chunks", "umap-boxes")


def parts(**options: object) -> dict[str, EmbeddedPart]:
    given = {"recordings": 3} | options
    train = part("train", **(given | {"detected": False}))  # type: ignore[arg-type]
    return {"train": train, "test": part("test", **given), "site_ood": part("site_ood", **given)}  # type: ignore[arg-type]


def keep(work: Path, seen: dict[str, EmbeddedPart], *, dataset: str = "made_up", seed: int = 0) -> None:
    trial = Trial.at(work, dataset, seed)
    write_found(work, "mast", dataset=dataset, seed=seed, hits={"a.wav": 1}, truths={"a.wav": 2})
    tables = EmbeddedTables(chunk_neighbours(seen, seed=0), box_neighbours(seen, FrontEnd(), seed=0))
    save_embedded(folder_of(trial, "mast"), tables, {"system": "mast"})


@pytest.fixture(scope="module", autouse=True)
def quick_planes() -> Iterator[None]:
    """Planes without UMAP, which takes seconds to compile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbours, "MIN_EVENTS", 10**6)
        yield


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of one dataset."""
    root = tmp_path_factory.mktemp("embedded")
    for seed in (0, 1):
        keep(root, parts(seed=seed), seed=seed)
    return root


def test_boxes_are_ranked_as_by_hand() -> None:
    seen = parts()
    table = box_neighbours(seen, FrontEnd(), seed=0)
    vectors = np.concatenate([own.box_vectors["pretrained"] for own in seen.values()]).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    named = ((table["kind"] == "truth") & (table["label"] != "")).to_numpy()
    for row in table.index[(table["part"] != "train")][::7]:
        label, recording = table.loc[row, ["label", "recording"]]
        if not label:
            assert table["rank_pretrained"][row] == 0
            assert np.isnan(table["share_pretrained"][row])
            continue
        gallery = np.flatnonzero(named & (table["part"] == "train").to_numpy())
        order = gallery[np.argsort(-(vectors[gallery] @ vectors[row]))]
        assert table["rank_pretrained"][row] == 1 + list(table["label"][order]).index(label)
        others = np.flatnonzero(named & (table["recording"] != recording).to_numpy())
        near = others[np.argsort(-(vectors[others] @ vectors[row]))][:10]
        assert table["share_pretrained"][row] == pytest.approx((table["label"][near] == label).mean())
        assert table["share_random"][row] == pytest.approx((table["label"][others] == label).mean())


def test_chunks_are_compared_as_by_hand() -> None:
    seen = parts(recordings=6)
    table = chunk_neighbours(seen, seed=0)
    assert table["events"].eq(6).all()
    vectors = np.concatenate([own.chunk_vectors["encoder"] for own in seen.values()]).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for row in range(0, len(table), 5):
        others = np.flatnonzero(table["recording"] != table["recording"][row])
        near = others[np.argsort(-(vectors[others] @ vectors[row]))][:10]
        for name, rows in (("encoder", near), ("random", others)):
            some = table.iloc[rows]
            apart = (some["hour"] - table["hour"][row]).abs()
            assert table[f"same_site_{name}"][row] == pytest.approx(
                (some["site"] == table["site"][row]).mean()
            )
            assert table[f"hours_apart_{name}"][row] == pytest.approx(np.minimum(apart, 24 - apart).mean())
    # chunks point to their site, mel statistics nowhere
    assert table["same_site_encoder"].mean() > 0.95 > 0.7 > table["same_site_mel"].mean()


def test_a_mean_and_its_interval_are_those_of_the_recordings() -> None:
    table = pd.DataFrame(
        {"recording": ["a", "a", "b", "c"], "x": [1.0, 0.0, 1.0, np.nan], "at": [1, 2, 3, 4]}
    )
    score = RecordingBootstrap({0: table}, ["at"], 200).score({0: table}, "x")
    weights = draw_weights(3, 200, 0)
    with np.errstate(invalid="ignore"):
        by_hand = (weights @ [1.0, 1.0, 0.0]) / (weights @ [2.0, 1.0, 0.0])
    assert score.value == pytest.approx(2 / 3)
    low, high = np.nanpercentile(by_hand, [2.5, 97.5])
    assert (score.low, score.high) == pytest.approx((low, high))
    one = table[table["recording"] == "a"]
    assert np.isnan(
        RecordingBootstrap({0: one}, ["at"], 200).score({0: one}, "x").low
    )  # one says nothing about the spread


def test_a_detection_has_the_label_of_the_box_it_overlaps_most(tones: Path) -> None:
    dataset, front_end = load_dataset(tones), FrontEnd(n_bins=32, chunk_frames=128)
    chunks = labelled_chunks(dataset, front_end, split=SplitConfig())["test"]
    alone = labelled_boxes(dataset, chunks.table, None, front_end)
    shapes = next(own.boxes for own in chunks.examples.datasets if isinstance(own, ChunkDataset))
    columns = ["start_s", "low_hz", "end_s", "high_hz"]
    for row, boxes in enumerate(shapes):  # what detectors are measured on
        own = alone.loc[alone["chunk"] == row, columns].to_numpy()
        assert sorted(map(tuple, own)) == sorted(map(tuple, boxes.numpy()))
    assert set(alone["label"]) == {"tone"}
    width = alone["end_s"] - alone["start_s"]
    first = alone[alone["end_s"] + width < front_end.chunk_frames].iloc[0]  # room for a shifted one
    shifts = np.array([[0.0], [0.3], [1.0]]) * width[first.name]
    boxes = first[columns].to_numpy(dtype=float) + shifts * np.array([1, 0, 1, 0])
    start_s = float(chunks.table["start_s"][first["chunk"]])
    found = pd.DataFrame(grid_to_events(boxes, front_end, chunk_start_s=start_s), columns=columns)
    both = labelled_boxes(dataset, chunks.table, found.assign(recording=first["recording"]), front_end)
    detected = both[both["kind"] == "detected"]
    assert list(detected["label"])[:2] == ["tone", "tone"]
    assert detected["iou"].iloc[0] == pytest.approx(1.0)
    assert detected["iou"].iloc[1] == pytest.approx(0.7 / 1.3)
    assert both.loc[both["kind"] == "truth", "matched"].sum() == 1
    assert len(labelled_boxes(dataset, chunks.table.iloc[:0], None, front_end)) == 0


def test_best_matches_by_hand() -> None:
    truth = np.array([[0, 0, 10, 10], [0, 0, 10, 20]])
    best, overlap = best_matches(np.array([[0.0, 0, 10, 18], [50, 50, 60, 60]]), truth)
    assert best[0] == 1
    assert overlap.tolist() == pytest.approx([0.9, 0.0])
    assert best_matches(np.empty((0, 4)), truth)[0].shape == (0,)
    assert best_matches(np.ones((2, 4)), truth[:0])[0].tolist() == [-1, -1]


def test_chosen_chunks_do_not_overlap(tones: Path) -> None:
    dataset, front_end = load_dataset(tones), FrontEnd(n_bins=32, chunk_frames=128)
    chunks = labelled_chunks(dataset, front_end)["train"]
    kept = drop_overlapping(dataset, chunks, front_end)
    assert len(kept.examples) == len(kept.table) < len(chunks)
    for _, own in kept.table.groupby("recording"):
        assert (np.diff(np.sort(own["start_s"])) >= front_end.chunk_s - 1e-6).all()
    again = drop_overlapping(dataset, kept, front_end)
    assert again is kept


def test_a_plane_of_few_points_needs_no_umap() -> None:
    assert project_to_plane(np.zeros((0, 4), dtype=np.float32), seed=0).shape == (0, 2)
    assert project_to_plane(np.ones((1, 4), dtype=np.float32), seed=0).tolist() == [[0, 0]]
    few = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    assert project_to_plane(few, seed=0).std(axis=0).min() > 0


def test_a_plane_of_many_points_is_umaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """UMAP itself takes long to compile."""
    told: dict[str, object] = {}

    class Umap:
        def __init__(self, **options: object) -> None:
            told.update(options)

        def fit_transform(self, vectors: np.ndarray) -> np.ndarray:
            assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(len(vectors)), abs=1e-5)
            return vectors[:, :2]

    monkeypatch.setattr(neighbours, "MIN_EVENTS", 30)
    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=Umap))
    vectors = np.random.default_rng(0).normal(5.0, 1.0, size=(40, 6)).astype(np.float32)
    place = project_to_plane(vectors, seed=3)
    assert place.shape == (40, 2)
    assert np.abs(place.mean(axis=0)).max() < 0.2  # around the common mean
    assert (told["metric"], told["random_state"]) == ("cosine", 3)


def test_each_study_ends_in_its_files(work: Path, tmp_path: Path) -> None:
    archive = Archive(work, resamples=50)
    collected = [collect(STUDIES[name], archive, tmp_path) for name in NAMES]
    for name, one in zip(NAMES, collected, strict=True):
        assert [path.name for path in one.files] == [
            f"{name}{end}" for end in (".csv", ".md", ".json", ".png")
        ]
        assert (tmp_path / f"{name}.md").read_text().count("| --- |") >= 1
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert json.loads((tmp_path / f"{name}.json").read_text())["seed"] == [0, 1]
    table = pd.read_csv(tmp_path / "retrieval.csv").set_index(["part", "boxes_or_chunks", "way", "measure"])
    best = table.loc[("test", "true boxes", "encoder", "top1")]
    assert best["value"] == 1.0
    assert best["difference"] > 0.3  # mel statistics were made up of noise
    assert best["n"] == 2 * 3 * 2 * 6
    assert table.loc[("test", "detected boxes", "encoder", "top1"), "n"] == best["n"] / 2
    chance = table.loc[("test", "true boxes", "random", "top1"), "value"]
    assert chance == pytest.approx(1 / 3, abs=0.02)
    page = write_page(collected, tmp_path).read_text()
    assert page.count("data:image/png;base64") == 3
    assert "0.961" in page  # the paper's own
    assert paper_metrics("retrieval")[2:] == ("Top-1", "Top-5", "mean rank")
    assert paper_tables("retrieval")[0].rows[0][1][2:] == ["0.723", "0.902", "5.76"]


def test_what_is_unknown_is_a_sentence(tmp_path: Path) -> None:
    keep(tmp_path, parts(labels=()), dataset="no_labels")
    keep(tmp_path, parts(labels=("buzz",)), dataset="one_label")
    keep(tmp_path, parts(detected=False), dataset="no_detections")
    strange = parts()
    strange["train"] = part("train", recordings=3, labels=LABELS[:1], detected=False)
    for name in ("test", "site_ood"):
        strange[name] = part(name, recordings=3, labels=LABELS[1:])
    keep(tmp_path, strange, dataset="other_labels")

    def notes(dataset: str, summarise=summarise_retrieval) -> str:  # type: ignore[no-untyped-def]
        return "\n".join(summarise(Archive(tmp_path, datasets=[dataset], resamples=20)).notes)

    assert "no box carries a label" in notes("no_labels")
    assert "all labelled boxes are called 'buzz'" in notes("one_label")
    assert "none of the detected boxes can be named" in notes("no_detections")
    assert "no training box of another recording has the label" in notes("other_labels")
    assert "nothing was detected at the validation threshold" in notes("no_detections", summarise_boxes)
    assert notes("no_labels", summarise_chunks) == ""
    folders = ["--work", str(tmp_path), "--out", str(tmp_path / "out")]
    told = CliRunner().invoke(
        app, ["experiment", "retrieval", "--collect-only", *folders, "--name", "one_label"]
    )
    assert isinstance(told.exception, MastError)
    assert "expected at least two labels" in str(told.exception)
    assert not (tmp_path / "out").exists()


def test_chunks_without_site_or_clock_say_so(tmp_path: Path) -> None:
    seen = parts()
    for own in seen.values():
        own.chunks["site"], own.chunks["hour"] = "", pd.NA
    keep(tmp_path, seen)
    summary = summarise_chunks(Archive(tmp_path, resamples=20))
    assert [note.split(": ")[1].split(",")[0] for note in summary.notes] == [
        "no recording says when it was made",
        "there are not two known sites",
    ]
    assert summary.tables[0].header == ["nearest by", "events apart"]
    assert summary.figure is not None
    summary.figure()
    assert summarise_chunks(Archive(tmp_path, left_out={("mast", 0)}, resamples=20)).tables == []


def test_tables_without_their_last_file_are_not_there(work: Path, tmp_path: Path) -> None:
    tables = load_embedded(folder_of(Trial.at(work, "made_up", 0), "mast"))
    assert tables is not None
    save_embedded(tmp_path, tables, {"system": "mast"})
    (tmp_path / "about.json").unlink()  # killed before it was written
    assert load_embedded(tmp_path) is None
    empty = Archive(tmp_path / "nowhere")
    assert summarise_retrieval(empty).tables == []
