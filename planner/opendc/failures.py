"""What does an OpenDC failure trace say about a cluster? How often a job on it is stopped, and how regularly.

OpenDC plays a trace on a cluster of n hosts: after each interval, round(n x intensity) of them go down for the duration.
A job that uses all hosts stops whenever that number is at least one, so the same trace means different things for different n.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from planner.opendc.files import FAILURES, broken, read_numbers
from simulator.domain.reliability import (
    GPUS_PER_COUNTED_NODE,
    LEAST_SHAPE,
    MOST_FAILURES,
    MOST_SHAPE,
    Reliability,
)
from simulator.record import Record
from simulator.table import Floats
from simulator.units import DAY, MILLISECOND


class TracedFailures(Record):
    """A failure trace as values of a job's `reliability`."""

    schema_version: int = 1
    """Version of this form; increases when a field is removed or changes its meaning."""
    num_nodes: int
    """Nodes of the cluster on which it is played."""
    num_rows: int
    """Failures in the trace."""
    num_stops: int
    """Failures that hit a node of this cluster."""
    span_days: float
    """From the start of the trace to its last failure."""
    failures_per_1000_node_days: float
    """Stops per thousand node-days of nodes with eight accelerators."""
    weibull_shape: float
    """Weibull shape of up-times with the spread of the trace; bounded to 0.3 to 5."""
    repair_days: float | None
    """Mean time until a node is back; null where the trace has none."""

    def reliability(self) -> Reliability:
        """Returns these values as a job's `reliability`, the others at their defaults."""
        return Reliability.model_validate(self.fields())

    def fields(self) -> dict[str, float]:
        """Returns what the trace says as fields of `reliability` in a job file."""
        known = {
            "failures_per_1000_node_days": self.failures_per_1000_node_days,
            "weibull_shape": self.weibull_shape,
        }
        return known if self.repair_days is None else {**known, "repair_days": self.repair_days}


def read_failures(file: Path, *, num_nodes: int, gpus_per_node: int = 8) -> TracedFailures:
    """Returns what a failure trace says about a job on a cluster.

    Args:
        file: a failure trace of OpenDC.
        num_nodes: nodes of the cluster, all of which the job takes.
        gpus_per_node: accelerators of a node.

    Raises:
        InputError: the file is broken, no failure hits such a cluster, or so many do that nothing could be trained.
    """
    columns = read_numbers(file, FAILURES)
    _check(columns, str(file))
    interval_s, duration_s = (
        columns[name] * MILLISECOND for name in ("failure_interval", "failure_duration")
    )
    intensity = columns["failure_intensity"]
    # Kotlin rounds halves up.
    stops = np.floor(num_nodes * intensity + 0.5) >= 1.0
    num_stops, span_s = int(stops.sum()), float(interval_s.sum())
    if num_stops < 2 or span_s == 0.0:
        rule = f"must hit {num_nodes} nodes at least twice, at different times; take more nodes, or a longer trace"
        raise broken("failures", str(num_stops), rule, str(file))
    up_times_s = np.diff(np.cumsum(interval_s)[stops], prepend=0.0)
    counted_nodes = num_nodes * gpus_per_node / GPUS_PER_COUNTED_NODE
    rate = 1000.0 * num_stops / (span_s / DAY) / counted_nodes
    if rate > MOST_FAILURES:
        rule = f"is more than {MOST_FAILURES:,} failures in 1,000 node-days; is it the trace of more nodes than {num_nodes}?"
        raise broken("failures", f"{rate:,.0f}", rule, str(file))
    repair_days = float(duration_s[stops].mean()) / DAY
    return TracedFailures(
        num_nodes=num_nodes,
        num_rows=len(interval_s),
        num_stops=num_stops,
        span_days=span_s / DAY,
        failures_per_1000_node_days=rate,
        weibull_shape=weibull_shape(up_times_s),
        repair_days=repair_days or None,
    )


def weibull_shape(up_times_s: Floats) -> float:
    """Returns the Weibull shape that has the coefficient of variation of a sample, within the bounds of `Reliability`.

    (standard deviation / mean)^2 = G(1 + 2/k) / G(1 + 1/k)^2 - 1, which falls as k grows.

    Args:
        up_times_s: `(n,)`, not all 0.
    """
    wanted = float(np.var(up_times_s) / np.mean(up_times_s) ** 2)
    low, high = LEAST_SHAPE, float(MOST_SHAPE)
    for _ in range(60):  # halves the bracket to the last bit
        middle = 0.5 * (low + high)
        spread = math.gamma(1.0 + 2.0 / middle) / math.gamma(1.0 + 1.0 / middle) ** 2 - 1.0
        low, high = (middle, high) if spread > wanted else (low, middle)
    return 0.5 * (low + high)


def _check(columns: Mapping[str, Floats], source: str) -> None:
    """Raises `InputError` for the first row that breaks the rules of OpenDC."""
    intensity = columns["failure_intensity"]
    for name, is_good, rule in (
        (
            "failure_interval",
            columns["failure_interval"] >= 0.0,
            "must be milliseconds since the failure before",
        ),
        ("failure_duration", columns["failure_duration"] >= 0.0, "must be milliseconds, not negative"),
        ("failure_intensity", (intensity > 0.0) & (intensity <= 1.0), "must lie in (0, 1]"),
    ):
        values = columns[name]
        wrong = np.flatnonzero(~(is_good & np.isfinite(values)))
        if wrong.size:
            raise broken(f"row {wrong[0] + 1}, {name}", f"{values[wrong[0]]:g}", rule, source)
