"""--ignore-unknown-fields and --strict-caffe of jobs; `upgrade` as a command."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import projects
from projects import Run

NET = projects.NET.replace("inner_product_param {", "detection_output_param { top_k: 3 } inner_product_param {")
TRAIN = ("train", "-conf", "proto/solver.prototxt", "-model", "m.caffemodel", "--dry-run")


def test_unknown_fields_are_refused_or_left_out_and_listed(home: Path, run: Run) -> None:
    projects.make(home, solver=projects.SOLVER + "warmup_iter: 5\n", net=NET)
    code, _, err = run(*TRAIN)
    assert code == 3 and "prototxt:7:1: SolverParameter has no field named 'warmup_iter'" in err
    code, out, err = run(*TRAIN, "--ignore-unknown-fields")
    assert code == 0
    assert "note: proto/solver.prototxt:7:1: SolverParameter has no field named 'warmup_iter' (a field of Intel" in err
    assert len(re.findall(r"net\.prototxt:8:\d+: LayerParameter has no field named 'detection_output_param'", err)) == 1
    job = Path(shlex.split(out)[-1])
    assert json.loads((job / "job.json").read_text())["ignore_unknown_fields"] is True
    shipped = (job / "net.prototxt").read_text() + (job / "solver.prototxt").read_text()
    assert "detection_output_param" not in shipped and "warmup_iter" not in shipped
    assert "inner_product_param" in shipped


def test_strict_caffe_reaches_the_job(project: Path, run: Run) -> None:
    code, out, _ = run(*TRAIN, "--strict-caffe")
    assert code == 0
    assert json.loads((Path(shlex.split(out)[-1]) / "job.json").read_text())["engine"]["strict_caffe"] is True


def test_upgrade(home: Path, run: Run, root: Path) -> None:
    old = root / "tests" / "data" / "proto" / "v1.prototxt"
    assert run("upgrade", str(old), "new.prototxt") == (0, "new.prototxt\n", "")
    code, out, err = run("upgrade", str(old), "new.prototxt")
    assert (code, out) == (3, "") and "--overwrite" in err
    code, out, err = run("upgrade", "new.prototxt", "new.prototxt", "--overwrite")
    assert (code, out) == (0, "new.prototxt\n") and "note: new.prototxt is in today's form already" in err
