"""The reducer: agents' messages in, the gang's state and its failures out. Pure: times are arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Optional

from caffe_on_grid.metrics.state import GangState, RankState
from caffe_on_grid.spec import report as reports
from caffe_on_grid.spec.report import Report


class Monitor:
    """What the driver knows of one gang.

    `message` takes what an agent sent and gives the reports in it; `failures` collects what went wrong, `cause` is
    the earliest of it.
    """

    def __init__(self, task: str, executors: int, now: float) -> None:
        self.state = GangState(task, executors)
        self.found: list[reports.Failed] = []
        """Failures that were reported, or that the driver itself has found."""
        self._losses: list[tuple[int, float, str]] = []
        self._last_sign = now
        self._early: list[Report] = []

    @property
    def failures(self) -> list[reports.Failed]:
        """All that went wrong, lost executors included."""
        return [*self.found, *(self._loss(*each) for each in self._losses)]

    @property
    def cause(self) -> Optional[reports.Failed]:
        """The earliest failure by the clock of whoever saw it."""
        return min(self.failures, key=lambda f: f.time, default=None)

    @property
    def complete(self) -> bool:
        """Whether every executor has joined."""
        return len(self.state.joined) == self.state.executors

    def message(self, message: dict[str, Any], now: float) -> list[Report]:
        """Take one message that came at `now` (monotonic seconds); unknown types raise ValueError (a bug)."""
        kind = message.get("type")
        if kind not in _MESSAGES:
            raise ValueError(f"unknown message {kind!r} from an agent; known: {', '.join(_MESSAGES)}")
        return _MESSAGES[kind](self, message, now)

    def lost(self, executor: int, wall: float, why: str) -> None:
        """An executor's channel has ended; a failure unless it said before that it leaves. `wall`: since the epoch."""
        if executor not in self.state.left:
            self._losses.append((executor, wall, why))

    def _loss(self, executor: int, wall: float, why: str) -> reports.Failed:
        # In words only when it is asked for: the placement may come after the loss, over another channel.
        host = self.host(executor)
        mine = [r for r in self.state.ranks.values() if r.executor == executor]
        return reports.Failed(
            rank=min((r.rank for r in mine), default=-1),
            time=wall,
            iteration=max((r.iteration for r in mine), default=0),
            category="TrainingFailed",
            message=f"executor {executor} on {host} was lost: {why}",
            host=host,
        )

    def fail(self, failure: reports.Failed) -> None:
        """Take a failure that the driver itself has found."""
        self.found.append(failure)

    def unfinished(self) -> Optional[str]:
        """Why a gang whose executors have all left did not end well after all; None where it did."""
        late = [str(r.rank) for r in self.state.ranks.values() if r.finished is None]
        if late:
            return f"rank(s) {', '.join(late)} ended without a last report"
        if not self.state.ranks:
            return "the executors left before any rank was placed"
        return None

    @property
    def finished(self) -> bool:
        """Whether every rank has said that it ended well."""
        return bool(self.state.ranks) and all(r.finished for r in self.state.ranks.values())

    def quiet_s(self, now: float) -> float:
        """Seconds since anything moved."""
        return now - max([self._last_sign, *(r.moved_at for r in self.state.ranks.values())])

    def stalled(self, now: float, wall: float, limit_s: float) -> Optional[reports.Failed]:
        """The failure of a gang in which nothing has moved for `limit_s`, naming the ranks that lag."""
        if not self.complete or self.finished or self.quiet_s(now) < limit_s:
            return None
        lagging = laggards(self.state)
        where = ", ".join(f"rank {r.rank} on {r.host} (iteration {r.iteration}, {r.phase})" for r in lagging)
        return reports.Failed(
            rank=lagging[0].rank if lagging else -1,
            time=wall,
            iteration=lagging[0].iteration if lagging else 0,
            category="TrainingFailed",
            message=f"no rank has moved for {limit_s:g} s; lagging: {where or 'no rank was placed'}; "
            "--step-timeout sets how long a step may take",
            host=lagging[0].host if lagging else "",
        )

    def host(self, executor: int) -> str:
        """The host that an executor joined from."""
        return str(self.state.joined.get(executor, {}).get("host", "an unknown host"))

    def _joined(self, message: dict[str, Any], now: float) -> list[Report]:
        self.state.joined[int(message["executor"])] = message
        self._last_sign = now
        return []

    def _placed(self, message: dict[str, Any], now: float) -> list[Report]:
        self.state.runtime = message.get("runtime")
        for place in message["ranks"]:
            rank = int(place["rank"])
            self.state.ranks[rank] = RankState(
                rank, int(place["executor"]), place["host"], int(place["local_rank"]), device(place["device"]), now
            )
        for note in message.get("notes", ()):
            self._remark(note)
        early, self._early = self._early, []
        return [self._take(report, now) for report in early]

    def _report(self, message: dict[str, Any], now: float) -> list[Report]:
        report = reports.from_line(message["line"])
        if report.rank not in self.state.ranks and not isinstance(report, reports.Failed):
            # The placement comes over executor 0's channel, this over another's, which may be the faster.
            self._early.append(report)
            return []
        return [self._take(report, now)]

    def _take(self, report: Report, now: float) -> Report:
        rank = self.state.ranks.get(report.rank)
        if rank:
            rank.moved_at = now
        _REPORTS[type(report)](self, report, rank)
        return report

    def _beat(self, message: dict[str, Any], now: float) -> list[Report]:
        for beat in message["ranks"]:
            rank = self.state.ranks.get(int(beat["rank"]))
            if rank is None:
                continue
            if (rank.iteration, rank.phase) != (beat["iteration"], beat["phase"]):
                rank.iteration, rank.phase, rank.moved_at = beat["iteration"], beat["phase"], now
            rank.moved_at = max(rank.moved_at, now - float(beat["age_s"]))
        return []

    def _left(self, message: dict[str, Any], now: float) -> list[Report]:
        self.state.left[int(message["executor"])] = bool(message["ok"])
        self._last_sign = now
        return []

    def _started(self, report: reports.Started, rank: Optional[RankState]) -> None:
        if rank:
            rank.started, rank.iteration = report, report.first_iteration
        for note in report.notes:
            self._remark(note)

    def _stepped(self, report: reports.Stepped, rank: Optional[RankState]) -> None:
        if rank:
            rank.step(report)
            rank.iteration = max(rank.iteration, report.iteration)

    def _tested(self, report: reports.Tested, rank: Optional[RankState]) -> None:
        self.state.tests[report.net] = report

    def _checked(self, report: reports.Checked, rank: Optional[RankState]) -> None:
        self._compare(report.iteration, report.rank, report.digest, report.time)

    def _saved(self, report: reports.Saved, rank: Optional[RankState]) -> None:
        self.state.saved.append(report)

    def _remarked(self, report: reports.Remarked, rank: Optional[RankState]) -> None:
        self._remark(report.message)

    def _finished(self, report: reports.Finished, rank: Optional[RankState]) -> None:
        if rank:
            rank.finished, rank.iteration, rank.phase = report, report.iteration, "done"
        finals = [r.finished for r in self.state.ranks.values() if r.finished]
        if len(finals) == self.state.world:
            self._judge(report.iteration, {f.rank: f.digest for f in finals}, report.time)

    def _failed(self, report: reports.Failed, rank: Optional[RankState]) -> None:
        self.found.append(report)

    def _remark(self, text: str) -> None:
        # Every rank makes the same remark about the same job: one is enough.
        if text not in self.state.remarks:
            self.state.remarks.append(text)

    def _compare(self, iteration: int, rank: int, digest: str, time: float) -> None:
        """Judge one iteration's digests once all ranks' have come, so that all that differ are named."""
        seen = self.state.digests.setdefault(iteration, {})
        seen[rank] = digest
        if len(seen) == self.state.world:
            self._judge(iteration, self.state.digests.pop(iteration), time)

    def _judge(self, iteration: int, digests: dict[int, str], time: float) -> None:
        odd = differing(digests)
        if not odd:
            self.state.checks += 1
            return
        named = ", ".join(f"rank {r} on {self.state.ranks[r].host}" for r in odd)
        self.found.append(
            reports.Failed(
                rank=odd[0],
                time=time,
                iteration=iteration,
                category="TrainingFailed",
                message=f"parameters are not equal over the ranks after iteration {iteration}: {named} differ(s)",
                host=self.state.ranks[odd[0]].host,
            )
        )


_MESSAGES: dict[str, Callable[[Monitor, dict[str, Any], float], list[Report]]] = {
    "joined": Monitor._joined,
    "placed": Monitor._placed,
    "report": Monitor._report,
    "beat": Monitor._beat,
    "left": Monitor._left,
}

_REPORTS: dict[type, Callable[[Monitor, Any, Optional[RankState]], None]] = {
    reports.Started: Monitor._started,
    reports.Stepped: Monitor._stepped,
    reports.Tested: Monitor._tested,
    reports.Checked: Monitor._checked,
    reports.Saved: Monitor._saved,
    reports.Remarked: Monitor._remarked,
    reports.Finished: Monitor._finished,
    reports.Failed: Monitor._failed,
}


def differing(digests: dict[int, str]) -> list[int]:
    """The ranks whose digest is not the commonest one (of equally common ones: not the lowest rank's), sorted."""
    counts = Counter(digests[r] for r in sorted(digests))
    common = counts.most_common(1)[0][0]
    return sorted(r for r, digest in digests.items() if digest != common)


def laggards(state: GangState) -> list[RankState]:
    """The ranks that the others wait for: the least iteration, and of those the ones not waiting in an exchange."""
    running = [r for r in state.ranks.values() if r.phase != "done"] or list(state.ranks.values())
    least = min((r.iteration for r in running), default=0)
    behind = [r for r in running if r.iteration == least]
    return [r for r in behind if r.phase != "exchange"] or behind


def device(value: Any) -> str:
    """A device in words, "gpu 1", of a word or of the JSON form of spec.rank.Device."""
    return f"{value['kind']} {value.get('index', 0)}" if isinstance(value, dict) else str(value)
