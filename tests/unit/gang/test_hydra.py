from __future__ import annotations

from pathlib import Path

import pytest

from caffe_on_grid.errors import EnvironmentFault
from caffe_on_grid.gang import hydra

OUTPUT = """HYDRA_LAUNCH: /far/away/bin/hydra_pmi_proxy --control-port 10.0.0.1:4711 --launcher manual --proxy-id 1 
HYDRA_LAUNCH: /far/away/bin/hydra_pmi_proxy --control-port 10.0.0.1:4711 --launcher manual --proxy-id 0 
HYDRA_LAUNCH_END
"""  # noqa: W291 - as Hydra prints it


def test_the_command_names_counts_and_nothing_of_this_machine_s_environment():
    command = hydra.command(Path("/r"), "10.0.0.1", (2, 1), ("-m", "worker"))
    assert command[0] == "/r/bin/mpiexec"
    assert command[command.index("-hosts") + 1] == "exec-0:2,exec-1:1"
    assert command[command.index("-n") + 1] == "3"
    assert command[command.index("-localhost") + 1] == "10.0.0.1"
    assert "-genvnone" in command
    assert command[command.index("-wdir") + 1] == "/"
    assert command[-2:] == ["-m", "worker"]


def test_launch_lines_in_the_order_of_nodes():
    lines = hydra.launch_lines(OUTPUT)
    assert lines is not None
    assert [line.split()[-1] for line in lines] == ["0", "1"]


def test_half_an_output_is_not_yet_one():
    assert hydra.launch_lines(OUTPUT[: OUTPUT.index("HYDRA_LAUNCH_END") + 8]) is None


def test_the_proxy_is_this_node_s_own():
    lines = hydra.launch_lines(OUTPUT)
    assert lines is not None
    command = hydra.proxy_command(lines[1], Path("/here/runtime"))
    assert command[0] == "/here/runtime/bin/hydra_pmi_proxy"
    assert command[1:3] == ["--control-port", "10.0.0.1:4711"]
    assert command[-2:] == ["--proxy-id", "1"]


@pytest.mark.parametrize("line", ["", "/bin/sh -c 'rm -rf /' --proxy-id 0"])
def test_only_a_proxy_is_run(line):
    with pytest.raises(EnvironmentFault, match="unknown launch line"):
        hydra.proxy_command(line, Path("/r"))


def test_a_line_without_a_node_is_refused():
    with pytest.raises(EnvironmentFault, match="unknown launch line"):
        hydra.launch_lines("HYDRA_LAUNCH: /x/hydra_pmi_proxy\nHYDRA_LAUNCH_END\n")


@pytest.mark.runtime
def test_version_of_the_runtime_s_mpich(runtime, tmp_path):
    version = hydra.version(runtime)
    assert version is not None
    assert version.startswith("4.")
    assert hydra.version(tmp_path) is None
