from __future__ import annotations

import json
import socket
import struct
import threading

import pytest

from caffe_on_grid.comm import channel
from caffe_on_grid.errors import EnvironmentFault, SecurityFault

KEY = b"k" * 32


@pytest.fixture
def listener():
    made = channel.Listener("127.0.0.1", KEY)
    yield made
    made.close()


def dialled(listener, key=KEY):
    """Both ends of a fresh channel."""
    ends = []
    thread = threading.Thread(target=lambda: ends.append(channel.dial(listener.address, key, 20)))
    thread.start()
    accepted = listener.accept(20)
    thread.join()
    assert accepted is not None
    return ends[0], accepted


@pytest.fixture
def pair(listener):
    near, far = dialled(listener)
    yield near, far
    near.close()
    far.close()


def raw_far_end(listener):
    """A proved channel, and the bare socket at its other end."""
    near, far = dialled(listener)
    bare = socket.socket(fileno=near._socket.detach())
    bare.setblocking(True)
    return bare, far


def test_the_first_free_port_is_taken(listener):
    """Two jobs of one gateway behind a firewall with a few open ports."""
    taken = listener.address[1]
    with pytest.raises(EnvironmentFault, match=rf"127\.0\.0\.1: .* at port {taken}: Address already in use"):
        channel.Listener("127.0.0.1", KEY, ports=[taken])
    other = channel.Listener("127.0.0.1", KEY, ports=[taken, 0])
    assert other.address[1] != taken
    for end in dialled(other):
        end.close()
    other.close()


def test_it_is_found_at_one_address_and_listens_at_another():
    """A driver behind address translation, or in a container."""
    made = channel.Listener("localhost", KEY, bind="127.0.0.1")
    assert made.address[0] == "localhost"
    for end in dialled(made):
        end.close()
    made.close()
    with pytest.raises(EnvironmentFault, match=r"192\.0\.2\.1: the driver cannot listen .*: Cannot assign requested"):
        channel.Listener("localhost", KEY, bind="192.0.2.1")


def test_messages_cross_both_ways_in_order(pair):
    near, far = pair
    for value in range(50):
        near.send({"value": value, "text": "ä\n"})
    far.send({"type": "stop"})
    assert [far.receive(20)["value"] for _ in range(50)] == list(range(50))
    assert near.receive(20) == {"type": "stop"}
    assert near.local_host == "127.0.0.1"


def test_nothing_to_receive_is_none(pair):
    assert pair[0].receive(0) is None
    assert pair[0].receive(0.01) is None


def test_a_large_message_comes_whole(pair):
    near, far = pair
    text = "x" * (channel.LIMIT - 100)
    thread = threading.Thread(target=near.send, args=({"text": text},))
    thread.start()
    assert far.receive(20) == {"text": text}
    thread.join()


def test_a_message_above_the_limit_is_not_sent(pair):
    with pytest.raises(ValueError, match="the channel takes"):
        pair[0].send({"text": "x" * channel.LIMIT})


def test_the_end_of_the_other_side_is_closed(pair):
    near, far = pair
    near.send({"last": 1})
    near.close()
    assert far.receive(20) == {"last": 1}
    with pytest.raises(channel.Closed, match="has gone"):
        far.receive(20)
    with pytest.raises(channel.Closed, match="this side"):
        near.send({})


def test_a_wrong_key_is_refused(listener):
    caught = []

    def dial():
        try:
            channel.dial(listener.address, b"w" * 32, 20)
        except SecurityFault as error:
            caught.append(error)

    thread = threading.Thread(target=dial)
    thread.start()
    while not listener.refused:
        assert listener.accept(0.05) is None
    thread.join()
    assert "refused this side's key" in str(caught[0])


def test_a_listener_without_the_key_is_not_believed():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"cogrid/1" + b"n" * 32)
                connection.recv(72, socket.MSG_WAITALL)
                connection.sendall(b"p" * 32)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(SecurityFault, match="does not know"):
            channel.dial(server.getsockname(), KEY, 20)
        thread.join()


def test_proofs_cannot_be_replayed(listener):
    """What one connection answered is worth nothing on the next: the challenge is fresh."""
    first = socket.create_connection(listener.address)
    assert listener.accept(0.05) is None
    nonce = first.recv(40, socket.MSG_WAITALL)[8:]
    answer = b"cogrid/1" + b"m" * 32 + channel._proof(KEY, b"dial", nonce, b"m" * 32)
    second = socket.create_connection(listener.address)
    second.sendall(answer)
    while not listener.refused:
        assert listener.accept(0.05) is None
    first.sendall(answer)
    accepted = listener.accept(20)
    assert accepted is not None
    for end in (first, second, accepted):
        end.close()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (struct.pack(">I", channel.LIMIT + 1), "announces a message"),
        (b"GET / HTTP/1.1\r\n\r\n", "announces a message"),
        (struct.pack(">I", 3) + b"abc", "no JSON object"),
        (struct.pack(">I", 2) + b"[]", "no JSON object"),
        (struct.pack(">I", 1 << 19) + b"[" * (1 << 19), "no JSON object"),
        (struct.pack(">I", 2) + b"\xff\xfe", "no JSON object"),
    ],
)
def test_garbage_ends_the_connection(listener, data, message):
    bare, far = raw_far_end(listener)
    with bare:
        bare.sendall(data)
        with pytest.raises(channel.Closed, match=message):
            far.receive(20)
        assert bare.recv(1) == b""


def test_half_a_message_is_waited_for_and_then_kept(listener):
    bare, far = raw_far_end(listener)
    body = json.dumps({"a": 1}).encode()
    with bare:
        bare.sendall(struct.pack(">I", len(body)) + body[:3])
        assert far.receive(0.05) is None
        bare.sendall(body[3:])
        assert far.receive(20) == {"a": 1}
    far.close()


def test_a_peer_that_takes_nothing_is_cut_off(listener, monkeypatch):
    monkeypatch.setattr(channel, "SEND_S", 0.2)
    bare, far = raw_far_end(listener)
    with bare, pytest.raises(channel.Closed, match="takes no message"):
        for _ in range(1000):
            far.send({"text": "x" * 100_000})


def test_a_silent_peer_times_out_and_holds_up_nobody(listener, monkeypatch):
    monkeypatch.setattr(channel, "HANDSHAKE_S", 1.5)  # which the good peer has to keep as well
    with socket.create_connection(listener.address) as silent:
        near, far = dialled(listener)
        near.close()
        far.close()
        while not listener.refused:
            assert listener.accept(0.05) is None
        silent.settimeout(20)
        assert silent.recv(100)[:8] == b"cogrid/1"
        assert silent.recv(100) == b""


def test_a_server_that_does_not_answer_times_out():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(EnvironmentFault, match="does not answer"),
    ):
        channel.dial(server.getsockname(), KEY, 0.1)


def test_nobody_there_is_an_environment_fault(listener):
    listener.close()
    with pytest.raises(EnvironmentFault, match="cannot be reached"):
        channel.dial(listener.address, KEY, 5)


def test_many_connections(listener):
    count, ends = 100, []

    def dial(index):
        end = channel.dial(listener.address, KEY, 60)
        end.send({"index": index})
        ends.append(end)

    threads = [threading.Thread(target=dial, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    accepted = [listener.accept(60) for _ in range(count)]
    for thread in threads:
        thread.join()
    assert sorted(end.receive(60)["index"] for end in accepted) == list(range(count))
    for end in (*ends, *accepted):
        end.close()


DIALLER = """
import sys
from caffe_on_grid.comm import channel
end = channel.dial(("127.0.0.1", int(sys.argv[1])), b"k" * 32, 30)
end.send({"python": sys.version_info[1]})
print(end.receive(30)["type"])
"""


@pytest.mark.runtime
def test_the_runtime_s_python_speaks_it(listener, in_runtime):
    done = []
    thread = threading.Thread(target=lambda: done.append(in_runtime(["-c", DIALLER, str(listener.address[1])])))
    thread.start()
    far = listener.accept(60)
    assert far is not None
    assert far.receive(60) == {"python": 9}
    far.send({"type": "stop"})
    thread.join()
    far.close()
    assert done[0].stdout == "stop\n"
