"""Progress bars on a terminal; separate from the options, so that a command without a bar does not import rich."""

from __future__ import annotations

from typing import Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress
from rich.text import Text

from mast.cli.reporting import current_report
from mast.runs import Progress

# our choice: the rate is measured over the last half hour, as a training step on a CPU may take a minute
RATE_WINDOW_S = 1800.0
_LINE_EVERY_S = 60.0  # where a bar is written to a file; our choice


class TimeLeftColumn(TimeRemainingColumn):
    """The time left at the measured rate; nothing until there is one."""

    def render(self, task: Task) -> Text:
        """As in rich, but without dashes."""
        return Text("") if task.time_remaining is None and not task.finished else super().render(task)


class CountColumn(MofNCompleteColumn):
    """Done of total; nothing while the total is unknown."""

    def render(self, task: Task) -> Text:
        """As in rich, but without question marks."""
        return Text("") if task.total is None else super().render(task)


class ReportedBar(RichProgress):
    """A bar whose figures also go to the command's report (:mod:`mast.progress`), shown or not.

    Where the output goes to a file, it prints a line every minute.
    """

    def __init__(self, *columns: str | ProgressColumn, unit: str, **more: Any) -> None:
        super().__init__(*columns, **more)
        self._unit, self._line_at = unit, self.get_time()

    def add_task(self, description: str, *given: Any, **more: Any) -> TaskID:
        """As the library does, and report it."""
        return self._report(super().add_task(description, *given, **more))

    def update(self, task_id: TaskID, **more: Any) -> None:
        """As the library does, and report it."""
        super().update(task_id, **more)
        self._report(task_id)

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        """As the library does, and report it."""
        super().advance(task_id, advance)
        self._report(task_id)

    def reset(self, task_id: TaskID, **more: Any) -> None:
        """As the library does, and report it."""
        super().reset(task_id, **more)
        self._report(task_id)

    def _report(self, task_id: TaskID) -> TaskID:
        task = self._tasks[task_id]
        unit = self._unit.format(task=task)
        current_report().update(task.description, task.completed, task.total, unit, task.time_remaining)
        on_screen = self.console.is_terminal or self.console.is_jupyter
        if not (self.disable or on_screen) and self.get_time() - self._line_at >= _LINE_EVERY_S:
            self._line_at = self.get_time()
            self.console.print(_progress_line(task, unit), markup=False, highlight=False, soft_wrap=True)
        return task_id


def _progress_line(task: Task, unit: str) -> str:
    """How far a task has got, in words."""
    total = "" if task.total is None else f" of {task.total:,.0f}"
    left = task.time_remaining
    remaining = "" if left is None else f", {max(1, round(left / 60)):,} min left"
    return f"{task.description}: {task.completed:,.0f}{total} {unit}".rstrip() + remaining


def bar_columns(unit: str) -> list[str | ProgressColumn]:
    """Name, bar, count with its unit (a field ``text`` of the task follows), time left."""
    return [TextColumn("{task.description}"), BarColumn(), CountColumn(), TextColumn(unit), TimeLeftColumn()]


def step_reporter(bar: RichProgress, what: str) -> Progress:
    """A task on ``bar`` (whose unit is ``{task.fields[text]}``) that follows a run as training reports it.

    Where it starts to count something else, the rate is measured again.
    """
    task = bar.add_task(what, total=None, text="")
    last_text, last_done = "", 0

    def show(done: int, total: int, text: str) -> None:
        nonlocal last_text, last_done
        shown_text = f"{total} {text.partition(',')[0]}"
        if shown_text != last_text or done < last_done:
            bar.reset(task, total=total or None, completed=done, text=text)
            bar.refresh()
        else:
            bar.update(task, completed=done, text=text)
        last_text, last_done = shown_text, done

    return show
