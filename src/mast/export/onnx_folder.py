"""A folder with a detector as ONNX, and all that is needed to use it without torch or mast."""

from __future__ import annotations

import logging
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mast.errors import MastError
from mast.export.onnx_graph import SoundToBoxes
from mast.export.readmes import onnx_readme
from mast.export.strip_paths import strip_paths
from mast.files import atomic_file, write_atomic
from mast.grid import FrontEnd
from mast.loaded_model import LoadedModel
from mast.models.boxes import clip_boxes
from mast.models.card import CARD, ModelCard
from mast.models.mast_detector import DenseOutput, MastDetector

GRAPH = "model.onnx"
SCRIPT = "detect_onnx.py"
_OPSET = 18
# Largest differences to torch that count as rounding; our choice. Scores lie between 0 and 1, boxes are in cells
_SCORE_TOLERANCE, _BOX_TOLERANCE = 1e-3, 0.5
_LOOKED_AT = 0.01  # boxes scored lower are never shown, and where they lie means nothing


class OnnxReport(NamedTuple):
    """How a graph compares with the model it was made from, on made-up sound."""

    path: Path
    score_difference: float  # largest, over all points
    box_difference: float  # largest, in cells, over all points with a score that could count
    n_boxes: int  # that were compared
    megabytes: float


def write_onnx_folder(model_folder: str | Path, out: str | Path) -> OnnxReport:
    """Write a detector as ``model.onnx``, with ``model.json``, ``README.md`` and a script that needs only numpy.

    The graph takes sound and gives boxes and scores, features and normalisation included; any number of chunks at
    once. It is compared with the original on made-up sound, and refused where the two differ by more than rounding.

    Args:
        model_folder: a model folder of MAST's detector.
        out: made if it is not there.

    Raises:
        MastError: the model is a baseline or a pretrained encoder, or takes a second look; onnx or onnxruntime is not
            installed; or the graph gives other numbers than the model.
    """
    source, folder = Path(model_folder), Path(out)
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise MastError(
            f"export to ONNX needs {', '.join(missing)}; install it with `pip install 'mast-audio[export]'`"
        )
    loaded = LoadedModel.load(source, device="cpu")
    model = loaded.model
    if not isinstance(model, MastDetector):
        raise MastError(
            f"{source}: holds a {type(model).__name__}; only MAST's own detector can be exported to ONNX, because the "
            "baselines choose their boxes in the code of other packages"
        )
    if model.config.second_look:
        raise MastError(
            f"{source}: looks at every box a second time, which the ONNX graph cannot do; export a detector that was "
            "trained with train.detector.second_look = false"
        )
    card = strip_paths(loaded.card)
    folder.mkdir(parents=True, exist_ok=True)
    graph = SoundToBoxes(model, card.front_end, card.normalisation).eval()
    with atomic_file(folder / GRAPH) as part:
        _write_graph(graph, card, part)
        report = _compare(loaded, part)
        if not (report.score_difference <= _SCORE_TOLERANCE and report.box_difference <= _BOX_TOLERANCE):
            raise MastError(
                f"{source}: the graph differs from the model by {report.score_difference:.2g} in score and "
                f"{report.box_difference:.2g} cells; expected at most {_SCORE_TOLERANCE:g} and {_BOX_TOLERANCE:g}, so "
                "nothing was written; please report it with your versions of torch and onnxruntime"
            )
    write_atomic(folder / CARD, (card.model_dump_json(indent=2) + "\n").encode())
    shutil.copyfile(Path(__file__).with_name(SCRIPT), folder / SCRIPT)
    write_atomic(
        folder / "README.md", onnx_readme(card, report.score_difference, report.box_difference).encode()
    )
    return report._replace(path=folder / GRAPH)


def _write_graph(graph: SoundToBoxes, card: ModelCard, path: Path) -> None:
    import onnx

    example = torch.zeros(2, card.front_end.chunk_samples)
    batch = torch.export.Dim("batch", min=1, max=4_096)
    with torch.no_grad(), _silence():
        program = torch.onnx.export(
            graph,
            (example,),
            dynamo=True,
            opset_version=_OPSET,
            input_names=["sound"],
            output_names=["boxes", "scores"],
            dynamic_shapes={"sound": {0: batch}},
            verbose=False,
        )
    assert program is not None
    proto = program.model_proto
    for node in proto.graph.node:  # the exporter's notes name every file and line that made a node
        del node.metadata_props[:]
        node.doc_string = ""
    onnx.helper.set_model_props(proto, {"model.json": card.model_dump_json()})
    onnx.checker.check_model(proto)
    path.write_bytes(proto.SerializeToString())


@contextmanager
def _silence() -> Iterator[None]:
    """The exporter warns about its own future, which helps no user."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _compare(loaded: LoadedModel, path: Path) -> OnnxReport:
    """Compare graph and model, with one chunk and with three at once; the model gets mast's own features."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    score_difference, box_difference, n_boxes = 0.0, 0.0, 0
    sound = synthetic_sound(loaded.front_end)
    for some in (sound[:1], sound[1:]):
        boxes, scores = session.run(None, {"sound": some.numpy()})
        true_boxes, true_scores = (each.numpy() for each in _run_torch(loaded, some))
        score_difference = max(score_difference, float(np.abs(scores - true_scores).max()))
        seen = true_scores >= _LOOKED_AT
        n_boxes += int(seen.sum())
        box_difference = max(box_difference, float(np.abs(boxes - true_boxes)[seen].max(initial=0.0)))
    return OnnxReport(path, score_difference, box_difference, n_boxes, path.stat().st_size / 1e6)


@torch.inference_mode()
def _run_torch(loaded: LoadedModel, sound: Tensor) -> tuple[Tensor, Tensor]:
    model = loaded.mast_detector
    output: DenseOutput = model(loaded.spectrograms(sound))
    return clip_boxes(output.boxes, model.chunk), model.scores(output)


def synthetic_sound(front_end: FrontEnd) -> Tensor:
    """(4, chunk_samples): noise, noise with calls, loud calls on faint noise, and sound that ends in silence."""
    generator = torch.Generator().manual_seed(0)
    n, rate = front_end.chunk_samples, front_end.sample_rate
    time = torch.arange(n) / rate
    noise = torch.randn(4, n, generator=generator) * torch.tensor([[0.05], [0.02], [0.001], [0.02]])
    for row, level in ((1, 0.1), (2, 0.5), (3, 0.2)):
        for start, pitch in torch.rand(8, 2, generator=generator).tolist():
            hz = front_end.low_hz + pitch * (0.8 * front_end.high_hz - front_end.low_hz)
            envelope = ((time - start * front_end.chunk_s) / (0.03 * front_end.chunk_s)).square().neg().exp()
            noise[row] += level * envelope * torch.sin(2 * torch.pi * hz * time)
    noise[3, n // 2 :] = 0.0
    return noise - noise.mean(dim=1, keepdim=True)
