"""HDFS by HTTP (WebHDFS, HttpFS), through the library `hdfs`: the only place that imports it and requests."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Optional
from urllib.parse import urlsplit

import hdfs
import requests
import urllib3

from caffe_on_grid.errors import SecurityFault
from caffe_on_grid.storage import hadoop, kerberos, tokens
from caffe_on_grid.storage.remote import Content, Entry, StoreFault

TIMEOUT_S = 60.0
PIECE_BYTES = 1 << 20
STATUSES = {401: "AuthenticationException", 403: "AccessControlException", 404: "Unreachable"}
"""HTTP status → kind of fault where the body does not say, as WebHDFS itself always does."""
UNREACHED = (
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ConnectTimeoutError,
    ssl.SSLCertVerificationError,
)
"""What is in the chain of errors where there never was a connection."""


class WebClient:
    """A `caffe_on_grid.storage.remote.Client` of one NameNode, or of the NameNodes of one nameservice."""

    appears_whole = False

    def __init__(self, bases: list[str], services: list[str]) -> None:
        """`bases`: http(s)://host:port of each NameNode, the active one is found by asking; `services`: what the
        container's delegation token may name."""
        self._client = _client(";".join(dict.fromkeys(bases)), services)  # of an address named twice it never tires

    def entry(self, path: str) -> Optional[Entry]:
        """What is at `path`; None if nothing is."""
        try:
            with _door():
                found = self._client.status(path)
                return Entry(found["length"], found["type"] == "DIRECTORY", str(found["modificationTime"]))
        except StoreFault as fault:
            if fault.kind == "FileNotFoundException":
                return None
            raise

    def names(self, path: str) -> list[str]:
        """Names in a folder."""
        with _door():
            return list(self._client.list(path))

    def pieces(self, path: str, offset: int, length: int) -> Iterator[bytes]:
        """A range that lies within the file, as it streams in."""
        count = 0
        with _door(), self._client.read(path, offset=offset, length=length, chunk_size=PIECE_BYTES) as pieces:
            for piece in pieces:
                count += len(piece)
                yield piece
        if count != length:
            raise StoreFault("Broken", f"{count} of {length} bytes came")

    def create(self, path: str, content: Content) -> None:
        """Write a file and its parents, replacing one that is there."""
        with _door():
            self._client.write(path, content(), overwrite=True)

    def append(self, path: str, data: bytes) -> None:
        """Add to a file."""
        with _door():
            self._client.write(path, data, append=True)

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents."""
        with _door():
            self._client.makedirs(path)

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, replacing a file of that name, in one step: what `Client.rename` does not offer."""
        with _door():
            self._client._rename(source, destination=target, renameoptions="OVERWRITE")

    def remove(self, path: str) -> None:
        """Delete a file, or a folder with all in it."""
        with _door():
            self._client.delete(path, recursive=True)


def _client(url: str, services: list[str]) -> Any:
    """The library's client for who we are: by the container's token, by Kerberos, else by the user's name alone."""
    options = {"timeout": TIMEOUT_S, "session": _session()}
    token = tokens.hdfs_token(services)
    if token:
        client = hdfs.TokenClient(url, token.encoded, **options)
    elif hadoop.secure():
        options["session"].auth = _negotiate
        client = hdfs.Client(url, **options)
    else:
        client = hdfs.InsecureClient(url, hadoop.user(), **options)
    client.resolve = str  # our paths are whole; its own reading of them gives "#LATEST" a meaning
    return client


def _negotiate(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Each request proves by the ticket who we are."""
    try:
        request.headers["Authorization"] = kerberos.negotiate(urlsplit(request.url or "").hostname or "")
    except SecurityFault as fault:
        raise StoreFault("AuthenticationException", str(fault)) from None
    return request


def _session() -> requests.Session:
    """The cluster is asked directly, not by the proxy of the way out; the machine's certificates count."""
    session = requests.Session()
    session.trust_env = False
    known = ssl.get_default_verify_paths()
    session.verify = known.cafile or known.capath or True
    session.hooks["response"].append(_refuse_strangers)
    return session


def _refuse_strangers(answer: requests.Response, **_: Any) -> None:
    """The library reads neither failures that WebHDFS did not write nor the reason of a 401: both end here."""
    if answer.status_code < 400:
        return
    try:
        found = answer.json()["RemoteException"]
        fault = StoreFault(found["exception"], found["message"])
    except (ValueError, KeyError, TypeError):
        kind, text = STATUSES.get(answer.status_code, "Broken"), f"HTTP status {answer.status_code}"
        raise StoreFault(kind, f"not WebHDFS's answer: {text}") from None
    if answer.status_code == 401:
        raise fault


@contextmanager
def _door() -> Iterator[None]:
    """Every error of the library inside leaves as a StoreFault; what requests says is not kept: it shows the token."""
    try:
        yield
    except hdfs.HdfsError as error:
        raise StoreFault(error.exception or "Broken", str(error)) from None
    except (ValueError, KeyError, TypeError) as error:
        raise StoreFault("Unreachable", "what answers there is not WebHDFS") from error
    except requests.RequestException as error:
        raise _fault(error) from None


def _fault(error: requests.RequestException) -> StoreFault:
    chain: list[BaseException] = [error]
    while cause := chain[-1].__cause__ or chain[-1].__context__:
        chain.append(cause)
    first = chain[-1]
    kind = "Unreachable" if any(isinstance(one, UNREACHED) for one in chain) else "Broken"
    kind = "UnknownHost" if isinstance(first, socket.gaierror) else kind
    where = f"{urlsplit(str(error.request.url)).netloc}: " if error.request is not None else ""
    return StoreFault(kind, f"{where}{getattr(first, 'strerror', None) or type(first).__name__}")
