"""Hostile and damaged models: variants of an intact model folder, which must all be refused with one sentence.

    python -m scripts.attacks.models

Variants are made from the embedded model. None may take more memory than an intact model of its size.
"""

from __future__ import annotations

import json
import resource
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.attacks.summary import Summary, parser

MEMORY = 8 * 2**30  # bytes of address space; torch alone takes half
NAN, INF = float("nan"), float("inf")
VALUES: dict[str, list[Any]] = {
    "thresholds.nms_iou": [NAN, -5, 2, INF],
    "thresholds.score": [NAN, -0.1, 10**400],
    "normalisation.mean": [NAN, -INF, 1e30],
    "normalisation.std": [NAN, 0, -1, INF, 1e-300],
    "front_end.chunk_frames": [10**9, 10**4000, 0],
    "front_end.sample_rate": [-1, 10**12],
    "front_end.window_samples": [10**9],
    "front_end.mel_corner_hz": [NAN, INF],
    "architecture.nested": [NAN, 0, 7],
    "architecture.head_convs": [1000, 10**6, 10**4000],
    "architecture.channels": [65_536, 2**40],
    "architecture.encoder.depth": [1000, 10**6],
    "architecture.encoder.width": [65_536, 2**40],
    "architecture.encoder.chunk_frames": [16_384, 2**40],
}
TEXTS: dict[str, bytes] = {
    "not_utf8": b"\xff\xfe\xff{",
    "latin1": '{"kind": "detect\u00f6r"}'.encode("latin-1"),
    "deep_lists": b"[" * 100_000,
    "deep_objects": b'{"a":' * 100_000,
    "digits": b'{"provenance": {"seed": ' + b"9" * 5_000 + b"}}",
    "empty": b"",
    "null": b"null",
    "long_key": b'{"kind": "detector", "' + b"k" * 200_000 + b'": 1}',
}


def hostile_models(good: Path, out: Path) -> Iterator[tuple[str, Path]]:
    """Write one variant after another, with the name and folder of each. ``good`` is a model folder."""

    def copy(name: str) -> Path:
        folder = out / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file in ("model.json", "model.safetensors"):
            shutil.copyfile(good / file, folder / file)
        return folder

    for field, values in VALUES.items():
        for number, value in enumerate(values):
            folder = copy(f"{field}-{number}")
            card = json.loads((folder / "model.json").read_text(encoding="utf-8"))
            *way, last = field.split(".")
            inside = card
            for part in way:
                inside = inside[part]
            inside[last] = value
            (folder / "model.json").write_text(json.dumps(card), encoding="utf-8")
            yield folder.name, folder
    for name, text in TEXTS.items():
        folder = copy(f"text-{name}")
        (folder / "model.json").write_bytes(text)
        yield folder.name, folder
    content = (good / "model.safetensors").read_bytes()
    (header,) = struct.unpack("<Q", content[:8])
    for place in (8 + header, (8 + header + len(content)) // 2, len(content) - 1):
        folder, damaged = copy(f"flipped-{place}"), bytearray(content)
        damaged[place] ^= 1
        (folder / "model.safetensors").write_bytes(damaged)
        yield folder.name, folder
    for share in (0, 0.01, 0.5, 0.999):
        folder = copy(f"cut-{share}")
        (folder / "model.safetensors").write_bytes(content[: int(share * len(content))])
        yield folder.name, folder
    folder = copy("huge-header")
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2**60) + content[8:])
    yield folder.name, folder
    for number in (NAN, INF):
        folder = copy(f"weights-{number}")
        _set_weight(folder, number)
        yield folder.name, folder


def _set_weight(folder: Path, number: float) -> None:
    """Write a number into the weights, with a fingerprint that fits them."""
    from safetensors.torch import load_file, save_file

    from mast.models.damage import fingerprint

    weights = load_file(folder / "model.safetensors")
    name = max(weights, key=lambda key: weights[key].numel() if weights[key].is_floating_point() else 0)
    weights[name].flatten()[0] = number
    card = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    card["weights_sha256"] = fingerprint(weights)
    text = json.dumps(card)
    (folder / "model.json").write_text(text, encoding="utf-8")
    save_file(weights, folder / "model.safetensors", metadata={"model.json": text})


def main() -> None:
    """Load one variant after another."""
    from mast.errors import MastError, shorten
    from mast.models.checkpoint import load_checkpoint
    from mast.models.find import find_model

    summary = Summary(parser(__doc__).parse_args().summary)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with tempfile.TemporaryDirectory() as work:
        for name, folder in hostile_models(find_model("default"), Path(work)):
            try:
                load_checkpoint(folder)
                summary.add_failure(name, "was taken")
            except MastError as error:
                long = len(str(error)) > 600
                (summary.add_failure if long else summary.add_pass)(
                    name, "a long message" if long else "refused"
                )
            except BaseException as error:
                summary.add_failure(name, f"{type(error).__name__}: {shorten(error)}")
            shutil.rmtree(folder)
    summary.write()


if __name__ == "__main__":
    main()
