"""The driver as spark-submit starts it: what it writes, what it says, how it ends, and that nothing stays behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pyspark
import pytest

from caffe_on_grid.spec import codec, run
from caffe_on_grid.spec.job import Cluster, JobSpec, Output

pytestmark = pytest.mark.spark
HERE = Path(__file__).resolve().parent
SPARK = Path(pyspark.__file__).parent
MARK = "DRIVER_TEST_MARK"


class Driver:
    """One spark-submit in a folder of its own."""

    def __init__(self, folder: Path, name: str, tasks: tuple[str, ...] = ("train",)):
        self.folder = folder
        self.mark = uuid.uuid4().hex
        job = JobSpec(
            tasks, "solver.prototxt", Cluster(name=name, executors=2), output=Output(f"{folder}/net.caffemodel")
        )
        (folder / "job").mkdir()
        (folder / "job" / "job.json").write_text(codec.dumps(job))
        (folder / "job" / "solver.prototxt").write_text("random_seed: 42")
        self.process = subprocess.Popen(
            [
                str(SPARK / "bin" / "spark-submit"),
                *("--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=localhost"),
                *("--conf", "spark.ui.showConsoleProgress=false"),
                *(str(HERE / "driver_entry.py"), "--job", str(folder / "job")),
            ],
            env=self.environment(),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "SPARK_HOME": str(SPARK),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(HERE.parent.parent), str(HERE)]),
            "CAFFE_ON_GRID_OUTCOME": str(self.folder / "outcome.json"),
            MARK: self.mark,
        }

    def end(self) -> tuple[int, str]:
        said, _ = self.process.communicate(timeout=120)
        return self.process.returncode, said

    def record(self) -> run.RunRecord:
        return run.loads((self.run_folder() / "run.json").read_text())

    def run_folder(self) -> Path:
        return self.folder / "net" / (self.folder / "net" / "latest").read_text().strip()

    def processes(self) -> list[tuple[int, str]]:
        """Living processes that inherited the mark: (pid, command line)."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append((int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()))
            except OSError:
                continue
        return found

    def python(self) -> int:
        """The Python driver's pid."""
        (pid,) = [p for p, line in self.processes() if "driver_entry.py" in line and "python" in line.split()[0]]
        return pid


def until(condition, seconds: float = 90.0):
    """Wait for a true value of `condition`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError("what is waited for does not come")


@pytest.fixture
def driver(tmp_path):
    started = []

    def start(*args) -> Driver:
        started.append(Driver(tmp_path, *args))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()
        for pid, _ in each.processes():
            with contextlib.suppress(ProcessLookupError):  # Spark's Python daemon ends by itself, a moment later
                os.kill(pid, signal.SIGKILL)


def test_a_job_that_trains_and_tests(driver):
    job = driver("well", ("train", "test"))
    code, said = job.end()
    assert code == 0, said
    record = job.record()
    assert (record.outcome, record.exit_code, record.seed, record.cause) == ("done", 0, 42, None)
    assert record.model == str(job.folder / "net.caffemodel")
    assert [(t.task, t.world, t.global_batch, t.totals.samples) for t in record.tasks] == [
        ("train", 2, 128, 640),
        ("test", 2, 128, 640),
    ]
    assert record.versions.spark == pyspark.__version__
    assert (job.folder / "outcome.json").read_text() == (job.run_folder() / "run.json").read_text()
    lines = [json.loads(line) for line in (job.run_folder() / "metrics.jsonl").read_text().splitlines()]
    assert [line["task"] for line in lines if line["kind"] == "gang"] == ["train", "test"]
    assert lines[-1]["outcome"] == "done"
    assert {"started", "stepped", "ranks", "tested", "saved", "finished"} <= {line["kind"] for line in lines}
    for words in (
        "world:     2 ranks = 2 executors × 1 device",
        "Iteration 4, loss = 0.4",
        "    Test net output #0: accuracy = 0.75",
        "outcome:   done (exit code 0)",
        "equal on 2 ranks",
        f"left:      {job.run_folder() / 'curves.png'}",
    ):
        assert words in said
    assert (job.run_folder() / "curves.png").is_file()


def test_sigterm_ends_the_gang_and_says_so(driver):
    job = driver("wait")
    waiting = until(lambda: (job.folder / "net" / "latest").exists() and sorted(job.run_folder().glob("waiting-*")))
    until(lambda: len(list(job.run_folder().glob("waiting-*"))) == 2)
    assert waiting
    assert job.record().outcome == "running"
    os.kill(job.python(), signal.SIGTERM)
    code, said = job.end()
    assert code == 143, said
    record = job.record()
    assert (record.outcome, record.exit_code, record.cause.category) == ("interrupted", 143, "Terminated")
    assert "error: ended by SIGTERM" in said
    assert "Traceback" not in said.split("error: ended by SIGTERM")[1]
    assert sorted(p.name for p in job.run_folder().glob("stopped-*")) == ["stopped-0", "stopped-1"]
    until(lambda: not job.processes(), 30)


def plain(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """The driver before it has started Spark."""
    env = {**os.environ, "PYTHONPATH": str(HERE.parent.parent), "CAFFE_ON_GRID_OUTCOME": str(folder / "outcome.json")}
    command = [sys.executable, "-m", "caffe_on_grid.driver.main", *args]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_a_job_that_cannot_be_read(tmp_path):
    done = plain(tmp_path, "--job", str(tmp_path))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"error: {tmp_path}/job.json: the job cannot be read")
    assert len(done.stderr.splitlines()) == 1


def test_a_failure_before_spark_is_recorded(tmp_path):
    job = JobSpec(
        ("train",), "solver.prototxt", output=Output(f"{tmp_path}/net.caffemodel", run_folder=f"{tmp_path}/run")
    )
    (tmp_path / "job.json").write_text(codec.dumps(job))
    (tmp_path / "solver.prototxt").write_text("random_sead: 1")
    done = plain(tmp_path, "--job", str(tmp_path))
    assert done.returncode == 3
    assert "solver.prototxt:1:1" in done.stderr.splitlines()[0]
    for path in (tmp_path / "run" / "run.json", tmp_path / "outcome.json"):
        record = run.loads(path.read_text())
        assert (record.outcome, record.exit_code, record.cause.category) == ("failed", 3, "ConfigError")
    before = (tmp_path / "run" / "run.json").read_text()
    again = plain(tmp_path, "--job", str(tmp_path))
    assert again.returncode == 3
    assert "run.json exists: this folder holds another run" in again.stderr
    assert (tmp_path / "run" / "run.json").read_text() == before
