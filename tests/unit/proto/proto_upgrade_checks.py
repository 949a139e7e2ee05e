"""Upgrades and weights."""

from __future__ import annotations

from proto_case import DATA, net_of, refused, solver_of

from caffe_on_grid.proto import schema, upgrade, weights


def check_upgrade_v0() -> None:
    net = upgrade.upgrade_net(net_of((DATA / "v0.prototxt").read_text()))
    layers = {layer.name: layer for layer in net.layer}
    assert [layer.name for layer in net.layer][:2] == ["input", "data"] and "pad1" not in layers and not net.layers
    assert list(layers["conv1"].convolution_param.pad) == [2] and list(layers["conv1"].bottom) == ["data"]
    assert layers["pool1"].pooling_param.pad == 1 and list(layers["pool1"].bottom) == ["conv1"]
    assert [param.lr_mult for param in layers["conv1"].param] == [1, 2] and layers["conv1"].type == "Convolution"
    assert (
        layers["data"].transform_param.mean_file == "mean.binaryproto" and layers["data"].transform_param.crop_size == 6
    )
    assert not layers["odd"].HasField("inner_product_param")


def check_upgrade_v1() -> None:
    net = upgrade.upgrade_net(net_of((DATA / "v1.prototxt").read_text()))
    layers = {layer.name: layer for layer in net.layer}
    assert layers["loss"].type == "SoftmaxWithLoss" and layers["n"].type == "" and len(net.layer) == 14
    assert layers["data"].transform_param.scale == 0.5 and not layers["data"].data_param.HasField("scale")
    conv = layers["conv"].param
    assert [p.name for p in conv] == ["w", "b"] and conv[0].share_mode == 1 and not conv[1].HasField("share_mode")
    assert [p.decay_mult for p in conv] == [1, 0]


def check_upgrade_every_v1_type() -> None:
    numbers = set(schema.ENUMS["V1LayerParameter.LayerType"].values())
    assert set(upgrade.V1_TYPES) == numbers and upgrade.V1_TYPES[21] == "SoftmaxWithLoss"


def check_upgrade_leaves_its_argument() -> None:
    net = net_of((DATA / "v1.prototxt").read_text())
    before = net.SerializeToString(deterministic=True)
    upgraded = upgrade.upgrade_net(net)
    assert net.SerializeToString(deterministic=True) == before and upgrade.upgrade_net(upgraded) == upgraded


def check_upgrade_ceil_mode() -> None:
    rounding = schema.ENUMS["PoolingParameter.RoundMode"]
    for word, wanted in (("true", "CEIL"), ("false", "FLOOR")):
        net = upgrade.upgrade_net(net_of(f'layer {{ type: "Pooling" pooling_param {{ ceil_mode: {word} }} }}'))
        pooling = net.layer[0].pooling_param
        assert pooling.round_mode == rounding[wanted] and not pooling.HasField("ceil_mode")


def check_upgrade_refusals() -> None:
    cases = (
        ('layers { name: "a" } layer { name: "b" }', "both 'layer' and 'layers'"),
        ('layers { layer { name: "a" type: "warp" } }', "layer 'a': unknown old-style type 'warp'"),
        ('layers { layer { name: "a" type: "relu" } bottom: "x" }', "unknown bottom blob 'x' of layer 'a'"),
        ('input: "x" input_dim: 1 input_dim: 2', "input 'x' has no shape"),
        ('input: "x" input: "y" input_shape { dim: 1 }', "input 'y' has no shape"),
        (
            'input: "x" layers { layer { name: "p" type: "padding" } bottom: "x" top: "p" }'
            ' layers { layer { name: "r" type: "relu" } bottom: "p" top: "r" }',
            "padding layer 'p' feeds 'r'",
        ),
    )
    for source, wanted in cases:
        message = refused(upgrade.upgrade_net, net_of(source), "old.prototxt")
        assert wanted in message and message.startswith("old.prototxt: "), message


def check_upgrade_solver() -> None:
    solver = upgrade.upgrade_solver(solver_of('solver_type: RMSPROP net_param { layers { name: "r" type: RELU } }'))
    assert solver.type == "RMSProp" and not solver.HasField("solver_type") and solver.net_param.layer[0].type == "ReLU"
    assert "both solver_type and type" in refused(upgrade.upgrade_solver, solver_of('solver_type: SGD type: "SGD"'))


def check_weights_foreign_fields() -> None:
    blob = schema.BlobProto(num=1, channels=1, height=2, width=2, double_data=[1, 2, 3, 4]).SerializeToString()
    foreign = b"\x8a\x09\x02\xff\xff" + b"\xaa\x0a\x03\x0d\x01\x02"  # 145 and 165, as no message of Caffe's reads them
    layer = b"\x0a\x01c" + b"\x12\x04Conv" + foreign + b"\x3a" + bytes([len(blob)]) + blob
    model = weights.read_model(b"\xa2\x06" + bytes([len(layer)]) + layer)
    assert [(found.name, found.type) for found in model.layer] == [("c", "Conv")]
    shape, values = weights.blob_array(model.layer[0].blobs[0])
    assert shape == (1, 1, 2, 2) and values.tolist() == [1, 2, 3, 4] and values.dtype == "float32"


def check_weights_old_layers() -> None:
    net = net_of(
        'layers { name: "v1" type: INNER_PRODUCT bottom: "x" blobs { shape { dim: 2 } data: [1, 2] } }'
        ' layers { layer { name: "v0" type: "conv" blobs { num: 1 channels: 1 height: 1 width: 2 data: [3, 4] } }'
        ' top: "t" }'
        ' layers { layer { name: "pad" type: "padding" } }'
    )
    unknown = net.SerializeToString() + b"\x12\x06\x22\x01f\x28\xe7\x07"  # a V1 layer "f" of a fork's type 999
    model = weights.read_model(unknown)
    assert [(x.name, x.type) for x in model.layer] == [("v1", "InnerProduct"), ("v0", "Convolution"), ("f", "")]
    assert weights.blob_array(model.layer[0].blobs[0])[0] == (2,) and list(model.layer[1].top) == ["t"]


def check_weights_refusals() -> None:
    assert "not a .caffemodel" in refused(weights.read_model, b"\x89HDF\r\n", "m.caffemodel")
    assert "holds no layers" in refused(weights.read_model, schema.SolverState(iter=3).SerializeToString())
    short = schema.BlobProto(data=[1.0])
    short.shape.dim.append(3)
    assert "layer c: 1 values for shape (3,), expected 3" in refused(weights.blob_array, short, "layer c")
