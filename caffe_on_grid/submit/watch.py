"""An application of YARN's as the gateway sees it: its id, whether its gang comes together, how it ended, its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Optional

from caffe_on_grid.errors import ContactLost, EnvironmentFault, GangError, GridError, SecurityFault
from caffe_on_grid.submit import capacity, yarn
from caffe_on_grid.submit.argv import Application
from caffe_on_grid.submit.process import say

LOOK_S = 0.5
"""Between two looks at YARN."""

TROUBLE_S = 60.0
"""How long YARN may be away before that is told."""

LOST_S = 900.0
"""How long YARN may be away before nothing is known of a job that nobody else follows."""


class Watch:
    """Looks at one application; a YARN that is away for a while is no failure of the job."""

    def __init__(self, application: Application, environ: Mapping[str, str]) -> None:
        self._asked, self._environ = application, environ
        self._settings = yarn.configuration(environ)
        self._manager = yarn.connect(self._settings, environ)
        self.id: Optional[str] = None
        self.facts: dict[str, Any] = {}
        """What YARN said last of the application."""
        self._began: Optional[float] = None
        self._complete = False
        self._looked = 0.0
        self._blind_since: Optional[float] = None
        self._told = False
        self._patience_s = TROUBLE_S
        self._lock = threading.Lock()

    def announce(self, application: str) -> None:
        """The application's id is known; it is said as schedulers look for it."""
        with self._lock:
            if self.id is None:
                self.id, self._began = application, time.monotonic()
                say(f"Submitted application {application}")

    def look(self) -> Optional[GangError]:
        """See how the application does; an error where its gang has not come together in time."""
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return None
        self._looked = now
        try:
            return self._see(now)
        except (EnvironmentFault, SecurityFault) as fault:
            self._blind(now, fault)
            return None

    def _see(self, now: float) -> Optional[GangError]:
        if self.id is None:
            for found in self._manager.tagged(self._asked.tag):
                self.announce(found)
        if self.id is not None:
            self.facts = self._manager.application(self.id)
        self._blind_since = None
        return self._late(now)

    def _blind(self, now: float, fault: GridError) -> None:
        self._blind_since = self._blind_since or now
        if now - self._blind_since > TROUBLE_S and not self._told:
            self._told = True
            say(f"note: YARN cannot be asked how the job does: {fault}")

    def _late(self, now: float) -> Optional[GangError]:
        containers = int(self.facts.get("runningContainers", 0) or 0)
        self._complete = self._complete or containers > self._asked.request.executors
        waited = now - (self._began or now)
        if self._complete or self.ended or waited <= self._asked.job.cluster.gang_timeout_s:
            return None
        return GangError(self._short(containers, waited))

    def _short(self, containers: int, waited: float) -> str:
        wanted = self._asked.request
        nodes = capacity.nodes(self._manager.get("nodes"))
        state = self.facts.get("state", "unknown to YARN")
        what = (
            f"{self.id} is {state} after {waited:.0f} s"
            if state != "RUNNING"
            else f"{max(0, containers - 1)} of {wanted.executors} executors came within {waited:.0f} s"
        )
        said = capacity.standing(wanted, nodes, str(self.facts.get("diagnostics", "")))
        return f"{what}; {said}; it was killed: ask for less, see the queue, or wait longer (--gang-timeout)"

    @property
    def ended(self) -> bool:
        """Whether YARN has said that the application has ended."""
        return bool(self.facts) and self.facts.get("state") not in yarn.UNFINISHED

    @property
    def running(self) -> bool:
        """Whether the application ran when YARN was last asked, LOST_S ago at most."""
        blind_s = time.monotonic() - self._blind_since if self._blind_since else 0.0
        return self.facts.get("state") == "RUNNING" and blind_s < LOST_S

    def refresh(self) -> None:
        """Ask YARN once more what became of the application, waiting a moment for its end."""
        deadline = time.monotonic() + 10
        while self.id is not None and not self.ended and time.monotonic() < deadline:
            try:
                self.facts = self._manager.application(self.id)
            except (EnvironmentFault, SecurityFault):
                return
            if not self.ended:
                time.sleep(LOOK_S / 2)

    def kill(self) -> None:
        """End the application, if there is one, and wait until YARN says that it has ended.

        A submission that is under way when it is killed shows up in YARN a moment later. A YARN that is away is tried
        for TROUBLE_S; ContactLost then, once: a further call tries once more and no longer.
        """
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                return self._kill()
            except EnvironmentFault as fault:
                if time.monotonic() > deadline:
                    self._patience_s = 0.0
                    raise ContactLost(self._alive(fault)) from None
            time.sleep(LOOK_S)

    def _alive(self, fault: EnvironmentFault) -> str:
        by_hand = f"; end it by hand: yarn application -kill {self.id}" if self.id else ""
        return f"{self.id or 'the application'} may still run, it could not be killed: {fault}{by_hand}"

    def _kill(self) -> None:
        own = yarn.own_application(self._environ)
        try:
            self._find()
            if self.id is not None and self.id != own and not self.ended:
                yarn.end([self.id], self._manager)
        except yarn.Refused:
            self._kill_by_program()

    def _find(self) -> None:
        deadline = time.monotonic() + 2
        while self.id is None and time.monotonic() < deadline:
            for found in self._manager.tagged(self._asked.tag):
                self.announce(found)
            time.sleep(LOOK_S / 2)

    def _kill_by_program(self) -> None:
        program = yarn.program(self._environ)
        if program is None:
            raise SecurityFault(
                f"{self.id or 'the application'} could not be killed: YARN's REST API refuses, and there is no yarn "
                "program on PATH; kill it by hand"
            )
        yarn.end([self.id] if self.id else program.tagged(self._asked.tag), program)
