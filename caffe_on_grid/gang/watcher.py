"""The agent's loop over one executor's ranks: relays what they say, notices what they do not, hears the driver."""

from __future__ import annotations

import dataclasses
import selectors
import socket
import time
from collections.abc import Sequence
from typing import Any, Callable, Optional

from caffe_on_grid.comm.channel import Channel, Closed
from caffe_on_grid.errors import ContactLost, TrainingFailed, from_category
from caffe_on_grid.gang import post_mortem
from caffe_on_grid.gang.folder import GangFolder
from caffe_on_grid.gang.launch import Told
from caffe_on_grid.gang.processes import Guarded
from caffe_on_grid.gang.watch import Ranks, RankState
from caffe_on_grid.spec import report
from caffe_on_grid.spec.report import Failed, Remarked
from caffe_on_grid.storage import paths

BEAT_S = 1.0
POLL_S = 0.1
LINE_LIMIT = 1 << 19
"""Bytes of one report line."""
SILENT_S = 2.0
"""A rank that has closed its reports without a last word and still runs by then (writing a core?) counts as dead."""
LOST_S = 1.5
"""A rank that ended without a word waits so long for the word of the rank that was the cause."""


@dataclasses.dataclass(frozen=True)
class Home:
    """Whose ranks these are."""

    executor: int
    host: str
    logs: str
    """URI of the folder that the ranks' logs go to."""
    finish_s: float
    """Between a rank's Finished and the end of its process."""


class Watcher:
    """Watches until every rank has finished and its processes are gone, or something is wrong."""

    def __init__(
        self,
        channel: Channel,
        folder: GangFolder,
        listener: socket.socket,
        programs: Sequence[Guarded],
        ranks: Ranks,
        home: Home,
    ) -> None:
        self._channel, self._folder, self._programs, self._ranks = channel, folder, programs, ranks
        self._executor, self._host, self._home = home.executor, home.host, home
        self._since = self._next_beat = time.monotonic()
        self._partial: dict[socket.socket, bytes] = {}
        self._speaker: dict[socket.socket, int] = {}
        self._silent_since: dict[int, float] = {}
        self._lost_since: Optional[float] = None
        self._finished_since: Optional[float] = None
        self._sources = selectors.DefaultSelector()
        self._watch(listener, lambda: self._admit(listener))
        self._watch(channel, self._hear_driver)

    def run(self) -> None:
        """Return when all went well; raises what went wrong, wrapped in Told where the driver has heard of it."""
        while not self._over():
            for key, _ in self._sources.select(POLL_S):
                key.data()
            self._look()
        self._read_rest()
        self._check_failure()
        self._remark_exits()

    def close(self) -> None:
        """Let go of the ranks' connections."""
        self._sources.close()
        for connection in self._partial:
            connection.close()

    def _watch(self, source: socket.socket | Channel, act: Callable[[], object]) -> None:
        self._sources.register(source, selectors.EVENT_READ, act)

    def _over(self) -> bool:
        if not self._ranks.all_finished():
            return False
        now = time.monotonic()
        self._finished_since = self._finished_since or now
        return all(p.code() is not None for p in self._programs) or now > self._finished_since + self._home.finish_s

    def _look(self) -> None:
        """What no socket tells: progress, exits, time."""
        for state in self._ranks.states.values():
            state.progress = self._folder.progress(state.rank)
        if time.monotonic() >= self._next_beat:
            self._beat()
        self._check_failure()
        self._check_dead()
        self._check_lost()

    def _beat(self) -> None:
        now = time.monotonic()
        self._next_beat = now + BEAT_S
        ranks = [dataclasses.asdict(b) for b in self._ranks.beats(now, self._since)]
        self._send({"type": "beat", "executor": self._executor, "ranks": ranks})

    # -- the driver

    def _hear_driver(self) -> None:
        while True:
            try:
                message = self._channel.receive(0)
            except Closed as error:
                raise self._alone(error) from None
            if message is None:
                return
            if message.get("type") == "stop":
                raise Told(TrainingFailed(f"executor {self._executor}: ended by the driver: {message.get('reason')}"))

    def _relay(self, line: str) -> None:
        self._send({"type": "report", "line": line})

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._channel.send(message)
        except Closed as error:
            raise self._alone(error) from None

    def _alone(self, error: Closed) -> ContactLost:
        return ContactLost(f"executor {self._executor}: the driver is gone ({error})")

    # -- the ranks' words

    def _admit(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        connection.setblocking(False)
        self._partial[connection] = b""
        self._watch(connection, lambda: self._read(connection))

    def _read(self, connection: socket.socket) -> bool:
        """Take what has come; False at the connection's end."""
        try:
            data = connection.recv(1 << 16)
        except BlockingIOError:
            return True
        except ConnectionError:
            data = b""
        *lines, rest = (self._partial[connection] + data).split(b"\n")
        self._partial[connection] = rest
        for line in lines:
            self._speaker[connection] = self._take(line.decode(errors="replace"))
        if data and len(rest) <= LINE_LIMIT:
            return True
        self._sources.unregister(connection)
        del self._partial[connection]
        if connection in self._speaker:
            self._silent_since[self._speaker.pop(connection)] = time.monotonic()
        connection.close()
        return False

    def _take(self, line: str) -> int:
        """Note and relay a report; the rank that it is from."""
        said = report.from_line(line)
        if said.rank not in self._ranks.states:
            raise TrainingFailed(f"a report names rank {said.rank}, which is not on executor {self._executor}")
        if isinstance(said, Failed):
            said = self._completed(said)
            line = report.to_line(said)
        self._ranks.note(said)
        self._relay(line)
        return said.rank

    def _completed(self, failed: Failed) -> Failed:
        """A rank's own failure report, with what the agent knows and the rank did not say."""
        log = self._folder.log(failed.rank)
        return dataclasses.replace(
            failed,
            host=failed.host or self._host,
            native=failed.native or post_mortem.native_lines(log),
            log=failed.log or paths.join(self._home.logs, log.name),
        )

    def _read_rest(self) -> None:
        """All that is still in the sockets of ranks."""
        for key, _ in self._sources.select(0):
            if key.fileobj is not self._channel:
                key.data()
        for connection in list(self._partial):
            while self._pending(connection) and self._read(connection):
                pass

    def _pending(self, connection: socket.socket) -> bool:
        try:
            return bool(connection.recv(1, socket.MSG_PEEK))
        except (BlockingIOError, ConnectionError):
            return False

    # -- the ranks' deaths

    def _check_failure(self) -> None:
        failed = self._ranks.failure()
        if failed is not None:
            raise Told(from_category(failed.category, f"rank {failed.rank} on {self._host}: {failed.message}"))

    def _check_dead(self) -> None:
        """A rank that ended without a last word fails in its agent's words."""
        before = time.monotonic() - SILENT_S
        dead = [
            s
            for s in self._ranks.undecided()
            if self._folder.exit_of(s.rank) is not None or self._silent_since.get(s.rank, before) < before
        ]
        if dead:
            self._read_rest()
            self._check_failure()
        for state in dead:
            if state.final is None:
                self._fail(state, self._folder.exit_of(state.rank))
        self._check_failure()

    def _check_lost(self) -> None:
        """Ranks whose processes went away with the gang: the cause is elsewhere and should be heard first."""
        gone = [p for p in self._programs if p.code() is not None]
        if not gone or not self._ranks.undecided():
            return
        self._lost_since = self._lost_since or time.monotonic()
        if time.monotonic() < self._lost_since + LOST_S:
            return
        self._read_rest()
        for state in self._ranks.undecided():
            self._fail(state, None, tuple(line for p in gone for line in post_mortem.native_lines(p.log)))
        self._check_failure()

    def _fail(self, state: RankState, code: Optional[int], more: tuple[str, ...] = ()) -> None:
        log = self._folder.log(state.rank)
        lines = (*post_mortem.native_lines(log), *more)
        death = post_mortem.Death(code, state.progress.iteration, state.stepped, state.started is not None)
        category, message = post_mortem.explain(death, lines)
        iteration = state.progress.iteration
        where = paths.join(self._home.logs, log.name)
        failed = Failed(state.rank, time.time(), iteration, category, message, self._host, lines, where)
        self._ranks.note(failed)
        self._relay(report.to_line(failed))

    def _remark_exits(self) -> None:
        """A rank whose work is done may still break while it leaves; that is told, not more."""
        for rank in self._ranks.states:
            code = self._folder.exit_of(rank)
            if code:
                how = f"signal {-code}" if code < 0 else f"exit code {code}"
                self._relay(report.to_line(Remarked(rank, time.time(), f"rank {rank} left with {how} after its work")))
