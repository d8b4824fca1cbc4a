"""How long should the timed layers take according to the simulator, and which clock and host time do they show?

Layers run under sustained load, so they show the clock that the power limit allows (`sustained_fraction`). Small ones show the
host's time (`host_launch_s`). Each is also simulated with constants fitted without any layer of its model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np

from planner.calibration.answer import LayerFit, PassFit
from planner.calibration.fitting import damped, log_deviations, noise_ratio, settled
from planner.calibration.table import LAYERS, Kernel, KernelKind, KernelTable, Software
from planner.calibration.unknowns import Unknown, prior_of
from planner.measured.runs import NOWHERE, RELIABILITY
from simulator import catalog
from simulator.domain.calibration import CalibratedConstant, Calibration, ConstantName
from simulator.domain.hardware import CAST_FORMATS, Accelerator
from simulator.domain.job import Job
from simulator.domain.offer import Estimate, GpuRange, Offer
from simulator.domain.plan import Plan, PlanTable, Recompute
from simulator.domain.workload import Workload
from simulator.layers.layer_costs import dense_layer
from simulator.machine.rank import Rank
from simulator.machine.training import training_constants
from simulator.memory.layer_activations import kept_per_layer
from simulator.table import Booleans, Floats

NO_PRICE = Estimate(low=1, mid=1, high=1)
"""An arbitrary price, which does not affect a layer."""
ANY_ACCELERATOR = "h100-sxm5-80gb"
"""An arbitrary accelerator: what a layer keeps does not depend on it."""
WAITING_RATIO = 1.1
"""Time of a pass over its time without host time above which the pass counts as waiting for the host."""


class LayerErrors(NamedTuple):
    """ln(simulated / measured) of `n` passes through layers, each `(n,)`."""

    before: Floats
    """With published constants."""
    after: Floats
    """With the calibrated ones."""
    left_out: Floats
    """With the clock and host time from the layers of other models."""

    def take(self, chosen: Booleans) -> LayerErrors:
        """Returns the errors of a subset of the passes."""
        return LayerErrors(*(errors[chosen] for errors in self))


@dataclass(frozen=True, kw_only=True)
class FittedLayers:
    """What layers show."""

    constants: tuple[CalibratedConstant, ...]
    errors: dict[str, LayerErrors]
    """By number format; passes in which the accelerator waits for the host are separate."""
    fits: tuple[LayerFit, ...]


def fit_layers(table: KernelTable, chip: Accelerator, kernels: Calibration) -> FittedLayers | None:
    """Fits what only layers show, on top of the constants of single kernels.

    Args:
        table: what was measured.
        chip: the accelerator.
        kernels: the constants of single kernels.

    Returns:
        Constants and errors; `None` if no layer was timed.
    """
    passes = [
        (kernel, seconds)
        for kernel, seconds in zip(table.kernels, table.seconds.tolist(), strict=True)
        if kernel.kind in LAYERS and chip.peak_flop_per_s(kernel.precision) is not None
    ]
    if not passes:
        return None
    layers, measured_s = [kernel for kernel, _ in passes], np.array([seconds for _, seconds in passes])
    unknowns = _unknowns(chip, layers)
    prior, weights = prior_of(unknowns), np.ones(len(layers))

    def errors_at(logs: Floats) -> Floats:
        found = tuple(
            unknown.fitted(value, 0.0) for unknown, value in zip(unknowns, np.exp(logs).tolist(), strict=True)
        )
        tried = kernels.model_copy(update={"constants": (*kernels.constants, *found)})
        return np.asarray(np.log(simulated_layers_s(chip, layers, tried) / measured_s))

    plane = settled(errors_at, weights, prior)
    deviations = log_deviations(plane, weights / noise_ratio(plane, prior), prior).tolist()
    left_out = np.empty_like(measured_s)
    for model in {layer.model for layer in layers}:
        is_out = np.array([layer.model == model for layer in layers])
        left_out[is_out] = errors_at(damped(plane, np.where(is_out, 0.0, weights), prior))[is_out]
    errors = LayerErrors(
        before=np.log(simulated_layers_s(chip, layers, None) / measured_s),
        after=plane.errors,
        left_out=left_out,
    )
    values = zip(unknowns, np.exp(plane.at).tolist(), deviations, strict=True)
    without_host = np.where(
        [one.name is ConstantName.HOST_LAUNCH_S for one in unknowns], np.log(prior.low), plane.at
    )
    waits = plane.errors - errors_at(without_host) > math.log(WAITING_RATIO)
    return FittedLayers(
        constants=tuple(unknown.fitted(value, deviation) for unknown, value, deviation in values),
        errors=dict(_errors_by_name(layers, errors, waits)),
        fits=tuple(_fits(layers, measured_s, errors, waits)),
    )


def simulated_layers_s(
    chip: Accelerator, layers: Sequence[Kernel], calibration: Calibration | None
) -> Floats:
    """Returns the seconds of passes through layers, `(n,)`, as in a step of the same layer on one accelerator."""
    keys = [replace(layer, kind=KernelKind.LAYER, num_bytes=0) for layer in layers]
    found_s = {key: _both_ways_s(chip, key, calibration) for key in set(keys)}
    is_backward = [layer.kind is KernelKind.LAYER_BACKWARD for layer in layers]
    return np.array([found_s[key][way] for key, way in zip(keys, is_backward, strict=True)])


def simulated_kept_bytes(layer: Kernel) -> float:
    """Returns the bytes that a layer keeps from its forward to its backward pass, whatever the accelerator."""
    job = _job(ANY_ACCELERATOR, replace(layer, kind=KernelKind.LAYER, num_bytes=0))
    dense, _ = kept_per_layer(job.workload, PlanTable.from_plans([_plan(layer)]))
    return float(dense[0])


def _both_ways_s(chip: Accelerator, layer: Kernel, calibration: Calibration | None) -> tuple[float, float]:
    job = _job(chip.id, layer).model_copy(update={"calibration": calibration})
    times = dense_layer(Rank.of(job, PlanTable.from_plans([_plan(layer)])))
    return float(times.forward_s[0]), float(times.backward_s[0])


def _plan(layer: Kernel) -> Plan:
    return Plan(
        offer=0,
        num_gpus=1,
        micro_batch_size=layer.batch,
        precision=layer.precision,
        recompute=Recompute.NONE,
    )


@cache
def _job(accelerator: str, layer: Kernel) -> Job:
    """Returns the layer's model on one accelerator, with 16-bit gradients without accumulation, as after one backward pass."""
    workload = Workload(
        model=catalog.model(layer.model),
        tokens=layer.batch * layer.sequence_length,
        sequence_length=layer.sequence_length,
        global_batch_size=layer.batch,
        precisions=(layer.precision,),
        has_fused_operators=layer.software is Software.COMPILED,
        gradient_bytes=2,
        added_gradient_bytes=0.0,
    )
    return job_on_one(accelerator, workload)


def job_on_one(accelerator: str, workload: Workload) -> Job:
    """Returns the job of a workload on one accelerator of the catalogue; only its computation matters."""
    offer = Offer(
        accelerator=catalog.accelerator(accelerator),
        node=catalog.default_node(accelerator),
        fabric=catalog.default_fabric(accelerator),
        num_gpus=GpuRange(min=1, max=1),
        rent_usd_per_gpu_hour=NO_PRICE,
    )
    name = workload.model.name
    return Job(name=name, workload=workload, offers=(offer,), site=NOWHERE, reliability=RELIABILITY)


def _unknowns(chip: Accelerator, layers: Sequence[Kernel]) -> tuple[Unknown, ...]:
    """Returns the clock under load in each number format, and the host's time."""
    formats = sorted({layer.precision for layer in layers})
    published = training_constants().sustained([chip] * len(formats), formats)
    clocks = (
        Unknown(
            name=ConstantName.SUSTAINED_FRACTION, accelerator=chip.id, precision=precision, published=fraction
        )
        for precision, fraction in zip(formats, published.tolist(), strict=True)
    )
    return (*clocks, Unknown(name=ConstantName.HOST_LAUNCH_S, published=training_constants().launch_s))


def _errors_by_name(
    layers: Sequence[Kernel], errors: LayerErrors, waits: Booleans
) -> Iterator[tuple[str, LayerErrors]]:
    for precision in sorted({layer.precision for layer in layers}):
        is_chosen = ~waits & np.array([layer.precision is precision for layer in layers])
        if is_chosen.any():
            yield f"layers, {precision.value}", errors.take(is_chosen)
    if waits.any():
        yield "layers that wait for the host", errors.take(waits)


def _fits(
    layers: Sequence[Kernel], measured_s: Floats, errors: LayerErrors, waits: Booleans
) -> Iterator[LayerFit]:
    """Yields every layer; its two passes follow each other."""
    ratios = np.expm1(np.array([errors.before, errors.left_out])).T.tolist()
    passes = [
        PassFit(
            measured_s=seconds,
            error_before_fraction=before,
            error_left_out_fraction=left_out,
            waits_for_host=is_waiting,
        )
        for seconds, (before, left_out), is_waiting in zip(
            measured_s.tolist(), ratios, waits.tolist(), strict=True
        )
    ]
    for layer, forward, backward in zip(layers[::2], passes[::2], passes[1::2], strict=True):
        assert layer.software is not None
        has_kept = layer.num_bytes > 0 and layer.precision not in CAST_FORMATS
        yield LayerFit(
            model=layer.model,
            precision=layer.precision,
            software=layer.software.value,
            batch=layer.batch,
            sequence_length=layer.sequence_length,
            forward=forward,
            backward=backward,
            kept_bytes=layer.num_bytes if has_kept else None,
            kept_error_fraction=simulated_kept_bytes(layer) / layer.num_bytes - 1.0 if has_kept else None,
        )
