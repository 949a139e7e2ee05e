"""Exchanges between real MPI ranks."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.runtime]


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_every_case_holds_in_every_rank(ranks, world):
    done = ranks(world, "exchange.py", str(world), UCX_TLS="tcp,self")
    assert done.returncode == 0, done.stdout
    assert "30 cases held" in done.stdout


@pytest.mark.parametrize("how", ["abort", "raise", "exit", "kill", "segfault"])
def test_a_rank_that_leaves_ends_the_others(ranks, how):
    done = ranks(3, "leave.py", how)
    assert done.returncode != 0
    assert "unreachable" not in done.stdout
    assert ("a bug in rank 1" in done.stdout) == (how == "raise")
    assert how != "abort" or done.returncode == 7
