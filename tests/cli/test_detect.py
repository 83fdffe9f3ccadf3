"""`mast detect`: everything is found once, whatever happens on the way."""

from __future__ import annotations

import csv
import inspect
import json
import math
import os
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
import typer
from toy_calibration import stored_calibration
from typer.testing import CliRunner, Result

import mast
from mast.annotations import FORMATS, read_annotations
from mast.annotations.detections import read_run
from mast.cli import detect as command
from mast.cli.detect import detect
from mast.cli.options import EXIT_SOME_FAILED
from mast.detect_options import DEFAULT_HOP
from mast.errors import MastError
from mast.events import EVENT_COLUMNS
from mast.models.architecture import LOOK_WIDTH
from mast.models.card import load_card
from mast.models.checkpoint import update_card
from mast.probability import Calibration, OperatingPoint

INFERENCE_TESTS = Path(__file__).parents[1] / "inference"
sys.path.insert(0, str(INFERENCE_TESTS))
from random_detector import save_detector, write_sound  # noqa: E402

app = typer.Typer()
app.command()(detect)
WIDTH = 32 + LOOK_WIDTH  # of a vector: the toy encoder's features, and the look of a box
TABLES = ("detections.csv", "failures.csv")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_detector(tmp_path_factory.mktemp("run") / "best").parent


@pytest.fixture(scope="module")
def survey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve short recordings in two folders."""
    root = tmp_path_factory.mktemp("survey")
    for i in range(12):
        write_sound(root / ("OAK", "ELM")[i % 2] / f"20230510_{i:02d}0000.wav", 2 + i * 0.7, seed=i)
    return root


def run(*arguments: str | Path, page: bool = False) -> Result:
    """The command in this process; the page takes longer than all else, so only tests about it ask for it."""
    summary = "--summary" if page else "--no-summary"
    return CliRunner().invoke(app, ["--quiet", "--device", "cpu", summary, *map(str, arguments)])


@pytest.fixture(scope="module")
def whole(survey: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run over the survey."""
    out = tmp_path_factory.mktemp("whole") / "out"
    result = run(survey, "--model", model, "--out", out, page=True)
    assert result.exit_code == 0, result.output
    return out


def same_tables(a: Path, b: Path) -> None:
    for name in TABLES:
        assert (a / name).read_bytes() == (b / name).read_bytes()
    pd.testing.assert_frame_equal(*(pd.read_parquet(x / "detections.parquet") for x in (a, b)))


def test_one_table_in_the_schema_sorted(whole: Path, survey: Path) -> None:
    found = pd.read_parquet(whole / "detections.parquet")
    assert list(found.columns) == list(EVENT_COLUMNS)
    assert found["recording"].nunique() == 12
    pd.testing.assert_frame_equal(
        found, found.sort_values(["recording", "start_s"], kind="stable", ignore_index=True)
    )
    assert set(found["site"]) == {"OAK", "ELM"}
    text = pd.read_csv(whole / "detections.csv", keep_default_na=False)
    pd.testing.assert_frame_equal(text, found, check_dtype=False)
    assert (whole / "failures.csv").read_text() == "file,outcome,reason\n"
    assert json.loads((whole / "run.json").read_text())["made_with"]["root"] == str(survey)


def test_a_second_run_has_nothing_to_do(
    whole: Path, survey: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = shutil.copytree(whole, tmp_path / "out")
    done: list[int] = []
    search = command._search
    monkeypatch.setattr(
        command, "_search", lambda d, r, todo, q: done.append(len(todo)) or search(d, r, todo, q)
    )
    assert run(survey, "--model", model, "--out", out).exit_code == 0
    mark = next((out / "recordings").rglob("*.parquet"))
    mark.write_bytes(mark.read_bytes()[:100])  # a mark that is not whole is none
    assert run(survey, "--model", model, "--out", out).exit_code == 0
    assert done == [0, 1]
    same_tables(out, whole)


def test_a_recording_that_changed_is_searched_again(model: Path, tmp_path: Path) -> None:
    path = write_sound(tmp_path / "a.wav", 4)
    arguments = (path, "--model", model, "--out", tmp_path / "out")
    run(*arguments)
    before = pd.read_csv(tmp_path / "out" / "detections.csv")
    write_sound(path, 6, seed=8)
    run(*arguments)
    after = pd.read_csv(tmp_path / "out" / "detections.csv")
    assert before["end_s"].max() <= 4 < after["end_s"].max()


def test_shards_together_are_one_run(whole: Path, survey: Path, model: Path, tmp_path: Path) -> None:
    for shard in ("1/2", "0/2"):
        result = run(survey, "--model", model, "--out", tmp_path / "out", "--shard", shard)
        assert result.exit_code == 0, result.output
        if shard == "1/2":
            assert pd.read_csv(tmp_path / "out" / "detections.csv")["recording"].nunique() == 6
    same_tables(tmp_path / "out", whole)


def test_killed_again_and_again_nothing_is_lost_or_doubled(
    whole: Path, survey: Path, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    started = [sys.executable, str(INFERENCE_TESTS / "killed_runs.py"), "20"]
    started += [str(out), str(survey), "--model", str(model), "--out", str(out)]
    started += ["--quiet", "--device", "cpu", "--no-summary"]
    done = subprocess.run(started, capture_output=True, text=True, timeout=300)
    killed, exit_code = map(int, done.stdout.split())
    assert exit_code == 0, done.stderr
    assert killed >= 10
    same_tables(out, whole)
    assert [path for path in out.rglob("*") if path.suffix == ".part"] == []


def test_ctrl_c_says_how_to_go_on(
    whole: Path, survey: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mast.inference import Searched
    from mast.inference.results import ResultsFolder

    add, count = ResultsFolder.add, 0

    def interrupted(self: ResultsFolder, outcome: Searched) -> Searched:
        nonlocal count
        count += 1
        if count == 5:
            raise KeyboardInterrupt
        return add(self, outcome)

    arguments = (survey, "--model", model, "--out", tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(ResultsFolder, "add", interrupted)
        stopped = run(*arguments)
    assert stopped.exit_code == 130
    assert "same command" in stopped.output
    assert run(*arguments).exit_code == 0
    same_tables(tmp_path / "out", whole)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        (
            "--threshold",
            "0.2",
            "holds detections that score 0.3 or more, so a threshold of 0.2 needs a new search",
        ),
        ("--hop", "0.5", "made with a hop of 0.75 windows (--hop), not 0.5"),
        ("--band", "4000", "made with the band 20–8000 Hz (--band), not 10–4000 Hz"),
        # which changes how boxes are drawn, too
        ("--band", "bats", "made with the band 20–8000 Hz (--band), not "),
        ("--model", "other", "made with the model {old} ("),
    ],
)
def test_other_settings_are_not_mixed(
    whole: Path, survey: Path, model: Path, tmp_path: Path, option: str, value: str, words: str
) -> None:
    options = {"--model": str(model), "--out": str(whole)}
    options[option] = str(save_detector(tmp_path / value, seed=5)) if value == "other" else value
    before = (whole / "detections.csv").read_bytes()
    result = run(survey, *(part for pair in options.items() for part in pair))
    assert isinstance(result.exception, MastError)
    assert words.format(old=model) in str(result.exception)
    assert (whole / "detections.csv").read_bytes() == before


def test_the_run_is_described_in_the_open(whole: Path, survey: Path, model: Path) -> None:
    about = read_run(whole)
    assert about is not None
    assert (about.root, about.inputs, about.model) == (str(survey), (str(survey),), str(model))
    assert (about.threshold, about.band_hz) == (pytest.approx(0.3), (20.0, 8_000.0))
    assert about.weights_sha256 == load_card(model / "best").weights_sha256
    assert set(pd.read_csv(whole / "detections.csv")["model"]) == {about.model_id}
    text = json.loads((whole / "run.json").read_text())
    assert {"model", "threshold", "band_hz", "inputs", "root"} <= set(text)


def test_a_higher_threshold_filters_what_is_there(
    survey: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    arguments = (survey, "--model", model, "--out", out, "--embed", "--formats", "csv,partitioned")
    assert run(*arguments).exit_code == 0
    events, rows = embedded(out)
    monkeypatch.setattr(command, "_search", lambda engine, results, todo, quiet: [] if not todo else 1 / 0)
    assert run(*arguments, "--threshold", "0.6").exit_code == 0
    high = (events["score"] >= 0.6).to_numpy()
    assert 0 < high.sum() < len(events)
    fewer, fewer_rows = embedded(out)
    pd.testing.assert_frame_equal(fewer, events[high].reset_index(drop=True))
    np.testing.assert_array_equal(fewer_rows, rows[high])
    assert len(pd.read_parquet(out / "partitioned")) == len(pd.read_csv(out / "detections.csv")) == high.sum()
    about = read_run(out)
    assert about is not None
    assert about.threshold == 0.6

    assert run(*arguments).exit_code == 0  # and all of them again
    again, again_rows = embedded(out)
    pd.testing.assert_frame_equal(again, events)
    np.testing.assert_array_equal(again_rows, rows)


def test_how_boxes_are_drawn_is_kept_and_not_mixed(model: Path, tmp_path: Path) -> None:
    write_sound(tmp_path / "in" / "a.wav", 5)
    out = tmp_path / "out"
    arguments = (tmp_path / "in", "--model", model, "--out", out)
    assert run(*arguments).exit_code == 0
    whole = pd.read_csv(out / "detections.csv")
    about = json.loads((out / "run.json").read_text())
    for name in ("box", "join"):  # as an older version wrote it
        del about["made_with"][name]
    (out / "run.json").write_text(json.dumps(about))
    assert run(*arguments, "--box", "all").exit_code == 0
    other = str(run(*arguments, "--box", "strongest").exception)
    assert "was made with --box all, not strongest, 25 dB" in other
    arguments = (tmp_path / "in", "--model", model, "--out", tmp_path / "joined")
    assert run(*arguments, "--box", "strongest", "--join", "0.5").exit_code == 0
    about = json.loads((tmp_path / "joined" / "run.json").read_text())
    assert (about["options"]["box"], about["options"]["join_s"]) == ("strongest", 0.5)
    assert about["made_with"]["join"] == 0.5
    assert len(pd.read_csv(tmp_path / "joined" / "detections.csv")) < len(whole)
    assert "not none" in str(run(*arguments, "--box", "strongest").exception)
    # which boxes are joined depends on the threshold
    higher = run(*arguments, "--box", "strongest", "--join", "0.5", "--threshold", "0.6")
    assert "which boxes were joined (--join) depends on it" in str(higher.exception)


def test_a_thorough_search_is_not_mixed_with_a_plain_one(model: Path, tmp_path: Path) -> None:
    write_sound(tmp_path / "in" / "a.wav", 5)
    arguments = (tmp_path / "in", "--model", model, "--out", tmp_path / "plain")
    assert run(*arguments).exit_code == 0
    about = json.loads((tmp_path / "plain" / "run.json").read_text())
    del about["made_with"]["speeds"]  # as an older version wrote it
    (tmp_path / "plain" / "run.json").write_text(json.dumps(about))
    assert run(*arguments).exit_code == 0
    assert "made with no --thorough, but this run is with it" in str(run(*arguments, "--thorough").exception)
    arguments = (*arguments[:-1], tmp_path / "thorough")
    assert run(*arguments, "--thorough").exit_code == 0
    assert read_run(tmp_path / "thorough").options.thorough  # type: ignore[union-attr]
    events = [pd.read_csv(tmp_path / name / "detections.csv") for name in ("plain", "thorough")]
    assert not events[0].equals(events[1])
    assert len(events[1])
    assert "made with --thorough, but this run is without it" in str(run(*arguments).exception)


def test_what_was_searched_from_a_higher_score_on_cannot_be_lowered(model: Path, tmp_path: Path) -> None:
    write_sound(tmp_path / "in" / "a.wav", 3)
    arguments = (tmp_path / "in", "--model", model, "--out", tmp_path / "out")
    assert run(*arguments).exit_code == 0
    write_sound(tmp_path / "in" / "b.wav", 3, seed=1)
    assert run(*arguments, "--threshold", "0.6").exit_code == 0
    assert pd.read_csv(tmp_path / "out" / "detections.csv")["score"].min() >= 0.6
    assert "holds detections that score 0.6 or more" in str(run(*arguments, "--threshold", "0.5").exception)
    assert run(*arguments, "--threshold", "0.7").exit_code == 0


@pytest.mark.parametrize(("step", "warned"), [("train", True), ("report", False)])
def test_the_model_of_a_fit_that_was_stopped_may_be_an_earlier_one(
    step: str, warned: bool, tmp_path: Path
) -> None:
    fit, steps = tmp_path / "fit", tmp_path / "fit" / "stages"
    save_detector(fit / "best")
    steps.mkdir()
    (steps / "scan.json").write_text('{"done": true}')
    (steps / f"{step}.json").write_text('{"done": false}')
    (steps / "cut.json").write_text("{")
    sf.write(tmp_path / "a.wav", np.zeros(16_000), 16_000)
    words = ["--device", "cpu", "--no-summary", tmp_path / "a.wav", "--model", fit, "--out", tmp_path / "out"]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    doubt = f"mast: warning: {fit}: mast fit has not finished there, so its detector may be that of an earlier run"
    assert (doubt in result.output) == warned


def test_marks_of_another_model_are_not_done(model: Path, tmp_path: Path) -> None:
    other = save_detector(tmp_path / "other", seed=5)
    write_sound(tmp_path / "in" / "a.wav", 3)
    for folder, with_model in ((tmp_path / "a", model), (tmp_path / "b", other)):
        assert run(tmp_path / "in", "--model", with_model, "--out", folder).exit_code == 0
    expected = (tmp_path / "a" / "detections.csv").read_bytes()
    shutil.copytree(tmp_path / "b" / "recordings", tmp_path / "a" / "recordings", dirs_exist_ok=True)
    assert run(tmp_path / "in", "--model", model, "--out", tmp_path / "a").exit_code == 0
    assert (tmp_path / "a" / "detections.csv").read_bytes() == expected


def test_a_precision_picks_the_threshold_of_validation(survey: Path, tmp_path: Path) -> None:
    folder, out = save_detector(tmp_path / "model"), tmp_path / "out"
    point = OperatingPoint(threshold=0.5, precision=0.92, low=0.88, high=0.95, recall=0.4, n_kept=50)
    doubled = Calibration(method="platt", intercept=math.log(2))  # the odds
    calibration = stored_calibration(doubled, n_recordings=12, data="marsh", curve=(point,))
    update_card(folder, load_card(folder).model_copy(update={"calibration": calibration}))
    start = (survey / "ELM" / "20230510_010000.wav", "--model", folder, "--out", out, "--device", "cpu")
    impossible = run(*start, "--precision", "0.95")
    assert isinstance(impossible.exception, MastError)
    assert "precision 0.95 was not reached on 12 validation recordings of marsh; the best was 0.92" in str(
        impossible.exception
    )
    both = run(*start, "--precision", "0.9", "--threshold", "0.5")
    assert "give only one of the two" in str(both.exception)
    assert not out.exists()

    result = CliRunner().invoke(app, [*map(str, start), "--precision", "0.9"])  # not quiet
    assert result.exit_code == 0, result.output
    assert (
        "threshold 0.667 reached precision 0.92 (95 % interval 0.88–0.95, recall 0.40) on 12 validation recordings of "
        "marsh; on other recordings it may be different"
    ) in " ".join(result.output.split())
    about = json.loads((out / "run.json").read_text())
    assert about["operating_point"]["target"] == 0.9
    assert about["operating_point"]["precision"] == 0.92
    assert about["operating_point"]["data"] == "marsh"
    assert about["made_with"]["raw_threshold"] == 0.5
    assert about["options"]["precision_target"] == 0.9  # as it was asked for
    found = pd.read_csv(out / "detections.csv")
    assert len(found)
    assert (found["score"] >= 0.666).all()
    assert run(*start, "--precision", "0.9").exit_code == 0
    other = run(*start, "--threshold", "0.5")
    assert "holds detections that score 0.667 or more" in str(other.exception)


def test_another_root_or_a_strange_folder_is_refused(
    whole: Path, survey: Path, model: Path, tmp_path: Path
) -> None:
    result = run(survey / "OAK", "--model", model, "--out", whole)
    assert "made with recordings named relative to" in str(result.exception)
    (tmp_path / "thesis.txt").write_text("precious")
    result = run(survey, "--model", model, "--out", tmp_path)
    assert "choose a new --out" in str(result.exception)


def test_good_and_broken_recordings(model: Path, tmp_path: Path) -> None:
    root = tmp_path / "survey"
    for i in range(4):
        write_sound(root / f"good{i}.wav", 3, seed=i)
    (root / "text.wav").write_text("not sound\n" * 30)
    (root / "nothing.wav").touch()
    sf.write(root / "nan.wav", np.full(48_000, np.nan, np.float32), 16_000, subtype="FLOAT")
    cut = root / "good3.wav"
    cut.write_bytes(cut.read_bytes()[:-20_000])
    arguments = (root, "--model", model, "--out", tmp_path / "out")
    result = run(*arguments)
    assert result.exit_code == EXIT_SOME_FAILED, result.output
    assert "3 of 7 recordings failed; 1 damaged" in result.output.splitlines()[-1]
    with open(tmp_path / "out" / "failures.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["file"], row["outcome"]) for row in rows] == [
        ("good3.wav", "damaged"),
        ("nan.wav", "failed"),
        ("nothing.wav", "failed"),
        ("text.wav", "failed"),
    ]
    assert "NaN" in rows[1]["reason"]
    assert not any(str(root) in row["reason"] for row in rows)
    found = pd.read_csv(tmp_path / "out" / "detections.csv")
    assert set(found["recording"]) == {f"good{i}.wav" for i in range(4)}

    for name in ("nan", "nothing", "text"):  # copied again from the card
        write_sound(root / f"{name}.wav", 3)
    assert run(*arguments).exit_code == 0
    assert pd.read_csv(tmp_path / "out" / "detections.csv")["recording"].nunique() == 7
    assert len(pd.read_csv(tmp_path / "out" / "failures.csv")) == 1

    (root / "text.wav").write_text(
        "not sound again\n" * 30
    )  # what was found in it before is not of this file
    assert run(*arguments).exit_code == EXIT_SOME_FAILED
    assert "text.wav" not in set(pd.read_csv(tmp_path / "out" / "detections.csv")["recording"])
    assert "text.wav" in set(pd.read_csv(tmp_path / "out" / "failures.csv")["file"])


def break_ten(root: Path, source: Path) -> set[str]:
    """Ten files that no tool could read, each broken in its own way; ``source`` is a good 16-bit wav."""
    sound = source.read_bytes()
    noise = np.random.default_rng(0).bytes(4_000)
    never_closed = bytearray(sound)
    never_closed[4:8] = never_closed[40:44] = bytes(4)
    never_closed[44:52] = b"\xff\x80\x01\x02\x03\x04\x05\x06"  # sound, surely no chunk name
    no_rate = bytearray(sound)
    no_rate[24:28] = bytes(4)
    sf.write(root / "tmp.flac", np.zeros(8_000), 16_000)
    content = {
        "empty.wav": b"",
        "cut_in_header.WAV": sound[:30],
        "text.wav": b"site,date\nAM1,2023\n" * 20,
        "no_samples.wav": sound[:40] + bytes(4),
        "never_closed.wav": bytes(never_closed),
        "no_rate.wav": bytes(no_rate),
        "noise.mp3": noise,
        "cut_in_header.flac": (root / "tmp.flac").read_bytes()[:20],
        "cut.ogg": b"OggS\x00\x02",
        "locked.wav": sound,
    }
    (root / "tmp.flac").unlink()
    for name, some in content.items():
        (root / name).write_bytes(some)
    (root / "locked.wav").chmod(0)
    if os.access(root / "locked.wav", os.R_OK):  # root may read everything
        (root / "locked.wav").chmod(0o644)
        sf.write(root / "locked.wav", np.full(8_000, np.nan, np.float32), 16_000, subtype="FLOAT")
    return set(content)


def test_sixty_good_and_ten_broken_recordings(model: Path, tmp_path: Path) -> None:
    root = tmp_path / "survey"
    good = [root / f"site{i % 4}" / f"good{i:03d}.{('wav', 'flac', 'ogg', 'mp3')[i % 4]}" for i in range(60)]
    for i, path in enumerate(good):
        write_sound(path, 0.5 + 0.1 * (i % 5), seed=i, rate=(16_000, 8_000, 22_050)[i % 3])
    broken = break_ten(root, good[0])
    arguments = (root, "--model", model, "--out", tmp_path / "out")
    result = run(*arguments)
    assert result.exit_code == EXIT_SOME_FAILED == 4, result.output
    assert "60 recordings" in result.output
    assert "10 of 70 recordings failed" in result.output.splitlines()[-1]
    failures = pd.read_csv(tmp_path / "out" / "failures.csv", keep_default_na=False)
    assert set(failures["file"]) == broken
    assert len(failures) == 10
    assert set(failures["outcome"]) == {"failed"}
    assert (failures["reason"].str.len() > 10).all()
    assert len(list((tmp_path / "out" / "recordings").rglob("*.parquet"))) == 60
    found = pd.read_csv(tmp_path / "out" / "detections.csv")
    assert set(found["recording"]) <= {path.relative_to(root).as_posix() for path in good}
    assert found["recording"].nunique() > 45  # the random model finds something in most


def embedded(out: Path) -> tuple[pd.DataFrame, np.ndarray]:
    return pd.read_parquet(out / "detections.parquet"), np.load(out / "embeddings.npy")


def test_embeddings_beside_the_table_whole_resumed_and_in_shards(
    whole: Path, survey: Path, model: Path, tmp_path: Path
) -> None:
    for name, shards in (("a", ["0/1"]), ("b", ["1/3", "0/3", "2/3"])):
        for shard in shards:
            arguments = (survey, "--model", model, "--out", tmp_path / name, "--embed", "--shard", shard)
            assert run(*arguments).exit_code == 0
            events, rows = embedded(tmp_path / name)
            assert rows.shape == (len(events), WIDTH)
    same_tables(tmp_path / "a", whole)
    same_tables(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a" / "embeddings.npy").read_bytes() == (
        tmp_path / "b" / "embeddings.npy"
    ).read_bytes()

    events, rows = embedded(tmp_path / "a")
    assert rows.dtype == np.float16
    detector = mast.load(model, device="cpu", embed=True)
    for recording, some in events.groupby("recording"):
        alone, expected = detector.detect_and_embed(survey / str(recording), root=survey)
        assert len(alone) == len(some)
        np.testing.assert_array_equal(rows[some.index], expected)

    lost = next((tmp_path / "a" / "recordings").rglob("*.parquet"))
    lost.unlink()  # as if stopped before it
    assert run(survey, "--model", model, "--out", tmp_path / "a", "--embed").exit_code == 0
    np.testing.assert_array_equal(embedded(tmp_path / "a")[1], rows)

    result = run(survey, "--model", model, "--out", tmp_path / "a")
    assert "made with --embed, but this run is without it" in str(result.exception)
    result = run(survey, "--model", model, "--out", whole, "--embed")
    assert "made with no embeddings, but this run is with --embed" in str(result.exception)


def test_embeddings_of_nothing(model: Path, tmp_path: Path) -> None:
    write_sound(tmp_path / "in" / "a.wav", 3)
    result = run(tmp_path / "in", "--model", model, "--out", tmp_path / "out", "--embed", "--threshold", "1")
    assert result.exit_code == 0, result.output
    assert np.load(tmp_path / "out" / "embeddings.npy").shape == (0, WIDTH)


@pytest.mark.parametrize(
    ("rates", "more", "hint"),
    [
        ([192_000, 384_000], [], "--band 96000"),
        ([384_000], [], "--band 128000"),
        ([4_000, 2_000], [], "--band 2000"),
        ([48_000], [], ""),
        ([256_000, 16_000], [], ""),  # not all of one kind
        ([256_000], ["--band", "128000"], ""),
        ([192_000], ["--band", "bats"], ""),
        ([256_000], ["--quiet"], ""),
    ],
)
def test_sound_far_outside_the_searched_band_is_reported(
    rates: list[int], more: list[str], hint: str, model: Path, tmp_path: Path
) -> None:
    for rate in rates:
        write_sound(tmp_path / "in" / f"{rate}.wav", 1, rate=rate)
    words = [
        tmp_path / "in",
        "--model",
        model,
        "--out",
        tmp_path / "out",
        "--device",
        "cpu",
        "--no-summary",
        *more,
    ]
    result = CliRunner().invoke(app, list(map(str, words)))
    assert result.exit_code == 0, result.output
    assert ("into another folder" in result.output) == bool(hint)
    assert hint in result.output


@pytest.mark.parametrize(
    ("rates", "more", "warning"),
    [
        (
            [48_000],
            ["--band", "bats"],
            "warning: this sound ends at 24 kHz (half its sample rate) but was searched up to 128 kHz; no higher call "
            "can be found in it",
        ),
        ([96_000], ["--band", "100000"], "this sound ends at 48 kHz"),
        (
            [48_000, 44_100, 192_000],
            ["--band", "bats"],
            "warning: 2 of 3 recordings, searched up to 128 kHz, hold no sound above 24 kHz",
        ),
        ([4_000, 16_000], [], "1 of 2 recordings, searched up to 8 kHz, holds no sound above 2 kHz"),
        ([48_000], ["--band", "30000"], ""),
        ([192_000], ["--band", "bats"], ""),
    ],
)
def test_a_band_far_above_what_recordings_hold_is_a_warning(
    rates: list[int], more: list[str], warning: str, model: Path, tmp_path: Path
) -> None:
    for rate in rates:
        write_sound(tmp_path / "in" / f"{rate}.wav", 1, rate=rate)
    words = f"{tmp_path / 'in'} --model {model} --out {tmp_path / 'out'} --device cpu --no-summary".split()
    for _ in range(2):  # also where nothing is left to search
        result = CliRunner().invoke(app, [*words, *more])
        assert result.exit_code == 0, result.output
        assert warning in result.output
        assert ("no higher call can be found" in result.output) == bool(warning)


def test_none_readable_is_a_mistake(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "text.wav").write_text("not sound")
    result = run(tmp_path / "in", "--model", model, "--out", tmp_path / "out")
    assert isinstance(result.exception, MastError)
    assert "no recording can be read (1 tried)" in str(result.exception)
    assert len(pd.read_csv(tmp_path / "out" / "failures.csv")) == 1


def test_every_format(model: Path, tmp_path: Path) -> None:
    for name, rate in (("OAK/20230510_073000.wav", 16_000), ("ELM/20230510_073000.flac", 8_000)):
        write_sound(tmp_path / "in" / name, 4, rate=rate)
    out = tmp_path / "out"
    formats = [name for name in FORMATS if name not in ("csv", "birdeep")]
    assert command._FORMATS.split(", ") == ["csv", "parquet", *(n for n in FORMATS if n != "csv")]
    for _ in range(2):  # a second time over the first
        result = run(
            tmp_path / "in", "--model", model, "--out", out, "--formats", ",".join(["csv", *formats])
        )
        assert result.exit_code == 0, result.output
    found = pd.read_parquet(out / "detections.parquet")
    for name in formats:
        suffix = FORMATS[name].suffix
        path = out / name if FORMATS[name].folder else out / name / f"detections{suffix}"
        again = read_annotations(path, name)
        assert len(again.events) == len(found), name
        assert again.reviewed.empty, name  # nobody listened to these
        assert again.events["end_s"].sum() == pytest.approx(found["end_s"].sum(), rel=1e-3), name
    assert found.loc[found["recording"].str.startswith("ELM"), "high_hz"].max() <= 4_000


def test_files_and_folders_each_recording_once(survey: Path, model: Path, tmp_path: Path) -> None:
    one = survey / "OAK" / "20230510_000000.wav"
    run(survey / "OAK", one, "--model", model, "--out", tmp_path / "a")
    assert pd.read_csv(tmp_path / "a" / "detections.csv")["recording"].nunique() == 6
    run(one, survey / "ELM" / "20230510_010000.wav", "--model", model, "--out", tmp_path / "b")
    names = set(pd.read_csv(tmp_path / "b" / "detections.csv")["recording"])
    assert names == {"OAK/20230510_000000.wav", "ELM/20230510_010000.wav"}


def test_a_name_that_is_not_text(model: Path, tmp_path: Path) -> None:
    source = write_sound(tmp_path / "a.wav", 3)
    folder = tmp_path / "in"
    folder.mkdir()
    shutil.copy(source, folder.__fspath__().encode() + b"/caf\xe9.wav")
    result = run(folder, "--model", model, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert set(pd.read_csv(tmp_path / "out" / "detections.csv")["recording"]) == {"caf\\xe9.wav"}


def test_mistakes(survey: Path, model: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for arguments, message in (
        ((tmp_path / "empty",), "no recordings found"),
        ((tmp_path / "typo",), "no such file or folder"),
        ((survey, "--shard", "2/2"), "--shard 2/2"),
        ((survey, "--formats", "csv,xls"), "no such format"),
    ):
        result = run(*arguments, "--model", model, "--out", tmp_path / "out")
        assert isinstance(result.exception, MastError)
        assert message in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_the_default_step_is_the_same_everywhere() -> None:
    # `mast.load` and the command repeat it: they must not import torch to know it
    for function in (mast.load, detect):
        assert inspect.signature(function).parameters["hop"].default == DEFAULT_HOP


def test_only_what_detecting_needs_is_imported(model: Path, tmp_path: Path) -> None:
    """Without and with embeddings, one after the other in a new process."""
    # each of these takes from a third of a second to several, before the first event
    unwanted = {"torchvision", "torch._dynamo", "accelerate", "sklearn", "transformers"}
    unwanted |= {"matplotlib", "scipy.optimize", "scipy.signal", "huggingface_hub"}
    code = (
        "import sys\nfrom mast.cli.main import app\n"
        "for options in ([], ['--embed']):\n"
        "    try:\n        app([*sys.argv[1:], '--out', ''.join(['out', *options]), *options])\n"
        "    except SystemExit as end:\n        assert not end.code, end.code\n"
        f"    print(*sorted({unwanted!r} & set(sys.modules)), file=sys.stderr)\n"
        "assert 'torch' in sys.modules\n"
    )
    recording = write_sound(tmp_path / "a.wav", 6)
    words = ["detect", str(recording), "--model", str(model), "--device", "cpu", "--quiet"]
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for out in ("out", "out--embed"):
        assert len(
            pd.read_csv(tmp_path / out / "detections.csv")
        )  # boxes were chosen, and pooled to embed them
    assert done.stderr.strip() == ""


def test_a_run_ends_with_a_page_of_its_own(whole: Path) -> None:
    page = (whole / "summary.html").read_text(encoding="utf-8")
    assert "searched in 12 recordings" in page
    assert page.count("<svg") == 2  # a heat map for each site
    assert 10 <= page.count('class="tile"') <= 20
    assert f"mast review {whole.name}" in page


def test_what_to_type_next_can_be_typed(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_sound(tmp_path / "in" / "a.wav", 3)
    monkeypatch.chdir(tmp_path)
    options = ["--model", str(model), "--threshold", "0", "--device", "cpu"]
    result = CliRunner().invoke(app, ["in", *options, "--out", "Funde Mühle"])
    assert "Next: mast review 'Funde Mühle'\n" in result.stderr
    page = unescape((tmp_path / "Funde Mühle" / "summary.html").read_text(encoding="utf-8"))
    assert "mast review 'Funde Mühle'" in page
    assert "mast summarize 'Funde Mühle' --out summary" in page


def test_the_page_can_be_left_out(survey: Path, model: Path, whole: Path, tmp_path: Path) -> None:
    out = shutil.copytree(whole, tmp_path / "out")
    (out / "summary.html").unlink()
    assert run(survey, "--model", model, "--out", out).exit_code == 0
    assert not (out / "summary.html").exists()
    same_tables(out, whole)


def test_a_page_that_cannot_be_made_is_a_warning_and_no_old_one_stays(
    survey: Path, model: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no colours left")

    out = shutil.copytree(whole, tmp_path / "out")
    monkeypatch.setattr("mast.reports.summary_page.make_tiles", refuse)
    arguments = [str(survey), "--model", str(model), "--out", str(out), "--device", "cpu"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "mast: warning: summary.html could not be made (no colours left)" in result.stderr
    assert not (out / "summary.html").exists()
    same_tables(out, whole)


def test_the_page_of_recordings_that_failed_or_are_silent(model: Path, tmp_path: Path) -> None:
    write_sound(tmp_path / "audio" / "20230510_050000.wav", 3)
    (tmp_path / "audio" / "20230510_060000.wav").write_text("no sound")
    arguments = (tmp_path / "audio", "--model", model, "--out", tmp_path / "out", "--threshold", "1")
    assert run(*arguments, page=True).exit_code == EXIT_SOME_FAILED
    page = (tmp_path / "out" / "summary.html").read_text(encoding="utf-8")
    assert "searched in 1 recording, 1 failed" in page
    assert 'class="tile"' not in page
