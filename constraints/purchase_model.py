"""What to buy, reserve and rent, and which job to run when and where, at least total cost? A CP-SAT model.

    minimise  sum over lots of nodes x USD of a node + USD of the staff of the dearest lot with nodes
              + sum over jobs of USD of the chosen way
    such that one way for each job, inside its window
              at any hour: nodes in use <= nodes of the lots that are there, or nodes that can be rented
              at any hour: idle power of the nodes at the site + power of running jobs above it <= power_w
              lots with nodes <= max_lots; nodes of the lots that are there <= max_nodes; capital and budget
              pools that are one supply at rising sizes: one of them has nodes, and at least its least_nodes

Redundant cuts tighten the bound: within any window of time, the node-hours of jobs that must run there fit the lots; the
running jobs alone, with the idle power of their nodes, stay within power_w.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import TYPE_CHECKING, Literal

from constraints.feasibility import exact_solver
from constraints.purchase_problem import Choice, Lot, Pool, PurchaseProblem, broken_rules

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

Status = Literal["optimal", "feasible", "infeasible", "unknown"]
"""`optimal` and `infeasible` are proven; `feasible`: the best found so far; `unknown`: nothing was found in time."""


@dataclass(frozen=True, kw_only=True)
class Solution:
    """What the solver found."""

    status: Status
    choice: Choice | None
    """The cheapest choice; `None` if there is none or none was found."""
    cost_usd: int | None
    """Cost of that choice."""
    bound_usd: int
    """Lower bound on the cost of any choice."""


def cheapest(problem: PurchaseProblem, *, effort: float) -> Solution:
    """Returns the cheapest choice that keeps every rule, with jobs as early as its designs and nodes allow.

    Args:
        problem: the jobs and the capacity that is available.
        effort: deterministic seconds of the solver, about as long as real ones; the same effort gives the same answer.
    """
    from ortools.sat.python import cp_model

    built = _Model.of(problem)
    solver = exact_solver()
    solver.parameters.max_deterministic_time = effort
    status = solver.solve(built.model)
    if status == cp_model.INFEASIBLE:
        return Solution(status="infeasible", choice=None, cost_usd=None, bound_usd=0)
    bound = max(0, round(solver.best_objective_bound))
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Solution(status="unknown", choice=None, cost_usd=None, bound_usd=bound)
    cost, is_proven = round(solver.objective_value), status == cp_model.OPTIMAL
    choice = built.as_early_as_possible(built.choice(solver), effort)
    assert broken_rules(problem, choice) == (), "the model and the rules are the same"
    return Solution(
        status="optimal" if is_proven else "feasible",
        choice=choice,
        cost_usd=cost,
        bound_usd=bound,
    )


def least_capital_usd(problem: PurchaseProblem, *, effort: float) -> int | None:
    """Returns the least capital with which a choice keeps every other rule; `None` if no such choice was found.

    Args:
        problem: the jobs and the capacity that is available, with or without a limit on capital.
        effort: deterministic seconds of the solver, as for `cheapest`; if they end early, less capital may be enough.
    """
    built = _Model.of(replace(problem, capital_usd=None))
    return built.least(built.capital_usd(), effort)


def least_power_w(problem: PurchaseProblem, *, effort: float) -> int | None:
    """Returns the least power of the site with which a choice keeps every other rule; `None` if no such choice was found.

    Args:
        problem: the jobs and the capacity that is available, with or without a limit on power.
        effort: deterministic seconds of the solver, as for `cheapest`; if they end early, less power may be enough.
    """
    built = _Model.of(replace(problem, power_w=None))
    return built.least(built.peak_power_w(), effort)


@dataclass(frozen=True, kw_only=True)
class _Model:
    """Variables of a choice."""

    problem: PurchaseProblem
    model: cp_model.CpModel
    is_taken: list[cp_model.IntVar]
    """Whether each way is taken."""
    starts: list[cp_model.IntVar]
    """First hour of each job."""
    intervals: list[cp_model.IntervalVar]
    """Interval in which each way runs, if it is taken."""
    lot_nodes: list[list[cp_model.IntVar]]
    """Nodes of each lot of each pool."""
    is_lot_used: list[list[cp_model.IntVar]]
    """Whether each lot of each pool may have nodes."""
    is_used: list[cp_model.IntVar]
    """Whether each pool may have nodes."""

    @classmethod
    def of(cls, problem: PurchaseProblem) -> _Model:
        from ortools.sat.python import cp_model

        model = cp_model.CpModel()
        starts = [
            model.new_int_var(window.start_h, max(window.start_h, window.end_h), f"start {job}")
            for job, window in enumerate(problem.windows)
        ]
        is_taken = [model.new_bool_var(f"way {index}") for index in range(len(problem.ways))]
        intervals = [
            model.new_optional_fixed_size_interval_var(starts[way.job], way.duration_h, taken, taken.name)
            for way, taken in zip(problem.ways, is_taken, strict=True)
        ]
        lot_nodes = [
            [model.new_int_var(0, pool.max_nodes, f"{pool.name} {lot}") for lot in range(len(pool.lots))]
            for pool in problem.pools
        ]
        is_lot_used = [[model.new_bool_var(f"{nodes.name} used") for nodes in lots] for lots in lot_nodes]
        built = cls(
            problem=problem,
            model=model,
            is_taken=is_taken,
            starts=starts,
            intervals=intervals,
            lot_nodes=lot_nodes,
            is_lot_used=is_lot_used,
            is_used=[model.new_bool_var(f"{pool.name} used") for pool in problem.pools],
        )
        built._add_jobs()
        for index, pool in enumerate(problem.pools):
            built._add_pool(index, pool)
        for supply in problem.alternatives:
            model.add_at_most_one(built.is_used[pool] for pool in supply)
        if problem.power_w is not None:
            built._add_power(problem.power_w)
        built._add_money()
        return built

    def least(self, quantity: cp_model.LinearExprT, effort: float) -> int | None:
        """The least value of a quantity that a choice was found to have; `None` if no choice was found."""
        solver = self._minimized(quantity, effort)
        return None if solver is None else round(solver.objective_value)

    def choice(self, solver: cp_model.CpSolver) -> Choice:
        """What the solver chose."""
        taken = {
            way.job: index
            for index, (way, literal) in enumerate(zip(self.problem.ways, self.is_taken, strict=True))
            if solver.boolean_value(literal)
        }
        return Choice(
            ways=tuple(taken[job] for job in range(len(self.problem.windows))),
            starts_h=tuple(solver.value(start) for start in self.starts),
            lot_nodes=tuple(tuple(solver.value(nodes) for nodes in lots) for lots in self.lot_nodes),
        )

    def as_early_as_possible(self, choice: Choice, effort: float) -> Choice:
        """The same designs on the same nodes, with the least sum of starting hours; the choice itself if none is found."""
        for way in choice.ways:
            self.model.add(self.is_taken[way] == 1)
        for variables, nodes in zip(self.lot_nodes, choice.lot_nodes, strict=True):
            for variable, value in zip(variables, nodes, strict=True):
                self.model.add(variable == value)
        solver = self._minimized(sum(self.starts), effort)
        return choice if solver is None else self.choice(solver)

    def _minimized(self, quantity: cp_model.LinearExprT, effort: float) -> cp_model.CpSolver | None:
        """The solver with the choice that has least of a quantity, as far as the effort goes; `None` if none was found."""
        from ortools.sat.python import cp_model

        self.model.minimize(quantity)
        solver = exact_solver()
        solver.parameters.max_deterministic_time = effort
        is_found = solver.solve(self.model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)
        return solver if is_found else None

    def _add_jobs(self) -> None:
        for job, window in enumerate(self.problem.windows):
            mine = [
                (way, taken)
                for way, taken in zip(self.problem.ways, self.is_taken, strict=True)
                if way.job == job
            ]
            self.model.add_exactly_one(taken for _, taken in mine)
            for way, taken in mine:
                self.model.add(self.starts[job] + way.duration_h <= window.end_h).only_enforce_if(taken)

    def _add_pool(self, index: int, pool: Pool) -> None:
        mine = [number for number, way in enumerate(self.problem.ways) if way.pool == index]
        intervals = [self.intervals[number] for number in mine]
        demands: list[cp_model.LinearExprT] = [self.problem.ways[number].num_nodes for number in mine]
        if pool.kind == "rented":
            self.model.add_cumulative(intervals, demands, pool.max_nodes)
            return
        lots = self.lot_nodes[index]
        # Nodes of a term go back at its end, so later terms may have as many again.
        num_fleets = 1 if pool.kind == "bought" else len(lots)
        self.model.add(sum(lots) <= pool.max_nodes * num_fleets * self.is_used[index])
        self.model.add(sum(lots) >= pool.least_nodes * self.is_used[index])
        for number in mine:
            self.model.add_implication(self.is_taken[number], self.is_used[index])
        for start, end in pairwise(_changes_h(pool, self.problem.horizon_h)):
            there = [
                nodes for lot, nodes in zip(pool.lots, lots, strict=True) if lot.start_h <= start < lot.end_h
            ]
            # Missing nodes are modelled as in use. A varying capacity would mean the same, but with it CP-SAT 9.15 sometimes
            # reports a plan as optimal that is not.
            away = self.model.new_int_var(0, pool.max_nodes, f"{pool.name} away from {start}")
            self.model.add(away == pool.max_nodes - sum(there))
            intervals.append(self.model.new_fixed_size_interval_var(start, end - start, away.name))
            demands.append(away)
        self.model.add_cumulative(intervals, demands, pool.max_nodes)
        self._add_lots(pool, lots, self.is_lot_used[index])
        self._add_node_hours(mine, pool, lots)

    def _add_lots(self, pool: Pool, lots: list[cp_model.IntVar], is_used: list[cp_model.IntVar]) -> None:
        for nodes, used in zip(lots, is_used, strict=True):
            self.model.add(nodes <= pool.max_nodes * used)
        self.model.add(sum(is_used) <= pool.max_lots)

    def _add_node_hours(self, mine: list[int], pool: Pool, lots: list[cp_model.IntVar]) -> None:
        """Redundant cuts: node-hours between the earliest start of a job and the latest end of one."""
        windows = self.problem.windows
        begins, ends = {window.start_h for window in windows}, {window.end_h for window in windows}
        ways = [(self.problem.ways[number], self.is_taken[number]) for number in mine]
        for begin, end in product(sorted(begins), sorted(ends)):
            needed = [
                way.num_nodes * way.duration_h * taken
                for way, taken in ways
                if begin <= windows[way.job].start_h and windows[way.job].end_h <= end
            ]
            if needed:
                there = [
                    _overlap_h(lot, begin, end) * nodes for lot, nodes in zip(pool.lots, lots, strict=True)
                ]
                self.model.add(sum(needed) <= sum(there))

    def _add_power(self, most_w: cp_model.LinearExprT) -> None:
        intervals, demands = list(self.intervals), [way.above_idle_w for way in self.problem.ways]
        levels: list[cp_model.LinearExprT] = list(demands)
        for pool, lots in zip(self.problem.pools, self.lot_nodes, strict=True):
            for lot, nodes in zip(pool.lots, lots, strict=True):
                if pool.idle_w_per_node:
                    interval = self.model.new_fixed_size_interval_var(
                        lot.start_h, lot.end_h - lot.start_h, "idle"
                    )
                    intervals.append(interval)
                    levels.append(pool.idle_w_per_node * nodes)
        self.model.add_cumulative(intervals, levels, most_w)
        # A redundant cut: nodes in use are at the site, so they draw at least idle power, whatever lots there are.
        in_use = [
            way.num_nodes * self.problem.pools[way.pool].idle_w_per_node + way.above_idle_w
            for way in self.problem.ways
        ]
        self.model.add_cumulative(self.intervals, in_use, most_w)

    def capital_usd(self) -> cp_model.LinearExprT:
        """Upfront capital of the nodes of all lots."""
        return sum(lot.capital_usd_per_node * nodes for lot, nodes in self._lots())

    def peak_power_w(self) -> cp_model.IntVar:
        """A power that the site never exceeds."""
        idle = sum(pool.idle_w_per_node * pool.max_nodes * len(pool.lots) for pool in self.problem.pools)
        above_idle = sum(way.above_idle_w for way in self.problem.ways)
        peak = self.model.new_int_var(0, idle + above_idle, "peak power")
        self._add_power(peak)
        return peak

    def _lots(self) -> list[tuple[Lot, cp_model.IntVar]]:
        return [
            (lot, nodes)
            for pool, variables in zip(self.problem.pools, self.lot_nodes, strict=True)
            for lot, nodes in zip(pool.lots, variables, strict=True)
        ]

    def _add_money(self) -> None:
        problem = self.problem
        runs = [way.usd * taken for way, taken in zip(problem.ways, self.is_taken, strict=True)]
        cost = sum([*(lot.usd_per_node * nodes for lot, nodes in self._lots()), *runs, *self._staff_usd()])
        if problem.budget_usd is not None:
            self.model.add(cost <= problem.budget_usd)
        if problem.capital_usd is not None:
            self.model.add(self.capital_usd() <= problem.capital_usd)
        self.model.minimize(cost)

    def _staff_usd(self) -> list[cp_model.IntVar]:
        """Staff from the first delivery on: at least that of every lot with nodes, with equality at least cost."""
        staffed = [
            (lot.staff_usd, used)
            for pool, is_used in zip(self.problem.pools, self.is_lot_used, strict=True)
            for lot, used in zip(pool.lots, is_used, strict=True)
            if lot.staff_usd
        ]
        if not staffed:
            return []
        staff = self.model.new_int_var(0, max(usd for usd, _ in staffed), "staff")
        for usd, used in staffed:
            self.model.add(staff >= usd * used)
        return [staff]


def _changes_h(pool: Pool, horizon_h: int) -> list[int]:
    """Hours between which the number of available nodes of a pool is constant, from start to end of the horizon."""
    inside = {hour for lot in pool.lots for hour in (lot.start_h, lot.end_h) if 0 < hour < horizon_h}
    return sorted({0, horizon_h} | inside)


def _overlap_h(lot: Lot, begin: int, end: int) -> int:
    """Hours for which a lot is available between two hours."""
    return max(0, min(lot.end_h, end) - max(lot.start_h, begin))
