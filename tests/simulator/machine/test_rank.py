"""Is what depends on a rank alone found once, and by every rank for itself?"""

from __future__ import annotations

from dataclasses import replace

from simulator.machine.rank import Rank, once_per_rank
from simulator.table import Floats
from tests.simulator.builders import job_of, plan_of, table_of, training


def test_what_depends_on_a_rank_alone_is_found_once_for_each() -> None:
    asked: list[Rank] = []

    @once_per_rank
    def doubled(rank: Rank) -> Floats:
        asked.append(rank)
        return 2.0 * rank.tokens

    rank = Rank.of(job_of(training()), table_of(plan_of(data=8)))
    other = replace(rank, plans=table_of(plan_of(tensor=2, context=2, data=2)))
    assert doubled(rank) is doubled(rank)
    assert doubled(other)[0] == doubled(rank)[0] / 2.0
    assert len(asked) == 2
