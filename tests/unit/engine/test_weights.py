"""Weights by name: which shapes fit, and what a snapshot must hold."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from caffe_on_grid.engine import native, weights
from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import schema


def blob(*shape: int, legacy: bool = False) -> object:
    """Of the values 0, 1, 2, …"""
    count = int(np.prod(shape))
    if legacy:
        num, channels, height, width = shape
        return schema.BlobProto(num=num, channels=channels, height=height, width=width, data=range(count))
    return schema.BlobProto(shape=schema.BlobShape(dim=shape), data=range(count))


@pytest.mark.parametrize(
    ("source", "target", "fits"),
    [
        (blob(3, 4), (3, 4), True),
        (blob(3, 4), (4, 3), False),
        (blob(1, 1, 3, 4), (3, 4), False),
        (blob(1, 1, 3, 4, legacy=True), (3, 4), True),
        (blob(1, 1, 1, 4, legacy=True), (4,), True),
        (blob(1, 4, 1, 1, legacy=True), (4,), False),
        (blob(2, 1, 3, 4, legacy=True), (3, 4), False),
        (blob(1, 1, 1, 1, legacy=True), (1, 1, 1, 1, 1), False),
    ],
)
def test_shapes(source, target, fits) -> None:
    """Blob::ShapeEquals: old shapes are padded in front, new ones are compared as they are."""
    assert weights.matches(source, target) is fits


def net(**layers: tuple[int, ...]) -> SimpleNamespace:
    targets = [SimpleNamespace(blobs=[SimpleNamespace(shape=s, data=np.zeros(s, np.float32))]) for s in layers.values()]
    return SimpleNamespace(_layer_names=list(layers), layers=targets)


def copy(net: object, model: object) -> object:
    return weights.copy(native.targets(net), model, "w", native.assign)


def model(**layers: object) -> object:
    made = schema.NetParameter()
    for name, source in layers.items():
        made.layer.add(name=name, blobs=[source])
    return made


def test_copy_by_name() -> None:
    target = net(a=(2, 3), b=(2,))
    report = copy(target, model(a=blob(2, 3), c=blob(1)))
    assert (report.loaded, report.ignored, report.fresh) == (("a",), ("c",), ("b",))
    np.testing.assert_array_equal(target.layers[0].blobs[0].data, [[0, 1, 2], [3, 4, 5]])


def test_nothing_is_copied_where_one_does_not_fit() -> None:
    target = net(a=(2,), b=(3, 1))
    shapes = "Source param shape is 3 (3); target param shape is 3 1 (3). To learn this layer's parameters from scratch"
    words = f"w: Cannot copy param 0 weights from layer 'b'; shape mismatch.  {shapes}"
    with pytest.raises(ConfigError, match=re.escape(words)):
        copy(target, model(a=blob(2), b=blob(3)))
    assert not target.layers[0].blobs[0].data.any()


def test_blob_counts_must_agree() -> None:
    source = model(a=blob(2))
    source.layer[0].blobs.add().CopyFrom(blob(2))
    with pytest.raises(ConfigError, match=r"Incompatible number of blobs for layer a .the file has 2, the net 1."):
        copy(net(a=(2,)), source)


def state(folder: Path, *history: object) -> Path:
    path = folder / "s.solverstate"
    path.write_bytes(schema.SolverState(iter=3, learned_net="m.caffemodel", history=history).SerializeToString())
    return path


def test_a_snapshot_that_fits(tmp_path) -> None:
    path = state(tmp_path, blob(2), blob(3), blob(2), blob(3))
    stored = weights.check_state(path, [(2,), (3,)], 2)
    assert (stored.iter, stored.learned_net, len(stored.history)) == (3, "m.caffemodel", 4)
    weights.rename_model(path, "other.caffemodel")
    assert weights.check_state(path, [(2,), (3,)], 2).learned_net == "other.caffemodel"
    assert schema.SolverState.FromString(path.read_bytes()).iter == 3


def test_snapshots_that_do_not_fit(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"Incorrect length of history blobs .the snapshot has 1, the solver keeps 2"):
        weights.check_state(state(tmp_path, blob(2)), [(2,), (3,)], 1)
    with pytest.raises(
        ConfigError, match=r"history blob 0 has another shape: 2 .2. in the snapshot, 3 .3. in the solver"
    ):
        weights.check_state(state(tmp_path, blob(2)), [(3,)], 1)
    with pytest.raises(ConfigError, match=r"gone.solverstate: No such file"):
        weights.check_state(tmp_path / "gone.solverstate", [], 1)
