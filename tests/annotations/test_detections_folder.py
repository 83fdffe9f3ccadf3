"""What `mast detect` leaves in a folder, as others read it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mast.annotations.detections import DONE, FAILED, DetectionRun, mark_path, read_run, write_run
from mast.annotations.recording_names import RecordingNames, label_keys
from mast.detect_options import DetectOptions
from mast.errors import ConfigError


def test_a_run_comes_back_as_it_was_written(tmp_path: Path) -> None:
    run = DetectionRun(
        root="/survey",
        model="default",
        weights_sha256="ab" * 32,
        threshold=0.3,
        band_hz=(20.0, 8_000.0),
        inputs=("/survey/OAK", "/survey/ELM"),
        made_with={"model": "ab" * 32, "root": "/survey"},
        options=DetectOptions(precision_target=0.9, hop=0.5, device="cpu", embed=True),
        operating_point={"target": 0.9},
    )
    assert read_run(tmp_path) is None
    write_run(tmp_path, run)
    assert read_run(tmp_path) == run
    assert run.model_id == "mast-abababababab"


def test_a_run_of_an_older_version(tmp_path: Path) -> None:
    made_with = {"model": "cd" * 32, "threshold": 0.4, "root": "/survey"}
    (tmp_path / "run.json").write_text(json.dumps({"mast": "0.0", "made_with": made_with}))
    run = read_run(tmp_path)
    assert run is not None
    assert (run.root, run.threshold, run.band_hz, run.model) == ("/survey", 0.4, None, "")
    assert run.model_id == "mast-cdcdcdcdcdcd"
    assert run.options == DetectOptions(threshold=0.4)


def test_options_of_an_older_version_are_inferred_from_the_rest(tmp_path: Path) -> None:
    made_with = {"threshold": 0.4, "root": "/survey", "hop": 0.5, "embeddings": 192}
    old = {"threshold": 0.45, "band_hz": [5.0, 2_000.0], "made_with": made_with}
    (tmp_path / "run.json").write_text(json.dumps(old))
    run = read_run(tmp_path)
    assert run is not None
    assert run.options == DetectOptions(threshold=0.45, band_hz=2_000.0, hop=0.5, embed=True)
    (tmp_path / "run.json").write_text(json.dumps(old | {"operating_point": {"target": 0.8}}))
    run = read_run(tmp_path)
    assert run is not None
    assert (run.options.precision_target, run.options.threshold) == (0.8, None)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff\xfe",
        b"{}",
        b'{"made_with": 3}',
        b'{"made_with": {"root": 3}}',
        b'{"made_with": {"root": "r"}, "threshold": NaN}',
        b'{"made_with": {"root": "r"}, "threshold": "much"}',
        b'{"made_with": {"root": "r"}, "band_hz": [1]}',
        b'{"made_with": {"root": "r"}, "inputs": 3}',
        b'{"made_with": {"root": "r"}, "options": {"hop": "far"}}',
        b'{"made_with": {"root": "r"}, "options": {"unheard_of": 1}}',
        b"[" * 100_000,
        b'{"made_with": {"root": "r"}, "threshold": ' + b"9" * 5_000 + b"}",
    ],
)
def test_a_damaged_run_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(ConfigError, match="is damaged or not from mast detect"):
        read_run(tmp_path)


def test_no_mark_is_in_the_way_of_another(tmp_path: Path) -> None:
    names = [
        "a.wav",
        "a.wav.parquet/b.wav",
        "a.wav.PARQUET/b.wav",
        "a.wav.failed.json/b.wav",
        "é" * 120 + ".wav",
        "x" * 244 + ".wav",
        "y" * 251 + ".wav",
        "/".join(["folder"] * 200) + "/a.wav",
        ".hidden.wav",
        "caf\udce9.wav",
    ]
    for ending in (DONE, FAILED):
        for name in names:
            path = mark_path(tmp_path, name, ending)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name.encode("utf-8", "backslashreplace").decode())
    assert len([path for path in tmp_path.rglob("[!.]*") if path.is_file()]) == 2 * len(names)
    assert mark_path(tmp_path, "OAK/a.wav", DONE) == tmp_path / "recordings" / "OAK" / "a.wav.parquet"


def test_a_file_for_every_recording_whatever_its_name(tmp_path: Path) -> None:
    names = ["a.wav", "a.txt/b.wav", "x" * 251 + ".wav", "x" * 250 + "y.wav", "é" * 125 + ".wav"]
    keys = label_keys(names)
    for key in keys.values():
        path = tmp_path / f"{key}.Table.1.selections.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        (tmp_path / f"{key}.txt").touch()
    assert len({key.casefold() for key in keys.values()}) == len(names)
    found = RecordingNames(names)
    assert [found.of_key(keys[name]) for name in names] == names
