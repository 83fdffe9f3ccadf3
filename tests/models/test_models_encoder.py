import math

import pytest
import torch

from mast.errors import ConfigError
from mast.models.architecture import EncoderConfig
from mast.models.encoder import Encoder, sincos_positions


def small_encoder(**fields: int) -> EncoderConfig:
    return EncoderConfig(**{"chunk_frames": 64, "n_bins": 32, "width": 32, "depth": 2, "heads": 2, **fields})


def test_positions_against_the_written_formula() -> None:
    width, (n_t, n_f) = 16, (3, 2)
    positions = sincos_positions(width, (n_t, n_f))
    assert positions.shape == (1, 7, 16)
    assert (positions[0, 0] == 0).all()
    quarter = width // 4
    for t in range(n_t):
        for f in range(n_f):
            row = []
            for position in (f, t):
                angles = [position / 10_000 ** (i / quarter) for i in range(quarter)]
                row += [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
            torch.testing.assert_close(positions[0, 1 + t * n_f + f], torch.tensor(row))


def test_tokens_lie_on_the_grid_where_their_patch_lies() -> None:
    encoder = Encoder(small_encoder())
    with torch.no_grad():
        silence = torch.zeros(1, 1, 64, 32)
        click = silence.clone()
        click[0, 0, 40, 20] = 5.0  # patch 2 in time, 1 in frequency
        tokens = encoder.patch_embed(click) - encoder.patch_embed(silence)  # (1, L, D)
    moved = tokens[0].abs().sum(1).unflatten(0, (4, 2)).nonzero().tolist()
    assert moved == [[2, 1]]
    assert encoder.feature_map(click).shape == (1, 32, 4, 2)


def test_visible_tokens_only_see_each_other() -> None:
    encoder = Encoder(small_encoder()).eval()
    visible = torch.tensor([[0, 5]])
    a = torch.randn(1, 1, 64, 32)
    b = a.clone()
    b[:, :, 16:32] += 3.0  # tokens 2 and 3
    torch.testing.assert_close(encoder(a, visible), encoder(b, visible))
    assert encoder(a, visible).shape == (1, 3, 32)
    assert not torch.allclose(encoder(a), encoder(b))


def test_base_is_vit_b_on_513_tokens() -> None:
    with torch.device("meta"):
        encoder = Encoder(EncoderConfig.named("base"))
    assert encoder.config.token_grid == (64, 8)
    assert encoder.pos_embed.shape == (1, 513, 768)
    assert 85.0e6 < sum(p.numel() for p in encoder.parameters()) < 85.5e6
    # the last block is AudioMAE's blocks.11
    assert "blocks.11.mlp.fc2.weight" in encoder.state_dict()


def test_positions_are_fixed() -> None:
    encoder = Encoder(small_encoder())
    assert "pos_embed" not in dict(encoder.named_parameters())
    assert "pos_embed" in encoder.state_dict()


@pytest.mark.parametrize("fields", [{"chunk_frames": 60}, {"n_bins": 100}, {"heads": 5}])
def test_impossible_shapes_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="multiple"):
        small_encoder(**fields)


def test_a_batch_of_another_shape_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"\(1, 1, 32, 64\)"):
        Encoder(small_encoder())(torch.zeros(1, 1, 32, 64))
