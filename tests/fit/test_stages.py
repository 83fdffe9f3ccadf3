"""A stage is done once, and again when something that decides it has changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mast.errors import MastError
from mast.files import replace_folder
from mast.fit.stages import UPSTREAM, Ledger, Stage, flat


class Workshop:
    """A ledger whose stage writes a file, and what it said."""

    def __init__(self, run: Path) -> None:
        self.run, self.said, self.done = run, list[str](), 0
        self.ledger = Ledger(run, self.said.append)

    def do(self, inputs: dict[str, Any], *, stop: bool = False, keep: bool = True) -> dict[str, Any]:
        folder = self.run / "train"

        def work() -> dict[str, Any]:
            self.done += 1
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"part-{self.done}").touch()
            if stop:
                raise KeyboardInterrupt
            (folder / "best").touch()
            return {"f1": 0.5}

        stage = Stage("train", inputs, (folder / "best",), folder if keep else None)
        return self.ledger.do(stage, work)


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


def test_the_second_time_nothing_is_done_and_the_result_is_remembered(shop: Workshop) -> None:
    assert shop.do({"epochs": 5}) == {"f1": 0.5}
    assert shop.do({"epochs": 5}) == {"f1": 0.5}
    assert shop.done == 1
    assert shop.said == ["train: nothing has changed, skipped"]


def test_a_stopped_stage_goes_on_in_its_folder(shop: Workshop) -> None:
    with pytest.raises(KeyboardInterrupt):
        shop.do({"epochs": 5}, stop=True)
    shop.do({"epochs": 5})
    assert shop.done == 2
    assert sorted(p.name for p in (shop.run / "train").iterdir()) == ["best", "part-1", "part-2"]
    assert shop.said == ["train: was stopped, resuming"]


@pytest.mark.parametrize("stop", [False, True])
def test_other_inputs_start_anew_and_the_old_folder_is_kept(shop: Workshop, stop: bool) -> None:
    if stop:
        with pytest.raises(KeyboardInterrupt):
            shop.do({"epochs": 5}, stop=True)
    else:
        shop.do({"epochs": 5})
    shop.do({"epochs": 6})
    shop.do({"epochs": 7, f"{UPSTREAM}pretrain": "abc"})
    assert [p.name for p in sorted((shop.run / "train").iterdir())] == ["best", "part-3"]
    assert (shop.run / "earlier" / "train-1" / "part-1").exists()
    assert (shop.run / "earlier" / "train-2" / "part-2").exists()
    assert "epochs was 5, now 6; starting over" in shop.said[0]
    assert "epochs was 6, now 7; pretrain was done again" in shop.said[1]


def test_small_stages_are_made_over(shop: Workshop) -> None:
    shop.do({"a": 1}, keep=False)
    shop.do({"a": 2}, keep=False)
    assert shop.done == 2
    assert not (shop.run / "earlier").exists()
    assert shop.said == ["train: a was 1, now 2; made again"]


def test_what_is_gone_is_made_again(shop: Workshop) -> None:
    shop.do({"a": 1})
    (shop.run / "train" / "best").unlink()
    shop.do({"a": 1})
    assert shop.done == 2
    assert "is gone, made again" in shop.said[0]


def test_a_folder_of_somebody_else_is_refused(shop: Workshop) -> None:
    (shop.run / "train").mkdir()
    (shop.run / "train" / "thesis.doc").touch()
    with pytest.raises(MastError, match="choose another --out"):
        shop.do({"a": 1})


def test_a_damaged_note_is_one_sentence(shop: Workshop) -> None:
    shop.do({"a": 1})
    (shop.run / "stages" / "train.json").write_text("{")
    with pytest.raises(MastError, match="delete it to do train again"):
        shop.do({"a": 1})


def test_a_note_says_what_decided_the_stage(shop: Workshop) -> None:
    shop.do({"epochs": 5})
    note = json.loads((shop.run / "stages" / "train.json").read_text())
    assert note["inputs"] == {"epochs": 5}
    assert note["done"] is True


def test_the_order_of_inputs_does_not_matter() -> None:
    a, b = Stage("s", {"x": 1, "y": [1.5]}, ()), Stage("s", {"y": [1.5], "x": 1}, ())
    assert a.fingerprint == b.fingerprint != Stage("s", {"x": 1, "y": [1.25]}, ()).fingerprint


def test_settings_become_one_level() -> None:
    assert flat({"a": {"b": {"c": 1}, "d": {}}, "e": None}) == {"a.b.c": 1, "a.d": {}, "e": None}


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    for name, files in (("new", ["a"]), ("old", ["a", "b"])):
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).write_text(name)
    replace_folder(tmp_path / "new", tmp_path / "old")
    assert [(p.name, p.read_text()) for p in (tmp_path / "old").iterdir()] == [("a", "new")]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new", "old"]
