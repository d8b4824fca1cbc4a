"""How close does our pipeline come to the slow-downs that were published with three traced training jobs?

    python -m benchmarks.straggler_traces --traces DIR

DIR holds the traces that ByteDance released with "Understanding Stragglers in Large Model Training Using What-if Analysis"
(arXiv 2505.05713; github.com/ByteDance-Seed/StragglerAnalysis, Apache-2.0). Every replica of every step is played from the
durations of its forwards and backwards alone; a step ends with the slowest replica and the collectives that follow. In the
ideal step, every duration is its mean over replicas, stages and steps, and every collective is at its median.

With --write it also rewrites the tables that capplan ships, simulator/data/straggler_noise.csv and
straggler_sequence.csv, and the few steps in tests/simulator/data that the tests replay.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simulator.pipeline.shape import ONE_F_ONE_B
from simulator.stragglers.kernel import play_replicas

if TYPE_CHECKING:
    import pandas as pd

ROOT = Path(__file__).parents[1]
DATA, FIXTURE = ROOT / "simulator" / "data", ROOT / "tests" / "simulator" / "data"
SOURCE = "ByteDance-Seed/StragglerAnalysis (Apache-2.0)"
JOBS = {"AR": "slow worker", "SE": "uneven sequences", "ST": "uneven stages"}
NUM_FIXTURE_STEPS = {"AR": 4, "SE": 6, "ST": 32}
PERCENTILES = (0, 1, 2, 5, 10, 15, 25, 40, 50, 60, 75, 80, 85, 90, 95, 98, 99, 100)
COLLECTIVES = {
    "params-all-gather": ["stage"],
    "embedding-grads-all-reduce": ["dp_rank"],
    "grads-reduce-scatter": ["stage"],
    "optimizer-clip-main-grad": [],
}
"""Collectives of a step outside the pipeline, and what the ranks that wait for each other have in common."""
MEAN = "mean"
"""What replaces the step number in the rows of a fixture that hold the ideal durations."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Steps of one traced job; s steps, D replicas, p stages, m micro-batches."""

    name: str
    steps: tuple[int, ...]
    forward_s: Floats
    """`(s, D, p, m)` durations of forwards."""
    backward_s: Floats
    """`(s, D, p, m)` durations of backwards."""
    ideal_forward_s: Floats
    """`(m,)` forward of each micro-batch, the mean over replicas, stages and all steps of the trace."""
    ideal_backward_s: Floats
    """`(m,)` the same of its backward."""
    send_s: float
    """Median transfer between two stages."""
    rest_s: Floats
    """`(s,)` collectives and optimizer outside the pipeline."""
    ideal_rest_s: float
    """The same, each at its median over all steps."""
    published_s: Floats
    """`(s,)` the step as the authors replay it."""
    published_ideal_s: float
    """The step as they replay it with every operation equalised."""

    @property
    def published_slowdown(self) -> float:
        """Slow-down S of these steps according to the authors."""
        return float(self.published_s.mean() / self.published_ideal_s)

    @property
    def slowdown(self) -> float:
        """Slow-down S of our own replay."""
        return float(self.step_s().mean() / self.ideal_step_s())

    def step_s(self) -> Floats:
        """Replays every step, `(s,)`."""
        return self._slowest_replica_s(self.forward_s, self.backward_s) + self.rest_s

    def ideal_step_s(self) -> float:
        """Replays the step without stragglers."""
        one_replica = (1, 1, *self.forward_s.shape[2:])
        means = (self.ideal_forward_s, self.ideal_backward_s)
        forward_s, backward_s = (np.broadcast_to(mean, one_replica) for mean in means)
        return float(self._slowest_replica_s(forward_s, backward_s)[0]) + self.ideal_rest_s

    def _slowest_replica_s(self, forward_s: Floats, backward_s: Floats) -> Floats:
        num_steps, num_replicas, num_stages, num_micro_batches = forward_s.shape
        flat = (num_steps * num_replicas, num_stages, num_micro_batches)
        forwards, backwards = (
            np.ascontiguousarray(values.reshape(flat)) for values in (forward_s, backward_s)
        )
        end_s = play_replicas(num_stages, self.send_s, forwards, backwards, ONE_F_ONE_B, 0.0, 0).max(axis=1)
        return np.asarray(end_s.reshape(num_steps, num_replicas).max(axis=1))

    def sample(self, num_steps: int) -> Trace:
        """Returns evenly spaced steps as a trace."""
        rows = np.linspace(0, len(self.steps) - 1, num_steps).round().astype(int)
        return replace(
            self,
            steps=tuple(self.steps[row] for row in rows),
            forward_s=self.forward_s[rows],
            backward_s=self.backward_s[rows],
            rest_s=self.rest_s[rows],
            published_s=self.published_s[rows],
        )


def read_trace(folder: Path, name: str) -> Trace:
    """Reads one released trace and what was published with it."""
    import pandas as pd

    operations = pd.read_parquet(folder / f"trace-{name}.parquet")
    operations["end_ts"] = operations.start_ts + operations.duration
    published = json.loads((folder / f"result-{name}.json").read_text(encoding="utf-8"))
    steps = tuple(int(step) for step in np.unique(operations.step))
    rests_s, ideal_rest_s = _rests(operations)
    forward_s, backward_s = _durations(operations, "forward"), _durations(operations, "backward")
    return Trace(
        name=name,
        steps=steps,
        forward_s=forward_s,
        backward_s=backward_s,
        ideal_forward_s=forward_s.mean(axis=(0, 1, 2)),
        ideal_backward_s=backward_s.mean(axis=(0, 1, 2)),
        send_s=_median_send_s(operations),
        rest_s=rests_s,
        ideal_rest_s=ideal_rest_s,
        published_s=np.array([published["step_t_nodelay"][str(step)] for step in steps]),
        published_ideal_s=float(np.mean(list(published["step_t_noblk"].values()))),
    )


def _durations(operations: pd.DataFrame, direction: str) -> Floats:
    """Durations of one direction, `(s, D, p, m)`."""
    chosen = operations[operations.optype == f"{direction}-compute"]
    keys = ["step", "dp_rank", "stage", "seq_id"]
    shape = [chosen[key].nunique() for key in keys]
    return np.asarray(chosen.sort_values(keys).duration, dtype=np.float64).reshape(shape)


def _median_send_s(operations: pd.DataFrame) -> float:
    """Median time from when both sides of a transfer between stages are ready to its end."""
    keys = ["step", "dp_rank", "stage", "seq_id"]
    columns = [*keys, "start_ts", "end_ts"]
    sends = operations.loc[operations.optype == "forward-send", columns].assign(
        stage=lambda rows: rows.stage + 1
    )
    receives = operations.loc[operations.optype == "forward-recv", columns]
    pairs = sends.merge(receives, on=keys)
    return float((pairs.end_ts_y - pairs[["start_ts_x", "start_ts_y"]].max(axis=1)).median())


def _rests(operations: pd.DataFrame) -> tuple[Floats, float]:
    """Time outside the pipeline: of every step `(s,)`, and with every collective at its median.

    A collective moves data from when its last rank has come: what earlier ranks wait is the pipeline's doing.
    """
    optimizer_s = operations[operations.optype == "optimizer"].duration.mean()
    steps_s, ideal_s = optimizer_s, optimizer_s
    for kind, common in COLLECTIVES.items():
        ranks = operations[operations.optype == kind]
        all_there = ranks.groupby(["step", *common]).start_ts.transform("max")
        transfer_s = (ranks.end_ts - all_there).clip(lower=0)
        steps_s = steps_s + transfer_s.groupby(ranks.step).median()
        ideal_s += transfer_s.median()
    return np.asarray(steps_s, dtype=np.float64), float(ideal_s)


def noise_rows(trace: Trace) -> list[list[str]]:
    """Decomposes ln(duration) of the replicas that are not slow into stage, step, rank and what remains."""
    remains = {}
    rows = []
    for direction, durations in (("forward", trace.forward_s), ("backward", trace.backward_s)):
        logs = np.log(durations[:, _healthy(trace)])
        logs = logs - logs.mean(axis=(0, 1, 3), keepdims=True)
        step = logs.mean(axis=(1, 2, 3), keepdims=True)
        rank = (logs - step).mean(axis=(0, 3), keepdims=True)
        remains[direction] = rest = logs - step - rank
        rank_deviation = rank.std(ddof=1) if rank.size > 1 else 0.0
        deviations = (step.std(), rank_deviation, rest.std(), _correlation(rest[:, :, 0], rest[:, :, -1]))
        rows.append([trace.name, JOBS[trace.name], direction, *(f"{value:.4f}" for value in deviations)])
    both = _correlation(remains["forward"], remains["backward"])
    return [[*row, f"{both:.4f}", SOURCE] for row in rows]


def _healthy(trace: Trace) -> npt.NDArray[np.bool_]:
    """Replicas without a stage that is at least one and a half times as slow as the stage's median."""
    means = trace.forward_s.mean(axis=(0, 3))
    return np.asarray((means < 1.5 * np.median(means, axis=0)).all(axis=1))


def _correlation(one: Floats, other: Floats) -> float:
    return float(np.corrcoef(one.ravel(), other.ravel())[0, 1])


def sequence_rows(trace: Trace) -> list[list[str]]:
    """Percentiles of a micro-batch's duration over the mean of its stage."""
    relative = [
        durations / durations.mean(axis=(0, 1, 3), keepdims=True)
        for durations in (trace.forward_s, trace.backward_s)
    ]
    quantiles = [np.percentile(values, PERCENTILES) for values in relative]
    return [
        [str(percentile), f"{forward:.4f}", f"{backward:.4f}", SOURCE]
        for percentile, forward, backward in zip(PERCENTILES, *quantiles, strict=True)
    ]


def _write(path: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)


def write_tables(traces: Sequence[Trace]) -> None:
    """Rewrites the tables that capplan ships."""
    noise = ("job", "cause", "direction", "step", "rank", "micro_batch")
    correlations = ("correlation_of_first_and_last_stage", "correlation_of_directions", "source")
    noise_lines = [row for trace in traces for row in noise_rows(trace)]
    _write(DATA / "straggler_noise.csv", (*noise, *correlations), noise_lines)
    uneven = next(trace for trace in traces if trace.name == "SE")
    head = ("percentile", "forward", "backward", "source")
    _write(DATA / "straggler_sequence.csv", head, sequence_rows(uneven))


def write_fixture(traces: Sequence[Trace]) -> None:
    """Writes a few steps of each trace in whole microseconds."""
    FIXTURE.mkdir(exist_ok=True)
    steps = []
    for trace in (trace.sample(NUM_FIXTURE_STEPS[trace.name]) for trace in traces):
        shared = [_us(trace.send_s), _us(trace.ideal_rest_s), _us(trace.published_ideal_s)]
        for step, rest_s, published_s in zip(trace.steps, trace.rest_s, trace.published_s, strict=True):
            steps.append([trace.name, step, _us(rest_s), _us(published_s), *shared])
        ideals = (("forward", trace.ideal_forward_s), ("backward", trace.ideal_backward_s))
        durations: list[list[object]] = [
            [MEAN, "", "", direction, *(_us(value) for value in values)] for direction, values in ideals
        ]
        durations += [
            [step, replica, stage, direction, *(_us(value) for value in values[index, replica, stage])]
            for index, step in enumerate(trace.steps)
            for replica, stage in np.ndindex(trace.forward_s.shape[1:3])
            for direction, values in (("forward", trace.forward_s), ("backward", trace.backward_s))
        ]
        micro_batches = [f"micro_batch_{index}" for index in range(trace.forward_s.shape[3])]
        head = ["step", "replica", "stage", "direction", *micro_batches]
        _write(FIXTURE / f"straggler_{trace.name}.csv", head, durations)
    columns = ("job", "step", "rest_us", "published_us", "send_us", "ideal_rest_us", "published_ideal_us")
    _write(FIXTURE / "straggler_steps.csv", columns, steps)


def read_fixture(name: str) -> Trace:
    """Reads the steps of one job that `write_fixture` wrote."""
    with (FIXTURE / "straggler_steps.csv").open(encoding="utf-8", newline="") as file:
        steps = [row for row in csv.DictReader(file) if row["job"] == name]
    with (FIXTURE / f"straggler_{name}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    num_replicas = max(int(row["replica"]) for row in rows if row["step"] != MEAN) + 1

    def durations_s(direction: str, *, is_mean: bool = False) -> Floats:
        own = [row for row in rows if row["direction"] == direction and (row["step"] == MEAN) == is_mean]
        return np.array([list(row.values())[4:] for row in own], dtype=np.float64) / 1e6

    def by_step(durations: Floats) -> Floats:
        return durations.reshape(len(steps), num_replicas, -1, durations.shape[1])

    return Trace(
        name=name,
        steps=tuple(int(row["step"]) for row in steps),
        forward_s=by_step(durations_s("forward")),
        backward_s=by_step(durations_s("backward")),
        ideal_forward_s=durations_s("forward", is_mean=True)[0],
        ideal_backward_s=durations_s("backward", is_mean=True)[0],
        send_s=float(steps[0]["send_us"]) / 1e6,
        rest_s=np.array([float(row["rest_us"]) for row in steps]) / 1e6,
        ideal_rest_s=float(steps[0]["ideal_rest_us"]) / 1e6,
        published_s=np.array([float(row["published_us"]) for row in steps]) / 1e6,
        published_ideal_s=float(steps[0]["published_ideal_us"]) / 1e6,
    )


def _us(seconds: float) -> int:
    return round(float(seconds) * 1e6)


def main() -> None:
    """Prints slow-downs; with --write, rewrites tables and fixture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=Path, required=True, help="folder of the released traces")
    parser.add_argument("--write", action="store_true", help="rewrite the shipped tables and the fixture")
    options = parser.parse_args()
    traces = [read_trace(options.traces, name) for name in JOBS]
    print("job  cause             steps  step (s)  ideal (s)  slow-down  published   error")
    for trace in traces:
        slowdown, published = trace.slowdown, trace.published_slowdown
        print(
            f"{trace.name:4} {JOBS[trace.name]:17} {len(trace.steps):5d}  {trace.step_s().mean():8.3f}"
            f"  {trace.ideal_step_s():9.3f}  {slowdown:9.3f}  {published:9.3f}  {slowdown / published - 1:+.1%}"
        )
    if options.write:
        write_tables(traces)
        write_fixture(traces)


if __name__ == "__main__":
    main()
