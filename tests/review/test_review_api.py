"""The page's requests, as a browser sends them."""

from __future__ import annotations

import errno
import io
import json
import sqlite3
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
import soundfile as sf
from review_folders import review_client, small_results, write_tones
from starlette.testclient import TestClient

from mast.annotations import FORMATS
from mast.review.open_review import open_review
from mast.review.safety import MAX_BODY_BYTES
from mast.review.sound import open_wav

ANA = {"X-Reviewer": quote("Ana Müller")}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    root = tmp_path_factory.mktemp("api")
    folder = small_results(root)
    (root / "audio" / "broken.wav").write_bytes(b"")
    (folder / "failures.csv").write_text("file,outcome,reason\nbroken.wav,failed,the file is empty\n")
    with review_client(open_review(folder), raise_server_exceptions=False) as client:
        yield client


def rid(client: TestClient, name: str) -> int:
    items = client.get("/api/recordings", params={"search": name}).json()["items"]
    assert len(items) == 1
    return int(items[0]["id"])


def test_the_session(client: TestClient) -> None:
    session = client.get("/api/session").json()
    assert session["title"] == "detections"
    assert session["formats"] == list(FORMATS)
    assert (session["recordings"], session["has_embeddings"]) == (4, True)


def test_the_whole_way_of_an_event(client: TestClient) -> None:
    event = client.get("/api/queue", params={"order": "uncertain", "limit": 1}).json()["events"][0]
    url = f"/api/events/{event['id']}"
    assert client.get(url).json() == event
    done = client.patch(url, json={"version": event["version"], "status": "accepted"}, headers=ANA)
    assert done.status_code == 200
    assert done.json()["reviewer"] == "Ana Müller"
    late = client.patch(url, json={"version": event["version"], "label": "x"}, headers={"X-Reviewer": "Ben"})
    assert late.status_code == 409
    assert late.json()["event"] == done.json()
    undone = client.post("/api/undo", headers=ANA).json()
    assert undone["done"]
    assert undone["events"][0]["status"] == "open"
    assert client.post("/api/redo", headers=ANA).json()["events"][0]["status"] == "accepted"
    gone = client.delete(url, params={"version": undone["events"][0]["version"] + 1}, headers=ANA)
    assert gone.json()["status"] == "deleted"
    shown = client.get(f"/api/recordings/{event['recording_id']}/events").json()["events"]
    assert event["id"] not in [e["id"] for e in shown]


def test_names_that_trip_urls_and_shells(client: TestClient) -> None:
    number = rid(client, "100 % Grünfink #1?")
    item = client.get(f"/api/recordings/{number}").json()
    assert item["name"] == "site b/100 % Grünfink #1?.wav"
    tile = client.get(f"/api/recordings/{number}/tile", params={"start_s": 0, "end_s": 4, "high_hz": 8000})
    assert (tile.status_code, tile.headers["content-type"]) == (200, "image/png")
    drawn = client.post(
        f"/api/recordings/{number}/events",
        json={"start_s": 1, "end_s": 2, "low_hz": 100, "high_hz": 900, "label": "Grünfink 100 % 🐦"},
        headers=ANA,
    ).json()
    assert drawn["label"] == "Grünfink 100 % 🐦"
    archive = zipfile.ZipFile(io.BytesIO(client.get("/api/export?format=raven").content))
    tables = [n for n in archive.namelist() if n.endswith("selections.txt") and "Grünfink" in n]
    assert "Grünfink 100 % 🐦" in archive.read(tables[0]).decode()


def test_spans(client: TestClient) -> None:
    number = rid(client, "B_3")
    url = f"/api/recordings/{number}/reviewed"
    spans = client.post(url, json={"start_s": 1, "end_s": 3.5, "reviewed": True}, headers=ANA).json()
    assert spans == {"reviewed_spans": [[1.0, 3.5]]}
    assert client.get(f"/api/recordings/{number}").json()["reviewed_spans"] == [[1.0, 3.5]]
    assert client.get("/api/progress").json()["spans_s"] == 2.5


def test_every_format_can_be_downloaded(client: TestClient) -> None:
    for name in FORMATS:
        answer = client.get("/api/export", params={"format": name})
        assert answer.headers["content-type"] == "application/zip"
        assert zipfile.ZipFile(io.BytesIO(answer.content)).testzip() is None
    assert client.get("/api/export", params={"format": "../../etc"}).status_code == 400


@pytest.mark.parametrize(
    "folder", ["../out", "a/b", "..", ".hidden", "a\\b", "x" * 90, "a\0b", "trailing.", 3]
)
def test_exports_stay_in_their_folder(client: TestClient, folder: Any) -> None:
    answer = client.post("/api/export", json={"format": "csv", "folder": folder}, headers=ANA)
    assert answer.status_code == 400


def test_tiles_are_cached_and_named(client: TestClient) -> None:
    url = f"/api/recordings/{rid(client, 'A_1')}/tile?start_s=0&end_s=4&low_hz=0&high_hz=8000&width=64&height=32"
    first = client.get(url)
    assert first.content.startswith(b"\x89PNG")
    assert "max-age" in first.headers["cache-control"]
    again = client.get(url, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get(url + "&floor_db=-80").headers["etag"] != first.headers["etag"]
    assert client.get(url).content == first.content


@pytest.mark.parametrize(
    "query",
    [
        "",
        "start_s=0&end_s=0",
        "start_s=1&end_s=0",
        "start_s=0&end_s=4000",
        "start_s=nan&end_s=1",
        "start_s=0&end_s=inf",
        "start_s=0&end_s=1&width=4096",
        "start_s=0&end_s=1&height=0",
        "start_s=0&end_s=1&low_hz=5&high_hz=5",
        "start_s=0&end_s=1&colours=jet",
        "start_s=0&end_s=1&range_db=0",
        "start_s=-1&end_s=1",
        "start_s=x&end_s=1",
        "start_s=0&end_s=1&high_hz=1e300",
    ],
)
def test_pictures_of_nothing(client: TestClient, query: str) -> None:
    answer = client.get(f"/api/recordings/{rid(client, 'A_1')}/tile?{query}")
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"}


@pytest.mark.parametrize(
    "query",
    [
        "start_s=0&end_s=61",
        "start_s=2&end_s=1",
        "start_s=0&end_s=1&speed=0.01",
        "end_s=1",
        "start_s=0&end_s=1&low_hz=-9&high_hz=-3",
        "start_s=0&end_s=1&high_hz=-1",
        "start_s=0&end_s=1&low_hz=1e300",
        "start_s=nan&end_s=1",
        "start_s=-inf&end_s=1",
    ],
)
def test_clips_of_nothing(client: TestClient, query: str) -> None:
    assert client.get(f"/api/recordings/{rid(client, 'A_1')}/clip?{query}").status_code == 400


def test_a_clip_plays(client: TestClient) -> None:
    answer = client.get(
        f"/api/recordings/{rid(client, 'A_1')}/clip?start_s=0&end_s=2&low_hz=500&high_hz=2000&speed=0.5"
    )
    sound, rate = sf.read(io.BytesIO(answer.content))
    assert len(sound) / rate == pytest.approx(4.0, abs=0.01)


def test_byte_ranges_are_slices(client: TestClient) -> None:
    url = f"/api/recordings/{rid(client, 'A_1')}/audio"
    whole = client.get(url)
    assert (whole.status_code, whole.headers["accept-ranges"]) == (200, "bytes")
    size = len(whole.content)
    assert int(whole.headers["content-length"]) == size == 44 + 2 * 6 * 16_000
    for header, first, stop in (
        ("bytes=0-99", 0, 100),
        ("bytes=1001-", 1001, size),
        ("bytes=-77", size - 77, size),
    ):
        part = client.get(url, headers={"Range": header})
        assert part.status_code == 206
        assert part.content == whole.content[first:stop]
        assert part.headers["content-range"] == f"bytes {first}-{stop - 1}/{size}"
    beyond = client.get(url, headers={"Range": f"bytes={size}-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{size}")
    head = client.head(url)
    assert (head.status_code, head.content) == (200, b"")


def test_broken_recordings_answer_with_a_sentence(client: TestClient) -> None:
    number = rid(client, "broken")
    for what in ("tile?start_s=0&end_s=1", "clip?start_s=0&end_s=1", "audio"):
        answer = client.get(f"/api/recordings/{number}/{what}")
        assert answer.status_code == 422
        assert "0 bytes" in answer.json()["error"]
        assert "/tmp" not in answer.json()["error"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b"null",
        b'"text"',
        b'{"version": 0, "start_s": NaN}',
        b'{"version": 0, "start_s": Infinity}',
        b'{"version": 0, "start_s": 1e999}',
        b'{"version": 0, "label": "\\ud800"}',
        b'{"version": 0, "label": {"a": 1}}',
        b'{"version": 0, "status": ["open"]}',
        b'{"version": 0, "\\ud800": 1}',
        b'{"version": 1e3}',
        b'{"version": ' + b"9" * 5000 + b"}",
        b"[" * 30_000,
        b'{"a":' * 10_000,
        b"\xff\xfe",
    ],
)
def test_hostile_bodies_are_refused(client: TestClient, body: bytes) -> None:
    event = client.get("/api/queue?order=random&limit=1").json()["events"][0]
    headers = {**ANA, "Content-Type": "application/json"}
    for method, url in (
        ("PATCH", f"/api/events/{event['id']}"),
        ("POST", f"/api/recordings/{event['recording_id']}/events"),
        ("POST", f"/api/recordings/{event['recording_id']}/reviewed"),
    ):
        answer = client.request(method, url, content=body, headers=headers)
        assert answer.status_code in (400, 409), answer.text
        assert isinstance(answer.json()["error"], str)
    assert client.get(f"/api/events/{event['id']}").json() == event


def test_large_bodies_are_refused(client: TestClient) -> None:
    headers = {**ANA, "Content-Type": "application/json"}
    large = json.dumps({"label": "x" * MAX_BODY_BYTES}).encode()
    assert client.post("/api/undo", content=large, headers=headers).status_code == 413

    def pieces() -> Iterator[bytes]:  # without saying how much will come
        for _ in range(40):
            yield b" " * 4096

    url = "/api/recordings/1/events"
    assert client.post(url, content=pieces(), headers=headers).status_code == 413


@pytest.mark.parametrize("name", ["", " ", "x" * 61, quote("a\x00b"), quote("a\u202eb"), "%ff%fe" * 40])
def test_writes_need_a_name(client: TestClient, name: str) -> None:
    answer = client.post("/api/undo", headers={"X-Reviewer": name})
    assert answer.status_code == 400
    assert "name" in answer.json()["error"]


def test_plain_forms_are_not_taken(client: TestClient) -> None:
    """What a form on another page could send without asking."""
    body = '{"start_s": 1, "end_s": 2, "low_hz": 1, "high_hz": 2}'
    headers = {**ANA, "Content-Type": "text/plain"}
    assert client.post("/api/recordings/1/events", content=body, headers=headers).status_code == 400


@pytest.mark.parametrize(
    "url",
    [
        "/api/recordings/999",
        "/api/recordings/999/events",
        "/api/recordings/999/tile?start_s=0&end_s=1",
        "/api/recordings/999/audio",
        *(
            f"/api/recordings/{number}{end}"
            for number in (2**63, 10**400, -1)
            for end in ("", "/events", "/audio")
        ),
        "/api/events/nothing",
        "/api/events/nothing/similar",
        "/api/events/" + "%00",
        "/api/nothing",
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/static/..%2fserver.py",
        "/static/nothing.js",
        "/docs",
        "/openapi.json",
        "/etc/passwd",
    ],
)
def test_what_is_not_there(client: TestClient, url: str) -> None:
    answer = client.get(url)
    assert answer.status_code == 404
    assert isinstance(answer.json()["error"], str)


@pytest.mark.parametrize(
    "query",
    [
        "order=best",
        "limit=0",
        "limit=99999",
        "min_score=abc",
        "min_score=nan",
        "min_score=-inf",
        "hour=abc",
        "status=maybe",
        "site=" + "x" * 400,
    ],
)
def test_queues_that_make_no_sense(client: TestClient, query: str) -> None:
    assert client.get(f"/api/queue?{query}").status_code == 400


def test_injection_is_only_text(client: TestClient) -> None:
    for text in ("' OR 1=1 --", '"; DROP TABLE events; --', "%", "_"):
        assert client.get("/api/recordings", params={"site": text}).json()["total"] == 0
        assert client.get("/api/queue", params={"site": text}).json()["total"] == 0
    assert (
        client.get("/api/recordings", params={"search": "%"}).json()["total"] == 1
    )  # the one with % in its name


def test_empty_filters_ask_for_everything(client: TestClient) -> None:
    plain = client.get("/api/recordings").json()
    assert client.get("/api/recordings?site=&day=&hour=&min_score=&status=&search=").json() == plain


def test_a_bug_tells_the_browser_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mast.review import listing

    def broken(db: object) -> dict[str, Any]:
        raise RuntimeError("secret /home/somebody")

    monkeypatch.setattr(listing, "count_by_hour", broken)
    client = review_client(open_review(small_results(tmp_path)), raise_server_exceptions=False)
    answer = client.get("/api/activity")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text


def test_tiles_in_many_threads_are_the_same_tiles(client: TestClient) -> None:
    from concurrent.futures import ThreadPoolExecutor

    number = rid(client, "A_1")
    urls = [
        f"/api/recordings/{number}/tile?start_s={k / 2}&end_s={k / 2 + 1}&high_hz=8000&width=32&height=16&floor_db=-70"
        for k in range(10)
    ]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda url: client.get(url).content, urls * 3))
    assert found[:10] == found[10:20] == found[20:]
    assert len(set(found)) > 5


def test_a_recording_replaced_under_the_server_is_seen(client: TestClient, tmp_path: Path) -> None:
    folder = small_results(tmp_path, recordings=1)
    own = review_client(open_review(folder))
    url = "/api/recordings/1/tile?start_s=0&end_s=4&high_hz=8000"
    before = own.get(url)
    write_tones(tmp_path / "audio" / "A_1.wav", 9.0, seed=7)
    after = own.get(url, headers={"If-None-Match": before.headers["etag"]})
    assert after.status_code == 200
    assert after.content != before.content
    assert np.isclose(len(own.get("/api/recordings/1/audio").content), 44 + 2 * 9 * 16_000)


@pytest.mark.parametrize("number", [2**63, 10**400, -1])
def test_decisions_about_what_cannot_be_there(client: TestClient, number: int) -> None:
    box = {"start_s": 0, "end_s": 1, "low_hz": 10, "high_hz": 99}
    for path, body in (("events", box), ("reviewed", {"start_s": 0, "end_s": 1, "reviewed": True})):
        answer = client.post(f"/api/recordings/{number}/{path}", json=body, headers=ANA)
        assert answer.status_code in (400, 404)
        assert len(answer.json()["error"]) < 500
    assert client.delete(f"/api/events/none?version={number}", headers=ANA).status_code in (400, 404)


def test_boxes_beyond_all_measure_where_the_length_is_unknown(tmp_path: Path) -> None:
    """Without a length nothing is cut to it, and the clock must not run over."""
    folder = small_results(tmp_path, recordings=1)
    review = open_review(folder)
    with review.store.writing() as db:
        db.execute("UPDATE recordings SET duration_s = NULL, sample_rate = NULL")
    client = review_client(review, raise_server_exceptions=False)
    for box in (
        {"start_s": 1e15, "end_s": 1e15 + 1, "low_hz": 0, "high_hz": 9},
        {"start_s": 0, "end_s": 10**400, "low_hz": 0, "high_hz": 9},
        {"start_s": 0, "end_s": 1, "low_hz": -5, "high_hz": -1},
    ):
        answer = client.post("/api/recordings/1/events", json=box, headers=ANA)
        assert answer.status_code == 400, answer.text
    given = {"start_s": 0, "end_s": 1e300, "reviewed": True}
    assert client.post("/api/recordings/1/reviewed", json=given, headers=ANA).status_code == 400


def test_exports_to_one_name_at_the_same_time(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    folder = small_results(tmp_path, recordings=1)
    with review_client(open_review(folder), raise_server_exceptions=False) as client:

        def export(_: int) -> int:
            given = {"format": "csv", "folder": "mine"}
            return client.post("/api/export", json=given, headers=ANA).status_code

        with ThreadPoolExecutor(6) as pool:
            assert set(pool.map(export, range(18))) == {200}
    assert (folder / "review_export" / "mine" / "boxes.csv").is_file()
    assert [path.name for path in (folder / "review_export").iterdir() if path.suffix == ".part"] == []


BOX = {"start_s": 0.5, "end_s": 1.5, "low_hz": 100, "high_hz": 900, "label": "wren"}


def test_a_full_disk_is_said_and_the_same_decision_is_taken_later(tmp_path: Path) -> None:
    review = open_review(small_results(tmp_path, recordings=1, events=3))
    client = review_client(review, raise_server_exceptions=False)
    writer = review.store._writer
    writer.execute(f"PRAGMA max_page_count = {writer.execute('PRAGMA page_count').fetchone()[0]}")

    def add() -> Any:
        return client.post("/api/recordings/1/events", json=BOX, headers=ANA)

    taken = 0
    while (answer := add()).status_code == 200:
        taken += 1
        assert taken < 1000
    for refused in (answer, add()):
        assert refused.status_code == 507
        assert refused.json()["error"].endswith("review.sqlite: the disk is full; free some space")
    assert len(client.get("/api/recordings/1/events").json()["events"]) == 3 + taken  # reading goes on
    writer.execute("PRAGMA max_page_count = 1000000")
    assert add().status_code == 200
    assert len(client.get("/api/recordings/1/events").json()["events"]) == 3 + taken + 1


def test_a_decision_that_fails_at_its_very_end_does_not_block_the_next(tmp_path: Path) -> None:
    review = open_review(small_results(tmp_path, recordings=1, events=3))
    client = review_client(review, raise_server_exceptions=False)
    real = review.store._writer

    class Full:
        """A connection whose disk is full when it comes to the last step."""

        in_transaction = property(lambda self: real.in_transaction)

        def execute(self, statement: str, *more: Any) -> Any:
            if statement == "COMMIT":
                raise OSError(errno.ENOSPC, "No space left on device")
            return real.execute(statement, *more)

    review.store._writer = Full()  # type: ignore[assignment]
    assert client.post("/api/recordings/1/events", json=BOX, headers=ANA).status_code == 507
    review.store._writer = real
    assert client.post("/api/recordings/1/events", json=BOX, headers=ANA).status_code == 200
    assert len(client.get("/api/recordings/1/events").json()["events"]) == 4


def test_a_store_that_another_program_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mast.review.store._BUSY_MS", 50)
    folder = small_results(tmp_path, recordings=1)
    review = open_review(folder)
    client = review_client(review, raise_server_exceptions=False)
    other = sqlite3.connect(folder / "review.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    answer = client.post("/api/recordings/1/events", json=BOX, headers=ANA)
    assert answer.status_code == 507
    assert "in use by another program" in answer.json()["error"]
    with pytest.raises(OSError, match=r"review\.sqlite"):  # and so is a second `mast review`, at once
        open_review(folder)
    other.execute("ROLLBACK")
    other.close()
    assert client.post("/api/recordings/1/events", json=BOX, headers=ANA).status_code == 200


def test_a_recording_deleted_while_it_is_heard(tmp_path: Path) -> None:
    folder = small_results(tmp_path, recordings=1)
    review = open_review(folder)
    client = review_client(review)
    path = review.path_of(1)
    wav = open_wav(path)
    path.unlink()
    assert (
        b"".join(wav.bytes_between(0, wav.size))[44:].count(0) == wav.size - 44
    )  # silence, as long as was told
    for what in ("tile?start_s=0&end_s=1", "clip?start_s=0&end_s=1", "audio"):
        answer = client.get(f"/api/recordings/1/{what}")
        assert answer.status_code == 422
        assert path.name in answer.json()["error"]
    assert client.post("/api/recordings/1/events", json=BOX, headers=ANA).status_code == 200
