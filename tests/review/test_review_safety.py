"""Who may ask, and what the browser is forbidden."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from review_folders import TOKEN, review_client, small_results
from starlette.testclient import TestClient

from mast.jobs import Jobs
from mast.review.open_review import Review, open_review
from mast.review.requests_media import media_routes
from mast.review.requests_read import reading_routes
from mast.review.requests_summary import summary_routes
from mast.review.requests_write import writing_routes
from mast.review.safety import is_loopback
from mast.review.server import STATIC, create_app

PRIVATE = "this page is private; open the link that mast printed in the terminal when it was started"


@pytest.fixture(scope="module")
def review(tmp_path_factory: pytest.TempPathFactory) -> Review:
    return open_review(small_results(tmp_path_factory.mktemp("safety"), recordings=1, events=3))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8765", "localhost:1", "[::1]:8765", "LOCALHOST"])
def test_this_machine_may_ask(review: Review, host: str) -> None:
    client = review_client(review)
    assert client.get("/api/session", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8765",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "",
        "10.0.0.7",
        "[::2]",
    ],
)
def test_a_page_that_points_its_name_here_does_not_get_in(review: Review, host: str) -> None:
    client = review_client(review)
    for url in ("/", "/api/session", "/static/index.html"):
        assert client.get(url, headers={"Host": host}).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_pages_cannot_write(review: Review, headers: dict[str, str]) -> None:
    client = review_client(review)
    for method, url in (
        ("POST", "/api/undo"),
        ("DELETE", "/api/events/x?version=0"),
        ("PATCH", "/api/events/x"),
    ):
        answer = client.request(method, url, headers={"X-Reviewer": "A", **headers}, json={})
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


def test_the_page_itself_can_write(review: Review) -> None:
    client = review_client(review)
    headers = {"X-Reviewer": "A", "Origin": "http://127.0.0.1:8765", "Sec-Fetch-Site": "same-origin"}
    assert client.post("/api/undo", headers=headers).json()["done"] is False


def test_every_answer_forbids_other_hosts(review: Review) -> None:
    client = review_client(review)
    for url in ("/", "/api/session", "/api/nothing", "/static/nothing"):
        headers = client.get(url).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert "http" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cross-origin-resource-policy"] == "same-origin"


def every_request(review: Review) -> list[tuple[str, str]]:
    """Methods and addresses of all that the server can be asked for."""
    routers = [reading_routes(review, home=""), writing_routes(review), media_routes(review)]
    routes: list[Any] = [
        route for router in (*routers, summary_routes(review, Jobs())) for route in router.routes
    ]
    places = [(method, f"/api{route.path}") for route in routes for method in route.methods]
    files = [("GET", f"/static/{path.name}") for path in STATIC.iterdir()]
    return [("GET", "/"), *files, *((method, re.sub(r"{\w+}", "1", path)) for method, path in places)]


@pytest.mark.parametrize("local_only", [True, False])
def test_without_the_token_nothing(review: Review, local_only: bool) -> None:
    """Another user of this machine reaches the port, and so may other computers."""
    app = create_app(review, token=TOKEN, local_only=local_only)
    host = "127.0.0.1:8765" if local_only else "field-station:80"
    client = TestClient(app, base_url=f"http://{host}")
    requests = every_request(review)
    assert {"/api/recordings/1/tile", "/api/recordings/1/audio"} < {path for _, path in requests}
    for method, url in requests:
        answer = client.request(method, url, headers={"X-Reviewer": "A"}, json={})
        assert answer.status_code == 403, (method, url)
        assert method == "HEAD" or answer.json() == {"error": PRIVATE}, (method, url)
    for wrong in (
        {"Authorization": "Bearer wrong"},
        {"Authorization": TOKEN},
        {"Cookie": "mast_token=wrong"},
        {"Cookie": "x;=;"},
    ):
        assert client.get("/api/session", headers=wrong).status_code == 403
    # only the first page takes it from its address
    assert client.get(f"/api/session?token={TOKEN}").status_code == 403
    assert client.get("/?token=wrong").status_code == 403
    assert client.get("/?token=%C3%BC").status_code == 403


def test_a_person_is_told_in_plain_text(review: Review) -> None:
    client = TestClient(create_app(review, token=TOKEN, local_only=True), base_url="http://127.0.0.1:8765")
    answer = client.get("/", headers={"Accept": "text/html,application/xhtml+xml"})
    assert (answer.status_code, answer.text) == (403, f"mast: {PRIVATE}.")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


def test_nothing_is_guarded_by_an_empty_token(review: Review) -> None:
    with pytest.raises(AssertionError, match="every user"):
        create_app(review, token="", local_only=True)


def test_the_token_opens_by_header_or_cookie(review: Review) -> None:
    app = create_app(review, token=TOKEN, local_only=False)
    plain = TestClient(app, base_url="http://field-station")
    assert plain.get("/api/session", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    first = plain.get(f"/?token={TOKEN}&recording=3")
    assert first.status_code == 200
    assert first.text.endswith('<meta http-equiv="refresh" content="0; url=/?recording=3">')
    assert first.headers["cache-control"] == "no-store"
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert plain.get("/api/session").status_code == 200  # the client keeps the cookie
    assert plain.post("/api/undo", headers={"X-Reviewer": "A"}).status_code == 200
    assert (
        plain.post("/api/undo", headers={"X-Reviewer": "A", "Origin": "http://evil.example"}).status_code
        == 403
    )


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("127.1.2.3", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
    ],
)
def test_what_is_reached_from_here_only(host: str, local: bool) -> None:
    assert is_loopback(host) is local


def test_the_pages_files_name_no_other_host() -> None:
    """The page works on a boat: nothing in it comes from elsewhere."""
    for path in Path(STATIC).rglob("*"):
        if path.suffix in (".html", ".js", ".css"):
            text = path.read_text(encoding="utf-8").replace("http://www.w3.org/", "")
            assert "https://" not in text, path.name
            assert "http://" not in text, path.name
