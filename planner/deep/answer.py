"""What does the deep depth say about one plan? The answer of `capplan simulate --depth deep`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from planner import __version__
from planner.deep.events import check_size
from planner.deep.played_step import SMALLEST_FRACTION, HotLink, StepRun, hot_links
from planner.deep.words import (
    PlayedAccelerators,
    differences_in_words,
    faults_in_words,
    network_in_words,
    slow_links_in_words,
    waits_in_words,
)
from planner.explain.runnable_plan import checked_plan
from planner.input.arguments import check_kind, check_mapping
from planner.input.given import valid_job
from planner.timeline.file import TIMELINE
from simulator.catalog import catalog_hash
from simulator.deep.collectives.collective_forms import Algorithm
from simulator.deep.networks.described_network import NodesNetwork
from simulator.deep.networks.network_file import NetworkFile
from simulator.deep.networks.slow_links import shares_left, slowed
from simulator.deep.networks.topology import Topology
from simulator.deep.plans.plan_breakdown import PlanBreakdown, plan_breakdown
from simulator.deep.plans.plan_cluster import Faults
from simulator.deep.plans.plan_on_network import plan_on
from simulator.deep.plans.plan_on_nodes import plan_on_nodes, regular_nodes
from simulator.deep.plans.plan_step import MOST_UNFOLDED, PlanStep, plan_step
from simulator.deep.playing.waits import of_stages
from simulator.domain.job import Job
from simulator.domain.plan import Plan
from simulator.record import Record
from simulator.step.step import STEP_PARTS
from simulator.table import Floats, Integers

ROUNDING_FRACTION = 1e-8
"""A part below this share of the step is a rounding error of differences between equal times."""


class DeepPart(Record):
    """One part of the step at both depths, for the average accelerator."""

    name: str
    """As in the [breakdown of a step](answer.md#design), such as `tensor_comm_s`."""
    fast_s: float
    """Time at the fast depth."""
    deep_s: float
    """Time at the deep depth. Waits for traffic between replicas count here wherever they occur; the fast depth counts how much
    longer they make the step."""


class DeepRole(Record):
    """How one played accelerator spends a step; the parts sum to the step."""

    accelerator: int
    """Its number; tensor ranks vary fastest, then context, data and pipeline ranks."""
    stage: int
    """Pipeline stage, from 0."""
    stands_for: int
    """Number of accelerators of its stage that do the same at the same time, itself included."""
    speed: float
    """Its speed relative to the usual one."""
    seconds: dict[str, float]
    """How it spends the step, named as in `parts`."""
    waits_for_s: dict[str, float]
    """How long it waits for others to compute, by played accelerator; only the longest waits."""


class DeepStep(Record):
    """One step of a plan, operator by operator and message by message."""

    schema_version: int = 1
    """Version of this form; increases when a field is removed or changes its meaning."""
    capplan_version: str
    """Version of capplan that simulated the step."""
    catalog_hash: str
    """Hash of the content of the catalogue that was used."""
    job: str
    """Name of the job."""
    model: str = ""
    """Name of the model, with what the job changes of a known one."""
    plan: Plan
    """The decisions, with defaults filled in."""
    step_time_s: float
    """From the first operator to the last weight update."""
    fast_step_time_s: float
    """Step at the fast depth, with nothing slow."""
    difference_fraction: float
    """Difference of the deep depth from the fast one, relative to the fast one."""
    shared_links_s: float
    """How much longer the step is because flows share links."""
    slow_parts_s: float
    """How much longer it is because of slow parts, including slow links of the network file; 0 where nothing is slow."""
    differences: tuple[str, ...]
    """Why the depths differ, in sentences."""
    parts: tuple[DeepPart, ...]
    """How the average accelerator spends the step; the parts of each depth sum to its step."""
    waits: tuple[str, ...]
    """Who waits for whom, in sentences."""
    hot_links: tuple[HotLink, ...]
    """The links that are waited for longest, at most 10. Their bytes include what is lost to limited efficiency; their waits
    are those of the played accelerators."""
    roles: tuple[DeepRole, ...]
    """The accelerators that were played."""
    slow: tuple[str, ...]
    """What is slow, in words; for links, the share that the network file and the request leave together."""
    network: str | None = None
    """Name of the network file on which the step was played; `null`: the network of the offer."""
    is_folded: bool
    """Whether accelerators that do the same were played once."""
    num_tasks: int
    """Number of operators and flows that were played."""
    warnings: tuple[str, ...] = ()
    """Limits that the plan breaks, a sentence each."""


@dataclass(frozen=True, kw_only=True)
class DeepRequest:
    """A request to simulate one plan at the deep depth."""

    plan: Plan | Mapping[str, object]
    """The decisions; the short names of the command line are allowed."""
    faults: Faults = field(default_factory=Faults)
    """What is slow."""
    is_folded: bool = True
    """Whether accelerators that do the same are played once; on a user-defined network only plans that are too large are."""
    network: NetworkFile | None = None
    """The network of the accelerators; `None`: that of the offer."""
    slow_links: Mapping[str, float] = field(default_factory=dict)
    """Share of bandwidth that links of `network` keep, on top of the file's own shares; links of the offer are in `faults`."""
    algorithm: Algorithm = Algorithm.AUTO
    """Algorithm of collectives on `network`."""

    def __post_init__(self) -> None:
        """Raises `InputError` for a value of the wrong type."""
        check_kind(
            self.faults, "faults", Faults, "must be a record of Faults, such as Faults(speed={5: 0.9})"
        )
        if self.network is not None:
            check_kind(
                self.network, "network", NetworkFile, "must be a network, such as load_network returns"
            )
        check_mapping(self.slow_links, "slow_links", 'must be a mapping, such as {"gpu:0-gpu:1": 0.25}')
        check_kind(self.algorithm, "algorithm", Algorithm, "must be an Algorithm, such as Algorithm.RING")

    def play(self, job: Job, plan: Plan, *, is_usual: bool = False) -> PlanStep:
        """Returns the step of a checked plan; with `is_usual`, nothing in it is slow. Its `played` plays it."""
        faults = Faults() if is_usual else self.faults
        if self.network is None:
            return plan_step(job, plan, faults=faults, is_folded=self.is_folded)
        nodes = self._regular_nodes()
        if nodes is not None and plan.num_gpus > MOST_UNFOLDED:
            return plan_on_nodes(job, plan, nodes, faults=faults)
        topology = self.network.without_slow_links.build() if is_usual else self._topology(self.network)
        return plan_on(job, plan, topology, faults=faults, algorithm=self.algorithm)

    def _topology(self, network: NetworkFile) -> Topology:
        return slowed(network.build(), self.slow_links)

    @property
    def has_faults(self) -> bool:
        """Whether anything is slow."""
        return self.faults != Faults() or bool(self.names_of_slow_links)

    @property
    def names_of_slow_links(self) -> tuple[str, ...]:
        """Links of `network` that the file or the request makes slow."""
        return (*self.network.slow_links, *self.slow_links) if self.network is not None else ()

    def slow_in_words(self) -> Iterator[str]:
        """Yields what is slow; for links, the share that file and request leave together."""
        yield from faults_in_words(self.faults)
        if self.network is not None and (names := self.names_of_slow_links):
            yield from slow_links_in_words(shares_left(self._topology(self.network), names))

    def _regular_nodes(self) -> NodesNetwork | None:
        """The nodes of the network, if many of them can be played as one."""
        is_plain = self.algorithm is Algorithm.NCCL and not self.slow_links
        return regular_nodes(self.network) if self.network is not None and is_plain else None


@dataclass(frozen=True, kw_only=True)
class DeepRun(StepRun):
    """A played plan with everything that is known about it."""

    answer: DeepStep
    rows: tuple[str, ...]
    """Names of the played accelerators."""


def simulate_deep(job: Job, request: DeepRequest, *, is_drawn: bool = False) -> DeepRun:
    """Plays one step of a plan at the deep depth.

    Args:
        job: the job.
        request: the plan, and how it is played.
        is_drawn: whether a timeline will be drawn.

    Raises:
        InputError: the layout cannot run, what is slow does not exist, or the step is too large to be drawn.

    Example:
        >>> from planner import load_job
        >>> bloom = {"tp": 4, "pp": 12, "dp": 8, "mbs": 2, "recompute": "full"}
        >>> run = simulate_deep(load_job("examples/bloom-176b.yaml"), DeepRequest(plan=bloom))
        >>> len(run.answer.roles), abs(run.answer.difference_fraction) < 0.02
        (12, True)
    """
    check_kind(request, "request", DeepRequest, 'must be a DeepRequest, such as DeepRequest(plan={"tp": 8})')
    job = valid_job(job)
    plan, broken = checked_plan(job, request.plan)
    step = request.play(job, plan)
    if is_drawn:
        check_size(step.graph, TIMELINE)
    return DeepRun(
        answer=_answer(job, plan, request, step).model_copy(update={"warnings": broken}),
        graph=step.graph,
        topology=step.topology,
        paths=step.paths,
        played=step.played,
        rows=accelerator_names(step),
    )


def accelerator_names(step: PlanStep) -> tuple[str, ...]:
    """Returns the names of the played accelerators: their stage, and their number where a stage has several."""
    if step.roles.ranks.shape[1] == 1:
        return tuple(f"stage {stage}" for stage in range(step.roles.num_played))
    return tuple(
        f"stage {stage}, accelerator {rank}" for stage, ranks in enumerate(step.roles.ranks) for rank in ranks
    )


def _answer(job: Job, plan: Plan, request: DeepRequest, step: PlanStep) -> DeepStep:
    usual = request.play(job, plan, is_usual=True) if request.has_faults else step
    found, names = plan_breakdown(step), accelerator_names(step)
    parts, weights = _parts(step, found), _stands_for(step)
    played = PlayedAccelerators(
        names=names, stages=of_stages(len(names), step.cluster.num_stages), weights=weights
    )
    fast_s = float(step.fast.step_time_s[0])
    shared_s, slow_s = step.step_time_s - step.unshared_step_time_s, step.step_time_s - usual.step_time_s
    differences = differences_in_words(
        {part.name: part.deep_s - part.fast_s for part in parts},
        plan,
        step_s=(step.step_time_s, fast_s),
        shared_s=shared_s,
        slow_s=slow_s,
    )
    return DeepStep(
        capplan_version=__version__,
        catalog_hash=catalog_hash(),
        job=job.name,
        model=job.workload.model.name,
        plan=plan,
        step_time_s=step.step_time_s,
        fast_step_time_s=fast_s,
        difference_fraction=step.step_time_s / fast_s - 1.0,
        shared_links_s=shared_s,
        slow_parts_s=slow_s,
        differences=_of_network(request, step, tuple(differences)),
        parts=parts,
        waits=tuple(waits_in_words(found, played, plan, step.step_time_s)),
        hot_links=hot_links(step.topology, step.paths, step.played, found.path_s),
        roles=_roles(step, found, names),
        slow=tuple(request.slow_in_words()),
        network=request.network.name if request.network else None,
        is_folded=step.roles.is_folded,
        num_tasks=len(step.graph),
    )


def _of_network(request: DeepRequest, step: PlanStep, differences: tuple[str, ...]) -> tuple[str, ...]:
    """Why the depths differ; on a user-defined network this includes how it differs from that of the offer."""
    if request.network is None:
        return differences
    told = network_in_words(request.network.build(), is_folded=step.roles.is_folded)
    return (*differences[:1], *told)


def _stands_for(step: PlanStep) -> Integers:
    """Returns how many accelerators each played one stands for, `(r,)`."""
    return np.tile(step.roles.counts, step.cluster.num_stages)


def _parts(step: PlanStep, found: PlanBreakdown) -> tuple[DeepPart, ...]:
    mean_s = _stands_for(step) @ found.seconds / step.cluster.num_gpus
    fast_s = np.array([float(getattr(step.fast, name)[0]) for name in STEP_PARTS])
    told = (_without_rounding(seconds, step) for seconds in (fast_s, mean_s))
    return tuple(
        DeepPart(name=name, fast_s=fast, deep_s=deep)
        for name, fast, deep in zip(STEP_PARTS, *told, strict=True)
    )


def _without_rounding(seconds: Floats, step: PlanStep) -> list[float]:
    """Returns the parts of a step, with rounding errors of differences between equal times set to 0."""
    told: list[float] = np.where(
        np.abs(seconds) < ROUNDING_FRACTION * step.step_time_s, 0.0, seconds
    ).tolist()
    return told


def _roles(step: PlanStep, found: PlanBreakdown, names: tuple[str, ...]) -> tuple[DeepRole, ...]:
    num_roles = step.roles.ranks.shape[1]
    roles = []
    for row, name in enumerate(names):
        stage, role = divmod(row, num_roles)
        waits = dict(zip(names, found.waited_for_s[row].tolist(), strict=True))
        longest = sorted((other for other in waits if other != name), key=lambda other: -waits[other])[:3]
        roles.append(
            DeepRole(
                accelerator=int(step.roles.ranks[stage, role]),
                stage=stage,
                stands_for=int(step.roles.counts[role]),
                speed=float(step.roles.speed[stage, role]),
                seconds=dict(zip(STEP_PARTS, _without_rounding(found.seconds[row], step), strict=True)),
                waits_for_s={
                    other: waits[other]
                    for other in longest
                    if waits[other] > SMALLEST_FRACTION * step.step_time_s
                },
            )
        )
    return tuple(roles)
