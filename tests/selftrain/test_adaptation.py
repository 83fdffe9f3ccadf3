"""A detector adapted to sound nobody labelled: what it learns from, what is kept of the start, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
import torch
from toy_calibration import stored_calibration
from typer.testing import CliRunner
from untrained_detector import gain_recipe, save_untrained

from mast.cli.main import app
from mast.cli.reporting import report_command
from mast.errors import MastError
from mast.habit import Habit
from mast.loaded_model import LoadedModel
from mast.models.card import LEARNT_FROM, load_card
from mast.models.checkpoint import load_checkpoint, update_card
from mast.probability import Calibration
from mast.runs import ADAPTED, SILENT
from mast.selftrain import adaptation as adapting
from mast.selftrain.adaptation import PSEUDO, adapt, sample_training_chunks
from mast.selftrain.pseudo import PseudoLabels
from mast.selftrain.unlabelled import without_labels
from mast.training.chosen_chunks import ordered_batches, unlabelled_chunks
from mast.training.effort import Rates

THRESHOLD = 0.45


@pytest.fixture(scope="module", autouse=True)
def few_epochs() -> Iterator[None]:
    """An hour allows two epochs of 24 chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adapting, "MIN_EPOCHS", 2)
        patch.setattr(
            adapting, "measure_rates", lambda *_: Rates(train=adapting.MAX_TRAINING_S / 48, detect=0.0)
        )
        yield


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_untrained(tmp_path_factory.mktemp("detector") / "best", threshold=THRESHOLD)
    stored = stored_calibration(Calibration(method="platt", slope=1.2, intercept=0.3))
    known = {"calibration": stored, "provenance": {LEARNT_FROM: {"0123": [[0.0, 60.0]]}}}
    update_card(folder, load_card(folder).model_copy(update=known))
    return folder


@pytest.fixture(scope="module")
def adapted(tones: Path, detector: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("adapted") / "run"
    adapt([tones / "audio"], out, init=detector)
    return out


def _n_boxes(folder: Path, tones: Path, threshold: float) -> int:
    recipe = gain_recipe()
    chunks = without_labels(unlabelled_chunks([tones / "audio"], recipe.front_end), recipe.front_end)
    model = LoadedModel.load(folder, device="cpu")
    return sum(
        int((found.scores >= threshold).sum())
        for batch in ordered_batches(chunks, batch_size=8)
        for found in model.detect(batch.waveforms, score_threshold=0.01)
    )


def test_it_has_learnt_and_finds_as_many_boxes(adapted: Path, detector: Path, tones: Path) -> None:
    card = load_card(adapted / "best")
    assert card.weights_sha256 != load_card(detector).weights_sha256
    threshold = card.thresholds["score"]
    assert threshold != THRESHOLD
    before = _n_boxes(detector, tones, THRESHOLD)
    assert before > 20
    assert _n_boxes(adapted / "best", tones, threshold) == pytest.approx(before, abs=2)


def test_a_box_at_the_threshold_is_as_probable_as_before(adapted: Path, detector: Path) -> None:
    now, before = load_card(adapted / "best"), load_card(detector)
    assert now.calibration is not None
    assert float(now.probabilities.apply(now.thresholds["score"])) == pytest.approx(
        float(before.probabilities.apply(THRESHOLD))
    )
    assert now.calibration.data == "the starting model (before training)"
    assert "metrics" not in now.provenance  # there is nothing to measure on


def test_a_bat_detector_still_boxes_the_strongest_harmonic(
    tones: Path, detector: Path, tmp_path: Path
) -> None:
    (tmp_path / "few").mkdir()
    name = "S1_20240501_060000.wav"
    (tmp_path / "few" / name).symlink_to(tones / "audio" / name)
    adapt([tmp_path / "few"], tmp_path / "run", init=detector, band_hz=64_000)
    card = load_card(tmp_path / "run" / "best")
    assert card.front_end.high_hz == 64_000
    assert card.habit == load_card(detector).at_band(64_000).habit == Habit(box="strongest")


def test_half_of_it_is_the_start(
    tones: Path, detector: Path, adapted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = adapting.load_recipe

    def alone(source: Path, overrides: dict[str, object]) -> object:
        return whole(source, {**overrides, "selftrain.stage1.start_share": 0.0})

    monkeypatch.setattr(adapting, "load_recipe", alone)
    adapt([tones / "audio"], tmp_path / "alone", init=detector)
    first, last, mean = (
        load_checkpoint(folder).model.state_dict()
        for folder in (detector, tmp_path / "alone" / "best", adapted / "best")
    )
    for name, value in mean.items():
        if value.is_floating_point():
            torch.testing.assert_close(value, (first[name] + last[name]) / 2, atol=1e-5, rtol=1e-4)


def test_it_has_learnt_from_no_boxes_but_those_of_its_start(adapted: Path) -> None:
    assert load_card(adapted / "best").provenance[LEARNT_FROM] == {"0123": [[0.0, 60.0]]}


def test_boxes_that_are_there_are_not_looked_at(
    tones: Path, detector: Path, adapted: Path, tmp_path: Path
) -> None:
    adapt([tones], tmp_path / "run", init=detector)
    with_boxes, without = (pd.read_parquet(run / PSEUDO) for run in (tmp_path / "run", adapted))
    assert with_boxes["score"].tolist() == without["score"].tolist()
    ends = [load_checkpoint(run / "best").model.state_dict() for run in (tmp_path / "run", adapted)]
    for name, value in ends[0].items():
        torch.testing.assert_close(value, ends[1][name])


def test_a_stopped_run_learns_from_the_same_boxes_and_a_complete_one_stays(
    tones: Path, detector: Path, adapted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(adapting, "fit_detector", stopped)
    with pytest.raises(KeyboardInterrupt):
        adapt([tones / "audio"], out, init=detector)
    assert (out / PSEUDO).exists()
    monkeypatch.undo()
    monkeypatch.setattr(adapting, "pseudo_label", None)  # what was found is not looked for again
    first = adapt([tones / "audio"], out, init=detector)
    ends = [load_checkpoint(run / "best").model.state_dict() for run in (out, adapted)]
    for name, value in ends[0].items():
        torch.testing.assert_close(value, ends[1][name])
    monkeypatch.setattr(adapting, "fit_detector", None)
    told: list[str] = []
    assert adapt([tones / "audio"], out, init=detector, reporter=replace(SILENT, say=told.append)) == first
    assert "nothing has changed" in told[-1]
    with pytest.raises(MastError, match="seed was 0, now 1"):
        adapt([tones / "audio"], out, init=detector, seed=1)


def test_quiet_chunks_are_at_most_as_many_as_those_with_boxes() -> None:
    sure = [np.array([number % 10 == 0]) for number in range(100)]
    labels = PseudoLabels([np.zeros((1, 4))] * 100, sure, [1.0] * 100)
    rows = sample_training_chunks(labels, 1_000, seed=0)
    assert len(rows) == 20
    assert set(range(0, 100, 10)) <= set(rows.tolist())
    assert sorted(rows) == rows.tolist()
    few = sample_training_chunks(labels, 8, seed=0)
    assert len(few) == 8
    assert sum(sure[row][0] for row in few) == 4
    all_calls = PseudoLabels(labels.boxes, [np.array([True])] * 100, labels.weights)
    assert len(sample_training_chunks(all_calls, 30, seed=0)) == 30


def test_a_detector_that_finds_nothing_has_nothing_to_learn_from(tones: Path, tmp_path: Path) -> None:
    deaf = save_untrained(tmp_path / "best", threshold=1.0)
    with pytest.raises(MastError, match="found nothing in the"):
        adapt([tones / "audio"], tmp_path / "run", init=deaf)


@pytest.mark.parametrize("n_short", [0, 2])
def test_short_recordings_are_left_out_and_counted(tones: Path, tmp_path: Path, n_short: int) -> None:
    name = "S1_20240501_060000.wav"
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / name).symlink_to(tones / "audio" / name)
    for number in range(n_short):
        sf.write(tmp_path / "few" / f"short{number}.wav", np.zeros(8_000), 16_000)
    told: list[str] = []
    deaf = save_untrained(tmp_path / "best", threshold=1.0)
    with pytest.raises(MastError, match="found nothing in the"):
        adapt([tmp_path / "few"], tmp_path / "run", init=deaf, reporter=replace(SILENT, say=told.append))
    half_s = gain_recipe().front_end.chunk_s / 2
    expected = f"2 of 3 recordings are shorter than half a chunk ({half_s:g} s) and left out"
    assert told == ([expected] if n_short else [])


def test_a_folder_with_other_files_is_refused(tones: Path, detector: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(MastError, match="holds files but no run of mast"):
        adapt([tones / "audio"], tmp_path, init=detector)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("recordings", "said"), [("none", "no such folder"), ("short", "no recording is as long as half a chunk")]
)
def test_a_refused_command_leaves_no_folder(tmp_path: Path, recordings: str, said: str) -> None:
    (tmp_path / "short").mkdir()
    sf.write(tmp_path / "short" / "a.wav", np.zeros(16_000), 16_000)
    words = ["adapt", str(tmp_path / recordings), "--out", str(tmp_path / "run")]
    with report_command():
        assert said in str(CliRunner().invoke(app, words).exception)
    assert [path.name for path in tmp_path.iterdir()] == ["short"]


def test_the_command_says_what_to_type_next(tones: Path, detector: Path, tmp_path: Path) -> None:
    out = tmp_path / "a run"
    words = ["adapt", str(tones / "audio"), "--model", str(detector), "--out", str(out)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "learning from 24 chunks" in result.output
    assert result.output.rstrip().endswith(
        f"Next: mast detect {tones / 'audio'} --model '{out}' --out detections"
    )
    assert (out / ADAPTED).exists()
