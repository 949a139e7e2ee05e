"""What people see while a job runs: Caffe's lines and a progress line, or on a terminal one that is redrawn.

Only stderr is written to. `show` chooses: `Plain` for files, pipes and logs, `Live` for a terminal.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Optional, Protocol, TextIO

from caffe_on_grid.metrics import words
from caffe_on_grid.metrics.state import GangState, Rates, rates, seconds_left
from caffe_on_grid.spec import report as reports
from caffe_on_grid.spec.report import Report

TERMINAL = "CAFFE_ON_GRID_TERMINAL"
"""Set to a width in columns by whoever pipes this program's stderr to a terminal (spark-submit does)."""

LINE_EVERY_S = 10.0
"""Between two progress lines where there is no terminal."""


class Display(Protocol):
    """Where the job's words go."""

    def lines(self, lines: list[str]) -> None:
        """Lines that stay."""

    def report(self, report: Report, state: GangState) -> None:
        """A rank has reported."""

    def tick(self, state: GangState, now: float) -> None:
        """Show how far the gang is; `now` is in monotonic seconds."""

    def close(self) -> None:
        """No more progress: leave the screen to others."""


def show(stream: Optional[TextIO] = None, environ: Optional[Mapping[str, str]] = None) -> Display:
    """The display for `stream` (stderr); lines only where this Python has no rich, as a runtime may not."""
    stream = stream or sys.stderr
    width = (os.environ if environ is None else environ).get(TERMINAL, "")
    columns = int(width) if width.isdigit() and int(width) > 0 else None
    drawable = (columns or stream.isatty()) and importlib.util.find_spec("rich")
    return Live(stream, columns) if drawable else Plain(stream)


class _Stream:
    """Writes lines; falls silent once it cannot: a job must not die of a closed terminal or of a log on a full disk."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.open = True

    def write(self, text: str) -> int:
        if not self.open:
            return 0
        try:
            return self.stream.write(text)
        except OSError:
            self.open = False
            return 0

    def flush(self) -> None:
        if not self.open:
            return
        try:
            self.stream.flush()
        except OSError:
            self.open = False

    def isatty(self) -> bool:
        return self.stream.isatty()

    @property
    def encoding(self) -> str:
        return self.stream.encoding


class Plain:
    """Lines only: Caffe's for displayed iterations and tests, a progress line now and then."""

    def __init__(self, stream: TextIO) -> None:
        self._out = _Stream(stream)
        self._shown_at: Optional[float] = None
        self._waiting = ""

    def lines(self, lines: list[str]) -> None:
        """Write lines."""
        self._out.write("".join(line + "\n" for line in lines))
        self._out.flush()

    def report(self, report: Report, state: GangState) -> None:
        """Write what Caffe would."""
        self.lines(report_lines(report, state))

    def tick(self, state: GangState, now: float) -> None:
        """Write the progress line, every LINE_EVERY_S seconds, and who has come, when that changes."""
        if len(state.joined) < state.executors:
            waiting = words.joined_line(state)
            if waiting != self._waiting:
                self.lines([waiting])
            self._waiting = waiting
        self._shown_at = now if self._shown_at is None else self._shown_at
        if now - self._shown_at >= LINE_EVERY_S:
            line = words.progress_line(state)
            self.lines([line] if line else [])
            self._shown_at = now

    def close(self) -> None:
        """Nothing is held."""


class Live:
    """A line that is redrawn at the bottom; what stays is written above it."""

    def __init__(self, stream: TextIO, width: Optional[int]) -> None:
        # rich is loaded only where there is a terminal to draw on.
        from rich.console import Console
        from rich.live import Live as Screen

        self._out = _Stream(stream)
        file: Any = self._out
        self._console = Console(file=file, force_terminal=True, width=width, highlight=False, emoji=False, markup=False)
        self._screen = Screen(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._drawing = False

    def lines(self, lines: list[str]) -> None:
        """Write lines above the redrawn one."""
        from rich.text import Text

        if lines:
            texts = (Text(line, style="red" if line.startswith("error:") else "") for line in lines)
            self._console.print(Text("\n").join(texts), soft_wrap=True)

    def report(self, report: Report, state: GangState) -> None:
        """Write tests, saves and remarks; displayed iterations are in the redrawn line already."""
        if not isinstance(report, reports.Stepped):
            self.lines(report_lines(report, state))

    def tick(self, state: GangState, now: float) -> None:
        """Redraw."""
        if not self._drawing:
            self._screen.start()
            self._drawing = True
        self._screen.update(drawing(state), refresh=True)

    def close(self) -> None:
        """Leave the last drawing where it is."""
        if self._drawing:
            self._screen.stop()
            self._drawing = False


def report_lines(report: Report, state: GangState) -> list[str]:
    """The lines that stay of a report; most have none."""
    weights = state.started.loss_weights if state.started else {}
    if isinstance(report, reports.Tested):
        return words.test_lines(report, weights)
    if isinstance(report, reports.Stepped) and report.displayed and report.rank == 0:
        return words.iteration_lines(report, weights)
    if isinstance(report, reports.Saved):
        return [f"Iteration {report.iteration}, saved {report.uri}"]
    if isinstance(report, reports.Remarked):
        return [f"remark: {report.message}"]
    return []


def drawing(state: GangState) -> Any:
    """The redrawn part, as rich renders it: a bar with the time left, and a row of figures."""
    from rich.console import Group
    from rich.text import Text

    now, last, started = rates(state), state.last, state.started
    if not (now and last and started):
        waiting = len(state.joined) < state.executors
        return Text(words.joined_line(state) if waiting else "the ranks are starting …", style="dim")
    return Group(_bar(state, last.iteration, started.max_iterations), Text("  ").join(_figures(state, last, now)))


def _bar(state: GangState, iteration: int, most: int) -> Any:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    left = seconds_left(state)
    row = Table.grid(padding=(0, 2))
    ends = f"{words.duration(left)} left" if left is not None else ""
    share = f"{iteration / most:.0%}" if most else ""
    row.add_row(ProgressBar(total=max(1, most), completed=iteration, width=40), f"{iteration}/{most}", share, ends)
    return row


def _figures(state: GangState, last: reports.Stepped, now: Rates) -> Iterator[Any]:
    from rich.text import Text

    tests = [("test", words.outputs(test.outputs)) for _, test in sorted(state.tests.items())]
    pairs = [
        ("loss", words.number(last.loss)),
        *tests,
        ("lr", words.number(last.lr)),
        ("images/s", words.quantity(now.images_per_second)),
        ("time", words.split(now)),
    ]
    for name, value in pairs:
        yield Text.assemble((name + " ", "dim"), (value, "bold"))
