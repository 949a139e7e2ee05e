"""What is asked of a job's ticket before anything is submitted; with a KDC it is tested on the grid."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from caffe_on_grid.errors import ConfigError, GridError, SecurityFault, UsageError
from caffe_on_grid.spec.job import Cluster, DataSpec, JobSpec
from caffe_on_grid.storage import kerberos
from caffe_on_grid.submit import tickets

JOB = JobSpec(("train",), "solver.prototxt", cluster=Cluster(master="yarn"))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A configuration that asks for Kerberos, and no ticket."""
    settings = {"hadoop.security.authentication": "kerberos", tickets.MAX_LIFETIME: str(36 * 3600 * 1000)}
    rows = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in settings.items())
    (tmp_path / "core-site.xml").write_text(f"<configuration>{rows}</configuration>")
    for name in ("HADOOP_TOKEN_FILE_LOCATION", "KRB5_CLIENT_KTNAME", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("KRB5CCNAME", str(tmp_path / "ticket"))
    yield tmp_path
    os.unsetenv("HADOOP_PROXY_USER")  # --proxy-user sets it behind os.environ's back


def test_without_a_ticket_the_remedy_is_told(cluster: Path) -> None:
    with pytest.raises(SecurityFault, match=r"run kinit, or name --principal and --keytab") as caught:
        tickets.check(JOB, cluster, os.environ)
    assert caught.value.exit_code == 5


def test_who_needs_no_ticket_is_not_asked(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = replace(JOB, cluster=Cluster(master="local[2]"), data=DataSpec(input="/data/train"))
    assert tickets.check(here, cluster, os.environ) == []
    with pytest.raises(SecurityFault):
        tickets.check(replace(here, data=DataSpec(input="webhdfs://nn:1/x")), cluster, os.environ)
    assert tickets.check(JOB, cluster, {"HADOOP_TOKEN_FILE_LOCATION": "/tokens"}) == []
    monkeypatch.delenv("HADOOP_CONF_DIR")
    assert tickets.check(JOB, cluster, os.environ) == []


@pytest.mark.parametrize(
    ("asked", "kind", "words"),
    [
        (Cluster(principal="ada"), UsageError, "--principal without --keytab"),
        (Cluster(keytab="k"), UsageError, "--keytab without --principal"),
        (Cluster(principal="ada", keytab="k", proxy_user="bob"), UsageError, "Spark takes one of them"),
        (Cluster(principal="ada", keytab="/none/k"), ConfigError, "--keytab /none/k: cannot be read"),
    ],
)
def test_options_that_do_not_go_together(tmp_path: Path, asked: Cluster, kind: type[GridError], words: str) -> None:
    with pytest.raises(kind, match=words):
        tickets.check(replace(JOB, cluster=asked), tmp_path, {})


def test_what_may_end_before_the_job_is_remarked(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tickets.time, "time", lambda: 1000.0)
    monkeypatch.setattr(kerberos, "ticket", lambda: kerberos.Ticket("ada@X", 1000 + 5400, 1000 + 3 * 86400))
    (ticket, token) = tickets.check(JOB, cluster, os.environ)
    assert ticket.startswith("the ticket of ada@X ends in 1.5 h (`kinit -R` renews it for up to 3 days): a longer job")
    assert token.startswith("containers work by delegation tokens, which end after 1.5 days")
    in_cluster = replace(JOB, cluster=Cluster(master="yarn", deploy_mode="cluster", proxy_user="bob"))
    assert tickets.check(in_cluster, cluster, os.environ) == [token]
    (_, _, proxied) = tickets.check(replace(JOB, cluster=Cluster(master="yarn", proxy_user="bob")), cluster, os.environ)
    assert proxied == "--proxy-user bob: the driver and ranks on this machine reach HDFS as ada@X"


def test_the_users_name_is_the_principals_first_part() -> None:
    assert [kerberos.Ticket(name, 0).user for name in ("ada@X", "ada/admin@X", "ada")] == ["ada"] * 3
