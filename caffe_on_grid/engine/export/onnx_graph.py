"""An ONNX graph under construction, and what each layer's translation is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from caffe_on_grid.engine.api import Array
from caffe_on_grid.errors import ConfigError

OPSET = 17
"""Version of ONNX's operators: the newest that runtimes of 2022 know."""
IR = 8
"""Version of the file's form that goes with it."""
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Site:
    """One layer, and where it stands in the graph."""

    layer: Any
    bottoms: tuple[str, ...]
    """Names of the graph's values."""
    tops: tuple[str, ...]
    shapes: tuple[Shape, ...]
    """Of the bottoms."""
    made: tuple[Shape, ...]
    """Of the tops."""
    blobs: Sequence[Array]

    def refuse(self, why: str) -> NoReturn:
        """Raise ConfigError: the layer cannot be said in ONNX."""
        raise ConfigError(f"layer {self.layer.name!r} ({self.layer.type}) cannot be exported: {why}")

    def need(self, holds: bool, why: str) -> None:
        """`refuse` unless `holds`."""
        if not holds:
            self.refuse(why)

    def named(self, what: str) -> str:
        """Name for one of the layer's parameters."""
        return f"{self.layer.name}.{what}"


class Graph:
    """Nodes and constants; every value has a name of its own."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.any_batch = True
        """Whether nothing in it depends on the number of samples."""
        self._count = 0

    def constant(self, values: Any, name: str = "") -> str:
        """A constant; its name."""
        name = name or self._fresh("constant")
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(values), name)
        return name

    def number(self, value: float) -> str:
        """A float32 scalar."""
        return self.constant(np.array(value, np.float32))

    def integers(self, values: Sequence[int]) -> str:
        """A list of int64."""
        return self.constant(np.array(values, np.int64))

    def node(self, op: str, inputs: Sequence[str], to: str = "", **attributes: Any) -> str:
        """Add an operator with one output, `to` or a fresh name; the output's name."""
        return self.nodes_of(op, inputs, (to or self._fresh(op),), **attributes)[0]

    def cast(self, value: str, kind: int, to: str = "") -> str:
        """`value` as ONNX's type `kind`."""
        return self.nodes_of("Cast", [value], (to or self._fresh("Cast"),), to=kind)[0]

    def nodes_of(self, op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Sequence[str]:
        """Add an operator with these outputs."""
        self.nodes.append(helper.make_node(op, list(inputs), list(outputs), name=f"{outputs[0]}:{op}", **attributes))
        return outputs

    def reshape(self, value: str, shape: Shape, new: Shape, to: str = "") -> str:
        """`value` of `shape` as `new`; where both have one number of samples in front, any number will do."""
        kept = bool(shape and new and shape[0] == new[0])
        self.any_batch = self.any_batch and kept
        return self.node("Reshape", [value, self.integers([0, *new[1:]] if kept else new)], to)

    def fixed(self, axis: int) -> None:
        """Say that something is done along `axis`: along 0, the number of samples is part of the graph."""
        self.any_batch = self.any_batch and axis != 0

    def _fresh(self, what: str) -> str:
        self._count += 1
        return f"{what}#{self._count}"

    def model(self, name: str, inputs: dict[str, Shape], outputs: dict[str, Shape], producer: str, version: str) -> Any:
        """The ModelProto; the number of samples is open (`N`) where nothing depends on it."""
        sizes = {shape[:1] for shape in (*inputs.values(), *outputs.values())}
        open_ = self.any_batch and len(sizes) == 1 and () not in sizes

        def values(shapes: dict[str, Shape]) -> list[Any]:
            dims = {blob: ["N", *shape[1:]] if open_ else list(shape) for blob, shape in shapes.items()}
            return [helper.make_tensor_value_info(blob, TensorProto.FLOAT, dim) for blob, dim in dims.items()]

        graph = helper.make_graph(
            self.nodes, name or "net", values(inputs), values(outputs), list(self.constants.values())
        )
        opset = [helper.make_operatorsetid("", OPSET)]
        made = helper.make_model(graph, opset_imports=opset, producer_name=producer, producer_version=version)
        made.ir_version = IR
        return made
