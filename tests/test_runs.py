"""A stage is done once, and again when something that decides it has changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mast.errors import ConfigError, MastError
from mast.runs import UPSTREAM, Ledger, Stage, describe_differences, differences, flatten, load_inputs


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


def test_a_stopped_stage_resumes_in_its_folder(shop: Workshop) -> None:
    with pytest.raises(KeyboardInterrupt):
        shop.do({"epochs": 5}, stop=True)
    shop.do({"epochs": 5})
    assert shop.done == 2
    assert sorted(p.name for p in (shop.run / "train").iterdir()) == ["best", "part-1", "part-2"]
    assert shop.said == ["train: was stopped, resuming"]


@pytest.mark.parametrize("stop", [False, True])
def test_other_inputs_start_over_and_the_old_folder_is_kept(shop: Workshop, stop: bool) -> None:
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
    assert shop.said == ["train: a was 1, now 2; repeating"]


def test_what_is_gone_is_repeated(shop: Workshop) -> None:
    shop.do({"a": 1})
    (shop.run / "train" / "best").unlink()
    shop.do({"a": 1})
    assert shop.done == 2
    assert "is missing, repeating" in shop.said[0]


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
    assert flatten({"a": {"b": {"c": 1}, "d": {}}, "e": None}) == {"a.b.c": 1, "a.d": {}, "e": None}


def test_time_is_added_up_over_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("mast.runs.time.perf_counter", lambda: now[0])
    ledger = Ledger(tmp_path, lambda text: None)

    def takes(seconds: float, *, killed: bool) -> None:
        def work() -> dict[str, Any]:
            show = ledger.timed(lambda done, total, text: None)
            now[0] += seconds
            show(1, 2, "steps")  # the last sign of life
            now[0] += 3
            if killed:
                raise KeyboardInterrupt
            return {}

        ledger.do(Stage("train", {"a": 1}, ()), work)

    assert ledger.seconds("train") == 0
    with pytest.raises(KeyboardInterrupt):
        takes(60, killed=True)
    assert ledger.seconds("train") == 60
    takes(20, killed=False)
    assert Ledger(tmp_path, lambda text: None).seconds("train") == 83
    ledger.do(Stage("train", {"a": 2}, ()), dict)  # another one
    assert ledger.seconds("train") == 0


def test_other_inputs_are_refused_where_nothing_may_start_over(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, lambda text: None, instead="choose another --work, or delete it")
    folder = tmp_path / "train"
    folder.mkdir()
    (folder / "best").touch()  # of before there was a ledger

    def stage(epochs: int) -> Stage:
        return Stage("train", {"epochs": epochs}, (folder,), folder)

    assert not ledger.is_done("train")
    ledger.do(stage(5), dict)
    assert ledger.is_done("train")
    told = r"train: was made with other settings \(epochs was 5, now 6\); choose another --work"
    with pytest.raises(ConfigError, match=told):
        ledger.do(stage(6), lambda: pytest.fail("done all the same"))
    ledger.do(stage(5), lambda: pytest.fail("done twice"))
    shutil.rmtree(folder)  # as advised
    ledger.do(stage(6), dict)


def test_differences_are_named_by_their_whole_names() -> None:
    before = {"train": {"augment": {"noise": 0.5}, "epochs": 5, "workers": 2}, "seed": 0}
    assert differences(before, before) == {}
    now = {"train": {"augment": None, "epochs": 6, "workers": 4}, "seed": 0}
    found = differences(before, now, ignore=("workers",))
    assert found == {"train.augment.noise": (0.5, None), "train.epochs": (5, 6)}
    assert describe_differences(found) == "train.augment.noise was 0.5, now none; train.epochs was 5, now 6"
    assert differences({"betas": [0.9, 0.95]}, {"betas": (0.9, 0.95)}) == {}  # as JSON keeps them


def test_a_sentence_names_three_differences_and_counts_the_rest() -> None:
    found = differences({}, dict.fromkeys("abcde", 1))
    assert describe_differences(found).endswith("c was none, now 1 and 2 more")


def test_fingerprints_are_not_shown() -> None:
    old, new = "6c9b18aaeb3d", "fe9b373701eb"
    found = {"data": (old, new), "labels": (f"15 boxes ({old})", f"16 boxes ({new})"), "more": (None, new)}
    assert describe_differences(found, {"data": "birds/"}) == (
        "birds/ changed; labels changed (15 boxes, now 16 boxes); more changed"
    )


def test_a_damaged_memory_is_one_sentence(tmp_path: Path) -> None:
    assert load_inputs(tmp_path / "recipe.json") is None
    for content in ("{", "[]"):
        (tmp_path / "recipe.json").write_text(content)
        with pytest.raises(ConfigError, match="is damaged: it does not hold the settings of a run"):
            load_inputs(tmp_path / "recipe.json")
    (tmp_path / "recipe.json").write_text('{"seed": 0}')
    assert load_inputs(tmp_path / "recipe.json", "seed") == {"seed": 0}
    with pytest.raises(ConfigError, match="is damaged"):
        load_inputs(tmp_path / "recipe.json", "seed", "recipe")
