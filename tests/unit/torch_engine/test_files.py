"""Files of the torch engine: what is written is what protobuf and h5py read, and what is refused is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="the torch engine's tests need torch: run them in a Python that has it")

from contract.engine_nets import SGD, net, plan

from caffe_on_grid.engine.torch import engine, formats, hdf5
from caffe_on_grid.errors import ConfigError, EnvironmentFault, TrainingFailed
from caffe_on_grid.proto import schema, weights

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_model_is_what_protobuf_reads() -> None:
    blobs = [np.arange(6, dtype=np.float32).reshape(2, 3), np.float32(2).reshape(()), np.empty((0, 3), np.float32)]
    message = schema.NetParameter(name="n")
    message.layer.add(name="a", type="Scale", bottom=["x"], top=["y"], loss_weight=[2], phase=schema.TEST)
    formats.write_model(Path("m"), message, [blobs])
    read = schema.NetParameter.FromString(Path("m").read_bytes())
    assert read.SerializeToString() == Path("m").read_bytes()
    found = [weights.blob_array(blob) for blob in read.layer[0].blobs]
    assert [shape for shape, _ in found] == [(2, 3), (), (0, 3)]
    assert found[0][1].tolist() == [0, 1, 2, 3, 4, 5] and found[1][1].tolist() == [2]
    del read.layer[0].blobs[:]
    assert read == message


def test_two_gib_are_too_much_for_a_binary_file(monkeypatch: pytest.MonkeyPatch) -> None:
    made = engine.create(plan(SGD, net()))
    monkeypatch.setattr(formats, "LARGEST", 100)
    with pytest.raises(TrainingFailed, match="at most 2 GiB: set snapshot_format: HDF5"):
        made.save("s")
    with Path("big.caffemodel").open("wb") as file:
        file.truncate(2**31)
    with pytest.raises(ConfigError, match="2147483648 bytes; a binary one has at most 2 GiB"):
        made.load_weights(Path("big.caffemodel"))


def test_hdf5_refusals() -> None:
    made = engine.create(plan(SGD + " snapshot_format: HDF5", net()))
    saved = made.save("s")
    for name, words in (("gone.h5", "no such file"), ("bad.h5", "not one of Caffe's HDF5 files")):
        Path("bad.h5").write_bytes(b"no HDF5")
        with pytest.raises(ConfigError, match=words):
            made.load_weights(Path(name))
    wide = net()
    wide.layer[3].inner_product_param.num_output = 4
    other = engine.create(plan(SGD, wide))
    with pytest.raises(ConfigError, match=r"shape mismatch: \(3, 8\) in the file, not \(4, 8\)"):
        other.load_weights(saved.model)
    with pytest.raises(ConfigError, match=r"history blob 2: .*shape mismatch"):
        other.restore(saved.state)
    with pytest.raises(ConfigError, match="Incorrect length of history blobs"):
        engine.create(plan(SGD + ' type: "Adam"', net())).restore(saved.state)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_hdf5_is_read_or_refused(data: st.DataObject) -> None:
    """Bytes changed anywhere: other numbers, or a ConfigError."""
    made = engine.create(plan(SGD + " snapshot_format: HDF5", net()))
    saved = made.save("s")
    which = data.draw(st.sampled_from([saved.model, saved.state]))
    content = bytearray(which.read_bytes())
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=8)):
        content[at] = data.draw(st.integers(0, 255))
    which.write_bytes(content[: data.draw(st.sampled_from([len(content), len(content) // 2]))])
    try:
        made.restore(saved.state)
    except ConfigError as error:
        assert which.name in str(error)


def test_hdf5_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(EnvironmentFault, match="need h5py"):
        hdf5.write_state(Path("s.h5"), 1, "m", 0, [])


def test_layer_names_with_slashes() -> None:
    """GoogLeNet's: one lies inside the group of another."""
    message = net()
    message.layer[1].name, message.layer[3].name = "a", "a/b"
    source, target = engine.create(plan(SGD, message)), engine.create(plan(SGD, message, seed=6))
    source.save_model(Path("m.caffemodel.h5"))
    target.load_weights(Path("m.caffemodel.h5"))
    for ours, theirs in zip(source.params, target.params):
        np.testing.assert_array_equal(ours, theirs)


def test_a_batch_of_another_size_and_wrong_inputs() -> None:
    made = engine.create(plan(SGD, net(), (net(),)))
    batch = {"data": np.ones((7, 5), np.float32), "label": np.zeros(7, np.float32)}
    assert made.forward(batch, ["b"])["b"].shape == (7, 3)
    with pytest.raises(ConfigError, match=r"expects shape \(4, 5\), got \(4, 6\)"):
        made.evaluate(0, {"data": np.ones((4, 6), np.float32)})
    with pytest.raises(ConfigError, match="did you mean 'data'"):
        made.evaluate(0, {"dat": batch["data"]})


def test_inputs_are_not_changed() -> None:
    """A layer in place on an input works on the engine's own memory; read-only arrays will do."""
    message = net()
    message.layer.add(name="r", type="ReLU", bottom=["data"], top=["data"])
    layers = [message.layer[i] for i in (0, 5, 1, 2, 3, 4)]
    ordered = schema.NetParameter(layer=layers)
    made = engine.create(plan(SGD, None, (ordered,)))
    data = -np.ones((4, 5), np.float32)
    data.setflags(write=False)
    assert made.forward({"data": data}, ["data"])["data"].max() == 0 and data.max() == -1


def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(EnvironmentFault, match="--solver-mode cpu"):
        engine.create(plan(SGD, net(), gpu=99))
