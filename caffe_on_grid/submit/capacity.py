"""What a job asks of YARN, and whether YARN can ever give it. Pure: YARN's answers are arguments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from caffe_on_grid.spec import units

OVERHEAD_MIB = 384
"""Spark's least overhead of a container."""

GPU = "yarn.io/gpu"
_UNLIMITED = 1 << 40


@dataclass(frozen=True)
class Request:
    """The containers of one job."""

    executors: int
    memory_mib: int
    """Of an executor's container: heap, overhead, ranks."""
    cores: int
    gpus: int
    queue: str
    label: Optional[str]
    am_label: Optional[str]
    am_memory_mib: int
    user: str = ""

    @property
    def container(self) -> str:
        """An executor's container in words."""
        gpus = f", {self.gpus} GPU{'s' * (self.gpus > 1)}" if self.gpus else ""
        return f"{self.memory_mib} MiB, {self.cores} vcore{'s' * (self.cores > 1)}{gpus}"


def request(executors: int, in_cluster: bool, settings: Mapping[str, str], user: str) -> Request:
    """What Spark asks of YARN for `settings`, its own defaults included (Client.scala, YarnAllocator.scala)."""
    heap = units.mebibytes(settings.get("spark.executor.memory", "1g"))
    beside = ("spark.executor.pyspark.memory", "spark.memory.offHeap.size")
    memory = heap + _overhead(settings, "spark.executor", heap) + _sum(settings, beside)
    kind, own = ("spark.driver", "1g") if in_cluster else ("spark.yarn.am", "512m")
    am = units.mebibytes(settings.get(f"{kind}.memory", own))
    return Request(
        executors=executors,
        memory_mib=memory,
        cores=int(settings.get("spark.executor.cores", "1")),
        gpus=int(settings.get("spark.executor.resource.gpu.amount", "0")),
        queue=settings.get("spark.yarn.queue", "default"),
        label=settings.get("spark.yarn.executor.nodeLabelExpression") or None,
        am_label=settings.get("spark.yarn.am.nodeLabelExpression") or None,
        am_memory_mib=am + _overhead(settings, kind, am),
        user=user,
    )


def _overhead(settings: Mapping[str, str], kind: str, memory: int) -> int:
    given = settings.get(f"{kind}.memoryOverhead")
    factor = float(settings.get(f"{kind}.memoryOverheadFactor", "0.1"))
    return units.mebibytes(given) if given else max(OVERHEAD_MIB, int(memory * factor))


def _sum(settings: Mapping[str, str], names: Sequence[str]) -> int:
    return sum(units.mebibytes(settings[name]) for name in names if settings.get(name))


@dataclass(frozen=True)
class Node:
    """A running node: what it has in all, and what is free."""

    name: str
    label: str
    memory_mib: int
    gpus: int
    free_mib: int
    free_vcores: int

    def holds(self, wanted: Request) -> int:
        """How many of the job's containers the whole node can hold; vcores are not counted by every scheduler."""
        by_memory = self.memory_mib // max(1, wanted.memory_mib)
        return min(by_memory, self.gpus // wanted.gpus) if wanted.gpus else by_memory


def knows_gpus(answer: Mapping[str, Any]) -> bool:
    """Whether the nodes of `/ws/v1/cluster/nodes` tell of GPUs, if only of none."""
    rows = (answer.get("nodes") or {}).get("node") or []
    return any(entry["name"] == GPU for row in rows for entry in _resources(row.get("totalResource")))


def nodes(answer: Mapping[str, Any]) -> list[Node]:
    """The running nodes of `/ws/v1/cluster/nodes`."""
    rows = (answer.get("nodes") or {}).get("node") or []
    return [_node(row) for row in rows if row["state"] == "RUNNING"]


def _node(row: Mapping[str, Any]) -> Node:
    used, free = int(row["usedMemoryMB"]), int(row["availMemoryMB"])
    label = (row.get("nodeLabels") or [""])[0]
    return Node(row["id"], label, used + free, _gpus(row.get("totalResource")), free, int(row["availableVirtualCores"]))


def _gpus(resource: Any) -> int:
    return next((int(entry["value"]) for entry in _resources(resource) if entry["name"] == GPU), 0)


def _resources(resource: Any) -> list[Mapping[str, Any]]:
    found = ((resource or {}).get("resourceInformations") or {}).get("resourceInformation") or []
    return list(found)


def queues(answer: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every queue of `/ws/v1/cluster/scheduler`, from the root down; empty for a scheduler without queues."""
    info = (answer.get("scheduler") or {}).get("schedulerInfo") or {}
    yield from _below(info)


def _below(queue: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield queue
    for child in (queue.get("queues") or {}).get("queue") or []:
        yield from _below(child)


def find_queue(answer: Mapping[str, Any], name: str) -> tuple[Optional[Mapping[str, Any]], list[str]]:
    """The leaf queue `name` (short or with its path), and the names of all leaves."""
    named = [queue for queue in queues(answer) if queue.get("queueName")]
    leaves = [queue for queue in named if not (queue.get("queues") or {}).get("queue")]
    found = next((queue for queue in leaves if name in (queue.get("queueName"), queue.get("queuePath"))), None)
    return found, sorted(str(queue.get("queueName")) for queue in leaves)


def largest(queue: Mapping[str, Any]) -> dict[str, int]:
    """The largest container that YARN grants in a queue, by resource, as far as it says."""
    partitions = (queue.get("capacities") or {}).get("queueCapacitiesByPartition") or []
    rows = [row for partition in partitions for row in _resources(partition.get("configuredMaxResource"))]
    limits = {str(row["name"]): int(row["maximumAllocation"]) for row in rows}
    return {name: limit for name, limit in limits.items() if limit < _UNLIMITED}


def problem(
    wanted: Request,
    scheduler: Mapping[str, Any],
    labels: Optional[Sequence[str]],
    here: Sequence[Node],
    fallback: Mapping[str, int],
) -> Optional[str]:
    """Why YARN can never run the job, in a line; None where nothing stands against it.

    `labels`: those that the cluster knows (None: it has no labels); `fallback`: limits of the gateway's own
    configuration, for a scheduler that does not tell them.
    """
    queue, known = find_queue(scheduler, wanted.queue)
    if known and queue is None:
        return f"--queue {wanted.queue}: YARN has no such queue to submit to; it has {', '.join(known)}"
    queue = queue or {}
    label = wanted.label or str(queue.get("defaultNodeLabelExpression") or "")
    checks = (
        _queue_problem(wanted, queue),
        _label_problem("--node-label", wanted.label, queue, labels, here),
        _label_problem("--am-node-label", wanted.am_label, queue, labels, here),
        _size_problem(wanted, {**fallback, **largest(queue)}),
        _room_problem(wanted, label, here),
    )
    return next((found for found in checks if found), None)


def _queue_problem(wanted: Request, queue: Mapping[str, Any]) -> Optional[str]:
    state = queue.get("state", "RUNNING")
    return None if state == "RUNNING" else f"--queue {wanted.queue}: YARN says that it is {state}; name another queue"


def _label_problem(
    option: str,
    label: Optional[str],
    queue: Mapping[str, Any],
    labels: Optional[Sequence[str]],
    here: Sequence[Node],
) -> Optional[str]:
    if not label:
        return None
    if labels is None:
        return f"{option} {label}: this YARN has no node labels (yarn.node-labels.enabled); leave the option out"
    if label not in labels:
        return f"{option} {label}: YARN knows no such node label; it knows {', '.join(labels) or 'none'}"
    # The CapacityScheduler leaves the list out where it is empty.
    open_to = queue.get("nodeLabels", [] if "capacities" in queue else None)
    if open_to is not None and "*" not in open_to and label not in open_to:
        name, listing = queue.get("queueName"), ", ".join(each for each in open_to if each.strip()) or "none"
        return f"{option} {label}: queue {name} may not use this label; it may use {listing}: name another --queue"
    if not any(node.label == label for node in here):
        return f"{option} {label}: no running node carries this label; nodes carry {_carried(here)}"
    return None


def _carried(here: Sequence[Node]) -> str:
    return ", ".join(sorted({node.label for node in here if node.label})) or "none"


def _size_problem(wanted: Request, limits: Mapping[str, int]) -> Optional[str]:
    rows = (
        ("memory-mb", wanted.memory_mib, "MiB", "--executor-memory or -devices"),
        ("vcores", wanted.cores, "vcores", "--executor-cores"),
        (GPU, wanted.gpus, "GPUs", "-devices"),
    )
    for name, amount, unit, remedy in rows:
        if amount > limits.get(name, amount):
            return (
                f"an executor's container of {wanted.container} is larger than YARN's largest, {limits[name]} {unit}; "
                f"lower {remedy}"
            )
    if wanted.am_memory_mib > limits.get("memory-mb", wanted.am_memory_mib):
        return (
            f"the application master's container of {wanted.am_memory_mib} MiB is larger than YARN's largest, "
            f"{limits['memory-mb']} MiB; lower --driver-memory"
        )
    return None


def _room_problem(wanted: Request, label: str, here: Sequence[Node]) -> Optional[str]:
    mine = [node for node in here if node.label == label]
    room = sum(node.holds(wanted) for node in mine)
    if not here or room >= wanted.executors:
        return None
    where = f"nodes labelled {label}" if label else "nodes without a label"
    most = max((node.memory_mib for node in mine), default=0)
    gpus = f" and {sum(node.gpus for node in mine)} GPUs" if wanted.gpus else ""
    return (
        f"{wanted.executors} executors of {wanted.container} do not fit: the {len(mine)} {where} have room for {room} "
        f"even when empty (largest {most} MiB{gpus}); lower --num-executors, -devices or --executor-memory, or name "
        "another --node-label"
    )


def standing(wanted: Request, here: Sequence[Node], diagnostics: str) -> str:
    """What YARN says while a job waits, in words."""
    mine = [node for node in here if node.label == (wanted.label or "")]
    free = sum(node.free_mib // max(1, wanted.memory_mib) for node in mine)
    place = f"label {wanted.label}" if wanted.label else "nodes without a label"
    rest = f"{place}: {len(mine)} nodes, {sum(node.free_mib for node in mine)} MiB and "
    rest += f"{sum(node.free_vcores for node in mine)} vcores free, room for {math.floor(free)} of {wanted.container}"
    said = " ".join(diagnostics.split())
    return f"YARN says: queue {wanted.queue}, {rest}" + (f"; {said[:400]}" if said else "")
