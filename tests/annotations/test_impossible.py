"""One rule for all formats: what no recording can hold is refused, with one sentence that names the place."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd
import pytest

from mast.annotations import FORMATS, AnnotationSet, read_annotations, write_annotations
from mast.errors import AnnotationError, shorten

KNOWN = pd.DataFrame({"recording": ["a.wav"], "duration_s": [60.0], "sample_rate": [16_000.0]})
BOX = {"recording": "a.wav", "start_s": 1.0, "end_s": 2.0, "low_hz": 1_000.0, "high_hz": 2_000.0}
# a number as each format has it in its file, to be replaced by another: (end of the event, score)
WRITTEN = {
    "csv": (",2.0,", ",0.25"),
    "raven": ("\t2.0\t", "\t0.25"),
    "audacity": ("\t2.0\t", None),
    "coco": ("2.0,", '"score": 0.25'),
    "yolo": (None, " 0.25"),
    "aoef": ("2.0,", '"score": 0.25'),  # the time of writing may hold these digits, too
    "kaleidoscope": ("1.0,", "0.25"),
    "birdeep": (",2.0,", None),
}
SCORED = [name for name, (_, score) in WRITTEN.items() if score is not None]


def written(name: str, folder: Path) -> Path:
    """A good event with score 0.25 in this format; gives the file that holds it."""
    events = pd.DataFrame([{**BOX, "label": "robin", "score": 0.25}])
    path = folder / f"x{FORMATS[name].suffix or ''}"
    write_annotations(AnnotationSet(events, recordings=KNOWN), path, name)
    return path if path.is_file() else path / "a.txt"


def replaced(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(new.join(text.rsplit(old, 1)))


def refused(path: Path, name: str, message: str, known: pd.DataFrame | None = None) -> None:
    with pytest.raises(AnnotationError, match=message) as caught:
        read_annotations(path, name, recordings=known)
    assert str(path) in str(caught.value)
    assert len(shorten(caught.value)) <= 400


def test_all_formats_are_here() -> None:
    assert list(WRITTEN) == list(FORMATS)


@pytest.mark.parametrize("known", [None, KNOWN], ids=["alone", "with recordings"])
@pytest.mark.parametrize("name", list(FORMATS))
def test_an_end_after_ten_thousand_years_is_refused(
    name: str, known: pd.DataFrame | None, tmp_path: Path
) -> None:
    if name == "yolo":  # fractions: the picture is too long
        written(name, tmp_path)
        replaced(tmp_path / "x" / "pictures.csv", ",60.0,", ",1e22,")
        refused(
            tmp_path / "x" / "a.txt", name, r"a\.txt, line 1: ends at .*e\+\d+ s, which is over a year", known
        )
        return
    file = written(name, tmp_path)
    end = WRITTEN[name][0]
    assert end is not None
    if name in ("coco", "aoef"):
        content = json.loads(file.read_text())
        if name == "coco":
            content["annotations"][0]["bbox"][2] = 1e24
        else:
            content["data"]["sound_events"][0]["geometry"]["coordinates"][2] = 1e22
        file.write_text(json.dumps(content))
    else:
        replaced(file, end, end.replace("2.0", "1e22").replace("1.0", "1e22"))
    refused(
        file,
        name,
        r"(line 2|line 1|annotations\[0\]|sound_events\[0\]): ends at 1e\+22 s, which is over a year",
        known,
    )


@pytest.mark.parametrize("score", ["-1", "50", "nan", "inf"])
@pytest.mark.parametrize("name", SCORED)
def test_a_score_is_a_probability(name: str, score: str, tmp_path: Path) -> None:
    file, old = written(name, tmp_path), WRITTEN[name][1]
    assert old is not None
    as_json = {"nan": "NaN", "inf": "Infinity"}.get(score, score) if file.suffix == ".json" else score
    replaced(file, old, old.replace("0.25", as_json))
    refused(
        file, name, r"(score.*expected a probability|expected a finite number|must be a finite number|finite)"
    )


def test_a_box_may_end_a_little_after_its_recording_and_not_an_hour(tmp_path: Path) -> None:
    path = tmp_path / "boxes.csv"
    path.write_text("file,start_s,end_s,low_hz,high_hz\naudio/a.wav,59,60.7,1000,2000\n")
    assert read_annotations(path, recordings=KNOWN).events["end_s"].tolist() == [60.7]
    path.write_text(
        "file,start_s,end_s,low_hz,high_hz\naudio/a.wav,59,60.7,1000,2000\naudio/a.wav,59,8000,1,2\n"
    )
    refused(path, "csv", r"event 2: ends at 8000 s, but a\.wav lasts 60 s; does it belong to another", KNOWN)
    assert len(read_annotations(path).events) == 2  # nobody knows how long it is


def lowered(name: str, folder: Path, low: float, high: float) -> Path:
    """The event from 1 to 2 kHz in this format, from ``low`` to ``high`` instead."""
    file = written(name, folder)
    if name == "yolo":  # fractions of the picture, which reaches up to 8 kHz
        file.write_text(f"0 0.025 {1 - (low + high) / 2 / 8_000} 0.0166667 {(high - low) / 8_000}\n")
    elif file.suffix == ".json":
        content = json.loads(file.read_text())
        if name == "coco":  # 512 rows of pixels, counted from the top
            (event,) = content["annotations"]
            event.pop("box")
            event["bbox"][1::2] = [512 * (1 - high / 8_000), 512 * (high - low) / 8_000]
        else:
            content["data"]["sound_events"][0]["geometry"]["coordinates"][1::2] = [low, high]
        file.write_text(json.dumps(content))
    else:
        replaced(file, "2000.0", str(high))
        replaced(file, "1000.0", str(low))
    return file


@pytest.mark.parametrize("low", [-0.5, -20.0])
@pytest.mark.parametrize("name", list(FORMATS))
def test_a_box_a_little_below_zero_is_cut_there(name: str, low: float, tmp_path: Path) -> None:
    file = lowered(name, tmp_path, low, 2_000.0)
    with pytest.warns(UserWarning, match=r"1 of 1 box reaches below 0 Hz and is cut there") as told:
        (event,) = read_annotations(file, name, recordings=KNOWN).events.to_dict("records")
    assert event["low_hz"] == 0.0
    assert event["high_hz"] == pytest.approx(2_000.0)
    assert (event["start_s"], event["end_s"]) == pytest.approx((1.0, 2.0), abs=1e-4)
    assert [str(warning.message).startswith(f"{file}: ") for warning in told] == [True]


@pytest.mark.parametrize(("low", "high"), [(-20.0, -10.0), (-20.0, 0.0)])
@pytest.mark.parametrize("name", [name for name in FORMATS if name != "yolo"])  # whose fractions are 0 to 1
def test_a_box_wholly_below_zero_is_refused(name: str, low: float, high: float, tmp_path: Path) -> None:
    refused(lowered(name, tmp_path, low, high), name, rf"lies below 0 Hz, from -20 to {high:g} Hz", KNOWN)


def test_lines_at_zero_are_kept(tmp_path: Path) -> None:
    file = lowered("csv", tmp_path, 0.0, 0.0)
    assert read_annotations(file).events[["low_hz", "high_hz"]].to_numpy().tolist() == [[0.0, 0.0]]


def test_what_is_written_begins_at_zero(tmp_path: Path) -> None:
    boxes = pd.DataFrame([{**BOX, "low_hz": -20.0}])
    write_annotations(AnnotationSet(boxes, recordings=KNOWN), tmp_path / "x.csv", "csv")
    assert pd.read_csv(tmp_path / "x.csv")["low_hz"].tolist() == [0.0]


def test_parquet_follows_the_same_rule(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    for wrong in ({"end_s": 1e22}, {"end_s": float("nan")}, {"score": -1.0}, {"high_hz": 1e12}):
        pd.DataFrame([{**BOX, **wrong}]).to_parquet(path)
        refused(path, "csv", "row 1: ")
    pd.DataFrame([{**BOX, "low_hz": -3.0}]).to_parquet(path)
    with pytest.warns(UserWarning, match="1 of 1 box reaches below 0 Hz"):
        assert read_annotations(path).events["low_hz"].tolist() == [0.0]
    pd.DataFrame([{**BOX, "start_s": pd.Timestamp("2024-05-01")}]).to_parquet(path)
    refused(path, "csv", "column start_s holds something that is not a number")
    pd.DataFrame([{**BOX, "score": None}]).to_parquet(path)  # blank: not known
    assert read_annotations(path).events["score"].isna().all()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0 1e400 0.5 0.1 0.1", "expected fractions of the picture from 0 to 1"),
        ("0 0.5 0.5 1e400 0.1", "expected fractions of the picture from 0 to 1"),
        ("0 320 200 64 32", "from 0 to 1, not pixels"),
        ("0 0.5 0.5 0.1 0.1 1e400", "score inf, expected a probability"),
        ("9" * 5_000 + " 0.5 0.5 0.1 0.1", "class number 999999999… has 5,000 digits"),
    ],
)
def test_bad_yolo_lines_are_named(line: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(line + "\n")
    refused(tmp_path / "a.txt", "yolo", f"line 1: .*{message}", KNOWN)
    if "digits" not in message:
        return
    (tmp_path / "classes.txt").write_text("robin\n")
    refused(tmp_path / "a.txt", "yolo", message, KNOWN)


@pytest.mark.parametrize("name", ["coco", "aoef", None])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"images": ' + "[" * 100_000, "too deeply to be annotations"),
        (
            '{"images": [], "annotations": [], "data": ' + "9" * 5_000 + "}",
            "a number has thousands of digits",
        ),
        ('{"images": [], "annotations": [], "x": "\\ud800"}', "incomplete character"),
        ('{"images": [], "annotations": [' + "x" * 200_000, "not valid JSON"),
    ],
)
def test_hostile_json_is_one_sentence(name: str | None, text: str, message: str, tmp_path: Path) -> None:
    assert sys.get_int_max_str_digits() == 4_300
    (tmp_path / "x.json").write_text(text)
    refused(tmp_path / "x.json", name, message)  # type: ignore[arg-type]


COCO = {
    "images": [{"id": 1, "file_name": "a.wav", "width": 600, "height": 80}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [10, 10, 20, 20]}],
    "categories": [{"id": 1, "name": "robin"}],
}


@pytest.mark.parametrize(
    ("part", "field", "value", "message"),
    [
        ("images", "width", "wide", r"image a\.wav: width, height must be two finite numbers"),
        ("images", "height", True, "width, height must be two finite numbers"),
        ("images", "height", 10**400, "width, height must be two finite numbers"),
        ("images", "extent", ["long", 0, 8000], "extent must be three finite numbers, found"),
        ("images", "duration_s", "long", "column duration_s holds something that is not a number"),
        ("images", "reviewed", [["soon", 5]], "reviewed must be two finite numbers"),
        ("images", "reviewed", 7, "reviewed must be pairs of start and end"),
        ("images", "reviewed", [[5, 1]], "reviewed span 1: starts at 5 s after it ends at 1 s"),
        ("images", "id", [1], r"images\[0\]: id \[1\] is not a valid id"),
        ("annotations", "bbox", [0, 0, "x", 1], "bbox must be four finite numbers"),
        ("annotations", "bbox", [0, 0, 10**400, 1], "bbox must be four finite numbers"),
        ("annotations", "image_id", [1], "is not among the images"),
        ("annotations", "category_id", {}, "is not among the categories"),
        ("annotations", "score", "high", "score must be a finite number, found 'high'"),
        ("categories", "id", {"a": 1}, r"categories\[0\]: id .* is not a valid id"),
    ],
)
def test_words_for_numbers_in_coco_are_named(
    part: str, field: str, value: object, message: str, tmp_path: Path
) -> None:
    content = json.loads(json.dumps(COCO))
    content[part][0][field] = value
    (tmp_path / "c.json").write_text(json.dumps(content))
    refused(tmp_path / "c.json", "coco", message, KNOWN)


@pytest.mark.parametrize(("field", "value"), [("duration_s", -3), ("duration_s", 1e22), ("sample_rate", 0)])
def test_a_picture_of_a_recording_that_cannot_be_is_named(field: str, value: float, tmp_path: Path) -> None:
    image = {**COCO["images"][0], "extent": [6, 0, 8000], field: value}
    (tmp_path / "c.json").write_text(json.dumps({**COCO, "images": [image]}))
    refused(tmp_path / "c.json", "coco", rf"{field} of a\.wav: found {value:g}".replace("+", r"\+"))


def test_two_images_of_one_id_are_not_mixed_up(tmp_path: Path) -> None:
    twice = {**COCO, "images": [*COCO["images"], {**COCO["images"][0], "file_name": "b.wav"}]}
    (tmp_path / "c.json").write_text(json.dumps(twice))
    refused(tmp_path / "c.json", "coco", r"images\[1\]: id 1 .*is used twice", KNOWN)


def test_a_further_field_never_moves_a_box(tmp_path: Path) -> None:
    """A field, tag or feature may have the name of one of our columns; the box is the format's own."""
    content = json.loads(json.dumps(COCO))
    expected = _box(content, tmp_path, "coco")
    content["annotations"][0] |= {"start_s": 7, "end_s": "x", "recording": "b.wav"}
    assert _box(content, tmp_path, "coco") == expected
    aoef = written("aoef", tmp_path)
    content = json.loads(aoef.read_text())
    expected = _box(content, tmp_path, "aoef")
    (event,) = content["data"]["sound_events"]
    event["features"] = {**event["features"], "end_s": 9.0, "low_hz": 1.0}
    assert _box(content, tmp_path, "aoef") == expected


def _box(content: object, folder: Path, name: str) -> list[object]:
    (folder / "box.json").write_text(json.dumps(content))
    (row,) = read_annotations(folder / "box.json", name, recordings=KNOWN).events[list(BOX)].values.tolist()
    return list(row)


def test_a_birdeep_duration_of_5000_digits_is_named(tmp_path: Path) -> None:
    file = written("birdeep", tmp_path)
    replaced(file, "00:01:00", "9" * 5_000 + ":01:00")
    refused(file, "birdeep", "line 2, audio_duration: found '9+.*expected hours:minutes:seconds")


def test_a_cell_of_200_kilobytes_is_not_shown_whole(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("file,start_s,end_s,low_hz,high_hz\na.wav," + "x" * 200_000 + ",1,2,3\n")
    refused(tmp_path / "x.csv", "csv", "line 2, start_s: found 'xxx")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a.wav,-5,16000", r"duration_s of a\.wav: found -5, expected seconds"),
        ("a.wav,1e22,16000", r"duration_s of a\.wav: found 1e\+22"),
        ("a.wav,60,-1", r"sample_rate of a\.wav: found -1"),
        ("a.wav,60,1e22", r"sample_rate of a\.wav: found 1e\+22"),
    ],
)
def test_a_recording_that_cannot_be_is_named(row: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "boxes.csv").write_text("file,start_s,end_s,low_hz,high_hz\n")
    (tmp_path / "recordings.csv").write_text(f"file,duration_s,sample_rate\n{row}\n")
    refused(tmp_path, "csv", message)
    assert len(read_annotations(tmp_path, recordings=KNOWN).recordings) == 1  # who has the file knows better


@pytest.mark.parametrize("name", list(FORMATS))
def test_a_formula_stays_the_label_it_is(name: str, tmp_path: Path) -> None:
    """Spreadsheets may run it, docs/formats.md says so; changing it would change somebody's label."""
    for label in ("=cmd()", "+1", "-x", "@SUM(A1)"):
        events = pd.DataFrame([{**BOX, "label": label}])
        path = tmp_path / f"{name}{label[0]}{FORMATS[name].suffix or ''}"
        write_annotations(AnnotationSet(events, recordings=KNOWN), path, name)
        assert read_annotations(path, name).events["label"].tolist() == [label]
