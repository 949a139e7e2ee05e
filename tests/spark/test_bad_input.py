"""What goes wrong, through the real command: one line that begins with `error:`, the documented code, no model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import lmdb
import nets
import pytest
from command import Command, Ended, link_runtime, nothing_complete

pytestmark = [pytest.mark.spark, pytest.mark.runtime]


@dataclass
class Job:
    """A job that would run; the cases spoil it."""

    folder: Path
    runtime: Path
    net: str
    solver: str = nets.solver(iterations=20, test=False)
    words: list[object] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()

    @property
    def model(self) -> Path:
        return self.folder / "models" / "net.caffemodel"


Spoil = Callable[[Job], object]


def net(old: str, new: str) -> Spoil:
    def spoil(job: Job) -> None:
        assert old in job.net
        job.net = job.net.replace(old, new)

    return spoil


def solver(old: str, new: str) -> Spoil:
    def spoil(job: Job) -> None:
        assert old in job.solver
        job.solver = job.solver.replace(old, new)

    return spoil


def words(*more: object) -> Spoil:
    return lambda job: job.words.extend(more)


def variable(name: str, value: str) -> Spoil:
    return lambda job: job.env.update({name: value})


def both(*spoils: Spoil) -> Spoil:
    return lambda job: [spoil(job) for spoil in spoils]


def source(make: Callable[[Path], object]) -> Spoil:
    """Another TRAIN source."""

    def spoil(job: Job) -> None:
        make(job.folder / "other")
        job.words += ["-input", job.folder / "other"]

    return spoil


def empty(path: Path) -> None:
    with lmdb.open(str(path), map_size=1 << 20):
        pass


def with_a_bad_record(path: Path) -> None:
    nets.write_lmdb(path)
    with lmdb.open(str(path), map_size=1 << 26) as env, env.begin(write=True) as txn:
        txn.put(b"00000017", b"\xff\xff\xff no datum")


def closed(spoil: Spoil, name: str) -> Spoil:
    """Afterwards nobody may read or write `name`; root has to be told that this is meant for it too."""
    powers = "-dac_override,-dac_read_search"
    as_others = ("setpriv", f"--bounding-set={powers}", f"--inh-caps={powers}")

    def close(job: Job) -> None:
        spoil(job)
        (job.folder / name).chmod(0)
        job.prefix = as_others if os.geteuid() == 0 else ()

    return close


def written(name: str) -> Spoil:
    return lambda job: (job.folder / name).write_text("")


def no_java(job: Job) -> None:
    """A PATH on which there is everything but a Java."""
    programs = job.folder / "programs"
    programs.mkdir()
    for name in ("sh", "dirname", "readlink", "env", "python3"):
        (programs / name).symlink_to(Path("/usr/bin") / name)
    job.env.update(PATH=str(programs), JAVA_HOME="")


def without_mpi(job: Job) -> None:
    job.env["CAFFE_ON_GRID_RUNTIME"] = str(link_runtime(job.runtime, job.folder / "runtime", "mpiexec"))
    job.words += ["--num-executors", 2]


def broken(job: Job) -> None:
    """A runtime whose Python has none of what it should have."""
    python = job.folder / "runtime" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to("/usr/bin/python3")
    job.env["CAFFE_ON_GRID_RUNTIME"] = str(job.folder / "runtime")


def model_is_a_file(job: Job) -> None:
    """The folder that the model should be in is a file."""
    job.model.parent.rmdir()
    job.model.parent.write_text("")


ON_THE_GATEWAY: dict[str, tuple[Spoil, int, str]] = {
    "solver missing": (words("-conf", "nowhere.prototxt"), 3, "nowhere.prototxt: cannot be read: No such file"),
    "net missing": (solver("net.prototxt", "no.prototxt"), 3, "solver.prototxt:1: no.prototxt: no such file"),
    "source missing": (words("-input", "/nowhere/train"), 3, "-input /nowhere/train: no such file"),
    "syntax": (net("kernel_size: 3", "kernel_size: "), 3, "net.prototxt:9:65: expected the name of a field"),
    "unknown field": (solver("max_iter", "max_itre"), 3, "solver.prototxt:2:34: SolverParameter has no field named"),
    "unreadable model": (words("-weights", "/nowhere/w.caffemodel"), 3, "-weights /nowhere/w.caffemodel: no such file"),
    "unwritable model": (model_is_a_file, 3, "models"),
    "no model's folder can be made": (words("-model", "/proc/none/net.caffemodel"), 3, "/proc/none"),
    "closed source": (closed(source(nets.write_lmdb), "other"), 5, "other: permission denied; ask the owner"),
    "closed weights": (
        both(closed(written("w.caffemodel"), "w.caffemodel"), words("-weights", "w.caffemodel")), 5,
        "-weights w.caffemodel: permission denied; ask the owner"),
    "closed solver": (
        both(closed(written("s.prototxt"), "s.prototxt"), words("-conf", "s.prototxt")), 3,
        "s.prototxt: cannot be read: Permission denied"),
    "closed models": (closed(words(), "models"), 5, "net.caffemodel: permission denied; ask the owner"),
    "model is the net": (
        both(source(nets.write_lmdb), lambda job: job.words.extend(["-model", job.folder / "job" / "net.prototxt",
                                                                   "--overwrite"])), 3,
        "net.prototxt itself, which this job reads; name another file"),
    "no Spark master": (words("--master", "spark://127.0.0.1:9"), 4, "no Spark master answers (127.0.0.1:9: "),
    "GPU wanted": (words("--solver-mode", "gpu"), 4, "solver_mode is GPU, but "),
    "no devices": (words("-devices", 0), 2, "-devices: expected at least 1, got '0'"),
    "Java missing": (no_java, 4, "no Java on PATH: install Java 17"),
    "Java missing at JAVA_HOME": (variable("JAVA_HOME", "/nowhere"), 4, "no Java at JAVA_HOME=/nowhere"),
    "runtime missing": (variable("CAFFE_ON_GRID_RUNTIME", "/nowhere"), 4, "/nowhere: no runtime is there"),
    "connection": (words("-connection", "etherent"), 2, "-connection: expected one of auto, ethernet, infiniband"),
    "unknown layer": (net('"ReLU"', '"RelU"'), 3, "unknown layer type 'RelU' (did you mean 'ReLU'?)"),
    "unknown solver": (solver("net:", 'type: "Adem" net:'), 3, "unknown type 'Adem' (did you mean 'Adam'?)"),
    "unknown policy": (solver("fixed", "fixd"), 3, "unknown lr_policy 'fixd' (did you mean 'fixed'?)"),
}  # fmt: skip

IN_A_RANK: dict[str, tuple[Spoil, int, str]] = {
    "executors missing": (  # the first: the others run while it waits, long enough for one executor
        words("--master", "local-cluster[2,1,1024]", "--gang-timeout", "30s", "--", "--conf", "spark.cores.max=1"), 6,
        "1 of 2 executors"),
    "mismatched shapes": (
        net('bottom: "ip2" bottom: "label" top: "loss"', 'bottom: "ip2" bottom: "conv" top: "loss"'), 3,
        "Check failed: outer_num_ * inner_num_ == bottom[1]->count()"),
    "empty source": (source(empty), 3, "other is empty: it holds no records"),
    "undecodable record": (source(with_a_bad_record), 3, "record '00000017' of "),
    "label out of range": (net("num_output: 4", "num_output: 3"), 3, "label 3 is out of range for layer 'loss'"),
    "not a number": (both(solver("0.05", "1e12"), words("--num-executors", 2)), 1, "the loss is nan at iteration"),
    "runtime broken": (broken, 4, "could not start: ModuleNotFoundError: No module named"),
    "MPI missing": (without_mpi, 4, "no MPI (bin/mpiexec) in the runtime"),
    "infiniband missing": (words("-connection", "infiniband"), 4, "no RDMA device with an active port on "),
}  # fmt: skip


@pytest.fixture(scope="module")
def lmdbs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("lmdb")
    return nets.write_lmdb(folder / "train"), nets.write_lmdb(folder / "test", 24)


@dataclass
class Refused:
    """A command that was refused."""

    job: Job
    ended: Ended
    left_behind: list[str]

    def check(self, code: int, message: str) -> None:
        assert self.ended.code == code, self.ended.err
        assert message in self.ended.error
        assert self.left_behind == []
        if self.job.model.parent.is_dir():
            nothing_complete(self.job.model)


def words_of(job: Job) -> list[object]:
    folder = nets.write_job(job.folder / "job", job.net, job.solver)
    return ["train", "-conf", folder / "solver.prototxt", "-model", job.model, *job.words]


def prepared(folder: Path, runtime: Path, lmdbs: tuple[Path, Path]) -> tuple[Command, Job]:
    (folder / "models").mkdir()
    return Command(folder, runtime), Job(folder, runtime, nets.net(*lmdbs, batch=6))


def refused(folder: Path, runtime: Path, lmdbs: tuple[Path, Path], spoil: Spoil) -> Refused:
    """Run a spoiled job to its end, and wait until none of its processes is left."""
    command, job = prepared(folder, runtime, lmdbs)
    spoil(job)
    try:
        ended = command.run(*words_of(job), prefix=job.prefix, **job.env)
        command.started[-1].await_nobody()
        return Refused(job, ended, command.left_behind())
    finally:
        command.close()


@pytest.mark.parametrize("name", ON_THE_GATEWAY)
def test_refused_on_the_gateway(runtime: Path, tmp_path: Path, lmdbs: tuple[Path, Path], name: str) -> None:
    spoil, code, message = ON_THE_GATEWAY[name]
    done = refused(tmp_path, runtime, lmdbs, spoil)
    done.check(code, message)
    assert not (done.job.folder / "models" / "net").exists()


@pytest.fixture(scope="module")
def in_a_rank(
    request: pytest.FixtureRequest, runtime: Path, tmp_path_factory: pytest.TempPathFactory, lmdbs: tuple[Path, Path]
) -> Iterator[dict[str, Future[Refused]]]:
    """The cases that have been chosen, two at a time: much of a job's start is waiting."""
    chosen = [i.callspec.params["name"] for i in request.session.items if "in_a_rank" in getattr(i, "fixturenames", ())]
    with ThreadPoolExecutor(2) as pool:
        folders = {name: tmp_path_factory.mktemp("case") for name in chosen}
        yield {name: pool.submit(refused, folders[name], runtime, lmdbs, IN_A_RANK[name][0]) for name in chosen}


@pytest.mark.parametrize("name", IN_A_RANK)
def test_refused_in_a_rank(in_a_rank: dict[str, Future[Refused]], name: str) -> None:
    _, code, message = IN_A_RANK[name]
    in_a_rank[name].result().check(code, message)


def test_bad_records_are_counted_where_they_may_be_skipped_and_ranks_may_outnumber_cores(
    runtime: Path, tmp_path: Path, lmdbs: tuple[Path, Path]
) -> None:
    command, job = prepared(tmp_path, runtime, lmdbs)
    source(with_a_bad_record)(job)
    ranks = len(os.sched_getaffinity(0)) + 1
    ended = command.run(*words_of(job), "--skip-bad-records", "-devices", ranks).well()
    assert job.model.is_file()
    assert "undecodable record" in ended.err
    assert f"note: {ranks} ranks on {ranks - 1} core" in ended.err
