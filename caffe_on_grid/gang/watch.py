"""What an agent knows of its ranks: reports, progress, last words. No files, no sockets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Optional

from caffe_on_grid.spec import report
from caffe_on_grid.spec.report import Failed, Finished, Progress, Report, Started


@dataclass(frozen=True)
class Beat:
    """Where one rank is, as its agent saw it."""

    rank: int
    iteration: int
    phase: str
    age_s: float
    """Seconds since the rank last moved."""


@dataclass
class RankState:
    """One rank as its agent knows it."""

    rank: int
    started: Optional[Started] = None
    final: Optional[Report] = None
    """Finished or Failed, once it came."""
    progress: Progress = field(default_factory=lambda: Progress(0, report.PHASES[0], 0.0))

    @property
    def stepped(self) -> bool:
        """It has done a step in this run (which may have resumed at a later iteration)."""
        return self.started is not None and self.progress.iteration > self.started.first_iteration

    @property
    def finished(self) -> bool:
        """It said that it ended well."""
        return isinstance(self.final, Finished)

    def beat(self, now: float, since: float) -> Beat:
        """The beat at monotonic time `now`; a rank that has not moved yet is as old as the gang (`since`)."""
        p = self.progress
        return Beat(self.rank, p.iteration, p.phase, max(0.0, now - max(p.monotonic, since)))


class Ranks:
    """The ranks of one executor."""

    def __init__(self, ranks: Iterable[int]) -> None:
        self.states = {rank: RankState(rank) for rank in ranks}

    def note(self, said: Report) -> None:
        """Take in a report; the last word of a rank is its first Finished or Failed."""
        state = self.states[said.rank]
        if isinstance(said, Started):
            state.started = said
        elif isinstance(said, (Finished, Failed)) and state.final is None:
            state.final = said

    def failure(self) -> Optional[Failed]:
        """The earliest failure that a rank reported."""
        failures = [s.final for s in self.states.values() if isinstance(s.final, Failed)]
        return min(failures, key=lambda f: f.time, default=None)

    def undecided(self) -> list[RankState]:
        """Ranks that have not said their last word."""
        return [s for s in self.states.values() if s.final is None]

    def all_finished(self) -> bool:
        """Every rank ended well."""
        return all(s.finished for s in self.states.values())

    def beats(self, now: float, since: float) -> list[Beat]:
        """Where all are."""
        return [s.beat(now, since) for s in self.states.values()]
