"""What is written as bytes here is what ONNX's own library writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from mast.models.onnx_messages import (
    OnnxMessage,
    array_message,
    graph_message,
    model_message,
    node_message,
    value_message,
)


def _same(message: OnnxMessage, expected: Any) -> None:
    written = b"".join(message)
    assert type(expected).FromString(written) == expected
    assert len(written) == expected.ByteSize()  # nothing is in it that the library skips


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_a_node(domain: str) -> None:
    attributes = {"axis": -1, "epsilon": 1e-5, "large": 2**40, "pads": [0, 1, 127, 128, 300], "zero": 0}
    _same(
        node_message("Köln", ["a", "b" * 200], ["c"], domain, attributes),
        helper.make_node("Köln", ["a", "b" * 200], ["c"], domain=domain or None, **attributes),
    )


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int8", "int32", "int64"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 130), (1, 2, 3, 4)])
def test_an_array(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    _same(
        array_message("name", array.dtype.name, array.shape, array.tobytes()),
        numpy_helper.from_array(array, "name"),
    )


def test_a_value() -> None:
    _same(value_message("known", [1, 1024, 128]), helper.make_tensor_value_info("known", 1, [1, 1024, 128]))
    _same(value_message("single", []), helper.make_tensor_value_info("single", 1, []))
    _same(value_message("unknown", None), helper.make_empty_tensor_value_info("unknown"))


def test_a_model_with_a_branch() -> None:
    array = np.array([1.5, -2.0], dtype=np.float32)
    branch = graph_message(
        "branch",
        [node_message("Neg", ["array"], ["result"], "", {})],
        [array_message("array", "float32", (2,), array.tobytes())],
        [],
        [value_message("result", None)],
    )
    whole = graph_message(
        "whole",
        [node_message("If", ["given"], ["found"], "", {"then_branch": branch, "else_branch": branch})],
        [],
        [value_message("given", [])],
        [value_message("found", [2])],
    )
    inside = helper.make_graph(
        [helper.make_node("Neg", ["array"], ["result"])],
        "branch",
        [],
        [helper.make_empty_tensor_value_info("result")],
        [numpy_helper.from_array(array, "array")],
    )
    node = helper.make_node("If", ["given"], ["found"])
    node.attribute.extend(
        helper.make_attribute(name, inside) for name in ("then_branch", "else_branch")
    )  # in the order given above; make_node sorts them
    values = [
        helper.make_tensor_value_info(name, 1, shape) for name, shape in (("given", []), ("found", [2]))
    ]
    expected = helper.make_model(
        helper.make_graph([node], "whole", values[:1], values[1:]),
        opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)],
        ir_version=10,
    )
    _same(model_message(whole, 10, {"": 20, "com.microsoft": 1}), expected)
