"""Does the simulation of a large study agree with what can be worked out by hand?"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from benchmarks.many_workers import Costs, Study, Way, line_of, play

FREE = Costs(
    worker_s_per_design=1e-3,
    pruning_s_per_layout=0.0,
    listing_s_per_design=0.0,
    packing_s_per_design=0.0,
    bytes_per_design=10.0,
    leader_s_per_chunk=0.0,
    result_s_per_chunk=0.0,
    bytes_per_result=0.0,
    latency_s=0.0,
)
"""A leader that costs nothing."""
NEVER = 1e30


study = partial(
    Study,
    num_designs=1e5,
    designs_per_chunk=1_000,
    num_workers=4,
    spread=0.0,
    worker_mtbf_s=NEVER,
    way="sent",
)
"""A hundred chunks of a second each on workers that never fail, every chunk equal."""


@pytest.mark.parametrize("num_workers", [1, 4, 50])
def test_workers_that_never_wait_share_the_work(num_workers: int) -> None:
    found = play(study(num_workers=num_workers), FREE)
    assert found.wall_s == pytest.approx(100.0 / num_workers)
    assert found.speedup == pytest.approx(num_workers)
    assert found.num_repeated == 0


def test_a_leader_that_takes_longer_than_all_workers_sets_the_pace() -> None:
    costs = replace(FREE, listing_s_per_design=1e-3)
    found = play(study(num_workers=50), costs)
    # The leader lists all designs, 100 s; then the last chunk takes its second.
    assert found.wall_s == pytest.approx(101.0)
    assert found.leader_load_fraction == pytest.approx(100.0 / 101.0)
    named = play(study(num_workers=50, way="named"), costs)
    assert named.wall_s == pytest.approx(2.0)  # two chunks for each worker
    assert named.leader_bytes_per_s == 0.0


def test_pruning_is_done_by_the_leader_before_anything_else_or_by_all_workers() -> None:
    costs = replace(FREE, pruning_s_per_layout=8e-3)  # eight designs a layout
    alone = play(study(num_workers=50, way="named"), costs)
    assert alone.wall_s == pytest.approx(100.0 + 2.0)
    assert alone.speedup == pytest.approx(200.0 / 102.0)
    # A hundred blocks of a second, two for each worker, and then as many chunks.
    shared = play(study(num_workers=50, way="shared", layouts_per_block=125), costs)
    assert shared.wall_s == pytest.approx(4.0)
    assert shared.num_chunks == 200


def test_what_goes_through_the_leader_is_every_design_that_is_sent() -> None:
    found = play(study(), FREE)
    assert found.leader_bytes_per_s * found.wall_s == pytest.approx(10.0 * 1e5)


def test_a_chunk_whose_worker_fails_goes_out_again() -> None:
    found = play(study(worker_mtbf_s=20.0, restart_s=5.0), FREE, seed=1)
    assert found.num_repeated > 0
    # Each failure costs the worker at most the lost chunk and the restart; the four share the rest.
    assert 25.0 < found.wall_s <= 25.0 + found.num_repeated * (1.0 + 5.0)


@pytest.mark.parametrize("way", ["sent", "named", "shared"])
@pytest.mark.parametrize("num_workers", [10, 1_000])
def test_the_written_plan_has_what_the_simulation_gives(way: Way, num_workers: int) -> None:
    page = (Path(__file__).parents[1] / "docs" / "many-machines.md").read_text(encoding="utf-8")
    case = Study(way=way, num_workers=num_workers)
    assert line_of(case, Costs()) in page.splitlines()
