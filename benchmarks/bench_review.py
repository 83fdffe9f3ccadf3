"""The review page on a 12-hour recording, and on a million events: latency, and memory that stays flat.

    python benchmarks/bench_review.py --out results/review.json

A server in its own process gets the requests of a reviewer's browser during scrolling and zooming: tiles at all zooms,
the strip above them, byte ranges of the sound, clips; all along the recording and never the same piece twice, so that
no picture comes from the server's cache. (The file was just written, so its bytes come from the system's.) Times are
for one request after another; then the same number again is sent three at once, as a browser does, to measure memory.
``ratio`` is the server's peak memory after browsing the long recording over that after browsing the short one: 1 if
memory does not depend on length. ``many`` fills a folder with made-up detections and times the lists and decisions.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.record import peak_mb, write_result

if TYPE_CHECKING:
    import httpx

RATE = 48_000
SHORT_MINUTES, LONG_MINUTES = 10.0, 720.0
AT_ONCE = 3  # tiles that the page requests at the same time
_SERVE = """
import sys
from mast.review.open_review import open_review
from mast.review.serve import serve
from mast.review.server import create_app
review = open_review(sys.argv[1])
say = lambda address: print(address, flush=True)
create = lambda token: create_app(review, token=token, local_only=True)
serve(create, port=0, browser=False, say=say)
"""


def write_noise(path: Path, minutes: float, seed: int) -> None:
    """16-bit mono noise, ten seconds over and over."""
    import soundfile as sf

    block = np.random.default_rng(seed).integers(-3000, 3000, RATE * 10, dtype=np.int16)
    with sf.SoundFile(path, "w", RATE, 1, subtype="PCM_16", format="RF64") as file:
        for _ in range(round(minutes * 6)):
            file.write(block)


@contextmanager
def server(folder: Path) -> Iterator[tuple[httpx.Client, int]]:
    """A review in its own process: a client that has opened its link, and the process id; stopped at the end."""
    import httpx

    process = subprocess.Popen(
        [sys.executable, "-c", _SERVE, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    try:
        link = httpx.URL(process.stdout.readline().strip())
        with httpx.Client(base_url=link.join("/"), timeout=300) as client:
            client.get(link).raise_for_status()
            yield client, process.pid
    finally:
        process.terminate()
        process.wait()


def time_ms(function: Callable[[], Any]) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    function()
    return 1000 * (time.perf_counter() - began)


def summary(milliseconds: list[float]) -> dict[str, float | int]:
    return {
        "n": len(milliseconds),
        "median_ms": round(float(np.median(milliseconds)), 1),
        "p95_ms": round(float(np.percentile(milliseconds, 95)), 1),
    }


def browser_requests(
    minutes: float, size: int, requests: int, rng: np.random.Generator
) -> Iterator[tuple[str, str, str]]:
    """What a browser requests anywhere in a recording: kind, address, and the range of bytes if any."""
    length = minutes * 60

    def picture(span: float, width: int, height: int) -> str:
        start = int(64 * rng.uniform(0, length - span)) / 64  # exact, so that the span is, too
        return (
            f"/api/recordings/1/tile?start_s={start}&end_s={start + span}&low_hz=0&high_hz={RATE / 2}"
            f"&width={width}&height={height}&colours=grey"
        )

    for zoom in range(-3, 10):  # the spans the page draws with: 1/8 s to 512 s
        span = min(2.0**zoom, 0.9 * length)
        for _ in range(requests):
            yield "tile_to_16_s" if zoom <= 4 else "tile_to_512_s", picture(span, 512, 512), ""
    for _ in range(requests):
        yield "strip_to_1_h", picture(min(3600.0, 0.9 * length), 100, 48), ""
    for _ in range(3 * requests):
        first = int(rng.uniform(0, size - 500_000))
        yield "audio_500_kb", "/api/recordings/1/audio", f"bytes={first}-{first + 499_999}"
        start = rng.uniform(0, length - 10)
        band = "low_hz=1000&high_hz=9000"
        yield "clip_3_s", f"/api/recordings/1/clip?start_s={start}&end_s={start + 3}&{band}", ""


def browse(client: httpx.Client, minutes: float, requests: int, seed: int) -> dict[str, Any]:
    """Request tiles at every zoom, ranges of the sound and clips, anywhere in the recording."""
    rng = np.random.default_rng(seed)
    times: dict[str, list[float]] = {}
    size = int(client.head("/api/recordings/1/audio").headers["content-length"])

    def ask(url: str, part: str) -> None:
        client.get(url, headers={"Range": part} if part else {}).raise_for_status()

    for _, url, part in browser_requests(minutes, size, 1, rng):  # the first of each kind loads what it needs
        ask(url, part)
    for kind, url, part in browser_requests(minutes, size, requests, rng):
        times.setdefault(kind, []).append(time_ms(lambda u=url, p=part: ask(u, p)))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in pool.map(lambda one: ask(*one[1:]), list(browser_requests(minutes, size, requests, rng))):
            pass
    return {kind: summary(values) for kind, values in times.items()}


def one_recording(minutes: float, requests: int, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_noise(folder / "S1_20240501_060000.wav", minutes, seed)
        with server(folder) as (client, pid):
            began_mb = peak_mb(pid)
            found = browse(client, minutes, requests, seed)
            return {
                "minutes": minutes,
                "start_mb": round(began_mb),
                "peak_mb": round(peak_mb(pid), 1),
                **found,
            }


def write_detections(folder: Path, recordings: int, events: int, seed: int) -> None:
    """A results folder as ``mast detect`` leaves it; its recordings are made up, and there is no sound."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(seed)
    audio = folder / "audio"
    audio.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"made_with": {"root": str(audio), "threshold": 0.3}}))
    each = events // recordings
    nothing = pa.table({"recording": pa.array([], pa.string())})  # only a mark's metadata are read
    writer = None
    for at in range(0, recordings, 200):
        tables = []
        for k in range(at, min(at + 200, recordings)):
            day, hour = 1 + k % 28, k // 28 % 24
            name = f"S{k % 40:02d}_202405{day:02d}_{hour:02d}0000_{k}.wav"
            start = np.sort(rng.uniform(0, 3500, each))
            low = rng.uniform(100, 9000, each)
            facts = {
                "recording": name, "bytes": 1, "duration_s": 3600.0, "sample_rate": RATE, "site": f"S{k % 40:02d}",
                "datetime": f"2024-05-{day:02d}T{hour:02d}:00:00", "damage": "",
            }  # fmt: skip
            columns = {
                "recording": [name] * each, "start_s": start, "end_s": start + rng.uniform(0.1, 2, each),
                "low_hz": low, "high_hz": low + 1000, "score": rng.uniform(0.3, 1, each), "label": [""] * each,
                "site": [facts["site"]] * each, "datetime": [""] * each, "source": ["detector"] * each,
                "model": ["m"] * each,
            }  # fmt: skip
            table = pa.table(columns)
            mark = folder / "recordings" / f"{name}.parquet"
            mark.parent.mkdir(exist_ok=True)
            pq.write_table(nothing.replace_schema_metadata({b"mast": json.dumps(facts).encode()}), mark)
            (audio / name).touch()
            tables.append(table)
        part = pa.concat_tables(tables)
        writer = writer or pq.ParquetWriter(folder / "detections.parquet", part.schema)
        writer.write_table(part)
    assert writer is not None
    writer.close()
    with open(folder / "embeddings.npy", "wb") as file:
        header = {"descr": "<f2", "fortran_order": False, "shape": (each * recordings, 192)}
        np.lib.format.write_array_header_1_0(file, header)
        for at in range(0, each * recordings, 10_000):
            rows = min(10_000, each * recordings - at)
            file.write(rng.standard_normal((rows, 192), np.float32).astype("<f2").tobytes())


def many_events(recordings: int, events: int, requests: int, seed: int) -> dict[str, Any]:
    """First opening, opening again, lists, queues and decisions."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "detections"
        write_detections(folder, recordings, events, seed)
        began = time.perf_counter()
        with server(folder):
            first_s = time.perf_counter() - began
        began = time.perf_counter()
        with server(folder) as (client, pid):
            again_s = time.perf_counter() - began
            reads = {
                "session": "/api/session",
                "recordings": "/api/recordings?sort=score&limit=100",
                "recordings_filtered": "/api/recordings?site=S03&day=2024-05-04&sort=events",
                "queue_uncertain": "/api/queue?order=uncertain&limit=50",
                "queue_random": "/api/queue?order=random&limit=50",
                "queue_time": "/api/queue?order=time&limit=50",
                "queue_site_hour": "/api/queue?order=uncertain&site=S03&hour=7&limit=50",
                "queue_novel": "/api/queue?order=novel&limit=50",
                "progress": "/api/progress",
                "activity": "/api/activity",
                "events_of_a_recording": "/api/recordings/5/events?start_s=100&end_s=200",
            }
            times: dict[str, list[float]] = {}
            decided = client.get("/api/queue?order=random&limit=500").json()["events"][: 10 * requests]
            for event in decided:
                answer: list[httpx.Response] = []
                body = {"version": event["version"], "status": "accepted"}
                call = lambda e=event, b=body, a=answer: a.append(  # noqa: E731
                    client.patch(f"/api/events/{e['id']}", json=b, headers={"X-Reviewer": "Ana"})
                )
                times.setdefault("decision", []).append(time_ms(call))
                answer[0].raise_for_status()
            for _ in range(requests):
                for name, url in reads.items():
                    times.setdefault(name, []).append(time_ms(lambda u=url: client.get(u).raise_for_status()))
                url = f"/api/events/{decided[0]['id']}/similar?k=12"
                times.setdefault("similar", []).append(
                    time_ms(lambda u=url: client.get(u).raise_for_status())
                )
            return {
                "events": events,
                "recordings": recordings,
                "first_opening_s": round(first_s, 1),
                "opening_again_s": round(again_s, 1),
                "store_mb": round(sum(file.stat().st_size for file in folder.glob("review.sqlite*")) / 2**20),
                "peak_mb": round(
                    peak_mb(pid)
                ),  # including the pages of embeddings.npy that are mapped into memory
                **{f"{name}_request": summary(values) for name, values in times.items()},
            }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", help="JSON file to write")
    parser.add_argument("--short-minutes", type=float, default=SHORT_MINUTES)
    parser.add_argument("--long-minutes", type=float, default=LONG_MINUTES)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--recordings", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=12, help="requests of each kind")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    figures: dict[str, Any] = {"sample_rate": RATE}
    for name, minutes in (("short", args.short_minutes), ("long", args.long_minutes)):
        figures[name] = one_recording(minutes, args.requests, args.seed)
        print(name, json.dumps(figures[name]), flush=True)
    figures["ratio"] = round(figures["long"]["peak_mb"] / figures["short"]["peak_mb"], 3)
    print(
        f"peak memory, {args.long_minutes:g} min over {args.short_minutes:g} min: {figures['ratio']}",
        flush=True,
    )
    figures["many"] = many_events(args.recordings, args.events, args.requests, args.seed)
    print("many", json.dumps(figures["many"]), flush=True)
    figures["load_average"] = [
        round(x, 1) for x in os.getloadavg()
    ]  # other work on the machine slows all of this
    if args.out:
        data = {
            "sound": f"16-bit noise, {RATE} Hz, {args.long_minutes:g} and {args.short_minutes:g} min",
            "detections": f"{args.events} made-up boxes in {args.recordings} recordings, embeddings of 192 numbers",
        }
        write_result(args.out, figures, seed=args.seed, data=data)
        print(f"written to {args.out}")


if __name__ == "__main__":
    main()
