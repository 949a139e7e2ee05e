"""What an agent tells of a node that is in trouble, instead of being an executor that was lost."""

from __future__ import annotations

import resource
import threading
from pathlib import Path

import pytest

from caffe_on_grid.comm.channel import Closed, Listener
from caffe_on_grid.errors import EnvironmentFault, GridError, TrainingFailed
from caffe_on_grid.gang import agent, hydra
from caffe_on_grid.gang.plan import GangPlan
from caffe_on_grid.spec import report
from caffe_on_grid.spec.job import EngineSpec, JobSpec

KEY = b"k" * 32


def conduct(folder: Path, gather=lambda text: [text]) -> tuple[Exception, list[report.Failed]]:
    """An agent's error, and the failures it told of; its node has a job and a runtime that nobody gets to start."""
    for name in ("job/job.json", "caffe_on_grid.tgz/bin/python"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    listener, told = Listener("127.0.0.1", KEY), []

    def hear() -> None:
        channel = listener.accept(20)
        try:
            while message := channel.receive(20):
                told.append(message)
        except Closed:
            channel.close()

    driver = threading.Thread(target=hear)
    driver.start()
    job = JobSpec(("train",), "solver.prototxt", engine=EngineSpec(solver_mode="cpu"))
    plan = GangPlan(job, "train", "r", str(folder / "run"), 1, listener.address, KEY)
    with pytest.raises(GridError) as caught:
        agent.conduct(plan, agent.Task(0, gather, (), (folder,)), agent.Program())
    driver.join()
    listener.close()
    assert told[-1] == {"type": "left", "executor": 0, "ok": False}
    return caught.value, [report.from_line(m["line"]) for m in told if m["type"] == "report"]


def test_a_full_disk_is_the_cause(tmp_path, monkeypatch):
    """It was once told as "executor 0 was lost: its agent's connection ended"."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def gather(text: str) -> list[str]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
        return [text]

    try:
        error, failed = conduct(tmp_path, gather)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert type(error) is EnvironmentFault
    assert "the file grows past what the file system or `ulimit -f` allows" in str(error)
    assert [(f.rank, f.category, f.message) for f in failed] == [(-1, "EnvironmentFault", str(error))]
    assert not list(tmp_path.glob("caffe-on-grid-gang-*"))


def test_a_bug_is_the_cause(tmp_path, monkeypatch):
    monkeypatch.setattr(agent.placement, "place", lambda *given: 1 // 0)
    error, failed = conduct(tmp_path)
    assert type(error) is TrainingFailed
    assert [f.message for f in failed] == ["unexpected ZeroDivisionError: integer division or modulo by zero"]


def test_a_gang_that_spark_has_ended_has_its_cause_elsewhere(tmp_path):
    def gather(text: str) -> list[str]:
        raise EOFError

    error, failed = conduct(tmp_path, gather)
    assert "executor 0: Spark ended the gang: EOFError" in str(error)
    assert failed == []


def test_a_slow_mpiexec_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(hydra, "VERSION_S", 0.2)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mpiexec").write_text("#!/bin/sh\nexec sleep 20\n")
    (tmp_path / "bin" / "mpiexec").chmod(0o755)
    with pytest.raises(EnvironmentFault, match=r"mpiexec gives no answer in 0\.2 s"):
        hydra.version(tmp_path)
