"""The site: built without a warning, complete, and asking no other host for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from doc_blocks import DOCS, ROOT

pytest.importorskip("mkdocs", reason="the extra docs is not installed")
pytest.importorskip("material", reason="the extra docs is not installed")


class Page(HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        if "id" in given:
            self.anchors.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(given.get("href", ""))
        elif "src" in given:
            self.loads.append(given["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "--site-dir", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "WARNING" not in said, said
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def test_every_page_is_built(pages: dict[Path, Page]) -> None:
    assert {path.stem for path in pages} >= {page.stem for page in DOCS.glob("*.md")}


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        remote = [load for load in page.loads if urlsplit(load).netloc]
        assert not remote, f"{path.name} loads {remote[0]}"
    for path in site.rglob("*.css"):
        remote = re.findall(
            r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)", path.read_text(encoding="utf-8")
        )
        assert not remote, f"{path.name} loads {remote[0]}"


def test_every_link_leads_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        if path.stem == "404":
            continue  # its links are for a server
        for link in [*page.links, *page.loads]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or link in ("", "#", "."):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), f"{path.name}: {link} leads nowhere"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].anchors, f"{path.name}: no place {link}"


def test_links_between_files_of_the_repository_lead_somewhere() -> None:
    for file in [*ROOT.glob("*.md"), *DOCS.glob("*.md")]:
        text = re.sub(r"```.*?```", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" not in link and not link.startswith(("#", "mailto:")):
                assert (file.parent / link.split("#")[0]).exists(), f"{file.name}: {link} leads nowhere"


def test_every_picture_is_shown_somewhere() -> None:
    texts = [file.read_text(encoding="utf-8") for file in [*ROOT.glob("*.md"), *DOCS.glob("*.md")]]
    for picture in (DOCS / "images").iterdir():
        assert any(f"images/{picture.name}" in text for text in texts), f"no page shows {picture.name}"


def test_the_reader_of_docstrings_understands_ours() -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from docs_docstrings import as_markdown
    finally:
        sys.path.pop(0)
    text = "See :func:`~mast.events.as_events` and ``x``::\n\n    code"
    assert as_markdown(text) == "See `as_events` and ``x``:\n\n    code"
    assert as_markdown("Add.\n\n>>> 1 + 1\n2\n\nMore.") == "Add.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore."


def test_a_link_out_of_the_docs_becomes_a_name(caplog: pytest.LogCaptureFixture) -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from docs_links import on_page_markdown
    finally:
        sys.path.pop(0)

    class File:
        src_uri = "page.md"

    class Shown:
        file = File

    text = "[scan](../results/scan.json), [scan.json](../results/scan.json), [other](formats.md)"
    assert (
        on_page_markdown(text, page=Shown)
        == "scan (`results/scan.json`), `results/scan.json`, [other](formats.md)"
    )
    assert not caplog.records
    on_page_markdown("[gone](../results/gone.json)", page=Shown)
    assert "leads nowhere" in caplog.text


def test_options_and_intervals_stay_on_one_line() -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from docs_links import on_page_content
    finally:
        sys.path.pop(0)
    whole = '<span class="whole">{}</span>'.format
    assert on_page_content("<code>mast app --no-browser</code>") == (
        f"<code>mast app {whole('--no-browser')}</code>"
    )
    assert on_page_content('<code><span class="k">in-place</span></code> --out') == (
        '<code><span class="k">in-place</span></code> --out'
    )
    cell = r"<td>0.38 (0.22–0.50), <code>a\|b</code></td>"
    assert on_page_content(cell) == f"<td>0.38 {whole('(0.22–0.50)')}, <code>a|b</code></td>"
