"""The driver's ear: every agent's channel, and every thread that listens, in one queue of events."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Optional, Union

from caffe_on_grid.comm.channel import Channel, Closed, Listener

_POLL_S = 0.5
"""How soon a listening thread notices that the inbox is being closed."""


@dataclass(frozen=True)
class Arrived:
    """An agent's message, by the number of its channel."""

    source: int
    message: dict[str, Any]


@dataclass(frozen=True)
class Ended:
    """A channel is at its end: its agent has left or is gone."""

    source: int


@dataclass(frozen=True)
class Done:
    """A thread has ended; `error` is what it raised, if it did."""

    name: str
    error: Optional[BaseException]


Event = Union[Arrived, Ended, Done]


class Inbox:
    """Accepts agents and reads them until `close`; what its threads raise comes out of `next` as `Done`."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._channels: dict[int, Channel] = {}
        self._readers: list[threading.Thread] = []
        self._acceptor: Optional[threading.Thread] = None

    def start(self) -> None:
        """Begin to accept agents."""
        self._acceptor = self.errand("accept agents", self._accept)

    def next(self, timeout_s: float) -> list[Event]:
        """All that has come by now; if there is nothing, the next event, or none if none comes within `timeout_s`."""
        try:
            first = self._events.get(timeout=timeout_s)
        except queue.Empty:
            return []
        return [first, *(self._events.get() for _ in range(self._events.qsize()))]

    def errand(self, name: str, work: Callable[[], None]) -> threading.Thread:
        """Run `work` in a thread of its own; its end, good or bad, is an event."""
        thread = threading.Thread(target=self._run, args=(name, work), name=name, daemon=True)
        thread.start()
        return thread

    def send(self, message: dict[str, Any]) -> None:
        """Send to every agent that can still hear."""
        for channel in list(self._channels.values()):
            try:
                channel.send(message)
            except (Closed, OSError):
                # Its end is already, or will be, an event of its reader's.
                continue

    def close(self) -> None:
        """End every thread and close every channel."""
        self._closing.set()
        if self._acceptor:
            self._acceptor.join()
        for reader in self._readers:
            reader.join()
        self._listener.close()
        for channel in self._channels.values():
            channel.close()

    def _run(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # raised again by the thread that owns the inbox
            self._events.put(Done(name, error))
        else:
            self._events.put(Done(name, None))

    def _accept(self) -> None:
        while not self._closing.is_set():
            channel = self._listener.accept(_POLL_S)
            if channel is not None:
                source = len(self._channels)
                self._channels[source] = channel
                self._readers.append(self.errand(f"read agent {source}", partial(self._read, source, channel)))

    def _read(self, source: int, channel: Channel) -> None:
        try:
            while not self._closing.is_set():
                message = channel.receive(_POLL_S)
                if message is not None:
                    self._events.put(Arrived(source, message))
        except (Closed, OSError):
            self._events.put(Ended(source))
