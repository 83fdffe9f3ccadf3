"""Figures of real recordings and of speed, and those that explain a metric, are in the pages as they were measured."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from doc_blocks import ROOT
from page_figures import (
    assert_says,
    f1_text,
    figures,
    flipped,
    interval,
    join_words,
    page_text,
    percent,
    results,
    signed,
)

from mast.events import pairwise_iou


@pytest.mark.parametrize("page", ["README.md", "docs/zero_shot.md"])
def test_figures_of_the_embedded_model_stand_beside_what_limits_them(page: str) -> None:
    text = page_text(page)
    at = text.index("0.44 (0.29–0.58)")  # birdeep_am1
    nearby = text[at : at + 4_500]  # the rest of the table, and the notes under it
    for said in (
        "recorder whose earlier days",
        "drawn by a vision-language model",
        "looked at while the model was being developed",
    ):
        assert said in nearby, f"{page}: {said}"


def test_readme_on_bats_and_speed() -> None:
    newer, older = (
        3600 / figures(name)["race"]["mast"]["times_real_time"]
        for name in ("speed", "speed_without_bfloat16")
    )
    assert_says(
        "README.md",
        "strongest harmonic, a choice made on these recordings",
        f"an hour of sound in about {newer:.0f} seconds ({older:.0f} on CPUs without bfloat16;",
    )


@pytest.mark.parametrize(
    ("dataset", "part"),
    [("birdeep_am1", "temporal_ood"), ("tagus_fish", "temporal_ood"), ("cr_bats", "test")],
)
def test_readme_on_training_with_real_boxes(dataset: str, part: str) -> None:
    f1 = {system: row["f1"] for system, row in trained_on_real_boxes(dataset, part).items()}
    own = f1.pop("fitted")
    assert_says("README.md", f"{own:.2f} against {max(f1.values()):.2f}")


def trained_on_real_boxes(dataset: str, part: str) -> dict[str, dict[str, Any]]:
    """Every system's figures; `fitted` is what `mast fit` made of the embedded model."""
    rows = figures("experiments/real-sets")["rows"]
    return {row["system"]: row for row in rows if (row["dataset"], row["part"]) == (dataset, part)}


def test_training_with_real_boxes() -> None:
    birds, fish, site, bats = (
        trained_on_real_boxes(dataset, part)
        for dataset, part in (
            ("birdeep_am1", "temporal_ood"),
            ("tagus_fish", "temporal_ood"),
            ("tagus_fish", "site_ood"),
            ("cr_bats", "test"),
        )
    )
    baselines = ("faster_rcnn", "fcos", "yolo26", "detr", "audiomae")
    for found in (birds, fish, bats):
        assert all(found[name]["f1"] < found["fitted"]["f1"] for name in baselines)
    ahead = [flipped(found["faster_rcnn"]["differences"]["f1"]) for found in (birds, fish, bats)]
    assert_says(
        "docs/results.md",
        *(
            " | ".join(f"{found[name]['f1']:.3f}" for found in (birds, fish, site, bats)) + " |"
            for name in (*baselines, "fitted")
        ),
        f"by {join_words(map(interval, ahead))} over Faster R-CNN",
        f"(AP50 {birds['fitted']['ap50']:.2f} and {birds['faster_rcnn']['ap50']:.2f})",
    )


def test_two_halves_of_european_birds() -> None:
    first, second = (
        figures(name)["sets"]["nbm_xc"]["systems"]["mast"]["own threshold"]
        for name in ("zero_shot", "zero_shot_second_half")
    )
    found = figures("retrieval")["nbm_xc"]["detection"]
    whole = 2 * found["matched"] / (found["detections"] + found["annotated"])
    assert_says(
        "docs/zero_shot.md",
        f"the present model (`8c68fd8`) | {first['f1']:.2f} | {second['f1']:.2f} | {whole:.2f} |",
        f"and {f1_text(second)} is the better guess",
        f"where the detector reaches {f1_text(first)}",
    )


def test_how_well_annotators_agree() -> None:
    wetland, european = (f1_text(figures("checked")[name]) for name in ("birdeep_am1", "nbm_xc"))
    assert_says("docs/zero_shot.md", wetland, european)
    assert_says("docs/trust.md", f"{wetland} on wetland birds", f"{european} on European birds")


def test_a_few_boxes() -> None:
    without, ten, *more = figures("few_boxes")["tagus_fish"]["curves"]["model"]
    assert_says("docs/zero_shot.md", *map(f1_text, (without, ten, *more)))
    assert_says("docs/bats_and_fish.md", f"from {without['f1']:.2f} to {ten['f1']:.2f}")


def test_the_strongest_harmonic_of_bats() -> None:
    ways = figures("habits")["sets"]["cr_bats"]["ways"]
    text = f"raises F1 from {f1_text(ways['all'])} to {f1_text(ways['strongest'])}"
    assert_says("docs/bats_and_fish.md", text)


def test_a_teacher_for_the_embedded_model() -> None:
    sets = ("birdeep_am1", "nbm_xc, first half", "nbm_xc, second half", "tagus_fish", "cr_bats", "simulated")
    for row in results("teacher_trial")["rows"]:
        measured = [row["held back"], *(row["sets"].get(name) for name in sets)]
        cells = ["–" if one is None else f"{one['f1']:.2f}" for one in measured]
        assert_says("docs/zero_shot.md", f"| {row['name']} | {' | '.join(cells)} |")


def test_who_set_the_threshold() -> None:
    card = json.loads((ROOT / "src/mast/pretrained/default/model.json").read_text(encoding="utf-8"))
    heard = card["calibration"]
    assert_says(
        "docs/trust.md",
        f"{heard['n_recordings']} minutes of clips that set its threshold",
        f"({heard['n_truth']:,} boxes)",
    )


def test_corrected_counts() -> None:
    corrected = figures("corrected_counts")
    held = [100 * case["coverage"] for case in corrected["cases"]]
    assert_says(
        "docs/trust.md",
        f"in {min(held):g} to {max(held):g} % of {corrected['draws']:,} draws, "
        f"{100 * corrected['mean_coverage']:g} % on average over {len(held)} cases",
    )


def test_corrected_counts_of_sites() -> None:
    cases = figures("corrected_counts_sites")["cases"]
    alike = percent([share for case in cases if len({*case["powers"]}) == 1 for share in case["coverage"]])
    differing = {
        each: percent(
            [
                share
                for case in cases
                if len({*case["powers"]}) == 2 and case["each_site"] is each
                for share in case["coverage"]
            ]
        )
        for each in (False, True)
    }
    width = {
        each: sum(
            sum(case["half_width"])
            for case in cases
            if len({*case["powers"]}) == 1 and case["each_site"] is each
        )
        for each in (False, True)
    }
    assert 0.75 < width[False] / width[True] < 0.85
    assert_says(
        "docs/summarize.md",
        f"in {min(differing[False])} to {max(differing[False])} % of draws with one sample over both, "
        f"and in {min(differing[True])} to {max(differing[True])} % with 30 or 60 events at each",
        f"both ways held in {min(alike)} to {max(alike)} %, and one sample over both gives intervals a fifth narrower",
    )


def test_what_a_summary_takes() -> None:
    few, many = (figures("summarize")[size] for size in ("few", "many"))
    assert_says(
        "docs/summarize.md",
        f"took {many['seconds']:.1f} s and at most {many['peak_mb']:.0f} MB on two CPU cores; a tenth as many took "
        f"{few['peak_mb']:.0f} MB",
        f"with pictures in {many['clips']['seconds']:.0f} s, and the best 2,000 without pictures in "
        f"{many['sound']['seconds']:.0f} s",
    )


def test_names_and_voices() -> None:
    naming, voices = figures("naming"), figures("voices")
    european, wetland = (
        naming["second_half"][name]["detected boxes"][naming["chosen_on_the_first_half"]]
        for name in ("nbm_xc", "birdeep_am1")
    )
    assert wetland["unknown"] == 1.0
    speech = voices["pool"]["second_half"][f"{voices['threshold']}"]["speech"]["share"]
    named, right, heard = percent([1 - european["unknown"], european["right_of_named"], speech])
    assert_says(
        "docs/trust.md",
        f"named {named} % of the detections that match an expert's box; {right} % of those names were right",
        "recorded in the field at 16 kHz, it named none",
        f"found speech in {heard} % of clips",
    )


def test_memory_of_a_search() -> None:
    ratio = figures("detect")["memory"]["ratio"]
    assert_says("docs/index.md", f"({ratio:.2f} × in `results/detect.json`)")


def test_how_far_windows_overlap() -> None:
    quarter, half = (figures("hop")["hops"][name] for name in ("0.75", "0.5"))
    change = quarter["difference"]["f1"]
    difference, low, high = (signed(change[end]) for end in ("difference", "low", "high"))
    windows = f"{quarter['windows']} windows instead of {half['windows']}"
    assert_says("docs/method.md", f"F1 {difference} ({low} to {high}) for {windows}")


def test_searching_on_a_gpu() -> None:
    gpu = figures("gpu_speed")["end_to_end"]["1_workers"]
    steady = gpu["steady"]
    assert_says(
        "docs/scaling.md",
        f"{steady['chunks_per_s']:,.0f}, or {steady['ratio_to_encoder']:.2f} of the encoder",
        f"was done after {gpu['first_done_s']:.0f} s",
        f"the rate was {gpu['with_start']['chunks_per_s']:.0f}",
    )


def test_training_on_a_gpu() -> None:
    pretraining, detector = (
        figures(name)["runs"][0] for name in ("training_speed", "training_speed_detector")
    )
    assert_says(
        "docs/speed.md",
        f"batch of {pretraining['batch']} learns from {pretraining['loop_chunks_per_s']:,.0f} chunks a second, "
        f"{100 * pretraining['loop_share']:.0f} % of the bare step",
        f"trains on {detector['loop_chunks_per_s']:.0f} chunks a second at a batch of {detector['batch']}, "
        f"{100 * detector['loop_share']:.0f} % of its bare step",
    )


def test_pictures_that_explain_the_metrics() -> None:
    shifted = float(pairwise_iou([[0, 0, 1, 1]], [[0.2, 0.2, 1.2, 1.2]])[0, 0])
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import metrics_pictures
    finally:
        sys.path.pop(0)
    titles = [axes.get_title(loc="left") for axes in metrics_pictures.space_picture().axes]
    assert_says("docs/metrics.md", f"only {shifted:.2f}", *(title.rsplit(" ", 1)[1] for title in titles))
    pairs = [axes.get_title() for axes in metrics_pictures.iou_picture().axes]
    assert [title.endswith(": a match") for title in pairs] == [False, False, True, True]
