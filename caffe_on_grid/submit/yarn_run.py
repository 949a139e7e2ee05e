"""A job in YARN from its submission to its end: followed, judged, ended; the outcome is run.json's, not Spark's."""

from __future__ import annotations

import platform
import re
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Optional

import caffe_on_grid
from caffe_on_grid.errors import SIGNALS, ContactLost, GridError
from caffe_on_grid.metrics import progress, words
from caffe_on_grid.spec import run as records
from caffe_on_grid.storage import paths
from caffe_on_grid.submit import aftermath, container_logs, process
from caffe_on_grid.submit.argv import Application, SparkCommand
from caffe_on_grid.submit.following import Follower, read_record
from caffe_on_grid.submit.watch import Watch

TICK_S = 0.2
SHOWN_S = 5.0
"""How long the end waits for what is being shown."""
_SUBMITTED = re.compile(r"Submitted application (application_\d+_\d+)")


def run(
    command: SparkCommand, application: Application, outcome: Path, environ: Mapping[str, str], grace_s: float
) -> records.RunRecord:
    """Run `command` to the end of its application; what its driver wrote of itself.

    With --no-wait it is run until YARN has it, and the record says "submitted".
    Raises GangError where the gang does not come together in time, Interrupted or Terminated after a signal; after a
    driver that died ApplicationDied, TrainingFailed, or what its container says. The application has ended then.
    """
    return _Run(command, application, outcome, environ, grace_s).run()


class _Run:
    def __init__(
        self,
        command: SparkCommand,
        application: Application,
        outcome: Path,
        environ: Mapping[str, str],
        grace_s: float,
    ) -> None:
        self._command, self._application, self._outcome = command, application, outcome
        self._environ, self._grace_s = environ, grace_s
        self._watch = Watch(application, environ)
        self._display = progress.show()
        self._follower = Follower(application.job, application.run_id, application.run_folder, self._display)
        self._silent = application.in_cluster
        self._showing = threading.Thread(target=self._show, name="show the run", daemon=True)
        self._shown = threading.Event()
        self._verdict: Optional[GridError] = None

    def run(self) -> records.RunRecord:
        env = {**self._environ, **self._command.env, "CAFFE_ON_GRID_OUTCOME": str(self._outcome)}
        started = process.started(self._command, env, self._hear, not self._silent, self._passes)
        with started as (child, tail, caught), self._nothing_left(child):
            self._wait(child, caught)
            if not caught and self._verdict is None:
                self._watch.refresh()
        self._end_showing()
        self._display.close()
        return self._end(child.returncode, caught, tail)

    def _hear(self, line: str) -> bool:
        """A line of spark-submit's: it may tell the id; in cluster mode the rest is kept for the worst case."""
        found = _SUBMITTED.search(line)
        if found:
            self._watch.announce(found[1])
        return not self._silent and not found

    @property
    def _passes(self) -> bool:
        """Whether signals go on to the driver: it is here in client mode; in cluster mode YARN has to end it."""
        return not self._application.in_cluster

    @contextmanager
    def _nothing_left(self, child: subprocess.Popen[bytes]) -> Iterator[None]:
        """Whatever happens, no application is left in YARN; one whose command has ended well has ended too."""
        try:
            yield
        finally:
            if child.poll() != 0:
                process.kill(child)
                self._watch.kill()

    def _wait(self, child: subprocess.Popen[bytes], caught: list[int]) -> None:
        deadline = None
        while child.poll() is None or (deadline is None and not caught and self._out_of_sight(child)):
            time.sleep(TICK_S)
            if deadline is None and not caught:
                self._verdict = self._watch.look()
                self._begin_showing()
            if deadline is None and (caught or self._verdict is not None):
                deadline = time.monotonic() + self._grace_s
                self._stop(child, bool(caught))
            if deadline is not None and time.monotonic() > deadline:
                process.kill(child)

    def _out_of_sight(self, child: subprocess.Popen[bytes]) -> bool:
        """Whether spark-submit alone has ended, since it lost sight of YARN: the application goes on without it."""
        return child.returncode != 0 and self._application.in_cluster and self._watch.running

    def _stop(self, child: subprocess.Popen[bytes], by_signal: bool) -> None:
        """End the application; spark-submit then ends by itself. A driver here that was sent a signal does it all.

        After a verdict the driver here has nothing to add to it, and is killed without a word.
        """
        if by_signal and not self._application.in_cluster:
            return
        self._silent = True
        self._shown.set()
        process.kill_driver(child)
        self._watch.kill()
        if self._watch.id is None:
            process.kill(child)

    # -- how it goes: shown by a thread of its own, so that a store without an answer holds up no Ctrl-C

    def _begin_showing(self) -> None:
        if self._application.in_cluster and self._watch.id is not None and self._showing.ident is None:
            self._showing.start()

    def _show(self) -> None:
        while not self._shown.wait(TICK_S) and self._look():
            continue

    def _look(self, at_once: bool = False) -> bool:
        """Show what is new. What cannot be shown is told once, and ends no application."""
        try:
            self._follower.look(at_once)
        except Exception as error:
            process.say(f"note: the run cannot be shown any more: {type(error).__name__}: {error}")
            return False
        return True

    def _end_showing(self) -> None:
        """Show the rest, unless the store does not answer."""
        whole = self._showing.is_alive()
        self._shown.set()
        if self._showing.ident is not None:
            self._showing.join(SHOWN_S)
        if whole and not self._showing.is_alive():
            self._look(at_once=True)

    # -- the outcome

    def _end(self, code: int, caught: list[int], tail: Iterable[str]) -> records.RunRecord:
        if code == 0 and not (caught or self._verdict or self._application.job.cluster.wait):
            return self._submitted()
        try:
            record = self._record()
        except GridError as fault:
            raise self._unknown(fault, caught) from None
        here = 0 if self._application.in_cluster else code  # elsewhere the driver does not speak through spark-submit
        if record is not None and self._verdict is None and aftermath.told(record, here, bool(caught)):
            return self._ended(record, caught)
        error = self._error(record, code, caught, list(tail))
        if record is not None:
            aftermath.close(replace(record, application_id=record.application_id or self._watch.id), error)
        raise error

    def _submitted(self) -> records.RunRecord:
        """What is known of a run that YARN has taken, and that nobody here waits for (--no-wait)."""
        asked = self._application
        self._display.lines([f"results:   {asked.run_folder}"])
        return records.RunRecord(
            run_id=asked.run_id,
            outcome="submitted",
            started=records.now(),
            run_folder=asked.run_folder,
            seed=asked.job.data.seed,
            job=asked.job,
            versions=records.Versions(caffe_on_grid.__version__, platform.python_version()),
            application_id=self._watch.id,
            exit_code=0,
        )

    def _record(self) -> Optional[records.RunRecord]:
        """The driver's own word: in client mode a copy is here, in cluster mode it is in the run's folder."""
        if not self._application.in_cluster:
            text = self._outcome.read_text(encoding="utf-8") if self._outcome.is_file() else None
            return records.loads(text, str(self._outcome)) if text else None
        return read_record(self._application.run_folder)

    def _unknown(self, fault: GridError, caught: list[int]) -> GridError:
        """The end of an application whose record cannot be read."""
        if caught or self._verdict is not None:
            return self._error(None, 0, caught, [])
        known = self._watch.facts.get("finalStatus") if self._watch.ended else "no more"
        name = self._watch.id or "the application"
        return ContactLost(f"{name} is {known} to YARN, and what it did cannot be read: {fault}")

    def _ended(self, record: records.RunRecord, caught: list[int]) -> records.RunRecord:
        if self._application.in_cluster:
            cause = [words.failure_line(record.cause)] if record.cause else []
            self._display.lines([*cause, *words.summary(record, _left(record))])
        if not caught or record.outcome == "done":
            return record
        return replace(record, outcome="interrupted", exit_code=SIGNALS[caught[0]].exit_code)

    def _error(self, record: Optional[records.RunRecord], code: int, caught: list[int], tail: list[str]) -> GridError:
        if caught:
            name = self._watch.id or "the application"
            return SIGNALS[caught[0]](f"ended by a signal; {name} was killed")
        if self._verdict is not None:
            return self._verdict
        return aftermath.died(record, code, self._last_words(tail))

    def _last_words(self, tail: list[str]) -> str:
        """What the driver's container says, else YARN, else spark-submit."""
        facts = self._watch.facts
        said = container_logs.cause(facts) or container_logs.diagnosis(str(facts.get("diagnostics", "")))
        if said:
            return f"{self._watch.id} says: {said}"
        return " | ".join(tail[-3:]) or "its messages are above"


def _left(record: records.RunRecord) -> list[str]:
    saved = [uri for task in record.tasks for uri in task.saved if uri != record.model]
    files = [paths.join(record.run_folder, name) for name in ("run.json", "metrics.jsonl")]
    return [*([record.model] if record.model else []), *files, *saved[-1:]]
