"""Writing an ONNX graph node by node: products and convolutions in float32, or rounded to eight bits.

Rounded products make a CPU without bfloat16 fast. Weights are rounded once, with a step for each output of a layer. The
inputs of a linear layer are rounded with a step that is found for every window. Those of a convolution are rounded with
one that was measured beforehand (:class:`Rounding`), because finding it takes as long as the layer.

Nodes of the domain ``com.microsoft`` are ONNX Runtime's own. Inputs have to be unsigned and weights signed: ONNX
Runtime has no fast products of other kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from mast.models.onnx_messages import (
    OnnxGraph,
    OnnxMessage,
    array_message,
    graph_message,
    model_message,
    node_message,
    value_message,
)

Weights = NDArray[np.float32]
_RUNTIME = "com.microsoft"
_OPSET, _IR_VERSION = 20, 10  # of ONNX; read by ONNX Runtime from 1.18 on
# Steps of a weight on either side of zero, our choice: 63 of the 127 there are. CPUs without instructions for sums of
# four products add two into sixteen bits first, which 255 · 127 · 2 would overflow
MAX_STEPS = 63


class Rounding(NamedTuple):
    """How values become whole numbers from 0 to 255: ``value / step + zero``."""

    step: float
    zero: int

    @classmethod
    def of(cls, low: float, high: float) -> Rounding:
        """The rounding of values from ``low`` to ``high``, zero included."""
        low, high = min(low, 0.0), max(high, 1e-6)
        step = (high - low) / 255
        return cls(step, round(-low / step))


def rounded_weights(weight: Weights, axis: int) -> tuple[NDArray[np.int8], Weights]:
    """Weights as whole numbers, and the step of each output: those along ``axis``."""
    others = tuple(k for k in range(weight.ndim) if k != axis)
    step = np.maximum(np.abs(weight).max(axis=others, keepdims=True), 1e-12) / MAX_STEPS
    steps = weight / step
    return np.rint(steps, out=steps).astype(np.int8), step.astype(np.float32).ravel()


class Nodes:
    """A graph that grows; every value in it is known by its name."""

    def __init__(self) -> None:
        self._nodes: list[OnnxMessage] = []
        self._arrays: list[OnnxMessage] = []
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = {}  # names of existing arrays
        self._numbers = count()  # no name is given twice, not even in branches

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node with one output, whose name is returned."""
        return self.add_multi(kind, 1, *inputs, **attributes)[0]

    def add_multi(
        self, kind: str, n_outputs: int, *inputs: str, domain: str = "", **attributes: Any
    ) -> list[str]:
        """A node with several outputs."""
        number = next(self._numbers)
        outputs = [f"{kind}_{number}_{k}" for k in range(n_outputs)]
        self._nodes.append(node_message(kind, inputs, outputs, domain, attributes))
        return outputs

    def add_runtime(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node of ONNX Runtime's own."""
        return self.add(kind, *inputs, domain=_RUNTIME, **attributes)

    def name(self, value: str, name: str) -> None:
        """Give a value a name that users of the graph know."""
        self._nodes.append(node_message("Identity", [value], [name], "", {}))

    def array(self, values: ArrayLike, dtype: DTypeLike = np.float32) -> str:
        """Numbers that are part of the graph. Equal arrays are stored once: a graph with fewer of them opens faster."""
        array = np.array(values, dtype=np.dtype(dtype).newbyteorder("<"), order="C")
        content = (array.dtype.name, array.shape, array.tobytes())
        if content not in self._known:
            self._known[content] = f"array_{next(self._numbers)}"
            self._arrays.append(array_message(self._known[content], *content))
        return self._known[content]

    def if_else(self, condition: str, then: Callable[[], str], otherwise: Callable[[], str]) -> str:
        """A branch: only what one of the functions writes is computed; both may use values from outside."""
        branches = {"then_branch": self._branch(then), "else_branch": self._branch(otherwise)}
        return self.add("If", condition, **branches)

    def _branch(self, write: Callable[[], str]) -> OnnxGraph:
        """A graph in the graph, with arrays of its own."""
        outside = self._nodes, self._arrays, self._known
        self._nodes, self._arrays, self._known = [], [], {}
        result = value_message(write(), None)
        branch = graph_message("branch", self._nodes, self._arrays, [], [result])
        self._nodes, self._arrays, self._known = outside
        return branch

    def sizes(self, *values: int) -> str:
        """Whole numbers, as shapes and positions are given."""
        return self.array(values, np.int64)

    def reshape(self, value: str, *shape: int) -> str:
        """The same numbers in another shape; 0 keeps a size, −1 is what is left."""
        return self.add("Reshape", value, self.sizes(*shape))

    def transpose(self, value: str, *order: int) -> str:
        """Axes in another order."""
        return self.add("Transpose", value, perm=list(order))

    def linear(self, value: str, weight: Weights, bias: Weights | None, *, rounded: bool) -> str:
        """(…, K) · (K, N) + (N,)."""
        if rounded:
            whole, step = rounded_weights(weight, axis=1)
            inputs = [
                value,
                self.array(whole, np.int8),
                self.array(step),
                self.array(np.zeros(len(step)), np.int8),
            ]
            return self.add_runtime(
                "DynamicQuantizeMatMul", *inputs, *([] if bias is None else [self.array(bias)])
            )
        product = self.add("MatMul", value, self.array(weight))
        return product if bias is None else self.add("Add", product, self.array(bias))

    def linear_layers(
        self, value: str, weights: list[Weights], biases: list[Weights], *, rounded: bool
    ) -> list[str]:
        """Several linear layers of the same values, which are rounded once for all of them."""
        if not rounded:
            return [self.linear(value, w, b, rounded=False) for w, b in zip(weights, biases, strict=True)]
        whole, step, zero = self.add_multi("DynamicQuantizeLinear", 3, value)
        results = []
        for weight, bias in zip(weights, biases, strict=True):
            rows, steps = rounded_weights(weight, axis=1)
            arrays = [self.array(rows, np.int8), step, self.array(steps), zero]
            arrays += [self.array(np.zeros(len(steps)), np.int8), self.array(bias)]
            results.append(self.add_runtime("MatMulIntegerToFloat", whole, *arrays))
        return results

    def round(self, value: str, rounding: Rounding) -> str:
        """Values as whole numbers; values outside become the nearest one."""
        return self.add("QuantizeLinear", value, *self._rounding(rounding))

    def unround(self, value: str, rounding: Rounding) -> str:
        """Whole numbers as values again."""
        return self.add("DequantizeLinear", value, *self._rounding(rounding))

    def convolution(self, value: str, weight: Weights, bias: Weights | None, *, stride: int = 1) -> str:
        """(B, C, T, F) → (B, C', T / stride, F / stride) in float32; the edges are padded with zeros."""
        arrays = [self.array(weight), *([] if bias is None else [self.array(bias)])]
        return self.add("Conv", value, *arrays, **_shape(weight, stride))

    def rounded_convolution(
        self,
        value: str,
        given: Rounding,
        weight: Weights,
        bias: Weights | None,
        result: Rounding,
        *,
        stride: int = 1,
    ) -> str:
        """The same with whole numbers, rounded as ``given`` says; the sums are rounded as ``result`` says."""
        whole, step = rounded_weights(weight, axis=0)
        arrays = [*self._rounding(given), self.array(whole, np.int8), self.array(step)]
        arrays += [self.array(np.zeros(len(step)), np.int8), *self._rounding(result)]
        if bias is not None:
            arrays.append(self.array(np.rint(bias / (step * given.step)), np.int32))
        sums = self.add("QLinearConv", value, *arrays, **_shape(weight, stride))
        return self.unround(sums, result)

    def _rounding(self, rounding: Rounding) -> tuple[str, str]:
        return self.array(rounding.step), self.array(rounding.zero, np.uint8)

    def model(self, given: dict[str, list[int]], results: dict[str, list[int] | None]) -> bytes:
        """The graph, from what it is given to its results, by name and shape; as ONNX Runtime reads it."""
        inputs = [value_message(name, shape) for name, shape in given.items()]
        outputs = [value_message(name, shape) for name, shape in results.items()]
        graph = graph_message("mast", self._nodes, self._arrays, inputs, outputs)
        return b"".join(model_message(graph, _IR_VERSION, {"": _OPSET, _RUNTIME: 1}))


def _shape(weight: Weights, stride: int) -> dict[str, list[int]]:
    kernel = list(weight.shape[2:])
    padding = [side // 2 for side in kernel]
    return {"kernel_shape": kernel, "pads": padding * 2, "strides": [stride, stride]}
