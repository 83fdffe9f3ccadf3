"""Everything around the network that finds boxes works without torch, which takes seconds and half a gigabyte."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from random_detector import write_sound

_MODULES = (
    "mast.inference, mast.inference.detector, mast.inference.results, mast.cli.main, mast.cli.detect, "
    "mast.archive.worker, mast.archive.crew, mast.archive.processes, mast.models.find, mast.hardware"
)

# a network that hears all that is loud, and `mast detect` with it where torch cannot be imported
_DEAF_TO_TORCH = """
import sys
sys.modules["torch"] = None

import numpy as np
import mast.inference.detector as detector
from mast.cli.main import app
from mast.inference.network import ThreadSetting
from mast.inference.stitch import ScoredBoxes
from mast.models.card import load_card
from mast.models.find import find_model

class Ear:
    def __init__(self, name, options, threads):
        self.folder = find_model(name)
        self.card = load_card(self.folder)
        self.precision = "float32"
        self.batch_size = self.piece_size = 2
        self.full_batches, self.readers, self.workers = False, 1, 2
        self.width = self.card.architecture.embedding_width if options.embed else 0

    def thread_setting(self):
        return ThreadSetting()

    def boxes(self, sounds, min_score):
        return [self.heard(window) for window in np.concatenate(sounds)]

    def heard(self, window):
        assert self.card.normalisation.apply(window).dtype == np.float32
        loud = np.abs(window).reshape(-1, self.card.front_end.hop_samples).max(axis=1) > 0.1
        edges = np.flatnonzero(np.diff(np.concatenate([[0], loud, [0]]))).reshape(-1, 2).astype(float)
        boxes = np.column_stack([edges[:, 0], np.full(len(edges), 3), edges[:, 1], np.full(len(edges), 60)])
        rows = np.ones((len(edges), self.width), dtype=np.float16) if self.width else None
        return ScoredBoxes(boxes, np.full(len(edges), 0.9), rows)

detector._network = Ear
app(sys.argv[1:])
"""


def test_nothing_but_a_network_imports_torch() -> None:
    code = f"import sys, {_MODULES}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    "options", [[], ["--box", "strongest", "--join", "0.1"], ["--embed", "--device", "cpu"]]
)
def test_detect_works_where_torch_cannot_be_imported(model: Path, tmp_path: Path, options: list[str]) -> None:
    write_sound(tmp_path / "in" / "OAK_20230510_235958.wav", 9)
    write_sound(tmp_path / "in" / "OAK_20230511_235958.wav", 4, seed=1)
    words = ["detect", str(tmp_path / "in"), "--model", str(model), "--out", str(tmp_path / "out"), "--quiet"]
    code = [sys.executable, "-c", _DEAF_TO_TORCH, *words, "--no-summary", *options]
    done = subprocess.run(code, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = pd.read_csv(tmp_path / "out" / "detections.csv")
    assert found["recording"].nunique() == 2
    assert (tmp_path / "out" / "embeddings.npy").exists() == ("--embed" in options)


_ON_AN_OLD_CPU = """
import sys
sys.modules["torch"] = None
import mast.inference.detector as detector
from mast.cli.main import app
detector.prefers_onnx = lambda options: True
app(sys.argv[1:])
"""


def test_a_whole_search_needs_no_torch_on_a_cpu_without_bfloat16(model: Path, tmp_path: Path) -> None:
    """Features, network, boxes, tables and the page of pictures."""
    write_sound(tmp_path / "in" / "OAK_20230510_235958.wav", 9)
    words = ["detect", str(tmp_path / "in"), "--model", str(model), "--out", str(tmp_path / "out"), "--quiet"]
    done = subprocess.run([sys.executable, "-c", _ON_AN_OLD_CPU, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(pd.read_csv(tmp_path / "out" / "detections.csv")) > 5
    assert (tmp_path / "out" / "summary.html").exists()
    assert '"int8"' in (tmp_path / "out" / "run.json").read_text()


def test_a_search_without_torch_starts_with_few_libraries(model: Path, tmp_path: Path) -> None:
    """Each of these takes some hundredths of a second, before the first sound is heard."""
    write_sound(tmp_path / "in" / "OAK_20230510_235958.wav", 3)
    # the graph is written without onnx; one process needs no workers
    unwanted = {"onnx", "google.protobuf", "multiprocessing.connection", "scipy", "matplotlib", "sklearn"}
    code = (
        "import sys\nimport mast.inference.detector as detector\nfrom mast.cli import main\n"
        "detector.prefers_onnx = lambda options: True\n"
        "try:\n    main._run_command()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "from pathlib import Path\n"
        f"Path({str(tmp_path / 'imported')!r}).write_text(' '.join(sorted({unwanted!r} & set(sys.modules))))"
    )
    words = ["detect", str(tmp_path / "in"), "--model", str(model), "--out", str(tmp_path / "out"), "--quiet"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "imported").read_text() == ""
    assert '"int8"' in (tmp_path / "out" / "run.json").read_text()
