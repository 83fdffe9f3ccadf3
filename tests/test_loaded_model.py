"""A loaded model that can hear, step by step against the parts it is made of."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from spread_scores import spread_scores
from torch import Tensor
from torch.nn import functional as F

from mast.errors import ConfigError, MastError
from mast.features.logmel import LogMel
from mast.grid import FrontEnd
from mast.loaded_model import LoadedModel
from mast.models.architecture import DetectorConfig, EncoderConfig, MaeConfig
from mast.models.baselines import BaselineConfig, build_baseline
from mast.models.boxes import pool_boxes
from mast.models.card import ModelCard
from mast.models.checkpoint import load_checkpoint, save_checkpoint
from mast.models.mae import MaskedAutoencoder
from mast.models.mast_detector import MastDetector
from mast.normalisation import Normalisation

FRONT_END = FrontEnd(n_bins=32, chunk_frames=128)
ENCODER = EncoderConfig(chunk_frames=128, n_bins=32, width=32, depth=1, heads=2)
STATISTICS = Normalisation(mean=-8.0, std=4.0, levelled=True)
BOXES = [torch.tensor([[10.0, 3, 40, 20], [60.0, 8, 90, 12]]), torch.zeros(0, 4)]


@pytest.fixture
def sound() -> Tensor:
    return torch.randn(2, FRONT_END.chunk_samples, generator=torch.Generator().manual_seed(0)) * 0.1


@pytest.fixture
def detector(tmp_path: Path) -> Path:
    """A run whose model finds boxes of all scores."""
    torch.manual_seed(0)
    config = DetectorConfig(encoder=ENCODER, channels=32, levels=2, head_convs=1)
    model = MastDetector(config)
    spread_scores(model)
    card = ModelCard(
        kind="detector",
        architecture=config,
        front_end=FRONT_END,
        normalisation=STATISTICS,
        thresholds={"score": 0.3, "nms_iou": 0.2},
    )
    save_checkpoint(tmp_path / "run" / "best", model, card)
    return tmp_path / "run"


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    config = MaeConfig(encoder=ENCODER, decoder_width=16, decoder_depth=1, decoder_heads=2)
    card = ModelCard(kind="mae", architecture=config, front_end=FRONT_END, normalisation=STATISTICS)
    save_checkpoint(tmp_path / "mae", MaskedAutoencoder(config), card)
    return tmp_path / "mae"


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    config = BaselineConfig(
        name="fcos",
        chunk_frames=128,
        n_bins=32,
        options={"backbone": "resnet18", "width": 16, "channels": 32, "norm": "group"},
    )
    card = ModelCard(kind="detector", architecture=config, front_end=FRONT_END, normalisation=STATISTICS)
    save_checkpoint(tmp_path / "fcos", build_baseline(config), card)
    return tmp_path / "fcos"


def test_sound_is_seen_as_the_card_says(detector: Path, sound: Tensor) -> None:
    loaded = LoadedModel.load(detector, device="cpu")
    assert loaded.folder == detector / "best"
    assert not loaded.model.training
    raw = LogMel(FRONT_END).chunk_features(sound)
    torch.testing.assert_close(loaded.spectrograms(sound), STATISTICS.apply(raw), rtol=0, atol=0)


def test_boxes_are_those_of_the_model(detector: Path, sound: Tensor) -> None:
    loaded, (model, _) = LoadedModel.load(detector, device="cpu"), load_checkpoint(detector / "best")
    assert isinstance(model, MastDetector)
    seen, counts = loaded.spectrograms(sound), []
    for given, used in ((None, 0.2), (0.9, 0.9)):  # the card's overlap, unless another is given
        found = loaded.detect(sound, score_threshold=0.1, nms_iou=given)
        expected = model.detect(seen, score_threshold=0.1, nms_iou=used)
        counts.append(sum(len(own.scores) for own in expected))
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours.boxes, theirs.boxes)
            torch.testing.assert_close(ours.scores, theirs.scores)
    assert 0 < counts[0] < counts[1]


def test_tokens_and_vectors_are_those_of_the_model(detector: Path, sound: Tensor) -> None:
    loaded = LoadedModel.load(detector, device="cpu")
    model, seen = loaded.mast_detector, loaded.spectrograms(sound)
    tokens = loaded.tokens(seen)
    assert not tokens.requires_grad
    with torch.no_grad():
        torch.testing.assert_close(tokens, model.encoder.feature_map(seen))
        for ours, theirs in zip(loaded.embed(tokens, seen, BOXES), model.embed(seen, BOXES), strict=True):
            torch.testing.assert_close(ours, theirs)
        pooled = pool_boxes(model(seen).levels[0][:1], BOXES[0][None], model.config.strides)
        projected = F.normalize(model.projection(pooled), dim=-1)[0]
    made = loaded.project(tokens, seen, BOXES)
    assert made is not None
    torch.testing.assert_close(made[0], projected)
    assert [own.shape for own in made] == [(2, model.projection_width), (0, model.projection_width)]


def test_a_model_without_a_projection_projects_nothing(tmp_path: Path, sound: Tensor) -> None:
    config = DetectorConfig(encoder=ENCODER, channels=32, levels=2, head_convs=1, contrastive_weight=0)
    card = ModelCard(kind="detector", architecture=config, front_end=FRONT_END, normalisation=STATISTICS)
    loaded = LoadedModel(MastDetector(config).eval(), card, device=torch.device("cpu"))
    seen = loaded.spectrograms(sound)
    assert loaded.project(loaded.tokens(seen), seen, BOXES) is None
    assert loaded.nms_iou == 0.5  # where the card says nothing


def test_another_band_is_the_same_picture_of_other_sound(detector: Path) -> None:
    loaded = LoadedModel.load(detector, device="cpu", band_hz=2_000)
    assert loaded.front_end == FRONT_END.at_band(2_000)
    assert load_checkpoint(detector / "best").card.front_end == FRONT_END


@pytest.mark.usefixtures("bfloat16_anywhere")
def test_products_are_computed_in_the_precision_asked_for(detector: Path, sound: Tensor) -> None:
    seen = {}
    for precision in ("float32", "bfloat16"):
        loaded = LoadedModel.load(detector, device="cpu", precision=precision)  # type: ignore[arg-type]
        with loaded.autocast():
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == getattr(torch, precision)
        seen[precision] = loaded.tokens(loaded.spectrograms(sound)).float()
    assert not torch.equal(seen["float32"], seen["bfloat16"])
    torch.testing.assert_close(seen["float32"], seen["bfloat16"], rtol=0.1, atol=0.1)


def test_what_a_model_cannot_do_is_said_in_one_sentence(
    detector: Path, encoder: Path, baseline: Path
) -> None:
    whole, pretrained, other = (LoadedModel.load(p, device="cpu") for p in (detector, encoder, baseline))
    assert whole.encoder is whole.mast_detector.encoder
    assert pretrained.encoder is pretrained.model.encoder
    assert other.box_detector is other.model
    for ask in ("box_detector", "mast_detector"):
        with pytest.raises(MastError, match=r"mae: holds a pretrained encoder, not a detector; train one"):
            getattr(pretrained, ask)
    for ask in ("mast_detector", "encoder"):
        with pytest.raises(MastError, match=r"fcos: is a baseline \(FcosDetector\) without the encoder"):
            getattr(other, ask)


def test_what_cannot_be_loaded(detector: Path, tmp_path: Path) -> None:
    with pytest.raises(MastError, match="holds no model"):
        LoadedModel.load(tmp_path)
    with pytest.raises(ConfigError, match="device abacus: no such device; expected cpu, cuda or cuda:1"):
        LoadedModel.load(detector, device="abacus")
