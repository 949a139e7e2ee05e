"""Which storage serves which URI: the one table of schemes."""

from __future__ import annotations

from typing import Callable

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.storage import fsspec_store, hdfs, paths
from caffe_on_grid.storage.api import Storage
from caffe_on_grid.storage.local import LocalStorage

SCHEMES: dict[str, Callable[[], Storage]] = {
    "": LocalStorage,
    "file": LocalStorage,
    "hdfs": hdfs.storage,
    "viewfs": hdfs.storage,
    "webhdfs": hdfs.storage,
    "swebhdfs": hdfs.storage,
}
"""Scheme ("" is a plain path) → storage; fsspec serves others."""


def connect(uri: str) -> Storage:
    """The storage of `uri`; ConfigError naming the known schemes where there is none."""
    scheme = paths.scheme(uri)
    if scheme in SCHEMES:
        return SCHEMES[scheme]()
    if fsspec_store.knows(scheme):
        return fsspec_store.storage()
    known = ", ".join(f"{name}:" for name in SCHEMES if name)
    more = "" if fsspec_store.installed() else "; others with fsspec: pip install fsspec, and the store's own package"
    raise ConfigError(f"{uri}: no storage for {scheme}: here; known: plain paths, {known}{more}")
