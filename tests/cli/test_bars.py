"""What a training run shows of itself on a terminal."""

from __future__ import annotations

import io

from rich.console import Console
from rich.progress import Progress

from mast.cli.bars import RATE_WINDOW_S, ReportedBar, bar_columns, step_reporter


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def bar_at(clock: Clock) -> tuple[Progress, Console]:
    console = Console(file=io.StringIO(), width=140, color_system=None)
    return Progress(
        *bar_columns("{task.fields[text]}"),
        console=console,
        get_time=clock,
        speed_estimate_period=RATE_WINDOW_S,
        auto_refresh=False,
    ), console


def seen(bar: Progress, console: Console) -> str:
    with console.capture() as caught:
        console.print(bar.get_renderable())
    return " ".join(caught.get().split())


def test_nothing_unknown_is_shown_as_question_marks_or_dashes() -> None:
    bar, console = bar_at(Clock())
    show = step_reporter(bar, "train")
    for line in (None, "reading chunks without boxes as backgrounds"):
        if line:
            show(0, 0, line)
            assert line in seen(bar, console)
        assert "?" not in seen(bar, console)
        assert "-:--" not in seen(bar, console)
    show(0, 400, "steps, reading the first batch")
    assert "0/400 steps, reading the first batch" in seen(bar, console)
    assert "-:--" not in seen(bar, console)


def test_the_time_left_is_that_of_the_measured_rate_however_slow_the_steps() -> None:
    clock = Clock()
    bar, console = bar_at(clock)
    show = step_reporter(bar, "train")
    show(0, 12, "steps, reading the first batch")
    for step in range(1, 4):
        clock.now += 100.0
        show(step, 12, "steps")
    assert "3/12 steps" in seen(bar, console)
    assert "0:15:00" in seen(bar, console)  # nine steps of 100 s


def test_what_was_counted_before_does_not_enter_the_rate() -> None:
    clock = Clock()
    bar, console = bar_at(clock)
    show = step_reporter(bar, "self-train")
    for done in range(0, 101, 10):
        clock.now += 1.0
        show(done, 100, "chunks, looking for pseudo-boxes")
    for stage in range(2):  # as many steps in each of two stages
        for step in range(4):
            clock.now += 60.0
            show(step, 100, f"steps, loss {stage}")
        assert "3/100 steps, loss" in seen(bar, console)
        assert "1:37:00" in seen(bar, console)


def written(*, minutes: int, terminal: bool, disable: bool = False) -> list[str]:
    """What a bar of 240 steps, six a minute, leaves in a file while it runs."""
    clock, file = Clock(), io.StringIO()
    bar = ReportedBar(
        *bar_columns("{task.fields[text]}"),
        console=Console(file=file, width=20, force_terminal=terminal),
        get_time=clock,
        speed_estimate_period=RATE_WINDOW_S,
        auto_refresh=False,
        disable=disable,
        unit="{task.fields[text]}",
    )
    show = step_reporter(bar, "train")
    for step in range(6 * minutes + 1):
        show(step, 240, "steps, loss 0.1234")
        clock.now += 10.0
    return file.getvalue().splitlines()


def test_a_log_file_gets_a_line_every_minute() -> None:
    lines = written(minutes=3, terminal=False)
    assert len(lines) == 3
    assert lines[0] == "train: 6 of 240 steps, loss 0.1234, 39 min left"  # however narrow the console
    assert lines[2].startswith("train: 18 of 240 steps")
    assert not written(minutes=3, terminal=True)
    assert not written(minutes=3, terminal=False, disable=True)
