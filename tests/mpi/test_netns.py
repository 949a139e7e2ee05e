"""Training between hosts: ranks that share no memory, no folder and no loopback (namespaces of this machine)."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import nets
import numpy as np
import pytest
from emulated_hosts import DRIVER, FAST, Hosts
from ranks import Ranks
from spark.gang_support import KEY, Driver

from caffe_on_grid.comm.channel import Closed, Listener
from caffe_on_grid.proto import schema
from caffe_on_grid.spec import codec
from caffe_on_grid.spec.job import JobSpec, Output, SyncSpec
from caffe_on_grid.spec.report import Failed, Finished, Started


def _possible() -> bool:
    tools = all(shutil.which(name) for name in ("ip", "unshare"))
    return tools and subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"]).returncode == 0


pytestmark = [
    pytest.mark.runtime,
    pytest.mark.mpi,
    pytest.mark.skipif(not _possible(), reason="emulated hosts need iproute2, util-linux and the right to namespaces"),
]
PROGRAM = Path(__file__).with_name("programs") / "host_agent.py"
PORTS = (21000, 21400)
BATCH = 12


class Barrier:
    """allGather for `count` hosts, over the network."""

    def __init__(self, host: str, count: int) -> None:
        self.listener, self.count = Listener(host, KEY), count
        self.thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        channels = []
        while len(channels) < self.count and (channel := self.listener.accept(60)):
            channels.append(channel)
        try:
            while True:
                said = [channel.receive(60) or {} for channel in channels]
                texts = [one["text"] for one in sorted(said, key=lambda one: one["executor"])]
                for channel in channels:
                    channel.send({"texts": texts})
        except Closed:
            return
        finally:
            for channel in channels:
                channel.close()


@pytest.fixture(scope="module")
def lmdb(tmp_path_factory):
    return nets.write_lmdb(tmp_path_factory.mktemp("lmdb") / "train", 48)


@pytest.fixture(scope="module")
def alone(runtime, runtime_env, lmdb, tmp_path_factory):
    """The model of one rank that sees every batch whole."""
    folder = tmp_path_factory.mktemp("alone")
    written = write_job(folder / "job", lmdb, 1)
    spec = JobSpec(("train",), "solver.prototxt", output=Output(model=str(folder / "m.caffemodel")))
    outcome = Ranks(runtime, runtime_env, folder).run(spec, written)
    assert outcome.code == 0, outcome
    return parameters(folder / "m.caffemodel")


def write_job(folder: Path, records: Path, world: int) -> Path:
    solver = nets.solver(more="momentum: 0.9 weight_decay: 0.001", test=False)
    return nets.write_job(folder, nets.net(records, records, batch=BATCH // world), solver)


def parameters(model: Path) -> dict[str, np.ndarray]:
    net = schema.NetParameter.FromString(model.read_bytes())
    return {f"{layer.name}/{i}": np.array(b.data, np.float32) for layer in net.layer for i, b in enumerate(layer.blobs)}


class Cluster:
    """Emulated hosts with a copy of everything on each, and the driver's side of one gang."""

    def __init__(self, hosts: Hosts, runtime: Path, lmdb: Path, ranks: tuple[int, ...]) -> None:
        self.hosts, self.ranks = hosts, ranks
        for own in hosts.own:
            shutil.copytree(lmdb, own / "train")
            (write_job(own / "job", hosts.node / "train", sum(ranks)) / "job.json").write_text("{}")
            (own / "caffe_on_grid.tgz").symlink_to(runtime)
            (own / "tmp").mkdir()

    def train(self, sync: SyncSpec, env: dict[str, str]) -> tuple[Driver, str]:
        """Run the gang to its end; the driver with all it heard, and what the hosts' programs printed."""
        driver = self.hosts.at_switch(lambda: Driver(DRIVER))
        barrier = self.hosts.at_switch(lambda: Barrier(DRIVER, self.hosts.count))
        barrier.thread.start()
        programs = [self._start(i, driver, barrier, sync, env) for i in range(self.hosts.count)]
        with self.hosts.watched(programs):
            try:
                said = "".join(program.communicate(timeout=200)[0] for program in programs)
            finally:
                for program in programs:
                    program.kill()
                    program.wait()
                barrier.thread.join()
                barrier.listener.close()
                driver.close()
        return driver, said

    def _start(self, i: int, driver: Driver, barrier: Barrier, sync: SyncSpec, env: dict[str, str]):
        own, node = self.hosts.own[i], self.hosts.node
        spec = JobSpec(("train",), "solver.prototxt", sync=sync, output=Output(model=str(node / "m.caffemodel")))
        asked = {
            "job": codec.encode(dataclasses.replace(spec)),
            "run_folder": str(node / "run"),
            "key": KEY.hex(),
            "driver": driver.listener.address,
            "barrier": barrier.listener.address,
            "ranks": self.ranks,
        }
        (own / "plan.json").write_text(json.dumps(asked))
        command = [sys.executable, str(PROGRAM), str(own / "plan.json"), str(i), str(own)]
        return self.hosts.start(i, command, {**env, "TMPDIR": str(own / "tmp")})


PORT_RANGE = {
    "MPIEXEC_PORT_RANGE": "{}:{}".format(*PORTS),
    "UCX_TCP_PORT_RANGE": "{}-{}".format(*PORTS),
    "FI_TCP_PORT_LOW_RANGE": str(PORTS[0]),
    "FI_TCP_PORT_HIGH_RANGE": str(PORTS[1]),
}
TCP, FAST_TCP = SyncSpec(connection="ethernet"), SyncSpec(connection="ethernet", net_cidr=f"{FAST}.0/24")
WAYS = {
    "as MPI chooses": ((1, 1), SyncSpec(), {}),
    "the driver's network": ((1, 1), TCP, {}),
    "a network by --net-cidr": ((2, 1), FAST_TCP, PORT_RANGE),
    "the same by libfabric": ((1, 1), FAST_TCP, {**PORT_RANGE, "MPIR_CVAR_CH4_NETMOD": "ofi"}),
}


@pytest.mark.parametrize(("ranks", "sync", "more"), WAYS.values(), ids=WAYS)
def test_ranks_on_separate_hosts_equal_one(runtime, runtime_env, lmdb, alone, tmp_path, ranks, sync, more):
    with Hosts(len(ranks), tmp_path / "hosts") as hosts:
        cluster = Cluster(hosts, runtime, lmdb, ranks)
        driver, said = cluster.train(dataclasses.replace(sync, check_every=10), {**runtime_env, **more})
        received = {"main": hosts.received("main"), "fast": hosts.received("fast")}
    assert not driver.reports(Failed), (driver.reports(Failed), said)
    assert [r.rank for r in driver.reports(Finished)] == list(range(sum(ranks))), said
    assert {r.host for r in driver.reports(Started)} == {f"machine-{i}" for i in range(len(ranks))}
    trained = parameters(hosts.own[0] / "m.caffemodel")
    assert not (hosts.own[1] / "m.caffemodel").exists(), "there is no common folder"
    for name, values in alone.items():
        np.testing.assert_allclose(trained[name], values, rtol=0, atol=1e-5, err_msg=name)
    chosen, other = ("fast", "main") if sync.net_cidr else ("main", "fast")
    gradients = 20 * sum(values.nbytes for values in trained.values())
    assert max(received[other]) < gradients / 4 < gradients < min(received[chosen]), received
    assert all(hosts.ports), "each host's ranks listen"
    assert not more or all(PORTS[0] <= port <= PORTS[1] for ports in hosts.ports for port in ports), hosts.ports
