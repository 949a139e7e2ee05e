from __future__ import annotations

import os
from pathlib import Path

import cv2
import lmdb
import numpy as np
import pytest
import records

from caffe_on_grid.data import lmdb_source
from caffe_on_grid.errors import ConfigError, DataError
from caffe_on_grid.proto import schema

COLOUR = records.pixels(1, 3, 12, 16)
GRAY = records.pixels(2, 1, 12, 16)


@pytest.fixture
def read(tmp_path):
    """Writes one value and reads it back."""

    def once(value: bytes, **options):
        source = lmdb_source.open(records.write(tmp_path / "one", {"key": value}), **options)
        try:
            return source.read(0)
        finally:
            source.close()

    return once


def test_records_by_index_in_key_order(tmp_path):
    path = records.write(tmp_path / "db", {"10": records.raw(GRAY, 10), "2": records.raw(COLOUR, 2), "1": b"\xff"})
    source = lmdb_source.open(path)
    assert len(source) == 3
    assert [source.key(i) for i in range(3)] == ["1", "10", "2"]
    record = source.read(2)
    assert (record.key, record.label, record.pixels.dtype) == ("2", 2, np.uint8)
    assert np.array_equal(record.pixels, COLOUR)
    assert np.array_equal(source.read(1).pixels, GRAY)
    source.close()


def test_float_data(read):
    record = read(records.floats(COLOUR / 7, -3))
    assert record.pixels.dtype == np.float32
    assert np.array_equal(record.pixels, (COLOUR / 7).astype(np.float32))
    assert record.label == -3


@pytest.mark.parametrize(
    ("image", "options", "channels"),
    [
        (COLOUR, {}, 3),
        (GRAY, {}, 1),
        (COLOUR, {"force_gray": True}, 1),
        (GRAY, {"force_color": True}, 3),
    ],
)
@pytest.mark.parametrize("kind", ["png", "jpg"])
def test_encoded_images_keep_their_channels_unless_forced(read, image, options, channels, kind):
    record = read(records.encoded(image, 5, kind), **options)
    assert record.pixels.shape == (channels, 12, 16)
    assert record.label == 5
    if kind == "png" and not options:
        assert np.array_equal(record.pixels, image)


def test_16_bits_are_refused(read):
    data = cv2.imencode(".png", np.zeros((4, 4), np.uint16))[1].tobytes()
    with pytest.raises(DataError, match="uint16"):
        read(schema.Datum(data=data, encoded=True).SerializeToString())


def test_both_forces_are_refused_for_an_encoded_record_only(read):
    assert read(records.raw(GRAY, 1), force_color=True, force_gray=True).label == 1


def test_both_forces_are_refused(read):
    with pytest.raises(DataError, match="both force_color and force_gray"):
        read(records.encoded(GRAY, 1, "png"), force_color=True, force_gray=True)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"\xff\xff\xff", "not a Datum"),
        (records.raw(COLOUR, 1)[:-200], "not a Datum"),
        (b"", "0 values for a shape of 0×0×0"),
        (schema.Datum(channels=1, height=2, width=2, data=b"abc").SerializeToString(), "3 values for a shape of 1×2×2"),
        (schema.Datum(data=b"\x89PNG", encoded=True).SerializeToString(), "cannot be decoded"),
        (schema.Datum(encoded=True).SerializeToString(), "cannot be decoded"),
    ],
    ids=["garbage", "cut", "nothing", "few-bytes", "bad-image", "no-image"],
)
def test_unusable_records_are_named_by_key(read, value, says):
    with pytest.raises(DataError, match=f"record 'key' of .*{says}"):
        read(value)


def test_missing_and_other_things(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        lmdb_source.open(str(tmp_path / "absent"))
    with pytest.raises(ConfigError, match=r"no folder with a data.mdb"):
        lmdb_source.open(str(tmp_path))
    (tmp_path / "CURRENT").write_text("MANIFEST-000001\n")
    with pytest.raises(ConfigError, match="LevelDB"):
        lmdb_source.open(str(tmp_path))
    (tmp_path / "data.mdb").write_bytes(b"something else" * 1000)
    with pytest.raises(ConfigError, match="cannot be opened as an LMDB"):
        lmdb_source.open(str(tmp_path))


def test_empty(tmp_path):
    with pytest.raises(DataError, match="holds no records"):
        lmdb_source.open(records.write(tmp_path / "db", {}))


def test_cut_short(tmp_path):
    path = records.counted(tmp_path / "db", 500)
    os.truncate(Path(path) / "data.mdb", 20480)
    with pytest.raises(DataError, match="cut short"):
        lmdb_source.open(path)


def test_a_folder_that_may_not_be_written_gets_no_lock_file(tmp_path, monkeypatch):
    path = records.counted(tmp_path / "db", 3)
    (Path(path) / "lock.mdb").unlink()
    monkeypatch.setattr(os, "access", lambda *_: False)
    source = lmdb_source.open(path)
    assert source.read(2).label == 2
    assert not (Path(path) / "lock.mdb").exists()
    source.close()


def test_pages_are_given_back_by_opening_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(lmdb_source, "RESIDENT_BYTES", 1 << 16)
    monkeypatch.setattr(lmdb_source, "CHECK_READS", 8)
    path = records.counted(tmp_path / "db", 2000, (1, 30, 30))
    opened = []
    real = lmdb.open
    monkeypatch.setattr(lmdb, "open", lambda *args, **more: opened.append(args) or real(*args, **more))
    source = lmdb_source.open(path)
    assert len(source) == 2000
    after_keys = len(opened)
    assert after_keys > 5
    order = np.random.RandomState(0).permutation(2000)
    assert [source.read(i).label for i in order] == order.tolist()
    assert len(opened) > after_keys + 5
    source.close()


def test_a_record_that_vanished_is_named(tmp_path):
    path = records.counted(tmp_path / "db", 10)
    source = lmdb_source.open(path)
    source.close()
    with lmdb.open(path) as environment, environment.begin(write=True) as transaction:
        transaction.delete(b"00000004")
    source._open()
    with pytest.raises(DataError, match=r"'00000004' .* is gone"):
        source.read(4)
    source.close()


def test_the_map_grows_while_writing(tmp_path):
    writer = lmdb_source.LmdbWriter(str(tmp_path / "db"), 1 << 16)
    for index in range(2500):
        writer.put(b"%08d" % index, bytes(500))
    writer.close()
    source = lmdb_source.open(str(tmp_path / "db"))
    assert [source.key(0), source.key(len(source) - 1), len(source)] == ["00000000", "00002499", 2500]
    source.close()
