"""The program that spark-submit starts: `--job DIR` in, a run and its exit code out."""

from __future__ import annotations

import argparse
import sys
import traceback
from pathlib import Path
from typing import Optional

from caffe_on_grid.driver import record
from caffe_on_grid.driver.session import Session
from caffe_on_grid.driver.signals import Signals
from caffe_on_grid.driver.stage import Agent
from caffe_on_grid.errors import ConfigError, GridError, Interrupted, Signalled
from caffe_on_grid.gang import agent as gang_agent
from caffe_on_grid.metrics import progress, words
from caffe_on_grid.metrics.progress import Display
from caffe_on_grid.spec import codec
from caffe_on_grid.spec.job import JobSpec
from caffe_on_grid.spec.run import Cause


def main(argv: Optional[list[str]] = None, agent: Agent = gang_agent.run) -> int:
    """Run the job in `--job DIR`; the exit code. All errors end here: one line each, a traceback only for a bug."""
    display, signals = progress.show(), Signals()
    session: Optional[Session] = None
    error: Optional[BaseException] = None
    try:
        signals.install()
        job_dir = _job_dir(argv)
        session = Session(read_job(job_dir), job_dir, display, signals, agent)
        session.run()
    except (Signalled, KeyboardInterrupt):
        error = signals.caught or Interrupted("ended by SIGINT")
    except Exception as caught:
        error = signals.caught or caught
    signals.ignore()
    return _end(session, error, display)


def _job_dir(argv: Optional[list[str]]) -> Path:
    parser = argparse.ArgumentParser(prog="caffe_on_grid.driver", description="Runs one job; started by spark-submit.")
    parser.add_argument("--job", required=True, type=Path, metavar="DIR", help="the job's folder, with its job.json")
    return Path(parser.parse_args(argv).job)


def read_job(job_dir: Path) -> JobSpec:
    """The job in a folder; ConfigError where there is none."""
    path = job_dir / "job.json"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: the job cannot be read: {error}") from None
    return codec.loads(JobSpec, text, str(path))


def _end(session: Optional[Session], error: Optional[BaseException], display: Display) -> int:
    """Say and write how it ended, the cause first, since the rest may have to wait for a store; the exit code."""
    display.close()
    if error and not isinstance(error, GridError):
        display.lines("".join(traceback.format_exception(type(error), error, error.__traceback__)).splitlines())
    display.lines(_failed(record.cause(error)))
    if session is None:
        return record.exit_code(error, False)
    final, summary = session.close(error)
    display.lines([*([] if error else _failed(final.cause)), *summary])
    return final.exit_code or 0


def _failed(cause: Optional[Cause]) -> list[str]:
    return [words.failure_line(cause)] if cause else []


if __name__ == "__main__":
    sys.exit(main())
