"""What `-connection` means for MPI: environment variables of UCX and libfabric, whichever MPICH uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from caffe_on_grid.errors import EnvironmentFault
from caffe_on_grid.gang.placement import Facts

SITE_PREFIXES = ("UCX_", "FI_", "MPIR_CVAR_", "MPICH_", "MPIEXEC_", "HYDRA_")
"""Variables of an executor's environment that its ranks keep (a site's own MPI settings, port ranges among them)."""


def check(connection: str, facts: Sequence[Facts]) -> None:
    """Raise EnvironmentFault naming the hosts that lack what `connection` demands."""
    without = list(dict.fromkeys(f.host for f in facts if not f.infiniband))
    if connection == "infiniband" and without:
        raise EnvironmentFault(
            f"-connection infiniband: no RDMA device with an active port on {', '.join(without)}; "
            "use -connection ethernet or auto, or nodes with InfiniBand"
        )


def environment(connection: str, interface: Optional[str], infiniband: Sequence[str]) -> dict[str, str]:
    """The variables for `connection`: ethernet forces TCP, infiniband RDMA; auto leaves the choice to MPI.

    TCP keeps to `interface`, if one is known: left alone, MPI may take one that leads nowhere (a container engine's
    bridge has the same address on every host).
    """
    if connection == "infiniband":
        return {"UCX_TLS": "rc,ud,sm,self", "UCX_NET_DEVICES": ",".join(infiniband), "FI_PROVIDER": "verbs;ofi_rxm"}
    forced = {"UCX_TLS": "tcp,self", "FI_PROVIDER": "tcp"} if connection == "ethernet" else {}
    fast = () if forced else infiniband
    kept = {"UCX_NET_DEVICES": ",".join([*fast, interface]), "FI_TCP_IFACE": interface} if interface else {}
    return {**forced, **kept}
