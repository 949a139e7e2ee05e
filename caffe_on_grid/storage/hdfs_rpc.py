"""HDFS by its own protocol, through the library hdfs-native: the only place that imports it."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Optional

from caffe_on_grid.storage import hadoop, paths, tokens
from caffe_on_grid.storage.remote import Content, Entry, StoreFault

_JAVA = re.compile(r"""RPCError\("(?:[\w.]+[.$])?(\w+)", "(.*)"\)""", re.DOTALL)
_PORT = 8020
_QUICK = {
    "dfs.client.failover.max.attempts": "3",
    "dfs.client.failover.sleep.base.millis": "200",
    "dfs.client.failover.sleep.max.millis": "1000",
}
"""The library's own tries of a dead NameNode, short, so that ours say what is wrong."""
WORDS = (
    ("No NameNode hosts found", "UnknownHost"),
    ("No fs.defaultFS", "UnknownHost"),
    ("lookup address", "UnknownHost"),
    ("SASL", "SaslException"),
    ("GSSAPI", "SaslException"),
    ("onnection refused", "Unreachable"),
    ("onnection reset", "Broken"),
    ("timed out", "Unreachable"),
    ("deadline has elapsed", "Unreachable"),
    ("hecksum", "BlockMissingException"),
    ("lock", "BlockMissingException"),
)
"""Words in the library's errors that have no Java class → kind of fault; the first that occurs counts."""


def available() -> bool:
    """Whether hdfs-native can be imported here."""
    return importlib.util.find_spec("hdfs_native") is not None


class RpcClient:
    """A `caffe_on_grid.storage.remote.Client` of one NameNode, nameservice or mount table."""

    appears_whole = False

    def __init__(self, url: str) -> None:
        """`url`: hdfs://host:port, hdfs://nameservice or viewfs://table."""
        import hdfs_native

        self._url = url
        self._options: Any = hdfs_native.WriteOptions(overwrite=True, create_parent=True)
        self._client: Any = self._connected()

    def _connected(self) -> Any:
        import hdfs_native

        with _door():
            return hdfs_native.Client(_as_token_says(self._url), {**hadoop.settings(), **_QUICK})

    def entry(self, path: str) -> Optional[Entry]:
        """What is at `path`; None if nothing is."""
        try:
            with _door():
                found = self._client.get_file_info(path)
        except StoreFault as fault:
            if fault.kind == "FileNotFoundException":
                return None
            raise
        return Entry(found.length, found.isdir, str(found.modification_time))

    def names(self, path: str) -> list[str]:
        """Names in a folder."""
        with _door():
            return [status.path.rstrip("/").rpartition("/")[2] for status in self._client.list_status(path)]

    def pieces(self, path: str, offset: int, length: int) -> Iterator[bytes]:
        """A range that lies within the file, in the packets that DataNodes send."""
        with _door():
            yield from self._client.read(path).read_range_stream(offset, length)

    def create(self, path: str, content: Content) -> None:
        """Write a file and its parents, replacing one that is there."""
        with _door():
            writer = self._client.create(path, self._options)
        self._fill(writer, content)

    def append(self, path: str, data: bytes) -> None:
        """Add to a file.

        One that broke off may be left open. HDFS never opens it again for the client that it takes for its writer, for
        another one after a minute: so be another.
        """
        try:
            with _door():
                writer = self._client.append(path)
            self._fill(writer, lambda: iter((data,)))
        except StoreFault:
            self._client = self._connected()
            raise

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents."""
        with _door():
            self._client.mkdirs(path, create_parent=True)

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, replacing a file of that name, in one step."""
        with _door():
            self._client.rename(source, target, True)

    def remove(self, path: str) -> None:
        """Delete a file, or a folder with all in it."""
        with _door():
            self._client.delete(path, True)

    @staticmethod
    def _fill(writer: Any, content: Content) -> None:
        """Errors of `content` itself pass as they are."""
        for piece in content():
            with _door():
                writer.write(piece)
        with _door():
            writer.close()


def _as_token_says(url: str) -> str:
    """`url` with the NameNode's address as the container's token has it: a number, unless Hadoop was told otherwise.

    The library takes no token whose service is not written as its URL is.
    """
    scheme, host, _ = paths.split(url)
    name, _, port = host.strip("/").partition(":")
    if scheme != "hdfs" or not os.environ.get("HADOOP_TOKEN_FILE_LOCATION"):
        return url
    written = [f"{address}:{port or _PORT}" for address in _addresses(name)]
    token = tokens.hdfs_token(written)
    return f"{scheme}://{token.service}" if token and token.service in written else url


def _addresses(name: str) -> list[str]:
    """IPv4 addresses of a host; none for a name that is none (a nameservice)."""
    try:
        return sorted({str(found[4][0]) for found in socket.getaddrinfo(name, None, socket.AF_INET)})
    except OSError:
        return []


@contextmanager
def _door() -> Iterator[None]:
    """Every error of the library inside leaves as a StoreFault; a panic of its Rust part is no `Exception`."""
    try:
        yield
    except Exception as error:
        raise _fault(error) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise StoreFault("Broken", str(error)) from None


def _fault(error: Exception) -> StoreFault:
    text = str(error)
    java = _JAVA.search(text)
    if java:
        return StoreFault(java[1], java[2].split("\\n")[0].replace('\\"', '"'))
    if isinstance(error, FileNotFoundError):
        return StoreFault("IsFolder" if "not a file" in text else "FileNotFoundException", text)
    if isinstance(error, FileExistsError) and ("lease holder" in text or "file lease is" in text):
        return StoreFault("AlreadyBeingCreatedException", text)
    if isinstance(error, FileExistsError):
        return StoreFault("IsFolder" if "as a directory" in text else "FileAlreadyExistsException", text)
    kind = next(
        (kind for word, kind in WORDS if word in text), "Unreachable" if isinstance(error, OSError) else "Broken"
    )
    return StoreFault(kind, text)
