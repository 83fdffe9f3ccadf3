"""Where a run that starts from a trained detector begins: all of its weights, its shape, its front end."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from toy_calibration import stored_calibration
from toy_recipe import FRONT_END, small_recipe
from typer.testing import CliRunner

from mast.cli.main import app
from mast.data.recordings import Dataset, load_dataset
from mast.errors import ConfigError, MastError
from mast.evaluation.evidence import (
    FEW_BOXES,
    TRUSTED_BOXES,
    Finding,
    Tally,
    TrainingEvidence,
    compare_tallies,
)
from mast.evaluation.part_tables import PartTables
from mast.events import boxes_of
from mast.grid import FrontEnd, in_band
from mast.habit import Habit
from mast.loaded_model import LoadedModel
from mast.models.architecture import DetectorConfig
from mast.models.card import LEARNT_FROM, ModelCard, load_card
from mast.models.checkpoint import load_checkpoint, save_checkpoint, update_card
from mast.models.find import find_model
from mast.models.mae import MaskedAutoencoder
from mast.models.mast_detector import MastDetector
from mast.normalisation import Normalisation
from mast.probability import Calibration, OperatingPoint
from mast.table_files import write_table
from mast.training.chosen_chunks import Chunks, labelled_chunks
from mast.training.chunk_scores import detect_chunks
from mast.training.detector_training import train_detector
from mast.training.leakage import fingerprint
from mast.training.loop import Result
from mast.training.part_list import PART_LIST, list_parts
from mast.training.recipe import Recipe, load_recipe
from mast.training.start import Start
from mast.training.start_comparison import compare_with_start, learnt_from

STATISTICS = Normalisation(mean=-7.0, std=3.0)


def saved(folder: Path, config: DetectorConfig, front_end: FrontEnd = FRONT_END) -> Path:
    torch.manual_seed(3)
    card = ModelCard(
        kind="detector",
        architecture=config,
        front_end=front_end,
        normalisation=STATISTICS,
        thresholds={"score": 0.3},
    )
    save_checkpoint(folder, MastDetector(config), card)
    return folder


def detector_of(recipe: Recipe) -> DetectorConfig:
    assert isinstance(recipe.detector, DetectorConfig)
    return recipe.detector


def test_training_starts_from_every_weight_of_a_detector(tones: Path, tmp_path: Path) -> None:
    """At a rate of nearly nothing the detector stays what it was."""
    recipe = small_recipe(train__epochs=1, train__lr=1e-12, train__min_lr=0.0, train__ema_decay=0.0)
    start = saved(tmp_path / "start", detector_of(recipe))
    train_detector(tones, tmp_path / "run", recipe, init=start)
    before, _ = load_checkpoint(start)
    after, card = load_checkpoint(tmp_path / "run" / "last")
    for name, tensor in before.state_dict().items():
        assert torch.allclose(tensor, after.state_dict()[name], atol=1e-6), name
    assert card.normalisation == STATISTICS
    assert card.provenance["notes"] == [f"all weights of the detector in {start}"]


def test_a_start_is_measured_in_the_band_of_the_run(
    tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = saved(tmp_path / "start", detector_of(small_recipe()))
    slow = small_recipe(front_end=FRONT_END.at_band(4_000).model_dump())
    trained = saved(tmp_path / "trained", detector_of(small_recipe()), slow.front_end)
    heard: list[FrontEnd] = []

    def listen(model: LoadedModel, chunks: Chunks, *_: object) -> PartTables:
        heard.append(model.front_end)
        return detect_chunks(model, chunks)

    monkeypatch.setattr("mast.training.start_comparison.detect_by_plan", listen)
    before, after, finding = compare_with_start(load_dataset(tones), trained, Start.find(start), slow)
    assert heard == [slow.front_end, slow.front_end]
    assert before.as_lists() == after.as_lists()  # the same weights
    assert finding is Finding.NOT_BETTER


def test_the_command_holds_back_nothing_that_the_start_has_learnt_from(
    tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, recipe, dataset = (
        saved(tmp_path / "start", detector_of(small_recipe())),
        small_recipe(),
        load_dataset(tones),
    )
    known = str(labelled_chunks(dataset, recipe.front_end)["val"].table["recording"].iloc[0])
    told = {LEARNT_FROM: {fingerprint(dataset.path(known)): [[0.0, 11.0]]}}
    update_card(start, load_card(start).model_copy(update={"provenance": told}))
    given: list[Dataset] = []

    def stop(dataset: Dataset, *_: object, **__: object) -> Result:
        given.append(dataset)
        raise ConfigError("stopped here")

    monkeypatch.setattr("mast.training.detector_training.train_detector", stop)
    arguments = ["train", str(tones), "--init", str(start), "--out", str(tmp_path / "run")]
    shown = CliRunner().invoke(app, arguments)
    assert (
        f"Note: {start} was trained on 1 of these 8 recordings, so it stays in training; held back"
        in shown.output
    )
    assert known not in set(labelled_chunks(given[0], recipe.front_end)["val"].table["recording"])


def test_the_command_says_that_training_did_not_help(
    tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = saved(tmp_path / "start", detector_of(small_recipe()))
    best = {"f1": 0.1, "precision": 0.1, "recall": 0.1, "ap50": 0.1, "threshold": 0.5}
    monkeypatch.setattr(
        "mast.training.detector_training.train_detector", lambda *_, **__: Result(1, best, best, 1, 1.0)
    )
    finished(tmp_path / "run", tones)
    arguments = ["train", str(tones), "--init", str(start), "--out", str(tmp_path / "run")]
    for trained, boxes, said in (
        (10, 100, f"(F1 0.260 as is, 0.100 trained, each at its own threshold): use --model {start}"),
        (30, 100, None),
        (
            30,
            99,
            f"but on 99 boxes in 5 recordings that may be due to chance: --model {start} is the safer choice",
        ),
    ):
        rest = [[0, 0, 1]] * 4
        before, after = (Tally.of([[right, 100, boxes - 4], *rest]) for right in (26, trained))
        found = (before, after, compare_tallies(after, before))
        monkeypatch.setattr(
            "mast.training.start_comparison.compare_with_start", lambda *_, found=found, **__: found
        )
        shown = CliRunner().invoke(app, arguments, catch_exceptions=False).output
        assert "trained, each at its own threshold" not in shown if said is None else said in shown
        # 0.3 of the raw scores, in those that detect gives
        assert "mast detect will use threshold 0.16" in shown
        assert "6 recordings with 30 boxes train, 2 recordings with 12 boxes validate" in shown


def finished(run: Path, data: Path) -> None:
    """What a training leaves that the command reads."""
    best = saved(run / "best", detector_of(small_recipe()))
    stored = stored_calibration(Calibration(method="platt", slope=2.0))
    update_card(best, load_card(best).model_copy(update={"calibration": stored}))
    dataset = load_dataset(data)
    parts = labelled_chunks(dataset, FRONT_END)
    write_table(run / PART_LIST, list_parts(dataset, parts))


def test_steps_are_small_on_top_of_a_detector_alone(tmp_path: Path) -> None:
    recipe = small_recipe(train__lr=2e-3, train__min_lr=1e-4, train__start_lr_multiplier=0.05)
    start = saved(tmp_path / "start", detector_of(recipe))
    gentle = Start.find(start).gentle_plan(recipe)
    assert (gentle.lr, gentle.min_lr) == (pytest.approx(1e-4), pytest.approx(5e-6))
    assert Start().gentle_plan(recipe) == recipe.train
    other = saved(tmp_path / "other", detector_of(small_recipe(train__detector__head_convs=2)))
    assert Start.find(other).gentle_plan(recipe) == recipe.train  # only the encoder of it is taken


@pytest.mark.parametrize("ema_decay", [0.0, 0.9])
def test_the_detector_that_is_kept_is_the_mean_of_the_trained_one_and_the_start(
    tones: Path, tmp_path: Path, ema_decay: float
) -> None:
    plan = {"train__epochs": 2, "train__ema_decay": ema_decay, "train__start_lr_multiplier": 1.0}
    recipe = small_recipe(**plan)
    start = saved(tmp_path / "start", detector_of(recipe))
    for share in (0.0, 0.5):
        train_detector(
            tones, tmp_path / str(share), small_recipe(**plan, train__start_share=share), init=start
        )
    before, trained, mean = (
        load_checkpoint(tmp_path / name).model.state_dict() for name in ("start", "0.0/last", "0.5/last")
    )
    moved = 0.0
    for name, value in mean.items():
        torch.testing.assert_close(value, (before[name] + trained[name]) / 2, rtol=1e-4, atol=1e-6)
        moved = max(moved, float((trained[name] - before[name]).abs().max()))
    assert moved > 1e-3


def test_no_mean_where_some_weights_are_new(tmp_path: Path) -> None:
    recipe = small_recipe(train__start_share=0.5)
    own = saved(tmp_path / "start", detector_of(recipe))
    other = saved(tmp_path / "other", detector_of(small_recipe(train__detector__head_convs=2)))
    assert Start.find(own).gentle_plan(recipe).start_share == 0.5
    assert Start.find(other).gentle_plan(recipe).start_share == 0
    assert Start().gentle_plan(recipe).start_share == 0


def test_few_boxes_are_averaged_with_the_start(tones: Path, tmp_path: Path) -> None:
    folder = saved(tmp_path / "start", detector_of(small_recipe()))
    held = labelled_chunks(load_dataset(tones), FRONT_END)["val"]
    few, many = held.without_overlap(load_dataset(tones), FRONT_END), TrainingEvidence(TRUSTED_BOXES, 3)
    assert few.n_boxes < FEW_BOXES
    assert Start.find(folder).share(TrainingEvidence(TRUSTED_BOXES - 1, 3), few, FRONT_END) == 0.5
    assert Start.find(folder).share(many, few, FRONT_END) == 0  # trusted as it is
    assert Start.find(folder).share(TrainingEvidence(TRUSTED_BOXES, 2), few, FRONT_END) == 0.5
    assert Start().share(TrainingEvidence(9, 3), few, FRONT_END) == 0
    card = load_card(folder)
    update_card(folder, card.model_copy(update={"habit": Habit(box="strongest", band_db=25, time_db=15)}))
    assert (
        Start.find(folder).share(TrainingEvidence(9, 3), few, FRONT_END) == 0
    )  # its boxes are cut down afterwards


def test_plenty_to_validate_on_needs_no_mean(
    tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Start.find(saved(tmp_path / "start", detector_of(small_recipe())))
    monkeypatch.setattr("mast.training.start.FEW_BOXES", 1)
    assert (
        start.share(TrainingEvidence(9, 3), labelled_chunks(load_dataset(tones), FRONT_END)["val"], FRONT_END)
        == 0
    )


def test_few_boxes_do_not_choose_a_threshold(
    tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small_recipe(train__epochs=1)
    start = saved(tmp_path / "start", detector_of(recipe))
    monkeypatch.setattr("mast.training.start.FEW_BOXES", 10_000)
    train_detector(tones, tmp_path / "few", recipe, init=start)
    assert load_card(tmp_path / "few" / "best").thresholds["score"] == 0.3
    monkeypatch.setattr("mast.training.start.FEW_BOXES", 1)
    train_detector(tones, tmp_path / "many", recipe, init=start)
    assert load_card(tmp_path / "many" / "best").thresholds["score"] != 0.3
    assert Start().threshold(labelled_chunks(load_dataset(tones), FRONT_END)["val"]) is None


def test_few_boxes_do_not_say_what_scores_mean(
    tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small_recipe(train__epochs=1)
    start = saved(tmp_path / "start", detector_of(recipe))
    steep = Calibration(method="platt", slope=3.0, intercept=1.0, n_predictions=500, n_hits=200)
    point = OperatingPoint(
        threshold=0.4, precision=0.9, low=0.8, high=0.95, recall=0.3, n_kept=50, found={"fish": 0.7}
    )
    stored = stored_calibration(steep, n_recordings=24, data="clips", curve=(point,))
    update_card(start, load_card(start).model_copy(update={"calibration": stored}))
    monkeypatch.setattr("mast.training.start.FEW_BOXES", 10_000)
    train_detector(tones, tmp_path / "few", recipe, init=start)
    kept = load_card(tmp_path / "few" / "best").calibration
    assert kept is not None
    assert kept.calibration == steep
    assert kept.recordings == "24 validation recordings of clips (before training)"
    assert [p.found for p in kept.curve] == [{}]  # that was the detector before training
    again = Start.find(tmp_path / "few" / "best").calibration(
        labelled_chunks(load_dataset(tones), FRONT_END)["val"]
    )
    assert again == kept  # said once, however often it is trained
    assert kept.curve[0].model_copy(update={"found": point.found}) == point
    monkeypatch.setattr("mast.training.start.FEW_BOXES", 1)
    train_detector(tones, tmp_path / "many", recipe, init=start)
    measured = load_card(tmp_path / "many" / "best").calibration
    assert measured is not None
    assert measured.calibration != steep


def test_without_the_contrastive_loss_all_that_detects_is_kept(tmp_path: Path) -> None:
    with_loss = small_recipe()
    start = saved(tmp_path / "start", detector_of(with_loss))
    without = small_recipe(train__detector__contrastive_weight=0.0)
    torch.manual_seed(8)
    model = MastDetector(detector_of(without))
    note, normalisation = Start.find(start).load_into(model, without), Start.find(start).normalisation
    expected = load_checkpoint(start).model.state_dict()
    assert dict.fromkeys(model.state_dict(), True) == {
        name: bool(torch.equal(tensor, expected[name])) for name, tensor in model.state_dict().items()
    }
    assert "but those of the contrastive loss" in note
    assert isinstance(normalisation, Normalisation)
    assert (normalisation.mean, normalisation.std) == (-7.0, 3.0)


def test_a_detail_path_is_put_beside_a_trained_detector(tmp_path: Path) -> None:
    """Before its first step the new detector finds what the old one finds."""
    plain, with_detail = small_recipe(), small_recipe(train__detector__detail=8)
    start = saved(tmp_path / "start", detector_of(plain))
    model = MastDetector(detector_of(with_detail)).eval()
    note = Start.find(start).load_into(model, with_detail)
    assert "new detail path" in note
    old = load_checkpoint(start).model.eval()
    sound = torch.randn(2, 1, *model.chunk)
    torch.testing.assert_close(model(sound).logits, old(sound).logits)
    back = saved(tmp_path / "back", detector_of(with_detail))
    note = Start.find(back).load_into(MastDetector(detector_of(plain)), plain)
    assert note.startswith("encoder of")  # a detector that leant on its path is none without it


def test_shape_and_front_end_come_from_the_detector(tmp_path: Path) -> None:
    own = detector_of(small_recipe())
    start = saved(tmp_path / "start", own)
    preset = load_recipe("small")  # another size, 128 bins, longer chunks
    adopted = Start.find(start).adapt_recipe(preset)
    assert adopted.front_end == FRONT_END
    found = detector_of(adopted)
    for field in ("encoder", "adapter", "channels", "levels", "head_convs"):
        assert getattr(found, field) == getattr(own, field), field
    assert adopted.train.lr == preset.train.lr  # how it is trained is the preset's
    model = MastDetector(found)
    assert "all weights" in Start.find(start).load_into(model, adopted)


def test_another_band_plays_the_sound_at_another_speed(tmp_path: Path) -> None:
    start = saved(tmp_path / "start", detector_of(small_recipe()))
    fish = load_recipe("tiny", {"band_hz": 2_000})
    adopted = Start.find(start).adapt_recipe(fish)
    assert adopted.front_end.sample_rate == 4_000
    assert adopted.front_end.chunk_s == pytest.approx(4 * FRONT_END.chunk_s)
    assert adopted.front_end.n_bins == FRONT_END.n_bins
    note = Start.find(start).load_into(MastDetector(detector_of(adopted)), adopted)
    assert note.startswith("all weights")


def test_another_band_is_refused_for_what_was_pretrained(tmp_path: Path) -> None:
    """More likely a forgotten --band than a wish."""
    recipe = small_recipe()
    card = ModelCard(
        kind="mae", architecture=recipe.autoencoder, front_end=FRONT_END, normalisation=STATISTICS
    )
    save_checkpoint(tmp_path / "mae", MaskedAutoencoder(recipe.autoencoder), card)
    slow = small_recipe(front_end=FRONT_END.at_band(2_000).model_dump())
    assert Start.find(tmp_path / "mae").adapt_recipe(slow) is slow
    with pytest.raises(ConfigError, match="was trained on a front end for 20–8000 Hz"):
        Start.find(tmp_path / "mae").load_into(MastDetector(detector_of(slow)), slow)


def test_a_front_end_set_by_hand_is_kept_and_must_fit(tmp_path: Path) -> None:
    start = saved(tmp_path / "start", detector_of(small_recipe()))
    other = small_recipe(front_end={**FRONT_END.model_dump(), "hop_samples": 80})
    assert Start.find(start).adapt_recipe(other).front_end == other.front_end
    with pytest.raises(ConfigError, match="use the same front end"):
        Start.find(start).load_into(MastDetector(detector_of(other)), other)


def test_a_shape_set_by_hand_takes_the_encoder_alone(tmp_path: Path) -> None:
    start = saved(tmp_path / "start", detector_of(small_recipe()))
    other = small_recipe(train__detector__channels=64)
    assert Start.find(start).adapt_recipe(other) == other
    assert Start.find(start).load_into(MastDetector(detector_of(other)), other) == f"encoder of {start}"


def test_whether_boxes_may_nest_comes_from_the_detector_unless_set(tmp_path: Path) -> None:
    plain = small_recipe()
    start = saved(tmp_path / "start", detector_of(small_recipe(train__detector__nested=0.8)))
    assert detector_of(Start.find(start).adapt_recipe(plain)).nested == 0.8
    assert "all weights" in Start.find(start).load_into(MastDetector(detector_of(plain)), plain)
    told = small_recipe(train__detector__nested=1.0)
    assert detector_of(Start.find(start).adapt_recipe(told)).nested == 1.0
    back = saved(tmp_path / "back", detector_of(plain))
    assert detector_of(Start.find(back).adapt_recipe(plain)).nested == 1.0


def test_recipes_stay_as_they_are_without_a_detector_to_start_from(tmp_path: Path) -> None:
    recipe = small_recipe()
    assert Start().adapt_recipe(recipe) is recipe
    (tmp_path / "weights.pth").write_bytes(b"")
    assert Start.find(tmp_path / "weights.pth").adapt_recipe(recipe) is recipe
    with pytest.raises(MastError, match="holds no model"):
        Start.find(tmp_path)
    start = saved(tmp_path / "start", detector_of(recipe))
    baseline = load_recipe("small", {"model": "fcos"})
    assert Start.find(start).adapt_recipe(baseline) is baseline
    assert Start.find(start).adapt_recipe(recipe) == recipe  # fits already


def test_without_a_band_the_start_keeps_its_own(tmp_path: Path) -> None:
    """Whoever starts from a detector of bats means bats."""
    bats = saved(tmp_path / "bats", detector_of(small_recipe()), FRONT_END.at_band(96_000))
    assert Start.find(bats).adapt_recipe(load_recipe("tiny")).front_end == FRONT_END.at_band(96_000)
    birds = Start.find(bats).adapt_recipe(load_recipe("tiny", {"band_hz": 8_000}))
    assert birds.front_end == FRONT_END
    assert birds.band_hz == 8_000


@pytest.mark.parametrize("band_hz", [2_007, 1_234.4, 192_000])
def test_any_band_that_is_asked_for_fits_its_start(tmp_path: Path, band_hz: float) -> None:
    start = Start.find(saved(tmp_path / "start", detector_of(small_recipe())))
    adopted = start.adapt_recipe(load_recipe("tiny", {"band_hz": band_hz}))
    assert adopted.front_end.high_hz == pytest.approx(band_hz, rel=1e-3)
    assert start.load_into(MastDetector(detector_of(adopted)), adopted).startswith("all weights")


def test_a_front_end_in_a_band_that_an_older_recipe_spelt_out_fits(tmp_path: Path) -> None:
    recipe = small_recipe(train__detector__levels=4)
    wide = DetectorConfig.named("tiny")
    start = Start.find(saved(tmp_path / "start", wide, FrontEnd()))
    spelt_out = recipe.model_copy(update={"front_end": FrontEnd.for_band(2_000)})
    assert spelt_out.band_hz is None
    assert start.adapt_recipe(spelt_out).front_end == FrontEnd.for_band(2_000)
    start.check_front_end(FrontEnd.for_band(2_000))


@pytest.mark.parametrize("command", ["train", "fit"])
@pytest.mark.parametrize("name", ["run", "run/best", "default", "hf://owner/name", "weights.pth"])
def test_both_commands_start_from_whatever_names_a_model(
    tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    model = saved(tmp_path / "run" / "best", detector_of(small_recipe()))
    (tmp_path / "weights.pth").write_bytes(b"")
    monkeypatch.setattr("mast.models.find._download", lambda repository, revision: model)
    monkeypatch.chdir(tmp_path)
    taken: list[Path | None] = []

    def begin(*_: object, init: Path | None, **__: object) -> None:
        taken.append(init)
        raise KeyboardInterrupt

    monkeypatch.setattr("mast.training.detector_training.train_detector", begin)
    monkeypatch.setattr("mast.fit.pipeline.fit", begin)
    arguments = [command, str(tones), "--init", name, "--out", "out", "--preset", "tiny"]
    CliRunner().invoke(app, arguments)
    expected = {
        "default": find_model("default"),
        "weights.pth": Path("weights.pth"),
        "hf://owner/name": model,
    }
    assert taken == [expected.get(name, Path("run/best"))]


@pytest.mark.parametrize("chosen", [["--preset", "tiny"], []])
def test_the_command_warns_once_of_boxes_outside_the_band(
    tones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: list[str]
) -> None:
    """The band is that of the detector to start from, whoever chose the preset."""
    band = FRONT_END.at_band(4_000)
    start = saved(tmp_path / "start", detector_of(small_recipe()), band)
    seen: list[int] = []

    def begin(learn: Chunks, held: Chunks, *_: object, **__: object) -> None:
        seen.extend((learn.n_boxes, held.n_boxes))
        raise KeyboardInterrupt

    monkeypatch.setattr("mast.training.detector_training.fit_detector", begin)
    arguments = ["train", str(tones), "--init", str(start), "--out", str(tmp_path / "run"), *chosen]
    with pytest.warns(UserWarning, match="outside the band") as caught:
        CliRunner().invoke(app, arguments)
    events = load_dataset(tones).annotations.events
    n_outside = int((~in_band(boxes_of(events), band)).sum())
    assert 0 < n_outside < len(events)
    assert [str(w.message) for w in caught if "outside the band" in str(w.message)] == [
        f"{tones}: {n_outside} of {len(events)} boxes lie outside the band of 10–4000 Hz and are left out "
        f"(--band {math.ceil(events['high_hz'].max())} would include them)"
    ]
    assert min(seen) > 0


def test_what_is_learnt_from_is_counted_once(tones: Path) -> None:
    dataset = load_dataset(tones)
    train = labelled_chunks(dataset, FRONT_END)["train"]
    found = learnt_from(train, dataset, FRONT_END)
    boxed = dataset.annotations.events[dataset.annotations.events["recording"].isin(train.table["recording"])]
    assert found.recordings == boxed["recording"].nunique()
    assert len(boxed) <= found.boxes < train.n_boxes  # one across two chunks is in both
