"""Why a driver's container died: the decisive line of its log, which its NodeManager shows, or of YARN's diagnosis."""

from __future__ import annotations

import http.client
import re
from collections.abc import Mapping
from typing import Any, Optional
from urllib.parse import urlsplit

BYTES = 16384
TIMEOUT_S = 5.0

_DECISIVE = (
    re.compile(r".*(?:version `GLIBC\w*_[\d.]+' not found|error while loading shared libraries).*"),
    re.compile(r".*(?:Exec format error|cannot execute binary file|bin/python: .*Syntax error).*"),
    re.compile(r".*(?:Cannot run program|bin/python: .*).*"),
    re.compile(r".*(?:not in gzip format|unexpected end of file|Error is not recoverable|Unexpected end of ZLIB).*"),
    re.compile(r".*Failed to download resource.*"),
    re.compile(r"error: .*"),
    re.compile(r".*(?:beyond the 'PHYSICAL' memory limit|OutOfMemoryError).*"),
    re.compile(r"\w*(?:Error|Exception): .*"),
)
"""What to look for in a log, the most telling first; of several the last counts."""


FOREIGN = "the runtime is for another processor or system than the node's: "
"""Where its Python is no program there, the node's shell is the one to complain."""


def cause(facts: Mapping[str, Any]) -> Optional[str]:
    """The decisive line of the application master's log; None where it has none, or cannot be had any more.

    Spark writes what the driver's Python says to stdout.
    """
    page = str(facts.get("amContainerLogs") or "")
    for name in ("stdout", "stderr"):
        text = _log(page, name)
        found = decisive(text) if text else None
        if found:
            return f"{FOREIGN}{found}" if "Syntax error" in found else found
    return None


def decisive(text: str) -> Optional[str]:
    """The line that tells most."""
    lines = [line.strip() for line in text.splitlines()]
    for pattern in _DECISIVE:
        found = [line for line in lines if pattern.fullmatch(line)]
        if found:
            return found[-1][:600]
    return None


def diagnosis(text: str) -> str:
    """The telling line of an application's diagnostics, else all of it on one line."""
    return decisive(text) or " ".join(text.split())[:600]


def _log(address: str, name: str) -> Optional[str]:
    """The end of a log of the container whose page is `http://NODE/node/containerlogs/CONTAINER/USER`."""
    parts = urlsplit(address)
    found = re.search(r"/containerlogs/(container_\w+)", parts.path)
    if not found or not parts.netloc:
        return None
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=TIMEOUT_S)
    try:
        connection.request("GET", f"/ws/v1/node/containerlogs/{found[1]}/{name}?size=-{BYTES}")
        answer = connection.getresponse()
        text = answer.read(4 * BYTES).decode("utf-8", "replace")
        return text if answer.status == 200 else None
    except (OSError, http.client.HTTPException):
        return None  # the node is gone, or does not talk to us: YARN's diagnosis must do
    finally:
        connection.close()
