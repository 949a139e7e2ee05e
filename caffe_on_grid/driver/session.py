"""One run of one job in the driver: its books, its Spark, and one gang after another."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException

import caffe_on_grid
from caffe_on_grid.driver import identity, record, stage
from caffe_on_grid.driver.ledger import Ledger
from caffe_on_grid.driver.monitor import Monitor
from caffe_on_grid.driver.signals import Signals
from caffe_on_grid.errors import ConfigError, EnvironmentFault, GridError
from caffe_on_grid.gang import environment
from caffe_on_grid.gang.plan import GangPlan
from caffe_on_grid.metrics import report as pictures
from caffe_on_grid.metrics import words
from caffe_on_grid.metrics.progress import Display
from caffe_on_grid.metrics.state import GangState
from caffe_on_grid.spec.job import JobSpec
from caffe_on_grid.spec.report import Remarked, Report
from caffe_on_grid.spec.run import RunRecord, Versions, now
from caffe_on_grid.storage import paths, runs

SOON_S = 10.0
"""For the run's record to be written at its end, as long as the gateway waits after a signal."""
LATER_S = 600.0
"""The same where nobody is in a hurry: a NameNode may be starting again."""
LAST_S = 5.0
"""For the word that it could not be written."""


@dataclass
class _Gang:
    monitor: Monitor
    began: float
    ended: Optional[float] = None
    announced: bool = False

    @property
    def seconds(self) -> float:
        return (self.ended or time.monotonic()) - self.began


class Session:
    """A run from its name to its outcome. `run` does it; `close`, called once whatever happened, writes the outcome."""

    def __init__(self, job: JobSpec, job_dir: Path, display: Display, signals: Signals, agent: stage.Agent) -> None:
        self._job, self._job_dir, self._display, self._signals, self._agent = job, job_dir, display, signals, agent
        if "train" in job.tasks and not job.output.model:
            raise ConfigError("the job trains but names no model to write: give -model PATH")
        name = os.environ.get(runs.RUN_ID) or runs.fresh_run_id()
        folder = runs.run_folder(job, name, str(Path.cwd()))
        copy = os.environ.get("CAFFE_ON_GRID_OUTCOME")
        self.ledger = Ledger(folder, runs.pointer(job, folder), Path(copy) if copy else None)
        self._gangs: list[_Gang] = []
        self._sc: Optional[SparkContext] = None
        self._record = RunRecord(
            run_id=name,
            outcome="running",
            started=now(),
            run_folder=folder,
            seed=None,
            job=job,
            versions=Versions(caffe_on_grid.__version__, platform.python_version()),
            driver_node=environment.node(os.environ),
        )

    @property
    def stepped(self) -> bool:
        """Whether any gang made a step."""
        return any(g.monitor.state.stepped for g in self._gangs)

    def run(self) -> None:
        """All tasks of the job, one gang each; raises the first failure."""
        self.ledger.open(self._record, self._job.output.overwrite)
        self._record = dataclasses.replace(self._record, seed=identity.seed(self._job, self._job_dir))
        with self._signals.at_once():
            self._sc = start_spark()
        self._signals.install()
        self._record = dataclasses.replace(
            self._record,
            master=self._sc.master,
            application_id=self._sc.applicationId,
            versions=dataclasses.replace(self._record.versions, spark=pyspark.__version__),
        )
        for task in self._job.tasks:
            self._run_gang(self._sc, task)

    def close(self, error: Optional[BaseException]) -> tuple[RunRecord, list[str]]:
        """End Spark, write the outcome and draw the picture; the record, and the lines that sum the run up.

        A run that went well and whose record cannot be written has failed by that.
        """
        stop_spark(self._sc)
        final = self._ended(error)
        self.ledger.metrics.ended(final.outcome, final.exit_code or 0, time.time())
        unwritten = self._end_books(final)
        if unwritten is None:
            return final, self._left(final)
        word = f"the run's record is not whole: {unwritten}"
        if error is None:
            final = self._ended(type(unwritten)(f"the run is done, but {word}"))
        self.ledger.give_up(final, LAST_S)
        return final, [*self._left(final), *([f"remark:    {record.one_line(word)}"] if error else [])]

    def _ended(self, error: Optional[BaseException]) -> RunRecord:
        code = record.exit_code(error, self.stepped)
        return dataclasses.replace(
            self._now(), outcome=record.outcome(error), ended=now(), exit_code=code, cause=record.cause(error)
        )

    def _end_books(self, final: RunRecord) -> Optional[GridError]:
        """What kept the books from being written; a store that is away is waited for, unless a signal ended the run."""
        try:
            self.ledger.end(final, SOON_S)
        except GridError as fault:
            if final.outcome == "interrupted":
                return fault
            self._display.lines([f"remark: the run's record is tried for {LATER_S / 60:g} minutes more: {fault}"])
            try:
                self.ledger.end(final, LATER_S)
            except GridError as last:
                return last
        return None

    def _run_gang(self, sc: SparkContext, task: str) -> None:
        job, known = self._job, self._record
        gang = _Gang(Monitor(task, job.cluster.executors, time.monotonic()), time.monotonic())
        self._gangs.append(gang)
        self.ledger.metrics.gang(task, known.run_id, time.time())

        def plan_for(address: tuple[str, int], key: bytes) -> GangPlan:
            return GangPlan(job, task, known.run_id, known.run_folder, known.seed or 0, address, key)

        limits = stage.Limits(job.cluster.gang_timeout_s, job.cluster.step_timeout_s)
        try:
            stage.run(sc, plan_for, gang.monitor, limits, self, self._agent)
        finally:
            gang.ended = time.monotonic()

    def report(self, report: Report, state: GangState) -> None:
        """A rank has reported (stage.Observer)."""
        self.ledger.metrics.report(report, state)
        if state.world and all(r.started for r in state.ranks.values()):
            self._announce(state)
        self._display.report(report, state)

    def tick(self, state: GangState) -> None:
        """Some time has passed (stage.Observer)."""
        self._signals.check()
        trouble = self.ledger.trouble()
        if trouble:
            said = f"the run's record falls behind; what is missing is written as soon as it can be: {trouble}"
            state.remarks.append(said)
            self.report(Remarked(-1, time.time(), said), state)
        self._display.tick(state, time.monotonic())

    def _announce(self, state: GangState) -> None:
        gang = self._gangs[-1]
        if gang.announced:
            return
        gang.announced = True
        sync = words.sync_words(self._job.sync, state.world)
        model = self._job.output.model
        self._display.lines(words.banner(state, self._record.run_id, sync, self._record.run_folder, model))
        self.ledger.write(self._now())

    def _now(self) -> RunRecord:
        """The record with all that is known by now."""
        tasks = tuple(record.task(g.monitor.state, g.seconds) for g in self._gangs)
        first = next((g.monitor.state.started for g in self._gangs if g.monitor.state.started), None)
        saved = [uri for task in tasks for uri in task.saved]
        versions = self._record.versions
        if first:
            versions = dataclasses.replace(versions, engine=first.engine, mpi=first.transport)
        model = self._job.output.model if self._job.output.model in saved else None
        return dataclasses.replace(self._record, tasks=tasks, versions=versions, model=model)

    def _left(self, final: RunRecord) -> list[str]:
        """The summary, with every file that the run leaves."""
        saved = [uri for task in final.tasks for uri in task.saved if uri != final.model]
        files = [*([final.model] if final.model else []), *self.ledger.files, *saved[-1:]]
        picture, word = draw_picture(final.run_folder, self.stepped and "train" in self._job.tasks)
        return words.summary(final, files + picture) + word


def start_spark() -> SparkContext:
    """The SparkContext, as spark-submit has configured it; EnvironmentFault where Spark cannot start."""
    try:
        return SparkContext.getOrCreate()
    except Py4JJavaError as error:
        raise EnvironmentFault(f"Spark could not start: {record.one_line(str(error.java_exception))}") from error
    except (Py4JError, PySparkException, OSError) as error:
        raise EnvironmentFault(f"Spark could not start: {record.one_line(str(error))}") from error


def stop_spark(sc: Optional[SparkContext]) -> None:
    """End Spark and every job in it; a Spark that is gone already has none."""
    if sc is None:
        return
    try:
        sc.stop()
    except (Py4JError, OSError):
        return


def draw_picture(folder: str, wanted: bool) -> tuple[list[str], list[str]]:
    """Draw the curves of a run whose folder is local: (the picture's path, a word on why there is none)."""
    local = paths.local_path(folder)
    if local is None or not wanted:
        return [], []
    if importlib.util.find_spec("matplotlib") is None:
        return [], ["remark:    no picture: matplotlib is not installed in this Python"]
    picture = local / "curves.png"
    try:
        pictures.draw(local / "metrics.jsonl", picture)
    except Exception as error:  # a picture that cannot be drawn must not change the outcome of a training
        return [], [f"remark:    no picture: {type(error).__name__}: {record.one_line(str(error))}"]
    return [str(picture)], []
