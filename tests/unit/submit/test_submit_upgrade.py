"""Old nets, solvers and models in, today's form out; tests/oracle holds the models against Caffe's own tool."""

from __future__ import annotations

from pathlib import Path

import pytest

from caffe_on_grid.errors import ConfigError, GridError, UsageError
from caffe_on_grid.proto import schema, text, weights
from caffe_on_grid.proto import upgrade as forms
from caffe_on_grid.submit import upgrade

DATA = Path(__file__).resolve().parents[2] / "data" / "proto"


def rewritten(source: Path, target: Path, **how: bool) -> list[str]:
    return upgrade.rewrite(str(source), str(target), **how)


@pytest.mark.parametrize("name", ["v0", "v1", "inputs", "input_dims"])
def test_nets(name: str, tmp_path: Path) -> None:
    source, target = DATA / f"{name}.prototxt", tmp_path / "out.prototxt"
    if name == "v0":
        with pytest.raises(ConfigError, match=r"written, but not all of .* layer 'odd': type 'relu' has no num_output"):
            rewritten(source, target)
    else:
        assert rewritten(source, target) == []
    old = text.parse(schema.NetParameter, source.read_text(), name)
    assert text.parse(schema.NetParameter, target.read_text(), "out") == forms.upgrade_net(old)


def test_what_old_types_lack_is_named(tmp_path: Path) -> None:
    source, target = tmp_path / "in.prototxt", tmp_path / "out.prototxt"
    source.write_text(
        'input: "d" input_dim: 1 input_dim: 1 input_dim: 9 input_dim: 9 '
        'layers { bottom: "d" top: "e" layer { name: "a" type: "im2col" pad: 1 kernelsize: 3 new_num: 1 } }'
        'layers { bottom: "e" top: "f" layer { name: "b" type: "conv" pad: 1 kernelsize: 3 num_output: 2 } }'
    )
    wanted = f"{target}: written, but not all of {source} is in it: layer 'a': type 'im2col' has no pad, kernelsize: "
    with pytest.raises(ConfigError) as caught:
        rewritten(source, target)
    assert str(caught.value) == wanted + "see to them by hand"
    net = text.parse(schema.NetParameter, target.read_text(), "out")
    assert [layer.type for layer in net.layer] == ["Input", "Im2col", "Convolution"]
    assert not net.layer[1].HasField("convolution_param") and net.layer[2].convolution_param.kernel_size == [3]


def test_solvers_and_what_is_in_todays_form(tmp_path: Path) -> None:
    once, twice = tmp_path / "once.prototxt", tmp_path / "twice.prototxt"
    assert rewritten(DATA / "solver_old.prototxt", once) == []
    assert "solver_type" not in once.read_text() and 'type: "' in once.read_text()
    once.write_text("# kept\n" + once.read_text())
    assert rewritten(once, twice) == [f"{once} is in today's form already: written as it is"]
    assert twice.read_bytes() == once.read_bytes()


def old_model(path: Path) -> None:
    net = text.parse(schema.NetParameter, (DATA / "v1.prototxt").read_text(), "v1")
    layer = next(layer for layer in net.layers if layer.name == "conv")
    layer.blobs.add(num=4, channels=2, height=3, width=3).data.extend(range(72))
    path.write_bytes(net.SerializeToString())


def test_models_keep_their_blobs(tmp_path: Path) -> None:
    old, new = tmp_path / "old.caffemodel", tmp_path / "new.caffemodel"
    old_model(old)
    assert rewritten(old, new) == []
    net = schema.NetParameter.FromString(new.read_bytes())
    assert not net.layers and [layer.type for layer in net.layer][3:5] == ["Convolution", "InnerProduct"]
    shape, values = weights.blob_array(net.layer[3].blobs[0])
    assert shape == (4, 2, 3, 3) and values.tolist() == list(range(72))
    assert rewritten(new, tmp_path / "again.caffemodel") != []
    assert (tmp_path / "again.caffemodel").read_bytes() == new.read_bytes()


def test_an_existing_file_stays_unless_told(tmp_path: Path) -> None:
    target = tmp_path / "out.prototxt"
    target.write_text("mine")
    with pytest.raises(ConfigError, match="exists; remove it, name another, or say --overwrite"):
        rewritten(DATA / "v1.prototxt", target)
    assert target.read_text() == "mine"
    rewritten(DATA / "v1.prototxt", target, overwrite=True)
    assert "layers" not in target.read_text()
    rewritten(target, target, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out.prototxt"]


def test_unknown_fields(tmp_path: Path) -> None:
    source, target = tmp_path / "in.prototxt", tmp_path / "out.prototxt"
    source.write_text((DATA / "v1.prototxt").read_text() + "\nnew_field: 3\n")
    with pytest.raises(ConfigError, match=r"in\.prototxt:\d+:1: NetParameter has no field named 'new_field'"):
        rewritten(source, target)
    assert not target.exists()
    (remark,) = rewritten(source, target, ignore_unknown=True)
    assert remark.endswith("has no field named 'new_field': left out")
    assert "new_field" not in target.read_text()


@pytest.mark.parametrize(
    ("name", "content", "target", "error", "words"),
    [
        ("a.caffemodel", b"\xff\xff", "b.caffemodel", ConfigError, "not a .caffemodel"),
        ("a.caffemodel", b"", "b.caffemodel", ConfigError, "it holds no layers"),
        ("a.caffemodel", b"", "b.prototxt", UsageError, "is binary and stays so"),
        ("a.prototxt", b"", "b.caffemodel", UsageError, "is text and stays so"),
        ("a.caffemodel.h5", b"", "b.caffemodel.h5", UsageError, "nothing to upgrade"),
        ("a.prototxt", b"x: 1", "b.prototxt", ConfigError, "neither a net"),
        ("a.prototxt", b"\x89PNG\r\n", "b.prototxt", ConfigError, "unexpected character"),
        ("a.prototxt", b"layers { layer { type: 'odd' } }", "b.prototxt", ConfigError, "unknown old-style type 'odd'"),
        ("a.prototxt", None, "b.prototxt", ConfigError, "no such file"),
    ],
)
def test_refused(
    name: str, content: bytes | None, target: str, error: type[GridError], words: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=words):
        rewritten(tmp_path / name, tmp_path / target)
    assert not (tmp_path / target).exists()
