"""What goes wrong on the gateway: one line on stderr, nothing on stdout, the documented code, nothing left behind."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import projects
import pytest
from projects import Run

TRAIN = ("train", "-conf", "proto/solver.prototxt", "-model", "out/net.caffemodel")
Spoil = Callable[[Path, pytest.MonkeyPatch], object]


def nothing(_home: Path, _patch: pytest.MonkeyPatch) -> None:
    """Leave the project as it is."""


def file(name: str, text: str = "") -> Spoil:
    def spoil(home: Path, _patch: pytest.MonkeyPatch) -> None:
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text(text)

    return spoil


def gone(name: str) -> Spoil:
    def spoil(home: Path, _patch: pytest.MonkeyPatch) -> None:
        path = home / name
        path.rmdir() if path.is_dir() else path.unlink()

    return spoil


def variable(name: str, value: str) -> Spoil:
    return lambda _home, patch: patch.setenv(name, value)


CASES: dict[str, tuple[Spoil, tuple[str, ...], int, str]] = {
    "solver missing": (gone("proto/solver.prototxt"), TRAIN, 3, "proto/solver.prototxt: cannot be read: No such file"),
    "net missing": (gone("proto/net.prototxt"), TRAIN, 3, "proto/solver.prototxt:1: net.prototxt: no such file in "),
    "mean missing": (gone("proto/mean.binaryproto"), TRAIN, 3, "net.prototxt:3: mean.binaryproto: no such file"),
    "lmdb missing": (gone("data/train_lmdb"), TRAIN, 3, "net.prototxt:4: ../data/train_lmdb: no such file"),
    "syntax": (file("proto/net.prototxt", "layer {\n  name: \n}"), TRAIN, 3, "net.prototxt:3:1: "),
    "unknown field": (file("proto/solver.prototxt", projects.SOLVER + "max_itr: 3"), TRAIN, 3, "prototxt:7:1: "),
    "unsupported source": (
        file("proto/net.prototxt", projects.NET.replace('"Data"', '"ImageData"')), TRAIN, 3, "ImageData"),
    "python layer": (
        file("proto/net.prototxt", projects.NET + 'layer { name: "p" type: "Python" bottom: "ip" top: "p" '
             'python_param { module: "m" layer: "L" } }'), TRAIN, 3, "m.py: no such file"),
    "model exists": (file("out/net.caffemodel"), TRAIN, 3, "-model out/net.caffemodel: exists"),
    "model's folder is a file": (file("out"), TRAIN, 3, "out"),
    "model of a test missing": (
        nothing, ("test", "-conf", "proto/solver.prototxt", "-model", "m"), 3, "-model m: no such file"),
    "no model": (nothing, TRAIN[:3], 2, "-model is missing"),
    "no storage": (nothing, (*TRAIN[:4], "gopher://x/m"), 3, "gopher"),
    "weights missing": (nothing, (*TRAIN, "-weights", "w"), 3, "-weights w: no such file"),
    "snapshot missing": (nothing, (*TRAIN, "-snapshot", "s"), 3, "-snapshot s: no such file"),
    "connection": (nothing, (*TRAIN, "-connection", "infiband"), 2, "-connection: expected one of auto, ethernet"),
    "devices": (nothing, (*TRAIN, "-devices", "0"), 2, "-devices: expected at least 1, got '0'"),
    "devices a word": (nothing, (*TRAIN, "-devices", "two"), 2, "-devices: expected a whole number, got 'two'"),
    "memory": (nothing, (*TRAIN, "--executor-memory", "4 gigs"), 2, "--executor-memory: expected a memory size"),
    "duration": (nothing, (*TRAIN, "--gang-timeout", "soon"), 2, "--gang-timeout: expected a duration"),
    "master": (nothing, (*TRAIN, "--master", "mesos://x"), 2, "--master mesos://x: use yarn, local"),
    "too many executors": (nothing, (*TRAIN, "--master", "local[2]", "--num-executors", "3"), 2, "there are only 2"),
    "locked": (nothing, (*TRAIN, "--conf", "spark.speculation=true"), 2, "--conf spark.speculation=true: it is false"),
    "java missing": (variable("JAVA_HOME", "/nowhere"), TRAIN, 4, "no Java at JAVA_HOME=/nowhere: install Java 17"),
    "spark missing": (variable("SPARK_HOME", "/nowhere"), TRAIN, 4, "SPARK_HOME=/nowhere: there is no bin/"),
    "runtime missing": (variable("CAFFE_ON_GRID_RUNTIME", "/nowhere"), TRAIN, 4, "/nowhere: no runtime is there"),
    "runtime no archive": (
        file("r.tgz", "text"), (*TRAIN, "--runtime", "r.tgz"), 3, "r.tgz: cannot be unpacked"),
    "hadoop missing": (variable("HADOOP_CONF_DIR", "/nowhere"), TRAIN, 4, "HADOOP_CONF_DIR=/nowhere: no such folder"),
    "no runtime for convert": (
        variable("CAFFE_ON_GRID_RUNTIME", "/nowhere"), ("convert", "--help"), 4, "no runtime is there"),
    "variable": (variable("CAFFE_ON_GRID_ENGINE_DEVICES", "0"), TRAIN, 3, "CAFFE_ON_GRID_ENGINE_DEVICES: expected at"),
    "flavour": (nothing, ("pack", "--flavour", "x"), 2, "--flavour x: "),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_bad_input(name: str, project: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil, words, code, message = CASES[name]
    spoil(project, monkeypatch)
    before = sorted(project.parent.iterdir())
    ended, out, err = run(*words)
    assert ended == code, err
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert sorted(project.parent.iterdir()) == before
    assert not (project / "out" / "net.caffemodel").exists() or name == "model exists"


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_model_where_nothing_may_be_written(project: Path, run: Run) -> None:
    (project / "out").mkdir(mode=0o500)
    code, _, err = run(*TRAIN)
    assert code in (3, 5)
    assert "out" in err


def test_more_ranks_than_cores_is_allowed_and_remarked_on(project: Path, run: Run) -> None:
    code, out, err = run(*TRAIN, "--num-executors", "3", "-devices", "200", "--dry-run")
    assert code == 0
    assert "local[3]" in out
    assert err.startswith("note: 600 ranks on ")
