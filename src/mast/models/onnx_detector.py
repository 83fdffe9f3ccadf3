"""MAST's detector as a graph for ONNX Runtime, as a CPU without bfloat16 runs it fastest.

The same network as :class:`mast.models.mast_detector.MastDetector`, written out so that each step is one that ONNX
Runtime does quickly. A transposed convolution whose kernel is its stride is a product. Three small convolutions of one
map are one. The last layers, with one and five outputs, are nine products of the map, each added to the cell that it
belongs to. Linear layers are rounded to eight bits, and so are convolutions where the range of their values is known
(:func:`measure_ranges`). Attention and norms stay in float32: rounding them would save no time, and change scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mast.hardware import cpu_threads
from mast.models.architecture import (
    ADAPTER_UPSAMPLING,
    ANCHOR_STRIDES,
    FUSION_EPSILON,
    GROUP,
    LOG_SIZE,
    NORM_EPSILON,
    DetectorConfig,
)
from mast.models.onnx_nodes import Nodes, Rounding, Weights

Ranges = dict[str, tuple[float, float]]
GIVEN, MIN_SCORE, BOXES, SCORES = "spectrogram", "least", "boxes", "scores"  # names in the graph
_GROUP_EPSILON = 1e-5  # torch's own
# share of values beyond a measured range on either side, our choice: a single odd cell is cut off
_TAIL = 1e-5


def can_write(config: DetectorConfig) -> bool:
    """Whether this detector can be written as such a graph: the paper's own, on maps that halve without a remainder.

    Without ONNX Runtime, none can.
    """
    if find_spec("onnxruntime") is None:
        return False
    halvings = 2 ** (config.levels - 1)
    plain = config.adapter == "upsampling" and not (
        config.detail or config.pyramid_blocks or config.second_look
    )
    return plain and not any(side % halvings for side in config.finest_grid)


def write_graph(
    config: DetectorConfig,
    weights: Mapping[str, Weights],
    *,
    ranges: Ranges | None = None,
    exact: bool = False,
) -> bytes:
    """The graph of a detector: one normalised spectrogram (1, 1, T, F) → boxes (R, 4) in cells, scores (R,).

    It also takes a score, and boxes that are scored lower need not be right: if a level of the pyramid has no others,
    its boxes are not computed.

    Args:
        config: that :func:`can_write` accepts.
        weights: by name, float32.
        ranges: of the inputs and outputs of convolutions; without them, these stay in float32.
        exact: keep everything in float32.
    """
    graph = _DetectorGraph(config, weights, None if exact else ranges, exact=exact)
    graph.write()
    points = graph.n_points
    return graph.model({GIVEN: graph.given, MIN_SCORE: []}, {BOXES: [points, 4], SCORES: [points]})


def measure_ranges(
    config: DetectorConfig, weights: Mapping[str, Weights], spectrograms: Iterable[NDArray[np.float32]]
) -> Ranges:
    """The range of values in each map of a detector, by name, over some normalised spectrograms (T, F)."""
    graph = _DetectorGraph(config, weights, None, exact=True, every_box=True)
    graph.write()
    maps = graph.maps
    written = graph.model({GIVEN: graph.given}, dict.fromkeys(maps.values(), None))
    session = open_session(written, threads=cpu_threads())
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in maps}
    for spectrogram in spectrograms:
        for name, values in zip(
            maps, session.run(list(maps.values()), {GIVEN: spectrogram[None, None]}), strict=True
        ):
            flat = values.ravel()
            rest = int(_TAIL * len(flat))
            low, high = np.partition(flat, [rest, len(flat) - 1 - rest])[[rest, len(flat) - 1 - rest]]
            found[name].append((round(float(low), 4), round(float(high), 4)))
    return {
        name: (min(low for low, _ in all_), max(high for _, high in all_)) for name, all_ in found.items()
    }


def open_session(graph: bytes, *, threads: int) -> Any:
    """ONNX Runtime's session of a graph on the CPU."""
    import onnxruntime

    onnxruntime.disable_telemetry_events()  # of its builds for Windows
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    # this fused operation is five times slower than its parts
    return onnxruntime.InferenceSession(
        graph, options, providers=["CPUExecutionProvider"], disabled_optimizers=["SkipLayerNormFusion"]
    )


_Form = Literal["values", "whole", "both"]  # in which a map is kept


class _Map(NamedTuple):
    """A map (1, C, T', F'): as values, as whole numbers, or both."""

    values: str
    whole: str = ""
    rounding: Rounding | None = None


class _DetectorGraph(Nodes):
    """Writes itself; ``maps`` then names every value whose range is needed to round convolutions."""

    def __init__(
        self,
        config: DetectorConfig,
        weights: Mapping[str, Weights],
        ranges: Ranges | None,
        *,
        exact: bool,
        every_box: bool = False,
    ) -> None:
        super().__init__()
        self.config, self.weights, self.ranges, self.rounded = config, weights, ranges, not exact
        self.every_box = every_box
        self.given = [1, 1, config.encoder.chunk_frames, config.encoder.n_bins]
        self.maps: dict[str, str] = {}
        rows, columns = config.finest_grid
        self.grids = [(rows >> level, columns >> level) for level in range(config.levels)]
        self.n_points = sum(rows * columns for rows, columns in self.grids)

    def write(self) -> None:
        """From the spectrogram to boxes and scores."""
        levels = self._pyramid(self._adapter(self._encoder()))
        self._decode([self._head(level, k) for k, level in enumerate(levels)])

    # the encoder: (1, L, D) throughout

    def _encoder(self) -> str:
        config, weights = self.config.encoder, self.weights
        (rows, columns), side, width = config.token_grid, config.patch, config.width
        cells = self.transpose(self.reshape(GIVEN, rows, side, columns, side), 0, 2, 1, 3)
        patches = self.reshape(cells, 1, rows * columns, side * side)
        embed = weights["encoder.patch_embed.proj.weight"].reshape(width, -1).T
        tokens = self.linear(patches, embed, None, rounded=self.rounded)
        positions = weights["encoder.pos_embed"]
        tokens = self.add(
            "Add", tokens, self.array(positions[:, 1:] + weights["encoder.patch_embed.proj.bias"])
        )
        first = self.array(weights["encoder.cls_token"] + positions[:, :1])
        tokens = self.add("Concat", first, tokens, axis=1)
        for block in range(config.depth):
            tokens = self._block(tokens, f"encoder.blocks.{block}")
        tokens = self._layer_norm(tokens, "encoder.norm")
        return self.add(
            "Slice", tokens, self.sizes(1), self.sizes(1 + rows * columns), self.sizes(1)
        )  # without the class token

    def _block(self, tokens: str, name: str) -> str:
        weights, rounded = self.weights, self.rounded
        normed = self._layer_norm(tokens, f"{name}.norm1")
        qkv = np.split(weights[f"{name}.attn.qkv.weight"].T, 3, axis=1)
        biases = np.split(weights[f"{name}.attn.qkv.bias"], 3)
        q, k, v = self.linear_layers(normed, qkv, biases, rounded=rounded)
        seen = self.add_runtime("MultiHeadAttention", q, k, v, num_heads=self.config.encoder.heads)
        tokens = self.add("Add", tokens, self._layer(seen, f"{name}.attn.proj"))
        hidden = self._layer(self._layer_norm(tokens, f"{name}.norm2"), f"{name}.mlp.fc1")
        return self.add("Add", tokens, self._layer(self.add_runtime("Gelu", hidden), f"{name}.mlp.fc2"))

    def _layer(self, value: str, name: str) -> str:
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return self.linear(value, weight.T, bias, rounded=self.rounded)

    def _layer_norm(self, tokens: str, name: str) -> str:
        arrays = [self.array(self.weights[f"{name}.{part}"]) for part in ("weight", "bias")]
        return self.add("LayerNormalization", tokens, *arrays, axis=-1, epsilon=NORM_EPSILON)

    # maps: (1, C, T', F')

    def _adapter(self, tokens: str) -> _Map:
        config, weights = self.config, self.weights
        (rows, columns), channels = config.encoder.token_grid, config.channels
        reduce = weights["adapter.reduce.0.weight"].reshape(channels, -1).T
        x = self._as_map(self.linear(tokens, reduce, None, rounded=self.rounded), channels, rows, columns)
        small = self._group_norm(x, "adapter.reduce.1", rows * columns, keep="both")
        small = self._residual(small, "adapter.residual", rows * columns, keep="both")
        finest = self._finish_map(self._upsample(small.values), "adapter.upsample", relu=False)
        cells = config.finest_grid[0] * config.finest_grid[1]
        finest = self._conv_block(finest, "adapter.separable.0", cells)
        finest = self._conv_block(finest, "adapter.separable.1", cells, keep="both")
        return self._residual(finest, "adapter.refine", cells)

    def _as_map(self, tokens: str, channels: int, rows: int, columns: int) -> str:
        return self.reshape(self.transpose(tokens, 0, 2, 1), 1, channels, rows, columns)

    def _upsample(self, values: str) -> str:
        """A transposed convolution whose kernel is its stride: every cell becomes several, by one product."""
        config = self.config
        (rows, columns), channels = config.encoder.token_grid, config.channels
        in_time, in_frequency = ADAPTER_UPSAMPLING[config.adapter]
        weight = self.weights["adapter.upsample.weight"]  # (C, C, in_time, in_frequency)
        flat = weight.transpose(0, 2, 3, 1).reshape(channels, -1)
        bias = np.tile(self.weights["adapter.upsample.bias"], in_time * in_frequency)
        cells = self.transpose(self.reshape(values, 1, channels, rows * columns), 0, 2, 1)
        cells = self.linear(cells, flat, bias, rounded=self.rounded)
        # two steps with few axes: a single one with six took 2 ms of 60
        cells = self.reshape(cells, rows, columns, in_time, in_frequency * channels)
        cells = self.reshape(self.transpose(cells, 0, 2, 1, 3), 1, *config.finest_grid, channels)
        return self.transpose(cells, 0, 3, 1, 2)

    def _pyramid(self, finest: _Map) -> list[_Map]:
        config, weights = self.config, self.weights
        levels = [finest]
        for k, (rows, columns) in enumerate(self.grids[1:]):
            levels.append(self._conv_block(levels[-1], f"pyramid.down.{k}", rows * columns, stride=2))
        shares = np.logaddexp(0.0, weights["pyramid.fusion"].astype(np.float64))
        shares = shares / (shares.sum(axis=1, keepdims=True) + FUSION_EPSILON)
        fused = [""] * config.levels
        for k in range(config.levels - 1, -1, -1):
            own = np.float32(shares[k, 0] if k < config.levels - 1 else 1.0)
            name = f"pyramid.lateral.{k}"
            fused[k] = self._convolution(
                levels[k], name, own * weights[f"{name}.weight"], own * weights[f"{name}.bias"]
            )
            if k < config.levels - 1:
                above = self.add("Mul", fused[k + 1], self.array(shares[k, 1]))
                fused[k] = self._add_coarser(fused[k], above, k + 1)
        return [self._smooth(values, k) for k, values in enumerate(fused)]

    def _add_coarser(self, values: str, above: str, level: int) -> str:
        """A map plus the next coarser one, each of whose cells is added to four. Channels last: these lie together."""
        (rows, columns), channels = self.grids[level], self.config.channels
        fine = self.reshape(self.transpose(values, 0, 2, 3, 1), rows, 2, columns, 2, channels)
        coarse = self.reshape(self.transpose(above, 0, 2, 3, 1), rows, 1, columns, 1, channels)
        total = self.reshape(self.add("Add", fine, coarse), 1, 2 * rows, 2 * columns, channels)
        return self.transpose(total, 0, 3, 1, 2)

    def _smooth(self, values: str, level: int) -> _Map:
        """Three convolutions of 3 × 3, 3 × 1 and 1 × 3 are one of 3 × 3, the missing weights being zero."""
        name, weights = f"pyramid.smooth.{level}", self.weights
        rows, columns = self.grids[level]
        x = self._finish_map(values, f"{name}.given", relu=False)
        parts = [weights[f"{name}.branches.{k}.0.weight"] for k in range(3)]
        square = [
            np.pad(part, ((0, 0), (0, 0), *(((3 - side) // 2,) * 2 for side in part.shape[2:])))
            for part in parts
        ]
        scale, shift = (
            np.concatenate([weights[f"{name}.branches.{k}.1.{part}"] for k in range(3)])
            for part in ("weight", "bias")
        )
        branches = self._convolution(x, f"{name}.branches", np.concatenate(square), None)
        x = self._finish_map(
            self._normalise(branches, scale, shift, rows * columns),
            f"{name}.branches.norm",
            relu=True,
            keep="whole",
        )
        mixed = self._convolution(
            x, f"{name}.mix", weights[f"{name}.mix.weight"], weights[f"{name}.mix.bias"]
        )
        return self._finish_map(self.add("Add", mixed, values), f"{name}.result", relu=False)

    def _head(self, level: _Map, number: int) -> str:
        """(1, 6, cells): classification, the four numbers of a box, centreness."""
        classes = self._tower(level, "classification_tower", "classify", number)
        if self.every_box:
            boxes = self._tower(level, "box_tower", "regress", number)
        else:
            boxes = self._boxes_where_needed(level, classes, number)
        return self.add("Concat", classes, boxes, axis=1)

    def _boxes_where_needed(self, level: _Map, classes: str, number: int) -> str:
        """Centreness only lowers a score, so no box of a level counts where no classification is good enough."""
        rows, columns = self.grids[number]
        best = self.add("ReduceMax", self.add("Sigmoid", classes), keepdims=0)
        # ONNX Runtime keeps maps of whole numbers with channels last, but would reorder them before a branch
        whole = self.transpose(level.whole, 0, 2, 3, 1) if level.whole else ""

        def boxes() -> str:
            inside = level._replace(whole=self.transpose(whole, 0, 3, 1, 2)) if whole else level
            return self._tower(inside, "box_tower", "regress", number)

        def nothing() -> str:
            return self.add("ConstantOfShape", self.sizes(1, 5, rows * columns))

        return self.if_else(self.add("GreaterOrEqual", best, MIN_SCORE), boxes, nothing)

    def _tower(self, x: _Map, tower: str, last: str, number: int) -> str:
        rows, columns = self.grids[number]
        for k in range(self.config.head_convs):
            keep: _Form = "values" if k == self.config.head_convs - 1 else "whole"
            x = self._conv_block(x, f"head.{tower}.{k}", rows * columns, at=f"@{number}", keep=keep)
        return self._last_layer(x.values, f"head.{last}", rows, columns)

    def _last_layer(self, values: str, name: str, rows: int, columns: int) -> str:
        """A 3 × 3 convolution with few outputs: nine products of the map, added where they belong. (1, C', cells)."""
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        count, channels = weight.shape[:2]
        # what a cell gives its neighbours, not what it takes from them, so the kernel is flipped
        turned = weight[:, :, ::-1, ::-1].transpose(0, 2, 3, 1)
        products = self.add(
            "MatMul",
            self.array(turned.reshape(9 * count, channels)),
            self.reshape(values, 1, channels, rows * columns),
        )
        total = self.add("Col2Im", products, self.sizes(rows, columns), self.sizes(3, 3), pads=[1] * 4)
        total = self.add("Add", total, self.array(bias.reshape(1, -1, 1, 1)))
        return self.reshape(total, 1, count, rows * columns)

    def _residual(self, x: _Map, name: str, cells: int, *, keep: _Form = "whole") -> _Map:
        inner = self._conv_block(x, f"{name}.first", cells)
        sums = self._convolution(inner, f"{name}.second", self.weights[f"{name}.second.weight"], None)
        return self._group_norm(sums, f"{name}.norm", cells, plus=x.values, keep=keep)

    def _conv_block(
        self, x: _Map, name: str, cells: int, *, stride: int = 1, at: str = "", keep: _Form = "whole"
    ) -> _Map:
        """Convolution, group norm, ReLU. ``at`` distinguishes maps that the same layer makes at several levels."""
        sums = self._convolution(x, f"{name}.0", self.weights[f"{name}.0.weight"], None, stride=stride, at=at)
        return self._group_norm(sums, f"{name}.1", cells, at=at, keep=keep)

    def _group_norm(
        self, values: str, name: str, cells: int, *, plus: str = "", at: str = "", keep: _Form = "whole"
    ) -> _Map:
        """Group norm, the sum with another map where one is given, ReLU."""
        scale, shift = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        normed = self._normalise(values, scale, shift, cells)
        if plus:
            normed = self.add("Add", normed, plus)
        return self._finish_map(normed, f"{name}{at}", relu=True, keep=keep)

    def _normalise(self, values: str, scale: Weights, shift: Weights, cells: int) -> str:
        channels = len(scale)
        groups = channels // GROUP
        flat = self.reshape(values, 1, groups, GROUP * cells)
        ones, zeros = self.array(np.ones(groups)), self.array(np.zeros(groups))
        flat = self.add("InstanceNormalization", flat, ones, zeros, epsilon=_GROUP_EPSILON)
        normed = self.add("Reshape", flat, self.add("Shape", values))
        # each channel times its scale and plus its shift, in one pass: its mean is 0 and its spread 1 already
        nothing, one = self.array(np.zeros(channels)), self.array(np.full(channels, 1 - _GROUP_EPSILON))
        arrays = [self.array(scale), self.array(shift), nothing, one]
        return self.add("BatchNormalization", normed, *arrays, epsilon=_GROUP_EPSILON)

    def _finish_map(self, values: str, name: str, *, relu: bool, keep: _Form = "both") -> _Map:
        """A map as the layers after it need it; rounded only where ranges are known.

        Rounding to numbers from zero up is a ReLU by itself.
        """
        if self.ranges is None or keep == "values":
            values = self.add("Relu", values) if relu else values
            if keep != "values":
                self.maps[name] = values
            return _Map(values)
        low, high = self.ranges[name]
        rounding = Rounding.of(0.0 if relu else low, high)
        whole = self.round(values, rounding)
        if relu:
            values = self.unround(whole, rounding) if keep == "both" else ""
        return _Map(values, whole, rounding)

    def _convolution(
        self, x: _Map, name: str, weight: Weights, bias: Weights | None, *, stride: int = 1, at: str = ""
    ) -> str:
        place = f"{name}{at}.sums"
        if x.rounding is None or self.ranges is None:
            sums = self.convolution(x.values, weight, bias, stride=stride)
            self.maps[place] = sums
            return sums
        result = Rounding.of(*self.ranges[place])
        return self.rounded_convolution(x.whole, x.rounding, weight, bias, result, stride=stride)

    def _decode(self, levels: list[str]) -> None:
        """As head.py and decode.py say: centre offsets in strides, logarithms of sizes."""
        config = self.config
        rows = self.transpose(self.add("Concat", *levels, axis=2), 0, 2, 1)  # (1, R, 6)
        rows = self.reshape(rows, self.n_points, 6)
        logits, regression, centreness = self.add_multi("Split", 3, rows, self.sizes(1, 4, 1), axis=1)
        score = self.add("Sigmoid", logits)
        if config.centreness_in_score:
            score = self.add("Mul", score, self.add("Sigmoid", centreness))
        centres, strides = self._points()
        counts = [rows * columns for rows, columns in self.grids]
        scales = np.repeat(self.weights["head.scales"], counts, axis=0)
        regression = self.add("Mul", regression, self.array(scales))
        offset, size = self.add_multi("Split", 2, regression, self.sizes(2, 2), axis=1)
        middle = self.add("Add", self.add("Mul", offset, self.array(strides)), self.array(centres))
        size = self.add("Clip", size, *(self.array(limit) for limit in LOG_SIZE))
        half = self.add("Mul", self.add("Exp", size), self.array(ANCHOR_STRIDES / 2 * strides))
        boxes = self.add("Concat", self.add("Sub", middle, half), self.add("Add", middle, half), axis=1)
        # repeated for each point: broadcasting the same four numbers takes longer
        limits = self.array(np.tile(self.given[2:], (self.n_points, 2)))
        self.name(self.add("Min", self.add("Max", boxes, self.array(0.0)), limits), BOXES)
        self.name(self.reshape(score, self.n_points), SCORES)

    def _points(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(R, 2) centres and strides of all points, time and frequency; see points.py."""
        centres, strides = [], []
        for level, (rows, columns) in enumerate(self.grids):
            stride = np.array(self.config.strides) * 2**level
            grid = np.indices((rows, columns)).reshape(2, -1).T + 0.5
            centres.append(grid * stride)
            strides.append(np.broadcast_to(stride, grid.shape))
        return np.concatenate(centres), np.concatenate(strides)
