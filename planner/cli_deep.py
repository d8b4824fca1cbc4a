"""What do you type to play one plan at the deep depth? The options of `capplan simulate --depth deep`.

Only click is imported here; everything heavier waits until the command runs, as in `planner.cli`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from planner.given_options import is_given
from planner.rank_factors import FACTOR, speeds_over

if TYPE_CHECKING:
    from planner.interval_text import Interval
    from simulator.deep.plan_cluster import Faults
    from simulator.job import Job
    from simulator.plan import Plan

FAST, DEEP = DEPTHS = ("fast", "deep")
LINK_KINDS = ("scale-up", "card", "leaf")
"""`simulator.deep.plan_cluster.LinkKind`, which is too heavy to be imported for `--help`."""
_Command = TypeVar("_Command", bound=Callable[..., Any])


def _links(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> dict[tuple[str, int], float]:
    """Returns `KIND:NUMBER=SHARE` as kind, number and share."""
    found = {}
    for value in values:
        parts = re.fullmatch(rf"({'|'.join(LINK_KINDS)}):(\d{{1,7}})={FACTOR}", value, re.ASCII)
        if parts is None or not 0.0 < float(parts[3]) <= 1.0:
            rule = f"must be {', '.join(LINK_KINDS)} with a number and the share that is left, such as card:3=0.5"
            raise click.BadParameter(f"{value!r} {rule}")
        link = parts[1], int(parts[2])
        if link in found:
            raise click.BadParameter(f"{value!r} gives {parts[1]} {link[1]} a second share: give one")
        found[link] = float(parts[3])
    return found


_OPTIONS = (
    click.option(
        "--depth",
        type=click.Choice(DEPTHS),
        default=FAST,
        show_default=True,
        help="deep: play one step operator by operator and flow by flow.",
    ),
    click.option(
        "--speed",
        "speeds",
        multiple=True,
        callback=speeds_over("the usual one"),
        metavar="RANK=FACTOR",
        help="Deep: an accelerator slower or faster than the others; may be repeated.",
    ),
    click.option(
        "--slow-link",
        "slow_links",
        multiple=True,
        callback=_links,
        metavar="KIND:N=SHARE",
        help="Deep: what a link has left, scale-up or card of an accelerator, or leaf to the spine; may be repeated.",
    ),
    click.option("--unfolded", is_flag=True, help="Deep: play every message of every accelerator."),
)


def deep_options(command: _Command) -> _Command:
    """Adds the depth and what only the deep one knows to a command."""
    return reduce(lambda found, option: option(found), reversed(_OPTIONS), command)


def refuse_deep_options(
    speeds: Mapping[int, float], slow_links: Mapping[tuple[str, int], float], *, unfolded: bool
) -> None:
    """Raises `click.UsageError` where options of the deep depth were given to the fast one."""
    given = {"--speed": speeds, "--slow-link": slow_links, "--unfolded": unfolded}
    for option, value in given.items():
        if value:
            raise click.UsageError(f"{option} needs --depth deep.")


def refuse_run_options(scheme: str | None, interval: Interval | None, *, no_sensitivities: bool) -> None:
    """Raises `click.UsageError` where options of a run were given to the deep depth, which plays one step."""
    given = {
        "--scheme": scheme,
        "--interval": interval,
        "--no-sensitivities": no_sensitivities,
        "--seed": is_given("seed"),
    }
    for option, value in given.items():
        if value:
            raise click.UsageError(
                f"{option} is about the run, and --depth deep plays one step: leave it out."
            )


def play_deep(
    job: Job,
    plan: Plan | Mapping[str, object],
    *,
    speeds: Mapping[int, float],
    slow_links: Mapping[tuple[str, int], float],
    is_folded: bool,
    file: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Plays a step, prints the answer, and writes its events where they were asked for.

    Args:
        job: the job.
        plan: the decisions.
        speeds: of accelerators that are slower or faster.
        slow_links: shares that are left of links, by kind and number.
        is_folded: whether accelerators that do the same are played once.
        file: of the events; none by default.
        as_json: whether the answer is printed as JSON.
        quiet: whether no progress is shown.
    """
    from planner.cli_output import quiet_libraries, rendered, working, write
    from planner.deep_answer import DeepRequest, simulate_deep
    from planner.deep_view import show_deep
    from planner.design_view import layout
    from planner.timeline_file import write_entries
    from planner.trace_events import check_size, trace_entries

    request = DeepRequest(plan=plan, faults=_faults(speeds, slow_links), is_folded=is_folded)
    with quiet_libraries(), working("playing the step", is_shown=not quiet):
        run = simulate_deep(job, request)
    if file is not None:
        check_size(run, "--timeline")
    answer = run.answer
    write(answer.model_dump_json(indent=2) + "\n" if as_json else rendered(partial(show_deep, answer)))
    if file is not None:
        about = {"job": answer.job, "plan": layout(answer.plan)}
        write_entries(file, about, trace_entries(run, run.rows), option="--timeline")
        click.echo(f"Timeline: {file} (open it in ui.perfetto.dev or chrome://tracing)", err=True)


def _faults(speeds: Mapping[int, float], slow_links: Mapping[tuple[str, int], float]) -> Faults:
    from simulator.deep.plan_cluster import Faults, LinkKind

    def of(kind: LinkKind) -> dict[int, float]:
        return {number: share for (name, number), share in slow_links.items() if name == kind.value}

    return Faults(
        speed=dict(speeds), scale_up=of(LinkKind.SCALE_UP), card=of(LinkKind.CARD), leaf=of(LinkKind.LEAF)
    )
