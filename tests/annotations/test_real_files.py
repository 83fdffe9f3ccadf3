"""Files as tools and people write them: column orders, views, offsets, encodings, open limits."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pandas as pd
import pytest

from mast.annotations import read_annotations
from mast.annotations.recording_names import RecordingNames, label_keys
from mast.annotations.tables import read_text
from mast.errors import AnnotationError

BOX = ["recording", "start_s", "end_s", "low_hz", "high_hz", "label"]
KNOWN = pd.DataFrame({"recording": ["a.wav"], "duration_s": [60.0], "sample_rate": [16_000.0]})


def boxes(path: Path, format: str | None = None, **options: object) -> list[list[object]]:
    return read_annotations(path, format, **options).events[BOX].values.tolist()  # type: ignore[arg-type]


def test_raven_in_any_column_order_with_frequency_spelt_out(tmp_path: Path) -> None:
    table = "Species\tHigh Frequency (Hz)\tLow Frequency (Hz)\tend time (s)\tBEGIN TIME (s)\nrobin\t20\t10\t2.5\t1\n"
    (tmp_path / "a.Table.1.selections.txt").write_text(table)
    assert boxes(tmp_path / "a.Table.1.selections.txt") == [["a", 1.0, 2.5, 10.0, 20.0, "robin"]]


def test_raven_keeps_each_selection_once_and_prefers_the_spectrogram(tmp_path: Path) -> None:
    header = "Selection\tView\tBegin Time (s)\tEnd Time (s)\tLow Freq (Hz)\tHigh Freq (Hz)\n"
    rows = [
        "1\tWaveform 1\t1\t2\t0\t8000",
        "1\tSpectrogram 1\t1\t2\t10\t20",
        "2\tWaveform 1\t3\t4\t0\t8000",
        "2\tSpectrogram 1\t3\t4\t30\t40",
        "2\tSpectrogram 1\t5\t6\t50\t60",  # numbers that start again are not the same selection
    ]
    (tmp_path / "a.txt").write_text(header + "\n".join(rows) + "\n")
    assert [b[3] for b in boxes(tmp_path / "a.txt")] == [10.0, 30.0, 50.0]


def test_raven_file_offset_wins_over_time_in_the_list_of_files(tmp_path: Path) -> None:
    header = "Selection\tBegin Time (s)\tEnd Time (s)\tLow Freq (Hz)\tHigh Freq (Hz)\tBegin Path\tFile Offset (s)\n"
    rows = "1\t0.5\t0.7\t1\t2\tD:\\data\\s1\\a.wav\t0.5\n2\t60.1\t60.4\t1\t2\tD:\\data\\s1\\b.wav\t0.1\n"
    (tmp_path / "all.txt").write_text(header + rows)
    found = boxes(tmp_path / "all.txt")
    assert [b[:3] for b in found] == [["a.wav", 0.5, 0.7], ["b.wav", 0.1, 0.4]]
    known = pd.DataFrame({"recording": ["s1/a.wav", "s1/b.wav", "s2/b.wav"]})
    assert [b[0] for b in boxes(tmp_path / "all.txt", recordings=known)] == ["s1/a.wav", "s1/b.wav"]


def raven_times(path: Path, rows: list[tuple[float, float, str, float]]) -> list[list[float]]:
    """What is read from Begin Time, End Time, Begin Path and File Offset."""
    header = "Begin Time (s)\tEnd Time (s)\tBegin Path\tFile Offset (s)\tLow Freq (Hz)\tHigh Freq (Hz)\n"
    path.write_text(header + "".join("\t".join(map(str, (*row, 1, 2))) + "\n" for row in rows))
    return read_annotations(path).events[["start_s", "end_s"]].values.tolist()


@pytest.mark.parametrize("start", [4.5, 5.5])
def test_raven_begin_time_that_was_changed_is_used(start: float, tmp_path: Path) -> None:
    """In R and Excel, people change it alone."""
    with warnings.catch_warnings(action="error"):
        rows = [(1.0, 2.0, "a.wav", 1.0), (start, 6.0, "a.wav", 5.0)]
        assert raven_times(tmp_path / "a.txt", rows) == [[1.0, 2.0], [start, 6.0]]
    assert raven_times(tmp_path / "a.txt", [(4.5, 6.0, "a.wav", 5.0)]) == [[4.5, 6.0]]


def test_raven_tables_of_several_files_are_read_by_their_offset(tmp_path: Path) -> None:
    first = [(1.0, 2.0, "a.wav", 1.0), (3.0, 4.0, "a.wav", 3.0)]
    second = [(61.0, 62.0, "b.wav", 1.0), (65.0, 66.0, "b.wav", 5.0001)]
    with warnings.catch_warnings(action="error"):
        assert raven_times(tmp_path / "a.txt", second) == [[1.0, 2.0], [5.0001, 6.0001]]
        assert raven_times(tmp_path / "a.txt", first + second)[2:] == [[1.0, 2.0], [5.0001, 6.0001]]
    rows = [*first, second[0], (64.5, 66.0, "b.wav", 5.0), (67.0, 68.0, "b.wav", 7.0)]
    with pytest.warns(UserWarning, match=r"line 5: Begin Time \(s\) and File Offset \(s\) disagree"):
        assert raven_times(tmp_path / "a.txt", rows)[3] == [5.0, 6.5]
    with pytest.warns(UserWarning, match=r"line 4: Begin Time \(s\) and File Offset \(s\) disagree"):
        assert raven_times(
            tmp_path / "a.txt", [*first, (61.0, 62.0, "a.wav", 1.0), (65.0, 66.0, "a.wav", 5.0)]
        )


def test_raven_keeps_columns_people_added(tmp_path: Path) -> None:
    header = "Selection\tBegin Time (s)\tEnd Time (s)\tLow Freq (Hz)\tHigh Freq (Hz)\tConfidence\tnotes\tSNR (dB)\n"
    (tmp_path / "a.txt").write_text(header + '1\t1\t2\t3\t4\t0.8\tsaid "maybe"\t1.25\n')
    event = read_annotations(tmp_path / "a.txt").events.iloc[0]
    assert (event["score"], event["notes"], event["SNR (dB)"]) == (0.8, 'said "maybe"', 1.25)


def test_results_of_birdnet_reach_over_the_whole_band(tmp_path: Path) -> None:
    header = "Start (s),End (s),Scientific name,Common name,Confidence"
    row = "3.0,6.0,Erithacus rubecula,European Robin,0.8"
    for folder, last, value in (("new", ",File", ",/home/me/a.wav"), ("old", "", "")):
        table = tmp_path / folder / "a.BirdNET.results.csv"
        table.parent.mkdir()
        table.write_text(f"{header}{last}\n{row}{value}\n")
        for path in (table, table.parent):
            event = read_annotations(path, recordings=KNOWN).events.iloc[0]
            assert event[BOX].tolist() == ["a.wav", 3.0, 6.0, 0.0, 8_000.0, "European Robin"]
            assert (event["score"], event["Scientific name"]) == (0.8, "Erithacus rubecula")
    with pytest.raises(AnnotationError, match=r"line 2, High Freq \(Hz\): no upper frequency.*sample rate"):
        read_annotations(table)


def test_raven_label_is_the_first_column_that_is_filled(tmp_path: Path) -> None:
    """Tables of mast have a column Annotation, and people add their own beside it."""
    header = "Begin Time (s)\tEnd Time (s)\tLow Freq (Hz)\tHigh Freq (Hz)\tSpecies\tAnnotation\n"
    (tmp_path / "a.txt").write_text(header + "1\t2\t3\t4\trobin\t\n2\t3\t3\t4\twren\t \n")
    events = read_annotations(tmp_path / "a.txt").events
    assert events["label"].tolist() == ["robin", "wren"]
    assert "Species" not in events, "it would win over nothing, and be ignored when edited"
    (tmp_path / "a.txt").write_text(header + "1\t2\t3\t4\trobin\tsong\n2\t3\t3\t4\twren\t\n")
    events = read_annotations(tmp_path / "a.txt").events
    assert events[["label", "Species"]].values.tolist() == [["song", "robin"], ["wren", "wren"]]


def test_raven_columns_not_taken_for_labels_are_said(tmp_path: Path) -> None:
    header = "Begin Time (s)\tEnd Time (s)\tLow Freq (Hz)\tHigh Freq (Hz)\tsp. code\tBegin Date\tAnnotation\n"
    (tmp_path / "a.txt").write_text(header + "1\t2\t3\t4\tERIRUB\t2024/05/12\t\n")
    with pytest.warns(
        UserWarning, match=r"no box has a label; the label is not taken from sp\. code, only .* Type$"
    ):
        read_annotations(tmp_path / "a.txt")
    with warnings.catch_warnings(action="error"):
        (tmp_path / "a.txt").write_text(header + "1\t2\t3\t4\t\t2024/05/12\t\n")
        read_annotations(tmp_path / "a.txt")
        (tmp_path / "a.txt").write_text(header + "1\t2\t3\t4\tERIRUB\t2024/05/12\trobin\n")
        read_annotations(tmp_path / "a.txt")


def test_raven_header_only_table_is_a_recording_heard_and_empty(tmp_path: Path) -> None:
    header = "Selection\tView\tChannel\tBegin Time (s)\tEnd Time (s)\tLow Freq (Hz)\tHigh Freq (Hz)\n"
    (tmp_path / "AM1_20230510_073000.Table.1.selections.txt").write_text(header)
    found = read_annotations(tmp_path, recordings=pd.DataFrame({"recording": ["AM1_20230510_073000.flac"]}))
    assert found.reviewed_empty() == ["AM1_20230510_073000.flac"]
    assert len(found.events) == 0


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "cp1252"]
)
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_encodings_and_line_ends(encoding: str, newline: str, tmp_path: Path) -> None:
    table = "Begin Time (s)\tEnd Time (s)\tLow Freq (Hz)\tHigh Freq (Hz)\tSpecies\n1\t2\t3\t4\tpájaro niño\n"
    (tmp_path / "a.txt").write_bytes(table.replace("\n", newline).encode(encoding))
    assert boxes(tmp_path / "a.txt") == [["a", 1.0, 2.0, 3.0, 4.0, "pájaro niño"]]
    (tmp_path / "a.txt").write_bytes(f"1\t2\tniño{newline}\\\t3\t4{newline}".encode(encoding))
    assert boxes(tmp_path / "a.txt") == [["a", 1.0, 2.0, 3.0, 4.0, "niño"]]


@pytest.mark.parametrize("delimiter", ["\t", ";"])
def test_decimal_commas(delimiter: str, tmp_path: Path) -> None:
    header = [
        "Begin Time (s)",
        "End Time (s)",
        "Low Freq (Hz)",
        "High Freq (Hz)",
        "File Offset (s)",
        "Species",
    ]
    row = ["61,250", "62,5", "1000", "2867,63", "1,250", "3,5 notes"]
    (tmp_path / "a.txt").write_text("\n".join(map(delimiter.join, (header, row))))
    assert boxes(tmp_path / "a.txt") == [["a", 1.25, 2.5, 1000.0, 2867.63, "3,5 notes"]]
    (tmp_path / "k.csv").write_text("IN FILE;OFFSET;DURATION;Fmin;Fmax\na.wav;1,25;0,5;1000;2000\n")
    assert boxes(tmp_path / "k.csv") == [["a.wav", 1.25, 1.75, 1000.0, 2000.0, ""]]


def test_rows_of_nothing_but_delimiters_are_no_boxes(tmp_path: Path) -> None:
    """Spreadsheets write them where rows were cleared."""
    table = "Begin Time (s)\tEnd Time (s)\tLow Freq (Hz)\tHigh Freq (Hz)\n\t\t\t\n1\t2\t3\t4\n\t \t\t\n"
    (tmp_path / "a.txt").write_text(table)
    assert boxes(tmp_path / "a.txt") == [["a", 1.0, 2.0, 3.0, 4.0, ""]]


def test_a_folder_of_selection_tables_saved_as_csv(tmp_path: Path) -> None:
    row = "Begin Time (s);End Time (s);Low Freq (Hz);High Freq (Hz)\n1;2;3;4\n"
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(row)
    (tmp_path / "recordings.csv").write_text("file\na.wav\nb.wav\n")
    assert [box[:2] for box in boxes(tmp_path)] == [["a.wav", 1.0], ["b.wav", 1.0]]


def test_bytes_that_are_not_windows_text_are_latin_1(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\x81\xe9")
    assert read_text(tmp_path / "x") == "\x81é"


def test_audacity_open_limits_are_the_band_of_the_recording(tmp_path: Path) -> None:
    lines = ["1.0\t1.0\tpoint", "2\t3\t", "\\\t-1.000000\t600", "4\t5\tx y\tz", "\\\t700\t-1.000000"]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an open limit is not a box that reaches below 0 Hz
        found = boxes(tmp_path / "a.txt", recordings=KNOWN)
    assert found == [
        ["a.wav", 1.0, 1.0, 0.0, 8000.0, "point"],
        ["a.wav", 2.0, 3.0, 0.0, 600.0, ""],
        ["a.wav", 4.0, 5.0, 700.0, 8000.0, "x y\tz"],
    ]


def test_audacity_empty_file_is_a_recording_heard_and_empty(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"")
    assert read_annotations(tmp_path / "a.txt", "audacity", recordings=KNOWN).reviewed_empty() == ["a.wav"]


def test_coco_from_elsewhere_and_boxes_that_a_tool_moved(tmp_path: Path) -> None:
    content = {
        "images": [{"id": 7, "file_name": "pictures/a.png.wav", "width": 600, "height": 80}],
        "categories": [{"id": 3, "name": "robin"}],
        "annotations": [{"id": 1, "image_id": 7, "category_id": 3, "bbox": [10, 20, 5, 30], "score": 0.5}],
    }
    known = KNOWN.assign(recording="a.png.wav")
    path = tmp_path / "c.json"
    path.write_text(json.dumps(content))
    # 10 px/s, 100 Hz a row, row 80 is 0 Hz
    assert boxes(path, recordings=known) == [["a.png.wav", 1.0, 1.5, 3000.0, 6000.0, "robin"]]
    assert read_annotations(path, recordings=known).reviewed["recording"].tolist() == ["a.png.wav"]
    content["annotations"][0]["box"] = [9.0, 1.0, 10.0, 2.0]  # type: ignore[index]
    path.write_text(json.dumps(content))
    assert boxes(path, recordings=known)[0][1:3] == [1.0, 1.5]


def test_yolo_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1 0.5 0.75 0.1 0.5\n0 0.500000 0.500000 1.000000 1.000000 0.25\n")
    found = read_annotations(tmp_path, "yolo", recordings=KNOWN).events
    assert found[BOX].values.tolist() == [
        ["a.wav", 27.0, 33.0, 0.0, 4000.0, "1"],
        ["a.wav", 0.0, 60.0, 0.0, 8000.0, "0"],
    ]
    assert found["score"].tolist() == [1.0, 0.25]
    (tmp_path / "classes.txt").write_text("robin\nwren\n")
    assert read_annotations(tmp_path, recordings=KNOWN).events["label"].tolist() == ["wren", "robin"]


def test_kaleidoscope_rows(tmp_path: Path) -> None:
    rows = [
        "INDIR,FOLDER,IN FILE,CHANNEL,OFFSET,DURATION,Fmin,Fmean,Fmax,TOP1MATCH,MANUAL ID",
        "C:\\data,s1,a.wav,0,0.1,0.2,1000,1500,2000,AMRO,",
        "C:\\data,s1,a.wav,0,1,2,1000,1500,2000,AMRO,BLJA",
        "C:\\data,s1,b.wav,0,0,60,,,,,Noise",
        "C:\\data,s1,c.wav,0,5,1,100,150,200,,Noise",
    ]
    (tmp_path / "cluster.csv").write_text("\n".join(rows))
    found = read_annotations(tmp_path / "cluster.csv")
    assert found.events[BOX].values.tolist() == [
        ["s1/a.wav", 0.1, 0.3, 1000.0, 2000.0, "AMRO"],
        ["s1/a.wav", 1.0, 3.0, 1000.0, 2000.0, "BLJA"],
        ["s1/c.wav", 5.0, 6.0, 100.0, 200.0, "Noise"],
    ]
    assert found.reviewed.values.tolist() == [["s1/b.wav", 0.0, 60.0]]
    assert found.events["Fmean"].tolist() == [1500, 1500, 150]


def test_birdeep_rows(tmp_path: Path) -> None:
    rows = [
        "path,annotator,recorder,date,time,audio_duration,start_time,end_time,low_frequency,high_frequency,specie,bbox",
        'AM1/x/AM1_1.WAV,Edu,AM1,2023/05/10,06:00:00,00:01:00,1.5,2.5,-1.0,1754.25,wind,"[1, 0.6, 0.2, 0.1, 0.1]"',
        "AM1/x/AM1_2.WAV,Edu,AM1,2023/05/10,06:10:00,00:01:00.5,0.3,1.0,2479.0,4904.0,no audios,",
        "AM1/x/AM1_3.WAV,Edu,AM1,2023/05/10,06:20:00,00:01:00,,,,,No audio,",
    ]
    (tmp_path / "train.csv").write_text("\n".join(rows))
    found = read_annotations(tmp_path / "train.csv")
    assert found.events[BOX].values.tolist() == [["AM1/x/AM1_1.WAV", 1.5, 2.5, 0.0, 1754.25, "wind"]]
    assert found.reviewed_empty() == ["AM1/x/AM1_2.WAV", "AM1/x/AM1_3.WAV"]
    assert found.recordings["duration_s"].tolist() == [60.0, 60.5, 60.0]
    assert found.recordings["datetime"].tolist()[1] == "2023-05-10T06:10:00"
    flac = pd.DataFrame({"recording": ["AM1_1.flac"]})
    assert read_annotations(tmp_path / "train.csv", recordings=flac).events["recording"].tolist() == [
        "AM1_1.flac"
    ]


def test_aoef_geometries_and_predictions(tmp_path: Path) -> None:
    from soundevent import data, io

    recording = data.Recording(path="s1/a.wav", duration=10.0, channels=1, samplerate=16_000)
    clip = data.Clip(recording=recording, start_time=0, end_time=5)
    shapes = [
        data.TimeInterval(coordinates=[1, 2]),
        data.Polygon(coordinates=[[[1, 100], [2, 300], [3, 50], [1, 100]]]),
        data.LineString(coordinates=[[1, 100], [2, 300]]),
    ]
    species = data.Tag(term=data.term_from_key("species"), value="robin")
    sounds = [data.SoundEvent(recording=recording, geometry=g) for g in shapes]
    noted = [data.SoundEventAnnotation(sound_event=s, tags=[species]) for s in sounds]
    io.save(
        data.AnnotationSet(clip_annotations=[data.ClipAnnotation(clip=clip, sound_events=noted)]),
        tmp_path / "a.json",
    )
    found = read_annotations(tmp_path / "a.json")
    assert found.events[BOX].values.tolist() == [
        ["s1/a.wav", 1.0, 2.0, 0.0, 8000.0, "robin"],
        ["s1/a.wav", 1.0, 3.0, 50.0, 300.0, "robin"],
        ["s1/a.wav", 1.0, 2.0, 100.0, 300.0, "robin"],
    ]
    assert found.reviewed.values.tolist() == [["s1/a.wav", 0.0, 5.0]]
    guessed = [data.SoundEventPrediction(sound_event=s, score=0.25) for s in sounds[:1]]
    io.save(
        data.PredictionSet(clip_predictions=[data.ClipPrediction(clip=clip, sound_events=guessed)]),
        tmp_path / "p.json",
    )
    found = read_annotations(tmp_path / "p.json")
    assert (found.events["score"].tolist(), found.events["source"].tolist()) == ([0.25], ["detector"])
    assert len(found.reviewed) == 0


def test_our_csv_in_either_schema_with_typed_further_columns(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(
        "recording,start_s,end_s,low_hz,high_hz,score,snr_db,code\na.wav,1,2,3,4,0.5,-3.5,007\n"
    )
    event = read_annotations(tmp_path / "x.csv").events.iloc[0]
    assert (event["recording"], event["score"], event["snr_db"], event["code"]) == ("a.wav", 0.5, -3.5, "007")


def test_a_dataset_folder_lists_what_was_listened_to(tmp_path: Path) -> None:
    (tmp_path / "boxes.csv").write_text("file,start_s,end_s,low_hz,high_hz,label\na.wav,1,2,3,4,x\n")
    (tmp_path / "recordings.csv").write_text("file,duration_s\na.wav,60\nb.wav,30\n")
    assert read_annotations(tmp_path).reviewed_empty() == ["b.wav"]
    (tmp_path / "recordings.csv").write_text("file,duration_s,reviewed\na.wav,60,yes\nb.wav,30,no\n")
    assert read_annotations(tmp_path).reviewed.values.tolist() == [["a.wav", 0.0, 60.0]]
    (tmp_path / "reviewed.csv").write_text("file,start_s,end_s\nb.wav,10,\n")
    assert read_annotations(tmp_path).reviewed.values.tolist() == [["b.wav", 10.0, 30.0]]


def test_names_never_jump_between_folders() -> None:
    names = RecordingNames(["s1/a.wav", "s2/a.wav", "s2/b.flac"])
    assert names.of_path("s1/a.wav") == "s1/a.wav"
    assert names.of_path("/mnt/x/s2/a.wav") == "s2/a.wav"
    assert names.of_path("b.WAV") == "s2/b.flac"
    assert names.of_path("s3/b.wav") == "s3/b.wav"
    assert names.of_path("/elsewhere/b.wav") == "s2/b.flac"
    assert names.of_path("a.wav") == "a.wav"  # two of that name: nothing is guessed
    assert label_keys(["A.wav", "a.wav"]) == {"A.wav": "A.wav~1", "a.wav": "a.wav~2"}
