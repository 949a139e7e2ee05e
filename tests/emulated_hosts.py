"""Hosts on one machine: each has namespaces of its own for network, mounts, names, processes and shared memory.

Every host has an address on the network `MAIN`, on which the driver can be reached, another on `FAST`, and a bridge
whose address is the same everywhere, as container engines make it. Needs root.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MAIN, FAST = "10.77.0", "10.78.0"
DRIVER = f"{MAIN}.254"
EVERYWHERE = "172.31.255.1"
_CLONE_NEWNET = 0x40000000
_LISTEN = "0A"
_SETUP = """
set -e
hostname "$NAME"
mount -t tmpfs shm /dev/shm
mount --bind "$OWN" "$NODE"
for other in $OTHERS; do mount -t tmpfs -o size=64k hidden "$other"; done
"$@"
exit $?
"""


class Hosts:
    """`count` hosts under `folder`: host i sees its own host-i, and the same as `node`; the others' are hidden."""

    def __init__(self, count: int, folder: Path) -> None:
        self.count, self.prefix = count, f"cg{os.getpid()}-"
        self.switch = f"{self.prefix}switch"
        self.names = [f"{self.prefix}{i}" for i in range(count)]
        self.own = [folder / f"host-{i}" for i in range(count)]
        self.node = folder / "node"
        for path in (*self.own, self.node):
            path.mkdir(parents=True)
        self.ports: list[set[int]] = [set() for _ in range(count)]
        """Ports on which each host's programs have listened."""

    def __enter__(self) -> Hosts:
        for name in (self.switch, *self.names):
            _sh(f"ip netns add {name} && ip -n {name} link set lo up")
        for network, net in (("main", MAIN), ("fast", FAST)):
            _sh(f"ip -n {self.switch} link add {network} type bridge && ip -n {self.switch} link set {network} up")
            for i, name in enumerate(self.names):
                self._plug(i, name, network, f"{net}.{i + 1}/24")
        _sh(f"ip -n {self.switch} addr add {DRIVER}/24 dev main")
        for name in self.names:
            _sh(f"ip -n {name} link add containers type bridge && ip -n {name} link set containers up")
            _sh(f"ip -n {name} addr add {EVERYWHERE}/16 dev containers")
            _sh(f"ip -n {name} link add c0 type veth peer name c1 && ip -n {name} link set c0 master containers")
            _sh(f"ip -n {name} link set c0 up && ip -n {name} link set c1 up")
        return self

    def __exit__(self, *_: object) -> None:
        for name in (self.switch, *self.names):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def _plug(self, i: int, name: str, network: str, address: str) -> None:
        """An interface whose name differs from host to host."""
        _sh(f"ip link add {network}{i} netns {name} type veth peer name {network}-{i} netns {self.switch}")
        _sh(f"ip -n {self.switch} link set {network}-{i} master {network} up")
        _sh(f"ip -n {name} addr add {address} dev {network}{i} && ip -n {name} link set {network}{i} up")

    def at_switch(self, make: Callable[[], Any]) -> Any:
        """What `make` returns, run in the network of the driver: a socket made there stays there."""
        made: list[Any] = []

        def enter() -> None:
            with Path(f"/run/netns/{self.switch}").open() as space:
                if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), _CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            made.append(make())

        thread = threading.Thread(target=enter)  # the namespace is the thread's, and goes with it
        thread.start()
        thread.join()
        return made[0]

    def start(self, i: int, command: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
        """A program on host i; all that it starts ends with it."""
        others = " ".join(str(path) for k, path in enumerate(self.own) if k != i)
        mine = {"NAME": f"machine-{i}", "OWN": str(self.own[i]), "NODE": str(self.node), "OTHERS": others}
        spaces = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
        return subprocess.Popen(
            ["ip", "netns", "exec", self.names[i], *spaces, "sh", "-c", _SETUP, "host", *command],
            env={**env, **mine},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def received(self, network: str) -> list[int]:
        """Bytes that each host has had from a network."""
        path = "cat /sys/class/net/{}/statistics/rx_bytes"
        return [int(_sh(f"ip netns exec {name} {path.format(network + str(i))}")) for i, name in enumerate(self.names)]

    @contextlib.contextmanager
    def watched(self, programs: list[subprocess.Popen[str]]) -> Iterator[None]:
        """Notes the ports that programs on the hosts listen on."""
        over = threading.Event()

        def look() -> None:
            while not over.is_set():
                for ports, program in zip(self.ports, programs):
                    ports |= _listening(program.pid)
                time.sleep(0.01)

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _listening(pid: int) -> set[int]:
    try:
        # Asked first: a program starts here and then moves to its host, so that what is read after is the host's.
        if Path(f"/proc/{pid}/ns/net").stat().st_ino == Path("/proc/self/ns/net").stat().st_ino:
            return set()
        rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    except OSError:  # it has ended
        return set()
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == _LISTEN}


def _sh(command: str) -> str:
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout
