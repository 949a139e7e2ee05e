"""One gang: a barrier stage with one agent on each executor, watched until it has ended, well or badly.

The gang ends at its first failure: reports of what happened before are awaited for a moment, the agents are told to
stop, Spark's job is cancelled, and the earliest failure is raised.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Optional, Protocol

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext

from caffe_on_grid.comm.channel import Listener
from caffe_on_grid.driver.inbox import Arrived, Done, Ended, Event, Inbox
from caffe_on_grid.driver.monitor import Monitor
from caffe_on_grid.errors import ConfigError, GangError, GridError, from_category
from caffe_on_grid.gang.plan import GangPlan
from caffe_on_grid.metrics.state import GangState
from caffe_on_grid.spec.report import Failed, Remarked, Report

Agent = Callable[[GangPlan], list[str]]
"""The body of one barrier task."""

PORT = "spark.caffeOnGrid.driver.port"
"""Setting of Spark's: the first port at which the driver listens for the agents."""

_TICK_S = 0.2
_JOB = "spark job"


class Observer(Protocol):
    """Who is told of the gang's life, in the driver's main thread."""

    def report(self, report: Report, state: GangState) -> None:
        """A rank has reported."""

    def tick(self, state: GangState) -> None:
        """Some time has passed (several times a second)."""


@dataclass(frozen=True)
class Limits:
    """How long is waited for what, in seconds."""

    gang_s: float
    """For all executors to join."""
    step_s: float
    """For any rank to move."""
    grace_s: float = 2.0
    """After a failure, for reports of what happened before it."""
    stop_s: float = 10.0
    """After `stop` was sent, for the agents to end their ranks, keep their logs and leave."""
    cancel_s: float = 5.0
    """After the job was cancelled, for Spark to end it."""


class Reported(Exception):
    """The failure behind a gang's error, as it was reported: the error's `__cause__`."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.message)
        self.failed = failed


def run(
    sc: SparkContext,
    plan_for: Callable[[tuple[str, int], bytes], GangPlan],
    monitor: Monitor,
    limits: Limits,
    observer: Observer,
    agent: Agent,
) -> None:
    """Run one gang to its end.

    `plan_for` makes the plan for the listener's address and this gang's key. Raises the GridError of the earliest
    failure, from `Reported` where a report told of it; whatever it raises, the agents have been told to stop and the
    Spark job has been cancelled.
    """
    key = secrets.token_bytes(32)
    listener = listen(sc.getConf(), key)
    gang = _Gang(sc, Inbox(listener), monitor, limits, observer)
    try:
        gang.start(plan_for(listener.address, key), agent)
        gang.watch()
    finally:
        gang.end()


def listen(conf: SparkConf, key: bytes) -> Listener:
    """The driver's ear, at the address of Spark's own; from PORT on as many ports are tried as Spark would."""
    host = conf.get("spark.driver.host") or "localhost"
    asked = conf.get(PORT) or "0"
    if not asked.isdecimal() or int(asked) > 65535:
        raise ConfigError(f"{PORT}={asked}: expected a port, 1 to 65535, or 0 for any")
    first, more = int(asked), int(conf.get("spark.port.maxRetries") or 16)
    ports = range(first, min(first + more, 65535) + 1) if first else (0,)
    return Listener(host, key, conf.get("spark.driver.bindAddress"), ports)


class _Gang:
    def __init__(self, sc: SparkContext, inbox: Inbox, monitor: Monitor, limits: Limits, observer: Observer) -> None:
        self._sc, self._inbox, self._monitor, self._limits, self._observer = sc, inbox, monitor, limits, observer
        self._executors: dict[int, int] = {}
        self._ended: set[int] = set()
        self._job_ended_at: Optional[float] = None
        self._job_error: Optional[BaseException] = None
        self._group = ""
        self._reason = "the gang has ended"
        self._began = self._heard = time.monotonic()
        """`_heard`: what had come by then is known. The observer may take long (a terminal that is held), which is no
        rank's standstill."""

    def start(self, plan: GangPlan, agent: Agent) -> None:
        """Listen, and submit the barrier stage."""
        self._group = f"{plan.run_id} {plan.task}"
        self._inbox.start()
        body = task_body(agent, plan)
        self._inbox.errand(_JOB, lambda: self._submit(body, plan.job.solver))

    def _submit(self, body: Callable[[Iterable[int]], Iterator[str]], solver: str) -> None:
        count = self._monitor.state.executors
        self._sc.setJobGroup(self._group, f"{self._monitor.state.task} {solver}", interruptOnCancel=True)
        self._sc.parallelize(range(count), count).barrier().mapPartitions(body).collect()

    def watch(self) -> None:
        """Return when all has ended well; raise the cause otherwise."""
        while not self._over():
            self._next(_TICK_S)
            self._check_deadlines()
            if self._monitor.failures or self._job_error:
                self._settle()
                self._raise_cause()
        problem = self._monitor.unfinished()
        if problem:
            self._raise(self._failure("TrainingFailed", problem))

    def end(self) -> None:
        """Tell the agents to stop, cancel the job, and wait (for a bounded time) until both have happened.

        Where no agent came there is none to wait for; a job that still waits for slots cannot be cancelled, it ends
        with the SparkContext.
        """
        self._inbox.send({"type": "stop", "reason": self._reason})
        self._wait_for_job(self._limits.stop_s)
        if self._job_ended_at is None:
            cancel(self._sc, self._group)
            self._wait_for_job(self._limits.cancel_s)
        self._inbox.close()

    def _over(self) -> bool:
        if self._monitor.finished and self._monitor.quiet_s(self._heard) > self._limits.step_s:
            # All work is done; what keeps an executor (a store that takes no logs?) does not undo it.
            state = self._monitor.state
            late = ", ".join(map(str, sorted(set(state.joined) - set(state.left)))) or "none"
            said = f"the gang did not end within {self._limits.step_s:g} s of its work; executors still busy: {late}"
            state.remarks.append(said)
            self._observer.report(Remarked(-1, time.time(), said), state)
            return True
        if self._job_ended_at is None or self._job_error:
            return False
        heard = len(self._monitor.state.left) == self._monitor.state.executors
        return heard or time.monotonic() - self._job_ended_at > self._limits.grace_s

    def _next(self, timeout_s: float) -> None:
        self._heard = time.monotonic()
        for event in self._inbox.next(timeout_s):
            self._take(event)
        self._observer.tick(self._monitor.state)

    def _take(self, event: Event) -> None:
        if isinstance(event, Arrived):
            self._message(event)
        elif isinstance(event, Ended):
            self._channel_ended(event.source)
        elif event.name == _JOB:
            self._job_ended_at, self._job_error = time.monotonic(), event.error
        elif event.error is not None:
            raise event.error

    def _message(self, event: Arrived) -> None:
        if event.message.get("type") == "joined":
            self._executors[event.source] = int(event.message["executor"])
        for report in self._monitor.message(event.message, time.monotonic()):
            self._observer.report(report, self._monitor.state)

    def _channel_ended(self, source: int) -> None:
        self._ended.add(source)
        if source in self._executors:
            self._monitor.lost(self._executors[source], time.time(), "its agent's connection ended")

    def _check_deadlines(self) -> None:
        waited = self._heard - self._began
        if not self._monitor.complete and waited > self._limits.gang_s:
            raise self._short(waited)
        stalled = self._monitor.stalled(self._heard, time.time(), self._limits.step_s)
        if stalled:
            self._monitor.fail(stalled)

    def _settle(self) -> None:
        """Wait a moment for reports of what happened before the failure that came first."""
        until = time.monotonic() + self._limits.grace_s
        while time.monotonic() < until and not (self._job_ended_at and set(self._executors) <= self._ended):
            self._next(_TICK_S)

    def _raise_cause(self) -> None:
        cause = self._monitor.cause
        category, message, raised = explain(str(self._job_error)) if self._job_error else ("", "", False)
        if raised and not self._monitor.found:
            # An agent that failed before it could report; Spark then ended the others, which is no cause.
            cause = self._failure(category, message)
        if cause is None and not self._monitor.complete:
            raise self._short(time.monotonic() - self._began) from self._job_error
        self._raise(cause or self._failure(category, message))

    def _raise(self, failed: Failed) -> None:
        self._reason = failed.message
        raise from_category(failed.category, failed.message) from Reported(failed)

    def _failure(self, category: str, message: str) -> Failed:
        iteration = max((r.iteration for r in self._monitor.state.ranks.values()), default=0)
        return Failed(-1, time.time(), iteration, category, message)

    def _short(self, waited: float) -> GridError:
        self._reason = "the gang is not complete"
        slots = slots_known(self._sc)
        return GangError(incomplete(len(self._monitor.state.joined), self._monitor.state.executors, slots, waited))

    def _wait_for_job(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._job_ended_at is None and self._executors and time.monotonic() < until:
            events = self._inbox.next(_TICK_S)
            if any(isinstance(event, Done) and event.name == _JOB for event in events):
                self._job_ended_at = time.monotonic()


def task_body(agent: Agent, plan: GangPlan) -> Callable[[Iterable[int]], Iterator[str]]:
    """The function that Spark runs in each barrier task; the plan, and the key in it, travel in its closure."""

    def body(numbers: Iterable[int]) -> Iterator[str]:
        for _ in numbers:
            continue
        return iter(agent(plan))

    return body


def cancel(sc: SparkContext, group: str) -> None:
    """Cancel a job group; a Spark that is gone has no job left to cancel."""
    try:
        sc.cancelJobGroup(group)
    except (Py4JError, OSError):
        return


def slots_known(sc: SparkContext) -> Optional[int]:
    """How many barrier tasks Spark could run at once now; None if it cannot be asked any more."""
    try:
        context: Any = sc._jsc.sc()
        return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))
    except (Py4JError, OSError):
        return None


def incomplete(joined: int, wanted: int, slots: Optional[int], waited_s: float) -> str:
    """The words for a gang that did not come together; one executor runs one task, so a slot is an executor."""
    came = joined if slots is None or slots >= wanted else max(joined, slots)
    if slots is None:
        why = "Spark does not answer"
    elif slots < wanted:
        why = f"Spark has {slots} slot(s), the gang needs {wanted} at once"
    else:
        why = f"Spark has {slots} slot(s), but {wanted - joined} executor(s) did not report to the driver"
    return (
        f"{came} of {wanted} executors came within {waited_s:.0f} s: {why}; "
        "ask for fewer (--num-executors), see the queue's free resources, or wait longer (--gang-timeout)"
    )


_RAISED = re.compile(r"^caffe_on_grid\.errors\.(\w+): (.+)$", re.MULTILINE)
_LOST = re.compile(r"ExecutorLostFailure \(executor (\S+) [^)]*\) Reason: ([^\n]+)")
_REASON = re.compile(r"(?:SparkException|RuntimeException|Error|Exception): ([^\n]+)")


def explain(text: str) -> tuple[str, str, bool]:
    """(category, one line, whether an agent raised it) of what Spark says of a job that failed.

    Our own error, a lost executor, or Spark's words.
    """
    raised, lost, reason = _RAISED.search(text), _LOST.search(text), _REASON.search(text)
    if raised:
        return raised[1], raised[2], True
    if lost:
        return "TrainingFailed", f"executor {lost[1]} was lost: {lost[2].strip()}", False
    return "TrainingFailed", f"Spark ended the gang: {reason[1] if reason else text.strip().splitlines()[0]}", False
