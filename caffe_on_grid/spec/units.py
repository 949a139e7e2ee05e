"""Quantities as people write them: memory as Spark does, durations with a unit."""

from __future__ import annotations

import re

_MEMORY = re.compile(r"\s*(\d+)\s*(b|k|kb|m|mb|g|gb|t|tb|p|pb)?\s*\Z", re.IGNORECASE)
_KIB = {"b": 1 / 1024, "k": 1, "m": 1 << 10, "g": 1 << 20, "t": 1 << 30, "p": 1 << 40}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)?\s*\Z", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def mebibytes(text: str) -> int:
    """MiB in a memory size as Spark writes it ("512m", "4g", "1t"; a bare number is MiB); ValueError naming `text`."""
    match = _MEMORY.match(text)
    size = int(int(match[1]) * _KIB[(match[2] or "m")[0].lower()] / 1024) if match else 0
    if size < 1:
        raise ValueError(f"expected a memory size such as 512m or 4g, got {text!r}")
    return size


def seconds(text: str) -> float:
    """Seconds in a duration ("10m", "90s", "1.5h", "250ms"; a bare number is seconds); ValueError naming `text`."""
    match = _DURATION.match(text)
    if not match:
        raise ValueError(f"expected a duration such as 90s or 10m, got {text!r}")
    return float(match[1]) * _SECONDS[(match[2] or "s").lower()]
