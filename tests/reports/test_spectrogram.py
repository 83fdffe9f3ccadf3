"""Pictures: sound and boxes in the same place, every kind of span, something to see in the file."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
from matplotlib.collections import PatchCollection
from matplotlib.image import imread

from mast.errors import AudioError
from mast.events import as_events
from mast.grid import FrontEnd
from mast.reports.spectrogram import (
    PREDICTION_COLOUR,
    TRUTH_COLOUR,
    boxes_in_view,
    compute_spectrogram,
    draw_spectrogram,
    figure_png,
    frequency_ticks,
    plot_boxes,
)


def events(*rows: tuple) -> pd.DataFrame:
    """Events from tuples ``start_s, end_s, low_hz, high_hz[, score]``."""
    table = [("a.wav", *row, 1.0)[:6] for row in rows]
    return as_events(
        pd.DataFrame(table, columns=["recording", "start_s", "end_s", "low_hz", "high_hz", "score"])
    )


def write_burst(path: Path, *, rate: int, seconds: float, start_s: float, end_s: float, hz: float) -> Path:
    """A tone from ``start_s`` to ``end_s`` over faint noise."""
    t = np.arange(round(rate * seconds)) / rate
    noise = 1e-4 * np.random.default_rng(0).standard_normal(len(t))
    sf.write(
        path, noise + 0.5 * np.sin(2 * np.pi * hz * t) * ((t >= start_s) & (t < end_s)), rate, subtype="FLOAT"
    )
    return path


@pytest.fixture
def burst(tmp_path: Path) -> Path:
    return write_burst(tmp_path / "burst.wav", rate=16_000, seconds=4.0, start_s=1.5, end_s=2.25, hz=2_000.0)


def loud_region(spectrogram, within_db: float = 3.0) -> tuple[float, float, float, float]:
    """Left, right (s), bottom, top (bins) of the cells within some dB of the loudest."""
    left, _, bottom, _ = spectrogram.extent
    loud = spectrogram.values > spectrogram.values.max() - within_db / 10 * np.log(10)
    columns, bins = np.flatnonzero(loud.any(axis=1)), np.flatnonzero(loud.any(axis=0))
    step = spectrogram.column_s
    return left + columns[0] * step, left + (columns[-1] + 1) * step, bottom + bins[0], bottom + bins[-1] + 1


@pytest.mark.parametrize("start_s", [0.0, 0.7, 1.4033])
def test_a_tone_burst_is_drawn_where_it_sounds(burst, start_s):
    spectrogram = compute_spectrogram(burst, start_s=start_s)
    left, right, bottom, top = loud_region(spectrogram)
    hop = spectrogram.column_s
    assert left == pytest.approx(1.5, abs=1.5 * hop)
    assert right == pytest.approx(2.25, abs=1.5 * hop)
    # no lean to one side: what the onset loses, the end loses too
    assert (left + right) / 2 == pytest.approx((1.5 + 2.25) / 2, abs=0.6 * hop)
    tone = spectrogram.front_end.hz_to_bins(2_000.0)
    assert bottom <= tone <= top
    assert top - bottom <= 4
    loudest = int(spectrogram.values.sum(axis=0).argmax())
    assert loudest == pytest.approx(float(tone), abs=1.0)


@pytest.mark.parametrize(("band_hz", "rate"), [(2_000.0, 4_000), (96_000.0, 192_000)])
def test_other_bands_line_up_too(tmp_path, band_hz, rate):
    scale = band_hz / 8_000
    path = write_burst(
        tmp_path / "x.wav",
        rate=rate,
        seconds=4 / scale,
        start_s=1.5 / scale,
        end_s=2.25 / scale,
        hz=2_000 * scale,
    )
    spectrogram = compute_spectrogram(path, front_end=FrontEnd.for_band(band_hz))
    left, right, bottom, top = loud_region(spectrogram)
    assert left == pytest.approx(1.5 / scale, abs=1.5 * spectrogram.column_s)
    assert right == pytest.approx(2.25 / scale, abs=1.5 * spectrogram.column_s)
    assert bottom <= spectrogram.front_end.hz_to_bins(2_000 * scale) <= top


def test_a_click_stands_in_the_column_of_its_moment(tmp_path):
    samples = np.zeros(32_000)
    samples[round(1.2345 * 16_000)] = 0.9
    sf.write(tmp_path / "click.wav", samples, 16_000)
    spectrogram = compute_spectrogram(tmp_path / "click.wav")
    column = int(spectrogram.values.sum(axis=1).argmax())
    begins = spectrogram.left_s + column * spectrogram.column_s
    assert begins <= 1.2345 <= begins + spectrogram.column_s


def test_boxes_are_drawn_at_their_seconds_and_hertz(burst):
    spectrogram = compute_spectrogram(burst)
    front_end = spectrogram.front_end
    truth = events((1.5, 2.25, 1_900, 2_100))
    figure = plot_boxes(spectrogram, truth=truth, predictions=events((1.0, 2.0, 500, 9_000, 0.42)))
    drawn = {c.get_label(): c for c in figure.axes[0].collections if isinstance(c, PatchCollection)}
    assert set(drawn) == {"truth (1)", "prediction (1)"}
    corners = drawn["truth (1)"].get_paths()[0].vertices
    expected = [1.5, front_end.hz_to_bins(1_900), 2.25, front_end.hz_to_bins(2_100)]
    assert [*corners.min(axis=0), *corners.max(axis=0)] == pytest.approx(expected)
    # above the band: held at its edge, where the line can be seen
    assert drawn["prediction (1)"].get_paths()[0].vertices[:, 1].max() == pytest.approx(front_end.n_bins)
    low, high = figure.axes[0].get_ylim()
    assert low <= front_end.hz_to_bins(front_end.low_hz)
    assert high >= front_end.hz_to_bins(front_end.high_hz)


def test_truth_is_solid_green_and_predictions_dashed_blue_with_their_score(burst):
    figure = plot_boxes(
        compute_spectrogram(burst), truth=events((1, 2, 500, 900)), predictions=events((1, 2, 500, 900, 0.42))
    )
    axes = figure.axes[0]
    handles = axes.get_legend().legend_handles
    assert [(h.get_color(), h.is_dashed()) for h in handles] == [
        (TRUTH_COLOUR, False),
        (PREDICTION_COLOUR, True),
    ]
    assert [text.get_text() for text in axes.texts] == ["0.42"]
    figure.draw_without_rendering()
    assert axes.get_legend().get_window_extent().y0 >= axes.get_window_extent().y1  # outside the data


def test_boxes_of_a_detector_are_not_called_truth(burst):
    sound = compute_spectrogram(burst)
    found = events((1.5, 2.25, 1_500, 2_500, 0.7))
    for source, name in (("expert", "truth (1)"), ("", "truth (1)"), ("simulator", "truth (1)")):
        (text,) = plot_boxes(sound, truth=found.assign(source=source)).axes[0].get_legend().get_texts()
        assert text.get_text() == name
    for source in ("detector", "pseudo-2"):
        (text,) = plot_boxes(sound, truth=found.assign(source=source)).axes[0].get_legend().get_texts()
        assert text.get_text() == "detection (1)"


def test_names_are_drawn_as_they_are_not_as_tex(burst):
    """Every picture that shows somebody's words: a recording, a label, a site, a split."""
    from mast.reports.cluster_map import draw_map
    from mast.reports.fit_figures import parts_figure

    tex = "$\\frac{$"
    figure_png(plot_boxes(compute_spectrogram(burst), title=f"{tex}.wav"), dpi=20)
    table = pd.DataFrame({"x": [0.0, 1.0], "y": [0.0, 1.0], "novelty": [0.1, 0.2], "cluster": [0, 1]})
    table = table.assign(label=[tex, "robin"], site=[tex, "A"], recording=[tex, "b.wav"])
    figure_png(draw_map(table, seed=0), dpi=20)
    numbers = {
        "parts": ["a"],
        "detectors": {"d": {"parts": {"a": {"f1": 0.5, "intervals": {"f1": [0.4, 0.6]}}}}},
    }
    figure_png(parts_figure(numbers, {"d": "fitted"}, {"a": tex}), dpi=20)


def test_the_frequency_axis_reads_right(burst):
    axes = plot_boxes(compute_spectrogram(burst)).axes[0]
    front_end = FrontEnd()
    labels = [float(label.get_text()) for label in axes.get_yticklabels()]
    assert len(labels) >= 6
    assert front_end.bins_to_hz(axes.get_yticks()) == pytest.approx(np.array(labels) * 1_000)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Time (s)", "Frequency (kHz)")
    assert axes.get_legend() is None


@pytest.mark.parametrize("high_hz", [1_000, 2_000, 8_000, 22_050, 96_000, 250_000])
def test_ticks_are_in_the_band_and_apart(high_hz):
    front_end = FrontEnd.for_band(high_hz)
    ticks = frequency_ticks(front_end, max_ticks=13)
    assert 5 <= len(ticks) <= 13
    assert front_end.low_hz <= ticks.min() <= ticks.max() <= front_end.high_hz
    assert np.diff(front_end.hz_to_bins(ticks)).min() >= front_end.n_bins / 13


def test_only_boxes_in_view_are_drawn(burst):
    spectrogram = compute_spectrogram(burst, start_s=1.0, end_s=2.0)
    table = events(
        (0.5, 1.5, 500, 900),  # reaches in
        (2.5, 3.0, 500, 900),  # later
        (1.2, 1.4, 9_000, 9_900),  # above the band
        (0.0, 4.0, 0, 20_000),  # around everything
    )
    assert boxes_in_view(table, spectrogram).index.tolist() == [0, 3]


def test_long_spans_are_thinned_to_the_loudest(burst):
    full = compute_spectrogram(burst, max_columns=10_000)
    thin = compute_spectrogram(burst, max_columns=50)
    factor = round(thin.column_s / full.column_s)
    assert len(thin.values) <= 50
    by_hand = [full.values[k : k + factor].max(axis=0) for k in range(0, len(full.values), factor)]
    assert np.abs(thin.values - np.array(by_hand)).max() < 1e-5
    left, right, _, _ = loud_region(thin)
    assert left <= 1.5 + full.column_s
    assert right >= 2.25 - full.column_s


def test_a_recording_read_block_by_block_has_no_seams(tmp_path, monkeypatch):
    path = write_burst(tmp_path / "x.wav", rate=22_050, seconds=9.0, start_s=1.0, end_s=8.0, hz=1_000.0)
    whole = compute_spectrogram(path)
    monkeypatch.setattr("mast.reports.spectrogram._BLOCK_S", 2.0)
    # rounding of the resampler shows in the quietest cells; a seam would differ by 1 and more
    assert np.abs(compute_spectrogram(path).values - whole.values).max() < 0.05


def test_a_span_beyond_the_end_shows_what_exists(burst):
    spectrogram = compute_spectrogram(burst, start_s=3.0, end_s=99.0)
    assert spectrogram.end_s == pytest.approx(4.0)


@pytest.mark.parametrize(("start_s", "end_s"), [(5.0, None), (2.0, 1.0), (1.0, 1.0)])
def test_impossible_spans_are_refused(burst, start_s, end_s):
    with pytest.raises(AudioError, match=r"burst\.wav: cannot draw a picture .* lasts 4 s"):
        compute_spectrogram(burst, start_s=start_s, end_s=end_s)


def test_too_little_sound_is_refused(tmp_path):
    sf.write(tmp_path / "short.wav", np.zeros(160), 16_000)
    with pytest.raises(AudioError, match="less than one frame"):
        compute_spectrogram(tmp_path / "short.wav")


def test_a_picture_of_silence_is_blank_not_an_error(tmp_path):
    sf.write(tmp_path / "silent.wav", np.zeros(32_000), 16_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = draw_spectrogram(tmp_path / "silent.wav", tmp_path / "new" / "silent.png")
    assert imread(out).shape[:2] == (690, 1800)


def test_the_png_shows_the_boxes_in_their_colours(burst, tmp_path):
    bare = imread(draw_spectrogram(burst, tmp_path / "bare.png"))[..., :3]
    boxed = imread(
        draw_spectrogram(
            burst,
            tmp_path / "boxed.png",
            truth=events((0.5, 1.0, 500, 900)),
            predictions=events((2.5, 3.0, 500, 900, 0.42)),
        )
    )[..., :3]

    def near(picture: np.ndarray, colour: str) -> int:
        rgb = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
        return int((np.abs(picture - rgb).max(axis=2) < 0.05).sum())

    for colour in (TRUTH_COLOUR, PREDICTION_COLOUR):
        assert near(bare, colour) == 0
        assert near(boxed, colour) > 200


@pytest.mark.real
@pytest.mark.parametrize("name", ["birdeep_am1", "nbm_xc", "tagus_fish", "cr_bats"])
def test_real_boxes_lie_on_real_sounds(shared_data, name):
    """Inside the boxes it is louder than beside them in time; less so when they are moved."""
    table = as_events(pd.read_csv(shared_data / name / "boxes.csv"))
    listing = pd.read_csv(shared_data / name / "recordings.csv").set_index("file")
    recording = table["recording"].value_counts().index[0]
    rate = listing.loc[recording, "sample_rate"]
    front_end = FrontEnd() if rate == 16_000 else FrontEnd.for_band(rate / 2)
    path = shared_data / name / "audio" / recording
    spectrogram = compute_spectrogram(path, front_end=front_end, max_columns=1_000_000)
    mine = boxes_in_view(table[table["recording"] == recording], spectrogram)
    values = spectrogram.values - np.median(spectrogram.values, axis=0)

    def loudness(shift_s: float) -> float:
        inside = []
        for box in mine.itertuples():
            t1, t2 = (
                int(np.clip((t + shift_s - spectrogram.left_s) / spectrogram.column_s, 0, len(values) - 1))
                for t in (box.start_s, box.end_s)
            )
            f1, f2 = (
                int(np.clip(np.rint(front_end.hz_to_bins(f)), 0, 127)) for f in (box.low_hz, box.high_hz)
            )
            inside.append(values[t1 : t2 + 1, f1 : f2 + 1].mean())
        return float(np.mean(inside))

    length = float((mine["end_s"] - mine["start_s"]).median())
    here = loudness(0.0)
    assert here > 0.1
    assert here > loudness(length)
    assert here > loudness(-length)
