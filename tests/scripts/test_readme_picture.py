"""Pictures of real sound: each is there, small, and named with author, licence and link wherever it is shown."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("readme_picture", ROOT / "scripts" / "readme_picture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_gallery_is_small(script: ModuleType) -> None:
    names = [*(sound.picture for sound in script.SOUNDS if sound.width == script.NARROW), *script.SIMULATED]
    for name in names:
        assert (ROOT / "docs" / "images" / f"{name}.png").stat().st_size < 60_000, name


def test_whoever_recorded_a_sound_is_named_wherever_it_is_shown(script: ModuleType) -> None:
    for sound in script.SOUNDS:
        shown = [page for page in PAGES if f"images/{sound.picture}.png" in page.read_text(encoding="utf-8")]
        assert shown, sound.picture
        for page in shown:
            text = " ".join(page.read_text(encoding="utf-8").split())
            below = text[text.index(f"images/{sound.picture}.png") :][:900]
            for needed in (sound.recording, sound.author, sound.licence, sound.link):
                assert needed in below, f"{page.name}, {sound.picture}: {needed}"


def test_a_recording_that_is_not_there_is_skipped(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(script.pictures(tmp_path, ["gallery_argus"])) == []
    said = capsys.readouterr().out
    assert said.startswith("gallery_argus.png: skipped, GreatArgus_3 (https://github.com/")
    assert said.count("\n") == 1
