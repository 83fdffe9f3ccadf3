"""The lessons of the embedded model: worlds that can be drawn, recipes that are valid, weights that average."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
import torch

from mast.data.simulate.dataset import Simulation, simulate_dataset
from mast.grid import FrontEnd
from mast.models.architecture import DetectorConfig
from mast.models.card import ModelCard, load_card
from mast.models.checkpoint import load_checkpoint, save_checkpoint
from mast.models.mast_detector import MastDetector
from mast.normalisation import Normalisation
from mast.training.recipe import load_recipe

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import default_model


@pytest.mark.parametrize("name", default_model.LESSONS)
def test_the_worlds_of_a_lesson_differ_and_follow_its_hands(name: str, tmp_path: Path) -> None:
    lesson = default_model.LESSONS[name]
    drawn = [default_model.draw_world(lesson.first + k, name, tmp_path) for k in range(6)]
    assert len({world.seed for world in drawn}) == 6
    assert [world.motifs for world in drawn[:2]] == [
        lesson.annotators[k % len(lesson.annotators)].motifs for k in range(2)
    ]
    again = default_model.draw_world(lesson.first, name, tmp_path)
    assert again == drawn[0]


@pytest.mark.parametrize("name", [name for name in default_model.LESSONS if name != "train"])
def test_the_recipe_of_a_refinement_is_valid(name: str) -> None:
    recipe = load_recipe(default_model.REFINEMENT, dict(default_model.LESSONS[name].settings))
    config = recipe.detector
    assert isinstance(config, DetectorConfig)
    assert config.encoder.depth == 6
    assert config.detail == (16 if name == "songs" else 0)


def test_worlds_that_train_never_validate() -> None:
    """Refinements share numbers of worlds, so what one validates on another may train on; not so the later lessons."""

    def worlds(name: str) -> set[int]:
        lesson = default_model.LESSONS[name]
        return set(range(lesson.first, lesson.first + sum(lesson.worlds.values())))

    for later in ("last", "long", "real"):
        others = (name for name in default_model.LESSONS if name not in (later, f"more_{later}"))
        assert all(worlds(later).isdisjoint(worlds(name)) for name in others)


def test_averages_weigh_alike_and_leave_a_detail_path_out(tmp_path: Path) -> None:
    front_end = FrontEnd(n_bins=32, chunk_frames=128)
    folders = []
    for seed, detail in ((1, 0), (2, 8)):
        torch.manual_seed(seed)
        config = DetectorConfig.named("tiny", chunk_frames=128, n_bins=32, detail=detail)
        card = ModelCard(
            kind="detector",
            architecture=config,
            front_end=front_end,
            normalisation=Normalisation(mean=-7.0, std=3.0),
            thresholds={"score": 0.1 * seed, "nms_iou": 0.5},
        )
        folders.append(tmp_path / str(seed))
        save_checkpoint(folders[-1], MastDetector(config), card)
    mean, card = load_checkpoint(default_model.average(folders, tmp_path / "mean"))
    first, second = (load_checkpoint(folder).model.state_dict() for folder in folders)
    assert card.thresholds == {"score": pytest.approx(0.15), "nms_iou": 0.5}
    assert mean.state_dict().keys() == first.keys()
    for name, value in mean.state_dict().items():
        torch.testing.assert_close(value, (first[name] + second[name]) / 2)


def test_the_expert_is_heard_as_often_as_told(tmp_path: Path) -> None:
    world, expert = tmp_path / "data" / "world_000", tmp_path / "expert"
    for folder, split in ((world, "train"), (expert, "train")):
        folder.mkdir(parents=True)
        (folder / "a.wav").touch()
        facts = {"file": ["a.wav"], "site": ["S"], "split": [split], "duration_s": [60.0]}
        pd.DataFrame(facts).to_csv(folder / "recordings.csv", index=False)
        box = dict(zip(("start_s", "end_s", "low_hz", "high_hz"), np.arange(4.0)[:, None], strict=True))
        pd.DataFrame({"file": ["a.wav"], **box, "label": ["x"]}).to_csv(folder / "boxes.csv", index=False)
    lesson = default_model.Lesson(0, {"train": 1}, (), expert_times=3)
    default_model.gather_dataset(tmp_path / "data", lesson, [(world, "train")], Namespace(expert=expert))
    recordings = pd.read_csv(tmp_path / "data" / "recordings.csv")
    assert list(recordings["file"]) == ["world_000/audio/a.wav", *(f"expert_{k}/a.wav" for k in range(3))]
    assert all((tmp_path / "data" / name).exists() for name in recordings["file"][1:])
    assert len(pd.read_csv(tmp_path / "data" / "boxes.csv")) == 4


def test_checked_pieces_are_heard_end_to_end_with_their_boxes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, rows = np.random.default_rng(0), []
    sounds = {}
    (tmp_path / "pool").mkdir()
    for k in range(16):
        sounds[f"{k}.wav"] = rng.uniform(-0.5, 0.5, 10 * default_model.RATE)
        sf.write(tmp_path / "pool" / f"{k}.wav", sounds[f"{k}.wav"], default_model.RATE, subtype="PCM_16")
        rows += [(f"{k}.wav", 0, 5, 1.0, 2.0, 500, 900), (f"{k}.wav", 5, 10, *[np.nan] * 4)]
    columns = ["file", "from_s", "to_s", "start_s", "end_s", "low_hz", "high_hz"]
    pd.DataFrame(rows, columns=columns).to_csv(tmp_path / "checked.csv", index=False)
    monkeypatch.setattr(default_model, "CHECKED", tmp_path / "checked.csv")
    out = default_model.checked_minutes(tmp_path / "pool", tmp_path / "out")
    recordings, boxes = pd.read_csv(out / "recordings.csv"), pd.read_csv(out / "boxes.csv")
    assert set(recordings["split"]) == {"train", "val"}
    assert recordings["duration_s"].sum() == 160
    assert recordings["duration_s"].max() <= 65
    assert len(boxes) == 16  # pieces without boxes have none, and are heard
    for box in boxes.itertuples():
        joined, _ = sf.read(out / str(box.file))
        start = round((float(box.start_s) - 1.0) * default_model.RATE)  # type: ignore[arg-type]
        piece = joined[start : start + 5 * default_model.RATE]
        assert min(np.abs(piece - sound[: len(piece)]).max() for sound in sounds.values()) < 1e-4
    both = default_model.Lesson(0, {}, (), checked_times=2)
    options = Namespace(expert=None, pool=tmp_path / "pool", work=tmp_path)
    (tmp_path / "checked").symlink_to(out)
    (tmp_path / "data").mkdir()
    default_model.gather_dataset(tmp_path / "data", both, [], options)
    heard = pd.read_csv(tmp_path / "data" / "recordings.csv").groupby("split").size()
    once = recordings.groupby("split").size()
    assert heard.to_dict() == {"train": 2 * once["train"], "val": once["val"]}


def test_clips_to_choose_by_are_not_learnt_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{k}.wav" for k in range(12)]
    for k, name in enumerate(names):
        sf.write(
            tmp_path / name, np.full(20 * default_model.RATE, k / 24), default_model.RATE, subtype="PCM_16"
        )
    clips = {"file": names, "source": "pool", "label": "", "duration_s": 20.0, "licence": "CC0"}
    pd.DataFrame(clips).to_csv(tmp_path / "clips.csv", index=False)
    pd.DataFrame({"file": names[:8]}).to_csv(
        tmp_path / "checked.csv", index=False
    )  # the others have no boxes
    monkeypatch.setattr(default_model, "CHECKED", tmp_path / "checked.csv")
    out = default_model.join_clips(tmp_path, tmp_path / "out")
    sound = np.concatenate([sf.read(out / name)[0] for name in pd.read_csv(out / "recordings.csv")["file"]])
    heard = {round(float(level) * 24) for level in np.unique(sound.round(4))}
    held_back = {k for k in range(8) if default_model.is_held_back(names[k])}
    assert held_back
    assert heard == set(range(12)) - held_back


def test_an_average_is_settled_on_worlds_held_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipe.toml").write_text(
        'size = "tiny"\n'
    )  # a process has one precision, and other tests chose theirs
    monkeypatch.setattr(default_model, "REFINEMENT", tmp_path / "recipe.toml")
    worlds = []
    for seed, split in enumerate(("train", "val")):
        worlds.append((tmp_path / f"world_{seed:03d}", split))
        world = Simulation(recordings=2, duration_s=6, sites=1, days=1, hours=(5, 9), density=30, seed=seed)
        simulate_dataset(worlds[-1][0], world)
    default_model.gather_dataset(
        tmp_path, default_model.Lesson(0, {"train": 1, "val": 1}, ()), worlds, Namespace(expert=None)
    )
    config = DetectorConfig.named("tiny", chunk_frames=128, n_bins=32)
    card = ModelCard(
        kind="detector",
        architecture=config,
        front_end=FrontEnd(n_bins=32, chunk_frames=128),
        normalisation=Normalisation(mean=-7.0, std=3.0),
        thresholds={"score": 0.987, "nms_iou": 0.5},
    )
    torch.manual_seed(0)
    save_checkpoint(tmp_path / "model", MastDetector(config), card)
    default_model.finalise(tmp_path / "model", tmp_path)
    _, settled = load_checkpoint(tmp_path / "model")
    assert settled.thresholds["score"] != 0.987
    assert settled.provenance["metrics"]["threshold"] == settled.thresholds["score"]
    assert settled.calibration


def test_the_shipped_card_says_who_boxed_its_validation_recordings() -> None:
    folder = Path(default_model.__file__).parents[1] / "src" / "mast" / "pretrained" / "default"
    stored = load_card(folder).calibration
    assert stored is not None
    assert stored.data == default_model.VALIDATION
    point = stored.threshold_for(0.9)
    assert point is not None
    assert "boxed by a vision-language model and checked by nobody" in stored.describe(point)
    page = (folder / "README.md").read_text(encoding="utf-8")
    assert page.endswith(default_model.ATTRIBUTION)
    assert stored.recordings in page
