"""`make demo` without its minutes: which commands it types, what it says at the end, and that it counts CPU time."""

from __future__ import annotations

import csv
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    path = Path(__file__).parents[2] / "scripts" / "demo.py"
    spec = importlib.util.spec_from_file_location("demo", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.chdir(tmp_path)
    return module


class Commands:
    """Leaves what the demo reads of its commands' results."""

    def __init__(self, demo: ModuleType) -> None:
        self.demo, self.typed = demo, list[str]()

    def __call__(self, *arguments: str) -> None:
        self.typed.append(arguments[0])
        if arguments[0] == "simulate":
            self._world(Path(arguments[1]))
        elif arguments[0] == "fit":
            self._run(Path(arguments[arguments.index("--out") + 1]))

    def _world(self, world: Path) -> None:
        (world / "audio").mkdir(parents=True)
        names = [f"S{k % 2}_{k:02}.flac" for k in range(self.demo.RECORDINGS)]
        for name in names:
            (world / "audio" / name).touch()
        for table, rows in (
            ("recordings.csv", [{"file": n, "site": n[:2], "split": "train"} for n in names]),
            ("boxes.csv", [{"file": n, "label": "a"} for n in names]),
        ):
            with (world / table).open("w", newline="") as file:
                writer = csv.DictWriter(file, fieldnames=list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)

    def _run(self, run: Path) -> None:
        parts = {name: {"recordings": 6, "boxes": 70} for name in ("val", "test", "site_ood")}
        f1 = {"start": 0.5, "trained": 0.6, "self-trained": 0.7}
        detectors = {
            name: {"parts": {part: {"f1": value, "intervals": {"f1": [0.4, 0.8]}} for part in parts}}
            for name, value in f1.items()
        }
        run.mkdir(parents=True)
        counts = {name: [[round(20 * value), 20, 20]] * 5 for name, value in f1.items()}
        metrics = {"parts": parts, "detectors": detectors, "validation_f1": f1, "validation_counts": counts}
        metrics["learnt_from"] = {"boxes": 8, "recordings": 2}
        metrics["recommended"] = "self-trained"
        (run / "metrics.json").write_text(json.dumps(metrics))


def test_the_demo_shows_the_start_beside_what_came_of_it(
    demo: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = Commands(demo)
    monkeypatch.setattr(demo, "mast", commands)
    demo.main()
    assert commands.typed == ["simulate", "scan", "convert", "plot", "fit", "detect"]
    shown = capsys.readouterr().out
    assert "as is             trained           self-trained" in shown
    assert "0.50 (0.40–0.80)  0.60 (0.40–0.80)  0.70 (0.40–0.80)" in shown
    assert "On validation the self-trained detector beats the one it started from" in shown
    assert "seconds of CPU time" in shown


def test_cpu_time_of_the_commands_counts(demo: ModuleType) -> None:
    before = demo.cpu_seconds()
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", busy], check=True)
    assert demo.cpu_seconds() - before >= 0.3
