"""HDFS by HTTP (WebHDFS), by the standard library alone: for `webhdfs:` and where hdfs-native is not installed."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Optional
from urllib.parse import quote, urlencode, urlsplit

from caffe_on_grid.storage import hadoop, tokens
from caffe_on_grid.storage.remote import Content, Entry, StoreFault

TIMEOUT_S = 60.0
PIECE_BYTES = 8 << 20
_STATUS_KINDS = {401: "AuthenticationException", 403: "AccessControlException", 404: "Unreachable"}
"""HTTP status → kind of fault where the body does not say, as WebHDFS itself always does."""


@dataclass(frozen=True)
class Reply:
    """A finished HTTP exchange."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body's document; StoreFault if it is none (a proxy's page, another server)."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise StoreFault("Unreachable", "what answers there is not WebHDFS") from error


class WebClient:
    """A `caffe_on_grid.storage.remote.Client` of one NameNode, or of the NameNodes of one nameservice."""

    appears_whole = False

    def __init__(self, bases: list[str], services: list[str]) -> None:
        """`bases`: http(s)://host:port of each NameNode; `services`: what its delegation token may name."""
        self._bases, self._services = bases, services

    def entry(self, path: str) -> Optional[Entry]:
        """What is at `path`; None if nothing is."""
        try:
            found = self._ask("GET", path, "GETFILESTATUS").json()["FileStatus"]
        except StoreFault as fault:
            if fault.kind == "FileNotFoundException":
                return None
            raise
        return Entry(found["length"], found["type"] == "DIRECTORY", str(found["modificationTime"]))

    def names(self, path: str) -> list[str]:
        """Names in a folder."""
        return [
            status["pathSuffix"] for status in self._ask("GET", path, "LISTSTATUS").json()["FileStatuses"]["FileStatus"]
        ]

    def pieces(self, path: str, offset: int, length: int) -> Iterator[bytes]:
        """A range that lies within the file, asked for in pieces of a bounded size."""
        for at in range(offset, offset + length, PIECE_BYTES):
            count = min(PIECE_BYTES, offset + length - at)
            place = self._ask("GET", path, "OPEN", offset=at, length=count).headers["location"]
            data = _checked(_exchange("GET", place)).body
            if len(data) != count:
                raise StoreFault("Broken", f"{len(data)} of {count} bytes came")
            yield data

    def create(self, path: str, content: Content) -> None:
        """Write a file and its parents, replacing one that is there."""
        place = self._ask("PUT", path, "CREATE", overwrite="true").headers["location"]
        _checked(_exchange("PUT", place, content()))

    def append(self, path: str, data: bytes) -> None:
        """Add to a file."""
        place = self._ask("POST", path, "APPEND").headers["location"]
        _checked(_exchange("POST", place, iter((data,))))

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents."""
        self._ask("PUT", path, "MKDIRS")

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, replacing a file of that name, in one step."""
        self._ask("PUT", source, "RENAME", destination=target, renameoptions="OVERWRITE")

    def remove(self, path: str) -> None:
        """Delete a file, or a folder with all in it."""
        self._ask("DELETE", path, "DELETE", recursive="true")

    def _ask(self, method: str, path: str, operation: str, **options: object) -> Reply:
        """The answer of the first NameNode that is active."""
        query = urlencode({"op": operation, **self._identity(), **options})
        fault = StoreFault("UnknownHost", "no NameNode's HTTP address is known")
        for base in self._bases:
            try:
                return _checked(_exchange(method, f"{base}/webhdfs/v1{quote(path)}?{query}"))
            except StoreFault as error:
                if error.kind not in ("StandbyException", "Unreachable"):
                    raise
                fault = error
        raise fault

    def _identity(self) -> dict[str, str]:
        """The container's token (never shown: `_exchange` names the host alone), else the user's name."""
        token = tokens.hdfs_token(self._services)
        return {"delegation": token.encoded} if token else {"user.name": hadoop.user()}


def _exchange(method: str, url: str, content: Optional[Iterator[bytes]] = None) -> Reply:
    """One request on a connection of its own; redirects are answers here."""
    parts = urlsplit(url)
    connection = _connection(parts.scheme, parts.netloc)
    headers = {"Content-Type": "application/octet-stream"} if content is not None else {}
    try:
        connection.request(method, f"{parts.path}?{parts.query}", content, headers, encode_chunked=content is not None)
        answer = connection.getresponse()
        return Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    except (ConnectionRefusedError, TimeoutError) as error:
        raise StoreFault("Unreachable", f"{parts.netloc}: {error.strerror or error}") from error
    except (http.client.HTTPException, ConnectionError) as error:
        raise StoreFault("Broken", f"{parts.netloc}: {type(error).__name__}") from error
    except OSError as error:
        raise StoreFault("UnknownHost", f"{parts.netloc}: {error.strerror or error}") from error
    finally:
        connection.close()


def _connection(scheme: str, netloc: str) -> http.client.HTTPConnection:
    if scheme == "https":
        return http.client.HTTPSConnection(netloc, timeout=TIMEOUT_S, context=ssl.create_default_context())
    return http.client.HTTPConnection(netloc, timeout=TIMEOUT_S)


def _checked(reply: Reply) -> Reply:
    """`reply` if it is a success or a redirect, else the fault that it tells."""
    if reply.status < 400:
        return reply
    try:
        found = json.loads(reply.body)["RemoteException"]
        kind, detail = found["exception"], found["message"]
    except (ValueError, KeyError, TypeError):
        raise StoreFault(
            _STATUS_KINDS.get(reply.status, "Broken"), f"not WebHDFS's answer: HTTP status {reply.status}"
        ) from None
    raise StoreFault(kind, detail)
