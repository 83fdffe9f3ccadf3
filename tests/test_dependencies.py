"""What mast imports is declared: a plain installation can run every command."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# where a package is not called what it is imported as
IMPORTED_AS = {
    "pillow": "PIL",
    "scikit-learn": "sklearn",
    "scikit-maad": "maad",
    "umap-learn": "umap",
    "ultralytics-opencv-headless": "ultralytics",
}
# behind an option or a command that names its extra where the package is missing
BY_EXTRA = {
    "transformers": "baselines",
    "ultralytics": "yolo",
    "ray": "ray",
    "datasets": "birdset",
    "ai_edge_litert": "birdnet",
    "onnx": "export",
}
STUDIES_BY_EXTRA = {"umap": "studies", "maad": "peers", "bambird": "peers"}


def declared(requirements: list[str]) -> set[str]:
    names = [re.split(r"[^\w.-]", line, maxsplit=1)[0].lower() for line in requirements]
    return {IMPORTED_AS.get(name, name.replace("-", "_")) for name in names}


def imports(package: str) -> Iterator[tuple[str, Path]]:
    """Every package from elsewhere that is imported anywhere in this one, and the file that does."""
    for path in sorted((ROOT / "src" / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_module":
                names = [word.value for word in node.args if isinstance(word, ast.Constant)]  # type: ignore[misc]
            for name in {name.partition(".")[0] for name in names}:
                if name not in sys.stdlib_module_names | {"mast", "mast_studies"}:
                    yield name, path


@pytest.mark.parametrize(
    ("package", "by_extra"), [("mast", BY_EXTRA), ("mast_studies", BY_EXTRA | STUDIES_BY_EXTRA)]
)
def test_every_import_is_declared(package: str, by_extra: dict[str, str]) -> None:
    plain = declared(PROJECT["dependencies"])
    extras = PROJECT["optional-dependencies"]
    for name, path in imports(package):
        known = plain | (declared(extras[by_extra[name]]) if name in by_extra else set())
        assert name in known, (
            f"{path.relative_to(ROOT)} imports {name}, which pyproject.toml does not declare"
        )


def test_every_file_is_in_the_wheel() -> None:
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    package = ROOT / "src" / "mast"
    taken = {path for pattern in setup["package-data"]["mast"] for path in package.glob(pattern)}
    others = {path for path in package.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert others - taken == set()


def test_every_plain_dependency_is_imported() -> None:
    used = {name for name, _ in imports("mast")}
    assert declared(PROJECT["dependencies"]) - used == set()


def pins(path: Path) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==([^\s;]+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def test_the_hashed_requirements_are_the_constraints_and_complete() -> None:
    hashed, tested = pins(ROOT / "requirements.txt"), pins(ROOT / "constraints.txt")
    other = {name: version for name, version in hashed.items() if tested.get(name, version) != version}
    assert other == {}, "requirements.txt is out of date; its second line says how to rebuild it"
    needed = {re.split(r"[^\w.-]", line, maxsplit=1)[0].lower() for line in PROJECT["dependencies"]}
    assert needed - set(hashed) == set()
    entries = (ROOT / "requirements.txt").read_text(encoding="utf-8").split("\n# ")[-1].split("\n", 1)[1]
    for entry in re.split(r"\n(?=\w)", entries.strip()):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry
