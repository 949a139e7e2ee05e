"""The Hadoop configuration of this process: where it is, what it says, and what a plain path means by it."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Optional
from xml.etree import ElementTree

from caffe_on_grid.errors import EnvironmentFault
from caffe_on_grid.storage import kerberos, paths

FILES = ("core-site.xml", "hdfs-site.xml")
_VARIABLE = re.compile(r"\$\{([^}$]+)\}")
_MAX_SUBSTITUTIONS = 20
_SPARK_COPY = "__spark_conf__/__hadoop_conf__"


def folder() -> Optional[Path]:
    """The configuration's folder: $HADOOP_CONF_DIR, $YARN_CONF_DIR, $HADOOP_HOME/etc/hadoop, else the copy that Spark
    puts into a YARN container; None where there is no core-site.xml."""
    named = [os.environ.get("HADOOP_CONF_DIR"), os.environ.get("YARN_CONF_DIR"), _below("HADOOP_HOME", "etc/hadoop")]
    for place in [*named, _SPARK_COPY, _below("PWD", _SPARK_COPY)]:
        if place and (Path(place) / FILES[0]).is_file():
            return Path(place)
    return None


def settings() -> Mapping[str, str]:
    """Every setting of core-site.xml and hdfs-site.xml; none without a configuration. EnvironmentFault: broken XML."""
    place = folder()
    return _load(str(place.absolute())) if place else {}


def default_fs() -> Optional[str]:
    """`fs.defaultFS` where it names a shared store, without a slash at its end; None where it is absent or `file:`."""
    value = settings().get("fs.defaultFS") or settings().get("fs.default.name") or ""
    return None if paths.scheme(value) in ("", "file") else value.rstrip("/")


def qualify(uri: str) -> str:
    """What `uri` means on a cluster: a plain path lies on `fs.defaultFS`, a relative one below the user's home there;
    `hdfs:/path` gets the default's authority. Other URIs, and all without such a configuration, stay as they are.

    A job on a local master does not ask: there a plain path is a local file.
    """
    scheme, host, path = paths.split(uri)
    store = default_fs()
    if store is None or scheme not in ("", paths.scheme(store)) or host.strip("/"):
        return uri
    home = settings().get("dfs.user.home.dir.prefix", "/user").rstrip("/")
    return store + (path if path.startswith("/") else f"{home}/{user()}/{path}")


def secure() -> bool:
    """Whether the cluster asks for Kerberos."""
    return settings().get("hadoop.security.authentication", "").lower() == "kerberos"


def user() -> str:
    """Who this process is to the cluster: the ticket's owner where it asks for Kerberos (a container has none, but its
    user's name), else $HADOOP_USER_NAME, else the login's name."""
    proved = kerberos.user() if secure() and not os.environ.get("HADOOP_TOKEN_FILE_LOCATION") else None
    return proved or os.environ.get("HADOOP_USER_NAME") or getpass.getuser()


def name_nodes(service: str, key: str) -> list[str]:
    """Addresses `host:port` under `dfs.namenode.<key>` of a nameservice, or of the only NameNode, by its address."""
    known = settings()
    nodes = known.get(f"dfs.ha.namenodes.{service}", "")
    names = [f"dfs.namenode.{key}.{service}.{node.strip()}" for node in nodes.split(",") if node.strip()]
    found = [known[name] for name in names or [f"dfs.namenode.{key}.{service}"] if name in known]
    if not found and (default_fs() or "").endswith(f"//{service}"):
        found = [known[f"dfs.namenode.{key}"]] if f"dfs.namenode.{key}" in known else []
    return found


def _below(variable: str, name: str) -> Optional[str]:
    value = os.environ.get(variable)
    return str(Path(value) / name) if value else None


@lru_cache(maxsize=8)
def _load(place: str) -> Mapping[str, str]:
    raw: dict[str, str] = {}
    for name in FILES:
        path = Path(place) / name
        if path.is_file():
            raw.update(_properties(path))
    return {name: _substitute(value, raw) for name, value in raw.items()}


def _properties(path: Path) -> dict[str, str]:
    try:
        root = ElementTree.parse(path).getroot()  # noqa: S314 — the administrator wrote it
    except (ElementTree.ParseError, OSError) as error:
        raise EnvironmentFault(
            f"{path}: not a Hadoop configuration ({error}); repair it or set HADOOP_CONF_DIR"
        ) from error
    found = ((p.findtext("name"), p.findtext("value")) for p in root.iter("property"))
    return {name.strip(): value.strip() for name, value in found if name and value is not None}


def _substitute(value: str, known: Mapping[str, str]) -> str:
    """Hadoop's ${name} and ${env.NAME}; what is unknown stays, circles end after Hadoop's own 20 rounds."""
    for _ in range(_MAX_SUBSTITUTIONS):
        new = _VARIABLE.sub(lambda match: _variable(match[1], known, match[0]), value)
        if new == value:
            break
        value = new
    return value


def _variable(name: str, known: Mapping[str, str], otherwise: str) -> str:
    if name == "user.name":
        return user()
    if name.startswith("env."):
        return os.environ.get(name[len("env.") :], otherwise)
    return known.get(name, otherwise)
