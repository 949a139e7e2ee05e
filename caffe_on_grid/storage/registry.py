"""Which storage serves which URI: the one table of schemes."""

from __future__ import annotations

from typing import Callable

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.storage import paths
from caffe_on_grid.storage.api import Storage
from caffe_on_grid.storage.local import LocalStorage

SCHEMES: dict[str, Callable[[], Storage]] = {"": LocalStorage, "file": LocalStorage}
"""Scheme ("" is a plain path) → storage."""


def connect(uri: str) -> Storage:
    """The storage of `uri`; ConfigError naming the known schemes where there is none."""
    scheme = paths.scheme(uri)
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}:" for name in SCHEMES if name)
        raise ConfigError(f"{uri}: no storage for {scheme}: here; known: plain paths, {known}")
    return SCHEMES[scheme]()
