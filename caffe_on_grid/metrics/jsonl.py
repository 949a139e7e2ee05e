"""metrics.jsonl: which lines are written, and reading them again. The schema is in docs/metrics.md.

Nothing here opens a file: lines go to a callable, so that any storage will do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Optional

from caffe_on_grid.metrics.state import GangState, Rates, rates
from caffe_on_grid.spec import report as reports
from caffe_on_grid.spec.report import Report

_EVERY_RANK = (reports.Failed, reports.Remarked, reports.Finished)
"""Reports that are written whichever rank sends them; the others only from rank 0."""


class MetricsLog:
    """Makes the lines of a run, each with its newline, and puts them where it is told to."""

    def __init__(self, put: Callable[[str], None]) -> None:
        self._put = put

    def gang(self, task: str, run_id: str, time: float) -> None:
        """A task begins."""
        self._add({"kind": "gang", "task": task, "run_id": run_id, "time": time})

    def report(self, report: Report, state: GangState) -> None:
        """A rank's report; a step that rank 0 displays also brings the line over all ranks."""
        if report.rank == 0 or isinstance(report, _EVERY_RANK):
            self._put(reports.to_line(report))
        if report.rank == 0 and isinstance(report, reports.Stepped):
            now = rates(state)
            if now:
                self._add(ranks_line(report, now, state))

    def ended(self, outcome: str, exit_code: int, time: float) -> None:
        """The run has ended: the last line, for whoever follows the file."""
        self._add({"kind": "ended", "outcome": outcome, "exit_code": exit_code, "time": time})

    def _add(self, value: dict[str, Any]) -> None:
        self._put(json.dumps(value, ensure_ascii=False) + "\n")


def ranks_line(report: reports.Stepped, now: Rates, state: GangState) -> dict[str, Any]:
    """The line over all ranks that follows a step of rank 0; shares are parts of wall-clock time, 0 to 1."""
    return {
        "kind": "ranks",
        "time": report.time,
        "iteration": report.iteration,
        "images_per_second": round(now.images_per_second, 3),
        "data": round(now.data, 4),
        "compute": round(now.compute, 4),
        "exchange": round(now.exchange, 4),
        "samples": state.samples,
        "exchanged_bytes": state.exchanged_bytes,
        "per_rank": {
            name: spread([getattr(r, name) for r in now.ranks], [r.rank for r in now.ranks])
            for name in ("images_per_second", "data", "compute", "exchange")
        },
    }


def spread(values: list[float], ranks: list[int]) -> dict[str, Any]:
    """The least and the greatest of the ranks' values, and whose they are."""
    least, most = min(zip(values, ranks)), max(zip(values, ranks))
    return {
        "min": round(least[0], 4),
        "min_rank": least[1],
        "max": round(most[0], 4),
        "max_rank": most[1],
    }


def read(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The lines as objects, one after another; a last line that is still being written is left out."""
    return (value for value in map(_parse, lines) if value is not None)


def _parse(line: str) -> Optional[dict[str, Any]]:
    if not line.endswith("\n"):
        return None
    value: dict[str, Any] = json.loads(line)
    return value


def number(value: Any) -> float:
    """A number of a line: "nan", "inf" and "-inf" stand for what JSON lacks."""
    return float(value)
