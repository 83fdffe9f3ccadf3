"""Which events are cut, what the files are called, and what they hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
from PIL import Image

from mast.events import as_events
from mast.files import atomic_file
from mast.reports import clip_files as module
from mast.reports.clip_files import CutResult, choose_events, clips_page, cut_clips

RATE = 16_000


def survey(folder: Path, count: int = 6) -> pd.DataFrame:
    """Two recordings of ten seconds; the n-th event of one is a tone of 1000 n Hz."""
    rows = []
    for k, name in enumerate(("OAK/a.wav", "ELM/b.flac")):
        sound = np.zeros(10 * RATE)
        for n in range(1, count // 2 + 1):
            first = round((2 * n + 0.5 * k) * RATE)
            t = np.arange(RATE // 2) / RATE
            sound[first : first + len(t)] = 0.3 * np.sin(2 * np.pi * 1_000 * n * t)
            label = ("wren", "robin")[n % 2] if k == 0 else ""
            when = f"2024-05-0{k + 1}T0{4 + n}:00:00"
            box = (2 * n + 0.5 * k, 2 * n + 0.5 * k + 0.5, 1_000 * n - 200, 1_000 * n + 200)
            rows.append((name, *box, 0.9 - 0.1 * n - 0.01 * k, label, name[:3], when))
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        sf.write(folder / name, sound, RATE)
    columns = ["recording", "start_s", "end_s", "low_hz", "high_hz", "score", "label", "site", "datetime"]
    return as_events(pd.DataFrame(rows, columns=columns).assign(source="detector"))


def test_the_best_come_first(tmp_path: Path) -> None:
    events = survey(tmp_path)
    chosen = choose_events(events, 4)
    assert chosen["score"].tolist() == sorted(events["score"], reverse=True)[:4]
    assert len(choose_events(events, 100)) == len(events)


@pytest.mark.parametrize(
    ("per", "groups"),
    [
        ("label", {"no label": 2, "robin": 2, "wren": 1}),
        ("site", {"ELM": 2, "OAK": 2}),
        ("day", {"2024-05-01": 2, "2024-05-02": 2}),
        ("hour", {"05h": 2, "06h": 2, "07h": 2}),
        ("recording", {"ELM/b.flac": 2, "OAK/a.wav": 2}),
    ],
)
def test_two_of_each_group(tmp_path: Path, per: str, groups: dict[str, int]) -> None:
    chosen = choose_events(survey(tmp_path), 2, per=per)  # type: ignore[arg-type]
    assert chosen["group"].value_counts(sort=False).to_dict() == groups
    assert list(dict.fromkeys(chosen["group"])) == sorted(groups)
    for _, own in chosen.groupby("group"):
        assert own["score"].is_monotonic_decreasing


def test_a_random_draw_is_that_of_its_seed_and_fair(tmp_path: Path) -> None:
    events = survey(tmp_path)
    draws = [choose_events(events, 2, choice="random", seed=seed)["score"].tolist() for seed in range(300)]
    assert draws[7] == choose_events(events, 2, choice="random", seed=7)["score"].tolist()
    often = pd.Series([score for draw in draws for score in draw]).value_counts()
    assert len(often) == len(events)
    assert often.between(60, 145).all()  # 100 each on average; four deviations


def test_events_without_a_time_are_a_group(tmp_path: Path) -> None:
    events = survey(tmp_path)
    events.loc[0, "datetime"] = ""
    assert "no time" in set(choose_events(events, 9, per="hour")["group"])


@pytest.mark.parametrize("format", ["wav", "flac"])
def test_a_clip_holds_its_event_with_sound_around_it(tmp_path: Path, format: str) -> None:
    events = survey(tmp_path / "audio")
    chosen = choose_events(events, 3, per="site")
    out = tmp_path / "clips"
    cut = cut_clips(chosen, lambda name: tmp_path / "audio" / name, out, pad_s=0.25, format=format)  # type: ignore[arg-type]
    assert [clip.sound.split("/")[0] for clip in cut.clips] == ["ELM"] * 3 + ["OAK"] * 3
    assert cut.clips[0].sound == f"ELM/001_0.79_b_00002.500s.{format}"
    assert cut.clips[3].sound == f"OAK/001_0.80_a_00002.000s_robin.{format}"
    names = [clip.sound for clip in cut.clips]
    assert names == sorted(names)
    for clip in cut.clips:
        sound, rate = sf.read(out / clip.sound)
        assert (rate, len(sound)) == (RATE, RATE)  # 0.25 + 0.5 + 0.25 s
        middle = sound[RATE // 4 : 3 * RATE // 4]
        assert np.abs(np.fft.rfft(middle)).argmax() * 2 == (clip.event["low_hz"] + clip.event["high_hz"]) / 2
        assert np.abs(sound[: RATE // 5]).max() < 0.01
        with Image.open(out / clip.picture) as picture:
            assert len(picture.convert("RGB").getcolors(1 << 20) or []) > 10
    table = pd.read_csv(out / "clips.csv")
    assert table["clip"].tolist() == names
    assert {"picture", "start_s", "score", "site"} <= set(table.columns)
    page = (out / "index.html").read_text(encoding="utf-8")
    assert page.count("<audio") == len(names)
    assert "OAK/001_0.80_a_00002.000s_robin" in page


def test_at_the_edges_of_a_recording(tmp_path: Path) -> None:
    events = survey(tmp_path)
    edges = events.iloc[:3].assign(start_s=[0.1, 9.8, 12.0], end_s=[0.4, 11.0, 13.0])
    cut = cut_clips(choose_events(edges, 9), lambda name: tmp_path / name, tmp_path / "out", pictures=False)
    lengths = [sf.info(tmp_path / "out" / clip.sound).duration for clip in cut.clips]
    assert sorted(lengths) == pytest.approx([0.7, 0.9])
    ((recording, why),) = cut.failures
    assert recording == "OAK/a.wav"
    assert "the recording ends at 10.0 s" in why
    assert not list((tmp_path / "out").glob("*.png"))


def test_recordings_that_are_missing_or_broken_are_listed(tmp_path: Path) -> None:
    events = survey(tmp_path)
    (tmp_path / "ELM" / "b.flac").write_bytes(b"fLaC")
    out = tmp_path / "out"
    cut = cut_clips(
        choose_events(events, 9), lambda name: None if name.startswith("OAK") else tmp_path / name, out
    )
    assert cut.clips == []
    assert pd.read_csv(out / "failures.csv")["recording"].value_counts().to_dict() == {
        "OAK/a.wav": 3,
        "ELM/b.flac": 3,
    }
    assert "6 could not be cut" in (out / "index.html").read_text(encoding="utf-8")


def test_a_full_disk_leaves_whole_clips_and_the_next_call_does_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, out, written = survey(tmp_path), tmp_path / "out", []

    def filling(path: Path):
        if len(written) == 4:
            raise OSError(28, "No space left on device", str(path))
        written.append(path)
        return atomic_file(path)

    monkeypatch.setattr(module, "atomic_file", filling)
    chosen = choose_events(events, 9)
    with pytest.raises(OSError, match="No space"):
        cut_clips(chosen, lambda name: tmp_path / name, out, pictures=False)
    assert len(list(out.glob("*.wav"))) == 4
    before = {path: path.stat().st_mtime_ns for path in out.glob("*.wav")}
    monkeypatch.setattr(module, "atomic_file", atomic_file)
    cut = cut_clips(chosen, lambda name: tmp_path / name, out, pictures=False)
    assert len(cut.clips) == len(list(out.glob("*.wav"))) == 6
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())


def test_names_that_no_file_can_have(tmp_path: Path) -> None:
    events = survey(tmp_path).iloc[:1].assign(label="a/b:<c> \n" + "é" * 300)
    cut = cut_clips(choose_events(events, 1, per="label"), lambda name: tmp_path / name, tmp_path / "out")
    assert (tmp_path / "out" / cut.clips[0].sound).is_file()
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "<c>" not in page
    assert "a/b:&lt;c&gt;" in page


def test_a_page_of_very_many_shows_the_first(tmp_path: Path) -> None:
    chosen = choose_events(survey(tmp_path), 1)
    cut = cut_clips(chosen, lambda name: tmp_path / name, tmp_path / "out", pictures=False)
    page = clips_page(CutResult(cut.clips * 2_500), "many")
    assert page.count("<audio") == 2_000
    assert "2,500 clips" in page
