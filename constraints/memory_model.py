"""Why does no layout fit the memory, and with how many accelerators would one fit? The most loaded stage, in CP-SAT.

What the most loaded stage needs depends on all degrees of parallelism at once: weights on t, p and e, optimizer states
also on D and c, activations on b and the micro-batches in flight. So the model uses an exact table. For every offer and
number of accelerators, also beyond the range on offer, it has the layout that needs least. CP-SAT knows only integers, so
a need is represented by its rank among all needs, which preserves their order to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from constraints.feasibility import exact_solver
from constraints.lattice import layouts_in, no_layouts, rough_blocks
from constraints.limits import usable_memory_bytes
from simulator.domain.job import Job
from simulator.domain.offer import GpuRange
from simulator.domain.plan import PlanTable
from simulator.simulate import layout_memory
from simulator.table import Floats, Integers, Table

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

MEMORY_RULES = ("gpu_range", "memory")
"""Rules that can contradict each other here, in the order in which reports name them; layouts keep the other rules."""
MOST_GPUS = 1_000_000
"""Most accelerators that an offer can name."""
WIDER = 4
"""Factor by which the range of accelerators is widened when nothing fits."""


@dataclass(frozen=True, kw_only=True)
class NeedTable(Table):
    """The memory that layouts need on an accelerator of their most loaded stage, `(n,)`."""

    memory_bytes: Floats
    memory_fraction: Floats
    """Memory needed, as a share of the accelerator's memory."""


@dataclass(frozen=True, kw_only=True)
class LeastMemory:
    """The layouts that need least memory, one for every offer and number of accelerators that has any layout."""

    layouts: PlanTable
    needs: NeedTable

    def take(self, rows: Integers) -> LeastMemory:
        """Returns the chosen rows."""
        return LeastMemory(layouts=self.layouts.take(rows), needs=self.needs.take(rows))

    def __len__(self) -> int:
        return len(self.layouts)


@dataclass(frozen=True, kw_only=True)
class MemoryFinding:
    """Whether a model fits, with proof; layouts are tables of one row."""

    conflict: tuple[str, ...]
    """A minimal set of `MEMORY_RULES` that no layout keeps; empty where some layout on offer fits."""
    least: LeastMemory | None
    """The layout on offer that needs the smallest share of its accelerator's memory; `None` where there is no layout."""
    nearest: LeastMemory | None
    """A layout that fits, with the number of accelerators nearest to what is on offer; `None` where no number helps."""


def least_memory(job: Job, most_gpus: int = MOST_GPUS) -> LeastMemory:
    """Returns the layouts that need least memory, for every number of accelerators up to `most_gpus`."""
    wide = _with_any_number(job, most_gpus)
    found = _needs_of(wide, no_layouts(wide))
    for block in rough_blocks(wide):
        some = _needs_of(wide, layouts_in(wide, block))
        found = _least_of_each_number(
            LeastMemory(
                layouts=PlanTable.concatenate([found.layouts, some.layouts]),
                needs=NeedTable.concatenate([found.needs, some.needs]),
            )
        )
    return found


def explain_memory(job: Job) -> MemoryFinding:
    """Returns whether any layout fits the accelerators on offer, which rules rule it out, and what comes nearest."""
    table, nearest = _nearest_that_fits(job)
    tried = (*((name,) for name in MEMORY_RULES), MEMORY_RULES)  # smaller sets first: the conflict is minimal
    return MemoryFinding(
        conflict=next((rules for rules in tried if _Model.of(job, table).best(rules) is None), ()),
        least=_Model.of(job, table).least_on_offer(),
        nearest=nearest,
    )


def _nearest_that_fits(job: Job) -> tuple[LeastMemory, LeastMemory | None]:
    """The table in which a layout that fits was found, and the layout that is nearest to the ranges on offer.

    Tables grow until nothing beyond them can be nearer. Few accelerators have few layouts, so the first table mostly suffices.
    """
    largest = most_gpus = max(offer.num_gpus.max for offer in job.offers)
    while True:
        most_gpus = min(WIDER * most_gpus, MOST_GPUS)
        table = least_memory(job, most_gpus)
        nearest = _Model.of(job, table).nearest_that_fits()
        is_near = nearest is not None and _distance(job, nearest) <= most_gpus - largest
        if is_near or most_gpus == MOST_GPUS:
            return table, nearest


def _distance(job: Job, one: LeastMemory) -> int:
    """Accelerators between a layout and the range of its offer."""
    num_gpus, offered = int(one.layouts.num_gpus[0]), job.offers[int(one.layouts.offer[0])].num_gpus
    return max(0, offered.min - num_gpus, num_gpus - offered.max)


def _with_any_number(job: Job, most_gpus: int) -> Job:
    """The job with any number of accelerators up to `most_gpus` and one power cap, since caps do not affect memory."""
    every = GpuRange(min=1, max=most_gpus)
    offers = tuple(offer.model_copy(update={"num_gpus": every}) for offer in job.offers)
    search = job.search.model_copy(update={"power_caps": (1.0,)})
    return job.model_copy(update={"offers": offers, "search": search})


def _needs_of(job: Job, layouts: PlanTable) -> LeastMemory:
    memory_bytes = layout_memory(job, layouts).peak_bytes
    has_bytes = usable_memory_bytes(job)[layouts.offer]
    needs = NeedTable(memory_bytes=memory_bytes, memory_fraction=memory_bytes / has_bytes)
    return LeastMemory(layouts=layouts, needs=needs)


def _least_of_each_number(found: LeastMemory) -> LeastMemory:
    """For each offer and number of accelerators, the first of the layouts that need least."""
    found = found.take(np.argsort(found.needs.memory_bytes, kind="stable"))
    numbers = np.column_stack([found.layouts.offer, found.layouts.num_gpus])
    return found.take(np.unique(numbers, axis=0, return_index=True)[1])


@dataclass(frozen=True, kw_only=True)
class _Model:
    """One row of the table, and a literal for every rule; can be solved once."""

    job: Job
    table: LeastMemory
    model: cp_model.CpModel
    row: cp_model.IntVar
    num_gpus: cp_model.IntVar
    place: cp_model.IntVar
    """Rank of the row's need among all needs."""
    is_taken: list[cp_model.IntVar]
    """Whether the row belongs to each offer."""
    keeps: dict[str, cp_model.IntVar]

    @classmethod
    def of(cls, job: Job, table: LeastMemory) -> _Model:
        """Returns the model of a job; its table may be empty."""
        from ortools.sat.python import cp_model

        model = cp_model.CpModel()
        built = cls(
            job=job,
            table=table,
            model=model,
            row=model.new_int_var(0, len(table), "row"),
            num_gpus=model.new_int_var(0, MOST_GPUS, "N"),
            place=model.new_int_var(0, len(table), "memory"),
            is_taken=[model.new_bool_var(f"offer {index}") for index in range(len(job.offers))],
            keeps={name: model.new_bool_var(f"keeps {name}") for name in MEMORY_RULES},
        )
        built._add_table()
        built._add_ranges()
        return built

    def best(self, rules: tuple[str, ...]) -> LeastMemory | None:
        """A row that keeps these rules, the best one if the model has an objective; `None` where no row does."""
        from ortools.sat.python import cp_model

        self.model.add_bool_and([self.keeps[name] for name in rules])
        solver = exact_solver()
        if solver.solve(self.model) != cp_model.OPTIMAL:
            return None
        return self.table.take(np.array([solver.value(self.row)]))

    def least_on_offer(self) -> LeastMemory | None:
        """The row within the ranges on offer that needs the smallest share of its accelerator's memory."""
        self.model.minimize(self.place)
        return self.best(("gpu_range",))

    def nearest_that_fits(self) -> LeastMemory | None:
        """A row that fits, with the number of accelerators nearest to the range of its offer."""
        away = self.model.new_int_var(0, MOST_GPUS, "away")
        for offer, is_taken in zip(self.job.offers, self.is_taken, strict=True):
            self.model.add(away >= offer.num_gpus.min - self.num_gpus).only_enforce_if(is_taken)
            self.model.add(away >= self.num_gpus - offer.num_gpus.max).only_enforce_if(is_taken)
        self.model.minimize(away)
        return self.best(("memory",))

    def _add_table(self) -> None:
        """Each row has a number, an offer, accelerators and a need; needs that fit rank first."""
        fractions, layouts = self.table.needs.memory_fraction, self.table.layouts
        needs, places = np.unique(fractions, return_inverse=True)
        offer = self.model.new_int_var(0, len(self.job.offers) - 1, "offer")
        rows = np.column_stack([np.arange(len(self.table)), layouts.offer, layouts.num_gpus, places])
        self.model.add_allowed_assignments([self.row, offer, self.num_gpus, self.place], rows.tolist())
        self.model.add_map_domain(offer, self.is_taken)
        num_fitting = int(np.searchsorted(needs, 1.0, side="right"))
        self.model.add(self.place < num_fitting).only_enforce_if(self.keeps["memory"])

    def _add_ranges(self) -> None:
        """Accelerators within the range of the offer that is taken."""
        for offer, is_taken in zip(self.job.offers, self.is_taken, strict=True):
            self.model.add_linear_constraint(
                self.num_gpus, offer.num_gpus.min, offer.num_gpus.max
            ).only_enforce_if(is_taken, self.keeps["gpu_range"])
