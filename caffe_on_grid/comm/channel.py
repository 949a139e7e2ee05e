"""An authenticated channel of JSON messages over TCP: agents report to the driver through it.

Both sides prove that they know the key (HMAC-SHA256 over both sides' fresh nonces, compared in constant time) before
the first message. A message is four bytes of length (big-endian, at most `LIMIT`) and that many bytes of JSON object.
Nothing is encrypted. Whoever breaks these rules is cut off.
"""

from __future__ import annotations

import errno
import hmac
import json
import secrets
import select
import socket
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from caffe_on_grid.errors import ContactLost, EnvironmentFault, SecurityFault

LIMIT = 1 << 20
"""Bytes of JSON in one message."""
HANDSHAKE_S = 10.0
"""A peer that has not proved itself by then is cut off."""
SEND_S = 30.0
"""A peer that does not take a message by then is cut off."""

_MAGIC = b"cogrid/1"
_NONCE = 32
_PROOF = 32
_HEADER = struct.Struct(">I")
_PENDING = 256  # unproved peers at once; more wait in the kernel's backlog


class Closed(ContactLost):
    """The other side has gone, or broke the rules of the channel."""


class Channel:
    """One proved connection. One thread may receive while others send."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._socket = connection
        self._received = bytearray()
        self._sending = threading.Lock()
        self.local_host: str = connection.getsockname()[0]
        """This side's address: an interface from which the other side can be reached."""
        self.peer: str = "{}:{}".format(*connection.getpeername()[:2])
        """The other side, for messages to people."""

    def fileno(self) -> int:
        """For selectors; after readiness call `receive(0)` until it returns None."""
        return self._socket.fileno()

    def send(self, message: dict[str, Any]) -> None:
        """Send one JSON object; raises Closed, and ValueError for one above LIMIT."""
        body = json.dumps(message).encode()
        if len(body) > LIMIT:
            raise ValueError(f"message of {len(body)} bytes; the channel takes {LIMIT}")
        with self._sending:
            self._send_all(_HEADER.pack(len(body)) + body)

    def receive(self, timeout_s: float) -> Optional[dict[str, Any]]:
        """The next message; None if it is not complete within `timeout_s`; raises Closed at the end or at garbage."""
        deadline = time.monotonic() + timeout_s
        while True:
            body = self._next_body()
            if body is not None:
                return self._decode(body)
            if not _ready(self._socket, select.POLLIN, deadline):
                return None
            self._fill()

    def close(self) -> None:
        """Cut the connection; the other side's `receive` raises Closed."""
        self._socket.close()

    def _send_all(self, data: bytes) -> None:
        deadline, left = time.monotonic() + SEND_S, memoryview(data)
        while left:
            if not _ready(self._socket, select.POLLOUT, deadline):
                self._cut(f"takes no message within {SEND_S:.0f} s")
            try:
                left = left[self._socket.send(left) :]
            except BlockingIOError:
                continue
            except OSError as error:
                self._cut(error.strerror or str(error))

    def _next_body(self) -> Optional[bytes]:
        if len(self._received) < _HEADER.size:
            return None
        (length,) = _HEADER.unpack_from(self._received)
        if length > LIMIT:
            self._cut(f"announces a message of {length} bytes, {LIMIT} are allowed")
        end = _HEADER.size + length
        if len(self._received) < end:
            return None
        body = bytes(self._received[_HEADER.size : end])
        del self._received[:end]
        return body

    def _decode(self, body: bytes) -> dict[str, Any]:
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            self._cut("sent something that is no JSON object")
        message: dict[str, Any] = value
        return message

    def _fill(self) -> None:
        try:
            data = self._socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError as error:
            self._cut(error.strerror or str(error))
        if not data:
            self._cut("has gone")
        self._received += data

    def _cut(self, why: str) -> None:
        self.close()
        raise Closed(f"{self.peer} {why}")


def _listen(host: str, ports: Sequence[int]) -> socket.socket:
    for port in ports:
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((host, port), family=family, backlog=512)
        except OSError as error:
            why = error
            if error.errno != errno.EADDRINUSE:
                break
    tried = f"port {port}" if len(ports) == 1 else f"ports {ports[0]} to {ports[-1]}"
    raise EnvironmentFault(f"{host}: the driver cannot listen for the executors at {tried}: {why.strerror or why}")


class Listener:
    """The driver's end: accepts whoever proves to know `key`. One thread calls `accept`."""

    def __init__(self, host: str, key: bytes, bind: Optional[str] = None, ports: Sequence[int] = (0,)) -> None:
        """`host`: where agents find it; `bind`: the address it listens at (default `host`); `ports`: the first free one
        is taken, 0 is any. EnvironmentFault where it cannot listen.
        """
        self._socket = _listen(bind or host, ports)
        self._socket.setblocking(False)
        self._key = key
        self._pending: list[_Peer] = []
        self.address: tuple[str, int] = (host, self._socket.getsockname()[1])
        self.refused = 0
        """Connections that did not prove themselves."""

    def fileno(self) -> int:
        """For selectors."""
        return self._socket.fileno()

    def accept(self, timeout_s: float) -> Optional[Channel]:
        """The next proved connection, or None after `timeout_s`; silent or wrong peers hold up nobody."""
        deadline = time.monotonic() + timeout_s
        while True:
            self._take_new()
            proved = self._prove_pending()
            if proved is not None:
                return proved
            if not self._wait(deadline):
                return None

    def close(self) -> None:
        """Stop listening; channels made stay."""
        self._socket.close()
        for peer in self._pending:
            peer.connection.close()
        self._pending = []

    def _wait(self, deadline: float) -> bool:
        """Sleep until something is to do; False once `deadline` has passed."""
        poll = select.poll()
        if len(self._pending) < _PENDING:
            poll.register(self._socket, select.POLLIN)
        for peer in self._pending:
            poll.register(peer.connection, select.POLLIN)
        now = time.monotonic()
        until = min([deadline, *(p.deadline for p in self._pending)])
        poll.poll(max(0.0, until - now) * 1000)
        return now < deadline

    def _take_new(self) -> None:
        while len(self._pending) < _PENDING:
            try:
                connection, _ = self._socket.accept()
            except BlockingIOError:
                return
            except ConnectionError:  # it went away between its SYN and here
                continue
            connection.setblocking(False)
            peer = _Peer(connection, time.monotonic() + HANDSHAKE_S)
            if peer.greet():
                self._pending.append(peer)
            else:
                self._refuse(peer)

    def _prove_pending(self) -> Optional[Channel]:
        for peer in list(self._pending):
            answer = peer.read()
            if answer is None and time.monotonic() < peer.deadline:
                continue
            self._pending.remove(peer)
            channel = peer.prove(answer, self._key)
            if channel is not None:
                return channel
            self._refuse(peer)
        return None

    def _refuse(self, peer: _Peer) -> None:
        peer.connection.close()
        self.refused += 1


@dataclass(eq=False)
class _Peer:
    """A connection that has not proved itself yet."""

    connection: socket.socket
    deadline: float
    nonce: bytes = field(default_factory=lambda: secrets.token_bytes(_NONCE))
    received: bytes = b""

    def greet(self) -> bool:
        """Send the challenge; a fresh connection's buffer takes it at once."""
        return _sent(self.connection, _MAGIC + self.nonce)

    def read(self) -> Optional[bytes]:
        """The answer once it is complete; b"" if the peer has gone; None while it is to come."""
        wanted = len(_MAGIC) + _NONCE + _PROOF
        try:
            data = self.connection.recv(wanted - len(self.received))
        except BlockingIOError:
            return None
        except OSError:
            return b""
        self.received += data
        return self.received if len(self.received) == wanted or not data else None

    def prove(self, answer: Optional[bytes], key: bytes) -> Optional[Channel]:
        """The channel, if `answer` proves the key and the peer takes our proof."""
        if not answer or answer[: len(_MAGIC)] != _MAGIC:
            return None
        theirs, proof = answer[len(_MAGIC) : -_PROOF], answer[-_PROOF:]
        if not hmac.compare_digest(proof, _proof(key, b"dial", self.nonce, theirs)):
            return None
        return Channel(self.connection) if _sent(self.connection, _proof(key, b"listen", self.nonce, theirs)) else None


def dial(address: tuple[str, int], key: bytes, timeout_s: float) -> Channel:
    """Connect and prove both ways; raises EnvironmentFault (not reachable) or SecurityFault (the keys differ)."""
    where = f"{address[0]}:{address[1]}"
    try:
        connection = socket.create_connection(address, timeout_s)
    except OSError as error:
        raise EnvironmentFault(f"{where} cannot be reached: {error}; is a firewall between the nodes?") from None
    try:
        _answer_challenge(connection, key, where)
        return Channel(connection)
    except BaseException:
        connection.close()
        raise


def _answer_challenge(connection: socket.socket, key: bytes, where: str) -> None:
    try:
        greeting = _read_exactly(connection, len(_MAGIC) + _NONCE)
        if greeting[: len(_MAGIC)] != _MAGIC:
            raise SecurityFault(f"{where} does not speak this program's protocol")
        nonce, mine = greeting[len(_MAGIC) :], secrets.token_bytes(_NONCE)
        connection.sendall(_MAGIC + mine + _proof(key, b"dial", nonce, mine))
        proof = _read_exactly(connection, _PROOF)
    except (EOFError, ConnectionError):
        raise SecurityFault(f"{where} refused this side's key") from None
    except socket.timeout:
        raise EnvironmentFault(f"{where} does not answer in time") from None
    if not hmac.compare_digest(proof, _proof(key, b"listen", nonce, mine)):
        raise SecurityFault(f"{where} does not know this job's key")


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def _proof(key: bytes, side: bytes, listener_nonce: bytes, dialler_nonce: bytes) -> bytes:
    return hmac.digest(key, _MAGIC + side + listener_nonce + dialler_nonce, "sha256")


def _sent(connection: socket.socket, data: bytes) -> bool:
    try:
        return connection.send(data) == len(data)
    except OSError:
        return False


def _ready(connection: socket.socket, event: int, deadline: float) -> bool:
    """Whether `connection` is ready before `deadline` (an error counts as ready: the call then says which)."""
    if connection.fileno() < 0:
        raise Closed("this side has closed the channel")
    poll = select.poll()
    poll.register(connection, event)
    return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
