"""The storage contract over real HDFS, by both of its doors, and errors that only a real HDFS gives."""

from __future__ import annotations

import json
import os
import re
import uuid

import pytest
from grids import ROOT
from storage_contract import FolderTreeContract

from caffe_on_grid.errors import ConfigError, EnvironmentFault, SecurityFault
from caffe_on_grid.storage import hdfs, hdfs_http, hdfs_rpc, paths, tokens
from caffe_on_grid.storage.registry import connect
from caffe_on_grid.storage.remote import RemoteStorage


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch):
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "HADOOP_HOME", "HADOOP_USER_NAME", "HADOOP_TOKEN_FILE_LOCATION"):
        monkeypatch.delenv(name, raising=False)


class HdfsContract(FolderTreeContract):
    @pytest.fixture
    def store(self):
        return hdfs.storage()

    @pytest.fixture
    def base(self, store, address):
        uri = f"{address}/tests/{uuid.uuid4().hex[:12]}"
        store.make_folder(uri)
        yield uri
        if store.exists(uri):
            store.remove(uri)

    def test_a_stranger_is_denied(self, store, base, monkeypatch):
        store.write(b"x", paths.join(base, "x"))
        for act in (
            lambda: store.write(b"y", paths.join(base, "x")),
            lambda: store.append(b"y", paths.join(base, "x")),
            lambda: store.remove(paths.join(base, "x")),
            lambda: store.make_folder(paths.join(base, "d")),
            lambda: store.check_writable(paths.join(base, "later", "still")),
        ):
            with (
                monkeypatch.context() as patch,
                pytest.raises(SecurityFault, match=r"denied .*user=stranger") as caught,
            ):
                patch.setenv("HADOOP_USER_NAME", "stranger")
                act()
            assert "\n" not in str(caught.value)
        assert store.read(paths.join(base, "x")) == b"x"

    def test_a_file_that_a_writer_has_open(self, grid, store, base):
        uri = paths.join(base, "x")
        store.write(b"x", uri)
        writer = hdfs.open_client(f"{grid.hdfs}/")._client.append(paths.split(uri)[2])
        with pytest.raises(EnvironmentFault, match="another writer has the file open"):
            store.append(b"y", uri)
        writer.close()
        store.append(b"y", uri)
        assert store.read(uri) == b"xy"

    def test_a_name_longer_than_hdfs_takes(self, store, base):
        with pytest.raises(ConfigError, match="too long"):
            store.make_folder(paths.join(base, "x" * 300))

    def test_quotas(self, grid, store, base):
        path = paths.split(base)[2]
        grid.admin("-setQuota", "2", path)
        store.write(b"x", paths.join(base, "x"))
        with pytest.raises(EnvironmentFault, match="quota of names is used up"):
            store.write(b"y", paths.join(base, "y"))
        grid.admin("-clrQuota", path)
        grid.admin("-setSpaceQuota", "1m", path)
        with pytest.raises(EnvironmentFault, match="space quota is used up"):
            store.write(b"y", paths.join(base, "y"))
        assert store.names(base) == ["x"]

    def test_safe_mode(self, grid, base, address):
        store = RemoteStorage(hdfs.open_client, delays_s=(0.01,))
        store.write(b"x", paths.join(base, "x"))
        grid.admin("-safemode", "enter")
        try:
            assert store.read(paths.join(base, "x")) == b"x"
            for act in (store.make_folder, store.check_writable):
                with pytest.raises(EnvironmentFault, match="safe mode"):
                    act(paths.join(base, "d"))
            with pytest.raises(EnvironmentFault, match="safe mode"):
                store.write(b"y", paths.join(base, "x"))
        finally:
            grid.admin("-safemode", "leave")
        assert store.names(base) == ["x"]


class TestRpc(HdfsContract):
    @pytest.fixture
    def address(self, grid):
        assert hdfs_rpc.available()
        return grid.hdfs


class TestHttp(HdfsContract):
    @pytest.fixture
    def address(self, grid):
        return grid.webhdfs


@pytest.mark.runtime
@pytest.mark.parametrize(("door", "client"), [("hdfs", "RpcClient"), ("webhdfs", "WebClient")])
def test_the_runtimes_own_python_uses_both_doors(grid, hdfs_folder, in_runtime, tmp_path, door, client):
    program = str(ROOT / "tests" / "grid" / "programs" / "use_storage.py")
    done = in_runtime([program, f"{getattr(grid, door)}{hdfs_folder}", str(tmp_path)])
    seen = json.loads(done.stdout)
    assert (seen["client"], seen["python"]) == (client, [3, 9])
    assert re.search("denied .*user=stranger", seen["denied"])
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("hdfs://127.0.0.1:1/x", "does not answer"),
        ("webhdfs://127.0.0.1:1/x", "does not answer"),
        ("hdfs://no-such-host.invalid:9000/x", "no such host|does not answer"),
        ("webhdfs://no-such-host.invalid:9870/x", "no such host"),
        ("hdfs://no-such-service/x", "no such host|does not answer"),
        ("webhdfs://127.0.0.1:18088/x", "not WebHDFS|HTTP status"),
    ],
)
def test_stores_that_are_not_there(grid, uri, text):
    store = RemoteStorage(hdfs.open_client, delays_s=(0.01,))
    with pytest.raises(EnvironmentFault, match=text) as caught:
        store.exists(uri)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(uri)


def test_http_serves_hdfs_uris_where_the_library_is_missing(grid, hdfs_folder, monkeypatch):
    monkeypatch.setenv("HADOOP_CONF_DIR", str(grid.conf))
    monkeypatch.setattr(hdfs_rpc, "available", lambda: False)
    hdfs._client.cache_clear()
    uri = f"hdfs://{hdfs_folder}/x"
    connect(uri).write(b"content", uri)
    assert isinstance(hdfs.open_client(uri), hdfs_http.WebClient)
    hdfs._client.cache_clear()
    monkeypatch.undo()
    full = f"{grid.hdfs}{hdfs_folder}/x"
    assert connect(full).read(full) == b"content"


def secure_configuration(grid, folder):
    """A client proves who it is only where its configuration says that the cluster asks for it."""
    text = (grid.conf / "core-site.xml").read_text()
    (folder / "core-site.xml").write_text(text.replace("<value>simple</value>", "<value>kerberos</value>"))
    (folder / "hdfs-site.xml").write_text((grid.conf / "hdfs-site.xml").read_text())
    return folder


def test_the_containers_token_says_who_we_are(grid, hdfs_folder, tmp_path, monkeypatch):
    """A file that Hadoop wrote; the token's owner, not the user's name, decides."""
    fetcher = "org.apache.hadoop.hdfs.tools.DelegationTokenFetcher"
    grid.script("run", fetcher, "--renewer", "nobody", str(tmp_path / "tokens"))
    (token,) = tokens.read(tmp_path / "tokens")
    assert (token.kind, token.service) == ("HDFS_DELEGATION_TOKEN", "127.0.0.1:19000")
    assert token.encoded not in repr(token)
    uri = f"{grid.hdfs}{hdfs_folder}/x"
    monkeypatch.setenv("HADOOP_USER_NAME", "stranger")
    with pytest.raises(SecurityFault, match="user=stranger"):
        connect(uri).write(b"x", uri)
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(tmp_path / "tokens"))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(secure_configuration(grid, tmp_path)))
    connect(uri).write(b"x", uri)
    assert connect(uri).read(uri) == b"x"
    grid.script("run", fetcher, "--cancel", str(tmp_path / "tokens"))
    hdfs._client.cache_clear()
    with pytest.raises(SecurityFault, match="token is expired or unknown") as caught:
        connect(uri).read(uri)
    assert token.encoded not in str(caught.value)


def test_a_forked_child_has_a_client_of_its_own(grid, hdfs_folder):
    uri = f"{grid.hdfs}{hdfs_folder}/x"
    connect(uri).write(b"parent", uri)
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if connect(uri).read(uri) == b"parent" else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
