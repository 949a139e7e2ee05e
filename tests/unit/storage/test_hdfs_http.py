"""WebHDFS: who its client says it is, two NameNodes, and answers of others, against a small HTTP server."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from caffe_on_grid.storage.hdfs_http import WebClient
from caffe_on_grid.storage.remote import StoreFault

FILE = {"FileStatus": {"length": 7, "type": "FILE", "modificationTime": 5}}
STANDBY = {"RemoteException": {"exception": "StandbyException", "message": "Operation category READ is not supported"}}


class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(parse_qs(urlsplit(self.path).query))
        status, body = self.server.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        """Nothing is printed."""


@pytest.fixture
def serve():
    """Starts a server that answers all with (status, body); its `asked` lists the queries."""
    servers = []

    def start(status: int, body: bytes) -> HTTPServer:
        server = HTTPServer(("127.0.0.1", 0), Answers)
        server.answer, server.asked = (status, body), []
        servers.append((server, threading.Thread(target=server.serve_forever)))
        servers[-1][1].start()
        return server

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


def client(*servers: HTTPServer) -> WebClient:
    return WebClient([f"http://127.0.0.1:{server.server_port}" for server in servers], ["grid"])


def test_the_users_name_is_told_without_a_token_and_the_token_alone_with_one(serve, monkeypatch, tmp_path):
    monkeypatch.setenv("HADOOP_USER_NAME", "ann")
    monkeypatch.delenv("HADOOP_TOKEN_FILE_LOCATION", raising=False)
    server = serve(200, json.dumps(FILE).encode())
    assert client(server).entry("/x").size == 7
    kind, service = b"HDFS_DELEGATION_TOKEN", b"ha-hdfs:grid"
    token = b"\x02id\x02pw" + bytes([len(kind)]) + kind + bytes([len(service)]) + service
    (tmp_path / "tokens").write_bytes(b"HDTS\x00\x01\x01a" + token + b"\x00")
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(tmp_path / "tokens"))
    client(server).entry("/x")
    named, proved = server.asked
    assert named == {"op": ["GETFILESTATUS"], "user.name": ["ann"]}
    assert set(proved) == {"op", "delegation"}


def test_the_active_name_node_answers_for_the_standby(serve):
    standby, active = serve(403, json.dumps(STANDBY).encode()), serve(200, json.dumps(FILE).encode())
    assert client(standby, active).entry("/x").size == 7
    with pytest.raises(StoreFault) as caught:
        client(standby, standby).entry("/x")
    assert caught.value.kind == "StandbyException"


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, b"<html>a proxy</html>", "Unreachable"),
        (404, b"<html>not here</html>", "Unreachable"),
        (401, b"", "AuthenticationException"),
        (403, b"forbidden", "AccessControlException"),
        (502, b"{}", "Broken"),
    ],
)
def test_answers_that_are_not_webhdfs(serve, status, body, kind):
    with pytest.raises(StoreFault) as caught:
        client(serve(status, body)).entry("/x")
    assert caught.value.kind == kind
