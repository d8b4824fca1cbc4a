"""How is a design described? Its configuration, its figures, and the breakdowns of memory, time, money and energy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from planner.recommended.comparisons import DrawnFigure, InputUncertainty
from planner.recommended.recommendation import Design, Recommendation, Spread, Uncertainty
from planner.text import human
from planner.text.figure_units import figure_text
from simulator.domain.job import Job
from simulator.domain.plan import Plan, Schedule
from simulator.units import DAY

_ROUNDING_FRACTION = 1e-9
"""Below this share, what remains of a sum is rounding."""

_NO_POWER_CAP = 1.0
_PART_WORDS = {
    "expert_comm_s": "expert parallelism",
    "shard_comm_s": "gathering sharded weights",
    "host_copy_s": "copies to and from host memory",
    "pipeline_send_s": "pipeline transfers",
    "gradient_sync_s": "gradient synchronisation",
    "productive_s": "productive steps",
    "straggler_s": "stragglers",
    "checkpoint_stall_s": "stalled by saves",
    "checkpoint_tax_s": "slowed down by saves",
    "backpressure_wait_s": "waiting for earlier saves",
    "lost_work_s": "repeating lost work",
    "reduced_capacity_s": "missing replicas",
    "restart_s": "restarts",
    "replacement_wait_s": "waiting for replacement nodes",
    "checkpoint_restore_s": "loading saves",
    "initialization_s": "initial start",
}
"""Parts whose field names are not clear enough; the others are shown by their field names."""


@dataclass(frozen=True, kw_only=True)
class Breakdown:
    """The parts of a total, largest first."""

    title: str
    """Name of the total, with its value."""
    parts: tuple[tuple[str, str, float], ...]
    """Name, quantity and share of each part."""


def headline(design: Design, where: str = "") -> str:
    """Returns the design in one line, with its place where given: `1,024 x h100-sxm5-80gb for 31.4 days and $1.85 M`."""
    took = f"{human.days(design.time_to_train_days)} and {human.dollars(design.cost_usd)}"
    return f"{human.count(design.plan.num_gpus)} x {design.accelerator}{where} for {took}"


def has_several_sites(answer: Recommendation) -> bool:
    """Whether the designs of the front are in different regions."""
    return len({design.region for design in answer.front}) > 1


def in_site(job: Job, offer: int) -> str:
    """Returns where an offer of a job is, such as ` in sweden`; empty where all of them are at one site."""
    regions = [job.site_of(each).region for each in job.offers]
    return f" in {regions[offer]}" if len(set(regions)) > 1 else ""


def site_words(answer: Recommendation, design: Design) -> str:
    """Returns where a design is, such as ` in sweden`; empty where all offers are at one site."""
    return f" in {design.region}" if len(answer.regions) > 1 or has_several_sites(answer) else ""


def layout(plan: Plan) -> str:
    """Returns the degrees above one and a power cap, short enough for a table: `TP8 PP4 DP32 cap 90%`."""
    degrees = {
        "TP": plan.tensor_parallel,
        "PP": plan.pipeline_parallel,
        "VPP": plan.virtual_pipeline,
        "CP": plan.context_parallel,
        "EP": plan.expert_parallel,
    }
    splits = [f"{name}{degree}" for name, degree in degrees.items() if degree > 1]
    splits += [plan.pipeline_schedule.value] if plan.pipeline_schedule is not Schedule.ONE_F_ONE_B else []
    cap = [f"cap {plan.power_cap_fraction:.0%}"] if plan.power_cap_fraction < _NO_POWER_CAP else []
    return " ".join([*splits, f"DP{plan.data_parallel}", *cap])


def is_bought(design: Design) -> bool:
    """Returns whether the accelerators of a design are bought, not rented."""
    return bool(design.cost_parts_usd.get("capital_usd"))


def offer_words(design: Design, others: Iterable[Design]) -> str:
    """Returns ` offer 1`, numbered as in a plan, if other designs take the same accelerator at that site from another offer.

    ` bought` follows where other designs are rented.
    """
    known = [design, *others]
    place = (design.accelerator, design.region)
    offers = {each.plan.offer for each in known if (each.accelerator, each.region) == place}
    number = f" offer {design.plan.offer}" if len(offers) > 1 else ""
    return f"{number} bought" if is_bought(design) and not all(map(is_bought, known)) else number


def configuration(design: Design) -> Iterator[tuple[str, str]]:
    """Yields the decisions, as name and words."""
    plan = design.plan
    nodes = human.counted(design.num_nodes, "node")
    bought = ", bought" if is_bought(design) else ""
    yield "GPUs", f"{human.count(plan.num_gpus)} x {design.accelerator}{bought}"
    yield "nodes", f"{nodes} {design.node}, plus {human.counted(plan.num_spare_nodes, 'spare')}"
    if design.region:
        yield "site", design.region
    yield "parallelism", _parallelism(plan)
    yield "micro-batch", f"{human.counted(plan.micro_batch_size, 'sequence')}{_of_batch(design)}"
    some = f" of {human.counted(plan.recompute_num_layers, 'layer')}" if plan.recompute_num_layers else ""
    groups = f" in groups of {plan.shard_ranks}" if plan.shard_ranks else ""
    yield (
        "recomputation",
        f"{plan.recompute.value}{some}; ZeRO stage {plan.zero_stage}{groups}; {plan.precision.value}",
    )
    yield "checkpoints", _checkpoints(design)
    where = "" if design.framework else " (workload.framework)"
    yield "software", f"as {design.framework or 'Megatron-LM'} where the job says nothing{where}"
    if plan.power_cap_fraction < _NO_POWER_CAP:
        yield "power cap", f"{human.percent(plan.power_cap_fraction)} of the accelerators' limit"


def figures(
    design: Design, uncertainty: Uncertainty | None, scope: str, drawn: InputUncertainty | None = None
) -> Iterator[tuple[str, str, str]]:
    """Yields the results of a design, as name, figure and spread.

    Args:
        design: the design.
        uncertainty: what failures and stragglers do to it, where that is known.
        scope: what the carbon figure includes.
        drawn: what all uncertain inputs do to it, where that is known.
    """
    time_note, cost_note = "", ""
    if uncertainty:
        time_note = _sureness(
            uncertainty.time_to_train_days, human.days, uncertainty.deadline_probability, "deadline"
        )
        cost_note = _sureness(uncertainty.cost_usd, human.dollars, uncertainty.budget_probability, "budget")
    low, high = human.dollars(design.cost_low_usd), human.dollars(design.cost_high_usd)
    step = f"{human.duration(design.step_time_s)}, {human.duration(design.iteration_time_s)} with stragglers"
    yield "time to train", human.days(design.time_to_train_days), time_note
    if drawn:
        times = _in_draws(drawn.figures["time_to_train"], human.duration)
        yield "", "", _meeting(times, drawn.within_deadline_fraction, "it")
    yield "cost", human.dollars(design.cost_usd), cost_note
    if drawn:
        costs = _in_draws(drawn.figures["cost"], human.dollars)
        yield "", "", _meeting(costs, drawn.within_budget_fraction, "it")
    if low != high:
        yield "", "", f"{low} to {high} over the price range of the hardware"
    yield "energy", human.energy(design.energy_kwh), f"peak power {human.power(design.peak_power_w)}"
    yield from powers(design)
    yield "carbon", human.carbon(design.carbon_kgco2e), scope
    yield from merits(design)
    yield "MFU", human.percent(design.mfu_fraction), f"step time {step}"
    yield (
        "goodput",
        human.percent(design.goodput_fraction),
        f"{human.digits(design.num_failures)} failures expected",
    )


def powers(design: Design) -> Iterator[tuple[str, str, str]]:
    """Yields the peak power of hall, cooling and rack, and the size and rate of power swings."""
    parts = design.power_w
    if not parts:
        return
    hall, cooling, rack, swing = (
        human.power(parts[f"{name}_w"])
        for name in ("hall_power", "cooling_power", "rack_power", "power_swing")
    )
    yield "hall", hall, f"peak IT power, plus {cooling} for cooling; {rack} per rack"
    ramp, share = human.power_ramp(design.power_ramp_w_per_s), human.percent(design.power_range_fraction)
    yield "power swing", swing, f"with cooling, {ramp} when all nodes stall; {share} of the IT power"


def merits(design: Design) -> Iterator[tuple[str, str, str]]:
    """Yields market-based carbon, cost and carbon per token and per operation, water, and rent against purchase."""
    found = design.metrics
    if (market := found.get("operational_market_kgco2e")) is not None:
        yield (
            "market-based",
            human.carbon(market),
            "operational carbon by what the operator buys, not in the sum",
        )
    told = {name: figure_text(name, value) for name, value in found.items() if value is not None}
    if {"usd_per_million_tokens", "kwh_per_million_tokens"} <= told.keys():
        yield "per 1M tokens", told["usd_per_million_tokens"], told["kwh_per_million_tokens"]
    if {"usd_per_effective_pflop_hour", "gco2e_per_exaflop", "carbon_delay_kgco2e_s"} <= told.keys():
        yield "per PFLOP-hour", told["usd_per_effective_pflop_hour"], "of model FLOPs"
        delayed = told["carbon_delay_kgco2e_s"]
        yield "per exaFLOP", told["gco2e_per_exaflop"], f"carbon intensity (CCI); {delayed}"
    if water := found.get("water_l"):
        yield "water", human.water(water), design.water_scope
    rent, own, months = (found.get(name) for name in ("rent_usd", "own_usd", "break_even_months"))
    if rent is not None and own is not None:
        after = (
            f"after {human.digits(months)} calendar months"
            if months is not None
            else "within the life of the nodes"
        )
        pays = f"buying {'pays off' if design.buying_pays else 'does not pay off'} {after}"
        yield "rent or own", human.dollars(rent), f"rented, {human.dollars(own)} owned; {pays}"


def breakdowns(design: Design) -> Iterator[Breakdown]:
    """Yields the breakdowns of memory, step, run, cost, energy and carbon; those with only one part are left out."""
    yield from step_breakdowns(design)
    yield from run_breakdowns(design)


def run_breakdowns(design: Design) -> Iterator[Breakdown]:
    """Yields the breakdowns of the run, cost, energy and carbon; those with only one part are left out."""
    for title, parts, unit in (
        (f"the run: {human.days(design.time_to_train_days)}", design.run_seconds, human.duration),
        (f"cost: {human.dollars(design.cost_usd)}", design.cost_parts_usd, human.dollars),
        (f"energy: {human.energy(design.energy_kwh)}", design.energy_parts_kwh, human.energy),
        (f"carbon: {human.carbon(design.carbon_kgco2e)}", design.carbon_parts_kgco2e, human.carbon),
    ):
        yield from _in_several_parts(_breakdown(title, parts, unit, sum(parts.values()), (design.plan,)))


def step_breakdowns(design: Design) -> Iterator[Breakdown]:
    """Yields the breakdowns of memory and of one step, the latter only if it has several parts."""
    capacity = design.memory_capacity_bytes
    used = f"{human.memory(design.peak_memory_bytes).removesuffix(' GiB')} of {human.memory(capacity)}"
    yield _breakdown(f"memory of the fullest GPU: {used}", design.memory_bytes, human.memory, capacity)
    title, parts = f"one step: {human.duration(design.step_time_s)}", design.step_seconds
    yield from _in_several_parts(
        _breakdown(title, parts, human.duration, sum(parts.values()), (design.plan,))
    )


def compute_breakdown(design: Design, seconds: Mapping[str, float]) -> Iterator[Breakdown]:
    """Yields the breakdown of the computing in one step, only if it has several parts.

    Args:
        design: the design.
        seconds: time of every operator.
    """
    whole_s = sum(seconds.values())
    share = human.percent(whole_s / design.step_time_s)
    title = f"compute in one step: {human.duration(whole_s)}, {share} of it"
    yield from _in_several_parts(_breakdown(title, seconds, human.duration, whole_s))


def _in_several_parts(found: Breakdown) -> Iterator[Breakdown]:
    if len(found.parts) > 1:
        yield found


def _breakdown(
    title: str,
    parts: Mapping[str, float],
    unit: Callable[[float], str],
    whole: float,
    plans: Sequence[Plan] = (),
) -> Breakdown:
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    least = human.LEAST_TOLD_FRACTION * whole
    shown = [(part_words(name, plans), value) for name, value in ordered if value >= least and value > 0]
    rest = sum(value for _, value in ordered if 0 < value < least)
    if rest > _ROUNDING_FRACTION * whole:
        shown.append(("other", rest))
    return Breakdown(title=title, parts=tuple((name, unit(value), value / whole) for name, value in shown))


class Degrees(Protocol):
    """The degrees of a plan that decide what parts of its step are called; a `Plan` has them."""

    @property
    def tensor_parallel(self) -> int:
        """Ranks that share each layer."""

    @property
    def context_parallel(self) -> int:
        """Ranks that share each sequence."""

    @property
    def pipeline_parallel(self) -> int:
        """Pipeline stages."""


def part_words(name: str, plans: Sequence[Degrees] = ()) -> str:
    """Returns the name of a part for readers: `repeating lost work` for `lost_work_s`.

    Args:
        name: field of the part.
        plans: plans of the designs, or their degrees, if it is a part of their steps.
    """
    if name == "tensor_comm_s":
        return f"{' and '.join(ranks_within_layers(plans))} parallelism"
    if name == "pipeline_bubble_s" and plans and all(plan.pipeline_parallel == 1 for plan in plans):
        return "waiting for other accelerators"  # a slow one delays the others even without a pipeline
    return _PART_WORDS.get(name) or human.words(name)


def ranks_within_layers(plans: Sequence[Degrees]) -> tuple[str, ...]:
    """Returns which ranks of the plans `tensor_comm_s` covers: `tensor`, `context`, or both."""
    has_context = any(plan.context_parallel > 1 for plan in plans)
    has_tensor = any(plan.tensor_parallel > 1 for plan in plans)
    return (*(("tensor",) if has_tensor or not has_context else ()), *(("context",) if has_context else ()))


def _parallelism(plan: Plan) -> str:
    degrees = f"TP {plan.tensor_parallel} x PP {plan.pipeline_parallel} x CP {plan.context_parallel}"
    more = f"VPP {plan.virtual_pipeline}, EP {plan.expert_parallel}"
    if plan.interleaved_group_size:
        more = f"{more}, {plan.interleaved_group_size} micro-batches per group"
    if plan.pipeline_schedule is not Schedule.ONE_F_ONE_B:
        more = f"{more}, {plan.pipeline_schedule.value}"
    return f"{degrees} x DP {plan.data_parallel}; {more}"


def _of_batch(design: Design) -> str:
    """The whole batch in sequences: a job may give it in tokens, and frameworks ask for sequences."""
    batch = design.global_batch_size
    return "" if batch is None else f"; global batch {human.counted(batch, 'sequence')}"


def steps_between_saves(interval_s: float, iteration_s: float) -> int:
    """Returns the whole steps of an interval between saves, at least one."""
    return max(1, round(interval_s / iteration_s))


def _checkpoints(design: Design) -> str:
    if design.checkpoint_interval_s is None:
        return "none: after a failure the run starts from scratch"
    num_steps = steps_between_saves(design.checkpoint_interval_s, design.iteration_time_s)
    every = f"{human.duration(design.checkpoint_interval_s)} of training, about {human.counted(num_steps, 'step')}"
    is_longer = design.checkpoint_interval_s >= design.time_to_train_days * DAY
    return (
        f"{design.plan.checkpoint_scheme.value}, every {every}{', longer than the run' if is_longer else ''}"
    )


def _sureness(spread: Spread, unit: Callable[[float], str], probability: float | None, limit: str) -> str:
    low, high = ("no end" if value is None else unit(value) for value in (spread.p5, spread.p95))
    return _meeting(f"{low} to {high} in 9 of 10 replays", probability, f"the {limit}")


def _in_draws(figure: DrawnFigure, unit: Callable[[float], str]) -> str:
    return f"{unit(figure.p5)} to {unit(figure.p95)} in 9 of 10 draws of the inputs"


def _meeting(bounds: str, probability: float | None, limit: str) -> str:
    return bounds if probability is None else f"{bounds}; {human.percent(probability)} meet {limit}"
