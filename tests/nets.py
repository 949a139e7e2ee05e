"""Small nets, solvers and LMDBs for tests that train."""

from __future__ import annotations

from pathlib import Path

import lmdb
import numpy as np

from caffe_on_grid.proto import schema

CLASSES = 4


def write_lmdb(path: Path, records: int = 48, seed: int = 3, size: int = 8, channels: int = 1) -> Path:
    """Images whose class is a pattern plus noise, labels 0..3 in turn, keys %08d."""
    rng = np.random.RandomState(seed)
    patterns = np.random.RandomState(1).rand(CLASSES, channels, size, size) * 180
    with lmdb.open(str(path), map_size=1 << 26) as env, env.begin(write=True) as txn:
        for i in range(records):
            label = i % CLASSES
            pixels = (patterns[label] + rng.randint(0, 76, (channels, size, size))).astype(np.uint8)
            datum = schema.Datum(channels=channels, height=size, width=size, data=pixels.tobytes(), label=label)
            txn.put(b"%08d" % i, datum.SerializeToString())
    return path


def net(train: Path, test: Path, batch: int, dropout: bool = False, transform: str = "scale: 0.00390625") -> str:
    """A small convolutional net with TRAIN and TEST data layers."""
    middle = 'layer { name: "drop" type: "Dropout" bottom: "ip1" top: "ip1" dropout_param { dropout_ratio: 0.4 } }'
    return f"""
name: "small"
layer {{ name: "data" type: "Data" top: "data" top: "label" include {{ phase: TRAIN }}
  transform_param {{ {transform} }} data_param {{ source: "{train}" batch_size: {batch} backend: LMDB }} }}
layer {{ name: "data" type: "Data" top: "data" top: "label" include {{ phase: TEST }}
  transform_param {{ {transform} }} data_param {{ source: "{test}" batch_size: 6 backend: LMDB }} }}
layer {{ name: "conv" type: "Convolution" bottom: "data" top: "conv"
  param {{ lr_mult: 1 }} param {{ lr_mult: 2 }}
  convolution_param {{ num_output: 6 kernel_size: 3 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "relu" type: "ReLU" bottom: "conv" top: "conv" }}
layer {{ name: "pool" type: "Pooling" bottom: "conv" top: "pool"
  pooling_param {{ pool: MAX kernel_size: 2 stride: 2 }} }}
layer {{ name: "ip1" type: "InnerProduct" bottom: "pool" top: "ip1"
  inner_product_param {{ num_output: 12 weight_filler {{ type: "xavier" }} }} }}
{middle if dropout else ""}
layer {{ name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2"
  inner_product_param {{ num_output: {CLASSES} weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "accuracy" type: "Accuracy" bottom: "ip2" bottom: "label" top: "accuracy" include {{ phase: TEST }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }}
"""


def solver(net_name: str = "net.prototxt", iterations: int = 20, more: str = "", test: bool = True) -> str:
    """A solver for it."""
    testing = "test_iter: 4 test_interval: 10" if test else ""
    return (
        f'net: "{net_name}"\nbase_lr: 0.05 lr_policy: "fixed" max_iter: {iterations} display: 5 random_seed: 5\n'
        f'snapshot_prefix: "small" solver_mode: CPU {testing}\n{more}\n'
    )


def write_job(folder: Path, net_text: str, solver_text: str) -> Path:
    """A job directory with both."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net.prototxt").write_text(net_text)
    (folder / "solver.prototxt").write_text(solver_text)
    return folder
