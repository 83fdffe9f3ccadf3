import torch
from hypothesis import given
from hypothesis import strategies as st

from mast.models.masking import PatchMask, structured_mask, uniform_mask


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
