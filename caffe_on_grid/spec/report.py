"""Report lines: what a rank says of itself, as JSON lines, rank → agent → driver.

Every line has `kind`, `rank` and `time` (seconds since the epoch). `decode` gives the dataclass.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.spec import codec


@dataclass(frozen=True)
class Started:
    """The rank's process runs and its net is built (sent once, before the first step)."""

    rank: int
    time: float
    host: str
    pid: int
    engine: str
    """Engine and version, e.g. "caffe 1.0.0"."""
    mode: str
    """"cpu" or "gpu 0 (name)"."""
    blas: str
    """BLAS core type and threads, e.g. "SkylakeX, 1 thread"."""
    transport: str
    """MPI library, device and transports, e.g. "MPICH 4.3.2 ch4:ucx, tcp"; "none" in a world of one."""
    parameters: int
    """Number of learnable values."""
    batch: int
    """Records per step of this rank (batch_size × iter_size)."""
    records: int
    """Records in the TRAIN (task test: TEST) source; 0 if the net makes its own data."""
    first_iteration: int
    max_iterations: int
    notes: tuple[str, ...] = ()
    """One-line remarks for the user (mode chosen, warnings)."""
    loss_weights: dict[str, float] = field(default_factory=dict)
    """Weight of each output that is a loss, in the TRAIN and TEST nets: Caffe prints it beside the value."""


@dataclass(frozen=True)
class Stepped:
    """Progress: at most a few a second per rank, and always for displayed iterations on rank 0."""

    rank: int
    time: float
    iteration: int
    """Steps done so far."""
    loss: float
    """Mean over the last average_loss steps, as Caffe smooths it."""
    outputs: dict[str, tuple[float, ...]]
    lr: float
    samples: int
    """Records this rank has consumed since its first step."""
    seconds: float
    """Since this rank's first step; the next three are parts of it."""
    data_s: float
    compute_s: float
    exchange_s: float
    exchanged_bytes: int
    """Bytes this rank has given to exchanges so far."""
    displayed: bool = False
    """True where Caffe's `display` asks for this iteration."""


@dataclass(frozen=True)
class Tested:
    """One test of one TEST net, averaged as Caffe does; rank 0 only."""

    rank: int
    time: float
    iteration: int
    net: int
    outputs: dict[str, tuple[float, ...]]
    batches: int
    seconds: float


@dataclass(frozen=True)
class Checked:
    """sha256 of all parameters, from every rank; equal over the ranks or the job has failed."""

    rank: int
    time: float
    iteration: int
    digest: str


@dataclass(frozen=True)
class Saved:
    """A snapshot (or the final model) is complete in storage; rank 0 only."""

    rank: int
    time: float
    iteration: int
    uri: str
    """The manifest, or the model."""
    seconds: float


@dataclass(frozen=True)
class Remarked:
    """A one-line warning."""

    rank: int
    time: float
    message: str


@dataclass(frozen=True)
class Finished:
    """The rank ends well (its last line)."""

    rank: int
    time: float
    iteration: int
    digest: str
    samples: int
    skipped: int
    """Undecodable records that were skipped."""
    exchanged_bytes: int
    peak_rss_mib: int


@dataclass(frozen=True)
class Failed:
    """The rank ends badly (its last line, or the agent's in its stead)."""

    rank: int
    time: float
    iteration: int
    category: str
    """Name of the class in `caffe_on_grid.errors`."""
    message: str
    host: str = ""
    native: tuple[str, ...] = ()
    """Last lines of native output (Caffe's `F… Check failed`)."""
    log: Optional[str] = None


Report = Union[Started, Stepped, Tested, Checked, Saved, Remarked, Finished, Failed]
KINDS: dict[str, type] = {
    c.__name__.lower(): c for c in (Started, Stepped, Tested, Checked, Saved, Remarked, Finished, Failed)
}


def to_line(report: Report) -> str:
    """One JSON line, newline included; NaN and infinities are written as the strings Caffe prints."""
    return json.dumps({"kind": type(report).__name__.lower(), **_finite(codec.encode(report))}) + "\n"


def from_line(line: str) -> Report:
    """The report that `line` holds; raises ConfigError where it is none."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(f"report line: not JSON: {error}") from None
    kind = value.pop("kind", None) if isinstance(value, dict) else None
    if kind not in KINDS:
        raise ConfigError(f"report line: unknown kind {kind!r}; known: {', '.join(KINDS)}")
    report: Report = codec.decode(KINDS[kind], _floats(value), f"report {kind}")
    return report


_NON_FINITE = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
_TEXT_FIELDS = frozenset({"host", "engine", "mode", "blas", "transport", "digest", "uri", "message", "category", "log"})


def _finite(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "nan" if value != value else ("inf" if value > 0 else "-inf")
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, list) else value


def _floats(value: Any, key: str = "") -> Any:
    if isinstance(value, str) and key not in _TEXT_FIELDS and value in _NON_FINITE:
        return _NON_FINITE[value]
    if isinstance(value, dict):
        return {k: _floats(v, k) for k, v in value.items()}
    return [_floats(v, key) for v in value] if isinstance(value, list) else value


PHASES = ("starting", "data", "compute", "exchange", "test", "snapshot", "done")


@dataclass(frozen=True)
class Progress:
    """Where a rank is, kept in a mapped file so that its agent sees it while the solver holds the interpreter."""

    iteration: int
    phase: str
    monotonic: float
    """CLOCK_MONOTONIC seconds of the last change (one clock per host)."""

    FORMAT = struct.Struct("<qqd")
    SIZE = FORMAT.size

    def pack_into(self, buffer: Any) -> None:
        """Write into `buffer` (at least SIZE bytes)."""
        self.FORMAT.pack_into(buffer, 0, self.iteration, PHASES.index(self.phase), self.monotonic)

    @classmethod
    def unpack_from(cls, buffer: Any) -> Progress:
        """Read what `pack_into` wrote; zeros read as iteration 0, "starting"."""
        iteration, phase, monotonic = cls.FORMAT.unpack_from(buffer, 0)
        return cls(iteration, PHASES[phase], monotonic)


@dataclass(frozen=True)
class Manifest:
    """`<prefix>_iter_N.json`: written last, so its presence says that the snapshot is complete."""

    iteration: int
    world: int
    seed: int
    run_id: str
    batches: int
    """Global TRAIN batches (of world × batch records) consumed so far."""
    test_passes: int
    """Tests made so far of each TEST net (their sources go on where they stopped)."""
    solver_type: str
    model: str
    """File name of the .caffemodel, beside the manifest."""
    state: str
    """File name of the .solverstate, beside the manifest."""
    batch: int = 0
    """Records of each rank's pass (batch_size of the first TRAIN data layer; 0 without one)."""
    sizes: dict[str, int] = field(default_factory=dict)
    sha256: dict[str, str] = field(default_factory=dict)
    version: int = 1
