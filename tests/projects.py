"""A small solver with its net, mean file and data folders, as a user has them; nothing in it is ever trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Said(NamedTuple):
    """What the command ended with, and what it said."""

    code: int
    out: str
    err: str


Run = Callable[..., Said]
"""Runs the command line in this process."""

SOLVER = """net: "net.prototxt"
test_iter: 2
test_interval: 10
base_lr: 0.01
lr_policy: "fixed"
max_iter: 20
"""

NET = """name: "tiny"
layer { name: "d" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { mean_file: "mean.binaryproto" }
  data_param { source: "../data/train_lmdb" batch_size: 4 backend: LMDB } }
layer { name: "d" type: "Data" top: "data" top: "label" include { phase: TEST }
  data_param { source: "data/test_lmdb" batch_size: 4 backend: LMDB } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


def make(folder: Path, solver: str = SOLVER, net: str = NET) -> Path:
    """Write the project into `folder`; the solver's path. `folder` is meant to be the working directory."""
    for name in ("proto", "data/train_lmdb", "data/test_lmdb"):
        (folder / name).mkdir(parents=True)
    (folder / "proto" / "mean.binaryproto").write_bytes(b"mean")
    (folder / "proto" / "net.prototxt").write_text(net)
    path = folder / "proto" / "solver.prototxt"
    path.write_text(solver)
    return path


def fake_runtime(folder: Path) -> Path:
    """A folder that is laid out like a runtime, for commands that only look whether there is one."""
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 0\n")
    python.chmod(0o755)
    return folder
