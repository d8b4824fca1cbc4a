"""How does a traced step read on a terminal? The step, what accelerators wait for and for whom, and hot links, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from planner.deep.link_rows import link_rows
from planner.deep.played_step import CIRCUITS, AcceleratorTime, CircuitSummary, PlayedStep
from planner.deep.wait_words import waits_of_all
from planner.text import human
from planner.text.text_blocks import bar, grid, headline, sentences, title
from planner.trace.offload_request import MemoryUse
from planner.trace.play import PlayAnswer
from planner.trace.simulation import TraceAnswer

if TYPE_CHECKING:
    from rich.console import Console

MOST_NAMED = 3
"""Number of accelerators that are named as those that others wait for, and of operator classes."""
MOST_TENSORS = 10
"""Number of offloaded tensors that are listed; the JSON form has all of them."""
NO_RAMP = (
    "Collectives of every size reach full bandwidth, so small ones are simulated too fast. Remedy: give the links a ramp "
    "(--ramp, or ramp_s in a network file)."
)


def show_trace(answer: TraceAnswer, console: Console) -> None:
    """Writes a traced step."""
    _headline(answer.trace, answer, console)
    sentences(console, _summary(answer))
    if answer.memory is not None:
        _show_memory(answer.memory, console)
    _show_step(answer, console, slow=_slow(answer))


def show_played(answer: PlayAnswer, console: Console) -> None:
    """Writes Chakra traces that were played."""
    _headline(answer.traces, answer, console)
    _show_step(answer, console)
    if answer.callers_in:
        title(console, "Control dependencies")
        sentences(console, [_callers(answer)])


def _callers(answer: PlayAnswer) -> str:
    """Says that `ctrl_deps` do not count, and on which accelerators; only the first is named."""
    others = len(answer.callers_in) - 1
    more = f" and {human.count(others)} more" if others else ""
    return (
        f"ctrl_deps of accelerator {answer.callers_in[0]}{more} name callers, as Chakra's converter of PyTorch traces writes "
        "them. Together with data_deps they form a cycle, so they are ignored there and data_deps alone set the order."
    )


def _headline(name: str, answer: PlayedStep, console: Console) -> None:
    accelerators, took = human.counted(answer.num_gpus, "accelerator"), human.duration(answer.step_s)
    headline(console, f"{name} on {accelerators}: {took} a step", is_good=True)


def _show_step(answer: PlayedStep, console: Console, slow: Sequence[str] = ()) -> None:
    title(console, "Time of an average accelerator")
    grid(console, _parts(answer, console))
    title(console, "Waits between accelerators")
    sentences(console, [*slow, *_waiting_sentences(answer)])
    show_links(answer, console)
    if answer.lacks_ramp:
        title(console, "Notes")
        sentences(console, [NO_RAMP])


def show_links(answer: PlayedStep, console: Console) -> None:
    """Writes the links and circuits that are waited for."""
    if answer.hot_links:
        title(console, "Links with the longest waits, per average accelerator")
        grid(console, link_rows(answer.hot_links, answer.num_gpus))
    if answer.circuits is not None:
        title(console, "Circuits with the longest waits, summed over messages")
        sentences(console, [_circuits(answer.circuits)])
        grid(console, _circuit_rows(answer.circuits))


def _summary(answer: TraceAnswer) -> Iterator[str]:
    degrees = {
        "replicas": answer.data_parallel,
        "shards of each operator": answer.tensor_parallel,
        "stages": answer.pipeline_parallel,
        "micro-batches": answer.num_microbatches,
        "chunks of layers on each stage": answer.num_chunks,
    }
    split = ", ".join(f"{human.count(number)} {name}" for name, number in degrees.items() if number > 1)
    rules = " by the rules of TrioSim's code" if answer.rules.value == "triosim" else ""
    yield f"{split or 'one accelerator'}, {human.counted(answer.batch_size, 'sample')} for each replica{rules}"
    yield (
        f"{human.digits(answer.samples_per_s)} samples/s; a single accelerator takes "
        f"{human.duration(answer.single_device_s)}: efficiency {human.percent(answer.efficiency_fraction)}"
    )
    if answer.num_played < answer.num_gpus:
        played = human.counted(answer.num_played, "accelerator")
        stood_for = human.count(answer.num_gpus // answer.num_played)
        yield f"{played} simulated, {'each ' * (answer.num_played > 1)}for {stood_for} identical ones"
    if kept := answer.kept_in_proportion:
        more = f" and {human.count(len(kept) - MOST_NAMED)} more" if len(kept) > MOST_NAMED else ""
        yield (
            f"scaled in proportion to the batch, because the trace does not show how their time grows: "
            f"{', '.join(kept[:MOST_NAMED])}{more}"
        )
    yield f"peak memory of the tensors of a replica: {human.memory(answer.replica_peak_bytes)}"


def _slow(answer: TraceAnswer) -> list[str]:
    """How much longer accelerators of another speed make the step."""
    if not answer.speeds:
        return []
    given = list(answer.speeds.items())
    named = ", ".join(
        f"accelerator {rank} at {factor:g} of the trace's speed" for rank, factor in given[:MOST_NAMED]
    )
    more = f" and {human.count(len(given) - MOST_NAMED)} more" if len(given) > MOST_NAMED else ""
    apart_s = answer.other_speeds_s
    cost = f"makes the step {human.duration(abs(apart_s))} {'longer' if apart_s > 0.0 else 'shorter'}"
    cost = cost if _counts(abs(apart_s), answer) else "does not change the step time"
    return [f"Other speeds: {named}{more}. This {cost}."]


def _show_memory(memory: MemoryUse, console: Console) -> None:
    title(console, "Offloading")
    if not memory.tensors:
        used, whole = human.memory(memory.peak_bytes), human.memory(memory.capacity_bytes)
        sentences(console, [f"Everything fits in memory: {used} of {whole} used at the peak."])
        return
    tiers = [
        f"{human.memory(tier.peak_bytes)} on the {tier.tier}" for tier in memory.tiers if tier.peak_bytes
    ]
    room = f"{human.memory(memory.peak_bytes)} of {human.memory(memory.capacity_bytes)} used at the peak"
    moved = (
        f"{', '.join([room, *tiers])}: {human.count(len(memory.tensors))} activations with "
        f"{human.memory(memory.moved_bytes)} are offloaded and fetched back."
    )
    free = f"With enough memory the step would take {human.duration(memory.unlimited_step_s)}."
    sentences(console, [moved, free])
    grid(console, _moved_rows(memory))


def _moved_rows(memory: MemoryUse) -> Iterator[tuple[str, ...]]:
    largest = sorted(memory.tensors, key=lambda row: (-row.num_bytes, row.needed_by))
    for row in largest[:MOST_TENSORS]:
        left = (
            "offloaded from the start"
            if row.leaves_after is None
            else f"offloaded after operator {row.leaves_after}"
        )
        yield (
            f"tensor {row.tensor}",
            human.memory(row.num_bytes),
            f"{left}, to make room for {row.makes_room_for}",
            f"fetched after {row.returns_after}, for {row.needed_by}",
        )


def _mean(answer: PlayedStep) -> dict[str, float]:
    """How an average accelerator spends its seconds."""
    size = len(answer.accelerators)
    names = {name for row in answer.accelerators for name in row.traffic_waits_s}
    traffic = {
        f"waiting for {name}": sum(row.traffic_waits_s.get(name, 0.0) for row in answer.accelerators) / size
        for name in sorted(names)
    }
    return {
        "computing": sum(row.busy_s for row in answer.accelerators) / size,
        **traffic,
        "waiting for others to compute": sum(row.others_wait_s for row in answer.accelerators) / size,
        "idle at the end of the step": sum(row.over_s for row in answer.accelerators) / size,
    }


def _parts(answer: PlayedStep, console: Console) -> Iterator[tuple[str, str, str, str]]:
    for name, seconds in _mean(answer).items():
        fraction = seconds / answer.step_s if answer.step_s else 0.0
        if fraction >= human.LEAST_TOLD_FRACTION:
            yield name, human.duration(seconds), human.percent(fraction), bar(console, fraction)


def _waiting_sentences(answer: PlayedStep) -> list[str]:
    """Returns sentences on which accelerators others wait for, what all wait for, and which are done early."""
    told = []
    held = sorted(answer.accelerators, key=lambda row: -row.held_up_others_s)[:MOST_NAMED]
    told += [_held_up(row, answer) for row in held if _counts(row.held_up_others_s, answer)]
    waits = {
        name: [row.traffic_waits_s[name] for row in answer.accelerators if name in row.traffic_waits_s]
        for name in sorted({name for row in answer.accelerators for name in row.traffic_waits_s})
    }
    least_s = human.LEAST_TOLD_FRACTION * answer.step_s
    of_all = (
        waits_of_all(seconds, _traffic(name), name="accelerator {}".format, least_s=least_s)
        for name, seconds in waits.items()
    )
    told += [each for each in of_all if each]
    told = told or ["No accelerator waits: computation hides all traffic."]
    return [*told, *_done_first(answer)]


def _done_first(answer: PlayedStep) -> Iterator[str]:
    """Which accelerators work longest, and for how long the others have been done by then."""
    idle_s = [row.over_s for row in answer.accelerators if _counts(row.over_s, answer)]
    last = [row.accelerator for row in answer.accelerators if not _counts(row.over_s, answer)]
    if idle_s:
        who = (
            f"Accelerator {last[0]} finishes"
            if len(last) == 1
            else f"{human.count(len(last))} accelerators finish"
        )
        mean = human.duration(sum(idle_s) / len(idle_s))
        yield f"{who} last; the others finish {mean} earlier on average."


def _traffic(name: str) -> str:
    return "circuits to be set up" if name == CIRCUITS else f"{name} traffic"


def _held_up(row: AcceleratorTime, answer: PlayedStep) -> str:
    each_s = row.held_up_others_s / max(1, answer.num_gpus - 1)
    return (
        f"Others wait for accelerator {row.accelerator} to compute: {human.duration(row.held_up_others_s)} in total, "
        f"{human.duration(each_s)} each if all of them wait."
    )


def _counts(seconds: float, answer: PlayedStep) -> bool:
    return answer.step_s > 0.0 and seconds / answer.step_s >= human.LEAST_TOLD_FRACTION


def _circuits(circuits: CircuitSummary) -> str:
    return (
        f"Messages wait {human.duration(circuits.waited_s)} in total for ports and set-ups: "
        f"{human.count(circuits.num_set_ups)} set-ups of {human.count(circuits.num_circuits)} circuits."
    )


def _circuit_rows(circuits: CircuitSummary) -> Iterator[tuple[str, str, str]]:
    for row in circuits.longest:
        times = "once" if row.num_set_ups == 1 else f"{human.count(row.num_set_ups)} times"
        yield row.circuit, f"set up {times}", human.duration(row.waited_s)
