"""The storage contract over local files, and over fsspec's memory and local stores."""

from __future__ import annotations

import uuid

import pytest
from storage_contract import FolderTreeContract, StorageContract

from caffe_on_grid.storage import fsspec_store
from caffe_on_grid.storage.local import LocalStorage
from caffe_on_grid.storage.remote import RemoteStorage


class TestLocal(FolderTreeContract):
    @pytest.fixture
    def store(self):
        return LocalStorage()

    @pytest.fixture
    def base(self, tmp_path_factory):
        return str(tmp_path_factory.mktemp("store"))


class TestMemory(StorageContract):
    @pytest.fixture
    def store(self):
        return fsspec_store.storage()

    @pytest.fixture
    def base(self, store):
        uri = f"memory://{uuid.uuid4().hex}/run"
        store.make_folder(uri)
        return uri


class TestFsspecLocal(FolderTreeContract):
    """fsspec's local store stands for those whose files appear as they grow: a temporary name, then a rename."""

    @pytest.fixture
    def store(self):
        return RemoteStorage(lambda uri: fsspec_store.FsspecClient("local", ""), delays_s=())

    @pytest.fixture
    def base(self, tmp_path_factory):
        return f"local://{tmp_path_factory.mktemp('store')}"
