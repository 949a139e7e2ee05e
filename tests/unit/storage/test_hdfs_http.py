"""WebHDFS: who its client says it is, two NameNodes, and answers of others, against a small HTTP server."""

from __future__ import annotations

import json
import socket
import threading
import traceback
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from caffe_on_grid.storage import hdfs_http, tokens
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


def bases(*servers: HTTPServer) -> list[str]:
    return [f"http://127.0.0.1:{server.server_port}" for server in servers]


def client(*servers: HTTPServer) -> WebClient:
    return WebClient(bases(*servers), ["grid"])


def container_token(service: str) -> bytes:
    """A token file of one token."""
    kind = b"HDFS_DELEGATION_TOKEN"
    token = b"\x02id\x02pw" + bytes([len(kind)]) + kind + bytes([len(service)]) + service.encode()
    return b"HDTS\x00\x01\x01a" + token + b"\x00"


def test_the_users_name_is_told_without_a_token_and_the_token_alone_with_one(serve, monkeypatch, tmp_path):
    monkeypatch.setenv("HADOOP_USER_NAME", "ann")
    monkeypatch.delenv("HADOOP_TOKEN_FILE_LOCATION", raising=False)
    server = serve(200, json.dumps(FILE).encode())
    assert client(server).entry("/x").size == 7
    (tmp_path / "tokens").write_bytes(container_token("ha-hdfs:grid"))
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(tmp_path / "tokens"))
    client(server).entry("/x")
    named, proved = server.asked
    assert named == {"op": ["GETFILESTATUS"], "user.name": ["ann"]}
    assert set(proved) == {"op", "delegation"}


def test_the_active_name_node_answers_for_the_standby(serve):
    standby, active = serve(403, json.dumps(STANDBY).encode()), serve(200, json.dumps(FILE).encode())
    assert client(standby, active).entry("/x").size == 7
    with pytest.raises(StoreFault) as caught:
        client(standby, serve(403, json.dumps(STANDBY).encode()), standby).entry("/x")
    assert caught.value.kind == "StandbyException"


def test_a_name_node_that_is_down_is_passed_over(serve):
    assert WebClient(["http://127.0.0.1:1", *bases(serve(200, json.dumps(FILE).encode()))], ["grid"]).entry("/x")


def test_the_reason_of_a_401_is_told(serve):
    body = {"RemoteException": {"exception": "InvalidToken", "message": "it has expired"}}
    with pytest.raises(StoreFault) as caught:
        client(serve(401, json.dumps(body).encode())).entry("/x")
    assert (caught.value.kind, caught.value.detail) == ("InvalidToken", "it has expired")


def test_kerberos_by_http_wants_a_ticket(monkeypatch, tmp_path):
    setting = "<property><name>hadoop.security.authentication</name><value>kerberos</value></property>"
    (tmp_path / "core-site.xml").write_text(f"<configuration>{setting}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("KRB5CCNAME", str(tmp_path / "ticket"))
    monkeypatch.delenv("HADOOP_TOKEN_FILE_LOCATION", raising=False)
    with pytest.raises(StoreFault) as caught:
        WebClient(["http://127.0.0.1:1"], ["grid"]).entry("/x")
    assert caught.value.kind == "AuthenticationException"


def test_a_stream_that_breaks_off_is_a_broken_transfer(serve):
    with pytest.raises(StoreFault) as caught:
        list(client(serve(200, b"only this")).pieces("/x", 0, 10))
    assert (caught.value.kind, caught.value.detail) == ("Broken", "9 of 10 bytes came")


def test_an_answer_that_does_not_come_may_have_been_done(monkeypatch):
    """It once counted as a store that was never reached, where all may be tried again: an append was done twice."""
    monkeypatch.setattr(hdfs_http, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute, pytest.raises(StoreFault) as caught:
        WebClient([f"http://127.0.0.1:{mute.getsockname()[1]}"], ["grid"]).append("/x", b"line")
    assert caught.value.kind == "Broken"


def test_no_fault_shows_the_token(monkeypatch, tmp_path):
    (tmp_path / "tokens").write_bytes(container_token("ha-hdfs:grid"))
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(tmp_path / "tokens"))
    token = tokens.hdfs_token(["ha-hdfs:grid"]).encoded
    with pytest.raises(StoreFault) as caught:
        WebClient(["http://127.0.0.1:1"], ["ha-hdfs:grid"]).entry("/x")
    assert (caught.value.kind, caught.value.detail) == ("Unreachable", "127.0.0.1:1: Connection refused")
    assert token not in "".join(traceback.format_exception(*caught._excinfo))


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
