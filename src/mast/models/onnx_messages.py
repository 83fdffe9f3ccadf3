"""ONNX's messages, written as bytes: the few kinds that our graphs are made of.

The library ``onnx`` writes the same; importing it takes longer than everything else in writing a graph. Fields are
numbered as in ONNX's own ``onnx.proto``, and encoded as Protocol Buffers encode them. A message is a list of its parts,
which are put together once, at the very end: the weights are megabytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

OnnxMessage = list[bytes]

# numbers of types, as TensorProto.DataType has them
_TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7}
_FLOAT, _INT, _GRAPH, _INTS = 1, 2, 5, 7  # as AttributeProto.AttributeType has them


class OnnxGraph(NamedTuple):
    """The message of a graph; as an attribute of a node, a branch."""

    message: OnnxMessage


def node_message(
    kind: str, inputs: Sequence[str], outputs: Sequence[str], domain: str, attributes: Mapping[str, Any]
) -> OnnxMessage:
    """A NodeProto. Attributes are whole numbers, lists of them, floats and graphs."""
    parts = [_text(1, name) for name in inputs] + [_text(2, name) for name in outputs]
    parts.append(_text(4, kind))
    for name, value in attributes.items():
        parts += _inside(5, _attribute(name, value))
    if domain:
        parts.append(_text(7, domain))
    return parts


def array_message(name: str, dtype: str, shape: Sequence[int], numbers: bytes) -> OnnxMessage:
    """A TensorProto: the type as NumPy calls it, and the numbers in C order, the lowest byte of each first."""
    sizes = [_number(1, size) for size in shape]
    return [*sizes, _number(2, _TYPES[dtype]), _text(8, name), *_inside(9, [numbers])]


def value_message(name: str, shape: Sequence[int] | None) -> OnnxMessage:
    """A ValueInfoProto: a value of the graph, of float32 and this shape; without one, ONNX Runtime infers both."""
    if shape is None:
        return [_text(1, name)]
    sizes = [part for size in shape for part in _inside(1, [_number(1, size)])]
    tensor = [_number(1, _TYPES["float32"]), *_inside(2, sizes)]
    return [_text(1, name), *_inside(2, _inside(1, tensor))]


def graph_message(
    name: str,
    nodes: Iterable[OnnxMessage],
    arrays: Iterable[OnnxMessage],
    given: Iterable[OnnxMessage],
    results: Iterable[OnnxMessage],
) -> OnnxGraph:
    """A GraphProto of the messages in it."""
    parts = [_text(2, name)]
    for field, messages in ((1, nodes), (5, arrays), (11, given), (12, results)):
        for message in messages:
            parts += _inside(field, message)
    return OnnxGraph(parts)


def model_message(graph: OnnxGraph, ir_version: int, versions: Mapping[str, int]) -> OnnxMessage:
    """A ModelProto; ``versions`` are those of the operator sets, by their domain."""
    parts = [_number(1, ir_version), *_inside(7, graph.message)]
    for domain, version in versions.items():
        parts += _inside(8, [_text(1, domain), _number(2, version)])
    return parts


def _attribute(name: str, value: float | Sequence[int] | OnnxGraph) -> OnnxMessage:
    if isinstance(value, OnnxGraph):
        content, kind = _inside(6, value.message), _GRAPH
    elif isinstance(value, int):
        content, kind = [_number(3, value)], _INT
    elif isinstance(value, float):
        content, kind = [_varint(2 << 3 | 5), struct.pack("<f", value)], _FLOAT
    else:
        content, kind = [_number(8, whole) for whole in value], _INTS
    return [_text(1, name), *content, _number(20, kind)]


# a field is its number and the kind of its content, in one varint, and the content: a varint, or a length and bytes


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _text(field: int, text: str) -> bytes:
    return b"".join(_inside(field, [text.encode()]))


def _inside(field: int, message: OnnxMessage) -> OnnxMessage:
    """A message as a field of another."""
    return [_varint(field << 3 | 2) + _varint(sum(map(len, message))), *message]


def _varint(value: int) -> bytes:
    """A whole number, seven bits in a byte, the lowest first; a negative one as its 64 bits."""
    if 0 <= value < 128:  # nearly all
        return bytes((value,))
    value &= 2**64 - 1
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])
