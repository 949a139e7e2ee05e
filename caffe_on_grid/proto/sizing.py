"""Host memory of one rank, from the shapes of its nets: an estimate that says what it is made of.

Source of the numbers of copies: Caffe 1.0's solvers and nets; of the fixed parts: peak resident memory of real ranks on
Linux x86-64, which the tests measure again. What PyTorch or a GPU's driver needs is not in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from caffe_on_grid.proto.shapes_base import FLOAT, NetShapes, count
from caffe_on_grid.proto.shapes_data import KINDS

MIB = 2**20

BASE_MIB = 116
"""Interpreter, numpy, protobuf and Caffe's libraries, before the first net."""
MPI_MIB = 12
"""MPI's libraries and buffers, where there is more than one rank."""
FEEDER_MIB = 45
"""A feeder process: interpreter, numpy and image decoding, beside the ring."""
SLACK = 0.08
"""What the allocator holds beyond what was asked of it, as a share of what was asked."""

HISTORY: dict[str, int] = {"SGD": 1, "Nesterov": 2, "AdaGrad": 2, "RMSProp": 2, "AdaDelta": 4, "Adam": 3}
"""Solver type → copies of the parameters that it keeps on a CPU: its history, and the buffers of its update."""
SAVED: dict[str, int] = {"AdaDelta": 2, "Adam": 2}
"""Solver type → copies of the parameters in a .solverstate, where it is not one."""


@dataclass(frozen=True)
class Item:
    """One part of the memory."""

    name: str
    bytes: int
    why: str
    """One line."""


@dataclass(frozen=True)
class Estimate:
    """Memory of a rank and, apart from it, of its feeder processes."""

    items: tuple[Item, ...]
    feeders: tuple[Item, ...]
    complete: bool
    """Whether all shapes were known; if not, the estimate is a lower bound."""

    @property
    def rank_mib(self) -> int:
        """The rank's own process, in MiB, rounded up."""
        return _mib(sum(item.bytes for item in self.items))

    @property
    def mib(self) -> int:
        """The rank and its feeders, in MiB, rounded up."""
        return self.rank_mib + _mib(sum(item.bytes for item in self.feeders))

    def lines(self) -> Iterator[str]:
        """The breakdown, largest first, for people."""
        for item in sorted((*self.items, *self.feeders), key=lambda item: -item.bytes):
            yield f"{item.bytes / MIB:>9.1f} MiB  {item.name}: {item.why}"
        bound = "" if self.complete else " at least: shapes of data are not known here"
        yield f"{self.mib:>7} MiB    for each rank{bound}"


def estimate(
    solver: Any,
    train: Optional[NetShapes],
    tests: Sequence[NetShapes] = (),
    world: int = 1,
    bucket_mib: int = 16,
    prefetch: int = 4,
    feeders: int = 1,
) -> Estimate:
    """What one rank takes at its peak: `train` and `tests` in one process, exchanging with `world` − 1 others.

    `bucket_mib`, `prefetch` and `feeders` as in JobSpec (SyncSpec.bucket_mib, DataSpec). A job without training has no
    `train`; its first TEST net then owns the parameters.
    """
    nets = [*([train] if train else []), *tests]
    items = [Item("base", BASE_MIB * MIB, "interpreter and libraries, measured")]
    if world > 1:
        items.append(Item("MPI", MPI_MIB * MIB, f"{world} ranks"))
    if train:
        items += _net(train, "TRAIN net", prefetch, feeders)
        items += _training(solver, train, world, bucket_mib)
    for index, net in enumerate(tests):
        items += _net(net, f"TEST net {index}", 2, 1)
    items.append(_parameters(solver, nets))
    items.append(Item("allocator", int(SLACK * sum(i.bytes for i in items[1:])), f"{SLACK:.0%} of all but the base"))
    processes = feeders * bool(train) + len(tests)
    ring = Item("feeders", processes * FEEDER_MIB * MIB, f"{processes} processes that read and transform records")
    return Estimate(tuple(item for item in items if item.bytes), (ring,), all(not net.unknown for net in nets))


def _net(net: NetShapes, title: str, slots: int, feeders: int) -> Iterator[Item]:
    """A net's own memory but for parameters."""
    yield Item(f"{title}, blobs", net.total("activation_bytes"), "values of tops")
    yield Item(f"{title}, gradients of blobs", net.total("gradient_bytes"), "and of the copies for several users")
    yield Item(f"{title}, buffers", net.total("buffer_bytes"), "im2col columns, masks, statistics")
    held = feeders * max(2, -(-slots // feeders))
    batch = FLOAT * sum(count(shape) for one in net.layers if one.type in KINDS for shape in one.top_shapes)
    yield Item(f"{title}, batches", held * batch, f"{held} batches read ahead, shared with the feeders")


def _training(solver: Any, train: NetShapes, world: int, bucket_mib: int) -> Iterator[Item]:
    """What learning adds: gradients, history, exchange, snapshots."""
    each = train.total("parameter_bytes")
    copies = HISTORY.get(solver.type, max(HISTORY.values()))
    copies += bool(
        solver.regularization_type == "L1" and solver.weight_decay and solver.type not in ("AdaDelta", "Adam")
    )
    yield Item("gradients of parameters", each, "TRAIN net")
    yield Item("solver", copies * each, f"{copies} x the parameters for type {solver.type}")
    if world > 1:
        bucket = min(bucket_mib * MIB, FLOAT * train.learnable)
        yield Item("exchange", bucket, f"one bucket of up to {bucket_mib} MiB")
    saved = max(1, SAVED.get(solver.type, 1))
    yield Item(
        "snapshot", saved * each, f"model and state are written from {saved} x the parameters, one after the other"
    )


def _parameters(solver: Any, nets: Sequence[NetShapes]) -> Item:
    """The first net owns them; a TEST net has its own until it is first used."""
    each = [net.total("parameter_bytes") for net in nets]
    late = bool(len(each) > 1 and not solver.test_initialization)
    why = "shared by all nets" + (", but for TEST nets before their first use" if late else "")
    return Item("parameters", sum(each) if late else max(each, default=0), why)


def _mib(size: int) -> int:
    return -(-size // MIB)
