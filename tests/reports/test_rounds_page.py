from __future__ import annotations

import io
import json
import re
import shutil
from base64 import b64decode
from pathlib import Path

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from toy_recipe import small_recipe

from mast.data import load_dataset
from mast.data.chunks import chunk_table
from mast.errors import MastError
from mast.events import as_events, pairwise_iou
from mast.grid import events_to_grid
from mast.reports.round_numbers import agreement, read_rounds, round_summary
from mast.reports.round_pictures import round_pictures, sample_pictures
from mast.reports.rounds_page import rounds_html, write_rounds_page
from mast.selftrain.pseudo import UNLABELLED


def write_run(out: Path, data: Path, *, n_rounds: int = 2, kept: int = 2, boxes: bool = True) -> Path:
    """A run's folder as self-training leaves it; pseudo-boxes are the expert's, moved a little."""
    recipe, dataset = small_recipe(), load_dataset(data)
    front_end, events = recipe.front_end, dataset.annotations.events
    chunks = chunk_table(dataset, front_end).assign(root=str(data))
    out.mkdir()
    (out / "recipe.json").write_text(json.dumps({"recipe": recipe.model_dump(mode="json"), "seed": 3}))
    events.to_parquet(out / "expert.parquet")
    rng = np.random.default_rng(0)
    rows = [{"round": 0, "stage": "initial", "pseudo_threshold": np.nan, "f1": 0.5, "site_ood_f1": 0.2}]
    for number in range(1, n_rounds + 1):
        found = []
        for chunk, (recording, start_s, site) in enumerate(chunks[["recording", "start_s", "site"]].values):
            own = events[events["recording"] == recording]
            if not boxes or own.empty:
                continue
            seconds = own[["start_s", "low_hz", "end_s", "high_hz"]].to_numpy() - [start_s, 0, start_s, 0]
            grid = events_to_grid(seconds, front_end)
            cells = grid.boxes + rng.normal(0, 1 / number, grid.boxes.shape)
            keep = rng.uniform(size=len(cells)) < 0.4 + 0.2 * number
            place = {"chunk": chunk, "chunk_start_s": start_s, "root": str(data)}
            table = own.iloc[grid.index].assign(site=site, threshold=0.1, **place)
            found.append(table.assign(**dict(zip(("t1", "f1", "t2", "f2"), cells.T, strict=True)))[keep])
        cells_of_none = dict.fromkeys(("t1", "f1", "t2", "f2", "chunk_start_s", "threshold"), 0.0)
        none = as_events(events.iloc[:0]).assign(chunk=0, root="", **cells_of_none)
        table = pd.concat(found, ignore_index=True) if found else none
        table["score"] = rng.beta(1 + number, 2, len(table)).clip(0.1)
        (out / f"round-{number}").mkdir()
        table.to_parquet(out / f"round-{number}" / "pseudo.parquet")
        for stage in ("stage1", "stage2"):
            metrics = {
                "f1": 0.5 + 0.1 * number - 0.1 * (stage == "stage1"),
                "site_ood_f1": 0.2 + 0.15 * number,
            }
            rows.append({"round": number, "stage": stage, "pseudo_threshold": 0.1, **metrics})
    measured = pd.DataFrame(rows).assign(precision=0.6, recall=0.5, ap50=0.5, miou=0.8)
    last_of_kept = measured.index[measured["round"] == kept][-1]
    measured.assign(kept=measured.index == last_of_kept).to_csv(out / "rounds.csv", index=False)
    return out


@pytest.fixture(scope="module")
def run(tones: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("report") / "run", tones)


def test_the_page_names_who_else_labelled(run: Path, tmp_path: Path) -> None:
    alone = round_pictures(run, n_samples=0)[1].caption
    assert alone.startswith("Boxes that the detector of the round before found in the unlabelled sound.")
    shutil.copytree(run, tmp_path / "taught")
    about = json.loads((run / "recipe.json").read_text()) | {"teachers": ["runs/rcnn/best"]}
    (tmp_path / "taught" / "recipe.json").write_text(json.dumps(about))
    taught = round_pictures(tmp_path / "taught", n_samples=0)[1].caption
    assert "the detector of the round before, together with runs/rcnn/best, found in" in taught


def boxes_in_chunks(rng: np.random.Generator, n: int) -> pd.DataFrame:
    start = rng.uniform(0, [40, 20], (n, 2))
    cells = np.concatenate([start, start + rng.uniform(5, 25, (n, 2))], axis=1)
    table = pd.DataFrame(cells, columns=["t1", "f1", "t2", "f2"])
    return table.assign(chunk=rng.integers(0, 3, n), score=rng.permutation(n) / n)


def test_agreement_against_box_by_box() -> None:
    rng = np.random.default_rng(0)
    matches = 0
    for _ in range(20):
        previous, current = boxes_in_chunks(rng, 30), boxes_in_chunks(rng, 20)
        taken: set[int] = set()
        for box in current.sort_values("score", ascending=False).itertuples():
            cells = [box.t1, box.f1, box.t2, box.f2]
            free = [k for k in previous.index[previous["chunk"] == box.chunk] if k not in taken]
            ious = pairwise_iou(cells, previous.loc[free, ["t1", "f1", "t2", "f2"]])[0]
            if len(free) and ious.max() >= 0.5:
                taken.add(free[int(ious.argmax())])
        found = agreement(previous, current)
        assert found == (len(taken), len(taken) / 20, len(taken) / 30)
        matches += found.matched
    assert matches > 20
    assert agreement(previous, previous) == (30, 1.0, 1.0)
    nothing = agreement(previous.iloc[:0], current)
    assert (nothing.matched, nothing.of_current) == (0, 0.0)
    assert np.isnan(nothing.of_previous)


def test_summary(run: Path) -> None:
    read = read_rounds(run)
    table = round_summary(read)
    assert table["round"].tolist() == [1, 2]
    assert table["boxes"].tolist() == [len(read.pseudo[1]), len(read.pseudo[2])]
    assert np.isnan(table["in_previous"][0])
    shared = agreement(read.pseudo[1], read.pseudo[2])
    assert table["in_previous"][1] == shared.of_current
    assert 0.2 < shared.of_current < 1
    assert read.parts == ["site_ood"]


def test_rounds_are_compared_in_the_chunks_that_both_heard(run: Path, tmp_path: Path) -> None:
    """Round 2 heard the last chunks of round 1 under other numbers, and found the same in them."""
    partly = tmp_path / "partly"
    shutil.copytree(run, partly)
    first = pd.read_parquet(partly / "round-1" / "pseudo.parquet")
    data, front_end = Path(first["root"].iloc[0]), read_rounds(run).front_end
    heard = chunk_table(load_dataset(data), front_end).assign(root=str(data))
    half = len(heard) // 2
    heard.to_parquet(partly / "round-1" / UNLABELLED)
    heard.iloc[half:].to_parquet(partly / "round-2" / UNLABELLED)
    second = first[first["chunk"] >= half]
    assert len(second)
    second.assign(chunk=second["chunk"] - half).to_parquet(partly / "round-2" / "pseudo.parquet")
    table = round_summary(read_rounds(partly))
    same = agreement(second, second)
    assert same.matched > 0.9 * len(second)  # all but those too small to overlap anything
    assert (table["in_previous"][1], table["of_previous"][1]) == same[1:]
    titles = [p.title for p in round_pictures(partly, n_samples=len(heard))[3:]]
    assert sum(title.startswith("Round 1:") for title in titles) > sum(
        t.startswith("Round 2:") for t in titles
    )
    heard.iloc[:half].to_parquet(partly / "round-1" / UNLABELLED)  # nothing in common: nothing to compare
    first[first["chunk"] < half].to_parquet(partly / "round-1" / "pseudo.parquet")
    assert round_summary(read_rounds(partly))["in_previous"].isna().all()


def test_pictures(run: Path, tones: Path, tmp_path: Path) -> None:
    pictures = round_pictures(run, n_samples=1)
    assert [p.title for p in pictures][:3] == [
        "F1 after each stage",
        "Pseudo-boxes of each round",
        "Pseudo-boxes beside the expert's",
    ]
    samples = [p.title for p in pictures[3:]]
    assert [title[:8] for title in samples] == ["Round 1:", "Round 2:"]
    assert samples[0][8:] == samples[1][8:]  # the same chunk
    for picture in pictures:
        image = matplotlib.image.imread(io.BytesIO(picture.png))
        assert image[..., :3].std() > 0.02  # something is drawn
    again = sample_pictures(read_rounds(run), n_samples=1)
    assert [p.png for p in again] == [p.png for p in pictures[3:]]
    # recordings that are gone are left out
    moved = read_rounds(run)
    for events in moved.pseudo.values():
        events["root"] = str(tmp_path)
    assert sample_pictures(moved) == []


def test_page_needs_no_other_file(run: Path) -> None:
    page = write_rounds_page(run, n_samples=1)
    text = page.read_text(encoding="utf-8")
    assert page == run / "rounds.html"
    sources = re.findall(r'src="([^"]*)"', text)
    assert len(sources) == 5
    for source in sources:
        assert b64decode(source.removeprefix("data:image/png;base64,")).startswith(b"\x89PNG")
    assert not re.search(r"https?://|<script|<link", text)
    assert "The model of round 2 was kept" in text
    assert "validation 0.500 → 0.700, other sites 0.200 → 0.500" in text


def test_a_hostile_name_is_only_shown(run: Path, tmp_path: Path) -> None:
    hostile = tmp_path / "<i>&"
    shutil.copytree(run, hostile)
    for path in hostile.glob("round-*/pseudo.parquet"):
        pd.read_parquet(path).assign(site="<script>alert(1)</script>").to_parquet(path)
    text = write_rounds_page(hostile, n_samples=1).read_text(encoding="utf-8")
    assert "Self-training: &lt;i&gt;&amp;</title>" in text
    assert "Site &lt;script&gt;alert(1)&lt;/script&gt;, " in text
    assert "<script" not in text


def test_nothing_found_and_nothing_gained(tones: Path, tmp_path: Path) -> None:
    text = rounds_html(write_run(tmp_path / "run", tones, n_rounds=1, kept=0, boxes=False))
    assert "No round raised F1 on validation above 0.500" in text
    with pytest.raises(MastError, match=r"has no rounds\.csv"):
        read_rounds(tmp_path)
