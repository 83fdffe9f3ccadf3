"""Nobody but the owner of the token, at this machine, on the page itself, reads a folder or starts a command."""

from __future__ import annotations

import stat
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import pytest
from app_folders import TOKEN, client, use_slow_program, write_sound
from fastapi.testclient import TestClient

from mast.app.pages import folder_key
from mast.app.window import create_window
from mast.review.serve import _private_page


@pytest.fixture
def sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_slow_program(monkeypatch, tmp_path)
    return write_sound(tmp_path / "wood")


def _requests(sound: Path) -> list[tuple[str, str]]:
    reads = ["start", f"folders?path={sound}", f"contents?path={sound}", f"work?path={sound}"]
    reads += [f"picture?path={sound}&file=N1_20240501_050000.wav", f"page?folder={sound}&which=found"]
    writes = ["find", "stop", "resume", "summarize", "learn", "adapt"]
    return [
        ("GET", "/"),
        ("GET", "/window/app.js"),
        ("GET", f"/review/{folder_key(sound)}/api/session"),
        ("GET", f"/review/{folder_key(sound)}/api/learner"),
        ("GET", f"/review/{folder_key(sound)}/api/learner/plan"),
        ("POST", f"/review/{folder_key(sound)}/api/learner/apply"),
        ("POST", f"/review/{folder_key(sound)}/api/learner/undo"),
        *(("GET", f"/api/{url}") for url in reads),
        *(("POST", f"/api/{url}") for url in writes),
    ]


def test_without_the_token_nobody_gets_anything(sound: Path) -> None:
    """Another user of this machine reaches the port, and does not know the token."""
    other = TestClient(create_window(token=TOKEN), base_url="http://127.0.0.1:8764")
    for method, url in _requests(sound):
        answer = other.request(
            method, url, json={"path": str(sound), "sought": "birds"} if method == "POST" else None
        )
        assert answer.status_code == 403, url
        assert str(sound) not in answer.text
    assert not (sound.parent / "wood-mast").exists()


def test_a_name_of_another_machine_does_not_get_in_even_with_the_token(sound: Path) -> None:
    """A web page that points its own name at 127.0.0.1."""
    rebound = TestClient(create_window(token=TOKEN), base_url="http://evil.example:8764")
    rebound.headers["Authorization"] = f"Bearer {TOKEN}"
    for method, url in _requests(sound):
        assert rebound.request(method, url).status_code == 403, url


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_pages_start_nothing(sound: Path, headers: dict[str, str]) -> None:
    page = client()
    for method, url in _requests(sound):
        if method == "POST":
            answer = page.request(method, url, headers=headers, json={"path": str(sound), "sought": "birds"})
            assert answer.status_code == 403, url
            assert "access-control-allow-origin" not in answer.headers
    assert not (sound.parent / "wood-mast").exists()


def test_a_form_of_another_page_starts_nothing(sound: Path) -> None:
    """Forms can be sent without asking; they cannot send JSON."""
    answer = client().post("/api/find", data={"path": str(sound), "sought": "birds"})
    assert answer.status_code == 400
    assert not (sound.parent / "wood-mast").exists()


def test_the_cookie_is_not_sent_by_other_sites_and_is_of_this_port_alone() -> None:
    browser = TestClient(create_window(token=TOKEN), base_url="http://127.0.0.1:8764")
    first = browser.get(f"/?token={TOKEN}")
    assert first.status_code == 200
    assert "SameSite=Strict" in first.headers["set-cookie"]
    assert "HttpOnly" in first.headers["set-cookie"]
    assert first.headers["set-cookie"].startswith("mast_token_8764=")
    assert browser.get("/api/start").status_code == 200
    assert browser.get("/api/start", headers={"Host": "127.0.0.1:9999"}).status_code == 403


def test_only_recordings_inside_the_folder_are_shown(sound: Path) -> None:
    outside = write_sound(sound.parent / "secret") / "N1_20240501_050000.wav"
    (sound / "link.wav").symlink_to(outside)
    (sound / "notes.txt").write_text("")
    page = client()
    for name in ("../secret/N1_20240501_050000.wav", str(outside), "link.wav", "notes.txt"):
        answer = page.get("/api/picture", params={"path": str(sound), "file": name})
        assert answer.status_code == 422, name
    assert page.get(f"/api/picture?path={sound}&file=N1_20240501_050000.wav").status_code == 200


def test_only_reports_are_shown_as_pages_and_they_may_do_nothing(sound: Path) -> None:
    (sound / "summary.html").write_text("<script>fetch('/api/start')</script>")
    (sound / "secret.html").write_text("")
    page = client()
    shown = page.get(f"/api/page?folder={sound}&which=found")
    assert shown.status_code == 200
    policy = shown.headers["content-security-policy"]
    assert "sandbox" in policy
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    for which in ("secret.html", "../secret", "report"):
        assert page.get(f"/api/page?folder={sound}&which={which}").status_code == 400


def test_the_token_is_not_among_the_words_a_browser_is_started_with() -> None:
    address = _private_page(f"http://127.0.0.1:8764/?token={TOKEN}")
    assert TOKEN not in address
    page = Path(url2pathname(unquote(urlsplit(address).path)))
    assert f"?token={TOKEN}" in page.read_text()
    assert stat.S_IMODE(page.parent.stat().st_mode) == 0o700
