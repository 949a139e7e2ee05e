"""URIs taken apart and put together."""

from __future__ import annotations

from pathlib import Path

import pytest

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.storage import paths
from caffe_on_grid.storage.local import LocalStorage
from caffe_on_grid.storage.registry import connect

# uri, scheme, local path, parent, basename, stem
TABLE = [
    ("net.caffemodel", "", "net.caffemodel", ".", "net.caffemodel", "net"),
    ("a/net.caffemodel", "", "a/net.caffemodel", "a", "net.caffemodel", "net"),
    (
        "/a/b c/n_iter_5.solverstate.h5",
        "",
        "/a/b c/n_iter_5.solverstate.h5",
        "/a/b c",
        "n_iter_5.solverstate.h5",
        "n_iter_5",
    ),
    ("file:/a/m.tar.gz", "file", "/a/m.tar.gz", "file:/a", "m.tar.gz", "m.tar"),
    ("file:///a/b", "file", "/a/b", "file:///a", "b", "b"),
    ("FILE://localhost/a/b/", "file", "/a/b", "file://localhost/a", "b", "b"),
    ("hdfs:///models/net.caffemodel", "hdfs", None, "hdfs:///models", "net.caffemodel", "net"),
    ("hdfs://nn:8020/x.h5", "hdfs", None, "hdfs://nn:8020/", "x.h5", "x"),
    ("/a", "", "/a", "/", "a", "a"),
    ("file:///a%20b", "file", "/a%20b", "file:///", "a%20b", "a%20b"),
    ("odd:name.txt", "", "odd:name.txt", ".", "odd:name.txt", "odd:name"),
]


@pytest.mark.parametrize(("uri", "scheme", "local", "parent", "basename", "stem"), TABLE)
def test_parts(uri, scheme, local, parent, basename, stem):
    assert paths.scheme(uri) == scheme
    assert paths.local_path(uri) == (None if local is None else Path(local))
    assert paths.parent(uri) == parent
    assert paths.basename(uri) == basename
    assert paths.stem(uri) == stem
    assert paths.parent(paths.join(paths.parent(uri), "x", "y")) == paths.join(paths.parent(uri), "x")


def test_join_keeps_the_uri_form():
    assert paths.join("hdfs:///m", "r", "run.json") == "hdfs:///m/r/run.json"
    assert paths.join("file:/m/", "x") == "file:/m/x"
    assert paths.join("m", "x") == "m/x"


def test_a_file_uri_with_a_host_is_refused():
    with pytest.raises(ConfigError, match="names no host here; write file:///data/x"):
        paths.local_path("file://node7/data/x")


def test_temporary_names_are_fresh_and_recognised():
    name = paths.temporary("net.caffemodel")
    assert paths.is_temporary(name)
    assert paths.temporary("net.caffemodel") != name
    assert not any(paths.is_temporary(other) for other in ("net.caffemodel", ".hidden", "x.part", ".x.part"))


@pytest.mark.parametrize("uri", ["x", "/a/x", "file:/a/x", "file:///a/x"])
def test_local_uris_get_local_storage(uri):
    assert isinstance(connect(uri), LocalStorage)


def test_an_unknown_scheme_names_the_known_ones():
    with pytest.raises(
        ConfigError, match=r"nosuch://b/x: no storage for nosuch: here; known: plain paths, file:, hdfs:"
    ):
        connect("nosuch://b/x")
