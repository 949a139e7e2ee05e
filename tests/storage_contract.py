"""What every storage promises, as a class of tests; a subclass gives the fixtures `store` and `base`: a new folder."""

from __future__ import annotations

import os
import threading

import pytest

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.storage import bulk, paths


class StorageContract:
    def test_files_come_and_go(self, store, base, tmp_path):
        folder = paths.join(base, "a b")
        store.write(b"one", paths.join(folder, "x"))
        store.append(b"two", paths.join(folder, "x"))
        store.append(b"new", paths.join(folder, "sub", "y"))
        store.make_folder(paths.join(folder, "z", "deep"))
        store.make_folder(paths.join(folder, "z", "deep"))
        assert set(store.names(folder)) >= {"sub", "x"}
        assert store.names(folder) == sorted(store.names(folder))
        assert store.read(paths.join(folder, "x")) == b"onetwo"
        assert store.read(paths.join(folder, "sub", "y")) == b"new"
        assert store.size(paths.join(folder, "x")) == 6
        assert b"".join(store.pieces(paths.join(folder, "x"), 2, 3)) == b"etw"
        assert store.exists(folder)
        assert store.is_folder(folder)
        assert not store.is_folder(paths.join(folder, "x"))
        assert not store.is_folder(paths.join(folder, "absent"))
        store.fetch(paths.join(folder, "x"), tmp_path / "new" / "copy")
        store.publish(tmp_path / "new" / "copy", paths.join(folder, "w"))
        assert store.read(paths.join(folder, "w")) == b"onetwo"
        store.remove(paths.join(folder, "w"))
        assert not store.exists(paths.join(folder, "w"))
        store.remove(folder)
        assert not store.exists(folder)

    @pytest.mark.parametrize(
        "name", ["plain", "sp ace", "100%25", "a+b&c=d?e#f", "snow☃man", "semi;colon", "q'u\"ote", "#LATEST"]
    )
    def test_any_name_is_kept(self, store, base, name):
        uri = paths.join(base, name)
        store.write(name.encode(), uri)
        assert store.names(base) == [name]
        assert store.read(uri) == name.encode()
        assert store.size(uri) == len(name.encode())

    def test_empty_files(self, store, base, tmp_path):
        uri = paths.join(base, "empty")
        store.write(b"", uri)
        assert (store.size(uri), store.read(uri)) == (0, b"")
        store.fetch(uri, tmp_path / "empty")
        assert (tmp_path / "empty").read_bytes() == b""

    def test_publishing_replaces_what_was_there(self, store, base):
        uri = paths.join(base, "x")
        store.write(b"old" * 1000, uri)
        store.write(b"new", uri)
        assert store.read(uri) == b"new"
        assert store.names(base) == ["x"]

    def test_a_large_file_goes_and_comes_back(self, store, base, tmp_path, monkeypatch):
        monkeypatch.setattr(bulk, "PART_BYTES", 3 << 20)
        source = tmp_path / "source"
        source.write_bytes(os.urandom((20 << 20) + 12345))
        store.publish(source, paths.join(base, "large"))
        store.fetch(paths.join(base, "large"), tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == source.read_bytes()
        assert {entry.name for entry in tmp_path.iterdir()} >= {"source", "back"}
        assert not any(paths.is_temporary(entry.name) for entry in tmp_path.iterdir())

    def test_readers_see_the_old_or_the_new_never_half(self, store, base):
        uri = paths.join(base, "x")
        contents = {letter * 300_000 for letter in (b"a", b"b")}
        store.write(b"a" * 300_000, uri)
        ended = threading.Event()

        def publish() -> None:
            for letter in b"bababa":
                store.write(bytes([letter]) * 300_000, uri)
            ended.set()

        writer = threading.Thread(target=publish)
        writer.start()
        while not ended.is_set():
            assert store.size(uri) == 300_000
        writer.join()
        assert store.read(uri) in contents

    def test_a_failed_publish_leaves_nothing(self, store, base, tmp_path):
        with pytest.raises(ConfigError, match="no such file"):
            store.publish(tmp_path / "absent", paths.join(base, "x"))
        assert store.names(base) == []

    def test_check_writable_leaves_no_trace(self, store, base):
        store.check_writable(paths.join(base, "not", "yet"))
        assert store.names(base) == []

    def not_found(self, store, base, tmp_path):
        store.read(paths.join(base, "absent"))

    def names_of_nothing(self, store, base, tmp_path):
        store.names(paths.join(base, "absent"))

    def size_of_nothing(self, store, base, tmp_path):
        store.size(paths.join(base, "absent"))

    def fetch_of_nothing(self, store, base, tmp_path):
        store.fetch(paths.join(base, "absent"), tmp_path / "x")

    def folder_for_file(self, store, base, tmp_path):
        store.size(base)

    def folder_read(self, store, base, tmp_path):
        store.read(base)

    def folder_fetched(self, store, base, tmp_path):
        store.fetch(base, tmp_path / "x")

    def published_onto_folder(self, store, base, tmp_path):
        store.make_folder(paths.join(base, "d"))
        store.write(b"", paths.join(base, "d", "x"))
        store.write(b"x", paths.join(base, "d"))

    def names_of_file(self, store, base, tmp_path):
        store.write(b"", paths.join(base, "f"))
        store.names(paths.join(base, "f"))

    def removed_twice(self, store, base, tmp_path):
        store.remove(paths.join(base, "absent"))

    ERRORS = (
        ("not_found", "no such file or folder"),
        ("names_of_nothing", "no such file or folder"),
        ("size_of_nothing", "no such file or folder"),
        ("fetch_of_nothing", "no such file or folder"),
        ("folder_for_file", "is a folder where a file is wanted"),
        ("folder_read", "is a folder where a file is wanted"),
        ("folder_fetched", "is a folder where a file is wanted"),
        ("published_onto_folder", "is a folder where a file is wanted"),
        ("names_of_file", "not a folder"),
        ("removed_twice", "no such file or folder"),
    )

    @pytest.mark.parametrize(("act", "text"), ERRORS, ids=[row[0] for row in ERRORS])
    def test_errors_are_one_line_that_names_the_uri(self, store, base, tmp_path, act, text):
        with pytest.raises(ConfigError, match=text) as caught:
            getattr(self, act)(store, base, tmp_path)
        assert str(caught.value).startswith(base)
        assert "\n" not in str(caught.value)
        assert list(tmp_path.glob(".*")) == []


class FolderTreeContract(StorageContract):
    """Stores in which folders are real: a file cannot have files below it."""

    def file_in_the_way(self, store, base):
        store.write(b"", paths.join(base, "f"))
        store.write(b"x", paths.join(base, "f", "x"))

    def file_for_folder(self, store, base):
        store.write(b"", paths.join(base, "f"))
        store.make_folder(paths.join(base, "f"))

    @pytest.mark.parametrize("act", ["file_in_the_way", "file_for_folder"])
    def test_a_file_stays_a_file(self, store, base, act):
        with pytest.raises(ConfigError, match="a file"):
            getattr(self, act)(store, base)
        assert store.names(base) == ["f"]
