"""Old nets and solvers in today's form, as Caffe's own upgrade makes it (V0, V1, inputs, BatchNorm, solver_type)."""

from __future__ import annotations

from typing import Any, Optional

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import schema, upgrade_v0

_V1_NAMES = (
    "NONE= ABSVAL=AbsVal ACCURACY=Accuracy ARGMAX=ArgMax BNLL=BNLL CONCAT=Concat CONTRASTIVE_LOSS=ContrastiveLoss "
    "CONVOLUTION=Convolution DECONVOLUTION=Deconvolution DATA=Data DROPOUT=Dropout DUMMY_DATA=DummyData "
    "EUCLIDEAN_LOSS=EuclideanLoss ELTWISE=Eltwise EXP=Exp FLATTEN=Flatten HDF5_DATA=HDF5Data HDF5_OUTPUT=HDF5Output "
    "HINGE_LOSS=HingeLoss IM2COL=Im2col IMAGE_DATA=ImageData INFOGAIN_LOSS=InfogainLoss INNER_PRODUCT=InnerProduct "
    "LRN=LRN MEMORY_DATA=MemoryData MULTINOMIAL_LOGISTIC_LOSS=MultinomialLogisticLoss MVN=MVN POOLING=Pooling "
    "POWER=Power RELU=ReLU SIGMOID=Sigmoid SIGMOID_CROSS_ENTROPY_LOSS=SigmoidCrossEntropyLoss SILENCE=Silence "
    "SOFTMAX=Softmax SOFTMAX_LOSS=SoftmaxWithLoss SPLIT=Split SLICE=Slice TANH=TanH WINDOW_DATA=WindowData "
    "THRESHOLD=Threshold"
)
_NUMBERS = schema.ENUMS["V1LayerParameter.LayerType"]
V1_TYPES: dict[int, str] = {_NUMBERS[old]: new for old, new in (pair.split("=") for pair in _V1_NAMES.split())}
"""V1 layer type numbers → type names."""

SOLVER_TYPES: dict[int, str] = dict(enumerate(("SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam")))
"""Solver type numbers → type names."""

_TRANSFORMED = {"DATA": "data_param", "IMAGE_DATA": "image_data_param", "WINDOW_DATA": "window_data_param"}
_TRANSFORMS = ("scale", "mean_file", "crop_size", "mirror")
_V1_RENAMED = frozenset({"layer", "type", "param", "blob_share_mode", "blobs_lr", "weight_decay"})


def upgrade_net(net: Any, where: str = "net") -> Any:
    """A new NetParameter in today's form; raises ConfigError (naming `where`) for what Caffe refuses."""
    upgraded = _copy(net)
    if any(layer.HasField("layer") for layer in net.layers):
        upgraded = upgrade_v0.to_v1(upgraded, where)
    _move_transforms(upgraded)
    if upgraded.layers:
        upgraded = _to_v2(upgraded, where)
    if upgraded.input:
        _inputs_to_layer(upgraded, where)
    for layer in upgraded.layer:
        _fix_layer(layer)
    return upgraded


def upgrade_solver(solver: Any, where: str = "solver") -> Any:
    """A new SolverParameter in today's form, its inline nets too; raises ConfigError (naming `where`)."""
    upgraded = _copy(solver)
    if upgraded.HasField("solver_type"):
        if upgraded.HasField("type"):
            raise ConfigError(f"{where}: both solver_type and type are given, expected one: remove the old solver_type")
        upgraded.type = SOLVER_TYPES[upgraded.solver_type]
        upgraded.ClearField("solver_type")
    for name in ("net_param", "train_net_param"):
        if upgraded.HasField(name):
            getattr(upgraded, name).CopyFrom(upgrade_net(getattr(upgraded, name), f"{where}: {name}"))
    for net in upgraded.test_net_param:
        net.CopyFrom(upgrade_net(net, f"{where}: test_net_param"))
    return upgraded


def _copy(message: Any) -> Any:
    copied = type(message)()
    copied.CopyFrom(message)
    return copied


def _move_transforms(net: Any) -> None:
    """V1 data layers: scale, mean_file, crop_size and mirror become transform_param."""
    old = {_NUMBERS[name]: param for name, param in _TRANSFORMED.items()}
    layers = [(layer, getattr(layer, old[layer.type])) for layer in net.layers if layer.type in old]
    if any(param.HasField(name) for _, param in layers for name in _TRANSFORMS):
        for layer, param in layers:
            _move_transform(layer, param)


def _move_transform(layer: Any, param: Any) -> None:
    layer.transform_param.SetInParent()
    for name in _TRANSFORMS:
        if param.HasField(name):
            setattr(layer.transform_param, name, getattr(param, name))
            param.ClearField(name)


def _to_v2(net: Any, where: str) -> Any:
    if net.layer:
        raise ConfigError(
            f"{where}: the net has both 'layer' and 'layers' fields, expected one kind: write every layer as 'layer'"
        )
    upgraded = _copy(net)
    upgraded.ClearField("layers")
    for layer in net.layers:
        _layer_to_v2(layer, upgraded.layer.add())
    return upgraded


def _layer_to_v2(old: Any, new: Any) -> None:
    for field, value in old.ListFields():
        if field.name in _V1_RENAMED:
            continue
        if schema.MESSAGES["V1LayerParameter"][field.name].repeated:
            getattr(new, field.name).MergeFrom(value)
        elif hasattr(value, "CopyFrom"):
            getattr(new, field.name).CopyFrom(value)
        else:
            setattr(new, field.name, value)
    if old.HasField("type"):
        new.type = V1_TYPES[old.type]
    _params_to_v2(old, new)


def _params_to_v2(old: Any, new: Any) -> None:
    columns = (("name", old.param), ("share_mode", old.blob_share_mode), ("lr_mult", old.blobs_lr))
    for name, values in (*columns, ("decay_mult", old.weight_decay)):
        for index, value in enumerate(values):
            if index == len(new.param):
                new.param.add()
            setattr(new.param[index], name, value)


def _inputs_to_layer(net: Any, where: str) -> None:
    """`input` with input_shape or input_dim becomes one Input layer in front."""
    if net.input_shape or net.input_dim:
        layers = [_input_layer(net, where), *(_copy(layer) for layer in net.layer)]
        net.ClearField("layer")
        net.layer.extend(layers)
    for name in ("input", "input_shape", "input_dim"):
        net.ClearField(name)


def _input_layer(net: Any, where: str) -> Any:
    layer = schema.LayerParameter(name="input", type="Input", top=net.input)
    for index in range(len(net.input)):
        layer.input_param.shape.add().dim.extend(_input_dims(net, index, where))
    return layer


def _input_dims(net: Any, index: int, where: str) -> list[int]:
    if net.input_shape:
        shape: Optional[Any] = net.input_shape[index] if index < len(net.input_shape) else None
        dims = list(shape.dim) if shape is not None else None
    else:
        dims = list(net.input_dim[4 * index : 4 * index + 4]) if len(net.input_dim) >= 4 * index + 4 else None
    if dims is None:
        raise ConfigError(
            f"{where}: input {net.input[index]!r} has no shape: "
            "expected one input_shape, or four input_dim, for each input"
        )
    return dims


def _fix_layer(layer: Any) -> None:
    """BatchNorm's three params never learn; a fork's ceil_mode becomes round_mode."""
    if layer.type == "BatchNorm" and len(layer.param) == 3:
        for param in layer.param:
            param.lr_mult = param.decay_mult = 0.0
    if layer.HasField("pooling_param") and layer.pooling_param.HasField("ceil_mode"):
        rounding = schema.ENUMS["PoolingParameter.RoundMode"]
        layer.pooling_param.round_mode = rounding["CEIL" if layer.pooling_param.ceil_mode else "FLOOR"]
        layer.pooling_param.ClearField("ceil_mode")
