"""`engine_exchange.py ENGINE write|continue FOLDER`: trains and saves, or restores what another engine saved.

Prints, for each case, the losses of the steps after the snapshot and the sums of the parameters' absolute values.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
from contract.engine_nets import ACCURACY, batches, net, plan, train

from caffe_on_grid.engine import registry
from caffe_on_grid.engine.api import Engine

COMMON = 'max_iter: 100 weight_decay: 0.01 snapshot_prefix: "case" '
BASE = COMMON + "base_lr: 0.1 "
HDF5 = " snapshot_format: HDF5"
ADAPTIVE = COMMON + 'base_lr: 0.01 lr_policy: "fixed" '
SOLVERS = {
    "sgd_multistep": BASE + 'lr_policy: "multistep" gamma: 0.5 stepvalue: 2 stepvalue: 5 stepvalue: 7 momentum: 0.9',
    "sgd_step_hdf5": BASE + 'lr_policy: "step" gamma: 0.5 stepsize: 3 momentum: 0.9 iter_size: 2' + HDF5,
    "nesterov": ADAPTIVE + 'type: "Nesterov" momentum: 0.9 clip_gradients: 0.5',
    "adagrad_hdf5": ADAPTIVE + 'type: "AdaGrad" delta: 0.001 regularization_type: "L1"' + HDF5,
    "rmsprop": ADAPTIVE + 'type: "RMSProp" rms_decay: 0.9 delta: 0.001',
    "adadelta_hdf5": ADAPTIVE + 'type: "AdaDelta" momentum: 0.95 delta: 1e-6' + HDF5,
    "adam": ADAPTIVE + 'type: "Adam" momentum: 0.9 momentum2: 0.99 delta: 0.001',
    "adam_hdf5": ADAPTIVE + 'type: "Adam" momentum: 0.9 momentum2: 0.99 delta: 0.001' + HDF5,
}
MIDDLE = """
layer { name: "drop" type: "Dropout" bottom: "t" top: "d" dropout_param { dropout_ratio: 0.5 } }
layer { name: "bn" type: "BatchNorm" bottom: "d" top: "n" }
layer { name: "sc" type: "Scale" bottom: "n" top: "n" }
layer { name: "h1" type: "InnerProduct" bottom: "n" top: "h1" param { name: "w" } param { lr_mult: 2 decay_mult: 0 }
  inner_product_param { num_output: 8 weight_filler { type: "gaussian" std: 0.3 } } }
layer { name: "h2" type: "InnerProduct" bottom: "h1" top: "t2" param { name: "w" } param { lr_mult: 0 }
  inner_product_param { num_output: 8 weight_filler { type: "xavier" } bias_filler { type: "uniform" } } }
"""
BEFORE, AFTER = 4, 8


def build(engine: str, solver: str) -> Engine:
    """The case's engine: dropout, statistics, shared and frozen blobs, a TEST net."""
    message = net(8, MIDDLE)
    message.layer[-2].bottom[0] = "t2"
    return registry.create(engine, plan(solver, message, (net(8, end=ACCURACY),)))


def run(engine: str, action: str, solver: str) -> list[float]:
    """What the steps after the snapshot give, in the working directory."""
    passes = 2 if "iter_size" in solver else 1
    data = batches((BEFORE + AFTER) * passes, 8)
    made = build(engine, solver)
    if action == "write":
        train(made, data[: BEFORE * passes], passes)
        made.save("case")
    else:
        (state,) = Path.cwd().glob("case_iter_4.solverstate*")
        made.restore(Path(state.name))
    made.reseed(3)
    losses = train(made, data[BEFORE * passes :], passes)
    return losses + [float(np.abs(blob).sum()) for blob in made.all_params()]


def main(engine: str, action: str, folder: Path) -> None:
    """Run every case in its folder."""
    found = {}
    for name, solver in SOLVERS.items():
        (folder / name).mkdir(exist_ok=True)
        os.chdir(folder / name)
        found[name] = run(engine, action, solver)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
