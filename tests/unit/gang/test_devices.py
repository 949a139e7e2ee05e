from __future__ import annotations

import os
from pathlib import Path

import pytest

from caffe_on_grid.errors import EnvironmentFault, UsageError
from caffe_on_grid.gang import devices, environment
from caffe_on_grid.gang.placement import Facts
from caffe_on_grid.spec import job
from caffe_on_grid.spec.rank import Device

LISTING = "0, GPU-aaa, NVIDIA A100\n1, GPU-bbb, NVIDIA A100, 80GB\n"


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """A program named nvidia-smi that prints what a driver with two GPUs prints, unless devices are hidden from it."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\n[ -n "$CUDA_VISIBLE_DEVICES" ] || printf "{LISTING}"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_gpus_are_listed_whatever_was_inherited(smi, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert devices.gpus(()) == (
        Device("gpu", 0, "GPU-aaa", "NVIDIA A100"),
        Device("gpu", 1, "GPU-bbb", "NVIDIA A100, 80GB"),
    )


def test_assigned_gpus_by_index_or_uuid(smi):
    assert [d.uuid for d in devices.gpus(("1",))] == ["GPU-bbb"]
    assert [d.index for d in devices.gpus(("GPU-bbb", "0"))] == [1, 0]
    with pytest.raises(EnvironmentFault, match=r"assigned GPU 7 .* lists 0, 1"):
        devices.gpus(("0", "7"))


def test_no_driver_no_gpus(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert devices.gpus(()) == ()
    with pytest.raises(EnvironmentFault, match="lists none"):
        devices.gpus(("0",))


def test_infiniband_needs_an_active_port(tmp_path):
    write(tmp_path / "mlx5_0/ports/1/state", "4: ACTIVE\n")
    write(tmp_path / "mlx5_1/ports/1/state", "1: DOWN\n")
    assert devices.infiniband(tmp_path) == ("mlx5_0:1",)
    assert devices.infiniband(tmp_path / "none") == ()


def test_addresses_by_network():
    found = devices.interface_addresses()
    assert found["lo"] == "127.0.0.1"
    assert devices.network(None, "127.0.0.1") == (None, "127.0.0.1")
    assert devices.network("127.0.0.0/8", "10.1.2.3") == ("lo", "127.0.0.1")
    assert devices.interface_in("10.1.0.0/16", {"eth0": "192.168.0.3", "ib0": "10.1.2.3"}) == ("ib0", "10.1.2.3")
    with pytest.raises(EnvironmentFault, match=r"no address in 10.9.0.0/16; it has eth0 192.168.0.3"):
        devices.interface_in("10.9.0.0/16", {"eth0": "192.168.0.3"})
    with pytest.raises(UsageError, match="write it as"):
        devices.interface_in("ten/8", {})


@pytest.mark.parametrize(
    ("files", "membership", "quota"),
    [
        ({"a/cpu.max": "150000 100000", "a/b/cpu.max": "max 100000"}, "0::/a/b", 1.5),
        ({"a/cpu.max": "max 100000"}, "0::/a/b", None),
        ({"cpu.max": "400000 100000"}, "0::/", 4.0),
        (
            {"cpu,cpuacct/a/cpu.cfs_quota_us": "200000", "cpu,cpuacct/a/cpu.cfs_period_us": "100000"},
            "3:cpu,cpuacct:/a\n2:memory:/z",
            2.0,
        ),
        ({"cpu,cpuacct/a/cpu.cfs_quota_us": "-1", "cpu,cpuacct/a/cpu.cfs_period_us": "1"}, "3:cpu,cpuacct:/a", None),
    ],
)
def test_cpu_quota_of_both_kinds_of_cgroups(tmp_path, files, membership, quota):
    for name, text in files.items():
        write(tmp_path / "cgroup" / name, text)
    write(tmp_path / "self", membership)
    assert devices._quota(tmp_path / "cgroup", tmp_path / "self") == quota


def test_cpus_are_at_least_one():
    assert 1 <= devices.cpus() <= (os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("flags", "core"),
    [("fpu avx2 avx512f", "SkylakeX"), ("fpu avx avx2", "Haswell"), ("fpu avx", None)],
)
def test_blas_core_by_the_cpu_s_flags(tmp_path, flags, core):
    write(tmp_path / "cpuinfo", f"processor : 0\nflags\t\t: {flags}\n")
    assert devices.blas_core(tmp_path / "cpuinfo") == core


def test_gpu_build_is_a_libcaffe_with_cuda(tmp_path):
    write(tmp_path / "lib64/libcaffe.so.1.0.0", "\x7fELF libcudart.so.11.0 ...")
    assert devices.gpu_build(tmp_path)
    write(tmp_path / "lib64/libcaffe.so.1.0.0", "\x7fELF libopenblas ...")
    assert not devices.gpu_build(tmp_path)


@pytest.mark.parametrize("packages", ["lib/python3/dist-packages", "lib/python3.11/site-packages"])
def test_gpu_build_is_a_torch_with_cuda_that_is_not_packed_for_cpus(tmp_path, packages):
    write(tmp_path / packages / "torch/lib/libtorch_cuda.so", "\x7fELF")
    assert devices.gpu_build(tmp_path)
    write(tmp_path / "cpu-only", "")
    assert not devices.gpu_build(tmp_path)


HERE = Facts(0, "node", "10.0.0.1", 1, 4, 2, "/r", blas_core="Haswell", infiniband=("mlx5_0:1",))


def test_the_environment_of_ranks_holds_what_it_should_and_no_more(tmp_path):
    inherited = {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "3",
        "PYTHONHOME": "/x",
        "LD_LIBRARY_PATH": "/y",
        "SECRET": "s",
        "HADOOP_TOKEN_FILE_LOCATION": "/t",
        "KRB5CCNAME": "/k",
        "UCX_TCP_PORT_RANGE": "7000-8000",
        "UCX_TLS": "all",
    }
    base = environment.base(inherited, tmp_path)
    spec = job.JobSpec(("train",), "s", sync=job.SyncSpec(connection="ethernet"))
    ranks = environment.of_ranks(spec, HERE, 2, None, tmp_path / "gang", base)
    assert not {"CUDA_VISIBLE_DEVICES", "PYTHONHOME", "LD_LIBRARY_PATH", "SECRET"} & set(ranks)
    assert (ranks["HADOOP_TOKEN_FILE_LOCATION"], ranks["KRB5CCNAME"], ranks["PATH"]) == ("/t", "/k", "/bin")
    assert (ranks["UCX_TCP_PORT_RANGE"], ranks["UCX_TLS"]) == ("7000-8000", "tcp,self")
    assert (ranks["OPENBLAS_CORETYPE"], ranks["OPENBLAS_NUM_THREADS"]) == ("Haswell", "2")
    assert (ranks["GLOG_minloglevel"], ranks["PYTHONNOUSERSITE"]) == ("2", "1")
    assert (Path(ranks["PYTHONPATH"]) / "caffe_on_grid").exists()
    assert ranks["CAFFE_ON_GRID_GANG_DIR"] == str(tmp_path / "gang")


def test_the_job_s_blas_core_wins(tmp_path):
    spec = job.JobSpec(("train",), "s", runtime=job.Runtime(blas_core="Zen"))
    assert environment.of_ranks(spec, HERE, 1, None, tmp_path, {})["OPENBLAS_CORETYPE"] == "Zen"
