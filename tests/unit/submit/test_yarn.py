"""The ResourceManager's REST API, spoken with a small server that answers as Hadoop's documentation says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from caffe_on_grid.errors import EnvironmentFault, SecurityFault
from caffe_on_grid.submit import yarn


@dataclass
class Cluster:
    """What the server knows: applications by id (state, tags, who killed it), how often a killed one still runs."""

    applications: dict[str, list] = field(default_factory=dict)
    lingers: int = 0
    refuses: int = 0
    standby: bool = False
    asked: list[str] = field(default_factory=list)
    url: str = ""


def handler(cluster: Cluster) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self, status: int, document: object) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def handle_one(self, method: str) -> None:
            cluster.asked.append(f"{method} {self.path}")
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null")
            at = urlsplit(self.path)
            query = parse_qs(at.query)
            if cluster.standby:
                self.send_response(307)
                self.send_header("Location", f"http://other{self.path}")
                self.end_headers()
            elif cluster.refuses:
                message = {"exception": "AuthorizationException", "message": "The default static user cannot."}
                self.answer(cluster.refuses, {"RemoteException": message})
            elif at.path == "/ws/v1/cluster/apps":
                tags, states = query["applicationTags"][0], query["states"][0].split(",")
                found = [
                    {"id": name, "state": state, "applicationTags": ",".join(carried)}
                    for name, (state, carried) in cluster.applications.items()
                    if tags in carried and state in states
                ]
                self.answer(200, {"apps": {"app": found} if found else None})
            else:
                self.state(method, at.path.split("/")[5], query, body)

        def state(self, method: str, name: str, query: dict, body: object) -> None:
            if name not in cluster.applications:
                message = f"app with id: {name} not found"
                self.answer(404, {"RemoteException": {"exception": "NotFoundException", "message": message}})
            elif method == "PUT":
                assert body == {"state": "KILLED"}
                assert self.headers["Content-Type"] == "application/json"
                cluster.applications[name].append(query.get("user.name", [""])[0])
                self.answer(202, {"state": cluster.applications[name][0]})
            else:
                entry = cluster.applications[name]
                if len(entry) > 2 and cluster.lingers == 0:
                    entry[0] = "KILLED"
                cluster.lingers = max(0, cluster.lingers - 1)
                self.answer(200, {"state": entry[0]})

        def do_GET(self) -> None:
            self.handle_one("GET")

        def do_PUT(self) -> None:
            self.handle_one("PUT")

    return Handler


@pytest.fixture
def serve() -> Iterator:
    servers = []

    def start(**given: object) -> Cluster:
        cluster = Cluster(**given)  # type: ignore[arg-type]
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler(cluster))
        servers.append((server, threading.Thread(target=server.serve_forever, args=(0.05,))))
        servers[-1][1].start()
        cluster.url = f"127.0.0.1:{server.server_address[1]}"
        return cluster

    yield start
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


def settings(*clusters: Cluster, **more: str) -> dict[str, str]:
    if len(clusters) == 1:
        return {"yarn.resourcemanager.webapp.address": clusters[0].url, **more}
    ids = [f"rm{i}" for i in range(len(clusters))]
    named = {f"yarn.resourcemanager.webapp.address.{i}": cluster.url for i, cluster in zip(ids, clusters)}
    return {"yarn.resourcemanager.ha.rm-ids": ",".join(ids), **named, **more}


ME = {"HADOOP_USER_NAME": "ada"}
OLD, DONE, OTHER = "application_1_0007", "application_1_0008", "application_1_0009"


def apps() -> dict[str, list]:
    return {OLD: ["RUNNING", ["oozie-1"]], DONE: ["FINISHED", ["oozie-1"]], OTHER: ["ACCEPTED", ["oozie-2"]]}


def test_what_carries_the_tag_is_killed_and_waited_for(serve) -> None:
    cluster = serve(applications=apps(), lingers=3)
    assert yarn.end_tagged(["OOZIE-1"], settings(cluster), ME) == [OLD]
    assert cluster.applications[OLD] == ["KILLED", ["oozie-1"], "ada"]
    assert [entry[0] for entry in cluster.applications.values()] == ["KILLED", "FINISHED", "ACCEPTED"]


def test_nothing_to_end(serve) -> None:
    cluster = serve(applications=apps())
    assert yarn.end_tagged(["oozie-3"], settings(cluster), ME) == []
    assert not [line for line in cluster.asked if line.startswith("PUT")]


def test_the_launchers_own_application_lives(serve) -> None:
    cluster = serve(applications=apps())
    environ = {**ME, "CONTAINER_ID": "container_e07_1_0007_01_000001"}
    assert yarn.end_tagged(["oozie-1"], settings(cluster), environ) == []
    assert cluster.applications[OLD][0] == "RUNNING"


def test_a_standby_is_passed_over(serve) -> None:
    cluster = serve(applications=apps())
    both = settings(serve(standby=True), cluster)
    assert yarn.end_tagged(["oozie-1"], both, ME) == [OLD]


def test_nobody_answers(serve) -> None:
    with pytest.raises(EnvironmentFault, match=r"no ResourceManager answers: http://127.0.0.1:1: .*refused"):
        yarn.end_tagged(["t"], {"yarn.resourcemanager.webapp.address": "127.0.0.1:1"}, ME)


def test_yarns_own_words_are_passed_on(serve) -> None:
    manager = yarn.connect(settings(serve()), ME)
    with pytest.raises(EnvironmentFault, match="404 app with id: application_1_0001 not found"):
        manager.state("application_1_0001")


def test_a_page_that_is_no_json_is_no_answer(serve) -> None:
    with pytest.raises(EnvironmentFault, match="307"):
        yarn.connect(settings(serve(standby=True)), ME).tagged("t")


def test_with_kerberos_no_name_is_claimed(serve) -> None:
    cluster = serve(applications=apps())
    yarn.end_tagged(["oozie-1"], settings(cluster, **{"hadoop.security.authentication": "kerberos"}), ME)
    assert cluster.applications[OLD][2] == ""


YARN = """#!/bin/sh
echo "$@" >> {log}
case "$2" in
  -list) echo "Total number of applications: 1"; echo "application_1_0007  train  SPARK  ada  default  RUNNING" ;;
  -status) printf 'Application Report :\\n\\tState : KILLED\\n\\tFinal-State : KILLED\\n' ;;
  -kill) echo "Killing application $3" ;;
esac
"""


@pytest.mark.parametrize("status", [401, 403])
def test_where_rest_is_refused_the_program_is_asked(serve, tmp_path: Path, status: int) -> None:
    program = tmp_path / "bin" / "yarn"
    program.parent.mkdir()
    program.write_text(YARN.format(log=tmp_path / "log"))
    program.chmod(0o755)
    environ = {**ME, "HADOOP_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    assert yarn.end_tagged(["oozie-1"], settings(serve(refuses=status)), environ) == ["application_1_0007"]
    assert (tmp_path / "log").read_text().splitlines() == [
        "application -list -appTags oozie-1 -appStates NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING",
        "application -kill application_1_0007",
        "application -status application_1_0007",
    ]


def test_refused_and_no_program(serve) -> None:
    with pytest.raises(SecurityFault, match=r"refused with 403: The default static user cannot.; put the yarn program"):
        yarn.end_tagged(["t"], settings(serve(refuses=403)), {**ME, "PATH": "/nowhere"})


def test_a_program_that_fails_says_why(tmp_path: Path) -> None:
    program = tmp_path / "yarn"
    program.write_text("#!/bin/sh\necho first >&2; echo 'no token' >&2; exit 255\n")
    program.chmod(0o755)
    with pytest.raises(EnvironmentFault, match="ended with 255: no token"):
        yarn.Program(str(program)).kill("application_1_0001")


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({"yarn.resourcemanager.webapp.address": "a:1"}, ["http://a:1"]),
        ({"yarn.resourcemanager.hostname": "a"}, ["http://a:8088"]),
        ({"yarn.resourcemanager.hostname": "a", "yarn.http.policy": "HTTPS_ONLY"}, ["https://a:8090"]),
        (
            {"yarn.http.policy": "HTTPS_ONLY", "yarn.resourcemanager.webapp.https.address": "a:2"},
            ["https://a:2"],
        ),
        (
            {
                "yarn.resourcemanager.ha.rm-ids": "x, y",
                "yarn.resourcemanager.hostname.x": "a",
                "yarn.resourcemanager.webapp.address.y": "b:3",
            },
            ["http://a:8088", "http://b:3"],
        ),
        ({}, []),
    ],
)
def test_addresses(known: dict[str, str], expected: list[str]) -> None:
    assert yarn.addresses(known) == expected


def site(path: Path, **pairs: str) -> Path:
    rows = (f"<property><name>{n.replace('__', '.')}</name><value> {v} </value></property>" for n, v in pairs.items())
    path.write_text(f"<?xml version='1.0'?><configuration>{''.join(rows)}</configuration>")
    return path


def test_the_folders_win_over_the_actions_document(tmp_path: Path) -> None:
    site(tmp_path / "yarn-site.xml", yarn__resourcemanager__webapp__address="${host}:8088", host="head")
    document = site(tmp_path / "action.xml", yarn__resourcemanager__webapp__address="old:1", oozie__x="y")
    known = yarn.configuration({"YARN_CONF_DIR": str(tmp_path)}, document)
    assert yarn.addresses(known) == ["http://head:8088"]
    assert known["oozie.x"] == "y"


def test_a_broken_configuration(tmp_path: Path) -> None:
    (tmp_path / "core-site.xml").write_text("<configuration>")
    with pytest.raises(EnvironmentFault, match=r"core-site.xml: not a Hadoop configuration: no element found"):
        yarn.configuration({"HADOOP_CONF_DIR": str(tmp_path)})


def test_no_address() -> None:
    with pytest.raises(EnvironmentFault, match=r"HADOOP_CONF_DIR must hold yarn-site.xml"):
        yarn.end_tagged(["t"], {}, {})
