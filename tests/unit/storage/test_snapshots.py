"""Snapshots: complete or absent; ours and Caffe's own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.spec import codec
from caffe_on_grid.spec.report import Manifest
from caffe_on_grid.storage import paths, snapshots, solverstate

FIELDS = {
    "world": 2,
    "seed": 7,
    "run_id": "run",
    "test_passes": 3,
    "solver_type": "SGD",
}


def state_bytes(learned_net, iteration=5):
    """A solver state as protobuf writes it: iter, learned_net, one history blob, current_step."""
    return bytes([8, iteration]) + solverstate.naming(learned_net) + b"\x1a\x04\x2a\x02ab" + b"\x20\x01"


def publish(folder, tmp_path, iteration, model=b"model", prefix="net"):
    files = tmp_path / f"{prefix}_iter_{iteration}.caffemodel", tmp_path / f"{prefix}_iter_{iteration}.solverstate"
    files[0].write_bytes(model)
    files[1].write_bytes(state_bytes(files[0].name))
    uri = snapshots.publish(str(folder), prefix, files, {**FIELDS, "iteration": iteration, "batches": iteration})
    for file in files:
        file.unlink()
    return uri


def test_what_is_published_is_newest_found_and_fetched(tmp_path):
    folder = tmp_path / "snapshots"
    publish(folder, tmp_path, 900)
    uri = publish(folder, tmp_path, 1000)
    assert uri == str(folder / "net_iter_1000.json")
    found = snapshots.newest(f"file:{folder}")
    assert found is not None
    assert found[0] == f"file:{uri}"
    assert found[1] == codec.loads(Manifest, (folder / "net_iter_1000.json").read_text())
    assert found[1].sizes == {"net_iter_1000.caffemodel": 5, "net_iter_1000.solverstate": 36}
    state = str(folder / "net_iter_1000.solverstate")
    assert snapshots.find(state) == (found[1], str(folder / "net_iter_1000.caffemodel"))
    fetched = snapshots.fetch(state, tmp_path / "into")
    assert fetched.manifest == found[1]
    assert fetched.model.read_bytes() == b"model"
    assert solverstate.learned_net(fetched.state.read_bytes(), "x") == str(fetched.model)
    assert fetched.state.read_bytes().startswith((folder / "net_iter_1000.solverstate").read_bytes())


def cut(folder, name):
    (folder / name).write_bytes((folder / name).read_bytes()[:-1])


BREAKS = {
    "model missing": lambda folder: (folder / "net_iter_20.caffemodel").unlink(),
    "state missing": lambda folder: (folder / "net_iter_20.solverstate").unlink(),
    "model cut": lambda folder: cut(folder, "net_iter_20.caffemodel"),
    "state cut": lambda folder: cut(folder, "net_iter_20.solverstate"),
    "no manifest": lambda folder: (folder / "net_iter_20.json").unlink(),
    "another JSON": lambda folder: (folder / "net_iter_20.json").write_text('{"hello": 1}'),
    "not text": lambda folder: (folder / "net_iter_20.json").write_bytes(b"\xff\xfe"),
    "a leftover": lambda folder: (folder / "net_iter_20.json").rename(folder / paths.temporary("net_iter_20.json")),
    "path out": lambda folder: rewrite(folder, model="../snapshots/net_iter_20.caffemodel"),
}


def rewrite(folder, **changes):
    file = folder / "net_iter_20.json"
    document = json.loads(file.read_text())
    document["sizes"].update({name: document["sizes"][document["model"]] for name in changes.values()})
    file.write_text(json.dumps({**document, **changes}))


@pytest.mark.parametrize("damage", BREAKS)
def test_newest_passes_over_what_is_not_complete(tmp_path, damage):
    folder = tmp_path / "snapshots"
    publish(folder, tmp_path, 3)
    publish(folder, tmp_path, 20)
    BREAKS[damage](folder)
    found = snapshots.newest(str(folder))
    assert found is not None
    assert found[1].iteration == 3


def test_newest_of_nothing(tmp_path):
    assert snapshots.newest(str(tmp_path / "absent")) is None
    assert snapshots.newest(str(tmp_path)) is None


def test_an_old_manifest_never_speaks_for_new_files(tmp_path):
    """A retry that dies while it replaces a snapshot of the same iteration leaves no manifest."""
    folder = tmp_path / "snapshots"
    publish(folder, tmp_path, 20)
    (folder / "net_iter_20.solverstate").unlink()
    (folder / "net_iter_20.solverstate").mkdir()  # the second file cannot be replaced
    with pytest.raises(ConfigError, match="is a folder"):
        publish(folder, tmp_path, 20, model=b"other")
    assert (folder / "net_iter_20.caffemodel").read_bytes() == b"other"
    assert not (folder / "net_iter_20.json").exists()


def test_changed_content_is_refused(tmp_path):
    folder = tmp_path / "snapshots"
    publish(folder, tmp_path, 20)
    (folder / "net_iter_20.caffemodel").write_bytes(b"mOdel")
    with pytest.raises(ConfigError, match=r"net_iter_20.caffemodel: its content is not what"):
        snapshots.fetch(str(folder / "net_iter_20.solverstate"), tmp_path / "into")


def test_a_manifest_without_its_files_is_refused(tmp_path):
    publish(tmp_path / "s", tmp_path, 20)
    (tmp_path / "s" / "net_iter_20.caffemodel").unlink()
    with pytest.raises(ConfigError, match="files are missing or of another size"):
        snapshots.find(str(tmp_path / "s" / "net_iter_20.solverstate"))


def test_fetching_into_its_own_folder_is_a_bug(tmp_path):
    publish(tmp_path / "s", tmp_path, 20)
    with pytest.raises(ValueError, match="another folder"):
        snapshots.fetch(str(tmp_path / "s" / "net_iter_20.solverstate"), tmp_path / "s")


LEARNED = [
    ("net_iter_5.caffemodel", "net_iter_5.caffemodel"),
    ("/gone/examples/other.caffemodel", "other.caffemodel"),
    ("", "x_iter_5.caffemodel"),
]


@pytest.mark.parametrize(("named", "there"), LEARNED)
def test_a_state_without_manifest_names_its_model(tmp_path, named, there):
    state = tmp_path / "x_iter_5.solverstate"
    state.write_bytes(state_bytes(named) if named else bytes([8, 5]))
    (tmp_path / there).write_bytes(b"m")
    assert snapshots.find(str(state)) == (None, str(tmp_path / there))


def test_a_model_elsewhere_is_found_where_the_state_says(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "m.caffemodel").write_bytes(b"m")
    state = tmp_path / "x_iter_5.solverstate"
    state.write_bytes(state_bytes(str(tmp_path / "models" / "m.caffemodel")))
    assert snapshots.find(str(state)) == (None, str(tmp_path / "models" / "m.caffemodel"))


def test_missing_files_are_named(tmp_path):
    state = tmp_path / "x_iter_5.solverstate"
    with pytest.raises(ConfigError, match="no such solver state"):
        snapshots.find(str(state))
    state.write_bytes(state_bytes("/gone/m.caffemodel"))
    with pytest.raises(
        ConfigError, match=r"its model is missing \(looked for .*/m.caffemodel and /gone/m.caffemodel\)"
    ):
        snapshots.find(str(state))


@pytest.mark.parametrize("data", [b"\x12\x7fshort", b"\xff" * 20, b"\x07", b"\x12\x02\xff\xfe", b"\x00\x00", b"\x12"])
def test_what_is_no_solver_state_is_refused(data):
    with pytest.raises(ConfigError, match=r"x\.solverstate: not a solver state"):
        solverstate.learned_net(data, "x.solverstate")


@pytest.mark.parametrize("length", [0, 1, 127, 128, 300, 20000])
def test_of_two_names_the_last_wins(length):
    data = state_bytes("first") + solverstate.naming("y" * length)
    assert solverstate.learned_net(data, "x") == "y" * length


PUBLISH_FOREVER = """
import json, sys
from pathlib import Path
from caffe_on_grid.storage import snapshots
folder, model, state, fields = sys.argv[1:]
print("ready", flush=True)
while True:
    snapshots.publish(folder, "net", (Path(model), Path(state)), json.loads(fields))
"""


def test_kill_at_any_point_leaves_complete_or_nothing(tmp_path, root):
    model, state, folder = tmp_path / "net_iter_8.caffemodel", tmp_path / "net_iter_8.solverstate", tmp_path / "s"
    model.write_bytes(os.urandom(4 << 20))
    state.write_bytes(state_bytes(model.name) + solverstate.naming("z" * (2 << 20)))
    fields = json.dumps({**FIELDS, "iteration": 8, "batches": 8})
    seen = set()
    for round_ in range(40):
        process = subprocess.Popen(
            [sys.executable, "-c", PUBLISH_FOREVER, str(folder), str(model), str(state), fields],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(root)},
        )
        assert process.stdout.readline() == b"ready\n"
        try:
            process.wait(timeout=0.001 * 1.25**round_)  # up to 6 s: disks differ
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        complete = snapshots.newest(str(folder)) is not None
        seen.add(complete)
        if complete:
            assert (folder / "net_iter_8.caffemodel").read_bytes() == model.read_bytes()
            assert (folder / "net_iter_8.solverstate").read_bytes() == state.read_bytes()
        shutil.rmtree(folder, ignore_errors=True)
        if seen == {True, False} and round_ >= 8:
            break
    assert seen == {True, False}, "all kills fell on one side: the test shows nothing"


CAFFE = """
import sys, caffe
caffe.set_mode_cpu()
kind, prefix, state = sys.argv[1:]
net = '''
layer { name: "x" type: "DummyData" top: "x"
        dummy_data_param { shape { dim: 2 dim: 3 } data_filler { type: "gaussian" } } }
layer { name: "y" type: "DummyData" top: "y" dummy_data_param { shape { dim: 2 dim: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
        inner_product_param { num_output: 1 weight_filler { type: "xavier" } } }
layer { name: "l" type: "EuclideanLoss" bottom: "ip" bottom: "y" top: "l" }
'''
settings = 'base_lr: 0.1 lr_policy: "fixed" momentum: 0.9 max_iter: 9 solver_mode: CPU random_seed: 1'
with open("solver.prototxt", "w") as out:
    out.write('%s snapshot_prefix: "%s" snapshot_format: %s net_param { %s }' % (settings, prefix, kind, net))
solver = caffe.get_solver("solver.prototxt")
if state:
    solver.restore(state)
else:
    solver.step(3)
    solver.snapshot()
print(solver.iter, solver.net.params["ip"][0].data.tobytes().hex())
"""


@pytest.mark.runtime
@pytest.mark.parametrize("kind", ["BINARYPROTO", "HDF5"])
def test_caffes_own_snapshots_restore_elsewhere(tmp_path, in_runtime, kind):
    """Real Caffe writes, we fetch into another folder while the first is gone, real Caffe restores."""
    suffix = ".h5" if kind == "HDF5" else ""
    prefix = "net" if suffix else str(tmp_path / "made" / "net")  # an HDF5 state's name cannot be changed here
    for name in ("made", "moved", "scratch"):
        (tmp_path / name).mkdir()
    written = in_runtime(["-c", CAFFE, kind, prefix, ""], cwd=tmp_path / "made").stdout
    for file in (tmp_path / "made").iterdir():
        file.rename(tmp_path / "moved" / file.name)
    fetched = snapshots.fetch(str(tmp_path / "moved" / f"net_iter_3.solverstate{suffix}"), tmp_path / "scratch")
    assert fetched.manifest is None
    assert fetched.model == tmp_path / "scratch" / f"net_iter_3.caffemodel{suffix}"
    shutil.rmtree(tmp_path / "moved")
    restored = in_runtime(["-c", CAFFE, kind, prefix, fetched.state.name], cwd=tmp_path / "scratch").stdout
    assert restored == written
    assert written.startswith("3 ")
