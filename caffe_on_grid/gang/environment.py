"""What a rank's environment holds: a short list, nothing inherited by accident."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from caffe_on_grid.gang import transport
from caffe_on_grid.gang.placement import Facts
from caffe_on_grid.spec.job import JobSpec

KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "JAVA_HOME")
KEPT_PREFIXES = ("HADOOP_", "KRB5", "LOCAL_DIRS", *transport.SITE_PREFIXES)
"""KRB5: where tickets are, for ranks on the gateway; HADOOP_: configuration and HADOOP_TOKEN_FILE_LOCATION, the
container's delegation tokens; LOCAL_DIRS: its disks."""
SPARK_HADOOP = "__spark_conf__/__hadoop_conf__"
"""Where Spark puts the gateway's Hadoop configuration into a container."""

_NEEDED = b"GLIBCXX_3.4.26"  # what the archive's libraries ask of libstdc++


def base(inherited: Mapping[str, str], runtime: Path) -> dict[str, str]:
    """What every program of the gang gets, MPI's launcher included."""
    kept = {k: v for k, v in inherited.items() if k in KEPT or k.startswith(KEPT_PREFIXES)}
    compat = runtime / "lib64-compat"
    libraries = {"LD_LIBRARY_PATH": str(compat)} if compat.is_dir() and not _has_recent_libstdcxx() else {}
    return {
        "PATH": os.defpath,
        **_hadoop(inherited),
        **kept,
        **libraries,
        "PYTHONPATH": package_root(),
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }


def of_ranks(
    job: JobSpec, facts: Facts, threads: int, interface: Optional[str], folder: Path, base_environment: dict[str, str]
) -> dict[str, str]:
    """What the ranks of one executor get; never CUDA_VISIBLE_DEVICES: a device's index counts as nvidia-smi counts."""
    core = job.runtime.blas_core or facts.blas_core
    return {
        **base_environment,
        **transport.environment(job.sync.connection, interface, facts.infiniband),
        **({"OPENBLAS_CORETYPE": core} if core else {}),
        **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads)),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "GLOG_minloglevel": "2",
        "CAFFE_ON_GRID_GANG_DIR": str(folder),
        "CAFFE_ON_GRID_PYTHON": str(Path(facts.runtime) / "bin" / "python"),
    }


def node(inherited: Mapping[str, str]) -> str:
    """What YARN calls this container's node, "host:port"; "" outside of YARN."""
    known = {"NM_HOST", "NM_PORT"} <= inherited.keys()
    return f"{inherited['NM_HOST']}:{inherited['NM_PORT']}" if known else ""


def _hadoop(inherited: Mapping[str, str]) -> dict[str, str]:
    """The configuration that came with the job, for ranks whose working directory is not the container's."""
    shipped = Path(SPARK_HADOOP).absolute()
    return {"HADOOP_CONF_DIR": str(shipped)} if "CONTAINER_ID" in inherited and shipped.is_dir() else {}


def package_root() -> str:
    """The folder or zip from which this package is imported."""
    spec = importlib.util.find_spec("caffe_on_grid")
    assert spec is not None and spec.submodule_search_locations
    return str(Path(next(iter(spec.submodule_search_locations))).resolve().parent)


def _has_recent_libstdcxx() -> bool:
    try:
        ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return False
    loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libstdc++" in line}
    return any(_NEEDED in Path(path).read_bytes() for path in loaded)
