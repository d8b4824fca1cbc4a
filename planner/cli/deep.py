"""What do you type to play one plan at the deep depth? The options of `capplan simulate --depth deep`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options.gathered import gathered
from planner.cli.options.given import KINDS, is_given
from planner.cli.options.network import collectives_option, slow_link_option
from planner.cli.options.rank_factors import speeds_over
from planner.cli.options.shared import PlannedJob

if TYPE_CHECKING:
    from planner.deep.answer import DeepRequest
    from simulator.deep.plans.plan_cluster import Faults
    from simulator.domain.job import Job
    from simulator.domain.plan import Plan

FAST, DEEP = DEPTHS = ("fast", "deep")
LINK_KINDS = ("scale-up", "card", "leaf")
"""The values of `simulator.deep.plans.plan_cluster.LinkKind`, which is too slow to import for `--help`."""


def _file_of_network(_context: click.Context, _option: click.Parameter, value: Path | None) -> Path | None:
    if value is None or str(value) not in KINDS or value.exists():
        return value
    raise click.BadParameter(
        f"{str(value)!r} must be a network file, such as rails.yaml (docs/network-file.md): words are for traces"
    )


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
        help="Deep: relative speed of an accelerator, such as 3=0.8; may be repeated.",
    ),
    slow_link_option(
        "Deep: remaining bandwidth of a link: scale-up:3, card:3 of an accelerator, leaf:0 to the spine; with --network"
        " its links, as in gpu:3-switch:0; may be repeated."
    ),
    click.option(
        "--network",
        "network_file",
        type=click.Path(path_type=Path),
        callback=_file_of_network,
        metavar="FILE",
        help="Deep: play every message on the network of this file (docs/network-file.md), not on that of the offer.",
    ),
    collectives_option(
        "With --network: how collectives run; auto: the fastest of all below; nccl: of ring, tree and hierarchical."
    ),
    click.option("--unfolded", is_flag=True, help="Deep: play every message of every accelerator."),
)


@dataclass(frozen=True, kw_only=True)
class Deep:
    """The depth, and the settings of the deep one: the values of `deep_options`."""

    depth: str
    speeds: Mapping[int, float]
    """Speed factors of slower or faster accelerators, by rank."""
    slow_links: Mapping[str, float]
    """Remaining share of the bandwidth of degraded links, by link."""
    network_file: Path | None
    collectives: str
    unfolded: bool
    """Whether every message of every accelerator is simulated."""

    def request(self, plan: Plan | Mapping[str, object]) -> DeepRequest:
        """Returns the request for a plan.

        Raises:
            click.UsageError: a link does not exist in the offer's network.
            InputError: the network file is broken.
        """
        from planner.deep.answer import DeepRequest
        from planner.deep.network_file import load_network
        from simulator.deep.collectives.collective_forms import Algorithm
        from simulator.deep.plans.plan_cluster import Faults

        if self.network_file is None:
            if is_given("collectives"):
                raise click.UsageError(
                    "--collectives needs --network: on the network of the offer collectives that are alone take as long as "
                    "at the fast depth, by ring or tree, whichever is faster."
                )
            return DeepRequest(plan=plan, faults=self._faults(), is_folded=not self.unfolded)
        return DeepRequest(
            plan=plan,
            faults=Faults(speed=dict(self.speeds)),
            is_folded=False,
            network=load_network(self.network_file),
            slow_links=self.slow_links,
            algorithm=Algorithm(self.collectives),
        )

    def _faults(self) -> Faults:
        from simulator.deep.plans.plan_cluster import Faults, LinkKind

        shares: dict[str, dict[int, float]] = {kind: {} for kind in LINK_KINDS}
        for link, share in self.slow_links.items():
            parts = re.fullmatch(rf"({'|'.join(LINK_KINDS)}):(\d{{1,7}})", link, re.ASCII)
            if parts is None:
                rule = f"must be {', '.join(LINK_KINDS)} with a number, such as card:3; other links are named with --network"
                raise click.UsageError(f"--slow-link {link} {rule}")
            if int(parts[2]) in shares[parts[1]]:
                raise click.UsageError(f"--slow-link {link} is given a second share: give one")
            shares[parts[1]][int(parts[2])] = share
        return Faults(
            speed=dict(self.speeds),
            scale_up=shares[LinkKind.SCALE_UP.value],
            card=shares[LinkKind.CARD.value],
            leaf=shares[LinkKind.LEAF.value],
        )

    @property
    def is_asked(self) -> bool:
        """Whether the step is simulated at the deep depth."""
        return self.depth == DEEP

    def refuse(self) -> None:
        """Raises `click.UsageError` if an option was given that the fast depth does not have."""
        given = {
            "--speed": self.speeds,
            "--slow-link": self.slow_links,
            "--network": self.network_file,
            "--collectives": is_given("collectives"),
            "--unfolded": self.unfolded,
        }
        for option, value in given.items():
            if value:
                raise click.UsageError(f"{option} needs --depth deep.")


deep_options = gathered(_OPTIONS, "deep", Deep)
"""Adds the depth and the options of the deep one to a command, which receives them as `deep`."""


def refuse_run_options(planned: PlannedJob, *, no_sensitivities: bool) -> None:
    """Raises `click.UsageError` if options of a run were given to the deep depth, which simulates one step."""
    given = {
        "--scheme": planned.scheme,
        "--interval": planned.interval,
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
    deep: Deep,
    *,
    file: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Simulates a step, prints the answer, and writes its events if a file is named.

    Args:
        job: the job.
        plan: the decisions.
        deep: the network of the simulation, and what is slow in it.
        file: file for the events; none by default.
        as_json: whether the answer is printed as JSON.
        quiet: whether to hide progress.
    """
    from planner.cli.options.names import PLAN_FIELDS, options_named
    from planner.cli.terminal.output import quiet_libraries, tell, tell_timeline, working_deep
    from planner.deep.answer import simulate_deep
    from planner.deep.events import trace_entries
    from planner.deep.view import show_deep
    from planner.recommended.design_words import layout
    from planner.timeline.file import write_entries

    request = deep.request(plan)
    with quiet_libraries(), working_deep("playing the step", is_shown=not quiet), options_named(PLAN_FIELDS):
        run = simulate_deep(job, request, is_drawn=file is not None)
    answer = run.answer
    tell(answer, partial(show_deep, answer), as_json=as_json)
    if file is not None:
        about = {"job": answer.job, "plan": layout(answer.plan)}
        write_entries(file, about, trace_entries(run, run.rows), option="--timeline")
        tell_timeline(file)
