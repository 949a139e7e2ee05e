"""`inspect --svg` as a command: the runtime tells the net, the gateway draws it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.runtime


@pytest.fixture
def command(root: Path, runtime: Path, tmp_path: Path):
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": str(root),
        "CAFFE_ON_GRID_RUNTIME": str(runtime),
    }
    program = [sys.executable, "-c", "from caffe_on_grid import cli; cli.main()", "inspect"]
    return lambda *words: subprocess.run([*program, *words], cwd=tmp_path, env=env, capture_output=True, text=True)


def test_a_net_and_a_solver_are_drawn(command, root: Path, tmp_path: Path) -> None:
    net = root / "examples" / "lenet" / "lenet_train_test.prototxt"
    done = command(str(net), "--svg", "net.svg", "-shape", "1,28,28")
    assert (done.returncode, done.stdout) == (0, "net.svg\n"), done.stderr
    assert ">conv1</text>" in (tmp_path / "net.svg").read_text()
    (tmp_path / "solver.prototxt").write_text(f'net: "{net}" base_lr: 1 lr_policy: "fixed"')
    done = command("solver.prototxt", "--svg", "solver.svg", "-shape", "1,28,28")
    assert done.returncode == 0 and "phase TRAIN" in (tmp_path / "solver.svg").read_text()


def test_what_cannot_be_drawn(command, tmp_path: Path) -> None:
    done = command("net.prototxt", "--svg", "net.prototxt")
    assert done.returncode == 2 and "ends in .svg" in done.stderr
    done = command("gone.prototxt", "--svg", "x.svg")
    assert done.returncode == 3 and "gone.prototxt: no such file" in done.stderr
    (tmp_path / "x.solverstate").write_bytes(b"\x08\x03")
    done = command("x.solverstate", "--svg", "x.svg")
    assert done.returncode == 2 and "--svg draws nets, and x.solverstate is a state" in done.stderr
    assert not (tmp_path / "x.svg").exists()
