"""The words for what people see: pure functions from states and records to lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from caffe_on_grid.metrics.state import GangState, Rates, rates, seconds_left
from caffe_on_grid.spec.job import SyncSpec
from caffe_on_grid.spec.report import Stepped, Tested
from caffe_on_grid.spec.run import Cause, LastTest, RunRecord, TaskRecord


def number(value: float) -> str:
    """A value as Caffe prints it: six significant digits, "nan", "inf"."""
    return f"{value:g}"


def quantity(value: float) -> str:
    """A count with thousands set apart."""
    return f"{value:,.0f}"


def count(number: float, noun: str, many: str = "") -> str:
    """A number and its noun: "1 rank", "2 ranks"; `many` where the plural is not the noun and an s."""
    return f"{number:g} {noun}" if number == 1 else f"{number:g} {many or noun + 's'}"


def size(total: float) -> str:
    """Bytes in the unit that fits: 1536 → "1.5 KiB"."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    step = 0
    while total >= 1024 and step < len(units) - 1:
        total, step = total / 1024, step + 1
    return f"{total:.0f} {units[step]}" if step == 0 else f"{total:.1f} {units[step]}"


def duration(seconds: float) -> str:
    """Seconds for people: "8 s", "2:05", "1:02:05"."""
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}" if minutes else f"{whole} s"


def iteration_lines(report: Stepped, weights: Mapping[str, float]) -> list[str]:
    """Caffe's lines for a displayed iteration, which Caffe numbers by the steps before it.

    `weights`: loss weight by output, for those that are losses; the same in `test_lines`.
    """
    step = report.iteration - 1
    lines = _numbered("Train", report.outputs, weights)
    return [f"Iteration {step}, loss = {number(report.loss)}", *lines, f"Iteration {step}, lr = {number(report.lr)}"]


def test_lines(report: Tested, weights: Mapping[str, float]) -> list[str]:
    """Caffe's lines for a test."""
    first = f"Iteration {report.iteration}, Testing net (#{report.net})"
    return [first, *_numbered("Test", report.outputs, weights)]


def _numbered(phase: str, outputs: Mapping[str, tuple[float, ...]], weights: Mapping[str, float]) -> list[str]:
    """One line per element; the number runs over all outputs, as Caffe's does."""
    pairs = [(name, value) for name, values in outputs.items() for value in values]
    return [
        f"    {phase} net output #{i}: {name} = {number(value)}{_weighted(value, weights.get(name, 0.0))}"
        for i, (name, value) in enumerate(pairs)
    ]


def _weighted(value: float, weight: float) -> str:
    return f" (* {number(weight)} = {number(weight * value)} loss)" if weight else ""


def outputs(values: dict[str, tuple[float, ...]]) -> str:
    """Test outputs in a line: "accuracy = 0.98, loss = 0.061"."""
    return ", ".join(f"{name} = {' '.join(map(number, value))}" for name, value in values.items())


def split(now: Rates) -> str:
    """Where the time goes, in per cent."""
    shares = (("data", now.data), ("compute", now.compute), ("exchange", now.exchange))
    other = 1 - sum(value for _, value in shares)
    words = [f"{name} {value:.0%}" for name, value in shares]
    return ", ".join([*words, f"other {other:.0%}"] if other >= 0.005 else words)


def progress_line(state: GangState) -> Optional[str]:
    """Where the gang is, in a line; None before the first step."""
    last, started, now = state.last, state.started, rates(state)
    if not (last and started and now):
        return None
    left = seconds_left(state)
    parts = [
        f"{last.iteration}/{started.max_iterations}",
        f"loss {number(last.loss)}",
        *(f"test {outputs(test.outputs)}" for _, test in sorted(state.tests.items())),
        f"lr {number(last.lr)}",
        f"{quantity(now.images_per_second)} images/s",
        split(now),
        *([f"{duration(left)} left"] if left is not None else []),
    ]
    return " | ".join(parts)


def joined_line(state: GangState) -> str:
    """Who has come so far."""
    return f"{len(state.joined)} of {state.executors} executors are here"


def banner(state: GangState, run_id: str, sync: str, run_folder: str, model: Optional[str]) -> list[str]:
    """What is about to run, once all ranks have started."""
    first = state.started
    if first is None:
        return []
    hosts = [f"{m.get('node') or m['host']} (pid {m['pid']})" for _, m in sorted(state.joined.items())]
    modes = sorted({r.started.mode for r in state.ranks.values() if r.started})
    per_executor = state.world / max(1, state.executors)
    rows = [
        ("run", f"{run_id} ({state.task})"),
        (
            "world",
            f"{count(state.world, 'rank')} = {count(state.executors, 'executor')} × {count(per_executor, 'device')}",
        ),
        ("executors", ", ".join(hosts)),
        ("engine", f"{first.engine}, {', '.join(modes)}, {quantity(first.parameters)} parameters"),
        ("BLAS", first.blas),
        ("transport", first.transport),
        ("sync", sync),
        ("batch", batch_words(state)),
        ("records", records_words(state)),
        ("results", ", ".join(x for x in (model, run_folder) if x)),
    ]
    return [f"{name + ':':<11}{text}" for name, text in rows] + [f"remark:    {text}" for text in state.remarks]


def sync_words(sync: SyncSpec, world: int) -> str:
    """How ranks exchange, in words."""
    if world == 1:
        return "none (one rank)"
    check = f"checked every {sync.check_every} steps" if sync.check_every else "checked at the end"
    return f"{sync.strategy}, buckets of {sync.bucket_mib} MiB, connection {sync.connection}, parameters {check}"


def batch_words(state: GangState) -> str:
    """The global batch and what it is made of; a test deals whole batches out to the ranks."""
    batches = sorted({r.started.batch for r in state.ranks.values() if r.started})
    each = " or ".join(map(str, batches))
    if state.task != "train":
        return f"{each} records, batches dealt out to {count(state.world, 'rank')}"
    return f"{state.global_batch} records per step = {each} (batch_size × iter_size) × {count(state.world, 'rank')}"


def records_words(state: GangState) -> str:
    """How many records there are and, in training, how often max_iter goes through them."""
    first = state.started
    if first is None or not first.records:
        return "the net makes its own"
    if state.task != "train":
        return quantity(first.records)
    steps = first.max_iterations - first.first_iteration
    epochs = steps * state.global_batch / first.records
    return f"{quantity(first.records)}; {quantity(steps)} iterations make {number(epochs)} epochs"


def failure_line(cause: Cause) -> str:
    """A failure in a line: rank, host and iteration, what happened, the log.

    The message has Caffe's word already; the rank's other last lines are in run.json and in the log.
    """
    where = [
        *([f"rank {cause.rank}"] if cause.rank is not None and cause.rank >= 0 else []),
        *([f"on {cause.host}"] if cause.host else []),
        *([f"at iteration {cause.iteration}"] if cause.iteration is not None else []),
    ]
    parts = [
        ": ".join(p for p in (" ".join(where), cause.message) if p),
        *([f"log: {cause.log}"] if cause.log else []),
    ]
    return "error: " + "; ".join(parts)


def summary(record: RunRecord, files: list[str]) -> list[str]:
    """How the run ended: outcome, figures of each task, and what it leaves."""
    lines = [f"{'outcome:':<11}{record.outcome} (exit code {record.exit_code})"]
    for task in record.tasks:
        lines += _task_lines(task)
    return lines + [f"{'left:':<11}{name}" for name in files]


def _task_lines(task: TaskRecord) -> list[str]:
    totals = task.totals
    lines = [f"{task.task + ':':<11}{_work(task)}"]
    lines += [f"{'test:':<11}{_moment(task, t)}, net #{t.net}: {outputs(t.outputs)}" for t in task.tests]
    if task.digest and task.task == "train":
        lines.append(f"{'digest:':<11}{task.digest[:16]}… equal on {count(task.world, 'rank')}")
    if totals.skipped:
        lines.append(f"{'skipped:':<11}{quantity(totals.skipped)} undecodable records")
    return lines


def _work(task: TaskRecord) -> str:
    totals = task.totals
    if task.task != "train":
        return f"{quantity(totals.samples)} records in {duration(totals.seconds)}"
    return (
        f"{quantity(totals.iterations)} iterations in {duration(totals.seconds)}, "
        f"{quantity(totals.images_per_second)} images/s while stepping, {size(totals.exchanged_bytes)} exchanged"
    )


def _moment(task: TaskRecord, test: LastTest) -> str:
    return f"iteration {test.iteration}" if task.task == "train" else count(test.batches, "batch", "batches")
