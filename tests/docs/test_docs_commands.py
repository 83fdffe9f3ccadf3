"""Commands, settings and numbers in the documentation are those of the program."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from doc_blocks import DOCS, PAGES, ROOT, Block, blocks, command_lines, commands, options, prose

from mast.events import pairwise_iou
from mast.training.recipe import PRESETS, load_recipe, parse_override
from mast_studies.presets import OWN_PRESETS

NAMES = {page: page.name for page in PAGES}
RENDERED_FROM_HELP = DOCS / "cli.md"


@pytest.mark.parametrize("page", PAGES, ids=NAMES.get)
def test_every_command_line_is_understood(page: Path) -> None:
    known, shown = commands(), 0
    for block in blocks(page):
        for words in command_lines(block):
            assert words[0] in known, f"{page.name}: mast {' '.join(words)}: no such command"
            _check_line(page, known[words[0]], words)
            shown += 1
    assert shown or page.name not in (
        "README.md",
        "quick_start.md",
        "raven_to_detector.md",
        "checking.md",
        "cli.md",
    )


def _check_line(page: Path, command: Any, words: list[str]) -> None:
    line = f"{page.name}: mast {' '.join(words)}"
    if any("…" in word or word == "..." for word in words):  # left open: only its options can be checked
        unknown = {word.split("=")[0] for word in words if word.startswith("--")} - options(command)
        assert not unknown, f"{line}: no option {', '.join(sorted(unknown))}"
        return
    try:
        given = command.make_context(words[0], list(words[1:])).params
    except Exception as error:
        pytest.fail(f"{line}: {error}")
    for text in given.get("settings") or []:
        load_recipe("tiny", dict([parse_override(text)]))
    preset = given.get("preset")
    known = (*PRESETS, *OWN_PRESETS) if words[0] == "experiment" else PRESETS
    assert preset is None or preset in known or str(preset).endswith(".toml"), f"{line}: no preset {preset}"


@pytest.mark.parametrize("page", PAGES, ids=NAMES.get)
def test_every_command_named_in_the_text_exists_with_its_options(page: Path) -> None:
    known = commands()
    for code in re.findall(r"`(mast [a-z][^`]*)`", prose(page)):
        words = code.split()
        names = [word for word in words[1].split("/") if word]
        for name in names:
            assert name in known, f"{page.name}: `{code}`: no such command"
        asked = {re.split(r"[=…]", word)[0] for word in words[2:] if word.startswith("--")}
        unknown = asked - options(known[names[0]])
        assert not unknown, f"{page.name}: `{code}`: no option {', '.join(sorted(unknown))}"


@pytest.mark.parametrize("page", PAGES, ids=NAMES.get)
def test_every_setting_in_the_text_can_be_set(page: Path) -> None:
    for text in re.findall(
        r"(?<![\w.])((?:pretrain|train|selftrain)\.[a-z_.0-9]+=[\w.]+)", page.read_text("utf-8")
    ):
        load_recipe("tiny", dict([parse_override(text)]))


def test_settings_that_do_not_exist_would_be_noticed() -> None:
    page = DOCS / "quick_start.md"
    with pytest.raises(pytest.fail.Exception, match="--nonsense"):
        _check_line(page, commands()["scan"], ["scan", "recordings/", "--nonsense"])
    lines = command_lines(Block(page, "bash", "srun mast scan a \\\n  --out b | head\n# mast none", False))
    assert lines == [["scan", "a", "--out", "b"]]


def test_the_page_of_commands_is_current() -> None:
    check = [sys.executable, str(ROOT / "scripts" / "cli_page.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = RENDERED_FROM_HELP.read_text(encoding="utf-8")
    for name, command in commands().items():
        section = text.split(f"\n## mast {name}\n")[1].split("\n## ")[0]
        own = options(command) - {"--help", "-h", "--quiet", "-q", "--debug", "--seed"}
        assert all(option in section for option in own), name


def test_numbers_are_those_of_the_results() -> None:
    def figures(name: str) -> Any:
        return json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))["figures"]

    def said(page: str, text: str) -> None:
        assert text in " ".join((DOCS / page).read_text(encoding="utf-8").split()), (
            f"docs/{page} should say: {text}"
        )

    said("index.md", f"({figures('detect')['memory']['ratio']:.2f} × in `results/detect.json`)")
    hop, half = (figures("hop")["hops"][name] for name in ("0.75", "0.5"))
    change = hop["difference"]["f1"]
    interval = f"({change['low']:+.3f} to {change['high']:+.3f})".replace("-", "−")
    value = f"F1 {change['difference']:+.3f}".replace("-", "−")
    said("method.md", f"{value} {interval} for {hop['windows']} windows instead of {half['windows']}")


def f1_text(row: dict[str, Any]) -> str:
    """0.47 (0.32–0.60)."""
    low, high = row["f1_interval"]
    return f"{row['f1']:.2f} ({low:.2f}–{high:.2f})"


def minus(value: float, digits: int = 3) -> str:
    """−0.01, with the sign that prose has."""
    return f"{value:.{digits}f}".replace("-", "−")


def interval(value: Sequence[float]) -> str:
    """A difference and its interval: 0.030 (−0.001 to 0.062)."""
    return f"{value[0]:.3f} ({minus(value[1])} to {value[2]:.3f})"


def interval_with(value: Sequence[float], of: str) -> str:
    """The same, with the metric's name: 0.030 F1 (−0.001 to 0.062)."""
    return f"{value[0]:.3f} {of} ({minus(value[1])} to {value[2]:.3f})"


def seen_of_propositions(figures: dict[str, Any]) -> list[str]:
    """What docs/results_worlds.md says about the paper's propositions."""
    first, second = figures["rounds"]
    away = figures["parts"]["site_ood"]
    errors = [100 * value for value in away["error, least to most confident"]]
    assert errors == sorted(errors, reverse=True)
    noise = [100 * away["noise"][name] for name in ("uniform", "weighted")]
    return [
        f"rises from {first['product']:.2f} to {second['product']:.2f}: precision falls from "
        f"{first['precision']:.2f} to {second['precision']:.2f}",
        f"rises from {first['recall']:.2f} to {second['recall']:.2f}",
        "{:.0f} % of the least confident fifth of the boxes are wrong, then {:.0f}, {:.0f} and {:.0f}, ".format(
            *errors
        )
        + f"and {errors[-1]:.0f} %",
        f"from {noise[0]:.1f} to {noise[1]:.1f} % wrong at other sites",
    ]


def products_and_gains(later: dict[str, Any]) -> list[str]:
    """What it says about the same product in two worlds with careful rounds."""
    runs = {run["world"]: run["pseudo_labels"][-1] for run in later["runs"] if run["name"] == "st_quiet"}
    product = {world: seen["precision"] * seen["recall"] for world, seen in runs.items()}
    gain = {
        world: later["other_sites"]["differences"][f"world {world}: st_quiet - from_scratch"]["f1"][
            "difference"
        ]
        for world in runs
    }
    return [
        f"it was {product[0]:.2f} in world 0, where self-training gained {gain[0]:.3f} F1, and {product[1]:.2f} in "
        f"world 1, where it lost {-gain[1]:.3f}"
    ]


Rows = dict[tuple[str, str], dict[str, Any]]


def labelled_by(rows: list[dict[str, Any]]) -> Rows:
    """The table of who labels in self-training, by system and part."""
    return {(row["system"], row["part"]): row for row in rows}


def two_teachers_in_short(premise: Rows, teachers: Rows) -> list[str]:
    """What docs/results.md says about two teachers."""
    alone, taught = (premise[name, "site_ood"] for name in ("from_scratch_st", "taught_st"))
    ahead = teachers["taught_st", "site_ood"]["differences"]["ap50"]
    lead = taught["differences"]
    return [
        f"world 6 is {taught['ap50']:.3f} instead of {alone['ap50']:.3f}, a difference of {interval(ahead)}. F1 is the "
        f"same ({taught['f1']:.3f} and {alone['f1']:.3f})",
        f"{interval_with(lead['f1'], 'F1')} and {interval_with(lead['ap50'], 'AP50')}. Training takes twice",
    ]


def two_teachers(
    premise: Rows, teachers: Rows, quality: list[dict[str, Any]], sites: dict[str, Any]
) -> list[str]:
    """What docs/results_worlds.md says about them."""
    alone, taught = (premise[name, "site_ood"] for name in ("from_scratch_st", "taught_st"))
    better, at_home = (teachers["taught_st", part]["differences"] for part in ("site_ood", "test"))
    level, lead = alone["differences"], taught["differences"]
    right, reached = (
        {row["system"]: round(100 * row[name]) for row in quality if row["round"] == 2}
        for name in ("precision", "recall")
    )
    names = ("faster_rcnn", "from_scratch", "from_scratch_st", "taught_st")
    unheard, heard = (
        [sites[name][where] for name in names] for where in ("never heard", "heard without labels")
    )
    wrong = {name: sites[name]["false alarms"] for name in ("from_scratch_st", "faster_rcnn")}
    own, other = wrong["from_scratch_st"], wrong["faster_rcnn"]
    could_gain = max(
        one["threshold"]["f1 with the best"] - one["all"]["f1"] for one in map(sites.__getitem__, names)
    )
    minutes = [premise[name, "test"]["train_seconds"] / 60 for name in names]
    elsewhere, at_home_too = (
        [sites[name]["species"][where] for name in names] for where in ("not at home", "at home, too")
    )
    return [
        f"by {interval_with(level['f1'], 'F1')}; AP50 is level, {minus(level['ap50'][0])} "
        f"({minus(level['ap50'][1])} to {level['ap50'][2]:.3f})",
        f"the lead is {interval_with(lead['f1'], 'F1')} and {interval_with(lead['ap50'], 'AP50')}",
        f"{interval_with(alone['gained']['f1'], 'F1')} and {interval_with(alone['gained']['ap50'], 'AP50')} at other "
        f"sites over its start, with two teachers {interval(taught['gained']['f1'])} and "
        f"{interval(taught['gained']['ap50'])}",
        f"by {interval_with(better['ap50'], 'AP50')} and {interval_with(better['f1'], 'F1')} at other sites. In domain "
        f"it costs {-at_home['ap50'][0]:.3f} AP50 ({-at_home['ap50'][2]:.3f} to {-at_home['ap50'][1]:.3f})",
        f"{right['taught_st']} % of its second round are right and {reached['taught_st']} % of the calls have one, "
        f"against {right['from_scratch_st']} and {reached['from_scratch_st']} %",
        "F1 {:.3f} for Faster R-CNN, {:.3f} for MAST from scratch, {:.3f} with self-training and {:.3f} with two "
        "teachers ({} boxes in {} recordings)".format(
            *(one["f1"] for one in unheard), unheard[0]["boxes"], unheard[0]["recordings"]
        ),
        "it is {:.3f}, {:.3f}, {:.3f} and {:.3f}".format(*(one["f1"] for one in heard)),
        "Of their {} calls, Faster R-CNN finds {:.0f} %, MAST from scratch {:.0f} %, with self-training {:.0f} % and "
        "with two teachers {:.0f} %".format(
            elsewhere[0]["boxes"], *(100 * one["recall"] for one in elsewhere)
        ),
        "of the {:,} calls of species that were labelled at home, {:.0f}, {:.0f}, {:.0f} and {:.0f} %".format(
            at_home_too[0]["boxes"], *(100 * one["recall"] for one in at_home_too)
        ),
        f"would raise F1 by at most {could_gain:.3f} for any system",
        f"Of the {sum(own.values())} false alarms of MAST with self-training there, {own['nothing there']} have "
        f"nothing to do with a call, and {own['part of a call']} are parts of one. Faster R-CNN has "
        f"{other['nothing there']} and {other['part of a call']} of {sum(other.values())}",
        "Faster R-CNN took {:.1f} minutes, MAST {:.1f}, self-training {:.1f} with its start, and {:.1f} with two "
        "teachers".format(*minutes),
    ]


def seventh_world_in_short(by_round: Rows, sites: dict[str, Any]) -> list[str]:
    """What docs/results.md says about the first world with longer rounds."""
    best = {name: sites[name]["threshold"]["f1 with the best"] for name in ("faster_rcnn", "from_scratch_st")}
    return [
        f"with the best thresholds the lead there would be {best['from_scratch_st'] - best['faster_rcnn']:.3f}",
        f"adds {second_round(by_round)['f1']} to the first",
    ]


def second_round(by_round: Rows) -> dict[str, str]:
    """What the second round adds to the first at other sites, as docs write it: the table compares with the second."""
    behind = by_round["from_scratch_st_1", "site_ood"]["differences"]
    return {
        name: interval_with([-behind[name][end] for end in (0, 2, 1)], title)
        for name, title in (("f1", "F1"), ("ap50", "AP50"))
    }


def seventh_world(
    premise: Rows,
    by_round: Rows,
    quality: list[dict[str, Any]],
    sites: dict[str, Any],
    fused: dict[str, float],
) -> list[str]:
    """What docs/results_worlds.md says about it."""
    away, home, days = (premise["from_scratch_st", part] for part in ("site_ood", "test", "temporal_ood"))
    names = ("faster_rcnn", "from_scratch", "from_scratch_st")
    rcnn, scratch, trained = (sites[name] for name in names)
    best = {name: sites[name]["threshold"]["f1 with the best"] for name in names}
    added, gained = second_round(by_round), home["gained"]["f1"]
    shares = [[round(100 * row[name]) for row in quality[:2]] for name in ("precision", "recall")]
    leads = ", ".join(
        f"{where} by {interval_with(row['differences']['f1'], 'F1')} and "
        f"{interval_with(row['differences']['ap50'], 'AP50')}"
        for where, row in (("at other sites", away), ("in domain", home), ("on other days", days))
    )
    return [
        leads,
        f"precision {rcnn['all']['precision']:.2f}, recall {rcnn['all']['recall']:.2f}",
        f"Faster R-CNN would have F1 {best['faster_rcnn']:.3f}, MAST from scratch {best['from_scratch']:.3f} and MAST "
        f"with self-training {best['from_scratch_st']:.3f}: a lead of "
        f"{best['from_scratch_st'] - best['faster_rcnn']:.3f}",
        f"it would gain only {best['from_scratch_st'] - trained['all']['f1']:.3f}",
        f"{interval_with(away['gained']['f1'], 'F1')} and {interval_with(away['gained']['ap50'], 'AP50')} at other "
        "sites over its start",
        f"adds {added['f1']} and {added['ap50']} to the first. At home F1 changes by {minus(gained[0])} "
        f"({minus(gained[1])} to {gained[2]:.3f}) in domain and by {days['gained']['f1'][0]:.3f} on other days, "
        f"AP50 by {home['gained']['ap50'][0]:.3f} and {days['gained']['ap50'][0]:.3f}",
        "F1 {:.3f} for Faster R-CNN, {:.3f} for MAST from scratch and {:.3f} with self-training ({:,} boxes in".format(
            *(sites[name]["never heard"]["f1"] for name in names), rcnn["never heard"]["boxes"]
        ),
        "it is {:.3f}, {:.3f} and {:.3f}".format(
            *(sites[name]["heard without labels"]["f1"] for name in names)
        ),
        "Of their {:,} calls, Faster R-CNN finds {:.0f} %, MAST from scratch {:.0f} % and with self-training {:.0f} %; "
        "of the {} calls of species that were labelled at home, {:.0f}, {:.0f} and {:.0f} %".format(
            *(
                value
                for where in ("not at home", "at home, too")
                for value in (
                    rcnn["species"][where]["boxes"],
                    *(100 * one["species"][where]["recall"] for one in (rcnn, scratch, trained)),
                )
            )
        ),
        "{} % are right in the first round and {} % in the second; {} and {} % of the".format(
            *shares[0], *shares[1]
        ),
        "took {:.1f} minutes, MAST {:.1f}, and self-training {:.1f} with".format(
            *(premise[name, "test"]["train_seconds"] / 60 for name in names)
        ),
        f"have an AP50 of {fused['ap50']:.3f} at other sites, but an F1 of {fused['f1']:.3f}",
    ]


def never_heard(systems: dict[str, Any]) -> list[str]:
    """What it says about sites in no unlabelled sound."""
    names = ("faster_rcnn", "from_scratch", "from_scratch_st")
    heard = [systems[name]["heard without labels"]["f1"] for name in names]
    rcnn, scratch, trained = (systems[name]["never heard"] for name in names)
    return [
        f"F1 {rcnn['f1']:.3f} for Faster R-CNN, {scratch['f1']:.3f} for MAST from scratch and {trained['f1']:.3f} with "
        f"self-training ({rcnn['boxes']} boxes in {rcnn['recordings']} recordings)",
        "it is {:.3f}, {:.3f} and {:.3f}".format(*heard),
    ]


def real_set_figures(rows: list[dict[str, Any]]) -> list[str]:
    """What docs/results.md says about real recordings."""
    found = {(row["system"], row["dataset"], row["part"]): row for row in rows}
    birds, fish, site, bats = (
        ("birdeep_am1", "temporal_ood"),
        ("tagus_fish", "temporal_ood"),
        ("tagus_fish", "site_ood"),
        ("cr_bats", "test"),
    )
    systems = ("faster_rcnn", "fcos", "yolo26", "detr", "audiomae", "fitted")
    table = [
        " | ".join(f"{found[system, *part]['f1']:.3f}" for part in (birds, fish, site, bats)) + " |"
        for system in systems
    ]
    ahead = []
    for part in (birds, fish, bats):
        value, low, high = (-float(v) for v in found["faster_rcnn", *part]["differences"]["f1"])
        ahead.append(f"{value:.3f} ({minus(high)} to {low:.3f})")
        mine = found["fitted", *part]["f1"]
        assert all(found[system, *part]["f1"] < mine for system in systems[:-1]), part
    return [
        *table,
        f"by {ahead[0]}, {ahead[1]} and {ahead[2]} over Faster R-CNN",
        f"(AP50 {found['fitted', *birds]['ap50']:.2f} and {found['faster_rcnn', *birds]['ap50']:.2f})",
    ]


def _mine_and_best(rows: list[dict[str, Any]], dataset: str, part: str) -> tuple[float, float]:
    """F1 of what `mast fit` made, and of the best baseline."""
    own = {
        row["system"]: float(row["f1"]) for row in rows if (row["dataset"], row["part"]) == (dataset, part)
    }
    return own.pop("fitted"), max(own.values())


def test_numbers_of_the_embedded_model_are_those_of_the_results() -> None:
    def figures(name: str) -> Any:
        return json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))["figures"]

    first, second = (
        figures(name)["sets"]["nbm_xc"]["systems"]["mast"] for name in ("zero_shot", "zero_shot_second_half")
    )
    found = figures("retrieval")["nbm_xc"]["detection"]
    both = 2 * found["matched"] / (found["detections"] + found["annotated"])
    own = [row["own threshold"] for row in (first, second)]
    halves = " | ".join(f"{value:.2f}" for value in (own[0]["f1"], own[1]["f1"], both))
    drawn = figures("checked")
    curve = figures("few_boxes")["tagus_fish"]["curves"]["model"]
    race = figures("speed")["race"]["mast"]
    gpu = figures("gpu_speed")["end_to_end"]["1_workers"]
    premise = figures("experiments/second_edition/premise")["rows"]
    fresh = {
        (row["system"], row["part"]): row for row in premise if row["dataset"] == "soundscape-bench"
    }  # one row of the table for each system
    won = fresh["from_scratch_st", "site_ood"]
    lead, ap_lead = ([float(v) for v in won["differences"][value]] for value in ("f1", "ap50"))
    gained = {value: won[value] - fresh["from_scratch", "site_ood"][value] for value in ("f1", "ap50")}
    third, fourth, fifth, sixth, seventh = (
        {(row["system"], row["part"]): row for row in figures(f"experiments/world_{world}/premise")["rows"]}
        for world in (3, 4, 5, 6, 7)
    )
    sixth_gain, seventh_gain = (world["from_scratch_st", "site_ood"]["gained"] for world in (sixth, seventh))
    seventh_systems = figures("other_sites_world_7")["worlds"][0]["systems"]
    worlds = {
        row["part"]: row["differences"]
        for row in figures("worlds")["rows"]
        if row["system"] == "from_scratch_st"
    }
    leads = {part: own["f1"]["by_world"] for part, own in worlds.items()}
    ap_leads = {part: own["ap50"]["by_world"] for part, own in worlds.items()}
    means = {
        (part, name): [own[name][end] for end in ("mean", "low", "high")]
        for part, own in worlds.items()
        for name in ("f1", "ap50")
    }
    third_gain = {
        value: third["from_scratch_st", "site_ood"][value] - third["from_scratch", "site_ood"][value]
        for value in ("f1", "ap50")
    }
    fourth_gain = fourth["from_scratch_st", "site_ood"]["gained"]
    level_start = {
        value: mean(
            world["from_scratch", "site_ood"]["differences"][value][0]
            for world in (third, fourth, sixth, seventh)
        )
        for value in ("f1", "ap50")
    }
    rows = [row for row in premise if row["dataset"] == "development world"]
    away = {row["system"]: row for row in rows if row["part"] == "site_ood"}
    home = {row["system"]: row for row in rows if row["part"] == "test"}
    days = {row["system"]: row for row in rows if row["part"] == "temporal_ood"}
    trial = json.loads((ROOT / "results" / "premise_development.json").read_text(encoding="utf-8"))
    rcnn = next(run for run in trial["runs"] if run["system"] == "rcnn_strong")
    gains = trial["other_sites"]["differences"]
    pretrained = gains["mast - from_scratch"]
    away_rows = [
        " | ".join(
            f"{system[part]['f1']:.3f} / {system[part]['ap50']:.3f}"
            for part in ("heard without labels", "never heard", "without calls over 5 s")
        )
        + f" | {system['false alarms']['part of a call']} of {sum(system['false alarms'].values())} |"
        for world in figures("other_sites")["worlds"]
        for system in world["systems"].values()
    ]
    later, third_world, songs, means_of_rounds, labelled_together, longer = trial["later"][-6:]
    mixed = {tuple(run["rounds averaged"]): run for run in means_of_rounds["runs"]}
    last_round = mixed[3,]
    songs_rows = [
        f"| {run['site_ood']['f1']:.3f} | {run['site_ood']['ap50']:.3f} | {steady['site_ood']:.3f} |"
        for run in songs["runs"]
        for steady in (run["with a steady threshold"],)
    ]
    latent = labelled_together["other_sites"]["differences"]["mast_latent - from_scratch"]
    sites = {(run["name"], run["world"]): run["site_ood"] for run in later["runs"]}
    careful = later["other_sites"]["differences"]["world 0: st_quiet - from_scratch"]
    level, small_gain = (
        third_world["other_sites"]["differences"][f"world 2: st_quiet - {other}"]
        for other in ("faster_rcnn", "from_scratch")
    )
    at_home = third_world["at_home"]["differences"]
    thresholds = {
        world["seed"]: {name: system["threshold"] for name, system in world["systems"].items()}
        for world in figures("other_sites")["worlds"]
    }
    raised = [
        gains["st_union - mast"]["f1"]["difference"],
        gained["f1"],
        small_gain["f1"]["difference"],
        third_gain["f1"],
        fourth_gain["f1"][0],
        last_round["site_ood"]["f1"] - fifth["from_scratch", "site_ood"]["f1"],
        sixth_gain["f1"][0],
        seventh_gain["f1"][0],
    ]
    in_five_worlds = {
        value: mean(
            [
                *(world[0] for world in by_world["site_ood"]),
                last_round["site_ood"][value] - fifth["faster_rcnn", "site_ood"][value],
            ]
        )
        for value, by_world in (("f1", leads), ("ap50", ap_leads))
    }
    ahead, own_gain = (gains[f"st_union - {other}"]["f1"] for other in ("faster_rcnn", "mast"))
    said = {
        "docs/zero_shot.md": [
            f"the present model (`8c68fd8`) | {halves} |",
            f"and {f1_text(own[1])} is the better guess",
            f"where the detector reaches {f1_text(own[0])}",
            *(f"{f1_text(drawn[name])}" for name in ("birdeep_am1", "nbm_xc")),
            *(f1_text(point) for point in curve),
            *teacher_rows(),
        ],
        "README.md": [
            "strongest harmonic, a choice made on these recordings",
            f"an hour of sound in about {3600 / race['times_real_time']:.0f} seconds "
            f"({3600 / figures('speed_without_bfloat16')['race']['mast']['times_real_time']:.0f} on CPUs "
            "without bfloat16;",
            "F1 is {}, {}, {} and {}".format(
                *(
                    f"{world['from_scratch_st', 'site_ood']['f1']:.2f} against "
                    f"{world['faster_rcnn', 'site_ood']['f1']:.2f}"
                    for world in (third, fourth, sixth, seventh)
                )
            ),
            f"(mean over the newest five: {in_five_worlds['f1']:.2f})",
            f"by {min(raised):.2f} to {max(raised):.2f}",
        ],
        "docs/results.md": [
            f"the lead was +{interval(lead)} and {abs(level['f1']['difference']):.3f} "
            f"({minus(level['f1']['low'])} to {level['f1']['high']:.3f}), with an earlier recipe",
            "by {}, {}, {} and {} F1 over Faster R-CNN".format(*map(interval, leads["site_ood"])),
            *two_teachers_in_short(sixth, labelled_by(figures("experiments/world_6/teachers")["rows"])),
            f"by {interval(means['site_ood', 'f1'])} on average",
            f"AP50 is ahead by {interval(means['site_ood', 'ap50'])}",
            "on average by {} F1 ({} to {}) in domain".format(
                *(minus(value) for value in means["test", "f1"])
            ),
            f"{interval(means['temporal_ood', 'f1'])} on other days",
            f"({level_start['f1']:.3f} F1 and {minus(level_start['ap50'])} AP50 at other sites on average)",
            "by "
            + " and ".join(
                f"{-world['fcos', 'site_ood']['differences']['f1'][0]:.3f}" for world in (third, fourth)
            )
            + " in worlds 3 and 4, and so is YOLO26, by "
            f"{-third['yolo26', 'site_ood']['differences']['f1'][0]:.3f} in world 3",
            ", ".join(f"{value:.2f}" for value in raised[:-1])
            + f" and {raised[-1]:.2f} at other sites in worlds 0 to 7",
            f"the mean lead is {in_five_worlds['f1']:.3f} F1 and {in_five_worlds['ap50']:.3f} AP50",
            *seventh_world_in_short(
                labelled_by(figures("experiments/world_7/teachers")["rows"]), seventh_systems
            ),
            " and ".join(
                f"{text} from {last_round['site_ood'][value]:.3f} to {mixed[1, 2, 3]['site_ood'][value]:.3f}"
                for value, text in (("ap50", "AP50 at other sites"), ("f1", "F1"))
            ),
            "MAST finds {:.0f} % of their calls instead of {:.0f} %".format(
                *(
                    100 * seventh_systems[name]["species"]["not at home"]["recall"]
                    for name in ("from_scratch_st", "from_scratch")
                )
            ),
            f"In world 4 the gain is {interval(fourth_gain['f1'])}, in world 6 {interval(sixth_gain['f1'])}, "
            f"in world 7 {interval(seventh_gain['f1'])}",
            *(
                " | ".join(f"{one['f1']:.3f} / {one['ap50']:.3f}" for one in row)
                for row in (
                    [rcnn["site_ood"], sites["from_scratch", 0], sites["st_quiet", 0]],
                    [fresh[name, "site_ood"] for name in ("faster_rcnn", "from_scratch", "from_scratch_st")],
                    [run["site_ood"] for run in third_world["runs"] if run["world"] == 2],
                    [run["site_ood"] for run in songs["runs"] if run["world"] == 1],
                    *(
                        [
                            world[name, "site_ood"]
                            for name in ("faster_rcnn", "from_scratch", "from_scratch_st")
                        ]
                        for world in (third, fourth, sixth, seventh)
                    ),
                    [
                        *(fifth[name, "site_ood"] for name in ("faster_rcnn", "from_scratch")),
                        last_round["site_ood"],
                    ],
                )
            ),
            *(
                f"{minus(gain['difference']) if gain['difference'] < 0 else '+' + format(gain['difference'], '.3f')} "
                f"{title} ({minus(gain['low'])} to {minus(gain['high'] + 0.0)})"
                for title, gain in (
                    ("F1", pretrained["f1"]),
                    ("AP50", pretrained["ap50"]),
                    ("F1", latent["f1"]),
                    ("AP50", latent["ap50"]),
                )
            ),
            "{:.3f} F1 and {:.3f} AP50 better at other sites of".format(
                *gained_together(figures("fused_systems")["worlds"]["4"])
            ),
        ],
        "docs/results_worlds.md": [
            *longer_rounds(longer),
            *labellers(figures("fused_systems")["worlds"], labelled_together),
            *away_rows,
            *songs_rows,
            *(
                " | ".join(
                    f"{world[system, part][value]:.3f}"
                    for part in ("test", "temporal_ood", "site_ood")
                    for value in ("f1", "ap50")
                )
                for world in (
                    *(fresh, third, fourth, fifth, sixth, seventh),
                    *(labelled_by(figures(f"experiments/world_{n}/teachers")["rows"]) for n in (6, 7)),
                )
                for system in (
                    *("faster_rcnn", "fcos", "yolo26", "from_scratch", "from_scratch_st"),
                    *("from_scratch_st_1", "taught_st_1", "taught_st"),
                )
                if (system, "test") in world
            ),
            *(
                f"{f1[0]:.3f} F1 ({f1[1]:.3f} to {f1[2]:.3f}) and {ap50[0]:.3f} AP50 "
                f"({minus(ap50[1])} to {ap50[2]:.3f}) with seed {seed}"
                for seed, f1, ap50 in zip(
                    (3, 4), leads["site_ood"][:2], ap_leads["site_ood"][:2], strict=True
                )
            ),
            "is {:.3f} F1 ({:.3f} to {:.3f})".format(*means["site_ood", "f1"]),
            f"and {interval_with(means['site_ood', 'ap50'], 'AP50')}",
            f"{interval_with(means['test', 'f1'], 'F1')} and {minus(means['test', 'ap50'][0])} AP50, on other days "
            f"{means['temporal_ood', 'f1'][0]:.3f} and {minus(means['temporal_ood', 'ap50'][0])}",
            f"gains {third_gain['f1']:.3f} F1 and {third_gain['ap50']:.3f} AP50 at other sites",
            f"gains {interval_with(fourth_gain['f1'], 'F1')} and {interval_with(fourth_gain['ap50'], 'AP50')}",
            *seen_of_propositions(figures("propositions")),
            *products_and_gains(later),
            "with seed 4, {precision:.0%} of the pseudo-labels are right and {recall:.0%} of".format(
                **figures("experiments/world_4/premise")["pseudo_labels"][-1]
            ).replace("%", " %"),
            *never_heard(figures("other_sites_world_4")["worlds"][0]["systems"]),
            *seventh_world(
                seventh,
                labelled_by(figures("experiments/world_7/teachers")["rows"]),
                figures("experiments/world_7/premise")["pseudo_labels"],
                seventh_systems,
                figures("fused_systems_world_7")["worlds"]["7"]["faster_rcnn+from_scratch_st"]["site_ood"],
            ),
            *two_teachers(
                sixth,
                labelled_by(figures("experiments/world_6/teachers")["rows"]),
                figures("experiments/world_6/premise")["pseudo_labels"],
                figures("other_sites_world_6")["worlds"][0]["systems"],
            ),
            "have an AP50 of {ap50:.3f} at other sites; F1 stays at {f1:.3f}".format(
                **figures("fused_systems_world_6")["worlds"]["6"]["faster_rcnn+taught_st"]["site_ood"]
            ),
            f"is {lead[0]:.3f} above Faster R-CNN's ({minus(lead[1])} to {lead[2]:.3f}), and its AP50 "
            f"{-ap_lead[0]:.3f} below ({minus(ap_lead[1])} to {ap_lead[2]:.3f})",
            f"only {gained['f1']:.3f} F1 and {gained['ap50']:.3f} AP50",
            f"| {rcnn['test']['f1']:.3f} | {rcnn['temporal_ood']['f1']:.3f} | {rcnn['site_ood']['f1']:.3f} | "
            f"{rcnn['site_ood']['ap50']:.3f} |",
            *(
                f"| {home[name]['f1']:.3f} | {days[name]['f1']:.3f} |"
                for name in ("from_scratch", "mast", "st_union")
            ),
            *(f"{away[name]['f1']:.3f}" for name in ("from_scratch", "mast", "st_union", "st_full_doubt")),
            *(f"{sites[name, world]['f1']:.3f} | {sites[name, world]['ap50']:.3f}" for name, world in sites),
            *(
                " | ".join(
                    f"{run[part][value]:.3f}"
                    for part in ("test", "temporal_ood", "site_ood")
                    for value in ("f1", "ap50")
                )
                for run in (
                    *third_world["runs"],
                    *(mixed[rounds] for rounds in ((3,), (2, 3), (1, 2, 3), (0, 1, 2, 3))),
                )
            ),
            f"{abs(level['f1']['difference']):.3f} F1 ({minus(level['f1']['low'])} to {level['f1']['high']:.3f}) and "
            f"+{level['ap50']['difference']:.3f} AP50 ({minus(level['ap50']['low'])} to {level['ap50']['high']:.3f})",
            "costs "
            + " and ".join(
                f"{-lost['difference']:.3f} ({-lost['high']:.3f} to {-lost['low']:.3f}) {where}"
                for where in ("in domain", "on other days")
                for lost in [at_home[f"world 2, {where.removeprefix('on ')}: st_quiet - from_scratch"]["f1"]]
            ),
            "only {world 2:,} labelled boxes to train on in this world, {world 0:,} and {world 1:,} in the".format(
                **third_world["labelled_boxes_to_train_on"]
            ),
            f"gains {small_gain['f1']['difference']:.3f} F1 ({minus(small_gain['f1']['low'])} to "
            f"{small_gain['f1']['high']:.3f})",
            *(
                f"{thresholds[seed]['st_songs']['f1 with the best']:.3f} with seed {seed} "
                f"({'threshold ' if seed == 2 else ''}{thresholds[seed]['st_songs']['best here']:.2f}, "
                f"not {thresholds[seed]['st_songs']['chosen at home']:.2f})"
                for seed in (2, 1)
            ),
            " and ".join(f"{thresholds[seed]['faster_rcnn']['f1 with the best']:.3f}" for seed in (2, 1)),
            *(
                f"{gain['difference']:.3f} {title} ({gain['low']:.3f} to {gain['high']:.3f})"
                for gain, title in ((careful["f1"], "F1"), (careful["ap50"], "AP50"))
            ),
            f"+{own_gain['difference']:.3f} F1 ({own_gain['low']:.3f} to {own_gain['high']:.3f})",
            f"by {ahead['difference']:.3f} F1 ({ahead['low']:.3f} to {ahead['high']:.3f})",
        ],
        "docs/scaling.md": [
            f"{gpu['steady']['chunks_per_s']:,.0f}, or {gpu['steady']['ratio_to_encoder']:.2f} of the encoder",
            f"was done after {gpu['first_done_s']:.0f} s",
            f"the rate was {gpu['with_start']['chunks_per_s']:.0f}",
        ],
    }
    said["docs/trust.md"] = trust_figures(figures)
    loop = figures("training_speed")["runs"][0]
    finer = figures("training_speed_detector")["runs"][0]
    said["docs/speed.md"] = [
        f"batch of {loop['batch']} learns from {loop['loop_chunks_per_s']:,.0f} chunks a second, "
        f"{100 * loop['loop_share']:.0f} % of the bare step",
        f"trains on {finer['loop_chunks_per_s']:.0f} chunks a second at a batch of {finer['batch']}, "
        f"{100 * finer['loop_share']:.0f} % of its bare step",
    ]
    real = figures("experiments/real-sets")["rows"]
    said["docs/results.md"] += real_set_figures(real)
    said["README.md"] += [
        f"{mine:.2f} against {best:.2f}"
        for mine, best in (
            _mine_and_best(real, "birdeep_am1", "temporal_ood"),
            _mine_and_best(real, "tagus_fish", "temporal_ood"),
            _mine_and_best(real, "cr_bats", "test"),
        )
    ]
    bats = figures("habits")["sets"]["cr_bats"]["ways"]
    said["docs/bats_and_fish.md"] = [
        f"raises F1 from {f1_text(bats['all'])} to {f1_text(bats['strongest'])}",
        f"from {curve[0]['f1']:.2f} to {curve[1]['f1']:.2f}",
    ]
    for page, texts in said.items():
        page_text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        for text in texts:
            assert text in page_text, f"{page} should say: {text}"


def gained_together(world: dict[str, Any]) -> list[float]:
    """What fusing the boxes of Faster R-CNN and MAST gains over the better of the two at other sites: F1 and AP50."""
    pair, *alone = (
        world[name]["site_ood"] for name in ("faster_rcnn+from_scratch", "faster_rcnn", "from_scratch")
    )
    return [pair[value] - max(one[value] for one in alone) for value in ("f1", "ap50")]


def longer_rounds(trial: dict[str, Any]) -> list[str]:
    """What docs/results_worlds.md says about rounds of one and of four epochs."""
    runs = trial["runs"]
    start, *_, four = runs
    gained = {
        part: [four[part][value] - start[part][value] for value in ("f1", "ap50")]
        for part in ("test", "temporal_ood", "site_ood")
    }
    seconds = trial["seconds"]
    return [
        *(
            " | ".join(
                f"{run[part][value]:.3f}"
                for part in ("val", "test", "temporal_ood", "site_ood")
                for value in ("f1", "ap50")
            )
            for run in runs
        ),
        "{:.3f} F1 and {:.3f} AP50 in domain, {:.3f} and {:.3f} on other days".format(
            *gained["test"], *gained["temporal_ood"]
        ),
        "it gains {:.3f} F1 and {:.3f} AP50".format(*gained["site_ood"]),
        f"{runs[2]['site_ood']['f1'] - start['site_ood']['f1']:.3f} F1 instead of 0.031",
        f"({seconds['a round of four epochs']} s instead of {seconds['a round of one epoch']} s",
    ]


def labellers(worlds: dict[str, Any], trial: dict[str, Any]) -> list[str]:
    """What docs/results_worlds.md says about detectors that label together."""
    names = ("faster_rcnn", "from_scratch", "from_scratch_again", "from_scratch+from_scratch_again")
    rows = [worlds["4"][name] for name in (*names, "fcos+from_scratch", "faster_rcnn+from_scratch")]
    trained = {run["name"]: run for run in trial["runs"]}
    rows += [worlds["5"]["faster_rcnn+from_scratch"], trained["two_teachers_st_1"], trained["mast_latent"]]
    gains = trial["other_sites"]["differences"]
    round_1, as_before = (
        gains[f"two_teachers_st_1 - {name}"] for name in ("from_scratch", "from_scratch_st")
    )
    latent = [gains[f"mast_latent - {name}"] for name in ("from_scratch", "from_scratch_again")]
    return [
        *(
            " | ".join(
                f"{row[part][value]:.3f}"
                for part in ("test", "temporal_ood", "site_ood")
                for value in ("f1", "ap50")
            )
            for row in rows
        ),
        "by {:.3f} F1 and {:.3f} AP50 at other sites in world 4".format(*gained_together(worlds["4"])),
        "by {:.3f} and {:.3f} in world 5".format(*gained_together(worlds["5"])),
        " and ".join(
            f"{gain['difference']:.3f} {title} ({gain['low']:.3f} to {gain['high']:.3f})"
            for title, gain in (("F1", round_1["f1"]), ("AP50", round_1["ap50"]))
        ),
        "({} F1, {} to {})".format(*(minus(as_before["f1"][key]) for key in ("difference", "low", "high"))),
        " and ".join(
            f"{one['f1']['difference']:.3f} ({minus(one['f1']['low'])} to {one['f1']['high']:.3f})"
            for one in latent
        ),
        f"({minus(latent[0]['ap50']['difference'])} and {minus(latent[1]['ap50']['difference'])})",
    ]


def teacher_rows() -> list[str]:
    """The table of docs/zero_shot.md on a teacher for the embedded model."""
    rows = json.loads((ROOT / "results" / "teacher_trial.json").read_text(encoding="utf-8"))["rows"]
    sets = ("birdeep_am1", "nbm_xc, first half", "nbm_xc, second half", "tagus_fish", "cr_bats", "simulated")
    return [
        f"| {row['name']} | "
        + " | ".join(
            "–" if one is None else f"{one['f1']:.2f}"
            for one in (row["held back"], *(row["sets"].get(name) for name in sets))
        )
        + " |"
        for row in rows
    ]


def trust_figures(figures: Callable[[str], Any]) -> list[str]:
    """What docs/trust.md has to say, beside its table."""
    card = json.loads((ROOT / "src/mast/pretrained/default/model.json").read_text(encoding="utf-8"))
    names = {"birdeep_am1": "wetland", "nbm_xc": "European"}
    agreed = {name: f1_text(figures("checked")[name]) for name in names}
    corrected = figures("corrected_counts")
    held = [100 * case["coverage"] for case in corrected["cases"]]
    named, field = (
        figures("naming")["second_half"][name]["detected boxes"][
            figures("naming")["chosen_on_the_first_half"]
        ]
        for name in ("nbm_xc", "birdeep_am1")
    )
    voices = figures("voices")
    speech = voices["pool"]["second_half"][f"{voices['threshold']}"]["speech"]["share"]
    assert field["unknown"] == 1.0
    return [
        *(f"{agreed[name]} on {shown} birds" for name, shown in names.items()),
        f"{card['calibration']['n_recordings']} minutes of clips that set its threshold",
        f"({card['calibration']['n_truth']:,} boxes)",
        f"in {min(held):g} to {max(held):g} % of {corrected['draws']:,} draws, "
        f"{100 * corrected['mean_coverage']:g} % on average over {len(held)} cases",
        f"named {100 * (1 - named['unknown']):.0f} % of the detections that match an expert's box; "
        f"{100 * named['right_of_named']:.0f} % of those names were right",
        "recorded in the field at 16 kHz, it named none",
        f"found speech in {100 * speech:.0f} % of clips",
    ]


@pytest.mark.parametrize("page", ["README.md", "docs/zero_shot.md"])
def test_figures_of_the_embedded_model_stand_beside_what_limits_them(page: str) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    at = text.index("0.44 (0.29–0.58)")  # birdeep_am1
    nearby = text[at : at + 4_500]  # the rest of the table, and the notes under it
    for said in (
        "recorder whose earlier days",
        "drawn by a vision-language model",
        "looked at while the model was being developed",
    ):
        assert said in nearby, f"{page}: {said}"


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) < 780


def test_numbers_in_the_explanation_of_metrics_hold() -> None:
    text = (DOCS / "metrics.md").read_text(encoding="utf-8")
    shifted = float(pairwise_iou([[0, 0, 1, 1]], [[0.2, 0.2, 1.2, 1.2]])[0, 0])
    assert f"only {shifted:.2f}" in text
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import metrics_pictures
    finally:
        sys.path.pop(0)
    titles = [axes.get_title(loc="left") for axes in metrics_pictures.space_picture().axes]
    for title in titles:
        assert title.rsplit(" ", 1)[1] in text, title
    pairs = [axes.get_title() for axes in metrics_pictures.iou_picture().axes]
    assert [title.endswith(": a match") for title in pairs] == [False, False, True, True]
