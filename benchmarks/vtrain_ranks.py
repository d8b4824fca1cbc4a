"""Which of vTrain's designs on several nodes is simulated as the faster one, and what determines how often this is right?

    python -m benchmarks.vtrain_ranks --measured training_runs.csv --vtrain FOLDER --write
    python -m benchmarks.vtrain_ranks --measured training_runs.csv --vtrain FOLDER --expected shared_card_fraction 0.354
    python -m benchmarks.vtrain_ranks --measured training_runs.csv --vtrain FOLDER --one-node-recompute none

Fits the constants of training as `benchmarks.fit_training` does and prints errors, rank correlations and regrets. Options
change the expectation of one constant, or simulate the rows of one node without recomputation. `--write` puts the tables into
docs/validation.md. Without the rows of one node, the fit is linearized around the constants of all rows, as it is without a
model or a source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.fit_training import UNKNOWNS, constants_of, constants_without, fitted, held_out, prior
from benchmarks.sheets import Sheet
from benchmarks.training_steps import log_errors, models_of, over_measured_steps, source_of, sources_of
from benchmarks.validate_steps import REPORT_FILE, with_tables
from planner.calibration.fitting import Prior
from planner.calibration.steps import MeasuredSteps
from planner.validation.comparison import rank_correlation
from simulator.domain.plan import Recompute
from simulator.table import Floats

NODES, ONE_NODE, HOST_BLOCKED = "vTrain multi", "vTrain single", "BigScience"
"""Sources of the fit: the designs that are ranked, and those that the same constants move most."""
FAR_FRACTION = 0.085
"""Designs simulated further below their measurement than this are counted separately."""
NUM_SAMPLES = 2000
SEED = 1


@dataclass(frozen=True, kw_only=True)
class RankedJob:
    """Designs measured for one job."""

    name: str
    measured_s: Floats
    """`(n,)`."""
    simulated_s: Floats

    @property
    def correlation(self) -> float:
        """Spearman's correlation of measured and simulated times."""
        return rank_correlation(self.measured_s, self.simulated_s)

    @property
    def regret_fraction(self) -> float:
        """Measured slow-down of the design simulated as fastest."""
        return float(self.measured_s[self.simulated_s.argmin()] / self.measured_s.min() - 1.0)

    @property
    def lead_fraction(self) -> float:
        """How much longer the second-fastest simulated step is than the fastest."""
        first_s, second_s = np.sort(self.simulated_s)[:2]
        return float(second_s / first_s - 1.0)

    @property
    def is_far(self) -> NDArray[np.bool_]:
        """Whether a design is simulated much too fast, `(n,)`."""
        return np.asarray(self.simulated_s < (1.0 - FAR_FRACTION) * self.measured_s)

    @property
    def far_share(self) -> float:
        """Share of such designs in the squared rank differences; 0 if there are none."""
        ranks = [np.argsort(np.argsort(times)) for times in (self.measured_s, self.simulated_s)]
        squares = (ranks[0] - ranks[1]) ** 2
        return float(squares[self.is_far].sum() / max(1, squares.sum()))

    def take(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> RankedJob:
        """Returns the job with a subset of its designs."""
        return replace(self, measured_s=self.measured_s[chosen], simulated_s=self.simulated_s[chosen])

    def exchanged(self) -> list[float]:
        """Returns the correlation after exchanging each pair of designs that are adjacent in simulation."""
        order, found = np.argsort(self.simulated_s), []
        for first, second in pairwise(order):
            times = self.simulated_s.copy()
            times[[first, second]] = times[[second, first]]
            found.append(rank_correlation(self.measured_s, times))
        return found


def jobs_of(steps: MeasuredSteps, errors: Floats) -> list[RankedJob]:
    """Returns the jobs of the designs on several nodes, with log errors `(n,)` of all steps."""
    is_of_nodes = sources_of(steps) == NODES
    names = np.array([f"{row['model']}, {row['num_gpus']} {row['accelerator']}" for row in steps.rows])
    found = []
    for name in np.unique(names[is_of_nodes]):
        chosen = is_of_nodes & (names == name)
        measured_s = steps.measured_s[chosen]
        simulated_s = measured_s * np.exp(errors[chosen])
        found.append(RankedJob(name=str(name), measured_s=measured_s, simulated_s=simulated_s))
    return found


def mean_correlation(jobs: Sequence[RankedJob]) -> float:
    """Returns the mean over jobs, with equal weights."""
    return float(np.mean([job.correlation for job in jobs]))


def deviation_by_resampling(jobs: Sequence[RankedJob]) -> float:
    """Returns the standard deviation of the mean correlation over samples of each job's designs, drawn with replacement."""
    generator = np.random.default_rng(SEED)

    def sample() -> float:
        drawn = [job.take(generator.integers(len(job.measured_s), size=len(job.measured_s))) for job in jobs]
        return mean_correlation(drawn)

    return float(np.std([sample() for _ in range(NUM_SAMPLES)]))


def largest_exchange(jobs: Sequence[RankedJob]) -> float:
    """Returns how far exchanging one pair of neighbours moves the mean correlation at most."""
    return max(abs(value - job.correlation) for job in jobs for value in job.exchanged()) / len(jobs)


def expecting(expected: Sequence[tuple[str, float]]) -> Prior:
    """Returns the prior of the unknowns, with other expected values for some of them by name."""
    known = prior()
    values = known.expected.copy()
    for name, value in expected:
        values[[unknown.name for unknown in UNKNOWNS].index(name)] = value
    return replace(known, expected=values)


def recomputing(steps: MeasuredSteps, source: str, recompute: str) -> MeasuredSteps:
    """Returns the same steps, with another recomputation for one source."""
    rows = [row for members in steps.members for row in members]
    changed = [{**row, "recompute": recompute} if source_of(row["group"]) == source else row for row in rows]
    return MeasuredSteps.of(changed)


def fits(steps: MeasuredSteps, known: Prior) -> tuple[Floats, dict[str, Floats]]:
    """Returns the unknowns, `(k,)`, and by the name of a fit the log errors `(n,)` of all steps."""
    plane, weights = fitted(steps, known)
    is_one_node = sources_of(steps) == ONE_NODE
    without = constants_of(constants_without(is_one_node, plane, weights, known))
    return np.exp(plane.at), {
        "fitted": plane.errors,
        "without its model": held_out(steps, plane, weights, models_of(steps), known)[0],
        "without its source": held_out(steps, plane, weights, sources_of(steps), known)[0],
        "without the rows of one node": log_errors(steps, without),
    }


def fits_sheet(steps: MeasuredSteps, errors_by_fit: Mapping[str, Floats]) -> Sheet:
    """Returns errors, rank correlations and regrets of every fit."""
    sources = sources_of(steps)
    is_run = ~np.char.startswith(sources, "vTrain")
    parts = (sources == NODES, sources == ONE_NODE, is_run, sources == HOST_BLOCKED)
    lines = []
    for name, errors in errors_by_fit.items():
        jobs = jobs_of(steps, errors)
        regret = np.mean([job.regret_fraction for job in jobs])
        means = [f"{np.abs(np.expm1(errors[part])).mean():.1%}" for part in parts]
        lines.append([name, means[0], f"{mean_correlation(jobs):.3f}", f"{regret:.1%}", *means[1:]])
    head = (
        "constants",
        "mean error",
        "rank correlation",
        "regret",
        "one node",
        "training runs",
        "BigScience",
    )
    return Sheet(name="vtrain-fits", head=head, lines=lines)


def jobs_sheet(jobs: Sequence[RankedJob]) -> Sheet:
    """Returns how much of each job's correlation is decided by the designs that are simulated much too fast."""
    lines = [_job_line(job.name, [job]) for job in jobs]
    head = (
        "job",
        "designs",
        f"over {FAR_FRACTION:.1%} too fast",
        "their share of squared rank differences",
        "rank correlation",
        "without them",
        "regret",
        "the next design is simulated slower by",
    )
    return Sheet(name="vtrain-jobs", head=head, lines=[*lines, _job_line("all, or their mean", jobs)])


def _job_line(name: str, jobs: Sequence[RankedJob]) -> list[str]:
    def total(count_of: Callable[[RankedJob], int]) -> str:
        return str(sum(count_of(job) for job in jobs))

    return [
        name,
        total(lambda job: len(job.measured_s)),
        total(lambda job: int(job.is_far.sum())),
        f"{np.mean([job.far_share for job in jobs]):.0%}",
        f"{mean_correlation(jobs):.3f}",
        f"{mean_correlation([job.take(~job.is_far) for job in jobs]):.3f}",
        f"{np.mean([job.regret_fraction for job in jobs]):.1%}",
        f"{np.mean([job.lead_fraction for job in jobs]):.1%}",
    ]


@click.option("--write", is_flag=True, help="put the tables into docs/validation.md")
@click.option(
    "--expected",
    type=(click.Choice([unknown.name for unknown in UNKNOWNS]), float),
    multiple=True,
    help="another expectation of a constant",
)
@click.option(
    "--one-node-recompute",
    type=click.Choice([Recompute.FULL.value, Recompute.NONE.value]),
    default=Recompute.FULL.value,
    help="what vTrain's rows of one node compute again; its configurations say full",
)
@over_measured_steps
def main(
    steps: MeasuredSteps,
    *,
    write: bool,
    expected: Sequence[tuple[str, float]],
    one_node_recompute: str,
) -> None:
    """Fits, and prints how well the designs of each job are ordered."""
    is_as_configured = one_node_recompute == Recompute.FULL
    if write and (expected or not is_as_configured):
        raise click.UsageError(
            "--write is for the shipped fit; leave out --expected and --one-node-recompute"
        )
    if not is_as_configured:
        steps = recomputing(steps, ONE_NODE, one_node_recompute)
    values, errors_by_fit = fits(steps, expecting(expected))
    jobs = jobs_of(steps, errors_by_fit["fitted"])
    sheets = [fits_sheet(steps, errors_by_fit), jobs_sheet(jobs)]
    for unknown, value in zip(UNKNOWNS, values.tolist(), strict=True):
        print(f"{unknown.applies_to} {unknown.name}: {value:.4g}, expected {unknown.expected:g}")
    for sheet in sheets:
        print(f"\n{sheet.markdown()}")
    print(f"\nstandard deviation by resampling {deviation_by_resampling(jobs):.3f}", end="; ")
    print(f"one pair of neighbours exchanged {largest_exchange(jobs):.3f}")
    if write:
        REPORT_FILE.write_text(with_tables(REPORT_FILE.read_text(encoding="utf-8"), sheets), encoding="utf-8")


if __name__ == "__main__":
    main()
