"""Damaged recordings against probe, metadata, read, stream and windows: each answers, or names the file's fault.

    python -m scripts.attacks.recordings --count 700

Good recordings of every format are damaged in many ways (bits flipped, header fields overwritten, files cut, doubled,
joined). A recording falls if anything but AudioError is raised, a process dies, it takes longer than LIMIT_S, or a
length is accepted that the file cannot hold. A file that fell can be made again, because it depends only on the seed.
"""

from __future__ import annotations

import multiprocessing
import random
import resource
import struct
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import soundfile as sf

from scripts.attacks.summary import Summary, parser

LIMIT_S = 20.0
MEMORY = 6 * 2**30
KINDS = [
    ("wav", "WAV", "PCM_16"), ("wav", "WAV", "PCM_24"), ("wav", "WAV", "FLOAT"), ("wav", "WAV", "IMA_ADPCM"),
    ("wav", "WAV", "MS_ADPCM"), ("wav", "WAV", "ULAW"), ("wav", "WAV", "GSM610"), ("wav", "WAVEX", "PCM_16"),
    ("rf64", "RF64", "PCM_16"), ("w64", "W64", "PCM_16"), ("aiff", "AIFF", "PCM_16"), ("flac", "FLAC", "PCM_16"),
    ("flac", "FLAC", "PCM_24"), ("mp3", "MP3", "MPEG_LAYER_III"), ("ogg", "OGG", "VORBIS"), ("opus", "OGG", "OPUS"),
]  # fmt: skip
EXTREME = [
    0,
    1,
    2,
    7,
    255,
    256,
    1000,
    65_535,
    2**16,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**35,
    2**40,
    2**63 - 1,
    2**64 - 1,
]


def write_good_recordings(folder: Path) -> list[Path]:
    """A recording of each kind, some with notes in the header."""
    rng = np.random.default_rng(0)
    paths = []
    for k, (suffix, kind, subtype) in enumerate(KINDS):
        for channels, rate in ((1, 16_000), (2, 48_000)):
            if subtype == "GSM610" and channels == 2:
                continue
            sound = rng.normal(0, 0.1, (rate * 2, channels))
            path = folder / f"{k:02d}_{channels}.{suffix}"
            sf.write(path, sound, rate, format=kind, subtype=subtype)
            paths.append(path)
    notes = (
        b"GUANO|Version:1.0\nTimestamp:2023-05-10T07:30:00+02:00\nLoc Position:48.1 11.5\nSite:OAK\nMake:X\n"
    )
    comment = b"Recorded at 19:17:30 24/02/2019 (UTC+5:30) by AudioMoth 24F319055FDF2C94 at medium gain\0"
    wamd = struct.pack("<HI", 5, 25) + b"2023-05-10 07:30:00+02:00" + struct.pack("<HI", 4, 3) + b"ELM"
    for name, chunk in (
        ("guano", b"guan" + struct.pack("<I", len(notes)) + notes),
        (
            "audiomoth",
            b"LIST"
            + struct.pack("<I", 12 + len(comment))
            + b"INFOICMT"
            + struct.pack("<I", len(comment))
            + comment,
        ),
        ("wamd", b"wamd" + struct.pack("<I", len(wamd)) + wamd),
    ):
        content = paths[0].read_bytes() + chunk + b"\0" * (len(chunk) % 2)
        path = folder / f"{name}.wav"
        path.write_bytes(content[:4] + struct.pack("<I", len(content) - 8) + content[8:])
        paths.append(path)
    return paths


def mutate(content: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """One or a few changes."""
    some = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        how = rng.randrange(9)
        header = min(len(some), rng.choice((64, 200, 600)))
        at = rng.randrange(max(header, 1))
        if how == 0 and some:  # a bit of the header
            some[min(at, len(some) - 1)] ^= 1 << rng.randrange(8)
        elif how == 1:  # a field of the header
            size = rng.choice((1, 2, 4, 8))
            value = rng.choice(EXTREME) % 2 ** (8 * size)
            some[at : at + size] = value.to_bytes(size, rng.choice(("little", "big")))
        elif how == 2:  # cut
            del some[rng.randrange(len(some) + 1) :]
        elif how == 3:  # bytes anywhere
            where = rng.randrange(len(some) + 1)
            some[where : where + 4] = rng.randbytes(4)
        elif how == 4:  # a hole
            where = rng.randrange(len(some) + 1)
            del some[where : where + rng.randrange(1, 5_000)]
        elif how == 5:  # something twice
            where = rng.randrange(len(some) + 1)
            some[where:where] = some[where : where + rng.randrange(1, 5_000)]
        elif how == 6:  # the rest of another file
            other = rng.choice(others)
            where = rng.randrange(min(len(some), len(other)) + 1)
            some[where:] = other[where:]
        elif how == 7:  # time or place in a metadata note
            for old, new in (
                (b"+02:00", rng.choice((b"+25:00", b"-99:99", b"+1e9 ", b"+24:00", b"Z+2:0", b"\xff\xfe+0"))),
                (
                    b"2023-05-10",
                    rng.choice((b"9999-12-31", b"0001-01-01", b"0000-00-00", b"2023-13-40", b"-023-05-10")),
                ),
                (
                    b"48.1 11.5",
                    rng.choice((b"nan inf  ", b"1e999 0  ", b"x y      ", b"48.1     ", b"91 181   ")),
                ),
                (b"UTC+5:30", rng.choice((b"UTC+99:9", b"UTC-14:5", b"UTC+5:99"))),
                (b"Site:OAK", rng.choice((b"Site:\0\0\0", b"Site:\xff\xfe\xfd", b"Site:\n\n\n"))),
            ):
                some = some.replace(old, new)
        else:  # the tail
            where = max(0, len(some) - rng.randrange(1, 200))
            some[where : where + 8] = rng.choice(EXTREME).to_bytes(8, rng.choice(("little", "big")))
    return bytes(some)


def is_believable(info: object, size: int) -> bool:
    """Whether a file of this size can hold that much sound: FLAC of silence has 65,535 samples in a dozen bytes."""
    return info.frames <= 8_000 * (size + 100) and info.duration_s <= 3600 * 24 * 60  # type: ignore[attr-defined]


def examine(path: Path) -> str:
    """Why this file fell; empty if it did not."""
    from mast.audio import metadata, probe, read, stream, windows
    from mast.errors import AudioError
    from mast.grid import FrontEnd

    try:
        info = probe(path)
        about = metadata(path, path.parent)
        if about.datetime is not None:
            about.datetime.isoformat()
        for text in (about.site, about.recorder):
            (text or "").encode()
    except AudioError as error:
        return "" if len(str(error)) < 600 else f"message of {len(str(error))}"
    if not is_believable(info, path.stat().st_size):
        return (
            f"length believed: {info.frames} frames, {info.duration_s:.0f} s in {path.stat().st_size} bytes"
        )
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            decoded = sum(len(block) for block in stream(path))
        said = info.truncated or any("damaged" in str(w.message) for w in caught)
        if abs(decoded - info.frames) > info.sample_rate + 1 and not said:
            return f"{decoded} of {info.frames} frames, without a warning"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read(path, start_s=info.duration_s / 2, end_s=info.duration_s / 2 + 1, sample_rate=16_000)
            for window in windows(path, FrontEnd(), keep_short=True):
                if not np.isfinite(window.samples).all():
                    return "not finite"
    except AudioError:
        return ""
    return ""


def _child(path: str, pipe: object) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        pipe.send(examine(Path(path)))  # type: ignore[attr-defined]
    except BaseException:
        pipe.send(traceback.format_exc())  # type: ignore[attr-defined]


def examine_in_process(path: Path) -> str:
    """Examine a file in its own process: a decoder may crash or hang."""
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_child, args=(str(path), there))
    began = time.monotonic()
    process.start()
    there.close()
    try:
        answer = here.recv() if here.poll(LIMIT_S) else f"took longer than {LIMIT_S} s"
    except EOFError:
        answer = ""
    process.kill() if answer.startswith("took") else None
    process.join()
    if process.exitcode and not answer:
        return f"died with {process.exitcode}"
    took = time.monotonic() - began
    return answer or (f"took {took:.1f} s" if took > LIMIT_S / 2 else "")


def main() -> None:
    """Damage one recording after another."""
    import mast.audio
    import mast.grid  # noqa: F401 (once, before the children are made)

    options = parser(__doc__, count=700).parse_args()
    summary = Summary(options.summary)
    with tempfile.TemporaryDirectory() as temporary:
        sources = write_good_recordings(Path(temporary))
        contents = [path.read_bytes() for path in sources]
        for path in sources:
            if problem := examine_in_process(path):
                summary.add_failure(f"undamaged {path.name}", problem.strip().splitlines()[-1][:160])
        for k in range(options.count):
            rng = random.Random(f"{options.seed}/{k}")
            which = rng.randrange(len(sources))
            path = Path(temporary) / f"damaged_{k:05d}{sources[which].suffix}"
            path.write_bytes(mutate(contents[which], contents, rng))
            if problem := examine_in_process(path):
                summary.add_failure(
                    f"recording {k} ({path.suffix[1:]})", problem.strip().splitlines()[-1][:160]
                )
            else:
                summary.add_pass(f"recording {k} ({path.suffix[1:]})", "answered")
            path.unlink()
    summary.write()


if __name__ == "__main__":
    main()
