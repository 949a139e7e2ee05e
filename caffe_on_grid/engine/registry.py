"""Engines by name."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from caffe_on_grid.engine.api import Engine, EnginePlan
from caffe_on_grid.errors import ConfigError, EnvironmentFault
from caffe_on_grid.spec.codec import suggestion

_MODULES: dict[str, str] = {"caffe": "caffe_on_grid.engine.caffe", "torch": "caffe_on_grid.engine.torch.engine"}
"""Name, which is its framework's too → module with `create(plan) -> Engine` and `version() -> str`; the framework is
imported with it, not before.
"""

NAMES = tuple(_MODULES)
"""The known engines."""

MISSING = "missing: "
"""How `available` begins the reason why an engine cannot be used here."""


def create(name: str, plan: EnginePlan) -> Engine:
    """Build engine `name`; raises ConfigError or EnvironmentFault.

    "auto": on a CPU caffe, on a GPU torch; the other one where that cannot be loaded.
    """
    engine: Engine = _load(_resolve(name, plan.gpu is not None)).create(plan)
    return engine


def available() -> dict[str, str]:
    """Name of each known engine → its version, or "missing: " and the reason."""
    return {name: _version(name) for name in _MODULES}


def library(name: str) -> Any:
    """Import a library; raises ImportError, also where only a folder of that name is found, as in a user's own."""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.origin is None:
        folders = ", ".join(spec.submodule_search_locations or ())
        raise ModuleNotFoundError(f"No module named {name!r} ({folders}: a folder of that name, but no package)")
    return importlib.import_module(name)


def _resolve(name: str, gpu: bool) -> str:
    if name != "auto":
        return name
    reasons: list[str] = []
    for each in ("torch", "caffe") if gpu else ("caffe", "torch"):
        version = _version(each)
        if not version.startswith(MISSING):
            return each
        reasons.append(f"{each}: {version}")
    raise EnvironmentFault(
        f"no engine can be used in this Python ({'; '.join(reasons)}): give a runtime with --runtime"
    )


def _load(name: str) -> Any:
    if name not in _MODULES:
        raise ConfigError(f"unknown engine {name!r}{suggestion(name, _MODULES)}; known: auto, {', '.join(_MODULES)}")
    try:
        library(name)
        return importlib.import_module(_MODULES[name])
    except ImportError as error:
        raise EnvironmentFault(f"engine {name!r} cannot be loaded in this Python: {error}") from error


def _version(name: str) -> str:
    try:
        return str(_load(name).version())
    except EnvironmentFault as error:
        return f"{MISSING}{error}"
