from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caffe_on_grid.errors import EnvironmentFault, GangError
from caffe_on_grid.gang import transport
from caffe_on_grid.gang.placement import Facts, place
from caffe_on_grid.spec import codec
from caffe_on_grid.spec.rank import Device


def facts(executor=0, host=None, **known):
    given_facts = {"address": "10.0.0.1", "pid": 1, "cpus": 4, "ranks": 1, "runtime": "/r", "mpich": "4.3.2", **known}
    return Facts(executor=executor, host=host or f"node{executor}", **given_facts)


def gpus(*uuids):
    return tuple(Device("gpu", index, uuid, "a card") for index, uuid in enumerate(uuids))


def test_ranks_go_executor_by_executor():
    placed = place([facts(0, ranks=2), facts(1, ranks=1)], "cpu")
    assert [(s.rank, s.executor, s.local_rank, s.host) for s in placed.seats] == [
        (0, 0, 0, "node0"),
        (1, 0, 1, "node0"),
        (2, 1, 0, "node1"),
    ]
    assert placed.counts(2) == (2, 1)
    assert {s.device.kind for s in placed.seats} == {"cpu"}
    assert placed.notes == ()


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 64)), min_size=1, max_size=8))
def test_every_rank_has_one_seat_and_a_thread(executors):
    placed = place([facts(i, ranks=n, cpus=c) for i, (n, c) in enumerate(executors)], "cpu")
    assert [s.rank for s in placed.seats] == list(range(sum(n for n, _ in executors)))
    assert placed.counts(len(executors)) == tuple(n for n, _ in executors)
    assert all(1 <= t <= 8 for t in placed.threads)
    assert all(t * n <= c or t == 1 for t, (n, c) in zip(placed.threads, executors))


def test_each_rank_gets_a_gpu_of_its_own():
    there = [facts(0, ranks=2, devices=gpus("A", "B"), gpu_build=True), facts(1, devices=gpus("C"), gpu_build=True)]
    placed = place(there, "auto")
    assert placed.mode == "gpu"
    assert [s.device.uuid for s in placed.seats] == ["A", "B", "C"]
    assert [s.device.index for s in placed.seats] == [0, 1, 0]


def test_executors_on_one_host_share_out_what_nobody_assigned():
    there = [facts(i, "node", devices=gpus("A", "B"), gpu_build=True) for i in (0, 1)]
    assert [s.device.uuid for s in place(there, "gpu").seats] == ["A", "B"]
    with pytest.raises(GangError, match=r"run 1 ranks, one per GPU, but has 0 GPUs \(2 less 2 of other executors"):
        place([*there, facts(2, "node", devices=gpus("A", "B"), gpu_build=True)], "gpu")


def test_one_gpu_assigned_twice_names_both():
    there = [facts(i, "node", devices=gpus("A"), assigned=True, gpu_build=True) for i in (0, 1)]
    with pytest.raises(
        EnvironmentFault, match=r"ranks 0 \(executor 0\) and 1 \(executor 1\) would both use GPU A on node"
    ):
        place(there, "gpu")


def test_more_ranks_than_gpus_shows_the_arithmetic():
    there = [facts(i, ranks=4, devices=gpus(f"{i}a", f"{i}b"), gpu_build=True) for i in (0, 1)]
    message = "executor 0 on node0 is to run 4 ranks, one per GPU, but has 2 GPUs: 2 executors with 8 ranks in all"
    with pytest.raises(GangError, match=message):
        place(there, "auto")


def test_auto_without_a_gpu_is_cpu_with_a_word():
    placed = place([facts()], "auto")
    assert (placed.mode, placed.notes) == ("cpu", ("no GPU on any executor: training on CPU",))


def test_auto_with_a_cpu_build_is_cpu_with_a_word():
    placed = place([facts(devices=gpus("A"))], "auto")
    assert placed.mode == "cpu"
    assert "built for CPU only" in placed.notes[0]


def test_cpu_needs_no_word_and_ignores_gpus():
    placed = place([facts(devices=gpus("A"), gpu_build=True)], "cpu")
    assert (placed.mode, placed.notes, placed.seats[0].device) == ("cpu", (), Device("cpu"))


@pytest.mark.parametrize(
    ("there", "mode", "message"),
    [
        ([facts(0, gpu_build=True), facts(1)], "gpu", "no GPU on node0, node1; use --solver-mode cpu"),
        ([facts(devices=gpus("A"))], "gpu", "built for CPU only; use --solver-mode cpu"),
        ([facts(0, devices=gpus("A"), gpu_build=True), facts(1, gpu_build=True)], "auto", "no GPU on node1"),
        ([facts(0), facts(1, mpich=None)], "cpu", "no MPI .* on node1"),
        ([facts(0), facts(1, mpich="5.0.2")], "cpu", "one MPICH, but there is 4.3.2 on node0, 5.0.2 on node1"),
    ],
)
def test_what_the_environment_lacks(there, mode, message):
    with pytest.raises(EnvironmentFault, match=message):
        place(there, mode)


def test_a_world_of_one_needs_no_mpi():
    assert place([facts(mpich=None)], "cpu").world == 1


def test_cores_are_shared_among_the_ranks_of_a_host():
    shared = [facts(i, "node", cpus=8) for i in range(2)]
    assert place(shared, "cpu").threads == (4, 4)
    assert place([facts(cpus=64)], "cpu").threads == (8,)
    assert place([facts(cpus=64)], "cpu", threads=3).threads == (3,)


def test_more_ranks_than_cores_is_said():
    placed = place([facts(ranks=5, cpus=2)], "cpu")
    assert placed.notes == ("node0 runs 5 ranks on 2 cores: they will be slower for it",)


def test_facts_travel_whole():
    there = facts(devices=gpus("A"), infiniband=("mlx5_0:1",), error="no", category="GangError")
    assert codec.loads(Facts, codec.dumps(there)) == there


def test_infiniband_names_the_hosts_without():
    there = [facts(0, infiniband=("mlx5_0:1",)), facts(1), facts(2, "node1")]
    with pytest.raises(EnvironmentFault, match="active port on node1;"):
        transport.check("infiniband", there)
    transport.check("infiniband", there[:1])
    transport.check("ethernet", there)
    transport.check("auto", [dataclasses.replace(there[0], infiniband=())])


def test_ethernet_forces_tcp_in_both_libraries():
    assert transport.environment("ethernet", None, ("mlx5_0:1",)) == {"UCX_TLS": "tcp,self", "FI_PROVIDER": "tcp"}
    chosen = transport.environment("ethernet", "eth1", ())
    assert (chosen["UCX_NET_DEVICES"], chosen["FI_TCP_IFACE"]) == ("eth1", "eth1")


def test_infiniband_forces_rdma_and_auto_nothing():
    forced = transport.environment("infiniband", None, ("mlx5_0:1", "mlx5_1:1"))
    assert forced["UCX_NET_DEVICES"] == "mlx5_0:1,mlx5_1:1"
    assert "tcp" not in forced["UCX_TLS"]
    assert forced["FI_PROVIDER"].startswith("verbs")
    assert transport.environment("auto", None, ("mlx5_0:1",)) == {}
    chosen = transport.environment("auto", "eth0", ("mlx5_0:1",))
    assert chosen == {"UCX_NET_DEVICES": "mlx5_0:1,eth0", "FI_TCP_IFACE": "eth0"}
