"""One-line warnings about solvers and nets that Caffe accepts and that do not do what they seem to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from caffe_on_grid.proto.graph import SolverNets

_WEIGHTED = {
    "Convolution": "convolution_param",
    "Deconvolution": "convolution_param",
    "InnerProduct": "inner_product_param",
    "Embed": "embed_param",
}
"""Types of a weight and a bias → their parameter message."""
_OLD_TRANSFORMS = ("scale", "mean_file", "crop_size", "mirror")
_DATA = {"Data": "data_param", "ImageData": "image_data_param"}


def warnings(solver: Any, nets: SolverNets) -> list[str]:
    """What is worth a word, in order: the solver first, then the TRAIN net's layers, then each TEST net."""
    found = [line for rule in _SOLVER_RULES for line in rule(solver)]
    found += [line for rule in _TRAIN_RULES for line in rule(solver, nets.train)]
    found += [line for index, net in enumerate(nets.tests) for line in _test_net(index, net)]
    return list(dict.fromkeys(found))


def _momentum(solver: Any) -> Iterator[str]:
    if solver.type in ("AdaGrad", "RMSProp") and solver.momentum:
        yield f"solver: type {solver.type} with momentum {solver.momentum:g}: Caffe refuses this; remove momentum"
    if solver.type == "Adam" and not solver.momentum:
        yield "solver: type Adam without momentum: beta1 is 0; momentum: 0.9 is the usual value"


def _rate(solver: Any) -> Iterator[str]:
    if solver.lr_policy in ("step", "multistep", "exp") and not solver.gamma:
        yield f"solver: lr_policy {solver.lr_policy!r} without gamma: the rate becomes 0; set gamma"
    if not solver.base_lr:
        yield "solver: base_lr is 0: nothing learns; set base_lr"
    if solver.lr_policy == "sigmoid" and solver.gamma > 0:
        yield "solver: lr_policy 'sigmoid' with gamma > 0 makes the rate rise from 0 to base_lr"
    yield from _stepvalues(solver)


def _stepvalues(solver: Any) -> Iterator[str]:
    values = list(solver.stepvalue)
    if values and solver.lr_policy != "multistep":
        yield f"solver: stepvalue has no effect with lr_policy {solver.lr_policy!r}; 'multistep' uses it"
    elif values != sorted(values):
        yield "solver: stepvalue is not in rising order: each value is waited for in the order written"
    elif solver.max_iter and any(value >= solver.max_iter for value in values):
        late = ", ".join(str(value) for value in values if value >= solver.max_iter)
        yield f"solver: stepvalue {late} is not reached before max_iter {solver.max_iter}"


def _intervals(solver: Any) -> Iterator[str]:
    if solver.snapshot > solver.max_iter > 0:
        yield f"solver: snapshot {solver.snapshot} > max_iter {solver.max_iter}: no snapshot before the end"
    if solver.test_interval > solver.max_iter > 0:
        yield f"solver: test_interval {solver.test_interval} > max_iter {solver.max_iter}: no test but at the start"
    if solver.test_interval and not solver.test_iter:
        yield "solver: test_interval without test_iter: there are no TEST nets; set test_iter"
    if 0 in solver.test_iter:
        yield "solver: test_iter 0 makes a test one pass over the source (in Caffe: nothing); set test_iter"
    if solver.clip_gradients >= 0 and solver.iter_size > 1:
        yield "solver: clip_gradients bounds the gradient summed over iter_size passes, as in Caffe, not their mean"


_SOLVER_RULES: tuple[Callable[[Any], Iterator[str]], ...] = (_momentum, _rate, _intervals)


def _learns(layer: Any, index: int) -> bool:
    return len(layer.param) <= index or layer.param[index].lr_mult != 0


def _zero_weights(solver: Any, net: Any) -> Iterator[str]:
    for layer in net.layer:
        filler = getattr(layer, _WEIGHTED[layer.type]).weight_filler if layer.type in _WEIGHTED else None
        if filler is not None and filler.type == "constant" and filler.value == 0 and _learns(layer, 0):
            yield f"layer {layer.name!r}: without a weight_filler its weights start at 0 unless -weights brings them"


def _short_params(solver: Any, net: Any) -> Iterator[str]:
    for layer in net.layer:
        biased = layer.type in _WEIGHTED and getattr(layer, _WEIGHTED[layer.type]).bias_term
        if biased and len(layer.param) == 1 and layer.param[0].lr_mult != 1:
            rate = f"{layer.param[0].lr_mult:g}"
            yield f"layer {layer.name!r}: one param gives the weight lr_mult {rate}, the bias learns with lr_mult 1"


def _old_transforms(solver: Any, net: Any) -> Iterator[str]:
    for layer in net.layer:
        param = getattr(layer, _DATA[layer.type]) if layer.type in _DATA else None
        for name in _OLD_TRANSFORMS:
            if param is not None and param.HasField(name):
                yield f"layer {layer.name!r}: {_DATA[layer.type]}.{name} has no effect in Caffe; use transform_param"


def _no_loss(solver: Any, net: Any) -> Iterator[str]:
    if not any(layer.type.endswith("Loss") or any(layer.loss_weight) for layer in net.layer):
        yield "the TRAIN net has no loss: nothing learns; add a loss layer or a loss_weight"


def _parameter_layers(solver: Any, net: Any) -> Iterator[str]:
    for layer in net.layer:
        if layer.type == "Parameter" and solver.iter_size > 1:
            yield f"layer {layer.name!r}: a Parameter layer keeps the last of {solver.iter_size} (iter_size) gradients"


_TRAIN_RULES: tuple[Callable[[Any, Any], Iterator[str]], ...] = (
    _no_loss,
    _zero_weights,
    _short_params,
    _old_transforms,
    _parameter_layers,
)


def _test_net(index: int, net: Any) -> Iterator[str]:
    if all(layer.bottom for layer in net.layer):
        yield f"TEST net {index} has no layer that brings data: give it a data layer with include {{ phase: TEST }}"
    for layer in net.layer:
        batch_norm = layer.batch_norm_param
        if layer.type == "BatchNorm" and batch_norm.HasField("use_global_stats") and not batch_norm.use_global_stats:
            yield f"layer {layer.name!r}: use_global_stats: false makes TEST net {index} use each batch's statistics"
