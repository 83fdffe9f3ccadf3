from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mast.data.splits import NO_TEST, PARTS, Split, SplitConfig, default_split, split_recordings
from mast.errors import ConfigError


def recordings(n: int, duration_s: float = 60.0) -> pd.DataFrame:
    return pd.DataFrame({"file": [f"r{i:03d}.wav" for i in range(n)], "duration_s": duration_s})


def gaps_between_parts(split: Split) -> list[float]:
    """Seconds between any two spans of different parts in one recording; negative: they overlap."""
    return [
        max(a.start_s, b.start_s) - min(a.end_s, b.end_s)
        for a, b in itertools.combinations(split.spans, 2)
        if a.recording == b.recording and a.split != b.split
    ]


@pytest.mark.parametrize(
    ("n", "sizes"),
    [(3, (1, 1, 1)), (4, (2, 1, 1)), (5, (3, 1, 1)), (10, (7, 2, 1)), (20, (14, 3, 3)), (100, (70, 15, 15))],
)
def test_recordings_are_dealt_70_15_15_with_none_left_empty(n: int, sizes: tuple[int, int, int]) -> None:
    split = split_recordings(recordings(n))
    assert sorted(len(split.recordings(p)) for p in PARTS) == sorted(sizes)
    assert len(split.recordings("train")) == sizes[0]


@pytest.mark.parametrize(
    ("boxes", "column", "fractions"),
    [
        (99, ["", "", ""], NO_TEST),
        (99, None, NO_TEST),
        (100, ["", "", ""], SplitConfig().fractions),
        (99, ["train", "train", "train"], NO_TEST),
        (150, ["", "", "site_ood"], SplitConfig().fractions),
        (148, ["train", "", "site_ood"], NO_TEST),  # a third of the boxes are elsewhere
        (99, ["train", "", "val"], SplitConfig().fractions),
        (99, ["", "", "test"], SplitConfig().fractions),
    ],
)
def test_few_boxes_get_no_test_part_unless_a_column_names_val_or_test(
    boxes: int, column: list[str] | None, fractions: tuple[float, float, float]
) -> None:
    table = recordings(3) if column is None else recordings(3).assign(split=column)
    each = pd.Series([table["file"][k % 3] for k in range(boxes)])
    assert default_split(table, each) == SplitConfig(fractions=fractions)


@settings(max_examples=50)
@given(
    durations=st.lists(st.floats(1.0, 20_000.0), min_size=3, max_size=25),
    seed=st.integers(0, 3),
    n_boxed=st.integers(0, 25),
)
def test_every_recording_is_in_exactly_one_part(durations: list[float], seed: int, n_boxed: int) -> None:
    table = recordings(len(durations)).assign(duration_s=durations)
    boxed = table["file"].iloc[:n_boxed].tolist()
    split = split_recordings(table, SplitConfig(by="recording"), seed=seed, boxed=boxed, reviewed=boxed)
    assert sorted(span.recording for span in split.spans) == sorted(table["file"])
    assert set(split.parts) == set(PARTS)
    if len(boxed) >= 3:  # each part gets some of the boxes
        assert all(set(split.recordings(p)) & set(boxed) for p in PARTS)


@settings(max_examples=50)
@given(
    duration=st.floats(400.0, 90_000.0),
    guard=st.floats(0.0, 20.0),
    block=st.none() | st.floats(60.0, 4_000.0),
)
def test_no_second_is_in_two_parts_and_the_guard_is_kept(
    duration: float, guard: float, block: float | None
) -> None:
    config = SplitConfig(by="time", guard_s=guard, block_s=block)
    split = split_recordings(recordings(1, duration), config)
    assert set(split.parts) == set(PARTS)
    assert min(gaps_between_parts(split)) >= guard - 1e-6
    assert all(0 <= s.start_s < s.end_s <= duration + 1e-6 for s in split.spans)
    lost = duration - sum(split.seconds(p) for p in PARTS)
    assert lost == pytest.approx(
        guard * sum(a.split != b.split for a, b in itertools.pairwise(split.spans)), abs=1e-3
    )


def test_a_single_recording_is_cut_in_time_by_default() -> None:
    split = split_recordings(recordings(1, 1_000.0))
    assert [(s.split, s.start_s, s.end_s) for s in split.spans] == [
        ("train", 0.0, pytest.approx(694.88)),
        ("val", pytest.approx(705.12), pytest.approx(844.88)),
        ("test", pytest.approx(855.12), 1_000.0),
    ]


def test_blocks_spread_the_parts_over_the_recording() -> None:
    split = split_recordings(recordings(1, 24 * 3600.0), SplitConfig(block_s=1_800.0), seed=1)
    assert len(split.part("val")) > 2
    assert split.seconds("train") / (24 * 3600.0) == pytest.approx(0.7, abs=0.03)


def test_recordings_without_boxes_keep_their_share_too() -> None:
    table = recordings(12)
    boxed = table["file"].iloc[:9].tolist()
    split = split_recordings(table, boxed=boxed, reviewed=table["file"].tolist())
    assert [len(split.recordings(p)) for p in PARTS] == [8, 2, 2]


def test_row_order_does_not_matter_and_the_seed_does() -> None:
    table = recordings(30)
    shuffled = table.sample(frac=1.0, random_state=1)
    assert split_recordings(table, seed=3) == split_recordings(shuffled, seed=3)
    assert split_recordings(table, seed=3) != split_recordings(table, seed=4)


def test_one_recording_much_longer_than_the_rest_goes_to_train() -> None:
    table = pd.concat([recordings(20), pd.DataFrame({"file": ["day.wav"], "duration_s": [6 * 3600.0]})])
    for seed in range(5):
        assert "day.wav" in split_recordings(table, seed=seed).recordings("train")


def test_the_split_by_chunk_is_the_papers_and_leaks() -> None:
    starts = np.arange(0, 500) * 5.12
    chunks = pd.DataFrame({"recording": "r000.wav", "start_s": starts, "valid_s": 10.24})
    split = split_recordings(recordings(1, 2_570.0), SplitConfig(by="chunk"), chunks=chunks)
    assert [len(split.part(p)) for p in PARTS] == [350, 75, 75]
    assert min(gaps_between_parts(split)) < 0
    assigned = split.assign(["r000.wav"] * 500, starts.tolist(), (starts + 10.24).tolist())
    assert [assigned.count(p) for p in PARTS] == [350, 75, 75]
    by_start = {s.start_s: s.split for s in split.spans}
    assert assigned == [by_start[s] for s in starts]
    with pytest.raises(ConfigError, match="needs the table of chunks"):
        split_recordings(recordings(1), SplitConfig(by="chunk"))


def test_stretches_are_assigned_where_they_wholly_lie() -> None:
    split = split_recordings(recordings(1, 1_000.0))
    starts = [0.0, 684.64, 690.0, 700.0, 705.12, 989.76, 995.0]
    found = split.assign(["r000.wav"] * 7, starts, [s + 10.24 for s in starts])
    assert found == ["train", "train", "", "", "val", "test", ""]
    assert split.assign(["other.wav"], [0.0], [1.0]) == [""]


def dated() -> pd.DataFrame:
    table = recordings(24)
    table["site"] = ["A", "B", "C"] * 8
    table["datetime"] = [f"2023-05-{10 + i // 6:02d}T06:00:00" for i in range(24)]
    return table


def test_out_of_domain_by_site_and_date() -> None:
    table = dated()
    split = split_recordings(
        table, SplitConfig(ood_sites=("C",), ood_dates=("2023-05-11",), ood_since="2023-05-13")
    )
    site = dict(zip(table["file"], table["site"], strict=True))
    day = dict(zip(table["file"], table["datetime"].str[:10], strict=True))
    assert {site[r] for r in split.recordings("site_ood")} == {"C"}
    assert {day[r] for r in split.recordings("temporal_ood")} == {"2023-05-11", "2023-05-13"}
    for part in PARTS:
        assert split.recordings(part)
        assert all(site[r] != "C" and day[r] in {"2023-05-10", "2023-05-12"} for r in split.recordings(part))
    assert split.parts == ("train", "val", "test", "site_ood", "temporal_ood")


def test_the_split_column_decides() -> None:
    table = recordings(20).assign(
        split=["train"] * 10 + ["Validation"] * 4 + ["test"] * 3 + ["temporal_ood"] * 3
    )
    split = split_recordings(table)
    assert [len(split.recordings(p)) for p in (*PARTS, "temporal_ood")] == [10, 4, 3, 3]


def test_a_column_without_val_leaves_train_to_be_dealt() -> None:
    table = recordings(20).assign(split=["train"] * 12 + [""] * 4 + ["temporal_ood"] * 4)
    split = split_recordings(table)
    assert split.recordings("temporal_ood") == table["file"].iloc[16:].tolist()
    assert sum(len(split.recordings(p)) for p in PARTS) == 16
    assert all(split.recordings(p) for p in PARTS)


def test_a_column_with_test_only_leaves_train_and_val() -> None:
    table = recordings(20).assign(split=["test"] * 5 + [""] * 15)
    split = split_recordings(table)
    assert split.recordings("test") == table["file"].iloc[:5].tolist()
    assert len(split.recordings("val")) == 3
    assert len(split.recordings("train")) == 12


def test_the_column_can_be_ignored() -> None:
    table = recordings(20).assign(split="source_ood")
    assert split_recordings(table).parts == ("source_ood",)
    assert split_recordings(table, SplitConfig(column=False)).parts == PARTS


def test_mistakes() -> None:
    with pytest.raises(ConfigError, match="no recording is from site Z; the sites found are A, B, C"):
        split_recordings(dated(), SplitConfig(ood_sites=("Z",)))
    with pytest.raises(ConfigError, match="no recording is from 2022-01-01"):
        split_recordings(dated(), SplitConfig(ood_dates=("2022-01-01",)))
    with pytest.raises(ConfigError, match="'11 May' is not a valid date; expected YYYY-MM-DD"):
        SplitConfig(ood_dates=("11 May",))
    with pytest.raises(ConfigError, match=r"the date of r000.wav is not known \(24 such"):
        split_recordings(dated().assign(datetime=""), SplitConfig(ood_since="2023-01-01"))
    with pytest.raises(ConfigError, match="must add up to 1"):
        SplitConfig(fractions=(0.5, 0.2, 0.2))
    with pytest.raises(ConfigError, match=r"r000.wav is too short \(30 s\)"):
        split_recordings(recordings(1, 30.0))
    with pytest.raises(ConfigError, match="is listed twice"):
        split_recordings(pd.concat([recordings(1), recordings(3)]))


def test_no_recordings() -> None:
    assert split_recordings(recordings(0)).spans == ()
