"""Whole recordings assigned to parts, so that seconds *and* boxes come out in the right shares.

An assignment by length alone can leave validation with a single box, and then thresholds and calibration are tuned
on nothing. So many assignments are made, each a function of the names and the seed, and the best is kept: first
the one that leaves the fewest parts without boxes (train matters most, then val, then test), then the one whose
shares of boxes and of seconds come closest to the requested ones; of equals, the one where val lacks the fewest boxes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

MAX_ATTEMPTS = 256  # our choice: enough to find the best of the 20 ways to assign five recordings
_WORK = 20_000  # recordings assigned in all attempts; our choice: with many, any assignment is nearly even


def shuffle_key(seed: int, *names: object) -> str:
    """A sort key that looks random, the same wherever and in whatever order it is computed."""
    return hashlib.sha256("\x1f".join(map(str, (seed, *names))).encode()).hexdigest()


def assign_parts(
    length_s: Mapping[str, float],
    fractions: Mapping[str, float],
    *,
    seed: int,
    boxed: Collection[str] = (),
    reviewed: Collection[str] = (),
    counts: Mapping[str, int] | None = None,
) -> dict[str, str]:
    """The part of each recording.

    Args:
        length_s: of every recording.
        fractions: of each part; they add up to 1.
        seed: of the random order.
        boxed: recordings with boxes, assigned first, so that every part gets some.
        reviewed: recordings that somebody listened to, assigned next, before unlabelled ones.
        counts: boxes of each recording; where not known, one assignment is made by length alone.
    """
    if not counts or len(fractions) < 2:
        return _assign_by_length(length_s, fractions, seed, set(boxed), set(reviewed), attempt=0)
    boxed = {*boxed, *(name for name, n in counts.items() if n)} & set(length_s)
    assignments = (
        _move_boxes_to_empty_parts(
            _assign_by_length(length_s, fractions, seed, boxed, set(reviewed), attempt=k), fractions, counts
        )
        for k in range(max(1, min(MAX_ATTEMPTS, _WORK // max(1, len(length_s)))))
    )
    return min(
        assignments, key=lambda part_of: _imbalance(part_of, fractions, counts, length_s)
    )  # the first of equals


def part_boxes(
    part_of: Mapping[str, str], counts: Mapping[str, int], fractions: Mapping[str, float]
) -> dict[str, int]:
    """How many boxes each part has."""
    held = dict.fromkeys(fractions, 0)
    for name, part in part_of.items():
        held[part] += counts.get(name, 0)
    return held


def _imbalance(
    part_of: Mapping[str, str],
    fractions: Mapping[str, float],
    counts: Mapping[str, int],
    length_s: Mapping[str, float],
) -> tuple[tuple[bool, ...], float, float]:
    """Which parts are without boxes, the first mattering most; how far all shares are off; boxes val lacks."""
    boxes = part_boxes(part_of, counts, fractions)
    seconds = dict.fromkeys(fractions, 0.0)
    for name in sorted(part_of):  # a fixed order: sums of floats depend on it
        seconds[part_of[name]] += length_s[name]
    off = 0.0
    for held in (boxes, seconds):
        total = sum(held.values()) or 1
        off += sum(abs(held[part] / total - share) for part, share in fractions.items())
    lacks = fractions.get("val", 0.0) * sum(boxes.values()) - boxes.get("val", 0)
    return tuple(boxes[part] == 0 for part in fractions), round(off, 9), max(0.0, lacks)


def _move_boxes_to_empty_parts(
    part_of: dict[str, str], fractions: Mapping[str, float], counts: Mapping[str, int]
) -> dict[str, str]:
    """Let parts without boxes take a recording from the part with the most recordings that have some."""
    part_of = dict(part_of)
    total = sum(counts.get(name, 0) for name in part_of)
    for part, share in fractions.items():
        if part_boxes(part_of, counts, fractions)[part]:
            continue
        donors = {
            other: [name for name in part_of if part_of[name] == other and counts.get(name, 0)]
            for other in fractions
        }
        largest = max(donors.values(), key=len)
        if len(largest) > 1:
            wanted = share * total
            part_of[min(largest, key=lambda name: (abs(counts[name] - wanted), name))] = part
    return part_of


def _assign_by_length(
    length_s: Mapping[str, float],
    fractions: Mapping[str, float],
    seed: int,
    boxed: set[str],
    reviewed: set[str],
    *,
    attempt: int,
) -> dict[str, str]:
    """One assignment by length: each recording goes to the part that lacks the most seconds.

    Recordings with boxes are assigned first, then those heard to be empty, then unlabelled ones, so that all
    parts have their share of each. Within each kind, those too long for the smallest part come first (at the end
    they would overfill it), then the others in random order.
    """
    kinds = [boxed, reviewed - boxed, set(length_s) - reviewed - boxed]
    lacking = dict.fromkeys(fractions, 0.0)
    still_empty = set(fractions)
    part_of: dict[str, str] = {}
    salt = () if attempt == 0 else (attempt,)
    for kind in kinds:
        total = sum(length_s[name] for name in length_s if name in kind)
        for part, share in fractions.items():
            lacking[part] += share * total
        long = min(fractions.values()) * total
        random = {name: shuffle_key(seed, *salt, name) for name in length_s if name in kind}
        # where all are long, as in a small set, "longest first" would always give the same order
        sized = {
            name: length_s[name] if length_s[name] > long and attempt % 2 == 0 else 0.0 for name in random
        }
        order = sorted(random, key=lambda name: (-sized[name], random[name]))
        for i, name in enumerate(order):
            # as many recordings (of this kind, or at all) as parts without any: each of those gets one
            left = len(order) - i if len(order) >= len(fractions) else len(length_s) - len(part_of)
            candidates = [p for p in fractions if p in still_empty or left > len(still_empty)]
            part = max(candidates, key=lambda p: lacking[p])
            lacking[part] -= length_s[name]
            still_empty.discard(part)
            part_of[name] = part
    return part_of
