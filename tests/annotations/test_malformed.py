"""Each bad input is answered with one sentence that names the file, the line and the field."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from mast.annotations import read_annotations
from mast.errors import AnnotationError

RAVEN = "Selection\tView\tChannel\tBegin Time (s)\tEnd Time (s)\tLow Freq (Hz)\tHigh Freq (Hz)\tAnnotation\n"
CSV = "file,start_s,end_s,low_hz,high_hz,label\n"
BIRDEEP = "path,annotator,recorder,date,time,audio_duration,"
BIRDEEP += "start_time,end_time,low_frequency,high_frequency,specie,bbox\n"
KALEIDOSCOPE = "INDIR,FOLDER,IN FILE,OFFSET,DURATION,Fmin,Fmax,MANUAL ID\n"


def raven_row(start: object = 1, end: object = 2, low: object = 10, high: object = 20) -> str:
    return f"1\tSpectrogram 1\t1\t{start}\t{end}\t{low}\t{high}\tx\n"


CASES = [
    ("raven", b"", r"the file is empty; a table without rows still needs its header line"),
    (
        "raven",
        "Selection\tView\tBegin Time (s)\n",
        r"columns End Time \(s\), Low Freq \(Hz\), High Freq \(Hz\) missing; found",
    ),
    ("raven", RAVEN + raven_row() + raven_row(3, 2), r"line 3: starts at 3 s after it ends at 2 s"),
    ("raven", RAVEN + raven_row(low=-5, high=-1), r"line 2: lies below 0 Hz, from -5 to -1 Hz"),
    ("raven", RAVEN + raven_row() + raven_row(low=-5, high=0), r"line 3: lies below 0 Hz, from -5 to 0 Hz"),
    ("raven", RAVEN + raven_row(low=30), r"line 2: low frequency 30 Hz above the high frequency 20 Hz"),
    ("raven", RAVEN + raven_row(start=-0.5), r"line 2: starts before the recording"),
    ("raven", RAVEN + raven_row(start=""), r"line 2, Begin Time \(s\): blank, expected a number"),
    (
        "raven",
        RAVEN + raven_row(start="nan"),
        r"line 2, Begin Time \(s\): found 'nan', expected a finite number",
    ),
    (
        "raven",
        RAVEN + raven_row(start="1,5", end=2.5),
        r"line 2, Begin Time \(s\): found '1,5'.*as in 1234\.5",
    ),
    ("raven", RAVEN + raven_row(start="soon"), r"line 2, Begin Time \(s\): found 'soon', expected a number"),
    ("raven", RAVEN + raven_row().strip() + "\ta\tb\n", r"line 2: 10 fields, the header has 8"),
    (
        "raven",
        RAVEN + raven_row(high=""),
        r"line 2, High Freq \(Hz\): no upper frequency, and the sample rate of x is unknown",
    ),
    ("csv", b"", r"the file is empty; a table without rows still needs its header line"),
    ("csv", "file,start_s\na.wav,1\n", r"columns end_s, low_hz, high_hz missing; found file, start_s"),
    ("csv", CSV + "a.wav,2,1,10,20,x\n", r"line 2: starts at 2 s after it ends at 1 s"),
    ("csv", CSV + "a.wav,0,1,10,,x\n", r"line 2, high_hz: blank"),
    ("csv", CSV + "a.wav,0,1,10,inf,x\n", r"line 2, high_hz: found 'inf', expected a finite number"),
    (
        "csv",
        CSV.replace(",", ";") + "a.wav;0;1;10;1,500;x\n",
        r"line 2, high_hz: found '1,500'.*as in 1234\.5",
    ),
    (
        "csv",
        CSV.replace(",", ";") + "a.wav;0,5;1;10;2.867,6;x\n",
        r"line 2, high_hz: found '2\.867,6', expected a number \(write 2867,6\)",
    ),
    (
        "audacity",
        "1.0\t2.0\tbird\n",
        r"line 1: no upper frequency, and the sample rate of x is unknown; give.*--audio",
    ),
    ("audacity", "2.0\t1.0\tbird\n\\\t10\t20\n", r"line 1: starts at 2 s after it ends"),
    ("audacity", "\\\t10\t20\n", r"line 1: frequencies without a label line above them"),
    ("audacity", "1.0 2.0 bird\n", r"line 1: expected start, end and label between tabs"),
    ("audacity", "1.0\t2.0\tbird\n\\\t10\tx\n", r"line 2, frequency: found 'x', expected a number"),
    ("audacity", "1.0\t2.0\tbird\n\\\t-7\t-2\n", r"line 1: lies below 0 Hz"),
    ("coco", "{", r"line 1: not valid JSON"),
    ("coco", "{}", r"no list 'images'"),
    ("aoef", "{", r"line 1: not valid JSON"),
    ("aoef", "{}", r"not an AOEF document"),
    ("kaleidoscope", "INDIR,FOLDER\n", r"columns IN FILE, OFFSET, DURATION missing"),
    ("kaleidoscope", KALEIDOSCOPE + ",,a.wav,1,-2,10,20,x\n", r"line 2, DURATION: negative"),
    ("kaleidoscope", KALEIDOSCOPE + ",,a.wav,1,,10,20,x\n", r"line 2, DURATION: blank"),
    ("kaleidoscope", KALEIDOSCOPE + ",,a.wav,1,2,10,,x\n", r"line 2, Fmax: no upper frequency"),
    (
        "birdeep",
        BIRDEEP + "a.WAV,Edu,AM1,2023/05/10,06:00:00,1 min,1,2,3,4,x,\n",
        r"line 2, audio_duration: found '1 min'",
    ),
    (
        "birdeep",
        BIRDEEP + "a.WAV,Edu,AM1,2023/05/10,06:00:00,00:01:00,1,2,3,4,x,b,c.WAV,Edu\n",
        r"line 2: 14 fields",
    ),
    (
        "birdeep",
        BIRDEEP + "a.WAV,Edu,AM1,2023/05/10,06:00:00,00:01:00,1,2,-4,-2,x,\n",
        r"line 2: lies below 0 Hz",
    ),
    (
        "yolo",
        "0 0.5 0.5 0.1 0.1\n",
        r"duration and sample rate are unknown, so fractions cannot be turned into seconds and Hz",
    ),
    ("yolo", "0 0.5 0.5 0.1\n", r"line 1: 4 fields, expected class"),
]


@pytest.mark.parametrize(
    ("format", "content", "message"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)]
)
def test_bad_input_is_named(format: str, content: str | bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(AnnotationError, match=message) as caught:
        read_annotations(path, format)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


KNOWN = pd.DataFrame({"recording": ["a.wav"], "duration_s": [60.0], "sample_rate": [16_000.0]})
IMAGE = {"id": 1, "file_name": "a.wav", "width": 600, "height": 80}


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ({"image_id": 9, "bbox": [0, 0, 1, 1]}, r"annotations\[0\]: image_id 9 is not among the images"),
        ({"image_id": 1, "bbox": [0, 0, 1]}, r"annotations\[0\]: bbox must be four finite numbers"),
        ({"image_id": 1, "bbox": [0, 0, -1, 1]}, r"annotations\[0\]: bbox has a negative width"),
        ({"image_id": 1}, r"annotations\[0\]: bbox missing"),
        (
            {"image_id": 1, "category_id": 4, "bbox": [0, 0, 1, 1]},
            r"category_id 4 is not among the categories",
        ),
    ],
)
def test_bad_coco_is_named(annotation: dict[str, object], message: str, tmp_path: Path) -> None:
    content = {"images": [dict(IMAGE)], "annotations": [{"id": 1, **annotation}], "categories": []}
    (tmp_path / "c.json").write_text(json.dumps(content))
    with pytest.raises(AnnotationError, match=message):
        read_annotations(tmp_path / "c.json", recordings=KNOWN)


def test_coco_without_sizes_says_what_to_give(tmp_path: Path) -> None:
    content = {
        "images": [IMAGE],
        "annotations": [{"id": 1, "image_id": 1, "bbox": [0, 0, 1, 1]}],
        "categories": [],
    }
    (tmp_path / "c.json").write_text(json.dumps(content))
    with pytest.raises(AnnotationError, match=r"image a\.wav: duration and sample rate are unknown.*--audio"):
        read_annotations(tmp_path / "c.json")


def test_swapped_times_in_aoef_are_not_put_in_order_silently(tmp_path: Path) -> None:
    box = {"type": "BoundingBox", "coordinates": [2.0, 10.0, 1.0, 20.0]}
    content = {
        "version": "1.1.0",
        "data": {"collection_type": "annotation_set", "sound_events": [{"geometry": box}]},
    }
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(AnnotationError, match=r"sound_events\[0\]: starts at 2 s after it ends at 1 s"):
        read_annotations(tmp_path / "a.json")


def test_a_bad_span_is_named(tmp_path: Path) -> None:
    (tmp_path / "boxes.csv").write_text(CSV)
    (tmp_path / "reviewed.csv").write_text("file,start_s,end_s\na.wav,5,1\n")
    with pytest.raises(AnnotationError, match=r"reviewed\.csv, line 2: starts at 5 s after it ends at 1 s"):
        read_annotations(tmp_path / "boxes.csv")


def test_a_recording_listed_twice_is_named(tmp_path: Path) -> None:
    (tmp_path / "boxes.csv").write_text(CSV)
    (tmp_path / "recordings.csv").write_text("file\na.wav\na.wav\n")
    with pytest.raises(AnnotationError, match=r"recordings\.csv, line 3: a\.wav is listed twice"):
        read_annotations(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "x.Table.1.selections.txt",
            "Selection\tEnd Time (s)\n",
            r"selections\.txt: columns Begin Time \(s\), Low Freq",
        ),
        (
            "x.Table.1.selections.txt",
            "",
            r"selections\.txt: the file is empty; a table without rows still needs its header line",
        ),
        ("x.xlsx", "PK", r"x\.xlsx: is a spreadsheet; save it as text"),
    ],
)
def test_a_table_that_cannot_be_read_is_named_not_the_formats_there_are(
    name: str, content: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(AnnotationError, match=message):
            read_annotations(path)


@pytest.mark.parametrize("stray", ["notes.txt", "A first.txt"])
@pytest.mark.parametrize("text", ["remember to check\n", "Ana, check\na, b, c, d\n", "Species\nwren\n"])
def test_a_stray_text_in_a_folder_of_selection_tables_is_skipped(
    tmp_path: Path, stray: str, text: str
) -> None:
    (tmp_path / "a.txt").write_text(RAVEN + raven_row())
    (tmp_path / stray).write_text(text)
    says = f"{tmp_path}: skipped 1 file without any column of a selection table ({stray})"
    with pytest.warns(UserWarning, match=f"^{re.escape(says)}$"):
        found = read_annotations(tmp_path)
    assert found.annotated() == ["a"]
    for format in (None, "raven"):
        with pytest.raises(AnnotationError, match=rf"{stray}: |{stray}, line 2: "):
            read_annotations(tmp_path / stray, format)
    (tmp_path / "a.txt").unlink()
    with (
        pytest.warns(UserWarning, match="skipped 1 file"),
        pytest.raises(AnnotationError, match="no selection tables"),
    ):
        read_annotations(tmp_path, "raven")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("b.txt", "Selection\tBegin Time (s)\n1\t2\n", r"columns End Time \(s\), .* missing"),
        ("b.txt", "Begin File\tlabel\nx.wav\twren\n", r"columns Begin Time \(s\), .* missing"),
        ("b.txt", raven_row(), r"columns Begin Time \(s\), .* missing"),
        ("b.txt", "0.5\t1.5\twren\n", r"columns Begin Time \(s\), .* missing"),
        ("b.Table.1.selections.txt", "remember to check\n", r"columns Begin Time \(s\), .* missing"),
        ("b.txt", "", "the file is empty"),
    ],
)
def test_what_may_have_been_a_selection_table_is_not_skipped(
    tmp_path: Path, name: str, text: str, says: str
) -> None:
    (tmp_path / "a.txt").write_text(RAVEN + raven_row())
    (tmp_path / name).write_text(text)
    with pytest.raises(AnnotationError, match=says):
        read_annotations(tmp_path)
