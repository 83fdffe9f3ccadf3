import pytest
import torch
from torch import nn

from mast.models.architecture import EncoderConfig
from mast.models.encoder import Encoder, initialise_transformer, transformer_blocks
from mast.models.transformer import NORM_EPSILON, Block, PatchEmbed

WIDTH, HEADS = 32, 4


def timm_block() -> nn.Module:
    vision_transformer = pytest.importorskip("timm.models.vision_transformer")

    def norm(width: int, **kwargs: object) -> nn.LayerNorm:
        return nn.LayerNorm(width, eps=NORM_EPSILON)

    block: nn.Module = vision_transformer.Block(WIDTH, HEADS, mlp_ratio=4.0, qkv_bias=True, norm_layer=norm)
    return block


def test_block_is_timms_in_names_draws_and_numbers() -> None:
    torch.manual_seed(3)
    theirs = timm_block().apply(initialise_transformer)
    torch.manual_seed(3)
    (ours,) = transformer_blocks(WIDTH, 1, HEADS).apply(initialise_transformer)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], tensor), name
    with torch.no_grad():  # biases start at zero and norms at one, where a forgotten one would not show
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            other += 0.1 * torch.randn_like(other)
            mine.copy_(other)
    tokens = torch.randn(2, 9, WIDTH)
    expected, found = theirs(tokens), ours(tokens)
    assert torch.equal(found, expected)
    found.square().sum().backward()
    expected.square().sum().backward()
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert mine.grad is not None
        assert other.grad is not None
        assert torch.equal(mine.grad, other.grad), name


def test_patches_are_timms() -> None:
    layers = pytest.importorskip("timm.layers")
    torch.manual_seed(3)
    theirs = layers.PatchEmbed((64, 32), 16, in_chans=1, embed_dim=WIDTH)
    torch.manual_seed(3)
    ours = PatchEmbed(16, WIDTH)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    spectrograms = torch.randn(2, 1, 64, 32)
    assert torch.equal(ours(spectrograms), theirs(spectrograms))


def test_attention_against_the_written_formula() -> None:
    torch.manual_seed(0)
    block = Block(WIDTH, HEADS)
    tokens = torch.randn(1, 5, WIDTH)
    q, k, v = block.attn.qkv(tokens)[0].split(WIDTH, dim=1)
    rows = []
    for head in range(HEADS):
        part = slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)
        weights = (q[:, part] @ k[:, part].T / (WIDTH // HEADS) ** 0.5).softmax(dim=1)
        rows.append(weights @ v[:, part])
    torch.testing.assert_close(block.attn(tokens)[0], block.attn.proj(torch.cat(rows, dim=1)))


def test_no_tokens() -> None:
    assert Block(WIDTH, HEADS)(torch.zeros(0, 4, WIDTH)).shape == (0, 4, WIDTH)


def test_every_norm_has_maes_epsilon() -> None:
    encoder = Encoder(EncoderConfig(chunk_frames=32, n_bins=32, width=WIDTH, depth=2, heads=HEADS))
    norms = [layer for layer in encoder.modules() if isinstance(layer, nn.LayerNorm)]
    assert [norm.eps for norm in norms] == [NORM_EPSILON] * 5
