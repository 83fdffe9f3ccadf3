"""What docs/scaling.md says is so."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from duckdb_answers import ask_duckdb
from random_detector import write_sound
from same_results import assert_same_results
from typer.testing import Result

Run = Callable[..., Result]
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")

sys.path.insert(0, str(ROOT / "scripts"))
import sizing_table  # noqa: E402


def block(language: str) -> str:
    found = re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def test_the_examples_of_duckdb_and_pandas(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OAK/20230510_235955.wav", "OAK/20230601_000000.wav", "ELM/20230510_010000.wav", "b.wav"):
        write_sound(tmp_path / "in" / name, 9, seed=len(name))
    monkeypatch.chdir(tmp_path)
    arguments = (tmp_path / "in", "--model", model, "--out", "detections", "--formats", "csv,partitioned")
    assert run(*arguments).exit_code == 0
    whole = pd.read_parquet("detections/detections.parquet")
    day = whole["datetime"].str[:10]

    counted = ask_duckdb(block("sql"))
    expected = whole.groupby([whole["site"].replace("", "unknown"), day]).size()
    assert sorted(counted["events"]) == sorted(expected)
    assert counted["site"].tolist() == ["ELM", "OAK", "OAK", "OAK", "unknown"]

    names: dict[str, pd.DataFrame] = {}
    exec(block("python"), names)
    assert len(names["may"]) == ((whole["site"] == "OAK") & day.between("2023-05-01", "2023-05-31")).sum() > 0

    query = re.search(r"`(FROM 'detections-\*/[^`]*)`", PAGE)
    assert query is not None
    for name in ("detections-1", "detections-2"):
        (tmp_path / name).symlink_to(tmp_path / "detections")
    assert len(ask_duckdb(query[1])) == 2 * len(whole)


def test_the_tables_are_those_of_the_results() -> None:
    check = [sys.executable, str(ROOT / "scripts" / "sizing_table.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_arithmetic_of_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    made_up = {
        "archive": {
            "hardware": {"cpu": "abacus"},
            "figures": {
                "search": {"model": "tiny, random weights", "cpu_times_real_time": 100.0},
                "results_all": {
                    "mark_bytes": 5_000.0,
                    "parquet_bytes_per_event": 50.0,
                    "csv_bytes_per_event": 100.0,
                    "partitioned_bytes_per_event": 40.0,
                    "merged_recordings_per_cpu_second": 1_000.0,
                },
            },
        },
        "gpu_speed": {
            "hardware": {"gpu": "a card"},
            "figures": {
                "model": {"size": "base"},
                "end_to_end": {
                    "1_workers": {"steady": {"times_real_time": 500.0}},
                    "8_workers": {"steady": {"times_real_time": 2_000.0}},
                    "16_workers": {"failed": "no memory"},
                },
            },
        },
    }
    monkeypatch.setattr(sizing_table, "load_result", made_up.get)
    compute = sizing_table.compute_table().splitlines()[2:]
    assert (
        compute[0]
        == "| one CPU core, `tiny` | 100 | 10 h | 1,000 h | 100,000 h | abacus; `results/archive.json` |"
    )
    # windows overlap by a quarter, and were measured end to end
    assert compute[1].startswith(
        "| one GPU, `base` (ViT-B) | 1,500 | 0.67 h | 67 h | 6,700 h | a card, 8 processes;"
    )
    storage = "\n".join(sizing_table.storage_table().splitlines()[2:])
    assert "| the sound itself, 48 kHz 16 bit WAV | 346 GB | 35 TB | 3.5 PB |" in storage
    assert "| events, one every six seconds | 600,000 | 60 million | 6 billion |" in storage
    assert "| `detections.parquet` | 30 MB | 3 GB | 300 GB |" in storage
    assert "| 300 MB in 60,000 files | 30 GB in 6 million files | 3 TB in 600 million files |" in storage
    assert "| 1 min | 1.7 h | 170 h |" in storage


FAKE_SBATCH = """#!/bin/bash
# runs an array one by one, and what is to be wrapped, at once
for word in "$@"; do
    case $word in
        --array=0-*) last=${word#--array=0-} ;;
        --dependency=afterany:42) after=yes ;;
    esac
done
echo "$*" >> "$LOG"
if [ -n "${last:-}" ]; then
    for i in $(seq 0 "$last"); do SLURM_ARRAY_TASK_ID=$i bash "${@: -1}" >> "$LOG" 2>&1 || exit 1; done
    echo 42
elif [ "${after:-}" = yes ]; then
    bash -c "${@: -1}" >> "$LOG" 2>&1
fi
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="no bash")
def test_the_slurm_scripts_with_a_queue_of_one(
    whole: Path, survey: Path, model: Path, tmp_path: Path
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    mast = f'#!/bin/bash\nexec "{sys.executable}" -m mast.cli.main "$@" --device cpu --no-summary\n'
    for name, text in (("sbatch", FAKE_SBATCH), ("mast", mast)):
        (tools / name).write_text(text)
        (tools / name).chmod(stat.S_IRWXU)
    environment = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "RECORDINGS": str(survey),
        "MODEL": str(model),
        "OUT": str(tmp_path / "out"),
        "WORKERS": "1",
        "OMP_NUM_THREADS": "1",
        "LOG": str(tmp_path / "log"),
    }
    submit = [str(ROOT / "docs" / "slurm" / "submit.sh"), "2"]
    done = subprocess.run(submit, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, (done.stderr, (tmp_path / "log").read_text())
    assert_same_results(tmp_path / "out", whole)
    assert (tmp_path / "out" / "partitioned" / "site=OAK").is_dir()
