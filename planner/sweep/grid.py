"""How do cluster size, checkpoint scheme and interval change a job? A grid of designs, each simulated in full.

For every combination of the axes and every size the layout of the shortest step is taken, and run under every scheme
and interval, so that the rows of one size differ only in how they save. Schemes that it cannot have run on the fastest layout
that can; those that no layout can have are named with the constraint that keeps them out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from constraints.evaluation import Evaluation, evaluate
from constraints.layout import LAYOUT_RULES, layout_excess
from planner.input.arguments import check_kind, path_given
from planner.input.record_input import Filed, read_record
from planner.job.file import load_job, parse_job
from planner.job.free_interval import without_interval
from planner.job.overrides import is_path
from planner.sweep.axis_values import Axes, AxisValues, assignments
from planner.sweep.fastest_layout import fastest_layout, with_fast_knobs, with_sizes
from simulator.domain.job import Job
from simulator.domain.limits import Limits
from simulator.domain.offer import MOST_GPUS
from simulator.domain.plan import CheckpointScheme, PlanTable
from simulator.errors import InputError, Problem

AUTO: Literal["auto"] = "auto"
HOST_MEMORY = "host_memory"
"""The constraint that saves violate if the host memory cannot hold them."""
UNUSED = ("name", "objectives", "preference", "what_if", "input_factors")
"""Fields of a job that change no figure of a sweep, in addition to what it replaces."""
MOST_POINTS = 100_000
"""Most combinations of axes and sizes; each searches all its layouts, so more would take days."""


class Sweep(Filed):
    """A grid of designs around one job."""

    name: str = Field(default="sweep", min_length=1, max_length=100)
    """Name of the sweep in reports; default: the name of the file."""
    job: str | dict[str, object]
    """A job as in a job file, or the path of one, relative to this file. Its limits are not applied."""
    axes: dict[str, tuple[object, ...]] = Field(default={})
    """Fields of the job, written as for `--set`, and the values that each one takes."""
    num_gpus: tuple[Annotated[PositiveInt, Field(le=MOST_GPUS)], ...] = Field(min_length=1)
    """Sizes of the cluster; every offer that has as many nodes is tried at every size."""
    checkpoint_schemes: tuple[CheckpointScheme, ...] = Field(min_length=1)
    """Checkpoint schemes."""
    calibration: str | None = None
    """Calibration file that replaces the job's own, relative to this file."""
    checkpoint_intervals_s: tuple[PositiveFloat | Literal["auto"], ...] = Field(default=(AUTO,), min_length=1)
    """Training time between saves; `auto`: the interval with the least loss, regardless of the job's interval."""

    @model_validator(mode="after")
    def _names_nothing_twice(self) -> Self:
        for name in ("num_gpus", "checkpoint_schemes", "checkpoint_intervals_s"):
            values = getattr(self, name)
            if twice := [value for place, value in enumerate(values) if value in values[:place]]:
                raise ValueError(f"{name} names {twice[0]} twice; once is enough")
        return self


@dataclass(frozen=True)
class SweepPoint:
    """One combination of the axes on one size of cluster."""

    axes: Mapping[str, object]
    """Values of the axes by field."""
    job: Job
    """The job with these values, with every offer at this size."""
    result: Evaluation | None
    """One row per interval and scheme that some layout supports, in the sweep's order; none if no layout fits."""
    broken: Mapping[CheckpointScheme, str] = field(default_factory=dict)
    """The other schemes, each with the constraint that rules out all layouts that fit."""
    elsewhere: frozenset[CheckpointScheme] = frozenset()
    """Schemes that run on another layout than the fastest of all, which does not support them."""


def load_sweep(path: str | Path) -> Sweep:
    """Returns the sweep in a YAML, JSON or TOML file.

    Raises:
        InputError: the file cannot be read, or breaks rules; all of them are in `problems`.
    """
    return read_record(Sweep, path, least="job, num_gpus and checkpoint_schemes")


def run_sweep(sweep: Sweep, folder: Path | None = None) -> Iterator[SweepPoint]:
    """Yields the results of every point, in the order of the axes, with sizes innermost.

    Args:
        sweep: the grid.
        folder: where the paths of the sweep start; left out: the folder of its file, else the current one.

    Raises:
        InputError: the job, or a value of an axis, breaks rules, which is told before anything is simulated as far as a
            value does so beside the first ones of all other axes; the grid is too large.
    """
    check_kind(sweep, "sweep", Sweep, "must be a Sweep, such as load_sweep returns")
    below = sweep.folder if folder is None else path_given(folder, "folder", "a folder")
    rule = "must be the path of a field of the job, such as workload.sequence_length or offers[0].accelerator"
    if wrong := [Problem(path="axes", value=name, rule=rule) for name in sweep.axes if not is_path(name)]:
        raise InputError(wrong, sweep.name)
    rule = "has no value to try; give some, or leave the axis out"
    if wrong := [
        Problem(path=f"axes.{name}", value="[]", rule=rule) for name in sweep.axes if not sweep.axes[name]
    ]:
        raise InputError(wrong, sweep.name)
    if sweep.calibration is not None and "calibration" in sweep.axes:
        rule = (
            f"stands beside calibration: {sweep.calibration}, which no point would use; leave one of them out"
        )
        raise InputError([Problem(path="axes.calibration", value="", rule=rule)], sweep.name)
    if num_points(sweep) > MOST_POINTS:
        rule = f"must make at most {MOST_POINTS:,} points with num_gpus; take values out"
        raise InputError([Problem(path="axes", value=f"{num_points(sweep):,} points", rule=rule)])
    tried, job_with = AxisValues(values=sweep.axes, source=sweep.name), partial(_job, sweep, below)
    tried.check(job_with, _counted)
    for values in product(*sweep.axes.values()):
        axes = dict(zip(sweep.axes, values, strict=True))
        job = tried.job(axes, job_with)
        _refuse_sizes(sweep, job)
        for num_gpus in sweep.num_gpus:
            sized = with_sizes(job, [num_gpus])
            yield _point(axes, sized, sweep)


def num_points(sweep: Sweep) -> int:
    """Returns how many points a sweep has: sizes times the values of its axes."""
    return len(sweep.num_gpus) * math.prod(len(values) for values in sweep.axes.values())


def _job(sweep: Sweep, folder: Path, axes: Axes) -> Job:
    overrides = assignments(axes)
    if sweep.calibration is not None:
        overrides.insert(0, f"calibration={json.dumps(str((folder / sweep.calibration).absolute()))}")
    if isinstance(sweep.job, str):
        job = load_job(folder / sweep.job, overrides)
    else:
        job = parse_job(sweep.job, name=sweep.name, folder=folder, source=sweep.name, overrides=overrides)
    # Every row names its interval, or asks for the one that loses least.
    return without_interval(job).model_copy(update={"limits": Limits()})


def _counted(job: Job) -> str:
    """What the designs of a sweep depend on, as text: the job without what a sweep replaces or leaves out."""
    return with_fast_knobs(with_sizes(job, [1])).model_dump_json(exclude=set(UNUSED))


def _refuse_sizes(sweep: Sweep, job: Job) -> None:
    """Raises `InputError` if no offer can have a size: whole nodes, and as many as there are."""
    problems = [
        Problem(path=f"num_gpus[{index}]", value=str(size), rule=rule)
        for index, size in enumerate(sweep.num_gpus)
        if (rule := _why_none_has(job, size))
    ]
    if problems:
        raise InputError(problems, sweep.name)


def _why_none_has(job: Job, size: int) -> str:
    """The rule by which no offer can have a size; empty if some offer can."""
    whole = [offer for offer in job.offers if size % offer.node.num_accelerators == 0]
    if not whole:
        nodes = sorted({offer.node.num_accelerators for offer in job.offers})
        near = {node * count for node in nodes for count in (size // node, size // node + 1)} - {0}
        nearest = ", ".join(map(str, sorted(near)))
        return (
            f"must be a multiple of a node's {' or '.join(map(str, nodes))} accelerators; nearest: {nearest}"
        )
    held = [offer.node.num_accelerators * (offer.max_nodes or size) for offer in whole]
    if max(held) < size:
        return f"must not exceed the accelerators that there are in the max_nodes of an offer: {max(held):,}"
    return ""


def _point(axes: Mapping[str, object], job: Job, sweep: Sweep) -> SweepPoint:
    """The fastest layout of a size for every scheme, under all intervals."""
    fastest = fastest_layout(job)
    if fastest is None:
        return SweepPoint(axes=axes, job=job, result=None)
    found = {scheme: _layout_or_rule(job, fastest, scheme) for scheme in sweep.checkpoint_schemes}
    plans = [
        _with_intervals(layout, scheme, sweep)
        for scheme in sweep.checkpoint_schemes
        if isinstance(layout := found[scheme], PlanTable)
    ]
    broken = {scheme: rule for scheme, rule in found.items() if isinstance(rule, str)}
    return SweepPoint(
        axes=axes,
        job=job,
        result=evaluate(job, PlanTable.concatenate([fastest.take(slice(0)), *plans])),
        broken=broken,
        elsewhere=frozenset(scheme for scheme in found if found[scheme] is not fastest) - broken.keys(),
    )


def _layout_or_rule(job: Job, fastest: PlanTable, scheme: CheckpointScheme) -> PlanTable | str:
    """The fastest layout that supports a scheme; if there is none, the name of the constraint that rules out all layouts.

    Args:
        job: the job.
        fastest: the fastest layout of all, whatever the scheme.
        scheme: how it is to save.
    """
    rule = _broken_rule(job, fastest, scheme)
    layout = fastest_layout(job, scheme) if rule else fastest
    if layout is None:
        return rule
    if evaluate(job, layout.saving_by(scheme)).excess.host_memory[0] == 0.0:
        return layout
    layout = fastest_layout(job, scheme, fits_hosts=True)
    return HOST_MEMORY if layout is None else layout


def _broken_rule(job: Job, layout: PlanTable, scheme: CheckpointScheme) -> str:
    """Name of the rule that prevents a layout, one row, from using a scheme; empty for none."""
    excess = layout_excess(job, layout.saving_by(scheme))[0]
    return next((rule.name for rule, far in zip(LAYOUT_RULES, excess, strict=True) if far > 0.0), "")


def _with_intervals(layout: PlanTable, scheme: CheckpointScheme, sweep: Sweep) -> PlanTable:
    intervals_s = [np.nan if each == AUTO else float(each) for each in sweep.checkpoint_intervals_s]
    rows = layout.take(np.zeros(len(intervals_s), dtype=np.intp))
    return replace(rows.saving_by(scheme), checkpoint_interval_s=np.array(intervals_s))
