"""Damaged annotation tables: each is read, or refused with one sentence, without an internal error or an impossible
box.

    python -m scripts.attacks.tables --count 800

Every format is written once from a small good set, then damaged in many ways: bytes, numbers, cells, lines, JSON
values, files next to it. What is read must not hold a box that no recording can have, and must be writable in other
formats.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from mast.annotations import FORMATS, AnnotationSet, read_annotations, write_annotations
from mast.data import load_dataset
from mast.errors import MastError, shorten
from scripts.attacks.summary import Summary, parser

RATE, DURATION = 16_000.0, 60.0
LIMIT_S = 3.0
NAMES = ["a.wav", "site 1/b.wav", "c.flac"]
PLACES = [
    ("csv", "events.csv"),
    ("csv", "events.parquet"),
    ("csv", "dataset"),
    ("raven", "raven"),
    ("raven", "one.txt"),
    ("audacity", "audacity"),
    ("coco", "coco.json"),
    ("yolo", "yolo"),
    ("aoef", "aoef.json"),
    ("kaleidoscope", "cluster.csv"),
    ("birdeep", "birdeep.csv"),
]
NUMBERS = [
    "1e22", "-1", "nan", "inf", "-inf", "1e400", "1e-400", "-0.0", "0", "9" * 5_000, "0." + "3" * 5_000,
    "1" + "0" * 400,
    "1e999999999999999999999", "1e-999999999999999999999", "1_000", "0x10", "१२", "½", "1,5", "", " ", "three",
    "=cmd()",
    "null", "None", "True", "1" * 310, "4294967296", "9223372036854775808", "1.7e9", "50", "1.0000001",
    "-1e-9", "5e-324",
]  # fmt: skip
TEXTS = [
    "=cmd()", "+1", "-1", "@SUM(A1)", "\t", "\n", "\r", '"', '""', "'", ";", ",", "\x00", "\x1b[2J", "\u202e",
    "a" * 100_000,
    "../../etc/passwd", "/etc/passwd", "C:\\x\\y.wav", "$\\frac{$", "<script>", "\ufeff", "\u2028", "𝕏",
    "e\u0301", ".", "..",
]  # fmt: skip
JSON_VALUES = [
    None, True, False, -1, 0, 1e22, 10**400, float("nan"), float("inf"), "three", "", "5", [], {}, [[]],
    [None], {"a": []},
    "a" * 100_000, [1, 2, 3, 4], [1, 2, 3, "x"], "\ud800", 2**63, -(2**63), 0.5, "2024-99-99", {"uuid": "x"},
]  # fmt: skip


def good_set() -> AnnotationSet:
    """Six boxes in two of three recordings, with everything that formats can store."""
    rows = []
    for i, name in enumerate(NAMES[:2]):
        for k in range(3):
            box = {"recording": name, "start_s": 5.5 * k + i, "end_s": 5.5 * k + i + 1.25}
            box |= {"low_hz": 1_000.0 + 250 * k, "high_hz": 3_000.5 + k, "label": f"robin {k}"}
            rows.append({**box, "score": 0.5 + 0.1 * k, "source": "detector", "snr_db": 3.25 * k})
    recordings = pd.DataFrame({"recording": NAMES, "duration_s": DURATION, "sample_rate": RATE, "site": "S1"})
    recordings["datetime"] = "2024-05-01T06:00:00"
    spans = pd.DataFrame(
        {"recording": [NAMES[0], NAMES[2]], "start_s": [0.0, 0.0], "end_s": [30.0, DURATION]}
    )
    return AnnotationSet(pd.DataFrame(rows), spans, recordings)


def mutate_bytes(raw: bytes, rng: random.Random) -> bytes:
    """Bits, bytes, holes, repeats."""
    data = bytearray(raw)
    for _ in range(rng.choice([1, 1, 2, 5, 30])):
        if not data:
            break
        at = rng.randrange(len(data))
        match rng.randrange(6):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at] = rng.randrange(256)
            case 2:
                del data[at : at + rng.randrange(1, 40)]
            case 3:
                data[at:at] = rng.choice(NUMBERS + TEXTS).encode("utf-8", "replace")[:6_000]
            case 4:
                data[at:at] = data[max(0, at - rng.randrange(200)) : at]
            case 5:
                del data[at:]
    return bytes(data)


def mutate_text(raw: bytes, rng: random.Random) -> bytes:
    """Numbers, cells, lines, columns, encodings."""
    text = raw.decode("utf-8", "replace")
    match rng.randrange(7):
        case 0 | 1 | 2:  # a number
            spots = list(re.finditer(r"-?\d+(\.\d+)?(e-?\d+)?", text))
            if spots:
                for spot in rng.sample(spots, min(len(spots), rng.choice([1, 1, 3])))[:1]:
                    text = text[: spot.start()] + rng.choice(NUMBERS) + text[spot.end() :]
        case 3:  # a cell
            spots = list(re.finditer(r"[^\t,;\n]+", text))
            if spots:
                spot = rng.choice(spots)
                text = text[: spot.start()] + rng.choice(TEXTS + NUMBERS) + text[spot.end() :]
        case 4:  # lines
            lines = text.splitlines(keepends=True)
            rng.shuffle(lines)
            text = "".join(lines[: rng.randrange(len(lines) + 1)] + lines[:1])
        case 5:  # another delimiter, encoding or line ending
            text = rng.choice(
                [text.replace(",", ";"), text.replace("\t", ","), text.replace("\n", "\r"), text * 2]
            )
            return text.encode(rng.choice(["utf-8", "utf-16", "utf-16-le", "utf-8-sig", "utf-32"]))
        case 6:  # a whole column
            at, value = rng.randrange(8), rng.choice(NUMBERS)
            sign = "\t" if "\t" in text else ","
            lines = [line.split(sign) for line in text.split("\n")]
            for cells in lines[1:]:
                if at < len(cells):
                    cells[at] = value
            text = "\n".join(sign.join(cells) for cells in lines)
    return text.encode("utf-8", "surrogatepass")


def json_paths(value: object, path: tuple = ()) -> list[tuple]:
    """The paths of all values in a JSON document."""
    spots = [path] if path else []
    if isinstance(value, dict):
        for key in value:
            spots += json_paths(value[key], (*path, key))
    elif isinstance(value, list):
        for i in range(len(value)):
            spots += json_paths(value[i], (*path, i))
    return spots


def mutate_json(raw: bytes, rng: random.Random) -> bytes:
    """Values of a JSON document, or its depth."""
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError):  # damaged before
        return mutate_bytes(raw, rng)
    if rng.random() < 0.03:
        return b"[" * 100_000
    if rng.random() < 0.03:
        return raw.replace(b"[", b"[" + b"[" * 5_000 + b"]" * 5_000 + b",", 1)
    if rng.random() < 0.05:
        return re.sub(rb"\d+", b"9" * 5_000, raw, count=1)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        spots = json_paths(content)
        if not spots:
            break
        *above, last = rng.choice(spots)
        parent = content
        for key in above:
            parent = parent[key]
        match rng.randrange(5):
            case 0:
                del parent[last]
            case 1 if isinstance(parent, list):
                parent.append(parent[last])
            case 2 if isinstance(parent, dict):
                parent[rng.choice(["start_s", "recording", "score", "label", "end_s", "duration_s", "x"])] = (
                    rng.choice(JSON_VALUES)
                )
            case _:
                parent[last] = rng.choice(JSON_VALUES)
    return json.dumps(content).encode("utf-8", "surrogatepass")


def mutate_parquet(path: Path, rng: random.Random) -> None:
    """A column of another kind, or bytes."""
    if rng.random() < 0.4:
        path.write_bytes(mutate_bytes(path.read_bytes(), rng))
        return
    try:
        table = pd.read_parquet(path)
    except Exception:  # damaged before
        path.write_bytes(mutate_bytes(path.read_bytes(), rng))
        return
    column = rng.choice(list(table.columns))
    wild = [
        [1e22] * len(table), [float("nan")] * len(table), [float("inf")] * len(table), ["x"] * len(table),
        [b"\xff"] * len(table), [None] * len(table), [[1, 2]] * len(table), [{"a": 1}] * len(table),
        [True] * len(table), list(pd.date_range("2024-01-01", periods=len(table))), [-1.0] * len(table),
        ["5"] * len(table),
    ]  # fmt: skip
    table[column] = pd.Series(rng.choice(wild))
    match rng.randrange(4):
        case 0:
            table = table.drop(columns=rng.choice(list(table.columns)))
        case 1:
            table.index = list("abcdefghijkl"[: len(table)])
    table.to_parquet(path)


def damage(place: Path, rng: random.Random) -> str:
    """Damage one file of a table; returns in which way."""
    files = sorted(f for f in place.rglob("*") if f.is_file()) if place.is_dir() else [place]
    files += list(place.parent.glob("*reviewed.csv"))
    file = rng.choice(files)
    if file.suffix == ".parquet":
        mutate_parquet(file, rng)
        return "parquet"
    raw = file.read_bytes()
    if file.suffix == ".json" and rng.random() < 0.7:
        file.write_bytes(mutate_json(raw, rng))
        return "json"
    if rng.random() < 0.3:
        file.write_bytes(mutate_bytes(raw, rng))
        return "bytes"
    if rng.random() < 0.05:
        file.rename(
            file.with_name(rng.choice(["x\udcff.txt", "..txt", "a" * 240 + ".txt", "$x$.wav.txt", ".txt"]))
        )
        return "name"
    file.write_bytes(mutate_text(raw, rng))
    return "text"


def find_impossible(found: AnnotationSet) -> str:
    """What is impossible in what was read, by rules of our own; empty if nothing is."""
    box = found.events[["start_s", "end_s", "low_hz", "high_hz"]].to_numpy(float)
    score = found.events["score"].to_numpy(float)
    year = 366 * 86_400
    if not np.isfinite(box).all():
        return "not finite"
    if (box < 0).any() or (box[:, 0] > box[:, 1]).any() or (box[:, 2] > box[:, 3]).any():
        return "negative or out of order"
    if (box[:, :2] > year).any() or (box[:, 2:] > 1e7).any():
        return "a year, or ten megahertz"
    if not (np.isnan(score) | ((score >= 0) & (score <= 1))).all():
        return "score"
    lasts = found.events["recording"].map(found.durations()).astype(float)
    if (found.events["end_s"] > lasts + 3_600).any():
        return "hours after the end"
    spans = found.reviewed[["start_s", "end_s"]].to_numpy(float)
    if (spans < 0).any() or (spans[:, 0] > spans[:, 1]).any() or (spans > year).any():
        return "spans"
    rates = found.recordings[["duration_s", "sample_rate"]].to_numpy(float)
    return "recordings" if (rates < 0).any() or np.isinf(rates).any() else ""


def attack(name: str, place: Path, out: Path, rng: random.Random) -> str:
    """Read a damaged table: "read", "refused" with the sentence, or what fell."""
    known = rng.choice([None, good_set().recordings])
    asked = rng.choice([None, name, name, name, rng.choice(list(FORMATS))])
    try:
        found = read_annotations(place, asked, recordings=known)
    except MastError as error:
        said = shorten(error)
        if len(said) > 500 or "\n" in said or not said:
            return f"FELL: a sentence of {len(said)} characters"
        return "refused"
    wrong = find_impossible(found)
    if wrong:
        return f"FELL: impossible box read ({wrong})"
    for to, file in (("csv", "o.csv"), ("csv", "o.parquet"), (rng.choice(list(FORMATS)), "folder")):
        target = out / (file if FORMATS[to].folder or file != "folder" else f"o{FORMATS[to].suffix}")
        try:
            write_annotations(found, target, to)
            again = read_annotations(target, to, recordings=found.recordings)
            if len(again.events) != len(found.events):
                return f"FELL: {len(found.events)} events became {len(again.events)} in {to}"
        except MastError as error:
            # mast may say that a size is unknown, or that a label holds an incomplete character
            if "unknown" not in str(error) and "incomplete character" not in str(error):
                return f"FELL: read, but not written and read again as {to}: {shorten(error)}"
    return "read"


def attack_layout(layout: str, folder: Path, rng: random.Random) -> str:
    """A damaged table inside the folder layout of a published dataset."""
    import soundfile as sf

    from mast.data.layouts.birdeep import read_birdeep
    from mast.data.layouts.rainforest import read_rainforest

    folder.mkdir()
    sound = np.zeros(int(RATE) * 60, dtype=np.int16)
    try:
        if layout == "rainforest":
            (folder / "13A" / "2018-07-10").mkdir(parents=True)
            sf.write(folder / "13A" / "2018-07-10" / "060000.wav", sound, int(RATE))
            events = good_set().events.iloc[:3].assign(recording="13A/2018-07-10/060000.wav")
            table = folder / "13A" / "2018-07-10" / "060000.Table.1.selections.txt"
            write_annotations(AnnotationSet(events), table, "raven")
            for beside in folder.rglob("*.reviewed.csv"):
                beside.unlink()
            damage(table, rng)
            data = read_rainforest(folder).annotations
        elif layout == "birdeep":
            (folder / "Audios" / "AM1").mkdir(parents=True)
            sf.write(folder / "Audios" / "AM1" / "a.WAV", sound, int(RATE))
            events = good_set().events.iloc[:3].assign(recording="AM1/a.WAV")
            known = pd.DataFrame(
                {"recording": ["AM1/a.WAV"], "site": "AM1", "datetime": "2023-05-10T06:00:00"}
            )
            write_annotations(AnnotationSet(events, recordings=known), folder / "train_file.csv", "birdeep")
            for beside in folder.rglob("*.reviewed.csv"):
                beside.unlink()
            damage(folder / "train_file.csv", rng)
            data = read_birdeep(folder).annotations
        else:
            (folder / "audio").mkdir()
            for name in NAMES:
                (folder / "audio" / name).parent.mkdir(exist_ok=True)
                sf.write(folder / "audio" / name, sound, int(RATE))
            write_annotations(good_set(), folder, "csv")
            damage_only = list(folder.glob("*.csv"))
            damage(rng.choice(damage_only), rng)
            data = load_dataset(folder).annotations
    except MastError as error:
        return "refused" if len(shorten(error)) <= 500 else "FELL: a long sentence"
    wrong = find_impossible(data)
    return f"FELL: impossible box read ({wrong})" if wrong else "read"


def outcome_of(case: tuple[str, str], good: Path, work: Path, rng: random.Random) -> str:
    """One damaged table, read in a fresh folder."""
    name, file = case
    shutil.rmtree(work, ignore_errors=True)
    cpu = time.process_time()
    try:
        if name == "layout":
            work.mkdir()
            outcome = attack_layout(file, work / file, rng)
        else:
            shutil.copytree(good / file, work)
            damage(work / file, rng)
            if rng.random() < 0.2 and (work / file).exists():
                damage(work / file, rng)
            outcome = attack(name, work / file, work / "out", rng)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)
        own = [f"{Path(f.filename).name}:{f.lineno}" for f in where if "/mast/" in f.filename]
        outcome = f"FELL: {type(error).__name__}: {shorten(error)} at {' '.join(own[-3:])}"
    took = time.process_time() - cpu
    # CPU time, so that it holds on any machine: something is done far too often
    return f"FELL: took {took:.1f} s of processor time ({outcome})" if took > LIMIT_S else outcome


def main() -> None:
    """Damage one table after another."""
    options = parser(__doc__, count=800).parse_args()
    summary = Summary(options.summary)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as scratch:
        good = Path(scratch) / "good"
        for name, file in PLACES:
            (good / file).mkdir(parents=True)
            write_annotations(good_set(), good / file / file, name)
        cases = [*PLACES, ("layout", "rainforest"), ("layout", "birdeep"), ("layout", "dataset")]
        for number in range(options.count):
            case = cases[number % len(cases)]
            what = f"table {number} ({case[0]}, {case[1]})"
            outcome = outcome_of(
                case, good, Path(scratch) / "work", random.Random(f"{options.seed}/{number}")
            )
            if outcome.startswith("FELL"):
                summary.add_failure(what, outcome[6:])
            else:
                summary.add_pass(what, outcome)
    summary.write()


if __name__ == "__main__":
    main()
