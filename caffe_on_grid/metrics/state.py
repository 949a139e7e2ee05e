"""What is known of a gang while it runs, and the rates that follow from it. Pure: no clocks, no files."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Optional

from caffe_on_grid.spec.report import Finished, Saved, Started, Stepped, Tested

WINDOW_S = 10.0
"""Rates are means over about this long."""


@dataclass
class RankState:
    """One rank, as its reports and beats tell."""

    rank: int
    executor: int
    host: str
    local_rank: int
    device: str
    """"cpu 0", "gpu 1"."""
    moved_at: float
    """Driver's monotonic seconds of the last sign of progress."""
    iteration: int = 0
    phase: str = "starting"
    started: Optional[Started] = None
    window: deque[Stepped] = field(default_factory=deque)
    """The steps reported in the last WINDOW_S seconds, oldest first."""
    finished: Optional[Finished] = None

    def step(self, report: Stepped) -> None:
        """Take a step report into the window."""
        self.window.append(report)
        while len(self.window) > 2 and report.seconds - self.window[1].seconds >= WINDOW_S:
            self.window.popleft()

    @property
    def last(self) -> Optional[Stepped]:
        """The newest step report."""
        return self.window[-1] if self.window else None


@dataclass
class GangState:
    """One gang: who came, where its ranks are, what they reported."""

    task: str
    executors: int
    """How many are expected."""
    joined: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Executor → its `joined` message."""
    left: dict[int, bool] = field(default_factory=dict)
    """Executor → whether all its ranks ended well."""
    ranks: dict[int, RankState] = field(default_factory=dict)
    runtime: Any = None
    tests: dict[int, Tested] = field(default_factory=dict)
    """TEST net → its last test."""
    digests: dict[int, dict[int, str]] = field(default_factory=dict)
    """Iteration → rank → digest of the parameters, until all ranks' have come."""
    checks: int = 0
    """Comparisons of all ranks' digests that were equal."""
    saved: list[Saved] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def world(self) -> int:
        """Ranks; 0 until they are placed."""
        return len(self.ranks)

    @property
    def leader(self) -> Optional[RankState]:
        """Rank 0."""
        return self.ranks.get(0)

    @property
    def started(self) -> Optional[Started]:
        """What rank 0 said when it started."""
        return self.leader.started if self.leader else None

    @property
    def last(self) -> Optional[Stepped]:
        """Rank 0's newest step report."""
        return self.leader.last if self.leader else None

    @property
    def stepped(self) -> bool:
        """Whether any rank has made a step."""
        return any(r.window or r.finished or r.iteration > _first(r) for r in self.ranks.values())

    @property
    def global_batch(self) -> int:
        """Records per step over all ranks that have started."""
        return sum(r.started.batch for r in self.ranks.values() if r.started)

    @property
    def samples(self) -> int:
        """Records consumed by all ranks."""
        return sum(_newest(r, "samples") for r in self.ranks.values())

    @property
    def exchanged_bytes(self) -> int:
        """Bytes given to exchanges by all ranks."""
        return sum(_newest(r, "exchanged_bytes") for r in self.ranks.values())

    @property
    def skipped(self) -> int:
        """Undecodable records that ended ranks skipped."""
        return sum(r.finished.skipped for r in self.ranks.values() if r.finished)

    @property
    def digest(self) -> Optional[str]:
        """The final digest that all ranks share; None before all have finished, or where they differ."""
        finals = {r.finished.digest if r.finished else None for r in self.ranks.values()}
        return finals.pop() if len(finals) == 1 else None

    @property
    def images_per_second(self) -> float:
        """Records by seconds since the first step, of the whole run so far."""
        seconds = max((r.last.seconds for r in self.ranks.values() if r.last), default=0.0)
        return self.samples / seconds if seconds > 0 else 0.0


def _first(rank: RankState) -> int:
    return rank.started.first_iteration if rank.started else rank.iteration


def _newest(rank: RankState, name: str) -> int:
    source = rank.finished or rank.last
    return int(getattr(source, name)) if source else 0


@dataclass(frozen=True)
class RankRates:
    """One rank over its window: records a second, and the shares of its time (0 to 1)."""

    rank: int
    images_per_second: float
    data: float
    compute: float
    exchange: float


@dataclass(frozen=True)
class Rates:
    """All ranks over their windows."""

    images_per_second: float
    """Sum over the ranks."""
    iterations_per_second: float
    """Rank 0's."""
    data: float
    """Mean share of time over the ranks; the next two likewise. What is missing from 1: tests, snapshots."""
    compute: float
    exchange: float
    ranks: tuple[RankRates, ...]


def rates(state: GangState) -> Optional[Rates]:
    """The rates of all ranks that have reported a step; None where none has."""
    each = tuple(r for r in (rank_rates(rank) for _, rank in sorted(state.ranks.items())) if r)
    if not each:
        return None
    leader = state.leader
    return Rates(
        images_per_second=sum(r.images_per_second for r in each),
        iterations_per_second=_iterations_per_second(leader) if leader else 0.0,
        data=sum(r.data for r in each) / len(each),
        compute=sum(r.compute for r in each) / len(each),
        exchange=sum(r.exchange for r in each) / len(each),
        ranks=each,
    )


def rank_rates(rank: RankState) -> Optional[RankRates]:
    """One rank's rates over its window; a single report counts from the rank's first step."""
    newest = rank.last
    if newest is None or not _span(rank, "seconds") > 0:
        return None
    seconds = _span(rank, "seconds")
    shares = (_span(rank, name) / seconds for name in ("data_s", "compute_s", "exchange_s"))
    return RankRates(rank.rank, _span(rank, "samples") / seconds, *shares)


def _span(rank: RankState, name: str) -> float:
    """How much a running total grew over the window."""
    newest = float(getattr(rank.window[-1], name))
    return newest - (float(getattr(rank.window[0], name)) if len(rank.window) > 1 else 0.0)


def _iterations_per_second(rank: RankState) -> float:
    if not rank.window or not _span(rank, "seconds") > 0:
        return 0.0
    first = rank.window[0].iteration if len(rank.window) > 1 else _first(rank)
    return (rank.window[-1].iteration - first) / _span(rank, "seconds")


def seconds_left(state: GangState) -> Optional[float]:
    """How long the rest of the iterations takes at the present rate; None while that is unknown."""
    now, last, started = rates(state), state.last, state.started
    if not (now and last and started) or now.iterations_per_second <= 0:
        return None
    return (started.max_iterations - last.iteration) / now.iterations_per_second
