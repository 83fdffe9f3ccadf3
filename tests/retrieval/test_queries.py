"""What to search for: an event, a box in a recording, a clip."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
from toy_embedder import save_embedder, write_species

from mast.data import load_dataset
from mast.detect_options import DetectOptions
from mast.errors import ConfigError, MastError
from mast.inference import Detector
from mast.retrieval.embedding import BoxEmbedder
from mast.retrieval.embedding_sources import labelled_batches
from mast.retrieval.event_store import EventStore
from mast.retrieval.filters import Filter
from mast.retrieval.queries import find_lookalikes, query_box, query_clip, query_event


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Detector:
    return Detector(save_embedder(tmp_path_factory.mktemp("model")), DetectOptions(device="cpu"))


@pytest.fixture(scope="module")
def species(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_species(tmp_path_factory.mktemp("species") / "data")


@pytest.fixture(scope="module")
def store(detector: Detector, species: Path, tmp_path_factory: pytest.TempPathFactory) -> EventStore:
    embedder = BoxEmbedder(detector)
    made = EventStore.create(
        tmp_path_factory.mktemp("store") / "s", embedder.width, embedder.model_id, projection_width=16
    )
    made.add(labelled_batches(embedder, load_dataset(species), lambda *row: pytest.fail(str(row))))
    return made


@pytest.mark.parametrize("projection", [False, True])
def test_an_event_finds_its_kind_and_not_itself(store: EventStore, projection: bool) -> None:
    events = store.find(k=100)
    right = 0
    for name, label in zip(events["id"][:12], events["label"][:12], strict=True):
        found = find_lookalikes(store, query_event(store, name), 5, projection=projection)
        assert name not in set(found["id"])
        assert found["rank"].tolist() == [1, 2, 3, 4, 5]
        assert (np.diff(found["distance"]) >= 0).all()
        right += int((found["label"] == label).sum())
    assert right >= 55  # of 60: low tones and high hisses differ for any encoder


def test_a_box_finds_the_event_it_is(store: EventStore, detector: Detector, species: Path) -> None:
    event = store.find(k=3).iloc[2]
    path = load_dataset(species).path(event["recording"])
    query = query_box(
        BoxEmbedder(detector), path, (event["start_s"], event["low_hz"], event["end_s"], event["high_hz"])
    )
    found = find_lookalikes(store, query, 3)
    assert found["id"].iloc[0] == event["id"]
    assert found["distance"].iloc[0] < 1e-3
    elsewhere = find_lookalikes(store, query, 3, Filter(not_recordings=(event["recording"],)))
    assert event["recording"] not in set(elsewhere["recording"])
    assert len(elsewhere) == 3


def test_a_clip_is_its_best_detection_or_all_of_it(
    store: EventStore, detector: Detector, tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    path = tmp_path / "clip.wav"
    sf.write(path, rng.normal(0, 0.05, 22_050), 22_050)
    query = query_clip(detector, path)
    found = detector.detect(path)
    assert f"the best of {len(found)} detections" in query.description
    best = found.loc[found["score"].idxmax()]
    box = (best["start_s"], best["low_hz"], best["end_s"], best["high_hz"])
    np.testing.assert_allclose(query.vector, query_box(BoxEmbedder(detector), path, box).vector, atol=1e-2)
    assert len(find_lookalikes(store, query, 4)) == 4

    strict = Detector(save_embedder(tmp_path / "model", threshold=0.999999), DetectOptions(device="cpu"))
    whole = query_clip(strict, path)
    assert "nothing was detected" in whole.description
    np.testing.assert_allclose(
        whole.vector, query_box(BoxEmbedder(strict), path, (0, 20, 1.0, 8_000)).vector, atol=1e-2
    )


def test_boxes_that_hold_nothing(detector: Detector, species: Path) -> None:
    path = sorted((species / "audio").iterdir())[0]
    embedder = BoxEmbedder(detector)
    for box in ((2.0, 500.0, 1.0, 900.0), (1.0, 900.0, 2.0, 500.0), (-1.0, 500.0, 1.0, 900.0)):
        with pytest.raises(ConfigError, match="holds nothing"):
            query_box(embedder, path, box)
    for box in ((20.0, 500.0, 21.0, 900.0), (1.0, 9_000.0, 2.0, 9_500.0)):
        with pytest.raises(ConfigError, match="lies outside"):
            query_box(embedder, path, box)
    query = query_box(embedder, path, (1.0, 500.0, 2.0, 900.0))._replace(projection=None)
    empty = EventStore.create(path.parent / "empty", 32, "m")
    with pytest.raises(MastError, match="no contrastive projection"):
        find_lookalikes(empty, query, projection=True)
