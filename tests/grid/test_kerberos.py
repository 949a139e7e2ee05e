"""A cluster that asks for Kerberos: secure HDFS and YARN with a KDC, beside the plain grid."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

import nets
import pytest
from gateway import ARCHIVE, JARS, SITE
from grids import ROOT, Grid
from secure_grids import REALM, SecureGrid
from spark.command import Command, Ended

from caffe_on_grid.errors import SecurityFault
from caffe_on_grid.storage import kerberos
from caffe_on_grid.storage.registry import connect
from caffe_on_grid.submit import yarn

SOLVER = nets.solver(iterations=20, more="momentum: 0.9 snapshot: 10", test=False)


@dataclass
class Gateway(Command):
    """The real command on a gateway whose user has no ticket yet."""

    grid: SecureGrid = field(default_factory=lambda: SecureGrid(Grid(Path())))

    def settle(self) -> Gateway:
        java = f"-Djava.security.krb5.conf={self.grid.krb5_conf}"
        conf = {k: f"{v} {java}" if k.endswith("JavaOptions") else v for k, v in SITE.items()}
        document = {
            "cluster": {"driver_memory": "512m"},
            "runtime": {"path": str(ARCHIVE), "blas_threads": 1},
            "spark_conf": {**conf, "spark.yarn.jars": JARS},
        }
        (self.folder / "caffe-on-grid.yaml").write_text(json.dumps(document))
        return self

    def environment(self) -> dict[str, str]:
        plain = {k: v for k, v in super().environment().items() if k != "CAFFE_ON_GRID_RUNTIME"}
        names = ("HADOOP_CONF_DIR", "SPARK_HOME", "SPARK_LOCAL_IP", "SPARK_SUBMIT_OPTS", "KRB5_CONFIG")
        mine = self.grid.environment()
        return {**plain, **{name: mine[name] for name in names}, "KRB5CCNAME": str(self.folder / "nobody")}

    def ticket(self, user: str, *options: str) -> str:
        """A fresh ticket of `user`'s."""
        cache = self.folder / f"{user}-{len(list(self.folder.iterdir()))}"
        self.grid.kinit(user, cache, *options)
        return str(cache)

    def train(self, user: str, model: str, *words: object, **env: str) -> Ended:
        """Two ranks; the records are ada's, the model goes to `user`'s home."""
        where = ("-input", f"{self.grid.hdfs}/user/ada/train", "-model", f"{self.grid.hdfs}/user/{user}/{model}")
        return self.run("train", "-conf", "job/solver.prototxt", *where, "--num-executors", 2, "--json", *words, **env)


@pytest.fixture(scope="module")
def secure():
    found = SecureGrid(Grid(ROOT / ".cache" / "grid"))
    if not found.has_kdc() and shutil.which("dpkg-deb") is None:
        pytest.skip("the KDC is unpacked from Debian's packages, and this machine has no dpkg-deb")
    found.start()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def gateway(secure, runtime, tmp_path_factory):
    assert ARCHIVE.is_file(), "make archive"
    made = Gateway(tmp_path_factory.mktemp("gateway"), runtime, grid=secure).settle()
    nets.write_lmdb(made.folder / "train", 60)
    text = nets.net(Path("/nowhere"), Path("/nowhere"), batch=6).replace('"/nowhere"', '"hdfs:///user/ada/train"')
    nets.write_job(made.folder / "job", text, SOLVER)
    secure.fs(Path(made.ticket("ada")), "-put", str(made.folder / "train"), "/user/ada/train")
    yield made
    made.close()


@pytest.fixture(scope="module")
def by_ticket(gateway):
    return gateway.train("ada", "t.caffemodel", "--deploy-mode", "cluster", KRB5CCNAME=gateway.ticket("ada"))


def model(gateway: Gateway, user: str, name: str) -> tuple[str, bytes]:
    """Its owner and its bytes."""
    cache, target = Path(gateway.ticket(user)), gateway.folder / f"{user}-{name}"
    gateway.grid.fs(cache, "-get", "-f", f"/user/{user}/{name}", str(target))
    return gateway.grid.fs(cache, "-stat", "%u", f"/user/{user}/{name}").strip(), target.read_bytes()


def test_a_ticket_submits_and_tokens_train(gateway, secure, by_ticket):
    assert by_ticket.well().json()["outcome"] == "done", secure.logs()
    assert model(gateway, "ada", "t.caffemodel")[0] == "ada"
    assert "note: containers work by delegation tokens, which end after 7 days" in by_ticket.err
    assert "the ticket of" not in by_ticket.err, "in cluster mode nothing here needs it for long"
    assert "are not checked beforehand" not in by_ticket.err, "YARN's REST API takes the ticket"


def test_a_keytab_alone_is_enough(gateway, by_ticket):
    words = ("--principal", f"ada@{REALM}", "--keytab", gateway.grid.keytab("ada"), "--deploy-mode", "client")
    ended = gateway.train("ada", "k.caffemodel", *words).well()
    assert ended.json()["outcome"] == "done"
    assert model(gateway, "ada", "k.caffemodel") == model(gateway, "ada", "t.caffemodel")
    assert "needs --principal and --keytab" not in ended.err
    assert not (gateway.folder / "nobody").exists(), "the user's own cache is left alone"
    assert gateway.left_behind() == []


def test_ranks_on_the_gateway_have_its_ticket(gateway, by_ticket):
    ended = gateway.train("ada", "l.caffemodel", "--master", "local[2]", KRB5CCNAME=gateway.ticket("ada", "-r", "3d"))
    assert ended.well().json()["outcome"] == "done"
    assert model(gateway, "ada", "l.caffemodel")[1] == model(gateway, "ada", "t.caffemodel")[1]
    told = rf"note: the ticket of ada@{REALM} ends in (10|9\.\d) h \(`kinit -R` renews it for up to (3|2\.\d) days\)"
    assert re.search(told, ended.err), ended.err


def test_one_user_acts_for_another(gateway):
    words = ("--proxy-user", "bob", "--deploy-mode", "cluster")
    gateway.grid.fs(Path(gateway.ticket("ada")), "-chmod", "-R", "a+rX", "/user/ada")
    ended = gateway.train("bob", "p.caffemodel", *words, KRB5CCNAME=gateway.ticket("gate"))
    assert ended.well().json()["outcome"] == "done"
    assert model(gateway, "bob", "p.caffemodel")[0] == "bob"


def test_who_proves_nothing_is_told_at_once(gateway, tmp_path):
    keytab = gateway.grid.keytab("ada")
    (tmp_path / "empty.keytab").write_bytes(b"\5\2")
    for words, code, wanted in (
        ((), 5, "there is no ticket (.*); run kinit, or name --principal and --keytab"),
        (("--principal", f"bob@{REALM}", "--keytab", keytab), 5, f"is ada@{REALM}'s; name that"),
        (("--principal", "ada", "--keytab", tmp_path / "empty.keytab"), 5, "gives no ticket"),
        (("--principal", "ada", "--keytab", tmp_path / "none"), 3, "cannot be read"),
        (("--principal", "ada"), 2, "--principal without --keytab"),
        (("--principal", "ada", "--keytab", keytab, "--proxy-user", "bob"), 2, "Spark takes one of them"),
    ):
        ended = gateway.train("ada", "n.caffemodel", *words)
        assert (ended.code, ended.out) == (code, ""), ended.err
        assert re.search(wanted, ended.error), ended.err
        assert "Submitted" not in ended.err


def lasts() -> bool:
    try:
        return bool(kerberos.ticket())
    except SecurityFault:
        return False


def test_an_ended_ticket_is_none(gateway, monkeypatch):
    cache = gateway.ticket("ada", "-l", "1s")
    monkeypatch.setenv("KRB5CCNAME", cache)
    monkeypatch.setenv("KRB5_CONFIG", str(gateway.grid.krb5_conf))
    while lasts():
        time.sleep(0.1)
    assert "there is no ticket" in gateway.train("ada", "n.caffemodel", KRB5CCNAME=cache).error


def test_rest_apis_take_the_ticket(gateway, monkeypatch):
    for name, value in {**gateway.environment(), "KRB5CCNAME": gateway.ticket("ada")}.items():
        monkeypatch.setenv(name, value)
    uri = f"{gateway.grid.webhdfs}/user/ada/x"
    connect(uri).write(b"content", uri)
    assert connect(uri).read(uri) == b"content"
    manager = yarn.connect(yarn.configuration(os.environ), os.environ)
    assert manager.get("info")["clusterInfo"]["state"] == "STARTED"
    monkeypatch.setenv("KRB5CCNAME", str(gateway.folder / "nobody"))
    with pytest.raises(yarn.Refused, match="could not be proved"):
        manager.get("info")
