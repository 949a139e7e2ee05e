"""Which rank runs where, on which device: pure arithmetic over what the executors said of themselves.

Ranks are numbered executor by executor, and within an executor device by device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from caffe_on_grid.errors import EnvironmentFault, GangError
from caffe_on_grid.spec.rank import Device

THREADS = 8
"""More BLAS threads than this gain a rank nothing: Caffe multiplies one image's matrices at a time."""


@dataclass(frozen=True)
class Facts:
    """What one executor says of itself, in the order of the stage's tasks."""

    executor: int
    host: str
    address: str
    """Where the other executors reach this one."""
    pid: int
    """The agent's process."""
    cpus: int
    ranks: int
    """Ranks wanted here."""
    runtime: str
    """Folder of the ranks' runtime on this executor."""
    devices: tuple[Device, ...] = ()
    """GPUs that this executor may use."""
    assigned: bool = False
    """Spark itself assigned these GPUs; False: they are all that the host shows."""
    infiniband: tuple[str, ...] = ()
    """RDMA devices with an active port, as "device:port"."""
    mpich: Optional[str] = None
    """MPICH's version in the runtime; None: it has no MPI."""
    gpu_build: bool = False
    """The runtime's Caffe can use GPUs."""
    blas_core: Optional[str] = None
    """OPENBLAS_CORETYPE that fits the CPU."""
    category: Optional[str] = None
    """Class of the error that kept this executor from the facts above."""
    error: Optional[str] = None
    node: str = ""
    """YARN's name of the node, "host:port"; "" elsewhere. Two nodes may share a host."""
    container: str = ""
    """YARN's container."""


@dataclass(frozen=True)
class Seat:
    """One rank's place."""

    rank: int
    executor: int
    host: str
    local_rank: int
    device: Device


@dataclass(frozen=True)
class Placement:
    """The whole world, the same on every executor."""

    seats: tuple[Seat, ...]
    mode: str
    """"cpu" or "gpu"."""
    threads: tuple[int, ...]
    """BLAS threads of each rank, by executor."""
    notes: tuple[str, ...] = ()
    """Remarks for the user."""

    @property
    def world(self) -> int:
        """Number of ranks."""
        return len(self.seats)

    def of(self, executor: int) -> tuple[Seat, ...]:
        """The ranks of one executor."""
        return tuple(seat for seat in self.seats if seat.executor == executor)

    def counts(self, executors: int) -> tuple[int, ...]:
        """Ranks on each executor."""
        return tuple(len(self.of(executor)) for executor in range(executors))


def place(facts: Sequence[Facts], solver_mode: str, threads: Optional[int] = None) -> Placement:
    """Give every rank its executor and device.

    `solver_mode` is auto (GPU where all executors have one and Caffe can use it, else CPU), cpu or gpu; `threads`
    overrides the BLAS threads per rank. Raises EnvironmentFault (no GPU, no common MPI), GangError (too few GPUs).
    """
    mode, notes = _resolve_mode(facts, solver_mode)
    seats = _seats(facts, _deal(facts) if mode == "gpu" else [(Device("cpu"),) * f.ranks for f in facts])
    _check_distinct(seats)
    if len(seats) > 1:
        _check_mpi(facts)
    return Placement(seats, mode, tuple(threads or _threads(f, facts) for f in facts), (*notes, *_crowded(facts, mode)))


def _resolve_mode(facts: Sequence[Facts], wanted: str) -> tuple[str, tuple[str, ...]]:
    if wanted == "cpu":
        return "cpu", ()
    without = [f.host for f in facts if not f.devices]
    builds = all(f.gpu_build for f in facts)
    if wanted == "gpu":
        _check_gpu(without, builds)
        return "gpu", ()
    if len(without) == len(facts):
        return "cpu", ("no GPU on any executor: training on CPU",)
    if not builds:
        return "cpu", ("the runtime's Caffe is built for CPU only: training on CPU although there are GPUs",)
    if without:
        raise EnvironmentFault(
            f"no GPU on {_listing(without)}, but on the other executors; choose nodes with --node-label, or train on "
            "CPU with --solver-mode cpu"
        )
    return "gpu", ()


def _check_gpu(without: Sequence[str], builds: bool) -> None:
    if without:
        raise EnvironmentFault(
            f"solver_mode is GPU, but there is no GPU on {_listing(without)}; use --solver-mode cpu or GPU nodes"
        )
    if not builds:
        raise EnvironmentFault(
            "solver_mode is GPU, but the runtime's Caffe is built for CPU only; use --solver-mode cpu or "
            "a --runtime with a GPU build"
        )


def _deal(facts: Sequence[Facts]) -> list[tuple[Device, ...]]:
    """Each executor's devices: what Spark assigned, or the host's GPUs that no earlier executor has taken."""
    taken: set[Optional[str]] = set()
    hands = []
    for fact in facts:
        free = fact.devices if fact.assigned else tuple(d for d in fact.devices if d.uuid not in taken)
        if fact.ranks > len(free):
            raise GangError(_too_few(fact, len(free), facts))
        hands.append(free[: fact.ranks])
        taken.update(d.uuid for d in hands[-1])
    return hands


def _too_few(fact: Facts, free: int, facts: Sequence[Facts]) -> str:
    wanted = sum(f.ranks for f in facts)
    shared = f" ({len(fact.devices)} less {len(fact.devices) - free} of other executors there)" * (
        free < len(fact.devices)
    )
    return (
        f"executor {fact.executor} on {fact.host} is to run {fact.ranks} ranks, one per GPU, but has {free} GPUs"
        f"{shared}: {len(facts)} executors with {wanted} ranks in all; lower -devices or choose nodes with more GPUs"
    )


def _seats(facts: Sequence[Facts], hands: Sequence[Sequence[Device]]) -> tuple[Seat, ...]:
    places = [(fact, local, device) for fact, hand in zip(facts, hands) for local, device in enumerate(hand)]
    return tuple(
        Seat(rank, fact.executor, fact.host, local, device) for rank, (fact, local, device) in enumerate(places)
    )


def _check_distinct(seats: Sequence[Seat]) -> None:
    owner: dict[str, Seat] = {}
    for seat in seats:
        uuid = seat.device.uuid
        if uuid is None:
            continue
        other = owner.setdefault(uuid, seat)
        if other is not seat:
            raise EnvironmentFault(
                f"ranks {other.rank} (executor {other.executor}) and {seat.rank} (executor {seat.executor}) would both "
                f"use GPU {uuid} on {seat.host}; the cluster must assign every GPU once: check its GPU isolation or "
                "discovery script"
            )


def _check_mpi(facts: Sequence[Facts]) -> None:
    without = [f.host for f in facts if f.mpich is None]
    if without:
        raise EnvironmentFault(f"no MPI (bin/mpiexec) in the runtime on {_listing(without)}; use another --runtime")
    versions = sorted({f"{f.mpich} on {f.host}" for f in facts})
    if len({f.mpich for f in facts}) > 1:
        raise EnvironmentFault(f"all executors must have one MPICH, but there is {', '.join(versions)}")


def _threads(fact: Facts, facts: Sequence[Facts]) -> int:
    return max(1, min(THREADS, fact.cpus // _ranks_on(facts)[fact.host]))


def _ranks_on(facts: Sequence[Facts]) -> Counter[str]:
    ranks: Counter[str] = Counter()
    for fact in facts:
        ranks[fact.host] += fact.ranks
    return ranks


def _crowded(facts: Sequence[Facts], mode: str) -> tuple[str, ...]:
    """A word where ranks share cores (allowed: CPU devices are not counted)."""
    cpus = {f.host: f.cpus for f in facts}
    hosts = [(host, n) for host, n in _ranks_on(facts).items() if mode == "cpu" and n > cpus[host]]
    return tuple(f"{host} runs {n} ranks on {cpus[host]} cores: they will be slower for it" for host, n in hosts)


def _listing(hosts: Sequence[str]) -> str:
    names = list(dict.fromkeys(hosts))
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
