"""Products in eight bits are those of single precision, to the rounding that eight bits mean."""

from __future__ import annotations

import numpy as np
import pytest

from mast.models.onnx_detector import open_session
from mast.models.onnx_nodes import MAX_STEPS, Nodes, Rounding, rounded_weights

RNG = np.random.default_rng(0)


def run(nodes: Nodes, result: str, given: np.ndarray) -> np.ndarray:
    nodes.name(result, "result")
    session = open_session(nodes.model({"given": list(given.shape)}, {"result": None}), threads=1)
    (found,) = session.run(None, {"given": given})
    return np.asarray(found)


@pytest.mark.parametrize(("low", "high"), [(0.0, 3.0), (-1.0, 3.0), (-5.0, -1.0), (2.0, 4.0), (0.0, 0.0)])
def test_a_rounding_holds_zero_and_both_ends(low: float, high: float) -> None:
    rounding = Rounding.of(low, high)
    assert 0 <= rounding.zero <= 255
    for value in (min(low, 0.0), 0.0, max(high, 0.0)):
        whole = round(value / rounding.step + rounding.zero)
        assert 0 <= whole <= 255
        assert (whole - rounding.zero) * rounding.step == pytest.approx(value, abs=rounding.step / 2 + 1e-9)


@pytest.mark.parametrize("axis", [0, 1])
def test_weights_are_rounded_with_a_step_for_each_output(axis: int) -> None:
    weight = RNG.normal(size=(6, 8)).astype(np.float32) * np.geomspace(
        0.01, 10, 6 if axis == 0 else 8
    ).reshape((-1, 1) if axis == 0 else (1, -1)).astype(np.float32)
    whole, step = rounded_weights(weight, axis)
    steps = step.reshape((-1, 1) if axis == 0 else (1, -1))
    np.testing.assert_allclose(step, np.abs(weight).max(axis=1 - axis) / MAX_STEPS, rtol=1e-6)
    assert np.abs(whole).max() == MAX_STEPS
    assert (np.abs(whole * steps - weight) <= steps / 2 + 1e-7).all()


def test_two_products_fit_into_sixteen_bits() -> None:
    """Older CPUs add two of them there; a larger sum would be cut off silently."""
    assert 2 * 255 * MAX_STEPS < 2**15


@pytest.mark.parametrize("bias", [True, False])
def test_a_rounded_layer_is_the_layer(bias: bool) -> None:
    given = RNG.normal(size=(1, 20, 32)).astype(np.float32)
    weight = RNG.normal(size=(32, 12)).astype(np.float32)
    shift = RNG.normal(size=12).astype(np.float32) if bias else None
    expected = given @ weight + (0 if shift is None else shift)
    exact, rounded = Nodes(), Nodes()
    np.testing.assert_allclose(
        run(exact, exact.linear("given", weight, shift, rounded=False), given), expected, atol=1e-4
    )
    found = run(rounded, rounded.linear("given", weight, shift, rounded=True), given)
    assert 0 < np.abs(found - expected).max() < 0.03 * np.abs(expected).max()


def test_layers_of_the_same_values_are_each_by_themselves() -> None:
    given = RNG.normal(size=(1, 20, 32)).astype(np.float32)
    weights = [RNG.normal(size=(32, 8)).astype(np.float32) for _ in range(3)]
    biases = [RNG.normal(size=8).astype(np.float32) for _ in range(3)]
    for number in range(3):
        nodes = Nodes()
        found = run(nodes, nodes.linear_layers("given", weights, biases, rounded=True)[number], given)
        expected = given @ weights[number] + biases[number]
        assert np.abs(found - expected).max() < 0.03 * np.abs(expected).max()


def test_equal_arrays_are_in_the_graph_once() -> None:
    """The time to open a graph goes by their number."""
    nodes = Nodes()
    assert nodes.array([1.0, 2.0]) == nodes.array(np.array([1, 2]))
    others = [nodes.array([1.0, 2.0]), nodes.array([1.0, 3.0]), nodes.array([[1.0, 2.0]]), nodes.sizes(1, 2)]
    assert len({*others}) == 4
    assert len(nodes._arrays) == 4


@pytest.mark.parametrize(("sign", "expected"), [(1.0, 3.0), (-1.0, 7.0)])
def test_one_of_two_branches_is_computed(sign: float, expected: float) -> None:
    """Each with an array of its own, and a value from outside."""
    nodes = Nodes()
    outside = nodes.add("Abs", "given")

    def plus(number: float) -> str:
        return nodes.add("Add", outside, nodes.array(number))

    positive = nodes.add("Greater", "given", nodes.array(0.0))
    result = nodes.if_else(positive, lambda: plus(2.0), lambda: plus(6.0))
    assert run(nodes, result, np.array(sign, dtype=np.float32)) == expected


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [(3, 3), (3, 1), (1, 3), (1, 1)])
def test_a_rounded_convolution_is_the_convolution(kernel: tuple[int, int], stride: int) -> None:
    given = RNG.normal(size=(1, 8, 12, 10)).astype(np.float32)
    weight = RNG.normal(size=(16, 8, *kernel)).astype(np.float32)
    bias = RNG.normal(size=16).astype(np.float32)
    exact = Nodes()
    expected = run(exact, exact.convolution("given", weight, bias, stride=stride), given)
    assert expected.shape == (1, 16, 12 // stride, 10 // stride)
    nodes = Nodes()
    known = Rounding.of(float(given.min()), float(given.max()))
    result = Rounding.of(float(expected.min()), float(expected.max()))
    whole = nodes.round("given", known)
    sums = nodes.rounded_convolution(whole, known, weight, bias, result, stride=stride)
    found = run(nodes, sums, given)
    assert 0 < np.abs(found - expected).max() < 0.04 * np.abs(expected).max()
