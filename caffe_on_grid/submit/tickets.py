"""Before a job touches a cluster with Kerberos: that something proves who submits it, and for how long."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Optional

from caffe_on_grid.errors import ConfigError, SecurityFault, UsageError
from caffe_on_grid.spec.job import Cluster, JobSpec
from caffe_on_grid.storage import hadoop, kerberos, paths

REMEDY = "run kinit, or name --principal and --keytab"
SCHEMES = ("hdfs", "viewfs", "webhdfs", "swebhdfs")
MAX_LIFETIME = "dfs.namenode.delegation.token.max-lifetime"
"""Milliseconds; the NameNode's setting, as far as the gateway's configuration repeats it."""
_DAY_S = 24 * 3600
_TOKEN_LIFE_MS = 7 * _DAY_S * 1000
_UNITS = ((_DAY_S, "days"), (3600, "h"), (60, "min"))


def check(job: JobSpec, folder: Path, environ: Mapping[str, str]) -> list[str]:
    """What the user should know of the job's ticket and tokens; nothing on a cluster without Kerberos.

    With --keytab this process and all that it starts have a ticket of its own from then on, in `folder`; with
    --proxy-user it reaches HDFS as that user. Raises UsageError for options that exclude one another, ConfigError for a
    keytab that cannot be read, SecurityFault where there is no ticket.
    """
    _check_options(job.cluster)
    if not (hadoop.secure() and _concerned(job)) or environ.get("HADOOP_TOKEN_FILE_LOCATION"):
        return []
    if not kerberos.available():
        return ["tickets are not checked: this machine lacks Kerberos' libraries (libgssapi_krb5.so.2, libkrb5.so.3)"]
    keytab = job.cluster.keytab
    if keytab:
        _log_in(Path(keytab), folder)
    ticket = _ticket(job.cluster)
    if job.cluster.proxy_user:
        # for hdfs-native in this process alone: os.environ, which Spark inherits, stays, for Spark has an option for it
        os.putenv("HADOOP_PROXY_USER", job.cluster.proxy_user)
    return list(_remarks(job.cluster, ticket))


def _check_options(asked: Cluster) -> None:
    if bool(asked.principal) != bool(asked.keytab):
        given, missing = ("principal", "keytab") if asked.principal else ("keytab", "principal")
        raise UsageError(f"--{given} without --{missing}: they go together")
    if asked.keytab and asked.proxy_user:
        raise UsageError(
            "--proxy-user with --keytab: Spark takes one of them; run kinit as the one who may act for others"
        )
    if asked.keytab and not os.access(asked.keytab, os.R_OK):
        raise ConfigError(f"--keytab {asked.keytab}: cannot be read")


def _concerned(job: JobSpec) -> bool:
    """Whether the job needs the cluster at all: one on this machine with files of its own does not."""
    named = (job.data.input, job.output.model, job.output.run_folder, job.output.text, job.start.snapshot)
    uris = (uri for uri in (*named, *job.start.weights) if uri)
    return job.cluster.master == "yarn" or any(paths.scheme(uri) in SCHEMES for uri in uris)


def _log_in(keytab: Path, folder: Path) -> None:
    """From now on GSSAPI fetches and renews tickets by the keytab; Spark and ranks on this machine inherit it."""
    os.environ["KRB5_CLIENT_KTNAME"] = str(keytab.absolute())
    os.environ["KRB5CCNAME"] = str(folder / "ticket")


def _ticket(asked: Cluster) -> kerberos.Ticket:
    try:
        found = kerberos.ticket()
    except SecurityFault as fault:
        if asked.keytab:
            raise SecurityFault(
                f"--keytab {asked.keytab}: gives no ticket ({fault}); check it with `klist -kt`"
            ) from None
        raise SecurityFault(f"the cluster asks for Kerberos and there is no ticket ({fault}); {REMEDY}") from None
    if asked.principal and not _same(asked.principal, found.principal):
        raise SecurityFault(
            f"--principal {asked.principal}: {asked.keytab} is {found.principal}'s; name that, or another keytab"
        )
    return found


def _same(asked: str, found: str) -> bool:
    return found == asked or ("@" not in asked and found.partition("@")[0] == asked)


def _remarks(asked: Cluster, ticket: kerberos.Ticket) -> Iterator[str]:
    here = asked.master != "yarn" or asked.deploy_mode == "client"
    if here and not asked.keytab:
        yield (
            f"the ticket of {ticket.principal} ends in {span(ticket.ends - time.time())}{_renewal(ticket)}: a longer "
            "job needs --principal and --keytab"
        )
    if asked.master == "yarn":
        yield (
            f"containers work by delegation tokens, which end after {span(_token_life_s())}: a longer job fails then, "
            "and goes on from its newest snapshot"
        )
    if asked.proxy_user and here:
        yield f"--proxy-user {asked.proxy_user}: the driver and ranks on this machine reach HDFS as {ticket.principal}"


def _renewal(ticket: kerberos.Ticket) -> str:
    until = ticket.renewable_until
    return f" (`kinit -R` renews it for up to {span(until - time.time())})" if until and until > ticket.ends else ""


def _token_life_s() -> float:
    value: Optional[str] = hadoop.settings().get(MAX_LIFETIME)
    return (int(value) if value and value.isdigit() else _TOKEN_LIFE_MS) / 1000


def span(seconds: float) -> str:
    """A duration as people say it: "9.8 h", "7 days"."""
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), (1, "s"))
    return f"{round(seconds / size, 1):g} {unit}"
