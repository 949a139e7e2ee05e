"""Before a job is submitted: what YARN's REST API says of it; whether a Spark master answers, or a GPU is here."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional
from urllib.parse import urlencode

from caffe_on_grid.errors import EnvironmentFault, GangError, SecurityFault, UsageError
from caffe_on_grid.submit import capacity, yarn
from caffe_on_grid.submit.capacity import Request

LIMITS = {"memory-mb": "yarn.scheduler.maximum-allocation-mb", "vcores": "yarn.scheduler.maximum-allocation-vcores"}

CONNECT_S = 10.0
NVIDIA = Path("/proc/driver/nvidia/gpus")
"""Where Linux lists the GPUs that its driver has found."""


def standalone(url: str) -> None:
    """EnvironmentFault where no master of spark://HOST:PORT[,HOST:PORT…] is reached: Spark would try for a minute."""
    faults = []
    for address in url.partition("://")[2].split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise UsageError(f"--master {url}: expected spark://HOST:PORT")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
        except (OSError, OverflowError) as error:
            faults.append(f"{address}: {getattr(error, 'strerror', None) or error}")
        else:
            return
    raise EnvironmentFault(
        f"--master {url}: no Spark master answers ({'; '.join(faults)}); check the address, start it"
    )


def own_gpu(environ: Mapping[str, str]) -> None:
    """EnvironmentFault where a job that runs here wants a GPU, and neither a driver nor its program is here."""
    if not NVIDIA.exists() and shutil.which("nvidia-smi", path=environ.get("PATH")) is None:
        raise EnvironmentFault(
            "solver_mode is GPU, but this machine has no NVIDIA driver; use --solver-mode cpu or a cluster with GPUs"
        )


def check(wanted: Request, environ: Mapping[str, str]) -> Optional[str]:
    """GangError where YARN can never run the job. A remark where YARN does not let us ask; else None.

    EnvironmentFault where no ResourceManager answers: Spark would try for a quarter of an hour.
    """
    settings = yarn.configuration(environ)
    try:
        found = problem(wanted, yarn.connect(settings, environ), settings)
    except yarn.Refused as refused:
        return f"queue, label and sizes are not checked beforehand: {refused}"
    if found:
        raise GangError(found)
    return None


def without_gpus(environ: Mapping[str, str]) -> bool:
    """Whether YARN knows no such resource as GPUs; where it does not let us ask, it is taken to."""
    try:
        return not capacity.knows_gpus(yarn.connect(yarn.configuration(environ), environ).get("nodes"))
    except yarn.Refused:
        return False


def problem(wanted: Request, manager: yarn.ResourceManager, settings: Mapping[str, str]) -> Optional[str]:
    """What stands against the job."""
    limits = {name: int(settings[key]) for name, key in LIMITS.items() if settings.get(key, "").isdigit()}
    scheduler = manager.get("scheduler")
    found = capacity.problem(wanted, scheduler, labels(manager), capacity.nodes(manager.get("nodes")), limits)
    return found or _access(wanted, manager, scheduler)


def labels(manager: yarn.ResourceManager) -> Optional[list[str]]:
    """The labels that the cluster knows; None where it has none at all, as an older YARN."""
    try:
        rows: Any = manager.get("get-node-labels").get("nodeLabelInfo") or []
    except yarn.Refused:
        raise
    except EnvironmentFault:
        return None
    return sorted(str(row["name"]) for row in rows)


def _access(wanted: Request, manager: yarn.ResourceManager, scheduler: Mapping[str, Any]) -> Optional[str]:
    """Whether the user may submit to the queue; a YARN that cannot be asked this refuses the job itself."""
    queue, _ = capacity.find_queue(scheduler, wanted.queue)
    query = urlencode({"user": wanted.user, "queue-acl-type": "SUBMIT_APPLICATIONS", "user.name": wanted.user})
    try:
        answer = manager.get(f"queues/{(queue or {}).get('queueName', wanted.queue)}/access?{query}")
    except (EnvironmentFault, SecurityFault):
        return None
    if str(answer.get("allowed", "true")).lower() == "true":
        return None
    why = " ".join(str(answer.get("diagnostics", "")).split())
    return f"--queue {wanted.queue}: user {wanted.user} may not submit to it; YARN says: {why}"
