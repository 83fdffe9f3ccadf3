"""A name means one thing, in ``mast`` and in the studies beside it."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"


def test_a_class_name_is_used_once() -> None:
    """Names of types count as well: ``Samples = NDArray[np.float32]``."""
    names: Counter[str] = Counter()
    for path in SOURCE.rglob("*.py"):
        module = ast.parse(path.read_text(encoding="utf-8"))
        names.update(node.name for node in ast.walk(module) if isinstance(node, ast.ClassDef))
        given = [node.targets[0] for node in module.body if isinstance(node, ast.Assign)]
        names.update(name.id for name in given if isinstance(name, ast.Name) and _names_a_type(name.id))
    assert len(names) > 400
    assert [name for name, count in names.items() if count > 1] == []


def _names_a_type(name: str) -> bool:
    """``FloatArray``, but neither ``BOXES`` nor ``_Mark``, nor the ``T`` of a type variable."""
    return name[0].isupper() and not name.isupper()


def test_a_file_name_is_used_once() -> None:
    names = Counter(path.name for path in SOURCE.rglob("*.py") if not path.name.startswith("__"))
    assert len(names) > 250
    assert [name for name, count in names.items() if count > 1] == []


def test_the_page_on_architecture_has_the_layers_of_the_contract() -> None:
    """What `lint-imports` checks, from the lowest layer to the command line; nothing but the version is in none."""
    root = SOURCE.parent
    contracts = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = next(one["layers"] for one in contracts["contracts"] if one["type"] == "layers")
    page = (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `(\w+)(?:/|\.py)` \|", page, re.MULTILINE)
    assert told == [name.removeprefix("mast.") for name in reversed(layers)]
    parts = {path.stem for path in (SOURCE / "mast").glob("*.py")} | {
        path.parent.name for path in (SOURCE / "mast").glob("*/__init__.py")
    }
    assert parts - set(told) == {"__init__", "__main__", "version"}
