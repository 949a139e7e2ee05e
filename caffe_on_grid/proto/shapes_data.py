"""Shapes of layers without bottoms: inputs, parameters, dummies, and data layers as far as their fields tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from caffe_on_grid.proto.shapes_base import Given, Made, Refused, Rule, Shape, need

KINDS = ("Data", "ImageData", "MemoryData", "WindowData")
"""Types of data and labels: the shape of the first top tells the second's."""


class Unknown(Refused):
    """A shape that nothing in the net tells: it must be given."""


def _input(given: Given) -> Made:
    shapes = [tuple(int(n) for n in shape.dim) for shape in given.layer.input_param.shape]
    if not shapes:
        raise Unknown("its input_param has no shape")
    return Made(_for_each(shapes, given.tops, "shape"))


def _for_each(values: Sequence[Any], tops: int, name: str) -> tuple[Any, ...]:
    need(len(values) in (1, tops), f"{len(values)} {name} for {tops} tops: give one, or one for each")
    return tuple(values) if len(values) == tops else tuple(values) * tops


def _dummy(given: Given) -> Made:
    param = given.layer.dummy_data_param
    need(len(param.data_filler) in (0, 1, given.tops), f"{len(param.data_filler)} data_filler for {given.tops} tops")
    old = [list(getattr(param, name)) for name in ("num", "channels", "height", "width")]
    if not any(old):
        return Made(_for_each([tuple(int(n) for n in s.dim) for s in param.shape], given.tops, "shape"))
    need(not param.shape, "shape and num, channels, height, width exclude each other")
    sizes = [_for_each(values, given.tops, name) for values, name in zip(old, ("num", "channels", "height", "width"))]
    return Made(tuple(zip(*sizes)))


def _parameter(given: Given) -> Made:
    shape = tuple(int(n) for n in given.layer.parameter_param.shape.dim)
    return Made((shape,), (shape,))


def _memory(given: Given) -> Made:
    param = given.layer.memory_data_param
    shape = (param.batch_size, param.channels, param.height, param.width)
    need(min(shape) > 0, "batch_size, channels, height and width must be > 0")
    return Made((shape, shape[:1]))


def _records(batch: int, transform: Any, channels: Optional[int], size: Optional[Shape], tops: int) -> Made:
    """Data and labels of `batch` records: cropped by the transform, else of the [H, W] `size`."""
    need(batch > 0, "batch_size must be > 0")
    plane = (transform.crop_size,) * 2 if transform.crop_size else size
    if channels is None or plane is None:
        lacking = " and ".join(
            word for word, value in (("channels", channels), ("height and width", plane)) if value is None
        )
        raise Unknown(f"nothing in the net tells the {lacking} of its records")
    return Made(((batch, channels, *plane), (batch,))[:tops])


def channels(transform: Any) -> Optional[int]:
    """A record's channels, where the transform tells them."""
    if transform.force_gray or transform.force_color:
        return 1 if transform.force_gray else 3
    return len(transform.mean_value) if len(transform.mean_value) > 1 else None


def plausible(net: Any) -> list[dict[str, Shape]]:
    """Shapes of the Data layers' first tops, for each number of channels that is likely: one guess at least."""
    cropped = [
        layer
        for layer in net.layer
        if layer.type == "Data"
        and layer.top
        and layer.transform_param.crop_size
        and not channels(layer.transform_param)
    ]
    return [{layer.top[0]: _cropped(layer, likely) for layer in cropped} for likely in ((3, 1) if cropped else (3,))]


def _cropped(layer: Any, depth: int) -> Shape:
    size = layer.transform_param.crop_size
    return (layer.data_param.batch_size, depth, size, size)


def _data(given: Given) -> Made:
    layer = given.layer
    return _records(
        layer.data_param.batch_size, layer.transform_param, channels(layer.transform_param), None, given.tops
    )


def _images(given: Given) -> Made:
    param = given.layer.image_data_param
    need(bool(param.new_height) == bool(param.new_width), "new_height and new_width are needed together")
    size = (param.new_height, param.new_width) if param.new_height else None
    return _records(param.batch_size, given.layer.transform_param, 3 if param.is_color else 1, size, 2)


def _windows(given: Given) -> Made:
    need(given.layer.transform_param.crop_size > 0, "crop_size must be > 0")
    return _records(given.layer.window_data_param.batch_size, given.layer.transform_param, 3, None, 2)


def _outside(given: Given) -> Made:
    raise Unknown(f"a {given.layer.type} layer's shapes are made outside the net")


RULES: dict[str, Rule] = {
    "Data": Rule(_data, (0, 0), (1, 2), backward=False),
    "DummyData": Rule(_dummy, (0, 0), (1, None), backward=False),
    "HDF5Data": Rule(_outside, (0, 0), (1, None), backward=False),
    "ImageData": Rule(_images, (0, 0), (2, 2), backward=False),
    "Input": Rule(_input, (0, 0), (1, None), backward=False),
    "MemoryData": Rule(_memory, (0, 0), (2, 2), backward=False),
    "Parameter": Rule(_parameter, (0, 0), shares=True),
    "Python": Rule(_outside, (0, None), (0, None)),
    "WindowData": Rule(_windows, (0, 0), (2, 2), backward=False),
}
