"""What does the deep simulation report for a large plan on user-defined nodes?"""

from __future__ import annotations

import pytest

from planner.deep.answer import DeepRequest, simulate_deep
from simulator.deep.collectives.collective_forms import Algorithm
from simulator.deep.networks.network_file import NetworkFile
from simulator.errors import InputError
from tests.simulator.deep.plan_cases import LARGE, NODES

CASE = LARGE["405b"]


def request(algorithm: Algorithm, slow_links: dict[str, float] | None = None) -> DeepRequest:
    file = NetworkFile(name="own", network=NODES)
    return DeepRequest(plan=CASE.plan, network=file, algorithm=algorithm, slow_links=slow_links or {})


def test_more_than_1024_are_folded_and_the_answer_says_so() -> None:
    answer = simulate_deep(CASE.job, request(Algorithm.NCCL)).answer
    assert answer.is_folded
    assert answer.network == "own"
    assert "Its nodes are alike, and those that do the same were played once" in answer.differences[-1]
    # Cables of that job's own accelerators and fabric, without what a library loses of them.
    assert 0.8 * answer.fast_step_time_s < answer.step_time_s < answer.fast_step_time_s


@pytest.mark.parametrize(
    ("algorithm", "slow_links"), [(Algorithm.AUTO, {}), (Algorithm.NCCL, {"card:3": 0.5})], ids=str
)
def test_else_the_way_out_is_told(algorithm: Algorithm, slow_links: dict[str, float]) -> None:
    rule = "must be at most 1,024 on network 'own'.*nodes on rails.*nothing slow, and collectives are nccl"
    with pytest.raises(InputError, match=rule):
        simulate_deep(CASE.job, request(algorithm, slow_links))
