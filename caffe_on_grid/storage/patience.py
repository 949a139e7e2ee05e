"""Waiting for a store that is away, starting again, read-only or full for a while."""

from __future__ import annotations

import time
from typing import Callable, Optional, TypeVar

from caffe_on_grid.errors import EnvironmentFault

PATIENCE_S = 300.0
"""A NameNode that fails over or starts again is back by then; less than a step may take (--step-timeout)."""
PAUSE_S = 5.0
"""Before the second try; it doubles up to MOST_S."""
MOST_S = 30.0

T = TypeVar("T")


def patiently(work: Callable[[], T], note: Optional[Callable[[str], object]] = None) -> T:
    """What `work`, which may be done twice, gives; tried again for PATIENCE_S while it raises EnvironmentFault.

    `note` is told of the first one.
    """
    deadline, pause_s = time.monotonic() + PATIENCE_S, PAUSE_S
    while True:
        try:
            return work()
        except EnvironmentFault as fault:
            if time.monotonic() > deadline:
                raise
            if note:
                note(f"tried again for {PATIENCE_S / 60:g} minutes: {fault}")
                note = None
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, MOST_S)
