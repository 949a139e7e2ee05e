"""What every check of the proto room uses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import schema, text

DATA = Path(__file__).resolve().parents[2] / "data" / "proto"
Net, Solver = schema.NetParameter, schema.SolverParameter


def refused(call: Callable[..., object], *args: object) -> str:
    """The message of the ConfigError that `call(*args)` must raise; it is one line."""
    try:
        call(*args)
    except ConfigError as error:
        assert "\n" not in str(error)
        return str(error)
    raise AssertionError(f"{call} accepted {args}")


def net_of(source: str) -> Any:
    return text.parse(Net, source, "net.prototxt")


def solver_of(source: str) -> Any:
    return text.parse(Solver, source, "solver.prototxt")
