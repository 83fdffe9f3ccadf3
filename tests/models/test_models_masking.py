import torch
from hypothesis import given
from hypothesis import strategies as st

from mast.models.masking import PatchMask, block_mask, structured_mask, uniform_mask


def check(mask: PatchMask, n_tokens: int) -> None:
    for visible, restore, hidden in zip(*mask, strict=True):
        assert sorted(visible.tolist()) == visible.tolist() == (~hidden).nonzero().flatten().tolist()
        sequence = torch.cat([visible, hidden.nonzero().flatten()])
        assert sequence[restore].tolist() == list(range(n_tokens))


def test_uniform_hides_three_quarters_of_512() -> None:
    mask = uniform_mask(torch.rand(3, 512))
    assert mask.visible.shape == (3, 128)
    assert mask.hidden.sum(1).tolist() == [384] * 3
    check(mask, 512)
    assert not torch.equal(mask.hidden[0], mask.hidden[1])


def test_uniform_keeps_the_smallest_noise() -> None:
    assert uniform_mask(torch.tensor([[0.9, 0.1, 0.5, 0.2]]), ratio=0.5).visible.tolist() == [[1, 3]]


def test_structured_hides_whole_columns_and_rows() -> None:
    mask = structured_mask(torch.rand(5, 64), torch.rand(5, 8))
    assert mask.visible.shape == (5, 125)  # 25 columns × 5 rows, as the docstring says
    check(mask, 512)
    for hidden in mask.hidden.unflatten(1, (64, 8)):
        columns, rows = hidden.all(dim=1), hidden.all(dim=0)
        assert (columns.sum(), rows.sum()) == (39, 3)
        assert torch.equal(hidden, columns[:, None] | rows[None, :])


@given(st.integers(1, 9), st.integers(1, 9), st.floats(0, 0.95), st.floats(0, 0.95))
def test_every_example_hides_as_much(
    time: int, frequency: int, time_ratio: float, frequency_ratio: float
) -> None:
    noise = torch.rand(4, time), torch.rand(4, frequency)
    mask = structured_mask(*noise, time_ratio=time_ratio, frequency_ratio=frequency_ratio)
    check(mask, time * frequency)
    mask = uniform_mask(torch.rand(4, time * frequency), ratio=time_ratio)
    check(mask, time * frequency)


def test_blocks_leave_regions_visible() -> None:
    centres = torch.tensor([[[0.25, 0.5], [0.75, 0.5]]])  # two regions, in the middle of 16 × 8 tokens
    mask = block_mask(centres, torch.rand(1, 128), grid=(16, 8), ratio=1 - 32 / 128)
    check(mask, 128)
    visible = ~mask.hidden.unflatten(1, (16, 8))[0]
    expected = torch.zeros(16, 8, dtype=torch.bool)
    expected[2:6, 2:6] = expected[10:14, 2:6] = True
    assert torch.equal(visible, expected)


def test_blocks_hide_as_much_as_uniform_masking_wherever_they_lie() -> None:
    mask = block_mask(torch.rand(6, 5, 2), torch.rand(6, 512), grid=(64, 8))
    assert mask.hidden.sum(1).tolist() == [384] * 6
    check(mask, 512)
    # a visible patch has visible neighbours far more often than by chance
    visible = (~mask.hidden).unflatten(1, (64, 8)).float()
    beside = (visible[:, 1:] * visible[:, :-1]).sum() / visible[:, 1:].sum()
    assert beside > 0.6
