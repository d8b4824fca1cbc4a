"""Which kernel constants fit a device that was measured? One small fit after the other, from launches to attention.

Every fifth kernel is held out of each fit, and gives its error. Published constants of the accelerator are the expectation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner.calibration.answer import CalibrationAnswer, Held
from planner.calibration.checks import KERNELS, check_explained
from planner.calibration.fitting import HOLD_OUT_EVERY, Plane, Prior, log_deviations, noise_ratio, settled
from planner.calibration.kernel_models import (
    ATTENTION_BOUNDS,
    GEMM_BOUNDS,
    Values,
    published_values,
    simulated_s,
)
from planner.calibration.table import KernelKind, KernelTable
from planner.calibration.unknowns import MEASUREMENT_SCATTER
from planner.human import percent
from planner.measured.hardware_names import accelerator_id
from simulator import catalog
from simulator.calibration import LINKS, SOFTWARE, CalibratedConstant, Calibration, ConstantName
from simulator.errors import CatalogError, InputError, Problem
from simulator.hardware import Accelerator, Precision
from simulator.links import LinkConstants, link_constants
from simulator.network import all_reduce_s
from simulator.table import Floats

FEWEST_KERNELS = 4
"""Kernels below which the constants of a group stay as published."""
LOG_WIDTH = 0.7
"""How far a constant of a kernel may be from the published one: a factor of two, one standard deviation of its logarithm."""
LARGE_ERROR = 0.15
"""Error on kernels that were held out from which a reader is warned: twice that of the published fits."""
BOUNDS: Mapping[str, tuple[float, float]] = {
    **GEMM_BOUNDS,
    **ATTENTION_BOUNDS,
    "weight_gradient_fraction": (0.2, 1.0),
    "attention_backward_fraction": (0.1, 1.0),
    "intra_link_ratio": (0.05, 1.3),
    "kernel_launch_s": (1e-8, 1e-3),
    "host_launch_s": (1e-8, 1e-3),
}
GROUPS: tuple[tuple[tuple[KernelKind, ...], tuple[ConstantName, ...]], ...] = (
    ((KernelKind.COPY, KernelKind.ADD), (ConstantName.MEMORY_FRACTION,)),
    (
        (KernelKind.GEMM, KernelKind.INPUT_GRADIENT),
        (
            ConstantName.GEMM_PEAK_FRACTION,
            ConstantName.GEMM_FILL_ELEMENTS,
            ConstantName.GEMM_RAMP_DEPTH,
            ConstantName.OVERLAP_EXPONENT,
        ),
    ),
    ((KernelKind.WEIGHT_GRADIENT,), (ConstantName.WEIGHT_GRADIENT_FRACTION,)),
    (
        (KernelKind.ATTENTION,),
        (
            ConstantName.ATTENTION_PEAK_FRACTION,
            ConstantName.ATTENTION_RAMP_TOKENS,
            ConstantName.ATTENTION_RAMP_HEAD_DIM,
            ConstantName.ATTENTION_FILL_ROWS,
        ),
    ),
    ((KernelKind.ATTENTION_BACKWARD,), (ConstantName.ATTENTION_BACKWARD_FRACTION,)),
)
"""Kernels and the constants that they give, in the order in which one group needs those of the ones before."""
LAUNCHES = {
    KernelKind.EMPTY: ConstantName.KERNEL_LAUNCH_S,
    KernelKind.HOST_LAUNCH: ConstantName.HOST_LAUNCH_S,
}
"""Constants that are measured as they are."""


@dataclass(frozen=True, kw_only=True)
class _Group:
    """What a fit of one group found."""

    values: Values
    log_deviations: Values
    before: Floats
    """Log errors with published constants."""
    after: Floats
    held_out: Floats


def calibrate_kernels(table: KernelTable, *, accelerator: str | None = None) -> CalibrationAnswer:
    """Fits the constants of kernels to those of a measured device.

    Args:
        table: measured kernels.
        accelerator: catalogue name of the device; left out: by the name that it gives itself.

    Raises:
        InputError: the catalogue does not know the device, or it has too few kernels of every group, or such that no
            constants come near.
    """
    chip = _chip(table, accelerator)
    published = published_values(chip)
    values, groups = {**published, **_launches(table)}, []
    for kinds, names in GROUPS:
        chosen = np.array([kernel.kind in kinds for kernel in table.kernels])
        if chosen.sum() >= FEWEST_KERNELS:
            group = _fitted(table, chip, chosen, names, {**published, **values})
            values |= group.values
            groups.append(group)
    if not groups:
        rule = f"needs {FEWEST_KERNELS} kernels or more of a kind, such as {KernelKind.GEMM.value}; measure the whole grid"
        raise InputError([Problem(path="kernels", value=str(len(table.kernels)), rule=rule)], table.device)
    check_explained(np.concatenate([group.after for group in groups]), table.device, KERNELS)
    ratio = _link_ratio(table, chip)
    deviations = {name: value for group in groups for name, value in group.log_deviations.items()}
    found = {
        name: values[name] for name in ConstantName if name in _launches(table) or name in deviations
    } | ratio
    calibration = _calibration(table, chip, found, deviations, groups)
    held = tuple(
        Held(name=f"{chip.id} {name.value}", value=float(f"{value:.6g}"), why="its kernels were not measured")
        for name, value in published.items()
        if name not in found and name not in SOFTWARE
    )
    return CalibrationAnswer(calibration=calibration, held=held, warnings=tuple(_warnings(calibration)))


def _chip(table: KernelTable, accelerator: str | None) -> Accelerator:
    try:
        return catalog.accelerator(accelerator_id(accelerator or table.device))
    except CatalogError as error:
        if accelerator is not None:
            raise
        rule = "is not known by this name; say what it is with --accelerator NAME"
        raise InputError([*error.problems, Problem(path="device", value=table.device, rule=rule)]) from None


def _launches(table: KernelTable) -> Values:
    """Returns the median of the launches that were timed."""
    times = {
        name: [
            seconds
            for kernel, seconds in zip(table.kernels, table.seconds.tolist(), strict=True)
            if kernel.kind is kind
        ]
        for kind, name in LAUNCHES.items()
    }
    return {
        name: float(np.clip(np.median(found), *BOUNDS[name.value])) for name, found in times.items() if found
    }


def _fitted(
    table: KernelTable,
    chip: Accelerator,
    chosen: NDArray[np.bool_],
    names: tuple[ConstantName, ...],
    known: Values,
) -> _Group:
    part = KernelTable(
        device=table.device,
        date=table.date,
        kernels=tuple(k for k, is_chosen in zip(table.kernels, chosen, strict=True) if is_chosen),
        seconds=table.seconds[chosen],
    )

    def errors_at(logs: Floats) -> Floats:
        tried = known | dict(zip(names, np.exp(logs).tolist(), strict=True))
        return np.asarray(np.log(simulated_s(part, chip, tried) / part.seconds))

    prior = _prior(names, known)
    is_held_out = np.arange(len(part.kernels)) % HOLD_OUT_EVERY == 0
    weights = np.where(is_held_out, 0.0, 1.0)
    plane: Plane = settled(errors_at, weights, prior)
    deviations = log_deviations(plane, weights / noise_ratio(plane, prior), prior).tolist()
    return _Group(
        values=dict(zip(names, np.exp(plane.at).tolist(), strict=True)),
        log_deviations=dict(zip(names, deviations, strict=True)),
        before=np.asarray(np.log(simulated_s(part, chip, published_values(chip)) / part.seconds)),
        after=plane.errors,
        held_out=plane.errors[is_held_out],
    )


def _prior(names: tuple[ConstantName, ...], known: Values) -> Prior:
    low, high = np.array([BOUNDS[name.value] for name in names]).T
    return Prior(
        expected=np.clip([known[name] for name in names], low, high),
        log_width=np.full(len(names), LOG_WIDTH),
        low=low,
        high=high,
        weight=MEASUREMENT_SCATTER,
    )


def _link_ratio(table: KernelTable, chip: Accelerator) -> Values:
    """Returns the bandwidth of the longest sums inside the node relative to that with published efficiencies."""
    sums = [
        (kernel.num_bytes, kernel.group_size, seconds)
        for kernel, seconds in zip(table.kernels, table.seconds.tolist(), strict=True)
        if kernel.kind is KernelKind.ALL_REDUCE
    ]
    if not sums:
        return {}
    num_bytes, group_size, seconds = np.array(max(sums))

    def errors_at(logs: Floats) -> Floats:
        return np.asarray(np.log(_all_reduce_s(chip, num_bytes, group_size, np.exp(logs)) / seconds))

    name = ConstantName.INTRA_LINK_RATIO
    plane = settled(errors_at, np.ones(1), _prior((name,), {name: 1.0}))
    return {name: float(np.exp(plane.at[0]))}


def _all_reduce_s(chip: Accelerator, num_bytes: float, group_size: float, ratio: Floats) -> Floats:
    links: LinkConstants = link_constants(
        [chip.family],
        [catalog.default_fabric(chip.id).kind],
        intra_bytes_per_s=chip.scale_up_bytes_per_s,
        inter_bytes_per_s_per_gpu=catalog.default_node(chip.id).network_bytes_per_s_per_accelerator,
        gpus_per_domain=group_size,
    )
    scaled = replace(links, all_reduce_fraction=links.all_reduce_fraction * ratio)
    return all_reduce_s(
        num_bytes=num_bytes, group_size=group_size, members_per_domain=group_size, links=scaled
    )


def _calibration(
    table: KernelTable, chip: Accelerator, found: Values, deviations: Values, groups: list[_Group]
) -> Calibration:
    def mean_error(of: Callable[[_Group], Floats]) -> float:
        return float(f"{np.abs(np.expm1(np.concatenate([of(group) for group in groups]))).mean():.6g}")

    return Calibration(
        source=f"kernels of {table.device}"[:200],
        source_sha256=table.sha256,
        date=table.date,
        num_rows=len(table.kernels),
        num_configurations=len(table.kernels),
        error_before_fraction=mean_error(lambda group: group.before),
        error_after_fraction=mean_error(lambda group: group.after),
        error_left_out_fraction=mean_error(lambda group: group.held_out),
        constants=tuple(_constants(chip, found, deviations)),
        idle_power_w=table.idle_power_w,
        loaded_power_w=table.loaded_power_w,
    )


def _constants(chip: Accelerator, found: Values, deviations: Values) -> Iterator[CalibratedConstant]:
    published = published_values(chip) | dict.fromkeys(LINKS, 1.0)
    for name, value in found.items():
        is_of_products = name.value.startswith(("gemm_", "overlap", "weight"))
        yield CalibratedConstant(
            name=name,
            accelerator=None if name in SOFTWARE else chip.id,
            precision=Precision.BF16 if is_of_products else None,
            value=float(f"{value:.6g}"),
            published=float(f"{published[name]:.6g}"),
            log_deviation=float(f"{deviations.get(name, MEASUREMENT_SCATTER):.3g}"),
        )


def _warnings(calibration: Calibration) -> list[str]:
    error = calibration.error_left_out_fraction
    notes = [
        "Single kernels do not show clocks under load, links between nodes or the framework: --measured with a few steps does."
    ]
    if error > LARGE_ERROR:
        notes.append(
            f"Kernels that were held out are off by {percent(error)}: was something else running, or is the device another one?"
        )
    return notes
