"""Token files as Hadoop 3.4.1's `fetchdt` writes them (the bytes below are its own)."""

from __future__ import annotations

import base64

import pytest

from caffe_on_grid.errors import SecurityFault
from caffe_on_grid.storage import tokens

RPC = bytes.fromhex(
    "4844545300010f3132372e302e302e313a31393030301c0004726f6f7404726f6f74008a01a228c1d1568a01a24cce5556010214"
    "0fef9f3cd7f155aa38acf75e4264b4b1ce86a7ba15484446535f44454c45474154494f4e5f544f4b454e0f3132372e302e302e31"
    "3a313930303000"
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tokens"


def test_a_file_of_hadoop(path, monkeypatch):
    path.write_bytes(RPC)
    (token,) = tokens.read(path)
    assert (token.kind, token.service) == ("HDFS_DELEGATION_TOKEN", "127.0.0.1:19000")
    raw = base64.urlsafe_b64decode(token.encoded + "=" * (-len(token.encoded) % 4))
    assert raw in RPC
    assert token.encoded not in f"{token!r} {token}"
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(path))
    assert tokens.hdfs_token(["127.0.0.1:19000"]) == token
    assert tokens.hdfs_token(["name:19000"]) == token


def entry(kind: bytes, service: bytes, length: int = 5) -> bytes:
    size = bytes([length]) if length < 128 else b"\x8f" + bytes([length])
    parts = (size, b"i" * length, b"\x02pw", bytes([len(kind)]), kind, bytes([len(service)]), service)
    return b"\x01a" + b"".join(parts)


def test_among_several_the_one_for_the_name_node_is_taken(path, monkeypatch):
    rows = [entry(b"YARN_AM_RM_TOKEN", b"rm"), entry(b"HDFS_DELEGATION_TOKEN", b"ha-hdfs:one", 200)]
    rows.append(entry(b"HDFS_DELEGATION_TOKEN", b"ha-hdfs:two"))
    path.write_bytes(b"HDTS\x00\x03" + b"".join(rows) + b"\x00")
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(path))
    found = tokens.hdfs_token(["one", "ha-hdfs:one"])
    assert found is not None
    assert found.service == "ha-hdfs:one"
    assert tokens.hdfs_token(["three"]) is None


def test_no_file_no_token(monkeypatch):
    monkeypatch.delenv("HADOOP_TOKEN_FILE_LOCATION", raising=False)
    assert tokens.hdfs_token(["x"]) is None


@pytest.mark.parametrize("length", range(len(RPC) - 1))
def test_a_file_cut_anywhere_is_refused(path, length):
    path.write_bytes(RPC[:length])
    with pytest.raises(SecurityFault, match="not a Hadoop token file") as caught:
        tokens.read(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_another_format_are_refused(path):
    with pytest.raises(SecurityFault, match="cannot be read"):
        tokens.read(path)
    path.write_bytes(b"HDTS\x01" + RPC[5:])
    with pytest.raises(SecurityFault, match="unknown header"):
        tokens.read(path)
