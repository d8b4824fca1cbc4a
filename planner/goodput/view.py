"""What does a goodput answer look like? A headline, the figures, the breakdown of time, and the inputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from planner.goodput.answer import LONGEST_S, Goodput
from planner.goodput.schemes import JobRun, SchemeGoodput
from planner.recommended.design_words import layout, part_words
from planner.text import human
from planner.text.text_blocks import bar, grid, headline, sentences, title
from simulator.run.kernel import MAX_FAILURES
from simulator.units import MINUTE

if TYPE_CHECKING:
    from rich.console import Console

_WORK = {"productive_s": "productive work"}
"""Names that differ from those of a job, whose run consists of steps."""
_UNITLESS = ("slots", "policy", "num_replications", "seed")
_DIGITS = 5
LEAST_GAIN = 0.00005
"""Smaller gains do not show in the table of schemes."""
LEAST_TOLD = 0.00001
"""Smaller shares are shown as less than this one."""
USUAL_ERROR = 0.02
"""Error of the closed form from which a note is shown; within half a per cent is usual."""
ENOUGH_FAILURES = 100_000
"""Simulated failures from which the statistical error of a mean is a small part of `USUAL_ERROR`."""
_NEVER = f"none; {human.count(MAX_FAILURES)} failures do not end a run"


def show_goodput(answer: Goodput, console: Console) -> None:
    """Writes the whole answer."""
    never = answer.wall_time_s is None
    found = _NEVER if never else _percent(answer.goodput)
    headline(console, f"Goodput: {found}", is_good=not never)
    if answer.of_job:
        console.print(f"Job {answer.of_job.job}, {_plan(answer.of_job)}.")
    grid(console, _figures(answer))
    if answer.ledger and answer.wall_time_s:
        title(
            console,
            f"breakdown of the mean wall time, {human.duration(answer.wall_time_s)}",
        )
        grid(console, _ledger(console, answer.ledger, answer.wall_time_s))
    if answer.of_job:
        _show_schemes(answer.of_job, console)
    title(console, "the run" if answer.of_job else "inputs")
    grid(console, _inputs(answer))
    sentences(console, _closed_form_note(answer))
    if answer.of_job:
        sentences(console, _notes(answer, answer.of_job))
    elif answer.inputs.interval_s == answer.optimal_interval_s:
        sentences(console, ["The interval is the best one for a long run."])


def _plan(run: JobRun) -> str:
    return f"{human.count(run.plan.num_gpus)} GPUs, {layout(run.plan)}, saving with {run.plan.checkpoint_scheme.value}"


def _show_schemes(run: JobRun, console: Console) -> None:
    """Writes the goodput of each checkpoint scheme."""
    title(console, "checkpoint schemes: each with this plan, at its best interval")
    heads = ("", "scheme", "goodput", "interval", "stall", "restart", "host memory")
    grid(console, [heads, *(_scheme(row, run) for row in run.schemes if not row.problem)])
    sentences(console, [f"{row.scheme.value}: {row.problem}." for row in run.schemes if row.problem])


def _scheme(row: SchemeGoodput, run: JobRun) -> tuple[str, ...]:
    stall_s = None if row.interval_s is None else row.stall_s
    seconds = (row.interval_s, stall_s, row.restart_s)
    interval, stall, restart = ("-" if value is None else human.duration(value) for value in seconds)
    is_own = row.scheme is run.plan.checkpoint_scheme
    share = row.host_memory_bytes or 0.0
    used = f"{human.memory(share)}, {human.percent(share / run.host_memory_capacity_bytes)}"
    return (
        "*" if is_own else "",
        row.scheme.value,
        _percent(row.goodput or 0.0),
        interval,
        stall,
        restart,
        used,
    )


def _notes(answer: Goodput, run: JobRun) -> Iterator[str]:
    """Sentences on a run that comes from a job."""
    yield from _better_scheme(answer, run)
    if run.interval_steps:
        steps = f"{human.digits(run.interval_steps)} steps of {human.duration(run.iteration_time_s)}"
        best = ", the best interval" if answer.inputs.interval_s == answer.optimal_interval_s else ""
        loads = f"; restarts include {human.duration(run.load_s)} for loading a save"
        yield f"The interval is {steps}{best}{'' if 'restart_s' in run.overridden else loads}."
    if run.overridden:
        yield f"Overridden values of the job: {', '.join(human.words(name) for name in run.overridden)}."
    yield (
        "Here the slow-down by stragglers counts as work. capplan simulate counts it and the initial start as losses, and "
        f"reports a goodput of {human.percent(run.design_goodput_fraction)} for this plan."
    )
    yield from run.warnings


def _closed_form_note(answer: Goodput) -> Iterator[str]:
    """A note if the closed form differs from the simulated runs by more than chance and its usual error."""
    work_s, wall_s = answer.inputs.work_s, answer.wall_time_s
    num_played = (answer.num_failures or 0.0) * answer.inputs.num_replications
    if not work_s or not wall_s or num_played < ENOUGH_FAILURES:
        return
    # Both are work over mean time; the mean of the shares of many short runs is something else.
    off = answer.expected_goodput * wall_s / work_s - 1.0
    if abs(off) > USUAL_ERROR:
        side = "high" if off > 0.0 else "low"
        compared = ". The values of the schemes have a similar error" if answer.of_job else ""
        yield (
            f"The closed form is {human.percent(abs(off))} too {side}, because it spreads saves, failures and repairs evenly "
            f"over the run, unlike the simulated runs{compared}."
        )


def _better_scheme(answer: Goodput, run: JobRun) -> Iterator[str]:
    """A note if another scheme has a goodput that is visibly higher."""
    best = run.schemes[0]
    goodput = best.goodput or 0.0
    gain = goodput - answer.expected_goodput
    if best.scheme is not run.plan.checkpoint_scheme and gain >= LEAST_GAIN:
        servers = best.num_servers or 0
        price = (
            f" It needs {human.counted(servers, 'server')}, whose price is not included." if servers else ""
        )
        found = f"{goodput * 100:.2f} % by the closed form, {gain * 100:.2f} points more"
        yield f"{best.scheme.value} would reach a goodput of {found}.{price}"


def _figures(answer: Goodput) -> Iterator[tuple[str, str]]:
    spread = answer.percentiles
    if answer.goodput_standard_error is not None:
        yield "standard error of the mean", _percent(answer.goodput_standard_error, 2)
    yield "percentiles 5, 50, 95", ", ".join(_percent(value) for value in (spread.p5, spread.p50, spread.p95))
    yield "closed form", _percent(answer.expected_goodput)
    if answer.optimal_interval_s < LONGEST_S:
        best_s = human.duration(answer.optimal_interval_s)
        yield "best interval", f"{best_s}, with {_percent(answer.optimal_goodput)} by the closed form"
    if answer.num_failures is not None:
        replications = human.counted(answer.inputs.num_replications, "replication")
        yield "failures", f"{human.digits(answer.num_failures)} in each of {replications}"


def _ledger(console: Console, ledger: dict[str, float], wall_s: float) -> Iterator[tuple[str, ...]]:
    for name, value in sorted(ledger.items(), key=lambda part: -part[1]):
        if value > 0:
            share = value / wall_s
            yield (
                _WORK.get(name) or part_words(name),
                human.duration(value),
                _percent(share),
                bar(console, share),
            )


def _inputs(answer: Goodput) -> Iterator[tuple[str, str]]:
    for name, value in answer.inputs:
        words = human.words(name).removesuffix(" fraction").replace("num ", "")
        if name in _UNITLESS:
            yield words, str(value)
        elif name == "tax_fraction":
            yield words, human.percent(value)
        elif name == "interval_s" and value >= LONGEST_S:
            yield words, "never saves"
        else:
            exact, short = f"{human.figure(value)} s", human.duration(value)
            yield words, exact if value < MINUTE or short == exact else f"{short} ({exact})"


def _percent(fraction: float, significant: int = _DIGITS) -> str:
    """Returns a share with its digits: tiny shares as `< 0.001 %`, and less than all never as `100 %`."""
    if 0.0 < fraction < LEAST_TOLD:
        return f"< {human.digits(LEAST_TOLD * 100, significant=1)} %"
    shown = human.digits(fraction * 100, significant=significant)
    return f"{shown} %" if fraction == 1.0 or float(shown) < 100.0 else "> 99.999 %"
