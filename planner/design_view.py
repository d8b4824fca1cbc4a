"""What is this design, in words? Its configuration, its figures, and where memory, time, money and energy go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from planner import human
from planner.recommendation import Design, Spread, Uncertainty
from simulator.plan import CheckpointScheme, Plan
from simulator.units import KILO

SMALLEST_SHOWN_FRACTION = 0.0005
"""Smaller parts are summed up as `other`."""

_NO_POWER_CAP = 1.0
_PART_WORDS = {
    "tensor_comm_s": "tensor parallelism",
    "expert_comm_s": "expert parallelism",
    "shard_comm_s": "gathering sharded weights",
    "pipeline_send_s": "pipeline transfers",
    "gradient_sync_s": "gradient synchronisation",
    "productive_s": "steps that count",
    "straggler_s": "stragglers",
    "checkpoint_stall_s": "standing still for saves",
    "checkpoint_tax_s": "slowed down by saves",
    "backpressure_wait_s": "waiting for earlier saves",
    "lost_work_s": "work lost and done again",
    "reduced_capacity_s": "missing replicas",
    "restart_s": "restarts",
    "replacement_wait_s": "waiting for other nodes",
    "checkpoint_restore_s": "loading saves",
    "initialization_s": "first start",
}
"""Parts whose field names say too little; the others are their field names."""


@dataclass(frozen=True, kw_only=True)
class Breakdown:
    """What a total is made of, largest part first."""

    title: str
    """What is broken down, with its total."""
    parts: tuple[tuple[str, str, float], ...]
    """Name, quantity and share of each part."""


def headline(design: Design) -> str:
    """Returns the design in one line: `1,024 x h100-sxm5-80gb for 31.4 days and $1.85 M`."""
    took = f"{human.days(design.time_to_train_days)} and {human.dollars(design.cost_usd)}"
    return f"{human.count(design.plan.num_gpus)} x {design.accelerator} for {took}"


def layout(plan: Plan) -> str:
    """Returns the degrees above one and a power cap, as short as a table needs: `TP8 PP4 DP32 cap 90%`."""
    degrees = {
        "TP": plan.tensor_parallel,
        "PP": plan.pipeline_parallel,
        "VPP": plan.virtual_pipeline,
        "CP": plan.context_parallel,
        "EP": plan.expert_parallel,
    }
    splits = [f"{name}{degree}" for name, degree in degrees.items() if degree > 1]
    cap = [f"cap {plan.power_cap_fraction:.0%}"] if plan.power_cap_fraction < _NO_POWER_CAP else []
    return " ".join([*splits, f"DP{plan.data_parallel}", *cap])


def configuration(design: Design) -> Iterator[tuple[str, str]]:
    """Yields the decisions, as name and words."""
    plan = design.plan
    nodes = _plural(design.num_nodes, "node")
    yield "GPUs", f"{human.count(plan.num_gpus)} x {design.accelerator}"
    yield "nodes", f"{nodes} {design.node}, and {_plural(plan.num_spare_nodes, 'spare')}"
    if design.region:
        yield "site", design.region
    yield "parallelism", _parallelism(plan)
    yield "micro-batch", _plural(plan.micro_batch_size, "sequence")
    yield "recomputation", f"{plan.recompute.value}; ZeRO stage {plan.zero_stage}; {plan.precision.value}"
    yield "checkpoints", _checkpoints(design)
    if plan.power_cap_fraction < _NO_POWER_CAP:
        yield "power cap", f"{human.percent(plan.power_cap_fraction)} of the accelerators' limit"


def figures(
    design: Design, uncertainty: Uncertainty | None, scope: str = ""
) -> Iterator[tuple[str, str, str]]:
    """Yields what the design comes to, as name, figure and how sure it is; `scope` says what carbon counts."""
    time_note, cost_note = "", ""
    if uncertainty:
        time_note = _sureness(
            uncertainty.time_to_train_days, human.days, uncertainty.deadline_probability, "deadline"
        )
        cost_note = _sureness(uncertainty.cost_usd, human.dollars, uncertainty.budget_probability, "budget")
    prices = f"{human.dollars(design.cost_low_usd)} to {human.dollars(design.cost_high_usd)} by the price of the hardware"
    step = f"{human.duration(design.step_time_s)}, {human.duration(design.iteration_time_s)} with stragglers"
    yield "time to train", human.days(design.time_to_train_days), time_note
    yield "cost", human.dollars(design.cost_usd), cost_note
    yield "", "", prices
    yield "energy", human.energy(design.energy_kwh), f"peak power {human.power(design.peak_power_w)}"
    yield "carbon", human.carbon(design.carbon_kgco2e), scope
    yield from merits(design)
    yield "MFU", human.percent(design.mfu_fraction), f"step time {step}"
    yield (
        "goodput",
        human.percent(design.goodput_fraction),
        f"{human.digits(design.num_failures)} failures to expect",
    )


def merits(design: Design) -> Iterator[tuple[str, str, str]]:
    """Yields what a token and an exaFLOP come to, the market's view of carbon, water, and rent against purchase."""
    found = design.metrics
    price, energy, carbon = (
        found.get(name) for name in ("usd_per_million_tokens", "kwh_per_million_tokens", "gco2e_per_exaflop")
    )
    if price is not None and energy is not None and carbon is not None:
        per_exaflop = f"{human.digits(carbon)} g CO2e per exaFLOP"
        yield "a million tokens", f"${human.digits(price)}", f"{human.digits(energy)} kWh; {per_exaflop}"
    market, water = found.get("operational_market_kgco2e"), found.get("water_l")
    if market is not None:
        yield "", human.carbon(market), "of operation by what the operator buys (market-based)"
    if water:
        yield "water", f"{human.digits(water / KILO)} m3", ""
    rent, own, months = (found.get(name) for name in ("rent_usd", "own_usd", "break_even_months"))
    if rent is not None and own is not None:
        pays = f"buying pays after {human.digits(months)} months of use" if months else "buying never pays"
        yield "rent or own", f"{human.dollars(rent)} rented", f"{human.dollars(own)} owned; {pays}"


def breakdowns(design: Design) -> Iterator[Breakdown]:
    """Yields where memory, the step, the run, money, energy and carbon go; what has one part only is left out."""
    capacity = design.memory_capacity_bytes
    used = f"{human.memory(design.peak_memory_bytes).removesuffix(' GiB')} of {human.memory(capacity)}"
    yield _breakdown(f"memory of the fullest GPU: {used}", design.memory_bytes, human.memory, capacity)
    for title, parts, unit in (
        (f"one step: {human.duration(design.step_time_s)}", design.step_seconds, human.duration),
        (f"the run: {human.days(design.time_to_train_days)}", design.run_seconds, human.duration),
        (f"cost: {human.dollars(design.cost_usd)}", design.cost_parts_usd, human.dollars),
        (f"energy: {human.energy(design.energy_kwh)}", design.energy_parts_kwh, human.energy),
        (f"carbon: {human.carbon(design.carbon_kgco2e)}", design.carbon_parts_kgco2e, human.carbon),
    ):
        found = _breakdown(title, parts, unit, sum(parts.values()))
        if len(found.parts) > 1:
            yield found


def _breakdown(
    title: str, parts: Mapping[str, float], unit: Callable[[float], str], whole: float
) -> Breakdown:
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    least = SMALLEST_SHOWN_FRACTION * whole
    shown = [(part_words(name), value) for name, value in ordered if value >= least and value > 0]
    if rest := sum(value for _, value in ordered if 0 < value < least):
        shown.append(("other", rest))
    return Breakdown(title=title, parts=tuple((name, unit(value), value / whole) for name, value in shown))


def part_words(name: str) -> str:
    """Returns the field of a part in words: `stragglers` for `straggler_s`."""
    return _PART_WORDS.get(name) or human.words(name)


def _parallelism(plan: Plan) -> str:
    degrees = f"TP {plan.tensor_parallel} x PP {plan.pipeline_parallel} x CP {plan.context_parallel}"
    more = f"VPP {plan.virtual_pipeline}, EP {plan.expert_parallel}"
    return f"{degrees} x DP {plan.data_parallel}; {more}"


def _checkpoints(design: Design) -> str:
    scheme = design.plan.checkpoint_scheme
    if scheme is CheckpointScheme.NONE or design.checkpoint_interval_s is None:
        return "none: a failure starts the run anew"
    return f"{scheme.value}, every {human.duration(design.checkpoint_interval_s)} of training"


def _sureness(spread: Spread, unit: Callable[[float], str], probability: float | None, limit: str) -> str:
    low, high = ("no end" if value is None else unit(value) for value in (spread.p5, spread.p95))
    bounds = f"{low} to {high} in 9 of 10 replays"
    return bounds if probability is None else f"{bounds}; {human.percent(probability)} keep the {limit}"


def _plural(number: int, noun: str) -> str:
    return f"{human.count(number)} {noun}" if number == 1 else f"{human.count(number)} {noun}s"
