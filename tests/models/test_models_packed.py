import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mast.models import packed
from mast.models.architecture import DetectorConfig, EncoderConfig
from mast.models.blocks import ConvBlock
from mast.models.encoder import Encoder
from mast.models.mast_detector import MastDetector
from mast.models.packed import PackedLinear, SmallMapGroupNorm, arrange_convolutions, pack_encoder

pytestmark = pytest.mark.usefixtures("bfloat16_anywhere")
works = pytest.mark.skipif(not packed._is_supported(), reason="this torch or CPU packs no weights")


def small_encoder() -> Encoder:
    torch.manual_seed(0)
    encoder = Encoder(EncoderConfig(chunk_frames=64, n_bins=32, width=32, depth=2, heads=2)).eval()
    with torch.no_grad():  # biases start at zero and norms at one, where a forgotten one would not show
        for parameter in encoder.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return encoder


def plain(encoder: Encoder, spectrograms: Tensor) -> Tensor:
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        encoded: Tensor = encoder(spectrograms)
    return encoded


@works
@pytest.mark.parametrize("rows", [1, 3, 64])
def test_a_packed_layer_is_the_layer(rows: int) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(24, 40).bfloat16()
    tokens = torch.randn(2, rows, 24).bfloat16()
    found = PackedLinear.of(layer, 16)(tokens)
    expected = F.linear(tokens.float(), layer.weight.float(), layer.bias.float())
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, rtol=0.01, atol=0.01)


@works
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_a_packed_encoder_is_the_encoder_to_rounding(batch: int) -> None:
    encoder = small_encoder()
    spectrograms = torch.randn(batch, 1, 64, 32)
    expected = plain(encoder, spectrograms)
    with torch.no_grad():
        exact = encoder(spectrograms)
    assert pack_encoder(encoder, 2)
    found = encoder(spectrograms)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    # as near to float32 as bfloat16 was before
    assert (found - exact).square().mean() < 1.2 * (expected - exact).square().mean()
    torch.testing.assert_close(found, expected, rtol=0, atol=0.1)


@works
def test_packing_keeps_names_and_weights_and_what_mae_asks_for() -> None:
    encoder = small_encoder()
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    spectrograms, visible = torch.randn(1, 1, 64, 32), torch.tensor([[0, 5]])
    seen = encoder(spectrograms, visible)
    assert pack_encoder(encoder, 1)
    assert list(encoder.state_dict()) == list(before)
    assert all(torch.equal(tensor, before[name]) for name, tensor in encoder.state_dict().items())
    assert torch.equal(encoder(spectrograms, visible), seen)  # a part of the tokens goes the plain way


@pytest.mark.parametrize("trouble", ["missing", "refuses", "wrong"])
def test_where_packing_does_not_work_the_encoder_stays_plain(
    trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def call(self: PackedLinear, tokens: Tensor) -> Tensor:
        if trouble == "missing":
            raise AttributeError("_linear_pointwise")
        if trouble == "refuses":
            raise RuntimeError("no kernel")
        return torch.zeros(*tokens.shape[:-1], 48, dtype=torch.bfloat16)

    monkeypatch.setattr(PackedLinear, "__call__", call)
    encoder = small_encoder()
    spectrograms = torch.randn(1, 1, 64, 32)
    expected = plain(encoder, spectrograms)
    assert not pack_encoder(encoder, 1)
    assert encoder.packed is None
    assert torch.equal(plain(encoder, spectrograms), expected)


def test_a_cpu_without_bfloat16_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """There oneDNN would print a stack trace, and switch itself off for the rest of the process."""
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    monkeypatch.setattr(PackedLinear, "__init__", lambda *_: pytest.fail("tried"))
    assert not pack_encoder(small_encoder(), 1)


@pytest.mark.parametrize("size", [(64, 16), (16, 4), (1, 1)])
def test_group_norm_of_maps_kept_channels_last(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    norm = nn.GroupNorm(2, 16)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    maps = torch.randn(2, 16, *size).to(memory_format=torch.channels_last)
    found = SmallMapGroupNorm(norm)(maps)
    torch.testing.assert_close(found, norm(maps))
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_arranged_convolutions_give_the_same_and_keep_their_names() -> None:
    torch.manual_seed(0)
    block = ConvBlock(16, 16).eval()
    maps = torch.randn(2, 16, 8, 4)
    expected, names = block(maps), list(block.state_dict())
    arrange_convolutions(block)
    assert isinstance(block[1], SmallMapGroupNorm)
    assert list(block.state_dict()) == names
    torch.testing.assert_close(block(maps), expected)


def test_a_whole_detector_can_be_arranged() -> None:
    torch.manual_seed(0)
    encoder = EncoderConfig(chunk_frames=64, n_bins=32, width=32, depth=1, heads=2)
    model = MastDetector(DetectorConfig(encoder=encoder, channels=32, levels=2, head_convs=1)).eval()
    spectrograms = torch.randn(1, 1, 64, 32)
    with torch.no_grad():
        expected = model(spectrograms)
        arrange_convolutions(model)
        found = model(spectrograms)
    torch.testing.assert_close(found.logits, expected.logits)
    torch.testing.assert_close(found.boxes, expected.boxes, rtol=1e-4, atol=1e-3)
