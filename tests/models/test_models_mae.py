import numpy as np
import pytest
import torch

from mast.models.architecture import EncoderConfig, MaeConfig
from mast.models.mae import (
    MaskedAutoencoder,
    latent_targets,
    masked_reconstruction_loss,
    patchify,
    reconstruction_targets,
    unpatchify,
)
from mast.models.masking import uniform_mask

ENCODER = EncoderConfig(chunk_frames=64, n_bins=32, width=32, depth=2, heads=2)
CONFIG = MaeConfig(encoder=ENCODER, decoder_width=16, decoder_depth=1, decoder_heads=2)


def test_patchify_by_hand_and_back() -> None:
    spectrograms = torch.randn(2, 1, 64, 32)
    patches = patchify(spectrograms, 16)
    for t in range(4):
        for f in range(2):
            cut = spectrograms[:, 0, 16 * t : 16 * t + 16, 16 * f : 16 * f + 16]
            assert torch.equal(patches[:, 2 * t + f], cut.reshape(2, -1))
    assert torch.equal(unpatchify(patches, 16, (4, 2)), spectrograms)


@pytest.mark.parametrize("normalise", [False, True])
def test_loss_against_naive(normalise: bool) -> None:
    spectrograms, predicted = torch.randn(3, 1, 64, 32) * 4 + 2, torch.randn(3, 8, 256)
    mask = uniform_mask(torch.rand(3, 8), ratio=0.6)
    errors = []
    for b in range(3):
        for token in range(8):
            if mask.hidden[b, token]:
                cells = patchify(spectrograms, 16)[b, token].double().numpy()
                if normalise:
                    cells = (cells - cells.mean()) / np.sqrt(cells.var(ddof=1) + 1e-6)
                errors.append(((predicted[b, token].double().numpy() - cells) ** 2).mean())
    targets = reconstruction_targets(spectrograms, 16, normalise=normalise)
    loss = masked_reconstruction_loss(predicted, targets, mask.hidden)
    assert float(loss) == pytest.approx(np.mean(errors), rel=1e-5)


def test_loss_of_nothing_hidden_is_zero_with_a_graph() -> None:
    predicted = torch.randn(1, 8, 256, requires_grad=True)
    loss = masked_reconstruction_loss(predicted, torch.zeros(1, 8, 256), torch.zeros(1, 8, dtype=torch.bool))
    loss.backward()
    assert loss == 0
    assert predicted.grad is not None
    assert (predicted.grad == 0).all()


@pytest.mark.parametrize("masking", ["uniform", "structured", "blocks"])
def test_what_is_hidden_is_not_seen(masking: str) -> None:
    torch.manual_seed(0)
    model = MaskedAutoencoder(CONFIG.model_copy(update={"masking": masking})).eval()
    a = torch.randn(2, 1, 64, 32)
    mask = model.draw_mask(2)
    b = unpatchify(torch.where(mask.hidden[:, :, None], 9.0, patchify(a, 16)), 16, (4, 2))
    torch.testing.assert_close(model(a, mask).patches, model(b, mask).patches)
    assert model(a, mask).loss < model(b, mask).loss


def test_a_seed_gives_a_mask() -> None:
    model = MaskedAutoencoder(CONFIG)
    a, b = (model.draw_mask(4, generator=torch.Generator().manual_seed(7)).hidden for _ in range(2))
    assert torch.equal(a, b)


def test_learns_two_spectrograms_by_heart() -> None:
    torch.manual_seed(0)
    model = MaskedAutoencoder(CONFIG)
    time, frequency = torch.meshgrid(torch.arange(64.0), torch.arange(32.0), indexing="ij")
    spectrograms = torch.stack([torch.sin(time / 5), torch.cos(frequency / 3)])[:, None]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    losses = []
    for _ in range(250):
        loss = model(spectrograms, generator=generator).loss
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    # one loss depends on what its mask hides; the mean of the last is 0.001–0.05 with other seeds, 1.2 at first
    assert np.mean(losses[-50:]) < 0.2 * float(spectrograms.var())
    assert all(p.grad is not None for p in model.parameters())


def test_latent_targets_against_naive() -> None:
    torch.manual_seed(0)
    teacher = MaskedAutoencoder(CONFIG).encoder.double()
    spectrograms = torch.randn(2, 1, 64, 32, dtype=torch.float64)
    targets = latent_targets(teacher, spectrograms)
    assert not targets.requires_grad
    seen: list[np.ndarray] = []
    for block in teacher.blocks:
        block.register_forward_hook(lambda *call: seen.append(call[2][0, 1:].detach().numpy()))
    for b in range(2):
        seen.clear()
        teacher(spectrograms[b : b + 1])
        mean = np.mean(
            [(own - own.mean(axis=0)) / np.sqrt(own.var(axis=0, ddof=1) + 1e-5) for own in seen], axis=0
        )
        expected = (mean - mean.mean(axis=1, keepdims=True)) / np.sqrt(mean.var(axis=1, keepdims=True) + 1e-5)
        np.testing.assert_allclose(targets[b].numpy(), expected, atol=1e-5)


def test_latent_targets_are_learnt_beside_the_spectrogram() -> None:
    torch.manual_seed(0)
    model = MaskedAutoencoder(CONFIG.model_copy(update={"latent_weight": 0.5}))
    plain, spectrograms = MaskedAutoencoder(CONFIG), torch.randn(2, 1, 64, 32)
    mask = model.draw_mask(2)
    latent = latent_targets(plain.encoder, spectrograms)
    alone, both = model(spectrograms, mask), model(spectrograms, mask, latent=latent)
    decoded = model.decoder(model.encode(spectrograms, mask.visible), mask.restore)
    error = (model.decoder.predict_latent(decoded) - latent)[mask.hidden].square().mean()
    assert both.loss.item() == pytest.approx((alone.loss + 0.5 * error).item(), rel=1e-5)
    both.loss.backward()
    assert all(p.grad is not None for p in model.parameters())
    assert not any(name.startswith("decoder.predict_latent") for name, _ in plain.named_parameters())


def test_base_has_the_papers_decoder() -> None:
    with torch.device("meta"):
        model = MaskedAutoencoder(MaeConfig.named("base"))
    assert model.config == MaeConfig()
    assert 110e6 < sum(p.numel() for p in model.parameters()) < 112e6
