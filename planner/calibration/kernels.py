"""Which kernel constants fit a measured device? One small fit after another, from launches to attention.

Every fifth kernel is held out of each fit and gives its error. The accelerator's published constants are the prior.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.calibration.answer import CalibrationAnswer, Held, KindFit
from planner.calibration.checks import KERNELS, check_explained
from planner.calibration.fitting import (
    HOLD_OUT_EVERY,
    Plane,
    Prior,
    log_deviations,
    mean_error,
    noise_ratio,
    settled,
)
from planner.calibration.kernel_models import (
    ATTENTION_BOUNDS,
    GEMM_BOUNDS,
    Values,
    published_values,
    simulated_s,
)
from planner.calibration.layers import fit_layers
from planner.calibration.table import FORMATS, KernelKind, KernelTable
from planner.calibration.unknowns import MEASUREMENT_SCATTER
from planner.measured.hardware.accelerator_names import accelerator_id
from planner.text.human import percent
from simulator import catalog
from simulator.argument_names import Argument, Words
from simulator.domain.calibration import SOFTWARE, CalibratedConstant, Calibration, ConstantName
from simulator.domain.hardware import Accelerator, Precision
from simulator.domain.links import LinkConstants, link_constants
from simulator.errors import CatalogError, InputError, Problem
from simulator.machine.network import all_reduce_s
from simulator.machine.training import training_constants
from simulator.table import Floats

FEWEST_KERNELS = 4
"""Number of kernels below which the constants of a group keep their published values."""
LOG_WIDTH = 0.7
"""How far a kernel constant may be from the published one: one standard deviation of its logarithm, a factor of two."""
LARGE_ERROR = 0.15
"""Error on held-out kernels above which the reader is warned: twice that of the published fits."""
BOUNDS: Mapping[str, tuple[float, float]] = {
    **GEMM_BOUNDS,
    **ATTENTION_BOUNDS,
    "weight_gradient_fraction": (0.2, 1.0),
    "attention_backward_fraction": (0.1, 1.0),
    "attention_backward_ramp_tokens": (1.0, 1e4),
    "intra_link_ratio": (0.05, 1.3),
    "kernel_launch_s": (1e-8, 1e-3),
}


@dataclass(frozen=True, kw_only=True)
class Group:
    """Kernels and the constants that they determine."""

    name: str
    kinds: tuple[KernelKind, ...]
    constants: tuple[ConstantName, ...]
    is_of_products: bool = False
    """Whether each number format has constants of its own."""


GROUPS = (
    Group(
        name="copies and sums",
        kinds=(KernelKind.COPY, KernelKind.ADD),
        constants=(ConstantName.MEMORY_FRACTION, ConstantName.KERNEL_LAUNCH_S),
    ),
    Group(
        name="products",
        kinds=(KernelKind.GEMM, KernelKind.INPUT_GRADIENT, KernelKind.WEIGHT_GRADIENT),
        constants=(
            ConstantName.GEMM_PEAK_FRACTION,
            ConstantName.GEMM_FILL_ELEMENTS,
            ConstantName.GEMM_RAMP_DEPTH,
            ConstantName.OVERLAP_EXPONENT,
        ),
        is_of_products=True,
    ),
    Group(
        name="products added in 32 bits",
        kinds=(KernelKind.ADDED_GRADIENT,),
        constants=(ConstantName.WEIGHT_GRADIENT_FRACTION,),
        is_of_products=True,
    ),
    Group(
        name="attention",
        kinds=(KernelKind.ATTENTION,),
        constants=(
            ConstantName.ATTENTION_PEAK_FRACTION,
            ConstantName.ATTENTION_RAMP_TOKENS,
            ConstantName.ATTENTION_RAMP_HEAD_DIM,
            ConstantName.ATTENTION_FILL_ROWS,
        ),
    ),
    Group(
        name="attention backward",
        kinds=(KernelKind.ATTENTION_BACKWARD,),
        constants=(
            ConstantName.ATTENTION_BACKWARD_FRACTION,
            ConstantName.ATTENTION_BACKWARD_RAMP_TOKENS,
        ),
    ),
)
"""Ordered so that each group only needs the constants of earlier ones."""


@dataclass(frozen=True, kw_only=True)
class _FittedGroup:
    """Result of the fit of one group."""

    name: str
    constants: tuple[CalibratedConstant, ...]
    before: Floats
    """Log errors with published constants."""
    after: Floats
    held_out: Floats

    @property
    def kind_fit(self) -> KindFit:
        """The group in an answer."""
        return _kind_fit(self.name, self.before, self.after, self.held_out)


def calibrate_kernels(table: KernelTable, *, accelerator: str | None = None) -> CalibrationAnswer:
    """Fits kernel constants to the kernels of a measured device, and those of clock and host to its layers.

    Args:
        table: measured kernels and layers.
        accelerator: catalogue name of the device; if omitted, it is found by the name that the device reports.

    Raises:
        InputError: the catalogue does not know the device, every group has too few kernels, or no constants come close to
            the kernels.
    """
    chip = _chip(table, accelerator)
    groups = list(_groups(table, chip))
    if not groups:
        rule = f"needs {FEWEST_KERNELS} kernels or more of a kind, such as {KernelKind.GEMM.value}; measure the whole grid"
        raise InputError([Problem(path="kernels", value=str(len(table.kernels)), rule=rule)], table.device)
    check_explained(np.concatenate([group.after for group in groups]), table.device, KERNELS)
    constants = (*(one for group in groups for one in group.constants), *_link_ratio(table, chip))
    kinds = [group.kind_fit for group in groups]
    calibration = draft = _draft(table, constants, kinds)
    layers = fit_layers(table, chip, draft)
    of_layers = [_kind_fit(name, *errors) for name, errors in layers.errors.items()] if layers else []
    if layers:
        everything = {"constants": (*constants, *layers.constants)}
        calibration = _with_errors(draft, of_layers).model_copy(update=everything)
    return CalibrationAnswer(
        calibration=calibration,
        held=tuple(_held(chip, calibration)),
        kinds=(*kinds, *of_layers),
        layers=layers.fits if layers else (),
        warnings=tuple(_warnings(calibration, of_layers or kinds)),
    )


def _chip(table: KernelTable, accelerator: str | None) -> Accelerator:
    if accelerator is not None:
        return catalog.accelerator(accelerator_id(accelerator, path=Argument("accelerator")))
    try:
        return catalog.accelerator(accelerator_id(table.device, path="device"))
    except CatalogError as error:
        rule = Words("is not known by this name; say what it is with ", Argument("accelerator", "NAME"))
        raise InputError([*error.problems, Problem(path="device", value=table.device, rule=rule)]) from None


def _groups(table: KernelTable, chip: Accelerator) -> Iterator[_FittedGroup]:
    """Yields the groups with enough measured kernels; products once per number format."""
    known = {precision: published_values(chip, precision) for precision in FORMATS}
    for group in GROUPS:
        for precision in FORMATS if group.is_of_products else FORMATS[:1]:
            part = _part(table, group, precision)
            if len(part.kernels) < FEWEST_KERNELS or chip.peak_flop_per_s(precision) is None:
                continue
            fitted = _fitted(part, chip, group, precision, known[precision])
            found = {one.name: one.value for one in fitted.constants}
            for of_format in (precision,) if group.is_of_products else FORMATS:
                known[of_format] |= found
            yield fitted


def _part(table: KernelTable, group: Group, precision: Precision) -> KernelTable:
    chosen = np.array(
        [kernel.kind in group.kinds and kernel.precision is precision for kernel in table.kernels]
    )
    kernels = tuple(kernel for kernel, is_chosen in zip(table.kernels, chosen, strict=True) if is_chosen)
    return replace(table, kernels=kernels, seconds=table.seconds[chosen])


def _fitted(
    part: KernelTable, chip: Accelerator, group: Group, precision: Precision, known: Values
) -> _FittedGroup:
    names, published = group.constants, published_values(chip, precision)

    def errors_at(logs: Floats) -> Floats:
        tried = known | dict(zip(names, np.exp(logs).tolist(), strict=True))
        return np.asarray(np.log(simulated_s(part, chip, tried) / part.seconds))

    prior = _prior(names, known)
    is_held_out = np.arange(len(part.kernels)) % HOLD_OUT_EVERY == 0
    weights = np.where(is_held_out, 0.0, 1.0)
    plane: Plane = settled(errors_at, weights, prior)
    deviations = log_deviations(plane, weights / noise_ratio(plane, prior), prior).tolist()
    return _FittedGroup(
        name=f"{group.name}, {precision.value}" if group.is_of_products else group.name,
        constants=tuple(
            _constant(
                chip, name, value, published[name], deviation, precision if group.is_of_products else None
            )
            for name, value, deviation in zip(names, np.exp(plane.at).tolist(), deviations, strict=True)
        ),
        before=np.asarray(np.log(simulated_s(part, chip, published) / part.seconds)),
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


def _link_ratio(table: KernelTable, chip: Accelerator) -> tuple[CalibratedConstant, ...]:
    """Returns the bandwidth of the largest all-reduce inside the node, relative to that with published efficiencies."""
    sums = [
        (kernel.num_bytes, kernel.group_size, seconds)
        for kernel, seconds in zip(table.kernels, table.seconds.tolist(), strict=True)
        if kernel.kind is KernelKind.ALL_REDUCE
    ]
    if not sums:
        return ()
    num_bytes, group_size, seconds = np.array(max(sums))

    def errors_at(logs: Floats) -> Floats:
        return np.asarray(np.log(_all_reduce_s(chip, num_bytes, group_size, np.exp(logs)) / seconds))

    name = ConstantName.INTRA_LINK_RATIO
    plane = settled(errors_at, np.ones(1), _prior((name,), {name: 1.0}))
    return (_constant(chip, name, float(np.exp(plane.at[0])), 1.0, MEASUREMENT_SCATTER),)


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


def _draft(
    table: KernelTable, constants: tuple[CalibratedConstant, ...], kinds: Sequence[KindFit]
) -> Calibration:
    """Returns the calibration of single kernels."""
    empty = Calibration(
        source=f"kernels of {table.device}"[:200],
        source_sha256=table.sha256,
        date=table.date,
        num_rows=len(table.kernels),
        num_configurations=len(table.kernels),
        error_before_fraction=0.0,
        error_after_fraction=0.0,
        error_left_out_fraction=0.0,
        constants=constants,
        idle_power_w=table.idle_power_w,
        loaded_power_w=table.loaded_power_w,
    )
    return _with_errors(empty, kinds)


def _with_errors(calibration: Calibration, kinds: Sequence[KindFit]) -> Calibration:
    """Returns a calibration with the mean errors over kinds of kernels."""
    weights = [one.num_kernels for one in kinds]
    names = ("error_before_fraction", "error_after_fraction", "error_left_out_fraction")
    means = {
        name: float(f"{np.average([getattr(one, name) for one in kinds], weights=weights):.6g}")
        for name in names
    }
    return calibration.model_copy(update=means)


def _kind_fit(name: str, before: Floats, after: Floats, left_out: Floats) -> KindFit:
    return KindFit(
        name=name,
        num_kernels=len(before),
        error_before_fraction=mean_error(before),
        error_after_fraction=mean_error(after),
        error_left_out_fraction=mean_error(left_out),
    )


def _constant(
    chip: Accelerator,
    name: ConstantName,
    value: float,
    published: float,
    deviation: float,
    precision: Precision | None = None,
) -> CalibratedConstant:
    return CalibratedConstant(
        name=name,
        accelerator=chip.id,
        precision=precision,
        value=float(f"{value:.6g}"),
        published=float(f"{published:.6g}"),
        log_deviation=float(f"{deviation:.3g}"),
    )


def _held(chip: Accelerator, calibration: Calibration) -> Iterator[Held]:
    """Yields the constants of kernels, clock and host that were not measured."""
    found = {one.name for one in calibration.constants}
    sustained = float(training_constants().sustained([chip], [Precision.BF16])[0])
    of_layers = {
        ConstantName.SUSTAINED_FRACTION: sustained,
        ConstantName.HOST_LAUNCH_S: training_constants().launch_s,
    }
    for name, value in (published_values(chip) | of_layers).items():
        if name not in found:
            words = name.value if name in SOFTWARE else f"{chip.id} {name.value}"
            what = "layers" if name in of_layers else "kernels"
            yield Held(name=words, value=float(f"{value:.6g}"), why=f"its {what} were not measured")


def _warnings(calibration: Calibration, judged: Sequence[KindFit]) -> Iterator[str]:
    """Yields warnings; `judged` are the kinds that decide whether a calibration helps."""
    yield "One device reveals nothing about links between nodes or the framework; a few measured steps do."
    worse = [one for one in judged if one.error_left_out_fraction >= one.error_before_fraction]
    for one in worse:
        left_out, before = percent(one.error_left_out_fraction), percent(one.error_before_fraction)
        yield f"It does not improve {one.name}: mean error {left_out} when left out, {before} with published constants."
    if len(worse) == len(judged):
        yield "Plan with published constants."
    error = calibration.error_left_out_fraction
    if error > LARGE_ERROR:
        yield f"The mean error on what was left out is {percent(error)}: check the device's name and that nothing else ran."
