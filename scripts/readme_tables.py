"""Write the tables of README and docs from results/*.json: `python scripts/readme_tables.py` (`--check` only looks)."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mast.evaluation.bootstrap import TRAINING_NOISE
from mast_studies.record import describe_commits
from mast_studies.study_tables import markdown_table
from mast_studies.zero_shot_sets import SET_ANIMALS

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = (
    README,
    *(
        ROOT / "docs" / f"{name}.md"
        for name in ("zero_shot", "soundscape_bench", "speed", "trust", "bats_and_fish", "review")
    ),
)


def main() -> None:
    """Replace each `<!-- table NAME -->…<!-- end -->` by its table."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        fresh = render(text)
        if "--check" not in sys.argv:
            page.write_text(fresh, encoding="utf-8")
        elif fresh != text:
            sys.exit(f"{page.name}: its tables are not those of results/; run scripts/readme_tables.py")


def render(text: str) -> str:
    """A page with every table rebuilt."""
    tables = {
        "peers": peers_table(),
        "trust": trust_table(EXPERT_SETS),
        "promises": promises_table(),
        "bands": trust_table({key: shown for key, shown in EXPERT_SETS.items() if shown in ("fish", "bats")}),
        "ground": ground_table(),
        "zero_shot": zero_shot_table(),
        "habits": habits_table(),
        "nested": nested_table(),
        "thorough": thorough_table(),
        "adapted": adapted_table(),
        "few_boxes_fit": few_boxes_fit_table(),
        "learning": learning_table(),
        "learning_button": learning_button_table(),
        "views": views_table(),
        "speed": speed_table("speed"),
        "speed_without_bfloat16": speed_table("speed_without_bfloat16"),
        "rounding": rounding_table(),
        "steps": steps_table(),
        "comparison": comparison_table(),
    }

    def fill(match: re.Match[str]) -> str:
        return f"<!-- table {match[1]} -->\n{tables[match[1]]}\n<!-- end -->"

    return re.sub(r"<!-- table (\w+) -->.*?<!-- end -->", fill, text, flags=re.DOTALL)


def load_result(name: str) -> dict[str, Any]:
    """One result file."""
    loaded: dict[str, Any] = json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


def ground_table() -> str:
    """Speed and memory of the ground floor."""
    features, memory, scan, simulate = (load_result(n) for n in ("features", "memory", "scan", "simulate"))
    detect = load_result("detect")["figures"]["memory"]
    hop, half = (load_result("hop")["figures"]["hops"][name] for name in ("0.75", "0.5"))
    one = features["figures"]["cpu_1_thread"]["batch_32"]
    ratio = {rate: memory["figures"][f"{rate}_hz"]["ratio"] for rate in (16_000, 48_000)}
    rows = [
        [
            "log-mel features, one core",
            f"{one['speed_up']:.1f} × torchaudio's speed, off by {one['difference']:.0e}",
            "features.json",
        ],
        [
            "peak memory of reading and features, 6 h against 10 min",
            f"{ratio[16_000]:.2f} × (16 kHz), {ratio[48_000]:.2f} × (48 kHz, resampled)",
            "memory.json",
        ],
        [
            "peak memory of `mast detect`, 6 h against 10 min",
            f"{detect['ratio']:.2f} × ({detect['long']['peak_mb']:,.0f} MB, {detect['long']['events']:,} events)",
            "detect.json",
        ],
        [
            "windows that overlap by a quarter (the default) instead of by half",
            f"F1 {hop['difference']['f1']['difference']:+.3f} ({hop['difference']['f1']['low']:+.3f} to "
            f"{hop['difference']['f1']['high']:+.3f}), {hop['windows']} windows instead of {half['windows']}",
            "hop.json",
        ],
        [
            "scan of 10,000 files, 3 of them broken",
            f"{scan['figures']['files_per_second']:,.0f} files/s",
            "scan.json",
        ],
        [
            "simulated soundscapes with boxes, one core",
            f"{simulate['figures']['chunks']['times_real_time']:.0f} × real time",
            "simulate.json",
        ],
    ]
    shown = markdown_table(["what", "measured", "in `results/`"], rows)
    return f"{shown}\n\n{describe_machines([row[-1] for row in rows])}"


def describe_machines(files: list[str]) -> str:
    """Where result files were measured: which machine, at which commit."""
    places: dict[str, list[str]] = {}
    for file in files:
        found = load_result(file.removesuffix(".json"))
        machine = f"{found['hardware']['cores']} cores of {found['hardware']['cpu']}"
        places.setdefault(f"{machine}, commit {short_commit(found)}", []).append(file)
    if len(places) == 1:
        return f"Measured on {next(iter(places))}."
    return "Measured on " + "; ".join(f"{place} ({', '.join(own)})" for place, own in places.items()) + "."


def short_commit(found: dict[str, Any]) -> str:
    """The commit that was measured, and whether its files had been changed."""
    commit, changes, _ = found["commit"].partition("+")
    return f"{commit[:7]}{' with changes' if changes else ''}"


def commits_of(*studies: str) -> list[str]:
    """The commits of the trainings behind studies; empty where a file does not know."""
    return [
        one["commit"] for study in studies for one in load_result(study).get("trainings", [{"commit": ""}])
    ]


def zero_shot_table() -> str:
    """The embedded model and the tools on recordings that none of them was made for."""
    sets, header = {}, ["F1 (95 % interval)"]
    for file in ("zero_shot", "zero_shot_second_half"):
        found = load_result(file)
        for name, own in found["figures"]["sets"].items():
            about = found["data"][name]
            half = about["part"].partition(", ")[2]  # "all recordings, second half"
            sets[file, name] = own
            header.append(f"{name}{f', {half}' if half else ''}, {about['boxes']} boxes")
    ways = ("own threshold", "published settings", "best on this set")
    systems = dict.fromkeys(system for some in sets.values() for system in some["systems"])
    rows = []
    for system in systems:
        for way in ways:
            cells = [_f1(some["systems"].get(system, {}).get(way)) for some in sets.values()]
            if any(cells):
                rows.append([f"{system}, {way}", *(cell or "–" for cell in cells)])
    files = "`results/zero_shot.json`, `results/zero_shot_second_half.json`"
    return f"{markdown_table(header, rows)}\n\nBoxes matched at IoU 0.5 in seconds × mel; {files}."


EXPERT_SETS = {  # file and set of results: what was recorded
    ("zero_shot_second_half" if name == "nbm_xc" else "zero_shot", name): shown
    for name, shown in SET_ANIMALS.items()
}


def trust_table(sets: dict[tuple[str, str], str]) -> str:
    """What the embedded model finds and misses in recordings boxed by experts."""
    rows = []
    for (file, name), shown in sets.items():
        about, own = (
            load_result(file)["data"][name],
            load_result(file)["figures"]["sets"][name]["systems"]["mast"],
        )
        at = own["own threshold"]
        rows.append(
            [
                f"{shown} (`{name}`)",
                f"{about['recordings']}, {about['boxes']}",
                _with_interval(at, "precision"),
                _with_interval(at, "recall"),
                f"{100 * own['diagnosis']['missed']:.0f} %",
                f"{100 * own['diagnosis']['stray']:.0f} %",
            ]
        )
    header = [
        "",
        "recordings, boxes",
        "right of what it reports",
        "found of what experts boxed",
        "experts' boxes touched by no box",
        "detections that touch nothing",
    ]
    files = ", ".join(f"`results/{file}.json`" for file in sorted({file for file, _ in sets}))
    return f"{markdown_table(header, rows)}\n\n95 % intervals over recordings; {files}."


def promises_table() -> str:
    """The precision that `--precision` promises, and the precision reached on experts' recordings."""
    found = load_result("promised_precision")["figures"]["sets"]
    targets = list(next(iter(found.values())))
    rows = []
    for name, shown in ((name, shown) for (_, name), shown in EXPERT_SETS.items()):
        kept = (found[name][target]["card"] for target in targets)
        rows.append(
            [
                shown,
                *(
                    f"{one['precision']:.2f}{_format_interval(one['interval'])}, {one['kept']}"
                    for one in kept
                ),
            ]
        )
    return (
        f"{markdown_table(['`--precision`', *targets], rows)}\n\n"
        "Share of right boxes with its 95 % interval over recordings, and how many boxes are left. Of the European "
        "birds, the first half; "
        "`results/promised_precision.json`."
    )


def peers_table() -> str:
    """The embedded model next to each tool, on four sets."""
    sets = [load_result(file)["figures"]["sets"][name]["systems"] for file, name in EXPERT_SETS]
    names = [f"{shown}*" if shown == "wetland birds" else shown for shown in EXPERT_SETS.values()]
    boxes = [load_result(file)["data"][name]["boxes"] for file, name in EXPERT_SETS]
    header = ["F1", *(f"{shown}, {count} boxes" for shown, count in zip(names, boxes, strict=True))]
    rows = [["mast (95 % interval)", *(_f1(systems["mast"]["own threshold"]) for systems in sets)]]
    for tool in (name for name in sets[0] if name != "mast"):
        both = [
            [f"{systems[tool][way]['f1']:.2f}" for way in ("published settings", "best on this set")]
            for systems in sets
        ]
        rows.append([tool, *(" → ".join(pair) for pair in both)])
    return markdown_table(header, rows)


def habits_table() -> str:
    """What drawing boxes in another way gains, without any labelled boxes and with ten of them."""
    found = load_result("habits")
    rows = []
    for name, own in found["figures"]["sets"].items():
        about, start = own["data"], own["as_is"]
        for learnt in (key for key in own if "boxes" in key and key[0].isdigit()):
            seeds = own[learnt]
            from_all = learnt.endswith("all")
            rows.append(
                [
                    f"`{name}`, {about['recordings']} recordings, {about['boxes']} boxes",
                    _f1(own["ways"]["all"]) or "–",
                    _f1(own["ways"]["strongest"]) or "–",
                    "all" if from_all or start == "whole calls" else "strongest",
                    ", ".join(f"{row['f1']:.2f}" for row in seeds),
                    f"{sum(row['changed'] for row in seeds)} of {len(seeds) * about['recordings']}",
                ]
            )
    header = [
        "F1 (95 % interval)",
        "`all`",
        "`strongest`",
        "start",
        "from ten boxes, three seeds",
        "habit changed",
    ]
    return (
        f"{markdown_table(header, rows)}\n\nBoxes matched at IoU 0.5 in seconds × mel; `results/habits.json`."
    )


def nested_table() -> str:
    """How often boxes lie inside others, and what giving only one of the two gains."""
    rows = []
    for name, own in load_result("nested")["figures"]["sets"].items():
        ahead = own["f1_of_decided_minus_both"]
        nested = [own["boxes_nested"], own["detections_nested"]["both"]]
        rows.append(
            [
                f"`{name}`",
                *(f"{share:.0%}".replace("%", " %") for share in nested),
                *(f"{own['systems'][way]['f1']:.2f}" for way in ("both", "decided")),
                _format_difference(ahead),
            ]
        )
    header = [
        "",
        "people's boxes that lie inside another or contain one",
        "the same for detections, both given",
        "F1, both given",
        "F1, one given",
        "difference",
    ]
    return markdown_table(header, rows)


def thorough_table() -> str:
    """What listening at three speeds gains."""
    rows = []
    for file in ("thorough", "thorough_second_half"):
        found = load_result(file)
        for name, own in found["figures"]["sets"].items():
            half = found["data"][name]["part"].partition(", ")[2]
            once, thorough = (own["systems"][way]["own threshold"] for way in ("mast", "mast --thorough"))
            rows.append(
                [
                    f"`{name}`{f', {half}' if half else ''}",
                    f"{once['f1']:.2f}",
                    f"{thorough['f1']:.2f}",
                    _format_difference(own["f1_of_thorough_minus_model"]),
                    *(
                        f"{once[metric]:.2f} → {thorough[metric]:.2f}"
                        for metric in ("precision", "recall", "ap50")
                    ),
                ]
            )
    header = ["", "F1", "F1, `--thorough`", "difference", "precision", "recall", "AP50"]
    files = "`results/thorough.json`, `results/thorough_second_half.json`"
    return f"{markdown_table(header, rows)}\n\nBoxes matched at IoU 0.5 in seconds × mel; {files}."


def adapted_table() -> str:
    """What learning from unlabelled recordings alone gains."""
    found = load_result("adapted")
    rows = []
    for name, own in found["figures"]["sets"].items():
        start = own["mast"]["own threshold"]
        minutes = found["data"][name]["minutes"]
        for shown, way in (
            ("themselves", "adapted to these"),
            ("themselves, twice", "adapted to these twice"),
            ("other half", "adapted to others"),
        ):
            for seed in own[way]:
                now = seed["own threshold"]
                rows.append(
                    [
                        f"`{name}`, {minutes:.0f} min" if minutes >= 1 else f"`{name}`, {60 * minutes:.0f} s",
                        shown,
                        str(seed["seed"]),
                        f"{start['f1']:.2f} → {now['f1']:.2f}",
                        _format_difference(seed["f1_minus_model"]),
                        *(f"{start[key]:.2f} → {now[key]:.2f}" for key in ("precision", "recall", "ap50")),
                    ]
                )
    header = ["recordings", "adapted to", "seed", "F1", "difference", "precision", "recall", "AP50"]
    return f"{markdown_table(header, rows)}\n\nBoxes matched at IoU 0.5 in seconds × mel; `results/adapted.json`."


def _format_difference(ahead: dict[str, float | None]) -> str:
    spread = "" if ahead["low"] is None else " ({low:.3f} to {high:.3f})".format(**ahead)
    return f"{ahead['difference']:+.3f}{spread}".replace("-", "−")


def few_boxes_fit_table() -> str:
    """What `mast fit` ends in from a few boxes, against its start."""
    rows = []
    for file in ("few_boxes_fit", "few_boxes_fit_bats"):
        for name, own in load_result(file)["figures"]["sets"].items():
            for found in own.values():
                boxes = sorted(found["boxes_used"])
                for part, ways in found["parts"].items():
                    f1 = [f"{ways[way]['f1']:.2f}" for way in ("start", "before", "now")]
                    worse = [str(ways[way]["fits_worse_than_the_start"]) for way in ("before", "now")]
                    always = ways["always trained"]
                    rows.append(
                        [
                            f"`{name}`, {part}, {ways['boxes']} boxes",
                            f"{found['fits']} from {boxes[0]}–{boxes[-1]} boxes",
                            *f1,
                            " → ".join(worse),
                            f"{always['f1']:.2f} ({always['fits_worse_than_the_start']} worse)",
                        ]
                    )
    header = [
        "F1, mean over seeds",
        "fits",
        "start",
        "before",
        "now",
        "fits worse than the start, before → now",
        "always trained",
    ]
    about = "`results/few_boxes_fit.json`, `results/few_boxes_fit_bats.json`."
    return f"{markdown_table(header, rows)}\n\nBoxes matched at IoU 0.5 in seconds × mel; {about}"


def learning_table() -> str:
    """Decisions that simulated reviewers need, by the order they go through the boxes in."""
    figures = load_result("review_learning")["figures"]
    ways = {
        "best_score": "best score first",
        "uncertain": "uncertain first",
        "learner": "learner least sure first",
    }
    rows = []
    for name, own in figures["sets"].items():
        saved = own["saved_against_best_score"]
        low, high = saved["interval"]
        cells = [f"{own['decisions'][way]['mean']:.0f}" for way in ways]
        rows.append(
            [
                f"`{name}`, {own['boxes']} detections, {own['right']} right",
                *cells,
                f"{saved['mean']:.0f} ({low:.0f} to {high:.0f})".replace("-", "−"),
                f"{saved['reviewers_who_save']} of {figures['reviewers']}",
            ]
        )
    return markdown_table(
        ["decisions needed", *ways.values(), "saved (95 % of reviewers)", "reviewers who saved"], rows
    )


def learning_button_table() -> str:
    """What the learner decides about the rest, next to what it promised."""
    figures = load_result("review_learning")["figures"]
    rows = []
    for name, own in figures["sets"].items():
        for count, done in own["button"]["learner"].items():
            alone = own["button"]["score_alone"][count]
            low, high = done["right_interval"]
            rows.append(
                [
                    f"`{name}`, {count} decisions",
                    f"{done['promised']:.1%}",
                    f"{done['right']:.1%} ({low:.0%}–{high:.0%})",
                    f"{done['share_decided']:.0%}",
                    f"{alone['share_decided']:.0%}",
                ]
            )
    header = ["after", "promised", "right (95 % of reviewers)", "of the rest decided", "from scores alone"]
    return markdown_table([*header], [[cell.replace("%", " %") for cell in row] for row in rows])


def views_table() -> str:
    """What each view of the review page costs."""
    found = load_result("review_views")
    figures = found["figures"]
    names = {
        "decision": "save a decision",
        "session": "first look at the folder",
        "recordings": "list of recordings",
        "queue_uncertain": "queue: uncertain",
        "queue_random": "queue: random",
        "queue_time": "queue: by time",
        "queue_novel": "queue: novel",
        "queue_unsure_after_a_decision": "queue: learner least sure, after a decision",
        "queue_likely_after_a_decision": "queue: most likely a call, after a decision",
        "next_page": "the next 50 of these",
        "similar": "look-alikes",
        "find_groups": "find groups of look-alikes, once, while the review continues",
        "groups": "the grid of groups",
        "queue_typical_of_a_group": "queue: a group, the most typical first",
        "activity": "activity by hour and site",
        "progress": "progress and precision",
        "plan": "what the learner would decide",
        "apply": f"let it decide about {figures['applied_to']:,} events",
        "undo": "take that back",
    }
    rows = [[shown, _format_duration(figures["views"][name]["cpu_ms"])] for name, shown in names.items()]
    header = [f"{figures['events']:,} events in {figures['recordings']:,} recordings", "computing time"]
    return f"{markdown_table(header, rows)}\n\n{found['hardware']['cpu']}, one core; `results/review_views.json`."


def _format_duration(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.1f} s" if milliseconds >= 1000 else f"{milliseconds:.0f} ms"


BENCH, PARTS = (
    "soundscape-bench",
    {"test": "in domain", "temporal_ood": "other days", "site_ood": "other sites"},
)


def study_rows(*studies: str) -> dict[str, dict[str, dict[str, Any]]]:
    """By system and part, what studies of `mast experiment` found on the benchmark."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for study in studies:
        for row in load_result(f"experiments/{study}")["figures"]["rows"]:
            if row["dataset"] == BENCH:
                found.setdefault(row["label"], {})[row["part"]] = row
    return found


def steps_table() -> str:
    """What pretraining, the contrastive loss and self-training buy."""
    rows = [
        [
            label,
            *(
                f"{_format_score(parts[part])}, {_format_change(parts[part])}".removesuffix(", ")
                for part in PARTS
            ),
        ]
        for label, parts in study_rows("domain-shift").items()
    ]
    header = ["F1 (95 % interval), change to the row above", *PARTS.values()]
    trained = describe_commits(commits_of("experiments/domain-shift"))
    note = f"Three seeds, preset `small`, one H200. {TRAINING_NOISE} {trained}"
    return f"{markdown_table(header, rows)}\n\n{note} `results/experiments/domain-shift.json`."


def comparison_table() -> str:
    """The paper's systems."""
    rows = []
    for label, parts in study_rows("in-domain", "ood").items():
        seconds = parts["test"]["train_seconds"]
        cells = [_format_score(parts[part]) for part in PARTS]
        seeds = ", ".join(map(str, parts["test"]["seeds"]))
        rows.append(
            [label, *cells, _format_change(parts["site_ood"]) or "–", seeds, f"{seconds / 60:.1f} min"]
        )
    header = ["F1 (95 % interval)", *PARTS.values(), "other sites, to MAST", "seeds", "training"]
    trained = describe_commits(commits_of("experiments/in-domain", "experiments/ood"))
    note = (
        "Means over seeds; differences are paired, on the seeds that both have. Training on one H200 that a dozen runs "
        f"shared, so longer than alone. {TRAINING_NOISE} {trained}"
    )
    return f"{markdown_table(header, rows)}\n\n{note} `results/experiments/in-domain.json`, `ood.json`."


def _format_score(row: dict[str, Any]) -> str:
    return f"{row['f1']:.2f}{_format_interval(row['intervals']['f1'])}"


def _format_change(row: dict[str, Any]) -> str:
    if "f1" not in row["differences"]:
        return ""
    value, low, high = row["differences"]["f1"]
    return f"{value:+.3f} ({low:+.3f} to {high:+.3f})"


def speed_table(name: str) -> str:
    """An hour of sound, files to tables, in one race."""
    found = load_result(name)
    race = found["figures"]["race"]
    names = {
        "mast": "`mast detect`",
        "birdnet": "BirdNET 2.4 (TFLite)",
        "maad": "scikit-maad, regions of interest",
    }
    rows = [
        [
            shown,
            f"{race[name]['times_real_time']:.0f} ×",
            f"{race[name]['times_real_time_without_start']:.0f} ×",
            f"{race[name]['start_s']:.1f} s",
            f"{race[name]['peak_mb']:,.0f} MB",
        ]
        for name, shown in names.items()
        if name in race
    ]
    header = ["two CPU cores, an hour of sound", "of real time", "without start", "start", "peak memory"]
    fast = found["figures"]["fast_path"]
    conditions = (
        f"{found['hardware']['cpu']}, {race['rounds']} rounds, the others as two processes of one thread"
    )
    rounded = (
        f"F1 {fast['f1 as run']:.3f} in {fast['precision']['as run']}, {fast['f1 float32']:.3f} in float32, "
        "on simulated sound"
    )
    return f"{markdown_table(header, rows)}\n\n{conditions}; {rounded}; `results/{name}.json`."


def rounding_table() -> str:
    """F1 of the embedded model in eight bits and in single precision, set by set."""
    rows = []
    for name, own in load_result("rounding")["figures"]["sets"].items():
        change = own["f1 difference"]
        rows.append(
            [
                f"`{name}`, {own['boxes']} boxes",
                f"{own['float32']['f1']:.3f}",
                f"{own['int8']['f1']:.3f}",
                f"{change['difference']:+.3f} ({change['low']:+.3f} to {change['high']:+.3f})",
                f"{own['float32']['ap50']:.3f}",
                f"{own['int8']['ap50']:.3f}",
            ]
        )
    header = ["", "F1, float32", "F1, int8", "difference", "AP50, float32", "AP50, int8"]
    return markdown_table(header, rows)


def _f1(row: dict[str, Any] | None) -> str:
    return "" if row is None else _with_interval(row, "f1")


def _with_interval(row: dict[str, Any], metric: str) -> str:
    return f"{row[metric]:.2f}{_format_interval(row[f'{metric}_interval'])}"


def _format_interval(interval: Sequence[float | None] | None) -> str:
    """An interval in brackets; nothing where there is none."""
    low, high = interval or (None, None)
    return "" if low is None else f" ({low:.2f}–{high:.2f})"


if __name__ == "__main__":
    main()
