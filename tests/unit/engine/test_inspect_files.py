"""What `inspect` says of files, where the runtime lacks something or the file is not what its name says."""

from __future__ import annotations

import sys

import pytest

from caffe_on_grid.errors import ConfigError, EnvironmentFault
from caffe_on_grid.worker import inspect, inspect_files


def test_hdf5_needs_h5py(monkeypatch, tmp_path) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(EnvironmentFault, match=r"x.caffemodel.h5: HDF5 files need h5py"):
        inspect_files.model_hdf5(tmp_path / "x.caffemodel.h5")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.caffemodel", "model"),
        ("a.caffemodel.h5", "model_hdf5"),
        ("a.solverstate", "state"),
        ("a.binaryproto", "mean"),
        ("net.prototxt", "net"),
        ("solver.prototxt", "solver"),
    ],
)
def test_kinds(tmp_path, name, kind) -> None:
    texts = {"net": 'name: "x" layer { name: "a" type: "ReLU" }', "solver": 'base_lr: 1 net: "x"'}
    (tmp_path / name).write_text(texts.get(kind, ""))
    assert inspect.kind_of(tmp_path / name) == kind


def test_what_cannot_be_shown(tmp_path) -> None:
    (tmp_path / "a.solverstate.h5").write_text("")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff")
    with pytest.raises(ConfigError, match="HDF5 snapshots cannot be shown"):
        inspect.kind_of(tmp_path / "a.solverstate.h5")
    with pytest.raises(ConfigError, match=r"picture.png: not a text file"):
        inspect.kind_of(tmp_path / "picture.png")


def test_bytes_that_are_no_message(tmp_path) -> None:
    bad = tmp_path / "a.solverstate"
    bad.write_bytes(b"\xff\xff\xff")
    with pytest.raises(ConfigError, match=r"a.solverstate: not a .solverstate"):
        inspect_files.state(bad)


def test_an_empty_model_is_refused(tmp_path, capsys) -> None:
    (tmp_path / "e.caffemodel").write_bytes(b"")
    assert inspect.main([str(tmp_path / "e.caffemodel")]) == 3
    assert capsys.readouterr().err.endswith("e.caffemodel: not a .caffemodel: it is empty\n")
