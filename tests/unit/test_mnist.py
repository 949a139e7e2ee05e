"""packaging/mnist.py against sources that are broken in every way; the real content is checked by `make demo`."""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import importlib.util
import threading

import pytest


@pytest.fixture
def mnist(root, monkeypatch, tmp_path):
    """The program as a module, with small contents as the known ones and no npm."""
    spec = importlib.util.spec_from_file_location("mnist", root / "packaging" / "mnist.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    contents = {name: name.encode() * 100 for name in module.FILES}
    monkeypatch.setattr(module, "FILES", {n: hashlib.sha256(data).hexdigest() for n, data in contents.items()})
    monkeypatch.setenv("PATH", str(tmp_path))
    for folder in ("wrong", "cut", "right"):
        (tmp_path / "www" / folder).mkdir(parents=True)
    for name, data in contents.items():
        (tmp_path / "www" / "wrong" / f"{name}.gz").write_bytes(gzip.compress(b"<html>moved</html>"))
        (tmp_path / "www" / "cut" / f"{name}.gz").write_bytes(gzip.compress(data)[:-12])
        (tmp_path / "www" / "right" / f"{name}.gz").write_bytes(gzip.compress(data))
    return module


@pytest.fixture
def address(tmp_path):
    """A web server of `tmp_path`/www."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Quiet, directory=str(tmp_path / "www"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_mirrors_are_tried_in_turn_and_checked(mnist, address, monkeypatch, tmp_path):
    monkeypatch.setattr(mnist, "MIRRORS", [f"{address}/{name}" for name in ("absent", "wrong", "cut", "right")])
    mnist.fetch(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(mnist.FILES)
    monkeypatch.setattr(mnist, "MIRRORS", [])
    mnist.fetch(tmp_path / "out")  # what is there is kept


def test_no_source_is_one_line_that_says_what_was_tried(mnist, address, monkeypatch, tmp_path):
    monkeypatch.setattr(mnist, "MIRRORS", [f"{address}/{name}" for name in ("absent", "wrong", "cut")])
    with pytest.raises(SystemExit) as caught:
        mnist.fetch(tmp_path / "out")
    text = str(caught.value)
    assert "\n" not in text
    for part in ("absent: HTTP Error 404", "wrong: another content", "cut: ", "put train-images-idx3-ubyte"):
        assert part in text
    assert list((tmp_path / "out").iterdir()) == []
