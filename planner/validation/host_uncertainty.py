"""How much longer or shorter would a step be if its host launched kernels more slowly or faster than assumed?

Launch times differ between hosts and frameworks, but the steps of only one source show it: small models on one node, whose
accelerators wait for their host. The residuals of other sources, whose accelerators are busy, say nothing about the uncertainty
of such steps. Every step is therefore also simulated with slower and faster launches, as far off as a cluster's may be
(`planner.calibration.unknowns`): within a factor of 1.9 in four of five cases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from planner.calibration.steps import Batch, RankOf
from planner.calibration.unknowns import LAUNCHES, RANGES
from planner.measured.runs import on_cluster
from simulator.accuracy.step_error import Z_80
from simulator.domain.calibration import Calibration
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.machine.calibrated import TRAINING_FIELDS
from simulator.machine.rank import Rank
from simulator.machine.training import TrainingConstants, training_constants
from simulator.table import Floats


def host_log_ratios(
    batches: Sequence[Batch],
    known_s: Floats,
    constants: TrainingConstants | None = None,
    calibration: Calibration | None = None,
) -> Floats:
    """Returns ln(step / step with the assumed launches) for slower and for faster launches, `(n, 2)`.

    Args:
        batches: n steps.
        known_s: their times with the assumed launches, `(n,)`.
        constants: those of training; if omitted, the shipped ones.
        calibration: constants of the owner's cluster; if it has launch times, these are known.
    """
    supposed = constants or training_constants()
    hosts = [_with_launches(supposed, sign) for sign in (1.0, -1.0)]
    ratios = np.zeros((len(known_s), len(hosts)))
    for batch in batches:
        usual_s = known_s[batch.positions]
        for column, training in enumerate(hosts):
            other_s = batch.simulated_s(_rank_of(training, calibration))
            if np.array_equal(other_s, usual_s):
                break  # accelerators that do not wait for a slow host do not wait for a fast one either
            with np.errstate(invalid="ignore"):  # a layout without schedule never ends
                ratios[batch.positions, column] = np.log(other_s / usual_s)
    return ratios


def _rank_of(training: TrainingConstants, calibration: Calibration | None) -> RankOf:
    def rank_of(job: Job, plans: PlanTable) -> Rank:
        return Rank.of(on_cluster(job, calibration), plans, training)

    return rank_of


def _with_launches(constants: TrainingConstants, sign: float) -> TrainingConstants:
    """Returns the constants with launches at one end, +1 or -1, of the range that holds them in four of five cases."""

    def launch_s(kind: str) -> float:
        name = LAUNCHES[kind]
        supposed_s = float(getattr(constants, TRAINING_FIELDS[name]))
        return supposed_s * math.exp(sign * Z_80 * RANGES[name].log_width)

    return replace(
        constants,
        launch_s=launch_s("eager"),
        early_launch_s=launch_s("eager-2022"),
        blocking_launch_s=launch_s("blocking-2022"),
    )
