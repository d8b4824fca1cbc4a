"""What should be bought, reserved and rented for a year of jobs, and when does each run on what? The one call that answers.

    plan_purchase(load_fleet("fleet.yaml"))

Designs of each job are the fastest for each number of nodes (`planner.purchase.ways`), CP-SAT chooses among them together with
lots, terms and dates (`constraints.purchase_model`), and every figure of the answer is counted again from the choice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path

from constraints.purchase_model import Solution, Status, cheapest, least_capital_usd, least_power_w
from constraints.purchase_problem import (
    Choice,
    Lot,
    PoolKind,
    PurchaseProblem,
    capital_usd,
    site_power_w,
    staff_usd,
)
from constraints.relaxation import rounded_up
from planner import __version__
from planner.input.arguments import check_kind, check_seed, path_given
from planner.notes.cooling_note import cooling_notes
from planner.purchase.fleet import Fleet, FleetLimits
from planner.purchase.notes import life_notes, notes_of, power_notes, scope_notes, slack_notes
from planner.purchase.plan import Acquisition, BindingRule, PurchasePlan, ScheduledRun
from planner.purchase.prices import NodePrices, node_prices, prices_by_size
from planner.purchase.problem import PooledProblem, pooled_problem
from planner.purchase.rules import Rule, rules_of
from planner.purchase.ways import Candidate, candidates_of, jobs_of
from simulator.catalog import catalog_hash
from simulator.domain.hardware import Site
from simulator.domain.job import Job
from simulator.units import DAY, HOUR

EFFORT = 20.0
"""Deterministic seconds of CP-SAT for the plan."""
SIDE_EFFORT = 5.0
"""Deterministic seconds of CP-SAT for each plan that the answer is compared with."""


def plan_purchase(
    fleet: Fleet, *, seed: int = 0, folder: Path | None = None, effort: float = EFFORT
) -> PurchasePlan:
    """Returns the cheapest plan for the jobs of a fleet.

    Args:
        fleet: jobs and offers; `load_fleet` reads them from a file.
        seed: of the searches for designs; the same fleet, version, seed and effort give the same plan.
        folder: where the paths of the fleet start; left out: the folder of its file, else the current one.
        effort: deterministic seconds of the solver for the plan.

    Raises:
        InputError: a job or an argument breaks rules.
    """
    check_kind(fleet, "fleet", Fleet, "must be a Fleet, such as load_fleet returns")
    check_seed(seed)
    below = fleet.folder if folder is None else path_given(folder, "folder", "a folder")
    question = _Question(fleet=fleet, seed=seed, folder=below)
    problem = question.pooled.problem
    solution = cheapest(problem, effort=effort)
    conflict = _conflict(question, effort) if solution.status == "infeasible" else _Conflict()
    only = {
        f"all_{name}_usd": cheapest(_only(problem, kind), effort=SIDE_EFFORT)
        for name, kind in (("rent", "rented"), ("buy", "bought"))
    }
    return _plan(question, solution, only, conflict)


def _plan(
    question: _Question, solution: Solution, only: Mapping[str, Solution], conflict: _Conflict
) -> PurchasePlan:
    """The answer; `only` holds the cheapest plans that rent or buy alone."""
    fleet, problem = question.fleet, question.pooled.problem
    choice, cost = solution.choice, solution.cost_usd
    runs = _runs(question, choice) if choice else ()
    acquisitions = _acquisitions(question, choice) if choice else ()
    return PurchasePlan(
        capplan_version=__version__,
        catalog_hash=catalog_hash(),
        fleet=fleet.name,
        seed=question.seed,
        status=solution.status,
        cost_usd=cost,
        bound_usd=solution.bound_usd,
        gap_fraction=None if cost is None else (cost - solution.bound_usd) / max(1, cost),
        capital_usd=capital_usd(problem, choice) if choice else 0.0,
        left_usd=sum(one.left_usd for one in acquisitions),
        staff_usd=staff_usd(problem, choice) if choice else 0.0,
        peak_power_w=site_power_w(problem, choice) if choice else 0.0,
        carbon_kgco2e=sum([*(one.carbon_kgco2e for one in acquisitions), *(run.carbon_kgco2e for run in runs)]),
        acquisitions=acquisitions,
        runs=runs,
        all_rent_usd=only["all_rent_usd"].cost_usd,
        all_buy_usd=only["all_buy_usd"].cost_usd,
        binding=_binding(question, solution) if choice else (),
        conflict=conflict.rules,
        enough=conflict.enough,
        undecided=(*(name for name, one in only.items() if one.status == "unknown"), *conflict.undecided),
        num_designs={
            job.name: len({id(one) for one in question.pooled.candidates if one.job == index})
            for index, job in enumerate(fleet.jobs)
        },
        notes=(
            *notes_of(fleet, question.folder, question.jobs),
            *life_notes(fleet, question.jobs[0][0].ownership),
            *scope_notes(question.jobs[0]),
            *power_notes(fleet.limits, (pool.idle_w_per_node for pool in problem.pools if pool.kind == "bought")),
            *slack_notes(runs),
            *cooling_notes([question.site]),
        ),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Question:
    """A fleet with its designs and prices, each searched once."""

    fleet: Fleet
    seed: int
    folder: Path

    @cached_property
    def jobs(self) -> tuple[tuple[Job, ...], ...]:
        """For each offer the jobs with this offer alone."""
        return jobs_of(self.fleet, self.folder)

    @property
    def site(self) -> Site:
        """Where all of it stands."""
        job = self.jobs[0][0]
        return job.site_of(job.offers[0])

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """Designs of all jobs on all offers; offers that differ in price alone are searched once."""
        found: list[tuple[Candidate, ...]] = []
        offers = self.fleet.offers
        for number, (offer, jobs) in enumerate(zip(offers, self.jobs, strict=True)):
            first = next(index for index, other in enumerate(offers) if offer.runs_like(other))
            if first < number:
                found.append(tuple(replace(one, offer=number) for one in found[first]))
            else:
                places = ((job, (index, number)) for index, job in enumerate(jobs))
                found.append(
                    tuple(one for job, place in places for one in candidates_of(job, place, self.seed))
                )
        return tuple(chain.from_iterable(found))

    @cached_property
    def pooled(self) -> PooledProblem:
        """The problem of the model."""
        return self.pooled_under(self.fleet.limits)

    def pooled_under(self, limits: FleetLimits) -> PooledProblem:
        """The problem under other limits."""
        prices = [
            prices_by_size(jobs[0], offer) for offer, jobs in zip(self.fleet.offers, self.jobs, strict=True)
        ]
        return pooled_problem(self.fleet.model_copy(update={"limits": limits}), prices, self.candidates)

    def prices_among(self, pool: int, num_nodes: int) -> NodePrices:
        """What a node of a pool costs and emits that is one of so many."""
        offer = self.pooled.offers[pool]
        return node_prices(self.jobs[offer][0], self.fleet.offers[offer], num_nodes)

    @cached_property
    def rules(self) -> list[Rule]:
        """Every constraint that can be left out."""
        return rules_of(self.fleet, self.pooled)


def _only(problem: PurchaseProblem, kind: str) -> PurchaseProblem:
    """The problem with one kind of pools, whatever money there is."""
    ways = tuple(way for way in problem.ways if problem.pools[way.pool].kind == kind)
    return replace(problem, ways=ways, budget_usd=None, capital_usd=None)


def _binding(question: _Question, solution: Solution) -> tuple[BindingRule, ...]:
    """Constraints without which a plan was found that costs less than the bound on plans with them."""
    found = []
    for rule in question.rules:
        freed = rule.leave_out(question.pooled.problem)
        cheaper = replace(freed, budget_usd=solution.bound_usd - 1)  # nothing else would be news
        other = cheapest(cheaper, effort=SIDE_EFFORT)
        if other.cost_usd is not None:
            found.append(
                BindingRule(
                    constraint=rule.constraint,
                    subject=rule.subject,
                    saving_usd=solution.bound_usd - other.cost_usd,
                )
            )
    return tuple(sorted(found, key=lambda one: -one.saving_usd))


@dataclass(frozen=True, kw_only=True)
class _Conflict:
    """Rules that cannot be kept together."""

    rules: tuple[str, ...] = ()
    """All of them."""
    undecided: tuple[str, ...] = ()
    """Those for which neither a plan without them was found nor a proof that there is none."""
    enough: dict[str, float] = field(default_factory=dict)
    """Least value of each limit on money and power among them that is enough by itself, by its name among `FleetLimits`."""


def _conflict(question: _Question, effort: float) -> _Conflict:
    """Rules of which no plan keeps all, by leaving out one after another what is proven not to be needed for that."""
    has_design = {one.job for one in question.candidates}
    jobs = question.fleet.jobs
    if missing := [job.name for index, job in enumerate(jobs) if index not in has_design]:
        return _Conflict(rules=tuple(f"no design: {name}" for name in missing))
    left_out = question.pooled.problem
    kept: dict[str, Status] = {}
    for rule in question.rules:
        without = rule.leave_out(left_out)
        status = cheapest(without, effort=effort).status
        if status == "infeasible":
            left_out = without
        else:
            kept[str(rule)] = status
    undecided = tuple(rule for rule, status in kept.items() if status == "unknown")
    return _Conflict(
        rules=tuple(kept) or _too_short(question),
        undecided=undecided,
        enough=_enough(question, kept, effort),
    )


def _enough(question: _Question, conflict: Collection[str], effort: float) -> dict[str, float]:
    """The least value of each limit on money and power in a conflict with which there is a plan, all else unchanged."""
    problem, least = question.pooled.problem, dict[str, int | None]()
    if "fleet_budget_usd" in conflict:
        least["budget_usd"] = cheapest(replace(problem, budget_usd=None), effort=effort).cost_usd
    if "capital_usd" in conflict:
        least["capital_usd"] = least_capital_usd(problem, effort=effort)
    if "site_power_w" in conflict:
        least["power_w"] = least_power_w(problem, effort=effort)
    found = {name: rounded_up(value) for name, value in least.items() if value is not None}
    return {name: value for name, value in found.items() if _has_plan(question, {name: value}, effort)}


def _has_plan(question: _Question, changes: Mapping[str, float], effort: float) -> bool:
    """Whether there is a plan under changed limits, among the designs that are considered under these."""
    limits = question.fleet.limits.model_copy(update=changes)
    return cheapest(question.pooled_under(limits).problem, effort=effort).choice is not None


def _too_short(question: _Question) -> tuple[str, ...]:
    """The first job that is longer than its window whatever its design, where that window ends with the horizon."""
    problem = question.pooled.problem
    for index, (job, window) in enumerate(zip(question.fleet.jobs, problem.windows, strict=True)):
        least_h = min((way.duration_h for way in problem.ways if way.job == index), default=0)
        if least_h > window.end_h - window.start_h:
            return (f"job_window: {job.name}",)
    return ()


def _acquisitions(question: _Question, choice: Choice) -> tuple[Acquisition, ...]:
    """Lots and terms that have nodes, by day."""
    pooled, found = question.pooled, []
    for index, (pool, nodes_of_lots) in enumerate(zip(pooled.problem.pools, choice.lot_nodes, strict=True)):
        used = _used_fraction(pooled.problem, choice, index)
        for lot, nodes in zip(pool.lots, nodes_of_lots, strict=True):
            if nodes and pool.kind != "rented":
                # Whoever reserves for several terms need not have the nodes of all of them at once.
                is_bought, held_h = pool.kind == "bought", lot.end_h - lot.start_h
                price = question.prices_among(index, sum(nodes_of_lots) if is_bought else nodes)
                parts = _cost_parts(lot, price, is_bought=is_bought)
                found.append(
                    Acquisition(
                        kind=pool.kind,
                        offer=pooled.offers[index],
                        accelerator=question.fleet.offers[pooled.offers[index]].accelerator,
                        num_nodes=nodes,
                        num_gpus=nodes * price.gpus,
                        from_day=_days(lot.start_h),
                        to_day=_days(lot.end_h),
                        cost_usd=lot.usd_per_node * nodes,
                        cost_parts_usd={name: usd * nodes for name, usd in parts.items()},
                        capital_usd=lot.capital_usd_per_node * nodes,
                        left_usd=price.left_usd(held_h) * nodes if is_bought else 0.0,
                        carbon_kgco2e=price.held_kgco2e(held_h) * nodes,
                        used_fraction=used,
                    )
                )
    return tuple(sorted(found, key=lambda one: (one.from_day, one.accelerator, one.kind)))


def _cost_parts(lot: Lot, price: NodePrices, *, is_bought: bool) -> dict[str, float]:
    """What a node of a lot costs, by part; the largest part takes what rounding to whole dollars leaves."""
    if not is_bought:
        return {"rent_usd": lot.usd_per_node}
    held_h = lot.end_h - lot.start_h
    parts = price.owned_parts_usd(held_h) | {"electricity_usd": price.idle_usd(held_h)}
    largest = max(parts, key=lambda name: parts[name])
    return parts | {largest: parts[largest] + lot.usd_per_node - sum(parts.values())}


def _used_fraction(problem: PurchaseProblem, choice: Choice, pool: int) -> float:
    """Share of the node-hours of a pool within the horizon in which jobs run."""
    lots = zip(problem.pools[pool].lots, choice.lot_nodes[pool], strict=True)
    there = sum(nodes * (min(lot.end_h, problem.horizon_h) - lot.start_h) for lot, nodes in lots)
    ways = [problem.ways[way] for way in choice.ways]
    used = sum(way.num_nodes * way.duration_h for way in ways if way.pool == pool)
    return used / there if there else 0.0


def _runs(question: _Question, choice: Choice) -> tuple[ScheduledRun, ...]:
    pooled = question.pooled
    return tuple(
        _run(question, job, pooled.candidates[way], pooled.problem.ways[way].usd, way, start)
        for job, (way, start) in enumerate(zip(choice.ways, choice.starts_h, strict=True))
    )


def _run(
    question: _Question, job: int, candidate: Candidate, usd: int, way: int, start_h: int
) -> ScheduledRun:
    problem, asked = question.pooled.problem, question.fleet.jobs[job]
    kind = problem.pools[problem.ways[way].pool].kind
    return ScheduledRun(
        job=asked.name,
        kind=kind,
        offer=candidate.offer,
        accelerator=question.fleet.offers[candidate.offer].accelerator,
        num_nodes=candidate.num_nodes,
        num_gpus=candidate.num_nodes * question.pooled.prices[problem.ways[way].pool].gpus,
        start_day=_days(start_h),
        end_day=_days(start_h + candidate.duration_h),
        deadline_day=asked.deadline_day,
        cost_usd=usd,
        energy_kwh=candidate.energy_kwh,
        carbon_kgco2e=_carbon_kgco2e(candidate, kind),
        plan=candidate.plan,
    )


def _carbon_kgco2e(candidate: Candidate, kind: PoolKind) -> float:
    """Greenhouse gases of a run; on nodes that the plan holds anyway, those that it adds to theirs."""
    if kind == "rented":
        return candidate.carbon_kgco2e
    return candidate.used_up_kgco2e + candidate.above_idle_fraction * candidate.operational_kgco2e


def _days(whole_hours: int) -> float:
    return whole_hours * HOUR / DAY
