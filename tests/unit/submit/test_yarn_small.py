"""Small parts of submitting to YARN: a site's settings, a container's last words, memory, finding GPUs."""

from __future__ import annotations

import json
import subprocess
from importlib import resources
from pathlib import Path

import pytest

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.submit import container_logs, spark_conf, uploads


def test_spark_defaults(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# a comment\n\nspark.yarn.jars  local:/opt/spark/jars/*\nspark.a=b c\nspark.d :  e=f \nspark.empty\n"
    )
    assert spark_conf.defaults(None, "/nowhere", {"SPARK_CONF_DIR": str(tmp_path)}) == {
        "spark.yarn.jars": "local:/opt/spark/jars/*",
        "spark.a": "b c",
        "spark.d": "e=f",
        "spark.empty": "",
    }
    assert spark_conf.defaults(None, "/nowhere", {}) == {}
    with pytest.raises(ConfigError, match="--properties-file /nowhere/x: cannot be read"):
        spark_conf.defaults("/nowhere/x", "/nowhere", {})


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("a\n./bin/python: libc.so.6: version `GLIBC_2.99' not found (required by x)\nerror: b", "GLIBC_2.99"),
        ("x: error while loading shared libraries: libz.so.9\nValueError: no", "libz.so.9"),
        ('Cannot run program "./caffe_on_grid.tgz/bin/python": error=8, Exec format error', "Exec format"),
        ("Traceback\nValueError: first\nKeyError: last\n", "KeyError: last"),
        ("ValueError: no\nerror: the driver's own word\n", "error: the driver's own word"),
    ],
)
def test_the_decisive_line(log: str, line: str) -> None:
    found = container_logs.decisive(log)
    assert found and line in found and "\n" not in found


def test_a_log_that_says_nothing() -> None:
    assert container_logs.decisive("INFO all is well\n") is None
    assert container_logs.diagnosis("one\n  two") == "one two"


def test_a_digest_is_remembered_until_the_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "a.tgz"
    file.write_bytes(b"one")
    calls: list[str] = []

    def digest() -> str:
        calls.append(file.read_text())
        return f"of {file.read_text()}"

    assert [uploads.remembered(file, digest), uploads.remembered(file, digest)] == ["of one", "of one"]
    file.write_bytes(b"other")
    assert uploads.remembered(file, digest) == "of other"
    assert calls == ["one", "other"]


def find_gpus(folder: Path, container: str, amount: int) -> subprocess.CompletedProcess[str]:
    """Run the script as Spark does, in a container below the application's folder."""
    script = folder / "gpus.sh"
    script.write_bytes((resources.files("caffe_on_grid.submit") / "gpus.sh").read_bytes())
    (folder / "application" / container).mkdir(parents=True, exist_ok=True)
    env = {"PATH": f"{folder}:/usr/bin:/bin", "CAFFE_ON_GRID_GPUS": str(amount), "CUDA_VISIBLE_DEVICES": "7"}
    place = folder / "application" / container
    return subprocess.run(["sh", str(script)], cwd=place, env=env, capture_output=True, text=True, check=False)


def test_each_executor_of_a_node_is_given_gpus_of_its_own(tmp_path: Path) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text('#!/bin/sh\n[ -z "$CUDA_VISIBLE_DEVICES" ] || exit 9\nfor i in 0 1 2; do echo "$i, GPU-$i"; done\n')
    smi.chmod(0o755)
    first, second, third = (find_gpus(tmp_path, name, amount) for name, amount in (("c1", 2), ("c2", 1), ("c3", 1)))
    assert json.loads(first.stdout) == {"name": "gpu", "addresses": ["0", "1"]}
    assert json.loads(second.stdout) == {"name": "gpu", "addresses": ["2"]}
    assert third.returncode == 1 and "only 0 of 1 GPUs are free" in third.stderr


def test_no_driver_no_gpus(tmp_path: Path) -> None:
    found = find_gpus(tmp_path, "c1", 1)
    assert found.returncode == 1 and "nvidia-smi failed" in found.stderr
