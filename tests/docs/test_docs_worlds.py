"""What the pages say about the simulated worlds is in the results: README.md, then two pages section by section."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import mean
from typing import Any

import pytest
from page_figures import (
    assert_says,
    both_intervals,
    figures,
    flipped,
    interval,
    join_words,
    minus,
    percent,
    signed,
    three_digits,
)
from world_results import (
    LABELLED_TOGETHER,
    LONGER_ROUNDS,
    METRICS,
    PARTS,
    REPEATED_CALLS,
    SONGS_SPARED,
    TWO_ROUNDS,
    WITH_TWO,
    at_other_sites,
    best_f1,
    cells,
    faster_rcnn_of_world_0,
    first_trial,
    gain,
    gain_of_fusing,
    last_round,
    leads,
    mean_lead,
    mean_of_rounds,
    pair_of,
    paired,
    premise,
    pseudo_labels,
    teachers,
    trained,
    trial,
)

readme_says = partial(assert_says, "README.md")
summary_says = partial(assert_says, "docs/results.md")
page_says = partial(assert_says, "docs/results_worlds.md")  # world by world

BASICS = ("faster_rcnn", "from_scratch", "from_scratch_st")
TAUGHT = (*BASICS, "taught_st")  # by two teachers
BOTH_ROUNDS = ("faster_rcnn", "from_scratch", "taught_st")  # what worlds 9 and 10 have
ONE_ROUND = ("faster_rcnn", "from_scratch", "from_scratch_st_1", "taught_st_1")  # all that world 8 has
HEARD = "heard without labels"
SPECIES = ("not at home", "at home, too")
TITLES = (
    "for Faster R-CNN",
    "for MAST from scratch",
    "with self-training",
    "with two teachers",
)  # as in TAUGHT


# README.md


def test_readme_on_the_worlds() -> None:
    ahead = [lead for lead, _, _ in leads("site_ood", "taught_st")["f1"]]
    raised = gains_of_self_training()
    middle, low, high = mean_lead("site_ood", "taught_st")["f1"]
    readme_says(
        f"by {min(ahead):.2f} to {max(ahead):.2f} F1 (mean {middle:.2f}, 95 % interval {low:.2f} to {high:.2f})",
        f"by {min(raised):.2f} to {max(raised):.2f}",
    )


def gains_of_self_training() -> list[float]:
    """F1 at other sites, from world 0 to world 10."""
    return [
        paired(first_trial(), "st_union - mast")["f1"][0],
        gain(1)["f1"],
        paired(trial(SONGS_SPARED), "world 2: st_quiet - from_scratch")["f1"][0],
        *(gain(world)["f1"] for world in range(3, 11)),
    ]


def mean_lead_over_six(metric: str) -> float:
    """Over Faster R-CNN at other sites, in worlds 3 to 8; in world 8 after one round."""
    in_world_5 = last_round()["site_ood"][metric] - premise(5)["faster_rcnn"]["site_ood"][metric]
    in_world_8 = premise(8)["from_scratch_st_1"]["site_ood"]["differences"][metric][0]
    return float(mean([in_world_5, in_world_8, *(lead for lead, _, _ in leads("site_ood")[metric])]))


# docs/results.md


def test_table_of_the_summary() -> None:
    with_songs, with_repeats = trained(SONGS_SPARED), trained(REPEATED_CALLS)
    two_rounds = trained(TWO_ROUNDS)
    rows = [
        [faster_rcnn_of_world_0(), two_rounds["from_scratch, world 0"], two_rounds["st_quiet, world 0"]],
        [with_songs[f"{name}, world 2"] for name in ("faster_rcnn", "from_scratch", "st_quiet")],
        [with_repeats[f"{name}, world 1"] for name in ("faster_rcnn", "from_scratch", "st_songs")],
        *([premise(world)[name] for name in BASICS] for world in (1, 3, 4, 7)),
        [premise(5)["faster_rcnn"], premise(5)["from_scratch"], last_round()],
        [premise(6)[name] for name in TAUGHT],
        [premise(8)[name] for name in ONE_ROUND],
    ]
    last = [[pair_of(premise(world)[name]["site_ood"]) for name in BOTH_ROUNDS] for world in (9, 10)]
    summary_says(
        *(" | ".join(pair_of(system["site_ood"]) for system in row) + " |" for row in rows),
        *("{} | {} | | {} |".format(*row) for row in last),
    )


def test_caption_of_the_summary() -> None:
    fcos_3, fcos_4, yolo26 = (
        -premise(world)[name]["site_ood"]["differences"]["f1"][0]
        for name, world in (("fcos", 3), ("fcos", 4), ("yolo26", 3))
    )
    summary_says(
        f"by {fcos_3:.3f} and {fcos_4:.3f} in worlds 3 and 4, and so is YOLO26, by {yolo26:.3f} in world 3"
    )


def test_what_holds_for_self_training() -> None:
    found, before = (
        percent(at_other_sites(world)[name]["species"]["not at home"]["recall"] for name, world in systems)
        for systems in (
            (("from_scratch_st", 7), ("taught_st", 9), ("taught_st", 10)),
            [("from_scratch", world) for world in (7, 9, 10)],
        )
    )
    raised = gains_of_self_training()
    assert len(raised) == 11
    summary_says(
        f"rises in all eleven worlds, by {min(raised):.2f} to {max(raised):.2f}",
        f"in worlds 7, 9 and 10 MAST finds {join_words(found)} % of their calls instead of {join_words(before)} %",
        f"it rises by {mean_lead('test', 'taught_st', over='gained')['f1'][0]:.3f} on average",
    )


def test_what_holds_for_two_teachers() -> None:
    ahead = three_digits(lead for lead, _, _ in leads("site_ood", "taught_st")["f1"])
    gained = mean_lead("site_ood", "taught_st", over="gained")["f1"]
    summary_says(
        f"by {join_words(ahead)} F1 in worlds {join_words(map(str, WITH_TWO))}",
        f"The mean is {both_intervals(mean_lead('site_ood', 'taught_st'))}",
        f"Self-training gains {interval(gained, 'F1')} there",
    )


def test_what_holds_where_mast_labels_alone() -> None:
    in_world_8 = added_by_a_teacher()["site_ood"]
    added = {metric: (better_in_world_6()[metric], in_world_8[metric]) for metric in METRICS}
    summary_says(
        "by {:.3f} F1 and {:.3f} AP50 on average over all six".format(*map(mean_lead_over_six, METRICS)),
        "adds {:.3f} and {:.3f} AP50 in worlds 6 and 8, and {:.3f} and {:.3f} F1".format(
            *added["ap50"], *added["f1"]
        ),
    )


def test_what_holds_at_home() -> None:
    alone, taught = (
        [mean_lead(part, system) for part in PARTS[:2]] for system in ("from_scratch_st", "taught_st")
    )
    summary_says(
        f"by {interval(taught[0]['f1'], 'F1')} in domain and {interval(taught[1]['f1'])} on other days",
        f"alone by {interval(alone[0]['f1'])} and {interval(alone[1]['f1'])}",
        f"AP50 is within {max(abs(one['ap50'][0]) for one in alone + taught):.3f} on average",
    )


def added_by_a_teacher() -> dict[str, dict[str, float]]:
    """In world 8: what a round gains when Faster R-CNN labels, too, part by part."""
    alone, taught = (premise(8)[name] for name in ONE_ROUND[2:])
    return {
        part: {metric: taught[part][metric] - alone[part][metric] for metric in METRICS} for part in PARTS
    }


def better_in_world_6() -> dict[str, float]:
    """The same in world 6 after two rounds, at other sites."""
    differences = teachers(6)["taught_st"]["site_ood"]["differences"]
    return {metric: differences[metric][0] for metric in METRICS}


def test_what_does_not_hold() -> None:
    from_scratch = [
        premise(world)["from_scratch"]["site_ood"]["differences"] for world in (3, 4, 6, 7, 8, 9, 10)
    ]
    f1, ap50 = (minus(mean(one[metric][0] for one in from_scratch)) for metric in METRICS)
    pretrained = paired(first_trial(), "mast - from_scratch")
    latent = paired(trial(LABELLED_TOGETHER), "mast_latent - from_scratch")
    summary_says(
        f"({f1} F1 and {ap50} AP50 at other sites on average of worlds 3, 4 and 6 to 10)",
        *(
            f"{signed(gained[metric][0])} {title} ({minus(gained[metric][1])} to {minus(gained[metric][2])})"
            for gained in (pretrained, latent)
            for metric, title in (("f1", "F1"), ("ap50", "AP50"))
        ),
    )


# docs/results_worlds.md


def test_world_10_and_its_leads() -> None:
    scratch, both = (premise(10)[name] for name in BOTH_ROUNDS[1:])
    home, days, away = (both[part]["differences"] for part in PARTS)
    behind = [interval(flipped(scratch[part]["differences"]["f1"]), "F1") for part in PARTS]
    ranked_worse = interval(flipped(scratch["site_ood"]["differences"]["ap50"]), "AP50")
    page_says(
        f"at other sites** by {both_intervals(away)}",
        f"level: in domain {both_intervals(home)}, on other days {both_intervals(days)}",
        f"by {behind[0]} in domain, {behind[1]} on other days, and {behind[2]} and {ranked_worse}",
    )


def test_world_9_and_its_leads() -> None:
    scratch, both = (premise(9)[name] for name in BOTH_ROUNDS[1:])
    home, days, away = (both[part]["differences"] for part in PARTS)
    behind = [interval(flipped(scratch[part]["differences"]["f1"]), "F1") for part in PARTS[:2]]
    page_says(
        f"at other sites** by {both_intervals(away)}",
        f"level: {both_intervals(days)}. In domain F1 is level, too, {interval(home['f1'])}, but AP50 is "
        f"{interval(flipped(home['ap50']), 'lower')}",
        f"at other sites, by {both_intervals(scratch['site_ood']['differences'])}, and behind it at home, by "
        f"{behind[0]} in domain and {behind[1]} on other days",
    )


@pytest.mark.parametrize("world", [9, 10])
def test_what_both_rounds_gain(world: int) -> None:
    first, both = (premise(world)[name] for name in ("taught_st_1", "taught_st"))
    gained = [[both[part]["gained"][metric][0] for metric in METRICS] for part in PARTS[:2]]
    added = [minus(both[part][metric] - first[part][metric]) for part in PARTS for metric in METRICS]
    page_says(
        *(cells(system) for system in premise(world).values()),
        f"{both_intervals(both['site_ood']['gained'])} at other sites over its start, "
        "{:.3f} and {:.3f} in domain, and {:.3f} and {:.3f} on other days".format(*gained[0], *gained[1]),
        "adds {4} F1 and {5} AP50 to the first at other sites, {0} and {1} in domain, {2} and {3} on other days".format(
            *added
        ),
    )


@pytest.mark.parametrize("world", [9, 10])
def test_both_rounds_site_by_site(world: int) -> None:
    sites = at_other_sites(world)
    rcnn, own = sites["faster_rcnn"], sites["taught_st"]
    page_says(
        *site_by_site(world, BOTH_ROUNDS),
        by_species(world, BOTH_ROUNDS),
        f"would raise F1 by at most {best_threshold_adds(world, BOTH_ROUNDS):.3f} for any system. The "
        f"lead would then be {best_f1(own) - best_f1(rcnn):.3f}",
        "has {} false alarms at other sites, {} of them with nothing there. Faster R-CNN has {} and {}".format(
            *false_alarms(own), *false_alarms(rcnn)
        ),
    )


def site_by_site(world: int, names: Sequence[str]) -> list[str]:
    """F1 of systems at other sites, where nothing was heard and where sound without labels was."""
    systems = [at_other_sites(world)[name] for name in names]
    unheard = [one["never heard"] for one in systems]
    f1 = [f"{one['f1']:.3f} {title}" for one, title in zip(unheard, TITLES, strict=False)]
    return [
        f"F1 {join_words(f1)} ({unheard[0]['boxes']:,} boxes in {unheard[0]['recordings']} recordings)",
        f"it is {join_words(three_digits(one[HEARD]['f1'] for one in systems))}",
    ]


def by_species(world: int, names: Sequence[str]) -> str:
    """Which calls systems find, of species that do not occur at home and of those that do."""
    species = [at_other_sites(world)[name]["species"] for name in names]
    new, known = ([one[where] for one in species] for where in SPECIES)
    finders = ("Faster R-CNN finds", "MAST from scratch", *TITLES[2:])
    shares = percent(one["recall"] for one in new)
    found = [f"{finder} {share} %" for finder, share in zip(finders, shares, strict=False)]
    return (
        f"Of their {new[0]['boxes']:,} calls, {join_words(found)}; of the {known[0]['boxes']:,} calls of species that "
        f"were labelled at home, {join_words(percent(one['recall'] for one in known))} %"
    )


def best_threshold_adds(world: int, names: Sequence[str]) -> float:
    """The most F1 that any of these systems would gain at other sites with the best threshold for them."""
    systems = [at_other_sites(world)[name] for name in names]
    return max(best_f1(one) - one["all"]["f1"] for one in systems)


def false_alarms(system: dict[str, Any]) -> tuple[int, int]:
    """All at other sites, and those where nothing is."""
    wrong = system["false alarms"]
    return sum(wrong.values()), wrong["nothing there"]


@pytest.mark.parametrize(
    ("world", "fused"),
    [
        (9, "have an F1 of {f1:.3f} and an AP50 of {ap50:.3f} at other sites, lower than alone"),
        (10, "have an AP50 of {ap50:.3f} at other sites, but an F1 of {f1:.3f}"),
    ],
)
def test_both_rounds_pseudo_labels_and_cost(world: int, fused: str) -> None:
    first, second = pseudo_labels(world, "taught_st")
    page_says(
        "{} % are right in the first round and {} % in the second; {} and {} % of the".format(
            *percent(one[value] for value in ("precision", "recall") for one in (first, second))
        ),
        fused.format(**fused_boxes(world, "taught_st")),
        "took {:.1f} minutes, MAST {:.1f}, and self-training {:.1f} with".format(
            *minutes(world, *BOTH_ROUNDS)
        ),
    )


def test_the_four_worlds_with_two_teachers() -> None:
    home, days, away = (mean_lead(part, "taught_st") for part in PARTS)
    newest = {
        metric: mean(lead for lead, _, _ in leads("site_ood", "taught_st")[metric][1:]) for metric in METRICS
    }
    page_says(
        f"is a lead at other sites of {both_intervals(away)} over Faster R-CNN",
        f"In domain it is {both_intervals(home)}, on other days {both_intervals(days)}",
        f"gains {both_intervals(mean_lead('site_ood', 'taught_st', over='gained'))} over its start at other sites",
        "have a mean lead of {f1:.3f} F1 and {ap50:.3f} AP50 at other sites".format(**newest),
    )


def test_world_8_and_its_leads() -> None:
    systems = premise(8)
    scratch, alone, taught = (systems[name] for name in ONE_ROUND[1:])
    ahead = {part: taught[part]["differences"] for part in PARTS}
    behind = {metric: flipped(scratch["site_ood"]["differences"][metric]) for metric in METRICS}
    added = added_by_a_teacher()
    page_says(
        *(cells(system) for system in systems.values()),
        f"at other sites after one round** by {both_intervals(ahead['site_ood'])}, in domain by "
        f"{both_intervals(ahead['test'])}. On other days it leads by {interval(ahead['temporal_ood']['f1'], 'F1')}, "
        f"but its AP50 is {interval(flipped(ahead['temporal_ood']['ap50']), 'lower')}",
        f"MAST is behind here: by {both_intervals(behind)} at other sites",
        f"{both_intervals(taught['site_ood']['gained'])} at other sites over its start with two teachers, and "
        f"{interval(alone['site_ood']['gained']['f1'])} and {interval(alone['site_ood']['gained']['ap50'])} when",
        "rises by {:.3f} in domain and by {:.3f} on other days with two teachers, by {:.3f} and {:.3f} without".format(
            *(one[part]["gained"]["f1"][0] for one in (taught, alone) for part in PARTS[:2])
        ),
        "{f1:.3f} F1 and {ap50:.3f} AP50 at other sites, ".format(**added["site_ood"])
        + "{f1:.3f} and {ap50:.3f} in domain, ".format(**added["test"])
        + "{f1:.3f} and {ap50:.3f} on other days".format(**added["temporal_ood"]),
    )


def test_world_8_site_by_site() -> None:
    rcnn, _, alone, taught = (false_alarms(at_other_sites(8)[name]) for name in ONE_ROUND)
    page_says(
        *site_by_site(8, ONE_ROUND),
        by_species(8, ONE_ROUND),
        f"would raise F1 by at most {best_threshold_adds(8, ONE_ROUND):.3f} for any system",
        "{} at other sites, {} of them with nothing there. Self-training without has {} and {}, Faster R-CNN {} and "
        "{}".format(*taught, *alone, *rcnn),
    )


def test_world_8_cost() -> None:
    fused = fused_boxes(8, "taught_st_1")
    page_says(
        "took {:.1f} minutes, MAST {:.1f}, one round of self-training {:.1f} with its start, and {:.1f} with two "
        "teachers".format(*minutes(8, *ONE_ROUND)),
        f"have an AP50 of {fused['ap50']:.3f} at other sites; F1 stays at {fused['f1']:.3f}",
        f"{figures('proposals_speed')['times_faster']:.1f} times as fast",
    )


def test_world_7_and_its_leads() -> None:
    away, home, days = (premise(7)["from_scratch_st"][part] for part in ("site_ood", "test", "temporal_ood"))
    added = added_by_round_2(7)
    in_domain, on_other_days = home["gained"], days["gained"]
    page_says(
        *(cells(system) for system in premise(7).values()),
        *(cells(system) for system in teachers(7).values()),
        ", ".join(
            f"{where} by {both_intervals(part['differences'])}"
            for where, part in (("at other sites", away), ("in domain", home), ("on other days", days))
        ),
        f"{both_intervals(away['gained'])} at other sites over its start",
        f"adds {added['f1']} and {added['ap50']} to the first. At home F1 changes by {interval(in_domain['f1'])} in "
        f"domain and by {on_other_days['f1'][0]:.3f} on other days, AP50 by {in_domain['ap50'][0]:.3f} and "
        f"{on_other_days['ap50'][0]:.3f}",
    )


def added_by_round_2(world: int) -> dict[str, str]:
    """F1 and AP50 over round 1 at other sites; the table has them the other way."""
    behind = teachers(world)["from_scratch_st_1"]["site_ood"]["differences"]
    return {
        metric: interval(flipped(behind[metric]), title) for metric, title in (("f1", "F1"), ("ap50", "AP50"))
    }


def test_world_7_site_by_site() -> None:
    sites = at_other_sites(7)
    rcnn = sites["faster_rcnn"]["all"]
    best = {name: best_f1(sites[name]) for name in BASICS}
    page_says(
        *site_by_site(7, BASICS),
        by_species(7, BASICS),
        f"precision {rcnn['precision']:.2f}, recall {rcnn['recall']:.2f}",
        f"Faster R-CNN would have F1 {best['faster_rcnn']:.3f}, MAST from scratch {best['from_scratch']:.3f} and MAST "
        f"with self-training {best['from_scratch_st']:.3f}: a lead of "
        f"{best['from_scratch_st'] - best['faster_rcnn']:.3f}",
        f"it would gain only {best['from_scratch_st'] - sites['from_scratch_st']['all']['f1']:.3f}",
    )


def test_world_7_pseudo_labels_and_cost() -> None:
    first, second = pseudo_labels(7, "from_scratch_st")
    fused = fused_boxes(7, "from_scratch_st")
    page_says(
        "{} % are right in the first round and {} % in the second; {} and {} % of the".format(
            *percent(one[value] for value in ("precision", "recall") for one in (first, second))
        ),
        "took {:.1f} minutes, MAST {:.1f}, and self-training {:.1f} with".format(*minutes(7, *BASICS)),
        f"have an AP50 of {fused['ap50']:.3f} at other sites, but an F1 of {fused['f1']:.3f}",
    )


def minutes(world: int, *systems: str) -> list[float]:
    """How long they trained, each with its start."""
    return [premise(world)[name]["test"]["train_seconds"] / 60 for name in systems]


def fused_boxes(world: int, system: str) -> dict[str, float]:
    """A system's boxes at other sites, fused with those of Faster R-CNN."""
    systems = figures(f"fused_systems_world_{world}")["worlds"][f"{world}"]
    return dict(systems[f"faster_rcnn+{system}"]["site_ood"])


def test_world_6_and_its_leads() -> None:
    alone, taught = (premise(6)[name]["site_ood"] for name in ("from_scratch_st", "taught_st"))
    better, at_home = (teachers(6)["taught_st"][part]["differences"] for part in ("site_ood", "test"))
    level = alone["differences"]
    page_says(
        *(cells(system) for system in premise(6).values()),
        *(cells(system) for system in teachers(6).values()),
        f"by {interval(level['f1'], 'F1')}; AP50 is level, {interval(level['ap50'])}",
        f"the lead is {both_intervals(taught['differences'])}",
        f"{both_intervals(alone['gained'])} at other sites over its start, with two teachers "
        f"{interval(taught['gained']['f1'])} and {interval(taught['gained']['ap50'])}",
        f"by {interval(better['ap50'], 'AP50')} and {interval(better['f1'], 'F1')} at other sites. In domain it costs "
        f"{interval(flipped(at_home['ap50']), 'AP50')}",
    )


def test_world_6_site_by_site() -> None:
    page_says(*site_by_site(6, TAUGHT), by_species(6, TAUGHT))


def test_world_6_pseudo_labels_errors_and_cost() -> None:
    taught, alone = (
        percent(pseudo_labels(6, name)[1][value] for value in ("precision", "recall"))
        for name in ("taught_st", "from_scratch_st")
    )
    sites = at_other_sites(6)
    fused = fused_boxes(6, "taught_st")
    own, other = (sites[name]["false alarms"] for name in ("from_scratch_st", "faster_rcnn"))
    page_says(
        f"{taught[0]} % of its second round are right and {taught[1]} % of the calls have one, against {alone[0]} and "
        f"{alone[1]} %",
        f"have an AP50 of {fused['ap50']:.3f} at other sites; F1 stays at {fused['f1']:.3f}",
        f"would raise F1 by at most {best_threshold_adds(6, TAUGHT):.3f} for any system",
        f"Of the {sum(own.values())} false alarms of MAST with self-training there, {own['nothing there']} have "
        f"nothing to do with a call, and {own['part of a call']} are parts of one. Faster R-CNN has "
        f"{other['nothing there']} and {other['part of a call']} of {sum(other.values())}",
        "Faster R-CNN took {:.1f} minutes, MAST {:.1f}, self-training {:.1f} with its start, and {:.1f} with two "
        "teachers".format(*minutes(6, *TAUGHT)),
    )


def test_longer_rounds() -> None:
    """Rounds of one and of four epochs in world 6."""
    measured = trial(LONGER_ROUNDS)
    start, _, two_rounds, four_epochs = measured["runs"]
    home, days, away = (
        [four_epochs[part][metric] - start[part][metric] for metric in METRICS] for part in PARTS
    )
    seconds = measured["seconds"]
    page_says(
        *(cells(run, ("val", *PARTS)) for run in measured["runs"]),
        "{:.3f} F1 and {:.3f} AP50 in domain, {:.3f} and {:.3f} on other days".format(*home, *days),
        "it gains {:.3f} F1 and {:.3f} AP50".format(*away),
        f"{two_rounds['site_ood']['f1'] - start['site_ood']['f1']:.3f} F1 instead of {gain(6)['f1']:.3f}",
        f"({seconds['a round of four epochs']} s instead of {seconds['a round of one epoch']} s",
    )


def test_worlds_3_and_4() -> None:
    ahead = leads("site_ood")
    away, home, days = (mean_lead(part) for part in ("site_ood", "test", "temporal_ood"))
    gained = premise(4)["from_scratch_st"]["site_ood"]["gained"]
    page_says(
        *(cells(system) for world in (3, 4) for system in premise(world).values()),
        *(
            f"{both_intervals({metric: ahead[metric][at] for metric in METRICS})} with seed {seed}"
            for at, seed in enumerate((3, 4))
        ),
        f"is {interval(away['f1'], 'F1')}",
        f"and {interval(away['ap50'], 'AP50')}",
        f"{interval(home['f1'], 'F1')} and {minus(home['ap50'][0])} AP50, on other days {minus(days['f1'][0])} and "
        f"{minus(days['ap50'][0])}",
        "gains {f1:.3f} F1 and {ap50:.3f} AP50 at other sites".format(**gain(3)),
        f"gains {both_intervals(gained)}",
    )


def test_world_4_site_by_site() -> None:
    right, reached = percent(
        pseudo_labels(4, "from_scratch_st")[1][value] for value in ("precision", "recall")
    )
    page_says(
        *site_by_site(4, BASICS),
        f"with seed 4, {right} % of the pseudo-labels are right and {reached} % of",
    )


def test_a_mean_over_rounds() -> None:
    """World 5."""
    averaged = [mean_of_rounds(*rounds) for rounds in ((3,), (2, 3), (1, 2, 3), (0, 1, 2, 3))]
    page_says(*map(cells, premise(5).values()), *map(cells, averaged))


def test_detectors_that_label_together() -> None:
    fused = {world: figures("fused_systems")["worlds"][f"{world}"] for world in (4, 5)}
    own, again, both = "from_scratch", "from_scratch_again", "from_scratch+from_scratch_again"
    in_world_4 = ("faster_rcnn", own, again, both, "fcos+from_scratch", "faster_rcnn+from_scratch")
    runs = trained(LABELLED_TOGETHER)
    measured = trial(LABELLED_TOGETHER)
    round_1, as_before = (
        paired(measured, f"two_teachers_st_1 - {name}") for name in (own, "from_scratch_st")
    )
    latent = [paired(measured, f"mast_latent - {name}") for name in (own, again)]
    page_says(
        *(cells(fused[4][name]) for name in in_world_4),
        cells(fused[5]["faster_rcnn+from_scratch"]),
        *(cells(runs[f"{name}, world 4"]) for name in ("two_teachers_st_1", "mast_latent")),
        "by {:.3f} F1 and {:.3f} AP50 at other sites in world 4".format(*gain_of_fusing(4)),
        "by {:.3f} and {:.3f} in world 5".format(*gain_of_fusing(5)),
        both_intervals(round_1),
        "({} F1, {} to {})".format(*three_digits(as_before["f1"])),
        " and ".join(interval(one["f1"]) for one in latent),
        f"({join_words(three_digits(one['ap50'][0] for one in latent))})",
    )


def test_the_papers_propositions() -> None:
    """In world 4, and the product of precision and recall in two older worlds."""
    checked = figures("propositions")
    first, second = checked["rounds"]
    away = checked["parts"]["site_ood"]
    errors = away["error, least to most confident"]
    assert errors == sorted(errors, reverse=True)
    noise = [100 * away["noise"][name] for name in ("uniform", "weighted")]
    older = [trained(TWO_ROUNDS)[f"st_quiet, world {world}"]["pseudo_labels"][-1] for world in (0, 1)]
    products = [labels["precision"] * labels["recall"] for labels in older]
    gained, lost = (
        paired(trial(TWO_ROUNDS), f"world {world}: st_quiet - from_scratch")["f1"][0] for world in (0, 1)
    )
    page_says(
        f"rises from {first['product']:.2f} to {second['product']:.2f}: precision falls from "
        f"{first['precision']:.2f} to {second['precision']:.2f}",
        f"rises from {first['recall']:.2f} to {second['recall']:.2f}",
        "{} % of the least confident fifth of the boxes are wrong, then {}, {} and {}, and {} %".format(
            *percent(errors)
        ),
        f"from {noise[0]:.1f} to {noise[1]:.1f} % wrong at other sites",
        f"it was {products[0]:.2f} in world 0, where self-training gained {gained:.3f} F1, and {products[1]:.2f} in "
        f"world 1, where it lost {-lost:.3f}",
    )


def test_the_first_fresh_world() -> None:
    """World 1."""
    difference = premise(1)["from_scratch_st"]["site_ood"]["differences"]
    behind, low, high = difference["ap50"]
    page_says(
        *map(cells, premise(1).values()),
        "is {} above Faster R-CNN's ({} to {})".format(*three_digits(difference["f1"]))
        + f", and its AP50 {-behind:.3f} below ({minus(low)} to {minus(high)})",
        "only {f1:.3f} F1 and {ap50:.3f} AP50".format(**gain(1)),
    )


def test_two_rounds_more_sound() -> None:
    """Worlds 0 and 1."""
    careful = paired(trial(TWO_ROUNDS), "world 0: st_quiet - from_scratch")
    page_says(
        *(cells(run, ["site_ood"]) for run in trained(TWO_ROUNDS).values()),
        interval(careful["f1"], "F1"),
        interval(careful["ap50"], "AP50"),
    )


def test_a_third_world_and_notes_of_songs() -> None:
    """World 2, and world 1 again."""
    measured = trial(SONGS_SPARED)
    level, small_gain = (
        paired(measured, f"world 2: st_quiet - {name}") for name in ("faster_rcnn", "from_scratch")
    )
    domain, days = (
        paired(measured, f"world 2, {where}: st_quiet - from_scratch", "at_home")["f1"]
        for where in ("in domain", "other days")
    )
    to_train_on = (
        "only {world 2:,} labelled boxes to train on in this world, {world 0:,} and {world 1:,} in the"
    )
    sites = {seed: at_other_sites(seed) for seed in (1, 2)}
    here, home = (
        {seed: sites[seed]["st_songs"]["threshold"][which] for seed in sites}
        for which in ("best here", "chosen at home")
    )
    page_says(
        *map(cells, measured["runs"]),
        f"{interval(level['f1'], 'F1')} and +{interval(level['ap50'], 'AP50')}",
        f"gains {interval(small_gain['f1'], 'F1')}",
        f"costs {interval(flipped(domain))} in domain and {interval(flipped(days))} on other days",
        to_train_on.format(**measured["labelled_boxes_to_train_on"]),
        f"{best_f1(sites[2]['st_songs']):.3f} with seed 2 (threshold {here[2]:.2f}, not {home[2]:.2f})",
        f"{best_f1(sites[1]['st_songs']):.3f} with seed 1 ({here[1]:.2f}, not {home[1]:.2f})",
        join_words(three_digits(best_f1(sites[seed]["faster_rcnn"]) for seed in (2, 1))),
    )


def test_songs_made_of_calls() -> None:
    """Worlds 1 and 2, with thresholds of two kinds."""
    page_says(
        *(
            f"| {cells(run, ['site_ood'])} | {run['with a steady threshold']['site_ood']:.3f} |"
            for run in trial(REPEATED_CALLS)["runs"]
        )
    )


def test_what_is_wrong_at_other_sites() -> None:
    kinds = (HEARD, "never heard", "without calls over 5 s")
    systems = [system for world in (0, 1, 2) for system in at_other_sites(world).values()]
    for system in systems:
        wrong = system["false alarms"]
        page_says(
            " | ".join(pair_of(system[kind]) for kind in kinds)
            + f" | {wrong['part of a call']} of {sum(wrong.values())} |"
        )


def test_the_development_world() -> None:
    """World 0."""
    rcnn, systems = faster_rcnn_of_world_0(), premise(0)
    ahead, own_gain = (paired(first_trial(), f"st_union - {name}")["f1"] for name in ("faster_rcnn", "mast"))
    page_says(
        f"| {rcnn['test']['f1']:.3f} | {rcnn['temporal_ood']['f1']:.3f} | {cells(rcnn, ['site_ood'])} |",
        *(
            f"| {systems[name]['test']['f1']:.3f} | {systems[name]['temporal_ood']['f1']:.3f} |"
            for name in ("from_scratch", "mast", "st_union")
        ),
        *(f"{system['site_ood']['f1']:.3f}" for system in systems.values()),
        f"+{interval(own_gain, 'F1')}",
        f"by {interval(ahead, 'F1')}",
    )
