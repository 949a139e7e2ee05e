"""What the storage over a store's client adds: patience with what passes, one line for what does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

import pytest

from caffe_on_grid.errors import EnvironmentFault, GridError
from caffe_on_grid.storage.remote import FAULTS, PASSING, Entry, RemoteStorage, StoreFault, translate


class Moody:
    """A store of one ten-byte file that fails as often as it is told to, then works."""

    appears_whole = False

    def __init__(self, kind: str, failures: int, after: int = 0) -> None:
        self.kind, self.failures, self.after, self.calls = kind, failures, after, []

    def _fail(self, call: str) -> None:
        self.calls.append(call)
        if self.failures:
            self.failures -= 1
            raise StoreFault(self.kind, "so it is\nand more")

    def entry(self, path: str) -> Entry:
        self._fail("entry")
        return Entry(10, False, "now")

    def pieces(self, path: str, offset: int, length: int) -> Iterator[bytes]:
        self.calls.append(f"{offset}+{length}")
        data = b"0123456789"[offset : offset + length]
        yield data[: self.after]
        self._fail("pieces")
        yield data[self.after :]

    def append(self, path: str, data: bytes) -> None:
        self._fail("append")


def storage(client: Moody, tries: int = 3) -> RemoteStorage:
    return RemoteStorage(lambda uri: client, delays_s=(0.0,) * (tries - 1))


@pytest.mark.parametrize("kind", sorted(FAULTS))
def test_what_passes_is_tried_again_and_the_rest_is_not(kind):
    client = Moody(kind, failures=2)
    if kind in PASSING:
        assert storage(client).size("hdfs://h/x") == 10
        assert client.calls == ["entry"] * 3
    else:
        with pytest.raises(FAULTS[kind][0]):
            storage(client).size("hdfs://h/x")
        assert client.calls == ["entry"]


@pytest.mark.parametrize("kind", sorted(PASSING))
def test_appending_is_tried_once(kind):
    """What was not answered may have been done: a second try would double it."""
    client = Moody(kind, failures=1)
    with pytest.raises(EnvironmentFault):
        storage(client).append(b"x", "hdfs://h/x")
    assert client.calls == ["append"]


class Forgetful:
    """A store that renames, and whose first answer to that is lost on the way."""

    appears_whole = False

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.renamed = 0

    def entry(self, path: str) -> Optional[Entry]:
        return Entry(len(self.files[path]), False, "") if path in self.files else None

    def create(self, path: str, content) -> None:
        self.files[path] = b"".join(content())

    def rename(self, source: str, target: str) -> None:
        self.files[target] = self.files.pop(source)
        self.renamed += 1
        raise StoreFault("Unreachable", "timed out")


def test_a_file_that_was_renamed_without_an_answer_is_in_its_place():
    """It once said that there was no such file, which was in its place by then."""
    client = Forgetful()
    storage(client).write(b"content", "hdfs://h/x")
    assert (client.files, client.renamed) == ({"/x": b"content"}, 1)


def test_tries_are_bounded():
    client = Moody("Unreachable", failures=99)
    with pytest.raises(EnvironmentFault, match=r"hdfs://h/x: the store does not answer \(so it is\)"):
        storage(client).exists("hdfs://h/x")
    assert client.calls == ["entry"] * 3


def test_a_stream_that_breaks_off_goes_on_where_it_ended():
    client = Moody("Broken", failures=1, after=4)
    assert b"".join(storage(client).pieces("hdfs://h/x", 1, 8)) == b"12345678"
    assert client.calls == ["1+8", "pieces", "5+4", "pieces"]


@pytest.mark.parametrize("kind", [*sorted(FAULTS), "SomethingElseException"])
def test_every_fault_is_one_line_with_the_uri(kind):
    error = translate(StoreFault(kind, "first {braces}\nsecond"), "hdfs://h/x")
    assert isinstance(error, GridError)
    assert str(error).startswith("hdfs://h/x: ")
    assert "\n" not in str(error)
    assert "second" not in str(error)
