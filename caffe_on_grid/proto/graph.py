"""Nets as graphs: which layers a state keeps, which nets a solver names, where data enters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Optional

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import schema, text, upgrade

Read = Callable[[str], str]
"""Path as the solver writes it → the file's text; raises ConfigError where there is none."""


@dataclass(frozen=True)
class SolverNets:
    """The nets of a solver, upgraded and filtered, in Caffe's order; `state` is set in each."""

    train: Any
    tests: tuple[Any, ...]


@dataclass(frozen=True)
class DataLayer:
    """A data layer whose records our own source can give."""

    name: str
    type: str
    data_top: str
    label_top: Optional[str]
    source: str
    backend: str
    batch_size: int
    transform: Any
    """TransformationParameter."""
    layer: Any
    """LayerParameter."""


@dataclass(frozen=True)
class LabelUse:
    """A layer that compares scores with labels of a data layer: each label must be below the scores' size on `axis`."""

    layer: str
    type: str
    label_blob: str
    score_blob: str
    axis: int
    ignore_label: Optional[int]


def meets(state: Any, rule: Any) -> bool:
    """Whether a NetState meets a NetStateRule, as Net::StateMeetsRule decides."""
    stages = set(state.stage)
    return (
        (not rule.HasField("phase") or rule.phase == state.phase)
        and (not rule.HasField("min_level") or state.level >= rule.min_level)
        and (not rule.HasField("max_level") or state.level <= rule.max_level)
        and stages.issuperset(rule.stage)
        and stages.isdisjoint(rule.not_stage)
    )


def filter_net(net: Any, state: Any) -> Any:
    """A new net with the layers that `state` (used as it is, in place of net.state) keeps; each layer's phase is set.

    Raises ConfigError for a layer with include and exclude rules.
    """
    kept = _without_layers(net)
    kept.state.CopyFrom(state)
    for layer in net.layer:
        if _included(layer, state):
            kept.layer.add().CopyFrom(layer)
            if not layer.HasField("phase"):
                kept.layer[-1].phase = state.phase
    return kept


def _without_layers(net: Any) -> Any:
    """A copy of everything but the layers (which may hold many blobs)."""
    bare = schema.NetParameter()
    for field, value in net.ListFields():
        if field.name == "layer":
            continue
        if hasattr(value, "CopyFrom"):
            getattr(bare, field.name).CopyFrom(value)
        elif hasattr(value, "MergeFrom"):
            getattr(bare, field.name).MergeFrom(value)
        else:
            setattr(bare, field.name, value)
    return bare


def _included(layer: Any, state: Any) -> bool:
    if layer.include and layer.exclude:
        raise ConfigError(f"layer {layer.name!r} has include and exclude rules, expected one kind: Caffe refuses both")
    if layer.include:
        return any(meets(state, rule) for rule in layer.include)
    return not any(meets(state, rule) for rule in layer.exclude)


_TRAIN_FIELDS = ("net", "net_param", "train_net", "train_net_param")


def solver_nets(solver: Any, read: Read, where: str = "solver") -> SolverNets:
    """The TRAIN net and the TEST nets of `solver`, as Solver::InitTrainNet and InitTestNets make them.

    `read` gives the text of a net file. Raises ConfigError (naming `where`) where Caffe refuses the solver, and for
    what `read` and the parser refuse.
    """
    train = _train_net(solver, read, where)
    tests = _test_nets(solver, read, where)
    states = list(solver.test_state) or [schema.NetState()] * len(tests)
    if len(states) != len(tests):
        raise ConfigError(
            f"{where}: {len(states)} test_state for {len(tests)} TEST nets, expected none or one for each TEST net"
        )
    if tests and solver.test_interval <= 0:
        raise ConfigError(
            f"{where}: test_interval is {solver.test_interval}, expected > 0 as there are {len(tests)} TEST nets"
        )
    return SolverNets(
        _in_state(train, schema.TRAIN, solver.train_state),
        tuple(_in_state(net, schema.TEST, state) for net, state in zip(tests, states)),
    )


def _in_state(net: Any, phase: int, more: Any) -> Any:
    state = schema.NetState(phase=phase)
    state.MergeFrom(net.state)
    state.MergeFrom(more)
    return filter_net(net, state)


def read_net(path: str, read: Read) -> Any:
    """The net in the file `path`, upgraded; raises ConfigError with the place of what is wrong."""
    return upgrade.upgrade_net(text.parse(schema.NetParameter, read(path), path), path)


def _train_net(solver: Any, read: Read, where: str) -> Any:
    given = [name for name in _TRAIN_FIELDS if solver.HasField(name)]
    if len(given) != 1:
        found = f"the solver has {' and '.join(given)}" if given else "the solver names no net"
        raise ConfigError(f"{where}: {found}, expected exactly one of {', '.join(_TRAIN_FIELDS)}")
    return _net(solver, given[0], read, where)


def _net(solver: Any, name: str, read: Read, where: str) -> Any:
    value = getattr(solver, name)
    return read_net(value, read) if isinstance(value, str) else upgrade.upgrade_net(value, f"{where}: {name}")


def _test_nets(solver: Any, read: Read, where: str) -> list[Any]:
    """test_net_param, then test_net, then the common net for each test_iter that is left."""
    nets = [upgrade.upgrade_net(net, f"{where}: test_net_param") for net in solver.test_net_param]
    nets += [read_net(path, read) for path in solver.test_net]
    common = [name for name in ("net_param", "net") if solver.HasField(name)]
    left = len(solver.test_iter) - len(nets)
    if left < 0 or (left and not common):
        wanted = f"{'at least ' if common else ''}{len(nets)}, one for each TEST net"
        raise ConfigError(f"{where}: {len(solver.test_iter)} test_iter, expected {wanted}")
    return nets + [_net(solver, name, read, where) for name in common if left] * left


UNSUPPORTED = ("ImageData", "HDF5Data", "WindowData", "MemoryData", "CoSData")
"""Types whose records come from outside the net, and that no source of ours gives yet."""


def data_layers(net: Any) -> tuple[DataLayer, ...]:
    """The net's layers that are fed by our sources, in order; raises ConfigError for a data layer that cannot be."""
    return tuple(_data_layer(layer) for layer in net.layer if _is_data(layer))


def _is_data(layer: Any) -> bool:
    return layer.type == "Data" or layer.type in UNSUPPORTED


def _data_layer(layer: Any) -> DataLayer:
    param, shown = layer.data_param, f"layer {layer.name!r} of type {layer.type!r}"
    if layer.type in UNSUPPORTED:
        raise ConfigError(f"{shown}: this data source is not supported yet; {_CONVERT}")
    if param.HasField("backend") and param.backend != schema.LMDB:  # V0 nets cannot name one: their source tells
        raise ConfigError(f"{shown}: backend LEVELDB is not supported yet; {_CONVERT}")
    if not 1 <= len(layer.top) <= 2:
        raise ConfigError(f"{shown} has {len(layer.top)} tops, expected one (data) or two (data, label)")
    if not param.source or not param.batch_size:
        lacking = "source" if not param.source else "batch_size"
        raise ConfigError(f"{shown}: data_param has no {lacking}")
    label = layer.top[1] if len(layer.top) == 2 else None
    where = (layer.name, layer.type, layer.top[0], label)
    return DataLayer(*where, param.source, "LMDB", param.batch_size, layer.transform_param, layer)


_CONVERT = "write the records as an LMDB with `caffe-on-grid convert` and use a Data layer with backend: LMDB"


def replace_data(net: Any, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """A new net whose data layers are Input layers (same name and tops) of the shapes given by top name.

    Raises ConfigError for a top without a shape.
    """
    data_layers(net)
    replaced = _without_layers(net)
    for layer in net.layer:
        replaced.layer.add().CopyFrom(_input(layer, shapes) if _is_data(layer) else layer)
    return replaced


def _input(layer: Any, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    made = schema.LayerParameter(name=layer.name, type="Input", top=layer.top)
    if layer.HasField("phase"):
        made.phase = layer.phase
    for top in layer.top:
        if top not in shapes:
            raise ConfigError(f"layer {layer.name!r}: no shape is known for its top {top!r}")
        made.input_param.shape.add().dim.extend(shapes[top])
    return made


def has_python_layer(net: Any) -> list[str]:
    """Names of the net's Python layers."""
    return [layer.name for layer in net.layer if layer.type == "Python"]


_AXES: dict[str, Callable[[Any], int]] = {
    "Accuracy": lambda layer: int(layer.accuracy_param.axis),
    "HingeLoss": lambda layer: 1,
    "InfogainLoss": lambda layer: int(layer.infogain_loss_param.axis),
    "MultinomialLogisticLoss": lambda layer: 1,
    "SoftmaxWithLoss": lambda layer: int(layer.softmax_param.axis),
}
"""Types that take scores and integer labels → the scores' class axis."""


def label_uses(net: Any) -> list[LabelUse]:
    """Where the labels of the net's Data layers are used as class numbers (ask before `replace_data`)."""
    labels = {layer.top[1] for layer in net.layer if layer.type == "Data" and len(layer.top) > 1}
    return [
        LabelUse(layer.name, layer.type, layer.bottom[1], layer.bottom[0], _AXES[layer.type](layer), _ignored(layer))
        for layer in net.layer
        if layer.type in _AXES and len(layer.bottom) > 1 and layer.bottom[1] in labels
    ]


def _ignored(layer: Any) -> Optional[int]:
    param = layer.accuracy_param if layer.type == "Accuracy" else layer.loss_param
    return int(param.ignore_label) if param.HasField("ignore_label") else None
