"""Small nets, plans, batches and comparisons for programs that try engines."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from caffe_on_grid.engine.api import EnginePlan
from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import schema, text

CLASSES = 3
INPUT = """
layer {{ name: "data" type: "Input" top: "data" top: "label"
  input_param {{ shape {{ dim: {0} dim: 5 }} shape {{ dim: {0} }} }} }}
"""
BODY = """
layer { name: "a" type: "InnerProduct" bottom: "data" top: "a"
  inner_product_param { num_output: 8 weight_filler { type: "xavier" } bias_filler { type: "constant" value: 0.1 } } }
layer { name: "tanh" type: "TanH" bottom: "a" top: "t" }
MIDDLE
layer { name: "b" type: "InnerProduct" bottom: "t" top: "b"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
"""
LOSS = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "b" bottom: "label" top: "loss" }'
ACCURACY = 'layer { name: "accuracy" type: "Accuracy" bottom: "b" bottom: "label" top: "accuracy" }'
DROPOUT = 'layer { name: "drop" type: "Dropout" bottom: "t" top: "t" dropout_param { dropout_ratio: 0.5 } }'
NORM = """
layer { name: "bn" type: "BatchNorm" bottom: "t" top: "t" }
layer { name: "sc" type: "Scale" bottom: "t" top: "t" }
"""
SGD = 'base_lr: 0.1 lr_policy: "fixed" max_iter: 100 momentum: 0.9 weight_decay: 0.001'
PLAIN = 'base_lr: 0.1 lr_policy: "fixed" max_iter: 100'


def net(batch: int = 4, middle: str = "", end: str = LOSS, name: str = "small") -> object:
    """A small net."""
    whole = f'name: "{name}"\n' + INPUT.format(batch) + BODY.replace("MIDDLE", middle) + end
    return text.parse(schema.NetParameter, whole, "net")


def plan(solver: str = SGD, train: object = None, tests: tuple = (), **more: object) -> EnginePlan:
    """A plan with seed 5 that writes where the program runs."""
    message = text.parse(schema.SolverParameter, solver + ' type: "SGD"' * ("type:" not in solver), "solver")
    return EnginePlan(message, train, tests, **{"seed": 5, "scratch": Path.cwd(), **more})


def batches(count: int, batch: int = 4, seed: int = 0) -> list:
    """Random batches."""
    rng = np.random.RandomState(seed)
    labels = [rng.randint(0, CLASSES, batch).astype(np.float32) for _ in range(count)]
    return [{"data": rng.randn(batch, 5).astype(np.float32), "label": label} for label in labels]


class Quiet:
    """Hooks that note what is called; `then` may name a call at which to do something."""

    def __init__(self, **then: object) -> None:
        self.calls: list = []
        self.then = then

    def on_start(self) -> None:
        self.note("start")

    def on_ready(self, first: int, last: int) -> None:
        self.note("ready", first, last)

    def on_gradients(self) -> None:
        self.note("gradients")

    def note(self, name: str, *args: int) -> None:
        self.calls.append((name, *args))
        if name in self.then:
            self.then[name](*args)


def train(engine: object, data: list, iter_size: int = 1) -> list:
    """One step per iter_size batches; the losses."""
    feed = iter(data)
    return [engine.step(feed, Quiet()).loss for _ in range(len(data) // iter_size)]


def snapshot_of(blobs: list) -> list:
    """Copies."""
    return [np.array(blob) for blob in blobs]


def same(left: list, right: list) -> None:
    """Equal bit for bit."""
    assert len(left) == len(right)
    for a, b in zip(left, right):
        np.testing.assert_array_equal(a, b)


def close(left: list, right: list, tolerance: float = 1e-6) -> None:
    """Equal to rounding."""
    assert len(left) == len(right)
    for a, b in zip(left, right):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def refused(words: tuple, call: object) -> None:
    """`call` raises ConfigError, in one line that holds all of `words`."""
    try:
        call()
    except ConfigError as error:
        message = str(error)
        assert all(word in message for word in words), message
        return
    raise AssertionError(f"not refused: {words}")
