"""`mast summarize`: from a folder of detections to tables."""

from __future__ import annotations

import errno
import os
import re
import sqlite3
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import soundfile as sf
import typer
from typer.testing import CliRunner, Result

from mast.cli.summarize import summarize
from mast.errors import ConfigError
from mast.events import as_events
from mast.inference.detector import Searched
from mast.inference.pieces import Source
from mast.inference.results import ResultsFolder
from mast.review.open_review import open_review
from mast.review.suggestions import add_suggestions

app = typer.Typer()
app.command()(summarize)
RATE = 16_000


@pytest.fixture
def found(tmp_path: Path) -> Path:
    """Two recordings at one site, one hour apart, a third that failed: sixty boxes and none."""
    audio = tmp_path / "audio"
    audio.mkdir()
    results = ResultsFolder(tmp_path / "found", {"model": "m", "threshold": 0.3}, audio)
    for k, name in enumerate(("A_20240501_050000.wav", "A_20240501_060000.wav")):
        sf.write(audio / name, [0.0] * (20 * RATE), RATE)
        rows = [(name, 0.25 * n, 0.25 * n + 0.2, 1_000, 2_000, 0.3 + 0.01 * n) for n in range(60 * (1 - k))]
        columns = ["recording", "start_s", "end_s", "low_hz", "high_hz", "score"]
        events = as_events(pd.DataFrame(rows, columns=columns)).assign(source="detector")
        about = {"duration_s": 20.0, "sample_rate": RATE, "site": "A"}
        when = f"2024-05-01T0{5 + k}:00:00"
        results.add(Searched(Source(audio / name, name, audio), events, datetime=when, **about))  # type: ignore[arg-type]
    (audio / "A_20240501_070000.wav").write_text("no sound")
    results.add(
        Searched(
            Source(audio / "A_20240501_070000.wav", "A_20240501_070000.wav", audio),
            as_events(events[:0]),
            error="x",
        )
    )
    results.combine(["csv"])
    return tmp_path / "found"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_tables_and_what_to_do_next(found: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(found, "--out", out)
    assert result.exit_code == 0, result.exception
    assert f"60 events in 40.0 s → {out}" in result.stdout
    assert "events to know the share of right calls to about ± 15" in result.stderr
    hours = pd.read_csv(out / "counts.csv")
    assert hours[["site", "hour", "calls", "failed_recordings"]].values.tolist() == [
        ["A", 5, 60, 0],
        ["A", 6, 0, 0],
        ["A", 7, 0, 1],
    ]
    assert pd.read_csv(out / "sites.csv")["calls_per_hour"].tolist() == [5_400.0]
    assert len(pd.read_csv(out / "days.csv")) == 1
    assert (out / "summary.xlsx").read_bytes()[:2] == b"PK"
    assert not (found / "to_check.csv").exists()


def test_from_the_sample_to_corrected_counts(found: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(found, "--out", out, "--check", 20)
    assert result.exit_code == 0, result.exception
    assert "20 of 20 events to check are still open." in result.stderr
    assert f"mast review {found}" in result.stderr
    open_review(found).close()
    with sqlite3.connect(
        found / "review.sqlite"
    ) as db:  # what a reviewer would decide: the upper half is right
        drawn = pd.read_csv(found / "to_check.csv")
        for event, score in zip(drawn["event"], drawn["score"], strict=True):
            status = "accepted" if score > 0.6 else "rejected"
            db.execute("UPDATE events SET status = ?, version = 1 WHERE id = ?", (status, event))
    result = run(found, "--out", out)
    assert result.stderr == ""
    site = pd.read_csv(out / "sites.csv").iloc[0]
    assert site["corrected_low"] < 29 < site["corrected_high"]
    assert site["corrected_calls"] == pytest.approx(29, abs=5)
    hours = pd.read_csv(out / "counts.csv")
    assert hours["corrected_calls"].tolist() == pytest.approx([site["corrected_calls"], 0, 0])


def named(found: Path, labels: dict[int, str], path: Path) -> Path:
    """A table of names: of the detections by number, from the lowest score up; "wren" where nothing is said."""
    table = pd.read_csv(found / "detections.csv").sort_values("score").reset_index(drop=True)
    table["label"] = [labels.get(k, "wren") for k in range(len(table))]
    table.assign(likely_label=table["label"], label_score=0.9, label_source="BirdNET").to_csv(
        path, index=False
    )
    return path


def test_counts_by_name(found: Path, tmp_path: Path) -> None:
    out, names = tmp_path / "out", named(found, {0: "robin", 1: "unknown"}, tmp_path / "named.csv")
    result = run(found, "--out", out, "--names", names)
    assert result.exit_code == 0, result.exception
    assert f"mast summarize {found} --out {out} --names {names} --check " in result.stderr
    sites = pd.read_csv(out / "sites.csv")
    assert sites[["label", "calls"]].values.tolist() == [["robin", 1], ["unknown", 1], ["wren", 58]]
    hours = pd.read_csv(out / "counts.csv")
    assert hours.loc[hours["hour"] == 6, "calls"].tolist() == [0, 0, 0]  # heard, and nobody called


def test_corrected_counts_by_name(found: Path, tmp_path: Path) -> None:
    out, names = tmp_path / "out", named(found, {}, tmp_path / "named.csv")
    run(found, "--out", out, "--names", names, "--check", 60)
    open_review(found).close()
    with sqlite3.connect(found / "review.sqlite") as db:
        db.execute("UPDATE events SET status = 'accepted', label = 'wren', version = 1")
        db.execute("UPDATE events SET label = 'robin' WHERE score < 0.5")  # a call, but not a wren's
    assert run(found, "--out", out, "--names", names).stderr == ""
    assert pd.read_csv(out / "sites.csv")["corrected_calls"].tolist() == [40]
    assert "of 60 events have the right name after correction (40–40)<" in (out / "summary.html").read_text()
    with sqlite3.connect(found / "review.sqlite") as db:
        db.execute("UPDATE events SET label = ''")  # decided before the names were there
    told = run(found, "--out", out, "--names", names).stderr
    assert "60 events to check were accepted without a name. Type the right names" in told
    assert f"mast review {found} --names {names}" in told


def test_the_headline_tells_right_names_from_events_without_one(found: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    names = named(found, dict.fromkeys(range(25), "unknown"), tmp_path / "named.csv")
    run(found, "--out", out, "--names", names, "--check", 60)
    open_review(found).close()
    with sqlite3.connect(found / "review.sqlite") as db:
        db.execute("UPDATE events SET status = 'accepted', label = 'wren', version = 1")
        db.execute("UPDATE events SET status = 'rejected' WHERE score < 0.345")
        db.execute("UPDATE events SET label = 'robin' WHERE score > 0.865")
    assert run(found, "--out", out, "--names", names).stderr == ""
    right = "of 60 events are right after correction (52–52)"
    split = ": 32 with the right name, 20 without a name"
    assert right + split in (out / "summary.html").read_text()
    (found / "to_check.csv").unlink()
    run(found, "--out", out)
    assert "of 60 events are right after correction (55–55)<" in (out / "summary.html").read_text()


def test_sites_are_corrected_each_for_itself(tmp_path: Path) -> None:
    """What is wrong in the rain at one site takes nothing from the other."""
    audio, out = tmp_path / "audio", tmp_path / "out"
    results = ResultsFolder(tmp_path / "found", {"model": "m", "threshold": 0.3}, audio)
    columns = ["recording", "start_s", "end_s", "low_hz", "high_hz", "score"]
    for site in ("DRY", "WET"):
        name = f"{site}_20240501_050000.wav"
        audio.mkdir(exist_ok=True)
        sf.write(audio / name, [0.0] * (20 * RATE), RATE)
        rows = [(name, 0.1 * n, 0.1 * n + 0.05, 1_000, 2_000, 0.3 + 0.003 * n) for n in range(200)]
        events = as_events(pd.DataFrame(rows, columns=columns)).assign(source="detector", site=site)
        about = {"duration_s": 20.0, "sample_rate": RATE, "site": site, "datetime": "2024-05-01T05:00:00"}
        results.add(Searched(Source(audio / name, name, audio), events, **about))  # type: ignore[arg-type]
    results.combine(["csv"])
    found = tmp_path / "found"
    assert "give both" in str(run(found, "--out", out, "--each-site").exception)
    run(found, "--out", out, "--check", 30, "--each-site")
    drawn = pd.read_csv(found / "to_check.csv")
    assert drawn["recording"].str[:3].value_counts().to_dict() == {"DRY": 30, "WET": 30}
    open_review(found).close()
    with sqlite3.connect(found / "review.sqlite") as db:
        db.execute("UPDATE events SET status = 'rejected', version = 1")
        dry = "SELECT id FROM recordings WHERE name LIKE 'DRY%'"
        db.execute(f"UPDATE events SET status = 'accepted' WHERE recording_id IN ({dry})")
    with sqlite3.connect(found / "review.sqlite") as db:  # only what was drawn was decided
        marks = ",".join("?" * len(drawn))
        db.execute(f"UPDATE events SET status = 'open' WHERE id NOT IN ({marks})", [*drawn["event"]])
    assert run(found, "--out", out).stderr == ""
    sites = pd.read_csv(out / "sites.csv").set_index("site")
    assert sites["corrected_calls"].to_dict() == {"DRY": 200, "WET": 0}
    assert sites.loc["DRY", "corrected_low"] > 150
    assert sites.loc["WET", "corrected_high"] < 50
    assert "so its interval is its own" in (out / "summary.html").read_text()
    (found / "recordings" / "WET_20240501_050000.wav.parquet").unlink()
    results.combine(["csv"])
    assert f"mast summarize {found} --out {out} --check 30 --each-site" in run(found, "--out", out).stderr


def test_names_that_were_forgotten_are_asked_for(found: Path, tmp_path: Path) -> None:
    out, names = tmp_path / "out", named(found, {0: "robin", 1: "unknown"}, tmp_path / "named.csv")
    run(found, "--out", out, "--names", names, "--check", 20)
    told = run(found, "--out", out).stderr
    assert "Run it with --names FILE, as when the sample was drawn: mast summarize" in told
    assert f"--out {out} --names FILE" in told
    review = open_review(found)
    add_suggestions(review.store, names)
    review.close()
    assert f"--out {out} --names {names}\n" in run(found, "--out", out).stderr
    (found / "to_check.csv").unlink()
    run(found, "--out", out, "--check", 20)
    assert "have changed since the sample was drawn" in run(found, "--out", out, "--names", names).stderr


def test_names_that_are_not_of_all_detections(found: Path, tmp_path: Path) -> None:
    names = named(found, {}, tmp_path / "named.csv")
    table = pd.read_csv(names)
    table.iloc[3:].to_csv(names, index=False)
    result = run(found, "--out", tmp_path / "out", "--names", names)
    assert "has no names for 3 of 60 events: they count as unknown" in result.stderr
    sites = pd.read_csv(tmp_path / "out" / "sites.csv")
    assert sites[["label", "calls"]].values.tolist() == [["unknown", 3], ["wren", 57]]
    table.assign(start_s=table["start_s"] + 0.01).to_csv(names, index=False)
    others = run(found, "--out", tmp_path / "x", "--names", names)
    assert "holds none of the events in" in str(others.exception)
    unnamed = run(found, "--out", tmp_path / "x", "--names", found / "detections.csv")
    assert "holds no names; expected a table of mast name" in str(unnamed.exception)
    assert not (tmp_path / "x").exists()
    assert "a table of names goes with --names" in str(run(names, "--out", tmp_path / "x").exception)


def test_the_command_that_is_advised_is_the_one_that_was_run(found: Path, tmp_path: Path) -> None:
    out = tmp_path / "with a space"
    result = run(found, "--out", out, "--latitude", 37.5, "--longitude", -6)
    expected = f"mast summarize {found} --out '{out}' --latitude 37.5 --longitude -6.0 --check "
    assert expected in result.stderr


def test_bad_input_is_one_sentence_and_nothing_is_touched(found: Path, tmp_path: Path) -> None:
    mine, sound, bare = tmp_path / "mine", tmp_path / "audio", tmp_path / "bare"
    for folder in (mine, bare):
        folder.mkdir()
    (mine / "thesis.docx").write_text("years")
    for name in ("run.json", "detections.parquet"):
        (bare / name).write_bytes((found / name).read_bytes())
    kinds: list[tuple[str, tuple[object, ...]]] = [
        ("holds other files than a summary", (found, "--out", mine)),
        ("run.json is missing; expected a results folder of mast detect", (sound, "--out", tmp_path / "x")),
        ("no such folder; expected a results folder", (tmp_path / "gone", "--out", tmp_path / "x")),
        ("is a file; expected a results folder", (mine / "thesis.docx", "--out", tmp_path / "x")),
        ("so it is not known how much was searched", (bare, "--out", tmp_path / "x")),
    ]
    for says, arguments in kinds:
        result = run(*arguments)
        assert isinstance(result.exception, ConfigError), (says, result.exception)
        assert says in str(result.exception)
    (found / "detections.parquet").unlink()
    assert "has not finished here" in str(run(found, "--out", tmp_path / "x").exception)
    assert [path.name for path in mine.iterdir()] == ["thesis.docx"]
    assert not (tmp_path / "x").exists()


def test_recordings_in_which_nothing_was_found(found: Path, tmp_path: Path) -> None:
    (found / "recordings" / "A_20240501_050000.wav.parquet").unlink()
    ResultsFolder(found, {"model": "m", "threshold": 0.3}, tmp_path / "audio").combine(["csv"])
    result = run(found, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.exception
    assert "0 events" in result.stdout
    assert pd.read_csv(tmp_path / "out" / "counts.csv")["calls"].tolist() == [0, 0]
    assert "so there is nothing to check" in str(
        run(found, "--out", tmp_path / "out", "--check", 10).exception
    )


@pytest.mark.parametrize("refusal", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_refuses_leaves_the_earlier_summary_whole(
    found: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    out = tmp_path / "out"
    run(found, "--out", out)
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}

    def refuse(*_: Any) -> None:
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr("os.fsync", refuse)
    result = run(found, "--out", out)
    assert isinstance(result.exception, OSError)
    assert str(out / "counts.csv") in str(result.exception)
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before


def test_a_site_without_clock_times_is_no_picture_that_was_left_out(found: Path, tmp_path: Path) -> None:
    audio = tmp_path / "audio"
    sf.write(audio / "B.wav", [0.0] * RATE, RATE)
    box = {"recording": "B.wav", "start_s": 0.1, "end_s": 0.2, "low_hz": 1e3, "high_hz": 2e3, "score": 0.5}
    events = as_events(pd.DataFrame([box])).assign(source="detector")
    results = ResultsFolder(found, {"model": "m", "threshold": 0.3}, audio)
    results.add(
        Searched(Source(audio / "B.wav", "B.wav", audio), events, duration_s=1.0, sample_rate=RATE, site="B")
    )
    results.combine(["csv"])
    assert run(found, "--out", tmp_path / "out").exit_code == 0
    page = (tmp_path / "out" / "summary.html").read_text()
    assert "have no clock time and are in no picture" in page
    assert "busiest" not in page
    assert "60 events." in page


def test_events_without_a_clock_time_are_counted_apart_below_their_picture(
    found: Path, tmp_path: Path
) -> None:
    audio, out = tmp_path / "audio", tmp_path / "out"
    sf.write(audio / "late.wav", [0.0] * RATE, RATE)
    box = {"recording": "late.wav", "start_s": 0.1, "end_s": 0.2, "low_hz": 1e3, "high_hz": 2e3, "score": 0.5}
    results = ResultsFolder(found, {"model": "m", "threshold": 0.3}, audio)
    events = as_events(pd.DataFrame([box])).assign(source="detector")
    source = Source(audio / "late.wav", "late.wav", audio)
    results.add(Searched(source, events, duration_s=1.0, sample_rate=RATE, site="A"))
    results.combine(["csv"])
    assert run(found, "--out", out).exit_code == 0
    page = (out / "summary.html").read_text()
    assert "61 events, 1 of them without a clock time (not shown)." in page


def test_the_page_needs_nothing_else_and_says_what_was_heard(found: Path, tmp_path: Path) -> None:
    result = run(found, "--out", tmp_path / "out", "--latitude", 51.5, "--longitude", 0.1)
    assert result.exit_code == 0, result.exception
    page = (tmp_path / "out" / "summary.html").read_text()
    assert "searched in 2 recordings, 1 failed" in page
    assert "events per minute searched" in page
    assert re.search(r">90\.0<.*events per minute", page, re.DOTALL)
    assert (
        page.count("data:image/png;base64") == 1 + 4
    )  # the heat map; two best and two doubtful of one recording
    assert "sunrise (orange)" in page
    assert "UTC+0 is assumed from the longitude" in page
    assert "Some of these are false alarms" in page
    assert not [word for word in ("http://", "https://", "<script", "<audio") if word in page]


def test_clocks_that_differ_are_said(found: Path, tmp_path: Path) -> None:
    audio, out = tmp_path / "audio", tmp_path / "out"
    assert "Clocks differ" not in run(found, "--out", out).stderr
    results = ResultsFolder(found, {"model": "m", "threshold": 0.3}, audio)
    boxes = ["recording", "start_s", "end_s", "low_hz", "high_hz"]
    nothing = as_events(pd.DataFrame(columns=boxes)).assign(source="detector")
    for site, zone in (("North", "+00:00"), ("South", "+02:00")):
        source = Source(audio / f"{site}.wav", f"{site}.wav", audio)
        about = {
            "duration_s": 1.0,
            "sample_rate": RATE,
            "site": site,
            "datetime": f"2024-05-01T05:00:00{zone}",
        }
        results.add(Searched(source, nothing, **about))  # type: ignore[arg-type]
    results.combine(["csv"])
    told = "Clocks differ: North is in UTC; South is in UTC+2. Hours are those of each recorder"
    assert told in run(found, "--out", out).stderr
    assert told in (out / "summary.html").read_text()


def test_a_hostile_label_is_only_shown(found: Path, tmp_path: Path) -> None:
    table = pd.read_parquet(found / "detections.parquet")
    table["label"] = ["<script>alert(1)</script>", "<i>"] * (len(table) // 2)
    table.to_parquet(found / "detections.parquet")
    assert run(found, "--out", tmp_path / "out").exit_code == 0
    page = (tmp_path / "out" / "summary.html").read_text()
    assert "A, &lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert not re.search("<script|<i>", page)


@pytest.mark.parametrize("latitude", [90, -90])
def test_at_the_pole(found: Path, tmp_path: Path, latitude: int) -> None:
    result = run(found, "--out", tmp_path / "out", f"--latitude={latitude}", "--longitude", 0)
    assert result.exit_code == 0, result.exception
    page = (tmp_path / "out" / "summary.html").read_text()
    assert f"the sun does not {'set' if latitude > 0 else 'rise'}" in page


def test_half_a_place_is_refused(found: Path, tmp_path: Path) -> None:
    result = run(found, "--out", tmp_path / "out", "--latitude", 3)
    assert "--latitude and --longitude belong together" in str(result.exception)


def test_a_place_in_recordings_csv_counts(found: Path, tmp_path: Path) -> None:
    table = "file,latitude,longitude\nA_20240501_050000.wav,10.5,20\n"
    (tmp_path / "audio" / "recordings.csv").write_text(table)
    run(found, "--out", tmp_path / "out")
    assert "UTC+1 is assumed from the longitude" in (tmp_path / "out" / "summary.html").read_text()
    (tmp_path / "audio" / "recordings.csv").write_text("latitude\nsomewhere\n")
    result = run(found, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.exception
    assert "sunrise" not in (tmp_path / "out" / "summary.html").read_text()


def test_a_failed_recording_belongs_to_the_site_that_recordings_csv_states(
    found: Path, tmp_path: Path
) -> None:
    listing = tmp_path / "audio" / "recordings.csv"
    (tmp_path / "audio" / "A_20240501_070000.wav").rename(tmp_path / "audio" / "SITE-A_20240501_070000.wav")
    mark = next(found.rglob("*.failed.json"))
    mark.write_text(mark.read_text().replace("A_2024", "SITE-A_2024"))
    run(found, "--out", tmp_path / "out")
    assert pd.read_csv(tmp_path / "out" / "sites.csv")["site"].tolist() == ["A", "SITE-A"]
    page = (tmp_path / "out" / "summary.html").read_text()
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", page[page.index(">SITE-A</td>") - 40 :])
    assert cells[:7] == ["SITE-A", "0", "0.0 h", "1", "0", "–", "–"]
    listing.write_text("file,site\nSITE-A_20240501_070000.wav,A\n")
    run(found, "--out", tmp_path / "out")
    sites = pd.read_csv(tmp_path / "out" / "sites.csv")
    assert sites[["site", "calls", "failed_recordings"]].values.tolist() == [["A", 60, 1]]
    listing.write_text("file,datetime\nSITE-A_20240501_070000.wav,yesterday\n")
    assert run(found, "--out", tmp_path / "out").exit_code == 0


def test_without_the_sound_there_are_counts_but_no_pictures(found: Path, tmp_path: Path) -> None:
    (tmp_path / "audio").rename(tmp_path / "moved")
    result = run(found, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.exception
    assert "The recordings are not on this machine" in (tmp_path / "out" / "summary.html").read_text()
    run(found, "--out", tmp_path / "out", "--audio", tmp_path / "moved")
    assert (tmp_path / "out" / "summary.html").read_text().count("data:image/png") == 5
    for path in (tmp_path / "moved").glob("*.wav"):
        path.unlink()
    run(found, "--out", tmp_path / "out", "--audio", tmp_path / "moved")
    assert "There are no pictures: recording not found" in (tmp_path / "out" / "summary.html").read_text()
