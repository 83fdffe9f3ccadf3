"""Speech that is listed is not played, by any route, at any speed, in any band."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile as sf
from fastapi.testclient import TestClient
from review_folders import add_detections, detections, review_client, write_dataset

from mast.classifiers.voice_lists import VOICES, write_voices
from mast.errors import ConfigError
from mast.review.open_review import open_review
from mast.review.sound import silence_spans

RATE = 48_000
SPEECH = (2.0, 3.5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recording that is silent except for the speech, so that any sound at all is a leak."""
    (tmp_path / "audio").mkdir()
    sound = np.zeros(6 * RATE, np.float32)
    begin, end = (round(s * RATE) for s in SPEECH)
    sound[begin:end] = np.random.default_rng(0).normal(0, 0.3, end - begin)
    for name in ("a.wav", "b.wav"):
        sf.write(tmp_path / "audio" / name, sound, RATE)
    tables = {name: detections(name, 3) for name in ("a.wav", "b.wav")}
    return add_detections(tmp_path / "detections", tmp_path / "audio", tables, embed=False)


def _client(folder: Path) -> TestClient:
    return review_client(open_review(folder))


def _loudest(answer: Any) -> float:
    assert answer.status_code == 200, answer.text
    sound, _ = sf.read(io.BytesIO(answer.content), dtype="float32")
    assert len(sound)
    return float(np.abs(sound).max())


ROUTES = [
    "audio",
    "clip?start_s=0&end_s=6",
    "clip?start_s=2.5&end_s=3",
    "clip?start_s=3.4&end_s=4&gain_db=60",
    "clip?start_s=3.51&end_s=4&low_hz=500&high_hz=600&gain_db=60",  # what a filter would ring with
    *(f"clip?start_s=1&end_s=5&speed={speed}" for speed in (0.05, 0.1, 0.25, 0.5, 2, 4)),
]


@pytest.mark.parametrize("route", ROUTES)
def test_listed_speech_is_not_played(folder: Path, route: str) -> None:
    write_voices(folder / VOICES, {"a.wav": [SPEECH]})
    client = _client(folder)
    assert _loudest(client.get(f"/api/recordings/1/{route}")) == 0
    assert _loudest(client.get(f"/api/recordings/2/{route}")) > 0.001 or "3.51" in route  # not in the list


def test_a_part_of_the_whole_recording_is_silent_too(folder: Path) -> None:
    write_voices(folder / VOICES, {"a.wav": [SPEECH]})
    begin, end = (44 + 2 * round(s * RATE) for s in (2.4, 2.6))
    for rid, silent in ((1, True), (2, False)):
        answer = _client(folder).get(
            f"/api/recordings/{rid}/audio", headers={"Range": f"bytes={begin}-{end - 1}"}
        )
        assert answer.status_code == 206
        assert (not any(answer.content)) == silent


def test_speech_that_is_listed_while_the_page_is_open(folder: Path) -> None:
    client = _client(folder)
    clip = "/api/recordings/1/clip?start_s=2&end_s=3"
    before = client.get(clip)
    assert _loudest(before) > 0.1
    assert client.get(clip, headers={"If-None-Match": before.headers["etag"]}).status_code == 304
    write_voices(folder / VOICES, {"a.wav": [SPEECH]})
    for path in (clip, "/api/recordings/1/audio"):
        assert (
            "no-cache" in client.get(path).headers["cache-control"]
        )  # a browser must not play what it has kept
    assert _loudest(client.get(clip, headers={"If-None-Match": before.headers["etag"]})) == 0
    (folder / VOICES).unlink()
    assert _loudest(client.get(clip)) > 0.1


def test_the_page_hears_where_it_is_silent(folder: Path) -> None:
    write_voices(folder / VOICES, {"a.wav": [(1, 2), (4, 5)]})
    client = _client(folder)
    assert client.get("/api/recordings/1").json()["silent_spans"] == [[1, 2], [4, 5]]
    assert client.get("/api/recordings/2").json()["silent_spans"] == []


def test_other_ways_to_name_a_recording(folder: Path) -> None:
    write_voices(folder / VOICES, {"/media/card/a.wav": [(1, 2)], "a.wav": [SPEECH]})
    assert _client(folder).get("/api/recordings/1").json()["silent_spans"] == [[1, 2], [2, 3.5]]


def test_a_dataset_has_a_list_as_well(tmp_path: Path) -> None:
    write_voices(write_dataset(tmp_path) / VOICES, {"a.wav": [(0, 1)]})
    client = _client(tmp_path)
    assert _loudest(client.get("/api/recordings/1/clip?start_s=0&end_s=0.9")) == 0


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda path: path.write_text("a.wav 1 2\n"), "not a list of speech"),
        (lambda path: write_voices(path, {"z.wav": [(1, 2)]}), "z.wav is not a recording of this folder"),
    ],
)
def test_a_list_that_cannot_be_understood_means_no_sound(
    folder: Path, spoil: Callable[[Path], Any], told: str
) -> None:
    client = _client(folder)
    spoil(folder / VOICES)
    for route in ("audio", "clip?start_s=0&end_s=6"):
        answer = client.get(f"/api/recordings/1/{route}")
        assert answer.status_code == 400
        assert told in answer.json()["error"]
    with pytest.raises(ConfigError, match=told):
        open_review(folder)


def test_a_list_that_cannot_be_opened_means_no_sound(folder: Path) -> None:
    write_voices(folder / VOICES, {"a.wav": [SPEECH]})
    client = review_client(open_review(folder), raise_server_exceptions=False)
    (folder / VOICES).unlink()
    os.symlink(folder / VOICES, folder / VOICES)  # a link to itself
    assert client.get("/api/recordings/1/audio").status_code >= 400


def test_sound_is_cut_sample_by_sample_as_a_naive_twin_does() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        rate, first, n = int(rng.integers(1, 3_000)), int(rng.integers(0, 5_000)), int(rng.integers(0, 400))
        sound = rng.normal(size=n).astype(np.float32)
        edges = np.sort(rng.uniform(first - 300, first + n + 300, 4)).clip(0) / rate
        spans = ((edges[0], edges[1]), (edges[2], edges[3]))
        got = silence_spans(sound, rate, first, spans)
        for k in range(n):
            inside = any(a <= (first + k) / rate < b for a, b in spans)
            near = any(a - 0.005 - 1 / rate <= (first + k) / rate < b + 0.005 + 1 / rate for a, b in spans)
            assert abs(got[k]) <= abs(sound[k])
            if inside:
                assert got[k] == 0
            if not near:
                assert got[k] == sound[k]


def test_nothing_listed_changes_nothing() -> None:
    sound = np.ones(100, np.float32)
    assert silence_spans(sound, 1_000, 0, ()) is sound
