"""Tasks out and back: every box where it belongs, and only what was listened to counts as heard."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf

from mast.annotations import AnnotationSet, read_annotations, write_annotations
from mast.data import load_dataset
from mast.data.recordings import Dataset
from mast.errors import AnnotationError, AudioError, ConfigError
from mast.events import as_events
from mast.planning.candidates import with_site_and_time
from mast.planning.returned_tasks import is_tasks_folder, merge_returned, read_tasks
from mast.planning.tasks import (
    clip_names,
    cut_clip,
    fingerprint,
    prefill_from_events,
    table_path,
    write_tasks,
)

RATE = 8_000


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Two recordings whose samples tell their time, one without a clock; nothing was listened to."""
    root = tmp_path / "data"
    (root / "audio" / "deep").mkdir(parents=True)
    ramp = np.arange(60 * RATE) / (60 * RATE)
    sf.write(root / "audio" / "S1_20240512_060000.wav", ramp, RATE, subtype="FLOAT")
    sf.write(root / "audio" / "deep" / "odd näme.wav", np.stack([-ramp, ramp * 0], axis=1), RATE)
    return load_dataset(root)


@pytest.fixture
def chosen(dataset: Dataset) -> pd.DataFrame:
    spans = pd.DataFrame(
        {
            "recording": ["S1_20240512_060000.wav", "deep/odd näme.wav", "S1_20240512_060000.wav"],
            "start_s": [20.48, 5.12, 40.96],
            "end_s": [30.72, 15.36, 51.2],
        }
    )
    return with_site_and_time(spans, dataset)


def test_a_clip_is_exactly_its_span(dataset: Dataset, tmp_path: Path) -> None:
    source = dataset.path("S1_20240512_060000.wav")
    whole, _ = sf.read(source)
    out = tmp_path / "clip.wav"
    start, end, rate, duration = cut_clip(source, out, 20.48, 45.0001)  # more than two blocks of ten seconds
    sound, _ = sf.read(out)
    assert (start, end, rate, duration) == (20.48, 45.000125, RATE, 60.0)
    assert np.array_equal(sound, whole[round(20.48 * RATE) : round(45.0001 * RATE)])
    assert sf.info(out).subtype == "FLOAT"


def test_a_clip_ends_where_the_recording_does_and_channels_are_mixed(
    dataset: Dataset, tmp_path: Path
) -> None:
    start, end, _, _ = cut_clip(dataset.path("deep/odd näme.wav"), tmp_path / "c.wav", 55.0, 70.0)
    assert (start, end) == (55.0, 60.0)
    info = sf.info(tmp_path / "c.wav")
    assert (info.channels, info.frames, info.subtype) == (1, 5 * RATE, "PCM_16")
    with pytest.raises(AudioError, match="holds no sound from 60 s"):
        cut_clip(dataset.path("deep/odd näme.wav"), tmp_path / "d.wav", 60.0, 70.0)
    assert not (tmp_path / "d.wav").exists()


def test_names_say_rank_place_and_time_and_no_two_are_alike(chosen: pd.DataFrame) -> None:
    assert clip_names(chosen) == [
        "0001_S1_20240512_060020.wav",
        "0002_odd-näme_5.12s.wav",
        "0003_S1_20240512_060040.wav",
    ]
    hostile = chosen.assign(site="../../etc: x", datetime="2024-05-12T06:00:00")
    names = clip_names(hostile)
    assert len(set(names)) == 3
    assert all("/" not in name and ":" not in name for name in names)


@pytest.mark.parametrize("format", ["raven", "audacity", "aoef"])
def test_the_folder_holds_what_it_promises(
    format: str, dataset: Dataset, chosen: pd.DataFrame, tmp_path: Path
) -> None:
    out = tmp_path / "tasks"
    plan = write_tasks(out, chosen, dataset, format=format, strategy="random")  # type: ignore[arg-type]
    assert is_tasks_folder(out)
    assert plan["clip"].tolist() == sorted(p.name for p in (out / "clips").glob("*.wav"))
    text = (out / "README.txt").read_text(encoding="utf-8")
    assert "3 clips to annotate, 0.5 minutes" in text
    assert max(len(line) for line in text.splitlines()) <= 120
    assert {"raven": "Raven", "audacity": "Audacity", "aoef": "Whombat"}[format] in text
    others = sorted(p.name for p in (out / "clips").iterdir() if p.suffix != ".wav")
    if format == "aoef":
        assert others == []
        document = json.loads((out / "project.json").read_text(encoding="utf-8"))["data"]
        assert document["collection_type"] == "annotation_project"
        assert len(document["tasks"]) == len(document["clips"]) == 3
    else:
        assert len(others) == 3
        for clip in plan["clip"]:
            assert table_path(out, clip, format).is_file()
    # nobody has listened yet
    back = read_tasks(out)
    assert (back.clips, back.done, len(back.untouched)) == (3, 0, 3)
    assert back.annotations.reviewed.empty
    assert back.annotations.events.empty


def fill_in(out: Path, format: str, clip: str, boxes: list[tuple[float, float, float, float, str]]) -> None:
    """What a person's program would write for one clip."""
    columns = ["start_s", "end_s", "low_hz", "high_hz", "label"]
    events = pd.DataFrame(boxes, columns=columns).assign(recording=clip)
    if format != "aoef":
        path = table_path(out, clip, format)
        own = AnnotationSet(events, pd.DataFrame({"recording": [clip], "start_s": [0.0], "end_s": [10.24]}))
        write_annotations(own, path, format)
        for left in path.parent.glob("*reviewed.csv"):
            left.unlink()
        return
    file = out / "project.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    data = document["data"]
    recording = next(r["uuid"] for r in data["recordings"] if r["path"] == clip)
    its_clip = next(c["uuid"] for c in data["clips"] if c["recording"] == recording)
    tag = {"id": 0, "key": "species", "value": boxes[0][4] if boxes else "x"}
    data["tags"] = [tag]
    data.setdefault("sound_events", [])
    data.setdefault("sound_event_annotations", [])
    made = []
    for k, (start, end, low, high, _) in enumerate(boxes):
        ids = [f"00000000-0000-4000-8000-{n:012d}" for n in (2 * k + 1, 2 * k + 2)]
        geometry = {"type": "BoundingBox", "coordinates": [start, low, end, high]}
        data["sound_events"].append({"uuid": ids[0], "recording": recording, "geometry": geometry})
        data["sound_event_annotations"].append(
            {"uuid": ids[1], "sound_event": ids[0], "tags": [0], "created_on": "2024-06-01T00:00:00"}
        )
        made.append(ids[1])
    for own in data["clip_annotations"]:
        if own["clip"] == its_clip:
            own["sound_events"] = made
    for task in data["tasks"]:
        if task["clip"] == its_clip:
            task["status_badges"] = [
                {"state": "assigned", "created_on": "2024-06-01T00:00:00"},
                {"state": "completed", "created_on": "2024-06-02T00:00:00"},
            ]
    file.write_text(json.dumps(document), encoding="utf-8")


@pytest.mark.parametrize("format", ["raven", "audacity", "aoef"])
def test_finished_tables_come_back_into_the_recordings(
    format: str, dataset: Dataset, chosen: pd.DataFrame, tmp_path: Path
) -> None:
    out = tmp_path / "tasks"
    plan = write_tasks(out, chosen, dataset, format=format)  # type: ignore[arg-type]
    fill_in(
        out, format, plan["clip"][1], [(1.0, 2.5, 500.0, 900.0, "robin"), (9.5, 10.28, 100.0, 200.0, "robin")]
    )
    back = read_tasks(out)
    assert (back.clips, back.done) == (3, 1)
    events = back.annotations.events
    assert events["recording"].tolist() == ["deep/odd näme.wav"] * 2
    assert events[["start_s", "end_s"]].values.tolist() == [[6.12, 7.62], [14.62, 15.36]]  # cut to the clip
    assert events["label"].tolist() == ["robin"] * 2
    assert events["source"].tolist() == ["expert"] * 2
    assert back.annotations.reviewed.values.tolist() == [["deep/odd näme.wav", 5.12, 15.36]]


def test_a_tick_or_a_word_counts_for_clips_where_nothing_was_there(
    dataset: Dataset, chosen: pd.DataFrame, tmp_path: Path
) -> None:
    out = tmp_path / "tasks"
    write_tasks(out, chosen, dataset)
    plan = pd.read_csv(out / "plan.csv", dtype=str)
    plan.loc[2, "done"] = " Yes "
    plan.to_csv(out / "plan.csv", index=False)
    back = read_tasks(out)
    assert (back.done, back.untouched) == (1, plan["clip"].tolist()[:2])
    assert back.annotations.reviewed_empty() == ["S1_20240512_060000.wav"]
    assert read_tasks(out, all_done=True).done == 3


def test_line_ends_do_not_make_a_table_changed(
    dataset: Dataset, chosen: pd.DataFrame, tmp_path: Path
) -> None:
    out = tmp_path / "tasks"
    plan = write_tasks(out, chosen, dataset)
    file = table_path(out, plan["clip"][0], "raven")
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    assert fingerprint(file) == plan["handed_out"][0]
    assert read_tasks(out).done == 0
    assert fingerprint(out / "nothing") == ""


@pytest.mark.parametrize("format", ["raven", "audacity", "aoef"])
def test_boxes_handed_out_become_an_experts_only_when_confirmed(
    format: str, dataset: Dataset, chosen: pd.DataFrame, tmp_path: Path
) -> None:
    detected = as_events(
        pd.DataFrame(
            {
                "recording": ["S1_20240512_060000.wav"] * 3,
                "start_s": [21.48, 30.0, 31.0],
                "end_s": [22.48, 33.0, 32.0],
                "low_hz": 1_000.0,
                "high_hz": 2_000.0,
                "score": [0.4, 0.8, 0.9],
                "source": "detector",
                "model": "mast-x",
            }
        )
    )
    out = tmp_path / "tasks"
    plan = write_tasks(out, chosen, dataset, format=format, prefill=prefill_from_events(detected))  # type: ignore[arg-type]
    assert plan["prefilled"].tolist() == [2, 0, 0]
    assert "filled in 2 boxes" in (out / "README.txt").read_text(encoding="utf-8")
    assert read_tasks(out).annotations.events.empty
    events = read_tasks(out, all_done=True).annotations.events
    assert events[["start_s", "end_s"]].values.tolist() == [[21.48, 22.48], [30.0, 30.72]]
    assert events["score"].tolist() == [1.0, 1.0]
    assert events["source"].tolist() == ["expert", "expert"]
    assert events["datetime"].tolist()[0] == "2024-05-12T06:00:21.480"
    assert events["site"].tolist() == ["S1", "S1"]


def test_a_table_from_another_clip_is_refused(dataset: Dataset, chosen: pd.DataFrame, tmp_path: Path) -> None:
    out = tmp_path / "tasks"
    plan = write_tasks(out, chosen, dataset)
    fill_in(out, "raven", plan["clip"][0], [(25.0, 26.0, 100.0, 200.0, "late")])
    with pytest.raises(AnnotationError, match=r"begins at 25 s, but the clip lasts 10\.24 s"):
        read_tasks(out)


def test_a_plan_that_was_spoilt_is_answered_with_a_sentence(
    dataset: Dataset, chosen: pd.DataFrame, tmp_path: Path
) -> None:
    with pytest.raises(AnnotationError, match=r"holds no plan\.csv"):
        read_tasks(tmp_path)
    out = tmp_path / "tasks"
    write_tasks(out, chosen, dataset)
    good = pd.read_csv(out / "plan.csv", dtype=str, keep_default_na=False)
    for column, value, message in (
        ("done", "perhaps", "found 'perhaps', expected yes"),
        ("format", "word", "expected one of raven, audacity, aoef"),
        ("end_s", "0", "ends before it begins"),
        ("clip", good["clip"][1], "is listed twice"),
        ("start_s", "soon", "start_s"),
    ):
        good.assign(**{column: [value, *good[column][1:]]}).to_csv(out / "plan.csv", index=False)
        with pytest.raises(AnnotationError, match=message):
            read_tasks(out)
    good.drop(columns="handed_out").to_csv(out / "plan.csv", index=False)
    assert not is_tasks_folder(out)
    with pytest.raises(AnnotationError, match="handed_out"):
        read_tasks(out)
    good.iloc[:0].to_csv(out / "plan.csv", index=False)
    with pytest.raises(AnnotationError, match="lists no clip"):
        read_tasks(out)


def test_old_work_is_never_written_over(dataset: Dataset, chosen: pd.DataFrame, tmp_path: Path) -> None:
    write_tasks(tmp_path / "tasks", chosen, dataset)
    with pytest.raises(ConfigError, match="somebody's annotations may be in it"):
        write_tasks(tmp_path / "tasks", chosen, dataset)
    with pytest.raises(ConfigError, match="no such format of tasks"):
        write_tasks(tmp_path / "new", chosen, dataset, format="word")  # type: ignore[arg-type]


def test_a_recording_that_went_away_is_left_out_with_its_reason(
    dataset: Dataset, chosen: pd.DataFrame, tmp_path: Path
) -> None:
    dataset.path("deep/odd näme.wav").write_bytes(b"RIFF")
    plan = write_tasks(tmp_path / "tasks", chosen, dataset)
    assert len(plan) == 2
    assert plan.attrs["failed"][0][0] == "deep/odd näme.wav"
    with pytest.raises(AudioError, match=r"no clip could be cut \(1 tried\)"):
        write_tasks(tmp_path / "more", chosen.iloc[[1]], dataset)


def test_what_came_back_replaces_what_was_there(tmp_path: Path) -> None:
    def events(*rows: tuple[float, str]) -> pd.DataFrame:
        table = pd.DataFrame(rows, columns=["start_s", "label"])
        return as_events(table.assign(recording="a.wav", end_s=table["start_s"] + 1, low_hz=1.0, high_hz=2.0))

    spans = pd.DataFrame({"recording": ["a.wav"], "start_s": [0.0], "end_s": [20.0]})
    before = AnnotationSet(events((1.0, "old"), (15.0, "kept"), (40.0, "kept")), spans)
    now = AnnotationSet(
        events((2.0, "new")), spans.assign(end_s=10.0), pd.DataFrame({"recording": ["a.wav"]})
    )
    both = merge_returned(before, now)
    assert both.events["label"].tolist() == ["kept", "kept", "new"]
    assert both.reviewed[["start_s", "end_s"]].values.tolist() == [[0.0, 20.0], [0.0, 10.0]]
    again = merge_returned(both, now)
    assert again.events["label"].tolist() == ["kept", "kept", "new"]
    assert merge_returned(AnnotationSet(), AnnotationSet()).events.empty


def test_the_annotations_are_ready_for_training(
    dataset: Dataset, chosen: pd.DataFrame, tmp_path: Path
) -> None:
    """Written beside the recordings they make a dataset whose labelled chunks are those of the clips."""
    out = tmp_path / "tasks"
    plan = write_tasks(out, chosen, dataset)
    fill_in(out, "raven", plan["clip"][0], [(1.0, 2.0, 500.0, 900.0, "robin")])
    write_annotations(read_tasks(out, all_done=True).annotations, dataset.root / "boxes.csv", "csv")
    again = load_dataset(dataset.root)
    assert sorted(again.annotations.reviewed["start_s"]) == [5.12, 20.48, 40.96]
    assert again.boxed_recordings == ["S1_20240512_060000.wav"]
    assert read_annotations(dataset.root / "boxes.csv").events["start_s"].tolist() == [21.48]
