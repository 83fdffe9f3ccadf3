"""Every format returns what was written, as far as it can hold it."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from annotation_sets import RATE, annotation_sets, comparable_rows, storable_part
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from mast.annotations import FORMATS, AnnotationSet, guess_format, read_annotations, write_annotations
from mast.errors import AnnotationError
from mast.events import as_events

# (format, file name): each way of writing it
PLACES = [
    ("csv", "boxes.csv"),
    ("csv", "events.csv"),
    ("csv", "events.parquet"),
    ("csv", "dataset"),
    ("raven", "tables"),
    ("raven", "table.txt"),
    ("audacity", "labels"),
    ("coco", "coco.json"),
    ("yolo", "labels"),
    ("aoef", "aoef.json"),
    ("kaleidoscope", "cluster.csv"),
    ("birdeep", "train_file.csv"),
]
PHASES = (Phase.explicit, Phase.generate)  # shrinking a whole set of tables takes minutes and tells little
RECORDING = pd.DataFrame({"recording": ["a.wav"], "duration_s": [60.0], "sample_rate": [RATE]})


def one_event(**columns: object) -> AnnotationSet:
    box = {"recording": "a.wav", "start_s": 1.5, "end_s": 2.25, "low_hz": 1000.0, "high_hz": 3000.5}
    events = pd.DataFrame([{**box, "label": "Turdus merula", **columns}])
    spans = pd.DataFrame({"recording": ["a.wav"], "start_s": [0.0], "end_s": [60.0]})
    return AnnotationSet(events, spans, RECORDING)


@pytest.mark.parametrize(("name", "file"), PLACES)
@settings(max_examples=5, phases=PHASES)
@given(annotations=annotation_sets())
def test_what_is_written_comes_back_to_the_last_bit(name: str, file: str, annotations: AnnotationSet) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / file
        write_annotations(annotations, path, name)
        back = read_annotations(path, name).with_recordings(annotations.recordings)
    assert comparable_rows(back) == comparable_rows(storable_part(annotations, FORMATS[name]))


@pytest.mark.parametrize(("name", "file"), PLACES)
def test_long_boxes_that_begin_just_above_zero_come_back(name: str, file: str, tmp_path: Path) -> None:
    """As fractions of a long recording, their edges need more digits than decimals have by default."""
    recordings = RECORDING.assign(duration_s=27376.660716)
    box = one_event(start_s=1.1214738454922603e-08, end_s=16319.347828768932)
    written = AnnotationSet(box.events, box.reviewed.assign(end_s=27376.660716), recordings)
    write_annotations(written, tmp_path / file, name)
    back = read_annotations(tmp_path / file, name).with_recordings(recordings)
    assert comparable_rows(back) == comparable_rows(storable_part(written, FORMATS[name]))


@pytest.mark.parametrize(
    ("name", "file"), [p for p in PLACES if p[0] in ("csv", "coco", "aoef", "kaleidoscope")]
)
@settings(max_examples=5, phases=PHASES)
@given(
    annotations=annotation_sets(
        text=st.sampled_from(["tab\there", "two\nlines", 'say "so", then', " padded ", "NaN"])
    )
)
def test_labels_with_control_characters_survive_where_text_is_quoted(
    name: str, file: str, annotations: AnnotationSet
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_annotations(annotations, Path(folder) / file, name)
        assert comparable_rows(read_annotations(Path(folder) / file, name)) == comparable_rows(annotations)


@pytest.mark.parametrize("name", ["raven", "audacity", "yolo"])
def test_tabs_and_line_breaks_in_labels_become_spaces_and_are_named(name: str, tmp_path: Path) -> None:
    annotations = one_event(label="a\tb\nc")
    write_annotations(annotations, tmp_path / "out", name)
    assert read_annotations(tmp_path / "out").events["label"].tolist() == ["a b c"]
    assert "tabs and line breaks in labels (now spaces)" in FORMATS[name].lost(annotations, tmp_path / "out")


@pytest.mark.parametrize(("name", "file"), PLACES)
def test_the_format_is_found_out_from_the_content(name: str, file: str, tmp_path: Path) -> None:
    write_annotations(one_event(), tmp_path / file, name)
    assert guess_format(tmp_path / file) == name
    assert comparable_rows(read_annotations(tmp_path / file).with_recordings(RECORDING)) == comparable_rows(
        one_event()
    )


@pytest.mark.parametrize(("name", "file"), PLACES)
def test_heard_and_empty_is_not_the_same_as_never_heard(name: str, file: str, tmp_path: Path) -> None:
    recordings = pd.DataFrame(
        {"recording": ["calls.wav", "silence.wav", "unheard.wav"], "duration_s": 60.0, "sample_rate": RATE}
    )
    events = one_event().events.assign(recording="calls.wav")
    spans = pd.DataFrame(
        {"recording": ["calls.wav", "silence.wav"], "start_s": [0.0, 0.0], "end_s": [60.0, 60.0]}
    )
    annotations = AnnotationSet(events, spans, recordings)
    write_annotations(annotations, tmp_path / file, name)
    back = read_annotations(tmp_path / file, name)
    assert comparable_rows(back) == comparable_rows(annotations)
    assert back.reviewed_empty() == ["silence.wav"]
    assert "unheard.wav" not in back.annotated()


@pytest.mark.parametrize(("name", "file"), PLACES)
def test_detections_that_nobody_checked_stay_unreviewed(name: str, file: str, tmp_path: Path) -> None:
    detections = AnnotationSet(one_event(score=0.5, source="detector").events, recordings=RECORDING)
    write_annotations(detections, tmp_path / file, name)
    back = read_annotations(tmp_path / file, name)
    assert len(back.events) == 1
    assert len(back.reviewed) == 0


@pytest.mark.parametrize(("name", "file"), PLACES)
def test_frequencies_are_cut_to_nyquist_where_the_rate_is_known(name: str, file: str, tmp_path: Path) -> None:
    annotations = one_event(low_hz=7000.0, high_hz=11_000.0)
    write_annotations(annotations, tmp_path / file, name)
    assert read_annotations(tmp_path / file, name).events["high_hz"].tolist() == [8000.0]
    assert annotations.events["high_hz"].tolist() == [11_000.0]


@pytest.mark.parametrize(("name", "file"), PLACES)
def test_events_wholly_above_nyquist_are_left_out(name: str, file: str, tmp_path: Path) -> None:
    annotations = one_event(low_hz=8000.0, high_hz=11_000.0)
    assert annotations.nyquist_warning("events") == (
        "1 of 1 events lie wholly above half the sample rate and are left out; 1 recording with no other events counts "
        "as not listened to, instead of empty"
    )
    write_annotations(annotations, tmp_path / file, name)
    back = read_annotations(tmp_path / file, name)
    assert (len(annotations.reviewed), len(back.events), len(back.reviewed)) == (1, 0, 0)


@pytest.mark.parametrize(("name", "file"), PLACES)
def test_only_recordings_without_any_event_that_can_be_seen_are_no_longer_reviewed(
    name: str, file: str, tmp_path: Path
) -> None:
    names = ["above.wav", "both.wav", "empty.wav", "more.wav"]
    recordings = pd.DataFrame({"recording": names, "duration_s": 60.0, "sample_rate": RATE})
    spans = pd.DataFrame({"recording": names, "start_s": 0.0, "end_s": 60.0})
    rows = [
        ("above.wav", 9_000),
        ("more.wav", 9_000),
        ("more.wav", 10_000),
        ("both.wav", 9_000),
        ("both.wav", 2_000),
    ]
    events = pd.concat(
        [one_event(low_hz=float(low), high_hz=low + 500.0).events.assign(recording=own) for own, low in rows]
    )
    annotations = AnnotationSet(events, spans, recordings)
    assert annotations.nyquist_warning("boxes") == (
        "4 of 5 boxes lie wholly above half the sample rate and are left out; 2 recordings with no other boxes count "
        "as not listened to, instead of empty"
    )
    write_annotations(annotations, tmp_path / file, name)
    back = read_annotations(tmp_path / file, name)
    assert back.events["recording"].tolist() == ["both.wav"]
    assert sorted(back.reviewed["recording"]) == ["both.wav", "empty.wav"]
    assert back.reviewed_empty() == ["empty.wav"]


@pytest.mark.parametrize("name", ["csv", "raven", "audacity", "kaleidoscope", "birdeep"])
def test_unknown_rates_and_durations_do_not_matter(name: str, tmp_path: Path) -> None:
    spans = pd.DataFrame({"recording": ["a.wav", "b.wav"], "start_s": 0.0, "end_s": float("nan")})
    annotations = AnnotationSet(one_event(high_hz=99_000.0).events, spans)
    write_annotations(
        annotations, tmp_path / f"out{FORMATS[name].suffix if not FORMATS[name].folder else ''}", name
    )
    back = read_annotations(next(tmp_path.glob("out*")), name)
    assert comparable_rows(back) == comparable_rows(annotations)


@pytest.mark.parametrize("name", ["coco", "yolo", "aoef"])
def test_formats_that_need_a_size_say_so(name: str, tmp_path: Path) -> None:
    with pytest.raises(AnnotationError, match=r"a\.wav: duration and sample rate unknown.*--audio"):
        write_annotations(AnnotationSet(one_event().events), tmp_path / "out", name)
    assert not any(tmp_path.rglob("*.*"))


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("csv", []),
        ("raven", []),
        ("aoef", []),
        ("kaleidoscope", []),
        ("coco", []),
        ("yolo", ["events' source", "events' snr_db"]),
        ("audacity", ["events' score", "events' source", "events' snr_db"]),
        ("birdeep", ["events' score", "events' source", "events' snr_db"]),
    ],
)
def test_what_a_format_cannot_hold_is_named(name: str, lost: list[str], tmp_path: Path) -> None:
    events = one_event(score=0.5, source="detector", snr_db=3.0).events
    annotations = AnnotationSet(events)
    assert FORMATS[name].lost(annotations, tmp_path / "out") == lost


def test_facts_about_recordings_survive_in_a_folder(tmp_path: Path) -> None:
    recordings = RECORDING.assign(site="AM1", datetime="2023-05-10T07:30:00", split="train")
    annotations = AnnotationSet(one_event().events, one_event().reviewed, recordings)
    for name in ("csv", "raven", "audacity", "yolo"):
        write_annotations(annotations, tmp_path / name, name)
        back = read_annotations(tmp_path / name, name).recordings
        pd.testing.assert_frame_equal(back, annotations.recordings, check_dtype=False)
    for name in ("coco", "aoef", "birdeep"):
        write_annotations(annotations, tmp_path / f"x.{name}", name)
        back = read_annotations(tmp_path / f"x.{name}", name).recordings
        expected = annotations.recordings.drop(columns=["split"] if name != "coco" else [])
        expected["sample_rate"] = float("nan") if name == "birdeep" else RATE
        pd.testing.assert_frame_equal(back, expected, check_dtype=False)


def test_a_second_writing_leaves_no_stale_spans(tmp_path: Path) -> None:
    write_annotations(one_event(), tmp_path / "boxes.csv", "csv")
    write_annotations(AnnotationSet(one_event().events), tmp_path / "boxes.csv", "csv")
    assert len(read_annotations(tmp_path / "boxes.csv").reviewed) == 0


def test_a_failed_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "coco.json"
    write_annotations(one_event(), path, "coco")
    before = path.read_bytes()
    with pytest.raises(AnnotationError):
        write_annotations(AnnotationSet(one_event().events), path, "coco")
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["coco.json"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot tell the annotation format; expected csv, raven, audacity"),
        (b"hello world\n", "cannot tell the annotation format"),
        (b"{ not json", "not valid JSON"),
        (b"[]", "cannot tell the annotation format"),
    ],
)
def test_unknown_content_is_answered_with_the_list_of_formats(
    content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / "x.txt").write_bytes(content)
    with pytest.raises(AnnotationError, match=message):
        read_annotations(tmp_path / "x.txt")


def test_names_that_do_not_exist_are_named(tmp_path: Path) -> None:
    with pytest.raises(AnnotationError, match=r"nowhere\.csv: no such file"):
        read_annotations(tmp_path / "nowhere.csv")
    with pytest.raises(AnnotationError, match="unknown annotation format 'ravn'; choose one of csv, raven"):
        write_annotations(AnnotationSet(), tmp_path / "x", "ravn")
    with pytest.raises(AnnotationError, match="cannot tell which annotation format this folder holds"):
        read_annotations(tmp_path)
    (tmp_path / "day").mkdir()
    (tmp_path / "day" / "a.WAV").touch()
    with pytest.raises(
        AnnotationError, match=r"holds recordings but no boxes; expected boxes\.csv, a folder of"
    ):
        read_annotations(tmp_path)
    with pytest.raises(
        AnnotationError, match=r"is a folder, and coco is a single file; write to .*annotations\.json"
    ):
        write_annotations(one_event(), tmp_path, "coco")


@cache
def labelled_set(folder: Path) -> AnnotationSet:
    """Read once for all formats."""
    return read_annotations(folder)


@pytest.mark.real
@pytest.mark.parametrize("name", list(FORMATS))
@pytest.mark.parametrize("dataset", ["birdeep_am1", "nbm_xc", "tagus_fish", "cr_bats"])
def test_the_labelled_sets_convert_to_every_format_and_back(
    dataset: str, name: str, shared_data: Path, tmp_path: Path
) -> None:
    annotations = labelled_set(shared_data / dataset)
    assert len(annotations.events) > 80
    assert set(annotations.reviewed["recording"]) == set(annotations.recordings["recording"])
    assert len(annotations.reviewed_empty()) == {"birdeep_am1": 5}.get(dataset, 0)
    assert bool(annotations.nyquist_warning("events")) == (dataset == "nbm_xc")
    path = tmp_path / f"out{'' if FORMATS[name].folder else FORMATS[name].suffix}"
    write_annotations(annotations, path, name)
    back, wanted = read_annotations(path), comparable_rows(annotations.clipped_to_nyquist())
    assert comparable_rows(back) == wanted
    write_annotations(back.with_recordings(annotations.recordings), tmp_path / "again.csv", "csv")
    assert comparable_rows(read_annotations(tmp_path / "again.csv")) == wanted


def test_audacity_shows_the_score_where_there_is_no_label_and_reads_it_as_none(tmp_path: Path) -> None:
    rows = {
        "recording": ["a.wav", "a.wav"], "start_s": [0.0, 2.0], "end_s": [1.0, 3.0], "low_hz": [100.0, 100.0],
        "high_hz": [900.0, 900.0], "score": [0.831, 0.5], "label": ["", "wren"],
    }  # fmt: skip
    events = as_events(pd.DataFrame(rows))
    write_annotations(AnnotationSet(events), tmp_path / "a.txt", "audacity")
    lines = (tmp_path / "a.txt").read_text().splitlines()
    assert [line.split("\t")[2] for line in lines if not line.startswith("\\")] == ["score 0.83", "wren"]
    assert read_annotations(tmp_path / "a.txt", "audacity").events["label"].tolist() == ["", "wren"]
