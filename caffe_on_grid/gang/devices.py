"""What this host has: GPUs, RDMA devices, addresses, cores, and the BLAS kernels that fit its CPU."""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from caffe_on_grid.errors import EnvironmentFault, UsageError
from caffe_on_grid.spec.rank import Device

_QUERY = ["nvidia-smi", "--query-gpu=index,uuid,name", "--format=csv,noheader"]
_SIOCGIFADDR = 0x8915
_CORES = (("avx512f", "SkylakeX"), ("avx2", "Haswell"))


def gpus(assigned: Sequence[str]) -> tuple[Device, ...]:
    """The GPUs Spark assigned (by index or UUID), else all that nvidia-smi lists; none where there is no driver.

    An inherited CUDA_VISIBLE_DEVICES says nothing: it may be another task's.
    """
    present = parse_gpus(_nvidia_smi())
    if not assigned:
        return present
    known = {name: device for device in present for name in (str(device.index), device.uuid or "")}
    unknown = [address for address in assigned if address not in known]
    if unknown:
        raise EnvironmentFault(
            f"Spark assigned GPU {', '.join(unknown)} on {socket.gethostname()}, but nvidia-smi lists "
            f"{', '.join(str(d.index) for d in present) or 'none'}; check the GPU discovery script"
        )
    return tuple(known[address] for address in assigned)


def parse_gpus(listing: str) -> tuple[Device, ...]:
    """Devices from nvidia-smi's `index, uuid, name` lines."""
    rows = [line.split(",", 2) for line in listing.splitlines() if line.count(",") >= 2]
    return tuple(Device("gpu", int(index), uuid.strip(), name.strip()) for index, uuid, name in rows)


def _nvidia_smi() -> str:
    clean = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    try:
        done = subprocess.run(_QUERY, capture_output=True, text=True, timeout=60, check=False, env=clean)
    except FileNotFoundError:
        return ""
    except subprocess.TimeoutExpired:
        raise EnvironmentFault(
            f"nvidia-smi on {socket.gethostname()} gives no answer in 60 s; check the driver"
        ) from None
    return done.stdout if done.returncode == 0 else ""


def gpu_build(runtime: Path) -> bool:
    """Whether the runtime's libcaffe is linked to CUDA, or its torch built for it and not packed for CPUs alone."""
    if (runtime / "cpu-only").exists():
        return False
    torch = any(runtime.glob("lib/python3*/*-packages/torch/lib/libtorch_cuda.so"))
    libraries = [path for folder in ("lib64", "lib") for path in (runtime / folder).glob("libcaffe.so*")]
    return torch or any(b"libcudart" in path.read_bytes() for path in libraries)


def infiniband(root: Path = Path("/sys/class/infiniband")) -> tuple[str, ...]:
    """RDMA devices with an active port, as "device:port"."""
    states = sorted(root.glob("*/ports/*/state"))
    return tuple(f"{s.parts[-4]}:{s.parts[-2]}" for s in states if "ACTIVE" in s.read_text())


def interface_addresses() -> dict[str, str]:
    """IPv4 address of each interface that has one."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:  # the interface has no IPv4 address
                continue
            found[name] = socket.inet_ntoa(answer[20:24])
    return found


def network(cidr: Optional[str], towards_driver: str) -> tuple[Optional[str], str]:
    """(interface, address) of the ranks' traffic: in `cidr`, else the address from which the driver is reached.

    The interface is None where that address is loopback (all is on one host) or no interface's own.
    """
    found = interface_addresses()
    if cidr:
        return interface_in(cidr, found)
    if ipaddress.ip_address(towards_driver).is_loopback:
        return None, towards_driver
    return next((name for name, address in found.items() if address == towards_driver), None), towards_driver


def interface_in(cidr: str, addresses: dict[str, str]) -> tuple[str, str]:
    """(interface, address) in the network `cidr`; EnvironmentFault listing what there is, UsageError for no CIDR."""
    try:
        network = ipaddress.ip_network(cidr, strict=False)
    except ValueError as error:
        raise UsageError(f"network {cidr!r}: {error}; write it as 10.1.0.0/16") from None
    for name, address in addresses.items():
        if ipaddress.ip_address(address) in network:
            return name, address
    listing = ", ".join(f"{name} {address}" for name, address in addresses.items())
    raise EnvironmentFault(f"{socket.gethostname()} has no address in {cidr}; it has {listing}")


def cpus() -> int:
    """Cores that this process may use: its affinity and its cgroup's quota."""
    affinity = len(os.sched_getaffinity(0))
    quota = _quota()
    return affinity if quota is None else max(1, min(affinity, int(quota)))


def _quota(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> Optional[float]:
    """The smallest CPU quota, in cores, of this process's cgroups and their parents (both versions of cgroups)."""
    limits = []
    for line in membership.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        base = root if not controllers else root / controllers
        if controllers and "cpu" not in controllers.split(","):
            continue
        inside = base / path.strip("/")
        limits += [_limit(folder) for folder in (inside, *inside.parents) if folder == base or base in folder.parents]
    return min((limit for limit in limits if limit is not None), default=None)


def _limit(folder: Path) -> Optional[float]:
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
    except OSError:  # this level sets no limit, or the file belongs to another
        return None
    return None if quota in ("max", "-1") else int(quota) / int(period)


def blas_core(cpuinfo: Path = Path("/proc/cpuinfo")) -> Optional[str]:
    """OPENBLAS_CORETYPE for this CPU: OpenBLAS 0.3.13 knows newer ones too little to choose well."""
    flags = next((line.split() for line in cpuinfo.read_text().splitlines() if line.startswith("flags")), [])
    return next((core for flag, core in _CORES if flag in flags), None)
