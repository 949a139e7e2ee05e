"""YARN's ResourceManager over its REST API: which applications carry a tag, and their end.

The addresses are the configuration's `yarn.resourcemanager.webapp.address`. Without a ticket a secure ResourceManager
refuses REST; there the `yarn` program is asked, which uses the container's delegation token.
"""

from __future__ import annotations

import getpass
import http.client
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional
from urllib.parse import urlencode, urlsplit
from xml.etree import ElementTree

from caffe_on_grid.errors import EnvironmentFault, SecurityFault
from caffe_on_grid.storage import kerberos

UNFINISHED = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")
"""States of an application that has not ended."""

FILES = ("core-site.xml", "yarn-site.xml")
TIMEOUT_S = 20.0
END_S = 60.0
"""How long a killed application may take to be gone."""

_APPLICATION = re.compile(r"\bapplication_\d+_\d+\b")
_VARIABLE = re.compile(r"\$\{([^}$]+)\}")


def configuration(environ: Mapping[str, str], document: Optional[Path] = None) -> dict[str, str]:
    """YARN's settings: those of `document` (an action's configuration), then the configuration folders' on top.

    EnvironmentFault for a file that is no Hadoop configuration.
    """
    folders = [environ[name] for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if environ.get(name)]
    files = [Path(folder) / name for folder in folders for name in FILES]
    found: dict[str, str] = {}
    for path in [*([document] if document else []), *files]:
        if path.is_file():
            found.update(properties(path))
    return {name: _expanded(value, found) for name, value in found.items()}


def properties(path: Path) -> dict[str, str]:
    """The properties in a Hadoop configuration file; EnvironmentFault where it is none."""
    try:
        root = ElementTree.parse(path).getroot()  # noqa: S314  the site's own file
    except (ElementTree.ParseError, OSError) as error:
        raise EnvironmentFault(f"{path}: not a Hadoop configuration: {error}") from None
    pairs = ((entry.findtext("name"), entry.findtext("value")) for entry in root.iter("property"))
    return {name.strip(): value.strip() for name, value in pairs if name and value is not None}


def _expanded(value: str, known: Mapping[str, str]) -> str:
    """Hadoop's ${name}, as far as it is known, twenty rounds as in Hadoop."""
    for _ in range(20):
        value, before = _VARIABLE.sub(lambda match: known.get(match[1], match[0]), value), value
        if value == before:
            break
    return value


def addresses(settings: Mapping[str, str]) -> list[str]:
    """The ResourceManagers' http(s)://host:port, more than one where there is a standby; empty where none is named."""
    secure = settings.get("yarn.http.policy") == "HTTPS_ONLY"
    key = f"yarn.resourcemanager.webapp{'.https' if secure else ''}.address"
    ids = [f".{name.strip()}" for name in settings.get("yarn.resourcemanager.ha.rm-ids", "").split(",") if name.strip()]
    found = (_address(settings, key, suffix, 8090 if secure else 8088) for suffix in ids or [""])
    return [f"{'https' if secure else 'http'}://{address}" for address in found if address]


def _address(settings: Mapping[str, str], key: str, suffix: str, port: int) -> Optional[str]:
    host = settings.get(f"yarn.resourcemanager.hostname{suffix}")
    return settings.get(key + suffix) or (f"{host}:{port}" if host else None)


class Refused(SecurityFault):
    """The ResourceManager does not know who asks, or does not let them."""


@dataclass(frozen=True)
class ResourceManager:
    """The active ResourceManager at one of `urls`."""

    urls: tuple[str, ...]
    user: Optional[str] = None
    """Who asks, on a cluster without Kerberos."""

    def tagged(self, tag: str) -> list[str]:
        """Ids of the unfinished applications that carry `tag`; YARN keeps tags in lower case."""
        query = urlencode({"applicationTags": tag.lower(), "states": ",".join(UNFINISHED)})
        answer = self._ask("GET", f"/ws/v1/cluster/apps?{query}")
        return sorted(entry["id"] for entry in (answer.get("apps") or {}).get("app") or [])

    def state(self, application: str) -> str:
        """One of YARN's states: UNFINISHED, FINISHED, FAILED, KILLED."""
        return str(self._ask("GET", f"/ws/v1/cluster/apps/{application}/state")["state"])

    def get(self, path: str) -> dict[str, Any]:
        """The answer under /ws/v1/cluster/."""
        answer: dict[str, Any] = self._ask("GET", f"/ws/v1/cluster/{path}")
        return answer

    def application(self, application: str) -> dict[str, Any]:
        """All that YARN says of an application."""
        found: dict[str, Any] = self.get(f"apps/{application}")["app"]
        return found

    def kill(self, application: str) -> None:
        """Ask for the end of `application`; it may take a moment."""
        who = f"?{urlencode({'user.name': self.user})}" if self.user else ""
        self._ask("PUT", f"/ws/v1/cluster/apps/{application}/state{who}", {"state": "KILLED"})

    def _ask(self, method: str, path: str, body: Optional[Mapping[str, str]] = None) -> Any:
        """The JSON answer of the active one. Refused, or EnvironmentFault with what each of them said."""
        said = []
        for url in self.urls:
            try:
                status, content = _exchange(method, url, path, body, self.user is None)
            except (OSError, http.client.HTTPException) as error:
                said.append(f"{url}: {error or type(error).__name__}")
                continue
            if status in (401, 403):
                raise Refused(f"{url}: refused with {status}: {_message(content)}")
            document = _document(content)
            if status < 300 and document is not None:
                return document
            said.append(f"{url}: {status} {_message(content)}".rstrip())
        raise EnvironmentFault(f"no ResourceManager answers: {'; '.join(said)}; look at yarn-site.xml")


def _exchange(
    method: str, url: str, path: str, body: Optional[Mapping[str, str]], secure: bool = False
) -> tuple[int, str]:
    """Status and text. No proxy is used, and a redirection, which a standby answers with, is not followed.

    `secure`: where the server wants to know who asks, the ticket tells it, if there is one.
    """
    status, content = _request(method, url, path, body, {})
    if status != http.client.UNAUTHORIZED or not secure:
        return status, content
    try:
        proof = kerberos.negotiate(urlsplit(url).hostname or "")
    except SecurityFault as fault:
        raise Refused(f"{url}: who you are could not be proved: {fault}") from None
    return _request(method, url, path, body, {"Authorization": proof})


def _request(
    method: str, url: str, path: str, body: Optional[Mapping[str, str]], more: Mapping[str, str]
) -> tuple[int, str]:
    scheme, _, place = url.partition("://")
    kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
    connection = kind(place, timeout=TIMEOUT_S)
    try:
        headers = {"Accept": "application/json", "Content-Type": "application/json", **more}
        connection.request(method, path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace")
    finally:
        connection.close()


def _document(content: str) -> Optional[dict[str, Any]]:
    try:
        found = json.loads(content)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _message(content: str) -> str:
    """YARN's own words for a refusal, on one line."""
    exception = (_document(content) or {}).get("RemoteException") or {}
    return " ".join(str(exception.get("message") or re.sub(r"<[^>]*>", " ", content)).split())[:200]


def connect(settings: Mapping[str, str], environ: Mapping[str, str]) -> ResourceManager:
    """The ResourceManager of a configuration; EnvironmentFault where it names none."""
    found = addresses(settings)
    if not found:
        raise EnvironmentFault(
            "yarn.resourcemanager.webapp.address is not set: HADOOP_CONF_DIR must hold yarn-site.xml"
        )
    secure = settings.get("hadoop.security.authentication") == "kerberos"
    return ResourceManager(tuple(found), None if secure else environ.get("HADOOP_USER_NAME") or getpass.getuser())


@dataclass(frozen=True)
class Program:
    """The `yarn` program: slower than REST, and with the container's delegation tokens."""

    path: str

    def tagged(self, tag: str) -> list[str]:
        """As ResourceManager.tagged."""
        words = ("-list", "-appTags", tag.lower(), "-appStates", ",".join(UNFINISHED))
        return sorted(set(_APPLICATION.findall(self._run(*words))))

    def state(self, application: str) -> str:
        """As ResourceManager.state."""
        found = re.search(r"^\s*State\s*:\s*(\w+)", self._run("-status", application), re.MULTILINE)
        if not found:
            raise EnvironmentFault(f"{self.path} application -status {application} names no state")
        return found[1]

    def kill(self, application: str) -> None:
        """As ResourceManager.kill."""
        self._run("-kill", application)

    def _run(self, *words: str) -> str:
        argv = [self.path, "application", *words]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=END_S, check=False)
        except subprocess.TimeoutExpired:
            raise EnvironmentFault(f"{' '.join(argv)} gives no answer in {END_S:g} s; see YARN's pages") from None
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise EnvironmentFault(f"{' '.join(argv)} ended with {done.returncode}: {last}")
        return done.stdout


def program(environ: Mapping[str, str]) -> Optional[Program]:
    """The `yarn` program of $HADOOP_YARN_HOME, $HADOOP_HOME or PATH."""
    homes = [environ[name] for name in ("HADOOP_YARN_HOME", "HADOOP_HOME") if environ.get(name)]
    path = os.pathsep.join([*(f"{home}/bin" for home in homes), environ.get("PATH", "")])
    found = shutil.which("yarn", path=path)
    return Program(found) if found else None


def end_tagged(tags: Sequence[str], settings: Mapping[str, str], environ: Mapping[str, str]) -> list[str]:
    """Kill every unfinished application that carries one of `tags`, this container's own excepted; their ids.

    Returns once YARN says that they have ended. SecurityFault where neither REST nor the `yarn` program may be used.
    """
    manager = connect(settings, environ)
    try:
        return _end(manager, tags, own_application(environ))
    except Refused as refused:
        other = program(environ)
        if other is None:
            raise SecurityFault(
                f"{refused}; put the yarn program on PATH, which uses the container's delegation tokens"
            ) from None
    return _end(other, tags, own_application(environ))


def _end(manager: ResourceManager | Program, tags: Sequence[str], own: Optional[str]) -> list[str]:
    return end(sorted({name for tag in tags for name in manager.tagged(tag)} - {own}), manager)


def end(found: list[str], manager: ResourceManager | Program) -> list[str]:
    """Kill applications, and return them once YARN says that they have ended."""
    for application in found:
        manager.kill(application)
    deadline = time.monotonic() + END_S
    for application in found:
        while manager.state(application) in UNFINISHED:
            if time.monotonic() > deadline:
                raise EnvironmentFault(f"{application} was killed {END_S:g} s ago and has not ended; see YARN's pages")
            time.sleep(0.3)
    return found


def own_application(environ: Mapping[str, str]) -> Optional[str]:
    """The application that this process is part of, from $CONTAINER_ID (container_[eEPOCH_]CLUSTER_APP_ATTEMPT_N)."""
    found = re.match(r"container_(?:e\d+_)?(\d+_\d+)_", environ.get("CONTAINER_ID", ""))
    return f"application_{found[1]}" if found else None
