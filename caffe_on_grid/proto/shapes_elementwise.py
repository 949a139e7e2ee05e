"""Shapes of layers whose top is like their bottom, and of those that multiply with weights."""

from __future__ import annotations

from typing import Any

from caffe_on_grid.proto import schema
from caffe_on_grid.proto.shapes_base import (
    Given,
    Made,
    Rule,
    Shape,
    axis_of,
    bias,
    count,
    legacy,
    need,
    same,
)

_OPERATION = schema.ENUMS["EltwiseParameter.EltwiseOp"]


def _eltwise(given: Given) -> Made:
    param, shape = given.layer.eltwise_param, given.first
    given_each = len(param.coeff) in (0, len(given.bottoms))
    need(given_each, f"{len(param.coeff)} coeff for {len(given.bottoms)} bottoms: give none, or one for each")
    need(not (param.coeff and param.operation == _OPERATION["PROD"]), "coeff is for sums, not for PROD")
    for at, other in enumerate(given.bottoms):
        need(other == shape, f"all bottoms must have one shape, and bottom {at} differs from bottom 0")
    return Made((shape,), buffers=count(shape) if param.operation == _OPERATION["MAX"] else 0)


def _inner_product(given: Given) -> Made:
    param, shape = given.layer.inner_product_param, given.first
    axis = axis_of(param.axis, shape)
    inputs, outputs, rows = count(shape[axis:]), param.num_output, count(shape[:axis])
    weight = (inputs, outputs) if param.transpose else (outputs, inputs)
    return Made(
        tops=((*shape[:axis], outputs),),
        params=(weight, *bias(param.bias_term, (outputs,))),
        flops=2 * rows * inputs * outputs,
        buffers=rows if param.bias_term else 0,
    )


def _embed(given: Given) -> Made:
    param, shape = given.layer.embed_param, given.first
    need(param.num_output > 0, "num_output must be > 0")
    need(param.input_dim > 0, "input_dim must be > 0")
    params = ((param.input_dim, param.num_output), *bias(param.bias_term, (param.num_output,)))
    return Made(((*shape, param.num_output),), params, buffers=count(shape) if param.bias_term else 0)


def _batch_norm(given: Given) -> Made:
    shape, layer = given.first, given.layer
    need(len(shape) > 1, "there must be an axis of channels after the first")
    for spec in layer.param:
        need(not spec.lr_mult, f"its sums are not learnt, and a param has lr_mult {spec.lr_mult:g}: set it to 0")
    own = 2 * count(shape) + shape[0] * shape[1]
    return Made((shape,), ((shape[1],), (shape[1],), (1,)), buffers=own)


def _span(param: Any, shape: Shape) -> Shape:
    """The axes that Scale and Bias give a parameter: `num_axes` of them from `axis` on."""
    first = axis_of(param.axis, shape)
    need(param.num_axes >= -1, "num_axes must be >= 0, or -1 for all that follow")
    last = len(shape) if param.num_axes == -1 else first + param.num_axes
    need(last <= len(shape), f"axis {first} + num_axes {param.num_axes} is beyond the {len(shape)} axes")
    return shape[first:last]


def _fitted(param: Any, shape: Shape, other: Shape) -> Shape:
    """A second bottom of Scale and Bias must be a run of the first's axes, from `axis` on."""
    first = axis_of(param.axis, shape) if other else 0
    need(shape[first : first + len(other)] == other, f"bottom 1 must be the axes of bottom 0 from axis {first} on")
    return other


def _scale(given: Given) -> Made:
    param, shape = given.layer.scale_param, given.first
    single = len(given.bottoms) == 1
    factor = _span(param, shape) if single else _fitted(param, shape, given.bottoms[1])
    params = bias(single, factor)
    if param.bias_term:
        axis_of(param.axis, shape)
        params += (factor,)
    in_place = given.layer.top[0] == given.layer.bottom[0]
    return Made((shape,), params, buffers=count(shape) if in_place else 0)


def _bias(given: Given) -> Made:
    param, shape = given.layer.bias_param, given.first
    if len(given.bottoms) > 1:
        _fitted(param, shape, given.bottoms[1])
        return Made((shape,))
    return Made((shape,), (_span(param, shape),))


def _prelu(given: Given) -> Made:
    shape = given.first
    need(len(shape) >= 2, f"the input must have at least 2 axes, not {len(shape)}")
    legacy(shape, 0)
    in_place = given.layer.top[0] == given.layer.bottom[0]
    own = 2 * count(shape[1:]) + (count(shape) if in_place else 0)
    return Made((shape,), (() if given.layer.prelu_param.channel_shared else (shape[1],),), buffers=own)


def _dropout(given: Given) -> Made:
    return Made((given.first,), buffers=count(given.first) if given.train else 0)


def _softmax(given: Given) -> Made:
    axis = axis_of(given.layer.softmax_param.axis, given.first)
    return Made((given.first,), buffers=count(given.first) // max(1, given.first[axis]))


def _mvn(given: Given) -> Made:
    return Made((legacy(given.first, 0),), buffers=count(given.first))


_NEURONS = ("BNLL", "Clip", "ELU", "Exp", "Log", "Power", "ReLU", "Sigmoid", "Swish", "TanH")

RULES: dict[str, Rule] = {
    **{name: Rule(same) for name in _NEURONS},
    "AbsVal": Rule(same, in_place=False),
    "BatchNorm": Rule(_batch_norm, learns=False),
    "Bias": Rule(_bias, (1, 2), fillers=("bias_param", "filler")),
    "Dropout": Rule(_dropout),
    "Eltwise": Rule(_eltwise, (2, None)),
    "Embed": Rule(_embed, backward=False, fillers=("embed_param", "weight_filler", "bias_filler")),
    "InnerProduct": Rule(_inner_product, fillers=("inner_product_param", "weight_filler", "bias_filler")),
    "MVN": Rule(_mvn),
    "PReLU": Rule(_prelu, fillers=("prelu_param", "filler")),
    "Scale": Rule(_scale, (1, 2), fillers=("scale_param", "filler", "bias_filler")),
    "Softmax": Rule(_softmax),
    "Threshold": Rule(same, backward=False),
}
