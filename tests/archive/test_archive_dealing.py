"""Dealing: whatever dies whenever, every recording ends up done once or given up, and only killers are given up."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mast.archive.dealing import Dealer, Hand
from mast.archive.locations import Recording


def recordings(n: int) -> list[Recording]:
    return [Recording(f"/r/{i}.wav", f"{i}.wav", "/r") for i in range(n)]


@given(
    n=st.integers(0, 120),
    workers=st.integers(1, 6),
    poison=st.sets(st.integers(0, 119), max_size=5),
    accidents=st.integers(0, 3),
    seed=st.integers(0, 1000),
)
def test_none_lost_none_doubled(n: int, workers: int, poison: set[int], accidents: int, seed: int) -> None:
    rng = random.Random(seed)
    killers = {f"{i}.wav" for i in poison if i < n}
    dealer = Dealer(recordings(n), workers)
    hands: dict[int, Hand | None] = dict.fromkeys(range(workers))
    done: Counter[str] = Counter()
    given_up: Counter[str] = Counter()
    met: Counter[str] = Counter()
    while dealer.left:
        worker = rng.randrange(workers)
        hand = hands[worker]
        if hand is None or not hand.left:
            hands[worker] = dealer.deal()
            continue
        name = next(iter(hand.left))
        accident = accidents > 0 and rng.random() < 0.05
        if name in killers or accident:
            met[name] += name in killers
            accidents -= accident and name not in killers
            for outcome in dealer.lost(hand, "SIGKILL"):
                given_up[outcome.source.recording] += 1
                assert outcome.error.startswith(f"/r/{outcome.source.recording}: 2 workers died")
            hands[worker] = None
        else:
            dealer.reported(hand, name)
            done[name] += 1
    assert set(done) | set(given_up) == {recording.name for recording in recordings(n)}
    assert not set(done) & set(given_up)
    assert max([*done.values(), *given_up.values()], default=1) == 1
    assert killers <= set(given_up)
    assert all(2 <= met[name] <= 3 or accidents >= 0 for name in killers)
    assert max(met.values(), default=0) <= 3  # tried again at most twice
    assert dealer.deal() is None


def test_hands_are_small_at_the_end_and_a_lone_survivor_is_to_blame_at_once() -> None:
    dealer = Dealer(recordings(80), workers=2)
    sizes = []
    while (hand := dealer.deal()) is not None:
        sizes.append(len(hand.left))
        for name in list(hand.left):
            dealer.reported(hand, name)
    assert sizes[0] == 10
    assert sizes[-8:] == [1] * 8
    assert sum(sizes) == 80

    dealer = Dealer(recordings(16), workers=1)
    hand = dealer.deal()
    assert hand is not None
    *others, last = hand.left
    for name in others:
        dealer.reported(hand, name)
    assert dealer.lost(hand, "a first time") == []
    while (again := dealer.deal()) is not None and last not in again.left:
        for name in list(again.left):
            dealer.reported(again, name)
    assert again is not None
    assert [outcome.source.recording for outcome in dealer.lost(again, "a second time")] == [last]
    assert dealer.left == 0


def test_nothing_to_deal() -> None:
    assert Dealer([], 3).deal() is None
    with pytest.raises(KeyError):
        Dealer(recordings(1), 1).reported(Hand([]), "0.wav")
