"""Rendered actions on the real grid, started as Oozie's SparkMain and ShellMain start them."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import nets
import oozie_rules
import pyspark
import pytest
from grids import QUICK_JVM, ROOT
from oozie_launcher import Launcher

TAG = "oozie-{}"
QUICK = {
    "spark.ui.enabled": "false",
    "spark.yarn.jars": f"local:{Path(pyspark.__file__).parent}/jars/*",
    "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
    "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.executor.extraJavaOptions": QUICK_JVM,
}


@pytest.fixture
def render(grid, runtime: Path, hdfs_folder: str, tmp_path: Path):
    """Renders an application for a small job, puts it on HDFS, and gives its launcher's container."""
    lmdbs = nets.write_lmdb(tmp_path / "train", 24), nets.write_lmdb(tmp_path / "test", 12, seed=9)

    def make(kind: str, iterations: int, model: str, container: str = "container") -> Launcher:
        out = tmp_path / "application"
        if not out.exists():
            nets.write_job(tmp_path / "job", nets.net(*lmdbs, batch=6), nets.solver(iterations=iterations))
            words = ["oozie", "--action", kind, "-conf", "job/solver.prototxt", "-model", model, "--node-label", "gpu"]
            words += ["--runtime", str(runtime.resolve()), "--driver-memory", "512m", "--seed", "3"]
            words += [word for pair in QUICK.items() for word in ("--conf", "=".join(pair))]
            command = [str(ROOT / "bin" / "caffe-on-grid"), *words, "application"]
            subprocess.run(command, cwd=tmp_path, env=grid.environment(), check=True, timeout=60)
            grid.fs("-put", str(out), hdfs_folder)
        known = oozie_rules.properties((out / "job.properties").read_text())
        assert (known["nameNode"], known["queueName"]) == (grid.hdfs, "default")
        functions = {"wf:user()": "root", "user.name": "root", "wf:appPath()": f"{grid.hdfs}{hdfs_folder}/application"}
        tags = {"oozie.child.mapreduce.job.tags": TAG.format(tmp_path.name.lower())}
        return Launcher(out, tmp_path / container, {**known, **functions}, tags)

    return make


def launcher_environment(grid) -> dict[str, str]:
    return {name: value for name, value in grid.environment().items() if name not in ("HOME", "PYSPARK_PYTHON")}


def test_a_spark_action_trains(grid, render, hdfs_folder: str) -> None:
    """The application that Oozie ships has no file twice, and its driver and ranks find all of it."""
    model = f"{grid.hdfs}{hdfs_folder}/net.caffemodel"
    launcher = render("spark", 10, model)
    words = launcher.spark_words(f"{grid.hdfs}{hdfs_folder}/application")
    program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    done = subprocess.run(
        [program, *words],
        cwd=launcher.container,
        env=launcher_environment(grid),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "net.caffemodel" in grid.fs("-ls", hdfs_folder)
    (application,) = grid.applications(f"applicationTags={launcher.settings['oozie.child.mapreduce.job.tags']}")
    assert application["finalStatus"] == "SUCCEEDED"


def test_a_shell_action_ends_what_an_earlier_attempt_left(grid, render, hdfs_folder: str) -> None:
    """The first launcher dies as with its node, and leaves an application that the second one must not meet."""
    model = f"{grid.hdfs}{hdfs_folder}/net.caffemodel"
    first = render("shell", 10, model)
    tag = first.settings["oozie.child.mapreduce.job.tags"]
    process = first.start(launcher_environment(grid))
    running = f"applicationTags={tag}&states=ACCEPTED,RUNNING"
    end = time.monotonic() + 120
    while not (left := grid.applications(running)):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end
        time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    code, out, err = render("shell", 10, model, "again").run(launcher_environment(grid))
    assert code == 0, err
    assert f"note: {left[0]['id']} of an earlier attempt was still there and is killed" in err
    found = oozie_rules.properties(out)
    assert (found["exit_code"], found["model"]) == ("0", model)
    assert found["application_id"] != left[0]["id"]
    assert found["accuracy"]
    assert grid.ask(f"apps/{left[0]['id']}")["app"]["finalStatus"] == "KILLED"
