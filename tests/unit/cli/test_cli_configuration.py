from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from projects import Run

from caffe_on_grid.cli import configuration


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def five(home: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """One file at each place, each with a queue of its own."""
    site = home.parent / "site"
    monkeypatch.setenv("CAFFE_ON_GRID_CONF", str(site))
    places = {
        "system": home.parent / "etc" / "caffe-on-grid.yaml",
        "named": site / "caffe-on-grid.yaml",
        "user": home / ".config" / "caffe-on-grid" / "caffe-on-grid.yaml",
        "project": home / "caffe-on-grid.yaml",
    }
    return {name: put(path, f"cluster: {{queue: {name}}}\n") for name, path in places.items()}


def queue_and_origin(run: Run, *words: str) -> str:
    code, out, err = run("config", "show", "--origin", *words)
    assert code == 0, err
    return next(line.strip() for line in out.splitlines() if "queue:" in line)


def test_each_place_wins_over_the_ones_before(five: dict[str, Path], run: Run) -> None:
    for name in ("project", "user", "named", "system"):
        shown = "caffe-on-grid.yaml" if name == "project" else str(five[name])
        assert queue_and_origin(run) == f'queue: "{name}"  # {shown}'
        five[name].write_text("")
    assert queue_and_origin(run) == "queue: null  # built in"


def test_variables_win_over_files_and_profiles(
    five: dict[str, Path], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    five["system"].write_text("profiles: {prod: {cluster: {queue: prod}}}")
    assert queue_and_origin(run, "--profile", "prod") == f'queue: "prod"  # {five["system"]}, profile prod'
    monkeypatch.setenv("CAFFE_ON_GRID_PROFILE", "prod")
    assert '"prod"' in queue_and_origin(run)
    monkeypatch.setenv("CAFFE_ON_GRID_CLUSTER_QUEUE", "mine")
    assert queue_and_origin(run) == 'queue: "mine"  # variable CAFFE_ON_GRID_CLUSTER_QUEUE'


def test_options_win_over_all(five: dict[str, Path], project: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAFFE_ON_GRID_CLUSTER_QUEUE", "variable")
    words = ("train", "-conf", "proto/solver.prototxt", "-model", "m", "--dry-run")
    assert "--queue variable" in run(*words)[1]
    assert "--queue option" in run(*words, "--queue", "option")[1]


def test_what_is_shown_is_a_configuration(five: dict[str, Path], run: Run) -> None:
    five["project"].write_text("spark_conf: {spark.a: 1}\nengine: {devices: 2}\n")
    text = run("config", "show")[1]
    shown = yaml.safe_load(text)
    assert shown["spark_conf"] == {"spark.a": "1"}
    assert shown["engine"]["devices"] == 2
    five["project"].write_text(text)
    assert run("config", "show")[1] == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cluster: {queu: x}", "caffe-on-grid.yaml: unknown key 'cluster.queu' (did you mean 'cluster.queue'?)"),
        ("cluster:\n  queue: [", "caffe-on-grid.yaml:2: not YAML: "),
        ("- a", "caffe-on-grid.yaml: expected keys with values"),
        ("engine: {devices: 0}", "caffe-on-grid.yaml: engine.devices: expected at least 1, got 0"),
        ("a: \x00", "caffe-on-grid.yaml: cannot be read: "),
    ],
)
def test_bad_files(home: Path, run: Run, text: str, message: str) -> None:
    put(home / "caffe-on-grid.yaml", text)
    code, out, err = run("config", "show")
    assert (code, out) == (3, "")
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1


def test_a_named_file_must_exist(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAFFE_ON_GRID_CONF", "/nowhere")
    code, _, err = run("config", "show")
    assert (code, err) == (
        3,
        "error: CAFFE_ON_GRID_CONF=/nowhere: no such file, nor a folder with caffe-on-grid.yaml in it\n",
    )


def test_an_unknown_profile(home: Path, run: Run) -> None:
    put(home / "caffe-on-grid.yaml", "profiles: {prod: {}, dev: {}}")
    code, _, err = run("config", "show", "--profile", "prd")
    assert (code, err) == (2, "error: no profile 'prd' in the configuration files; known: dev, prod\n")


def test_without_a_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(home / "caffe-on-grid.yaml", "")
    assert list(configuration.files({})) == [Path("caffe-on-grid.yaml")]
