"""On the meta device there are no values: what runs there never makes the CPU wait for a GPU to read one."""

from __future__ import annotations

import pytest
import torch

from mast.models.architecture import DetectorConfig, EncoderConfig, MaeConfig
from mast.models.boxes import pad_truths
from mast.models.mae import MaskedAutoencoder
from mast.models.mast_detector import MastDetector

ENCODER = EncoderConfig(chunk_frames=64, n_bins=32, width=32, depth=1, heads=2)


@pytest.mark.parametrize("changes", [{}, {"assigner": "centre", "classification_loss": "focal"}])
def test_the_detectors_loss_reads_no_value(changes: dict[str, str]) -> None:
    config = DetectorConfig.model_validate(
        {"encoder": ENCODER, "channels": 32, "levels": 2, "head_convs": 1, **changes}
    )
    model = MastDetector(config).to("meta")
    truths = pad_truths([torch.tensor([[4.0, 4, 20, 12]]), torch.zeros(0, 4)], None, "meta")
    output = model(torch.empty(2, 1, 64, 32, device="meta"))
    terms = model._detection_terms(output, truths, torch.ones(2, device="meta"))
    terms["contrastive"] = model._contrastive_term(output, truths, None)
    sum(value for name, value in terms.items() if name != "positives_per_image").backward()
    assert all(value.device.type == "meta" for value in terms.values())


def test_pretraining_reads_no_value() -> None:
    model = MaskedAutoencoder(
        MaeConfig(encoder=ENCODER, decoder_width=32, decoder_depth=1, decoder_heads=2)
    ).to("meta")
    model(torch.empty(2, 1, 64, 32, device="meta")).loss.backward()


def test_the_meta_device_notices() -> None:
    values = torch.empty(3, device="meta", requires_grad=True)
    with pytest.raises((NotImplementedError, RuntimeError)):
        values[values > 0].sum().backward()
    with pytest.raises((NotImplementedError, RuntimeError)):
        values.sum().item()
