"""From what the driver knows to what run.json says. Pure."""

from __future__ import annotations

from typing import Any, Optional

from caffe_on_grid.driver.stage import Reported
from caffe_on_grid.errors import GridError, Interrupted, Terminated
from caffe_on_grid.metrics.state import GangState, RankState
from caffe_on_grid.spec import run

OUTCOME_OF: dict[type, str] = {Interrupted: "interrupted", Terminated: "interrupted"}
"""What run.json calls an end by this error; all others are "failed"."""


def outcome(error: Optional[BaseException]) -> str:
    """The word for how a run ended."""
    return "done" if error is None else OUTCOME_OF.get(type(error), "failed")


def exit_code(error: Optional[BaseException], stepped: bool) -> int:
    """The driver's exit code: an expected error's own; a bug is 1, or 7 where training had not begun."""
    if error is None:
        return 0
    if isinstance(error, GridError):
        return error.exit_code
    return 1 if stepped else 7


def cause(error: Optional[BaseException]) -> Optional[run.Cause]:
    """The failure behind an error: the report that told of it, where one did."""
    if error is None:
        return None
    if not isinstance(error.__cause__, Reported):
        text = str(error) if isinstance(error, GridError) else f"unexpected {type(error).__name__}: {error}"
        return run.Cause(type(error).__name__, one_line(text))
    failed = error.__cause__.failed
    return run.Cause(
        failed.category,
        one_line(failed.message),
        failed.rank if failed.rank >= 0 else None,
        failed.host,
        failed.iteration,
        failed.native,
        failed.log,
    )


def one_line(text: str) -> str:
    """The words of a text, in one line."""
    return " ".join(text.split())


def task(state: GangState, seconds: float) -> run.TaskRecord:
    """What is to be kept of a gang."""
    return run.TaskRecord(
        task=state.task,
        world=state.world,
        global_batch=state.global_batch,
        executors=tuple(_executor(i, message) for i, message in sorted(state.joined.items())),
        ranks=tuple(_rank(rank) for _, rank in sorted(state.ranks.items())),
        tests=tuple(run.LastTest(t.net, t.iteration, t.outputs, t.batches) for _, t in sorted(state.tests.items())),
        saved=tuple(s.uri for s in state.saved),
        digest=state.digest,
        totals=_totals(state, seconds),
        remarks=tuple(state.remarks),
    )


def _executor(number: int, joined: dict[str, Any]) -> run.ExecutorRecord:
    return run.ExecutorRecord(
        executor=number,
        host=str(joined["host"]),
        pid=int(joined["pid"]),
        cpus=int(joined["cpus"]),
        node=str(joined.get("node", "")),
        container=str(joined.get("container", "")),
        devices=tuple(str(device.get("uuid") or device["index"]) for device in joined.get("devices", ())),
    )


def _rank(rank: RankState) -> run.RankRecord:
    return run.RankRecord(
        rank.rank,
        rank.executor,
        rank.host,
        rank.local_rank,
        rank.device,
        rank.started.pid if rank.started else None,
        rank.iteration,
        rank.finished.peak_rss_mib if rank.finished else None,
    )


def _totals(state: GangState, seconds: float) -> run.Totals:
    return run.Totals(
        iterations=state.leader.iteration if state.leader else 0,
        samples=state.samples,
        seconds=round(seconds, 3),
        images_per_second=round(state.images_per_second, 3),
        exchanged_bytes=state.exchanged_bytes,
        skipped=state.skipped,
    )
