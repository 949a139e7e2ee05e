"""Checks of caffe_on_grid.proto that need no pytest, so that both Pythons run the same ones.

In the runtime's Python: `python proto_checks.py` imports the real caffe first, then runs every check beside it.
"""

from __future__ import annotations

import sys

import proto_net_checks
import proto_shapes_checks
import proto_solver_checks
import proto_text_checks
import proto_upgrade_checks
from proto_case import Net

MODULES = (proto_text_checks, proto_upgrade_checks, proto_net_checks, proto_shapes_checks, proto_solver_checks)
CHECKS = {name: check for module in MODULES for name, check in vars(module).items() if name.startswith("check_")}


def main() -> None:
    """Import real Caffe, then run every check in the same process."""
    import caffe
    import google.protobuf

    for check in CHECKS.values():
        check()
    net = caffe.proto.caffe_pb2.NetParameter(name="both")
    assert Net.FromString(net.SerializeToString()).name == "both"
    print(f"{len(CHECKS)} checks, protobuf {google.protobuf.__version__}, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
