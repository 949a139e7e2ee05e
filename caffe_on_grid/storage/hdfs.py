"""HDFS files: `hdfs:`, `viewfs:` by hdfs-native; `webhdfs:`, `swebhdfs:`, and `hdfs:` where that is missing, by HTTP.

Either way's library is loaded when a URI first asks for it: most commands ask for none.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Optional

from caffe_on_grid.errors import ConfigError, EnvironmentFault
from caffe_on_grid.storage import hadoop, hdfs_rpc, paths
from caffe_on_grid.storage.remote import Client, RemoteStorage

_WEB = {"webhdfs": "http", "swebhdfs": "https"}
_PORTS = {"http": "9870", "https": "9871"}


def storage() -> RemoteStorage:
    """The storage of every HDFS scheme."""
    return RemoteStorage(open_client)


def open_client(uri: str) -> Client:
    """The client of a URI's host, kept for this process (a forked child has its own)."""
    scheme, host, _ = paths.split(hadoop.qualify(uri))
    if not host.strip("/") and scheme != "viewfs":
        raise ConfigError(
            f"{uri}: no host, and no fs.defaultFS to take it from; write {scheme}://HOST/… or set HADOOP_CONF_DIR"
        )
    identity = (hadoop.user(), os.environ.get("HADOOP_TOKEN_FILE_LOCATION"), str(hadoop.folder()))
    return _client(scheme, host.strip("/"), os.getpid(), identity)


@lru_cache(maxsize=16)
def _client(scheme: str, host: str, _process: int, _identity: tuple[Optional[str], ...]) -> Client:
    if scheme in _WEB:
        return _web_client(_WEB[scheme], host, direct=True)
    if hdfs_rpc.available():
        return hdfs_rpc.RpcClient(f"{scheme}://{host}")
    if scheme == "viewfs":
        raise EnvironmentFault(
            f"viewfs://{host}: needs hdfs-native; pip install hdfs-native, or name hdfs:// or webhdfs://"
        )
    policy = hadoop.settings().get("dfs.http.policy", "HTTP_ONLY")
    return _web_client("https" if policy == "HTTPS_ONLY" else "http", host, direct=False)


def _web_client(protocol: str, host: str, direct: bool) -> Client:
    """`direct`: `host` is the HTTP address itself (or a nameservice), not that of RPC."""
    from caffe_on_grid.storage import hdfs_http

    bases = hadoop.name_nodes(host, f"{protocol}-address")
    if not bases:
        name, _, port = host.partition(":")
        bases = [f"{name}:{(port if direct else '') or _PORTS[protocol]}"]
    rpc = hadoop.name_nodes(host, "rpc-address")
    return hdfs_http.WebClient([f"{protocol}://{base}" for base in bases], [host, f"ha-hdfs:{host}", *bases, *rpc])
