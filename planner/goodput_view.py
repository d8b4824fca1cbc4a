"""How does a person read the goodput of a run? A headline, the figures, where the time goes, and what was asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from planner import human
from planner.goodput import Goodput
from planner.text_blocks import bar, grid, headline, sentences, title
from simulator.run_kernel import MAX_FAILURES

if TYPE_CHECKING:
    from rich.console import Console

_BUCKET_WORDS = {
    "productive_s": "work that counts",
    "checkpoint_stall_s": "standing still for saves",
    "checkpoint_tax_s": "slowed down by saves",
    "backpressure_wait_s": "waiting for earlier saves",
    "lost_work_s": "work lost and done again",
    "restart_s": "restarts",
}
_UNITLESS = ("slots", "policy", "num_replications", "seed")
_DIGITS = 5
_NEVER = f"none; {human.count(MAX_FAILURES)} failures do not end a run"


def show_goodput(answer: Goodput, console: Console) -> None:
    """Writes the whole answer."""
    never = answer.wall_time_s is None
    found = _NEVER if never else _percent(answer.goodput)
    headline(console, f"Goodput: {found}", is_good=not never)
    grid(console, _figures(answer))
    if answer.ledger and answer.wall_time_s:
        title(console, f"where the time goes: {human.duration(answer.wall_time_s)} on average")
        grid(console, _ledger(console, answer.ledger, answer.wall_time_s))
    title(console, "what was asked")
    grid(console, _inputs(answer))
    if answer.inputs.interval_s == answer.optimal_interval_s:
        sentences(console, ["The interval is the best one for a long run."])


def _figures(answer: Goodput) -> Iterator[tuple[str, str]]:
    spread = answer.percentiles
    if answer.goodput_standard_error is not None:
        yield "standard error of the mean", f"{answer.goodput_standard_error * 100:.2g} %"
    yield "percentiles 5, 50, 95", ", ".join(_percent(value) for value in (spread.p5, spread.p50, spread.p95))
    yield "closed form", _percent(answer.expected_goodput)
    best_s = human.duration(answer.optimal_interval_s)
    yield "best interval", f"{best_s}, with {_percent(answer.optimal_goodput)} by the closed form"
    if answer.num_failures is not None:
        yield "failures", f"{human.digits(answer.num_failures)} in each of {_replications(answer)}"


def _replications(answer: Goodput) -> str:
    count = answer.inputs.num_replications
    return f"{human.count(count)} replication{'s' if count > 1 else ''}"


def _ledger(console: Console, ledger: dict[str, float], wall_s: float) -> Iterator[tuple[str, ...]]:
    for name, value in sorted(ledger.items(), key=lambda part: -part[1]):
        if value > 0:
            share = value / wall_s
            yield _BUCKET_WORDS[name], human.duration(value), _percent(share), bar(console, share)


def _inputs(answer: Goodput) -> Iterator[tuple[str, str]]:
    for name, value in answer.inputs:
        words = human.words(name).removesuffix(" fraction").replace("num ", "")
        if name in _UNITLESS:
            yield words, str(value)
        elif name == "tax_fraction":
            yield words, human.percent(value)
        else:
            exact = f"{value:,.6g} s"
            spoken = human.duration(value)
            yield words, f"{spoken} ({exact})" if spoken != exact and value > 0 else exact


def _percent(fraction: float) -> str:
    return f"{human.digits(fraction * 100, significant=_DIGITS)} %"
