"""MPICH's launcher without ssh: `mpiexec -launcher manual` prints one proxy command per node; each node runs its own.

The wire between mpiexec and its proxies is MPICH's own and not authenticated.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from caffe_on_grid.errors import EnvironmentFault

VERSION_S = 60.0
"""For mpiexec to say its version: on a slow disk nothing of the runtime may be in memory yet."""

# Ranks inherit their own node's environment through its proxy: the runtime's path may differ from node to node.
_START_RANK = 'cd "$CAFFE_ON_GRID_GANG_DIR" && exec "$CAFFE_ON_GRID_PYTHON" "$@"'


def version(runtime: Path) -> Optional[str]:
    """MPICH's version in `runtime`; None where it has no working mpiexec."""
    try:
        done = subprocess.run(
            [str(runtime / "bin" / "mpiexec"), "--version"],
            capture_output=True,
            text=True,
            timeout=VERSION_S,
            check=False,
        )
    except OSError:
        return None
    except subprocess.TimeoutExpired:
        raise EnvironmentFault(f"{runtime}/bin/mpiexec gives no answer in {VERSION_S:g} s; is its disk slow?") from None
    lines = (line.split(":", 1) for line in done.stdout.splitlines() if ":" in line)
    return next((value.strip() for key, value in lines if key.strip() == "Version"), None)


def command(runtime: Path, address: str, counts: Sequence[int], arguments: Sequence[str]) -> list[str]:
    """The mpiexec line for `counts[i]` ranks on executor i, each running the runtime's Python with `arguments`.

    `address` is where the proxies call back. Host names are mere labels. No environment is passed on (-genvnone), and
    every rank begins in / because the launching node's folder need not exist elsewhere.
    """
    hosts = ",".join(f"exec-{i}:{count}" for i, count in enumerate(counts))
    launcher = [str(runtime / "bin" / "mpiexec"), "-launcher", "manual", "-localhost", address, "-genvnone"]
    placement = ["-wdir", "/", "-hosts", hosts, "-n", str(sum(counts))]
    return [*launcher, *placement, "/bin/sh", "-c", _START_RANK, "rank", *arguments]


def launch_lines(output: str) -> Optional[list[str]]:
    """The proxy commands in node order from mpiexec's `output`; None while it is incomplete."""
    lines = output.splitlines()
    if "HYDRA_LAUNCH_END" not in (line.strip() for line in lines):
        return None
    found = [line.split(":", 1)[1].strip() for line in lines if line.startswith("HYDRA_LAUNCH:")]
    return sorted(found, key=_node)


def proxy_command(line: str, runtime: Path) -> list[str]:
    """`line` as this node runs it: with its own runtime's proxy."""
    words = shlex.split(line)
    if not words or Path(words[0]).name != "hydra_pmi_proxy":
        raise EnvironmentFault(f"mpiexec printed an unknown launch line: {line!r}; the runtime needs MPICH with Hydra")
    return [str(runtime / "bin" / "hydra_pmi_proxy"), *words[1:]]


def _node(line: str) -> int:
    words = shlex.split(line)
    if "--proxy-id" not in words:
        raise EnvironmentFault(f"mpiexec printed an unknown launch line: {line!r}; the runtime needs MPICH with Hydra")
    return int(words[words.index("--proxy-id") + 1])
