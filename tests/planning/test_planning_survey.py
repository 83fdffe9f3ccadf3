"""What a model makes of clips: the right sound, the right clip, and failures that cost one clip."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from untrained import FRONT_END, save_untrained, write_noise

from mast.audio import centre_and_pad, read
from mast.data import load_dataset
from mast.data.recordings import Dataset
from mast.errors import MastError
from mast.events import as_events
from mast.features.logmel import LogMel
from mast.habit import Habit
from mast.models.card import load_card
from mast.models.checkpoint import load_checkpoint, update_card
from mast.planning.candidates import candidate_clips
from mast.planning.cover import cover_order
from mast.planning.survey import (
    Surveyor,
    chunk_grid,
    expected_errors,
    expected_errors_by_clip,
    model_front_end,
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_untrained(tmp_path_factory.mktemp("detector") / "best").parent


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return load_dataset(write_noise(tmp_path / "noise"))


def test_each_chunk_is_embedded_by_the_models_own_encoder(model: Path, dataset: Dataset) -> None:
    clips = candidate_clips(dataset, FRONT_END, 5.12).iloc[:3].reset_index(drop=True)
    survey = Surveyor(model, device="cpu").survey(dataset, clips)
    assert survey.clip.tolist() == [0, 0, 1, 1, 2]  # 5.12, 5.12 and 1.76 s
    net, card = load_checkpoint(model / "best")
    path = dataset.path(clips["recording"][1])
    sound = read(path, start_s=5.12 + 2.56, end_s=5.12 + 5.12, sample_rate=16_000)
    raw = LogMel(FRONT_END).chunk_features(
        torch.from_numpy(centre_and_pad(sound, FRONT_END.chunk_samples))[None]
    )
    seen = card.normalisation.apply(raw)
    with torch.no_grad():
        expected = net.encoder.feature_map(seen).mean(dim=(2, 3))[0].numpy()  # type: ignore[union-attr]
        scores = net.detect(seen, score_threshold=0.05, nms_iou=0.5)[0].scores.double().numpy()  # type: ignore[operator]
    assert survey.vectors[3] == pytest.approx(expected, abs=1e-4)
    assert len(scores) > 3
    single = clips.iloc[[1]].assign(start_s=7.68, end_s=10.24)
    alone = Surveyor(model, device="cpu").survey(dataset, single)
    assert alone.uncertainty.tolist() == pytest.approx([np.minimum(scores, 1 - scores).sum()], abs=1e-3)


def test_a_pretrained_encoder_will_do_and_knows_no_doubt(dataset: Dataset, tmp_path: Path) -> None:
    surveyor = Surveyor(save_untrained(tmp_path / "encoder", detects=False), device="cpu")
    clips = candidate_clips(dataset, FRONT_END, 2.56)
    survey = surveyor.survey(dataset, clips, clips.iloc[:2])
    assert not surveyor.detects
    assert survey.uncertainty.tolist() == [0.0] * len(clips)
    assert survey.heard.shape[0] == 2
    assert surveyor.count_chunks(clips) == len(survey.vectors)
    # the two first clips, one of each kind of sound
    sites = clips["site"].iloc[cover_order(survey, 4)].tolist()
    assert set(sites) == {"A", "B"}


def test_doubt_is_about_events_as_the_model_draws_them(dataset: Dataset, tmp_path: Path) -> None:
    """A song that is joined from notes is one decision, whatever its notes are."""
    model = save_untrained(tmp_path / "detector")
    clips = candidate_clips(dataset, FRONT_END, 2.56).iloc[:2].reset_index(drop=True)
    of_notes = Surveyor(model, device="cpu").survey(dataset, clips)
    update_card(model, load_card(model).model_copy(update={"habit": Habit(join_s=10.0)}))
    of_songs = Surveyor(model, device="cpu").survey(dataset, clips)
    assert (of_songs.uncertainty < of_notes.uncertainty).all()
    # what nobody would see is not joined
    card = load_card(model)
    update_card(model, card.model_copy(update={"thresholds": card.thresholds | {"score": 1.0}}))
    assert Surveyor(model, device="cpu").survey(dataset, clips).uncertainty == pytest.approx(
        of_notes.uncertainty
    )


def test_another_band_is_the_same_model_at_another_speed(model: Path) -> None:
    bats = Surveyor(model, device="cpu", band_hz=96_000)
    assert bats.front_end == FRONT_END.at_band(96_000) == model_front_end(model, 96_000)
    assert bats.card.habit == Habit(box="strongest")


def test_a_recording_that_breaks_costs_only_its_clips(model: Path, dataset: Dataset) -> None:
    clips = candidate_clips(dataset, FRONT_END, 5.12)
    broken = str(clips["recording"].iloc[0])
    dataset.path(broken).write_bytes(b"RIFF")
    done: list[int] = []
    surveyor = Surveyor(model, device="cpu")
    survey = surveyor.survey(dataset, clips, progress=done.append)
    lost = np.flatnonzero((clips["recording"] == broken).to_numpy())
    assert sorted(survey.failures) == lost.tolist()
    assert all(broken in reason for reason in survey.failures.values())
    assert not set(survey.clip.tolist()) & set(lost.tolist())
    assert sum(done) == surveyor.count_chunks(clips)
    assert set(cover_order(survey, 99).tolist()) == set(range(len(clips))) - set(lost.tolist())


def test_doubt_counts_boxes_near_one_half() -> None:
    assert expected_errors(np.array([0.5, 0.99, 0.01])) == pytest.approx(0.52)
    assert expected_errors(np.zeros(0)) == 0.0
    events = as_events(
        pd.DataFrame(
            {
                "recording": ["a", "a", "b", "a"],
                "start_s": [0.0, 9.0, 1.0, 30.0],
                "end_s": [1.0, 12.0, 2.0, 31.0],
                "low_hz": 0.0,
                "high_hz": 1.0,
                "score": [0.5, 0.4, 0.9, 0.5],
            }
        )
    )
    clips = pd.DataFrame(
        {"recording": ["a", "a", "b", "c"], "start_s": [0.0, 10, 0, 0], "end_s": [10.0, 20, 10, 10]}
    )
    assert expected_errors_by_clip(events, clips).tolist() == pytest.approx([0.5, 0.4, 0.1, 0.0])


def test_chunks_lie_end_to_end_in_a_clip() -> None:
    assert chunk_grid(5.12, 10.24, FRONT_END) == [5.12, 7.68]
    assert chunk_grid(0.0, 6.5, FRONT_END) == [0.0, 2.56, 5.12]
    assert chunk_grid(0.0, 0.3, FRONT_END) == [0.0]


def test_what_is_not_a_model_is_refused(model: Path, tmp_path: Path) -> None:
    assert model_front_end(model) == FRONT_END
    with pytest.raises(MastError, match="no such folder"):
        Surveyor(tmp_path / "none")
    with pytest.raises(MastError, match="holds no model"):
        model_front_end(tmp_path)
