"""The one command on YARN: the bits of a local run, its placement, what a second submission uploads."""

from __future__ import annotations

import getpass
import json
import re
from pathlib import Path

import nets
import pytest
from gateway import ARCHIVE, JARS, Gateway, application_ids
from spark.command import Ended

SOLVER = nets.solver(iterations=20, more="momentum: 0.9 weight_decay: 0.001 snapshot: 10")


@pytest.fixture(scope="module")
def gateway(grid, runtime: Path, tmp_path_factory: pytest.TempPathFactory):
    """With the same records here and on HDFS, and Spark's jars nowhere but here."""
    assert ARCHIVE.is_file(), "make archive"
    made = Gateway(tmp_path_factory.mktemp("gateway"), runtime, grid=grid).settle()
    made_of = (("train", 60, 3), ("test", 24, 9))
    train, test = (nets.write_lmdb(made.folder / name, records, seed) for name, records, seed in made_of)
    with made.stored(train, test):
        nets.write_job(made.folder / "here", nets.net(train, test, batch=6), SOLVER)
        nets.write_job(made.folder / "there", made.net("test"), SOLVER)
        yield made


@pytest.fixture(scope="module")
def here(gateway: Gateway) -> bytes:
    """The model of two ranks on this machine."""
    words = ["-conf", "here/solver.prototxt", "-model", "here.caffemodel", "--num-executors", 2]
    environment = {"CAFFE_ON_GRID_RUNTIME_PATH": str(gateway.runtime)}
    gateway.run("train", *words, "--master", "local[2]", **environment).well()
    return (gateway.folder / "here.caffemodel").read_bytes()


def train(gateway: Gateway, mode: str, *more: object) -> Ended:
    """Two executors on the labelled node, results and records on HDFS."""
    model = f"{gateway.store}/{mode}.caffemodel"  # a plain path: fs.defaultFS
    words = ["-conf", "there/solver.prototxt", "-input", f"{gateway.grid.hdfs}{gateway.store}/train", "-model", model]
    placed = ["--deploy-mode", mode, "--node-label", "gpu", "--num-executors", 2, "--json"]
    return gateway.run("train", *words, *placed, *more)


@pytest.fixture(scope="module")
def in_cluster(gateway: Gateway) -> Ended:
    return train(gateway, "cluster").well()


def fetched(gateway: Gateway, uri: str) -> bytes:
    target = gateway.folder / "fetched"
    gateway.grid.fs("-get", "-f", uri, str(target))
    return target.read_bytes()


def test_cluster_mode_gives_the_bits_of_a_local_run(gateway: Gateway, here: bytes, in_cluster: Ended) -> None:
    said = in_cluster.json()
    assert (said["exit_code"], said["outcome"]) == (0, "done")
    assert said["model"] == f"{gateway.grid.hdfs}{gateway.store}/cluster.caffemodel"
    assert fetched(gateway, said["model"]) == here
    gateway.nothing_left(in_cluster)


def test_what_is_said_while_it_runs(gateway: Gateway, in_cluster: Ended) -> None:
    said = in_cluster.err
    (application,) = application_ids(said)
    assert application == in_cluster.json()["application_id"]
    wanted = ("Submitted application", "executors: localhost:18051", "Iteration 15, loss = ", "Iteration 20, saved")
    places = [said.index(words) for words in (*wanted, "outcome:   done (exit code 0)")]
    assert places == sorted(places)
    assert "at org.apache" not in said


def test_who_ran_where(gateway: Gateway, in_cluster: Ended) -> None:
    said = in_cluster.json()
    record = json.loads(fetched(gateway, f"{said['run_folder']}/run.json"))
    (task,) = record["tasks"]
    assert record["driver_node"].endswith(f":{gateway.grid.plain_port}")
    assert [e["node"].split(":")[1] for e in task["executors"]] == [gateway.grid.labelled_port] * 2
    assert len({e["container"] for e in task["executors"]}) == 2
    assert gateway.grid.ask(f"apps/{said['application_id']}")["app"]["finalStatus"] == "SUCCEEDED"
    names = gateway.grid.fs("-ls", "-C", "-R", said["run_folder"])
    for name in ("metrics.jsonl", "logs/rank-0.log", "logs/rank-1.log", "snapshots/small_iter_20.json"):
        assert name in names


def test_client_mode_and_what_a_second_submission_uploads(gateway: Gateway, here: bytes, in_cluster: Ended) -> None:
    """All of it but Spark's own copy of the Hadoop configuration, which it packs uncompressed each time."""
    ended = train(gateway, "client", "--conf", "spark.yarn.preserve.staging.files=true").well()
    said = ended.json()
    assert fetched(gateway, said["model"]) == here
    assert "uploading" not in ended.err
    staging = f"/user/{getpass.getuser()}/.sparkStaging/{said['application_id']}"
    sizes = {row.split()[-1]: int(row.split()[0]) for row in gateway.grid.fs("-du", staging).splitlines()}
    ours = {name: size for name, size in sizes.items() if "__spark_conf__" not in name}
    gateway.grid.fs("-rm", "-r", "-f", "-skipTrash", staging)
    assert sum(ours.values()) <= 100_000, sizes
    record = json.loads(fetched(gateway, f"{said['run_folder']}/run.json"))
    assert record["versions"]["python"].startswith("3.9."), "the driver runs the runtime's Python here too"
    assert [e["node"].split(":")[1] for e in record["tasks"][0]["executors"]] == [gateway.grid.labelled_port] * 2
    gateway.nothing_left(ended)


def test_a_job_that_nobody_waits_for(gateway: Gateway) -> None:
    model = f"{gateway.store}/alone.caffemodel"
    said = train(gateway, "cluster", "-model", model, "--no-wait").well().json()
    assert (said["outcome"], said["exit_code"], said["model"]) == ("submitted", 0, None)
    assert gateway.left_behind() == []
    assert gateway.grid.wait_ended(said["application_id"])["finalStatus"] == "SUCCEEDED"
    record = json.loads(fetched(gateway, f"{said['run_folder']}/run.json"))
    assert (record["run_id"], record["outcome"], record["exit_code"]) == (said["run_id"], "done", 0)
    gateway.grid.fs("-test", "-e", model)


REFUSED = [
    (["--node-label", "nope"], 6, r"--node-label nope: YARN knows no such node label; it knows gpu, spare"),
    (["--node-label", "spare"], 6, r"--node-label spare: no running node carries this label; nodes carry gpu"),
    (["--am-node-label", "nope"], 6, r"--am-node-label nope: YARN knows no such"),
    (["--queue", "nope"], 6, r"--queue nope: YARN has no such queue to submit to; it has default, plain"),
    (["--queue", "plain", "--node-label", "gpu"], 6, r"queue plain may not use this label"),
    (["--executor-memory", "8g"], 6, r"larger than YARN's largest, 4096 MiB"),
    (["--executor-cores", "5"], 6, r"larger than YARN's largest, 4 vcores"),
    (["--driver-memory", "4g", "--deploy-mode", "cluster"], 6, r"application master's container of .* MiB is larger"),
    (["--solver-mode", "gpu", "-devices", "3"], 6, r"larger than YARN's largest, 2 GPUs"),
    (["--solver-mode", "gpu"], 6, r"1 executors of .*, 1 GPU do not fit: the 1 nodes without a label have room for 0"),
    (["--num-executors", "9"], 6, r"9 executors of 1\d+ MiB, 1 vcore do not fit: .* have room for 2 even when empty"),
    (["-model", "/tests/{store}/no.caffemodel/x"], 3, r"no\.caffemodel"),
    (["-input", "hdfs:///no/such/lmdb"], 3, r"-input hdfs://127\.0\.0\.1:19000/no/such/lmdb: no such file"),
    (["--runtime", "hdfs:///no/such.tgz"], 3, r"--runtime hdfs:///no/such\.tgz: there is no such archive"),
    (["--runtime", "/no/such.tgz"], 3, r"/no/such\.tgz"),
    (["--runtime", "here/solver.prototxt"], 3, r"here/solver\.prototxt: not a runtime archive"),
]


@pytest.mark.parametrize(
    ("more", "code", "words"), REFUSED, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_refused_before_anything_is_asked_of_yarn(gateway: Gateway, more: list[str], code: int, words: str) -> None:
    before = len(gateway.grid.applications())
    if "no.caffemodel/x" in " ".join(more):
        gateway.grid.fs("-touchz", f"{gateway.store}/no.caffemodel")
        more = ["-model", f"{gateway.store}/no.caffemodel/x"]
    given = ["-conf", "there/solver.prototxt", "--conf", f"spark.yarn.jars={JARS}"]
    defaults = {"-model": f"{gateway.store}/refused.caffemodel", "-input": f"hdfs://{gateway.store}/train"}
    rest = [word for pair in defaults.items() if pair[0] not in more for word in pair]
    mode = [] if "--deploy-mode" in more else ["--deploy-mode", "cluster"]
    ended = gateway.run("train", *given, *rest, *mode, *more)
    assert ended.code == code, ended.err
    assert re.search(words, ended.error), ended.error
    assert len(gateway.grid.applications()) == before
    assert gateway.left_behind() == []


def test_an_existing_model_is_refused(gateway: Gateway, in_cluster: Ended) -> None:
    ended = train(gateway, "cluster")
    assert ended.code == 3
    assert "cluster.caffemodel: exists" in ended.error


def test_a_dry_run_explains_memory_and_asks_nothing(gateway: Gateway) -> None:
    ended = train(gateway, "cluster", "--overwrite", "--dry-run", "--verbose").well()
    assert re.search(r"memory of an executor: heap 512m \+ \d+ MiB = JVM", ended.err)
    assert "spark.yarn.executor.nodeLabelExpression=gpu" in ended.out
    assert application_ids(ended.err) == []
