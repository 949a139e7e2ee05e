"""Whatever a file holds, its reader reads it or refuses it in one line: no traceback, no hang, no memory blown up.

A few seconds here; FUZZ_SECONDS=60 gives each reader a minute.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caffe_on_grid.data import transform
from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import schema, text, weights, wire
from caffe_on_grid.storage import solverstate

SECONDS = float(os.environ.get("FUZZ_SECONDS", 0))
TARGETS = ("net", "names", "solver", "caffemodel", "solverstate", "mean", "datum", "mnist", "mnist packed", "cifar")
COUNT = 250
HERE = Path(__file__).resolve().parent


LONGEST_S = 300 + 2 * SECONDS * len(TARGETS)


@pytest.mark.timeout(LONGEST_S)
def test_changed_files(root: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(root), "OPENCV_LOG_LEVEL": "OFF", "OPENBLAS_NUM_THREADS": "1"}
    program = [sys.executable, "-W", "error::RuntimeWarning", str(HERE / "fuzz.py"), str(COUNT), str(SECONDS), *TARGETS]
    done = subprocess.run(program, env=env, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    check(json.loads(done.stdout), COUNT)


@pytest.mark.runtime
@pytest.mark.timeout(LONGEST_S)
def test_changed_files_in_the_ranks_python(in_runtime) -> None:
    """With its older protobuf, numpy and OpenCV."""
    program = [str(HERE / "fuzz.py"), str(COUNT // 4), str(SECONDS), *TARGETS]
    done = in_runtime(program, timeout=LONGEST_S, OPENCV_LOG_LEVEL="OFF")
    check(json.loads(done.stdout), COUNT // 4)


def check(found: dict[str, dict[str, int]], count: int) -> None:
    """Every reader has read some and refused some."""
    assert tuple(found) == TARGETS
    for name, counts in found.items():
        assert min(counts.values()) > 0, (name, counts)
        assert SECONDS or sum(counts.values()) >= count


def test_what_is_fuzzed_is_all_there_is(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import targets; print('|'.join(targets.TARGETS))"],
        env={**os.environ, "PYTHONPATH": f"{root}:{HERE}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert tuple(done.stdout.strip().split("|")) == TARGETS


_NUMBERS = st.integers(0, 2**64 - 1) | st.sampled_from((0, 1, 2, 2**31 - 1, 2**63))
_FIELDS = st.sampled_from((1, 2, 3, 4, 5, 6, 7, 8, 9, 50, 100))
_SCALARS = st.tuples(_FIELDS, _NUMBERS).map(lambda pair: wire.encoded(pair[0] << 3) + wire.encoded(pair[1]))
_BYTES = st.binary(max_size=24)
_MESSAGES = st.recursive(
    _BYTES | _SCALARS,
    lambda inner: st.lists(st.tuples(_FIELDS, inner | _BYTES | _SCALARS), max_size=5).map(
        lambda pairs: b"".join(wire.span_head(number, len(body)) + body for number, body in pairs)
    ),
    max_leaves=12,
)
"""Bytes that are made like messages, of the fields that models, states and blobs have."""


@settings(max_examples=150, deadline=None, derandomize=not SECONDS)
@given(_MESSAGES)
def test_any_message_is_read_or_refused(data: bytes) -> None:
    for read in (weights.read_model, weights.read_state, solverstate.learned_net, transform.mean_blob):
        try:
            read(data, "given")
        except ConfigError as error:
            assert "\n" not in str(error)


_NAMES = st.sampled_from(sorted({name for fields in schema.MESSAGES.values() for name in fields}))
_WORDS = st.sampled_from(("1", "-3", "0.5", "true", "TRAIN", "MAX", '"x"', "'y' \"z\"", "[1, 2]", "[]", "1e40", "nan"))
_TEXTS = st.recursive(
    st.tuples(_NAMES, _WORDS).map(lambda pair: f"{pair[0]}: {pair[1]}"),
    lambda inner: st.tuples(_NAMES | st.just("layer"), st.lists(inner, max_size=5)).map(
        lambda pair: f"{pair[0]} {{ {' '.join(pair[1])} }}"
    ),
    max_leaves=15,
)
"""Texts that are well formed, of fields that exist, though seldom there."""


@settings(max_examples=150, deadline=None, derandomize=not SECONDS)
@given(st.lists(_TEXTS, max_size=4).map("\n".join), st.sampled_from((schema.NetParameter, schema.SolverParameter)))
def test_unknown_fields_can_always_be_left_out(source: str, cls: type) -> None:
    """What is left is what parsing with them ignored gives, or is refused for the same reason."""
    try:
        kept, lines = text.without_unknown(cls, source, "given")
    except ConfigError as error:
        with pytest.raises(ConfigError, match=r"given:\d+:\d+: ") as again:
            text.parse(cls, source, "given", ignore_unknown=True)
        assert str(again.value) == str(error)
        return
    assert text.parse(cls, kept, "kept") == text.parse(cls, source, "given", ignore_unknown=True) or "nan" in source
    assert bool(lines) == (kept != source)
