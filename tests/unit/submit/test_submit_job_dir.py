from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import projects
import pytest

from caffe_on_grid.errors import ConfigError, UsageError
from caffe_on_grid.spec import codec
from caffe_on_grid.spec.job import Cluster, DataSpec, EngineSpec, JobSpec, Output, Start
from caffe_on_grid.submit import job_dir


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    return home


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "job"
    path.mkdir()
    return path


def job(tasks: tuple[str, ...] = ("train",), **parts: object) -> JobSpec:
    spec = JobSpec(tasks, "proto/solver.prototxt", output=Output(model="out/net.caffemodel"))
    return replace(spec, **parts)  # type: ignore[arg-type]


def test_what_is_written(here: Path, folder: Path) -> None:
    projects.make(here)
    built = job_dir.build(job(), folder)
    job_dir.write(built.job, folder)
    inside = folder / "job"
    assert sorted(path.name for path in inside.iterdir()) == [
        "job.json", "mean.binaryproto", "net.prototxt", "solver.prototxt",
    ]  # fmt: skip
    read = codec.loads(JobSpec, (inside / "job.json").read_text())
    assert read == built.job
    assert read.solver == "solver.prototxt"
    assert read.output.model == f"{here}/out/net.caffemodel"
    assert (inside / "solver.prototxt").read_text() == projects.SOLVER
    net = (inside / "net.prototxt").read_text()
    assert f'source: "{here}/proto/../data/train_lmdb"' in net  # found beside the prototxt
    assert f'source: "{here}/data/test_lmdb"' in net  # found in the working directory
    assert 'mean_file: "mean.binaryproto"' in net
    assert sorted(zipfile.ZipFile(folder / "job.zip").namelist()) == sorted(path.name for path in inside.iterdir())
    assert "caffe_on_grid.driver.main" in (folder / "caffe_on_grid_driver.py").read_text()


def test_files_of_one_name_are_kept_apart(here: Path, folder: Path) -> None:
    projects.make(here)
    other = here / "proto" / "other"
    other.mkdir()
    (other / "mean.binaryproto").write_bytes(b"other")
    net = projects.NET.replace('top: "label" include { phase: TEST }', 'top: "label" include { phase: TEST }'
                               ' transform_param { mean_file: "other/mean.binaryproto" }')  # fmt: skip
    (here / "proto" / "net.prototxt").write_text(net)
    job_dir.build(job(), folder)
    inside = folder / "job"
    assert (inside / "mean.binaryproto").read_bytes() == b"mean"
    assert (inside / "mean-2.binaryproto").read_bytes() == b"other"
    assert 'mean_file: "mean-2.binaryproto"' in (inside / "net.prototxt").read_text()


def test_train_and_test_nets_and_odd_names(here: Path, folder: Path) -> None:
    solver = projects.SOLVER.replace(
        'net: "net.prototxt"', 'train_net: "net.prototxt"\ntest_net: \'it is "the" test.prototxt\''
    )
    projects.make(here, solver)
    (here / "proto" / 'it is "the" test.prototxt').write_text(projects.NET)
    job_dir.build(job(), folder)
    assert (folder / "job" / 'it is "the" test.prototxt').exists()


def test_another_net(here: Path, folder: Path) -> None:
    projects.make(here, "# no net here\n" + projects.SOLVER.replace('net: "net.prototxt"', ""))
    net = projects.NET.replace("../data", "data").replace("mean.binaryproto", "proto/mean.binaryproto")
    (here / "mine.prototxt").write_text(net)
    job_dir.build(job(), folder, net="mine.prototxt")
    assert 'net: "mine.prototxt"' in (folder / "job" / "solver.prototxt").read_text()
    assert (folder / "job" / "mine.prototxt").exists()


def test_another_net_replaces_the_solvers(here: Path, folder: Path) -> None:
    projects.make(here)
    (here / "proto" / "net.prototxt").unlink()
    (here / "mine.prototxt").write_text(projects.NET.replace("../data", "data"))
    (here / "mean.binaryproto").write_bytes(b"mean")
    job_dir.build(job(), folder, net="mine.prototxt")
    assert (folder / "job" / "solver.prototxt").read_text() == projects.SOLVER.replace("net.prototxt", "mine.prototxt")


def test_python_layers_travel_with_their_module(here: Path, folder: Path) -> None:
    layer = 'layer { name: "py" type: "Python" bottom: "ip" top: "py" python_param { module: "mine" layer: "L" } }\n'
    projects.make(here, net=projects.NET + layer)
    (here / "proto" / "mine.py").write_text("x = 1\n")
    with pytest.raises(ConfigError, match="'py' runs Python code; allow it with --allow-python-layers"):
        job_dir.build(job(), folder)
    (folder / "second").mkdir()
    job_dir.build(job(engine=EngineSpec(allow_python_layers=True)), folder / "second")
    assert (folder / "second" / "job" / "mine.py").read_text() == "x = 1\n"


@pytest.mark.parametrize(
    ("line", "asked", "mode"),
    [
        ("", "auto", "auto"),
        ("solver_mode: GPU", "auto", "gpu"),
        ("solver_mode: CPU", "auto", "cpu"),
        ("solver_mode: GPU", "cpu", "cpu"),
        ("", "gpu", "gpu"),
    ],
)
def test_solver_mode(here: Path, folder: Path, line: str, asked: str, mode: str) -> None:
    projects.make(here, projects.SOLVER + line + "\n")
    assert job_dir.build(job(engine=EngineSpec(solver_mode=asked)), folder).job.engine.solver_mode == mode


def test_start(here: Path, folder: Path) -> None:
    projects.make(here)
    (here / "a.caffemodel").touch()
    (here / "b.solverstate").touch()
    built = job_dir.build(job(start=Start(("a.caffemodel",), "b.solverstate")), folder)
    assert built.job.start == Start((), f"{here}/b.solverstate")
    assert "-weights is not needed" in built.remarks[0]


def test_a_test_alone_reads_its_model(here: Path, folder: Path) -> None:
    projects.make(here)
    with pytest.raises(ConfigError, match=r"-model out/net.caffemodel: no such file"):
        job_dir.build(job(("test",)), folder)
    (here / "out").mkdir()
    (here / "out" / "net.caffemodel").touch()
    (folder / "second").mkdir()
    built = job_dir.build(job(("test",)), folder / "second")
    assert built.job.output.model == f"{here}/out/net.caffemodel"


@pytest.mark.parametrize(
    ("spoil", "spec", "error", "message"),
    [
        (lambda h: (h / "proto/net.prototxt").unlink(), job(), ConfigError,
         "proto/solver.prototxt:1: net.prototxt: no such file in HERE/proto or HERE"),
        (lambda h: (h / "proto/mean.binaryproto").unlink(), job(), ConfigError,
         "HERE/proto/net.prototxt:3: mean.binaryproto: no such file in HERE/proto or HERE"),
        (lambda h: (h / "data/train_lmdb").rmdir(), job(), ConfigError,
         "HERE/proto/net.prototxt:4: ../data/train_lmdb: no such file"),
        (lambda h: (h / "data/test_lmdb").rmdir(), job(), ConfigError,
         "HERE/proto/net.prototxt:6: data/test_lmdb: no such file"),
        (lambda h: (h / "proto/solver.prototxt").write_text("max_itr: 5"), job(), ConfigError,
         "proto/solver.prototxt:1:1: "),
        (lambda h: (h / "proto/solver.prototxt").write_text(projects.SOLVER + "solver_type: SGD type: 'Adam'"), job(),
         ConfigError, "proto/solver.prototxt: solver: both solver_type and type are given"),
        (lambda h: (h / "proto/solver.prototxt").write_text(projects.SOLVER + "solver_type: ADAGRAD momentum: 0.9"),
         job(), ConfigError, "it cannot be used with AdaGrad"),
        (lambda h: (h / "proto/net.prototxt").write_text(projects.NET + "layer { nme: 'x' }"), job(), ConfigError,
         "net.prototxt:10:9: "),
        (lambda h: (h / "out").mkdir() or (h / "out/net.caffemodel").touch(), job(), ConfigError,
         "-model out/net.caffemodel: exists; remove it, name another, or say --overwrite"),
        (lambda h: (h / "out/net.caffemodel").mkdir(parents=True), job(), ConfigError, "is a folder; name a file"),
        (lambda h: (h / "out").touch(), job(), ConfigError, "-model out/net.caffemodel: out: "),
        (lambda h: None, job(output=Output(model="/proc/net.caffemodel")), ConfigError,
         "-model /proc/net.caffemodel: /proc: no such file or folder"),
        (lambda h: None, job(output=Output()), UsageError, "-model is missing: the model to write"),
        (lambda h: None, job(start=Start(("no.caffemodel",))), ConfigError, "-weights no.caffemodel: no such file"),
        (lambda h: None, job(start=Start((), "no.solverstate")), ConfigError, "-snapshot no.solverstate: no such file"),
        (lambda h: None, job(data=DataSpec(input="no_lmdb")), ConfigError, "-input no_lmdb: no such file"),
        (lambda h: None, job(output=Output(model="gopher://x/m")), ConfigError, "gopher"),
        (lambda h: (h / "out").mkdir() or (h / "out/net.caffemodel").touch(), job(("test",), test_net=1), ConfigError,
         "there are 1 TEST nets, and -test wants number 1"),
    ],
)  # fmt: skip
def test_refused(here: Path, folder: Path, spoil: object, spec: JobSpec, error: type[Exception], message: str) -> None:
    projects.make(here)
    spoil(here)  # type: ignore[operator]
    with pytest.raises(error) as caught:
        job_dir.build(spec, folder)
    assert message.replace("HERE", str(here)) in str(caught.value)
    assert "\n" not in str(caught.value)


CROPPED = projects.NET.replace("transform_param { mean_file", "transform_param { crop_size: 8 mean_file")


def test_shapes_are_checked_before_anything_is_submitted(here: Path, folder: Path) -> None:
    wrong = """layer { name: "c" type: "Convolution" bottom: "data" top: "c" include { phase: TRAIN }
  convolution_param { num_output: 2 kernel_size: 9 } }"""
    projects.make(here, net=CROPPED + wrong)
    said = r"proto/solver.prototxt: TRAIN net: Caffe refuses layer 'c' \(Convolution\) of data 4x3x8x8: .* = 0"
    with pytest.raises(ConfigError, match=said):
        job_dir.build(job(), folder)


def test_shapes_that_only_grey_records_fit_are_not_refused(here: Path, folder: Path) -> None:
    reshape = (
        'layer { name: "r" type: "Reshape" bottom: "data" top: "r" reshape_param { shape { dim: 4 dim: 1 dim: 64 } } }'
    )
    projects.make(here, net=CROPPED + reshape)
    assert job_dir.build(job(), folder).remarks == ()


def test_warnings_are_said(here: Path, folder: Path) -> None:
    in_place = """layer { name: "s" type: "Sigmoid" bottom: "ip" top: "s" }
layer { name: "d2" type: "Dropout" bottom: "s" top: "s" }"""
    projects.make(here, projects.SOLVER + "snapshot: 50\n", CROPPED + in_place)
    first, second = job_dir.build(job(), folder).remarks
    assert first == "solver: snapshot 50 > max_iter 20: no snapshot before the end"
    assert second.startswith("layer 'd2': works in place on the top of 's'")


def test_overwrite(here: Path, folder: Path) -> None:
    projects.make(here)
    (here / "net.caffemodel").touch()
    job_dir.build(job(output=Output(model="net.caffemodel", overwrite=True)), folder)


def test_input_stands_in_for_the_train_source(here: Path, folder: Path) -> None:
    projects.make(here)
    (here / "data" / "train_lmdb").rename(here / "mine")
    built = job_dir.build(job(data=DataSpec(input="mine")), folder)
    assert built.job.data.input == f"{here}/mine"


def test_data_on_the_nodes_alone_is_remarked_on(here: Path, folder: Path) -> None:
    projects.make(here)
    (here / "data" / "train_lmdb").rmdir()
    built = job_dir.build(job(), folder, local=False)
    assert built.remarks == ("layer 'd': ../data/train_lmdb is not on this machine; every node must have it",)


def test_secrets_do_not_travel_in_the_job(here: Path, folder: Path) -> None:
    projects.make(here)
    secret = Cluster(conf={"spark.ssl.keyPassword": "s3cret", "a": "b"})
    job_dir.write(job_dir.build(job(cluster=secret), folder).job, folder)
    written = json.loads((folder / "job" / "job.json").read_text())
    assert written["cluster"]["conf"] == {"spark.ssl.keyPassword": "********", "a": "b"}
