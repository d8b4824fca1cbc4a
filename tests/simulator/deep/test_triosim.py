"""Does the TrioSim mode say what TrioSim says? Figures of its published code, run on the traces that it ships."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.deep.playing.play import play
from simulator.deep.traced_steps.triosim import TrioSimCase, triosim_step
from simulator.deep.traces.trace import OperatorTrace
from simulator.deep.traces.triosim_files import read_triosim
from simulator.errors import InputError
from tests.simulator.deep.traces import measured, write_small

SAME = 5e-5
"""The figures are printed with a microsecond."""
MANY_FETCHES, SOME_OVERLAP = 3e-3, 4e-3
"""Pipelines: order of fetches, and a first operator that TrioSim lets overlap; the acceptance asks for 1 %."""


@pytest.fixture(scope="module")
def traces() -> dict[str, OperatorTrace]:
    return {name: measured(name) for name in ("vgg13", "resnet50")}


def milliseconds(
    trace: OperatorTrace,
    case: TrioSimCase,
    num_gpus: int,
    *,
    bandwidth: float = 65e9,
    batch_size: int | None = None,
    num_microbatches: int = 1,
) -> float:
    step = triosim_step(
        trace,
        case,
        num_gpus=num_gpus,
        bandwidth_bytes_per_s=bandwidth,
        batch_size=batch_size,
        num_microbatches=num_microbatches,
    )
    return play(step.graph, step.topology, step.paths).makespan_s * 1e3


@pytest.mark.parametrize(
    ("model", "case", "num_gpus", "expected", "tolerance"),
    [
        ("vgg13", "single", 8, 94.038, SAME),
        ("vgg13", "dp", 8, 102.226, SAME),
        ("vgg13", "dp", 32, 102.226, SAME),
        ("vgg13", "dp", 64, 102.226, SAME),
        ("vgg13", "ddp", 8, 94.038, SAME),
        ("vgg13", "ddp", 32, 94.038, SAME),
        ("vgg13", "ddp", 64, 94.038, SAME),
        ("vgg13", "tp", 8, 55.055, SAME),
        ("vgg13", "tp", 32, 33.224, SAME),
        ("vgg13", "tp", 64, 29.586, SAME),
        ("vgg13", "pp", 4, 141.861, SAME),
        ("vgg13", "pp", 8, 190.092, MANY_FETCHES),
        ("resnet50", "single", 8, 70.723, SAME),
        ("resnet50", "dp", 8, 72.296, SAME),
        ("resnet50", "dp", 32, 72.296, SAME),
        ("resnet50", "dp", 64, 72.296, SAME),
        ("resnet50", "ddp", 8, 70.723, SAME),
        ("resnet50", "ddp", 32, 70.723, SAME),
        ("resnet50", "tp", 8, 62.979, SAME),
        ("resnet50", "tp", 32, 43.729, SAME),
        ("resnet50", "pp", 8, 92.312, MANY_FETCHES),
    ],
)
def test_steps_take_what_triosim_says(
    traces: dict[str, OperatorTrace], model: str, case: str, num_gpus: int, expected: float, tolerance: float
) -> None:
    assert milliseconds(traces[model], TrioSimCase(case), num_gpus) == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize(("bandwidth", "expected"), [(1e9, 566.772), (5e9, 137.358)])
def test_slow_links_are_what_a_distributed_step_waits_for(
    traces: dict[str, OperatorTrace], bandwidth: float, expected: float
) -> None:
    assert milliseconds(traces["vgg13"], TrioSimCase.DISTRIBUTED, 4, bandwidth=bandwidth) == pytest.approx(
        expected, rel=SAME
    )


def test_micro_batches_shorten_the_pipeline(traces: dict[str, OperatorTrace]) -> None:
    took = milliseconds(traces["vgg13"], TrioSimCase.PIPELINE, 4, num_microbatches=4)
    assert took == pytest.approx(81.080, rel=SOME_OVERLAP)


@pytest.mark.parametrize("num_gpus", [2, 3, 16])
@pytest.mark.parametrize("bandwidth", [10e9, 65e9, 300e9])
def test_steps_follow_closed_forms(traces: dict[str, OperatorTrace], num_gpus: int, bandwidth: float) -> None:
    # From the sums of the columns of its trace: 532.191392 MB of parameters; operators that split take 68.091 of
    # 94.038 ms and make 10,710.145280 MB. No link latency, no step of a ring costs anything.
    vgg = traces["vgg13"]
    per_ms = bandwidth / 1e3
    assert milliseconds(vgg, TrioSimCase.DATA, num_gpus, bandwidth=bandwidth) == pytest.approx(
        94.038 + 532.191392e6 / per_ms
    )
    assert milliseconds(vgg, TrioSimCase.TENSOR, num_gpus, bandwidth=bandwidth) == pytest.approx(
        25.947 + (68.091 + 10_710.145280e6 / per_ms) / num_gpus
    )


def test_another_batch_scales_weights_and_optimizer_too(traces: dict[str, OperatorTrace]) -> None:
    took = milliseconds(traces["vgg13"], TrioSimCase.DATA, 8, batch_size=256)
    assert took == pytest.approx(2 * (94.038 + 532.191392e6 / 65e6))


@pytest.mark.parametrize(
    ("num_gpus", "bandwidth", "batch_size", "message"),
    [
        (0, 65e9, None, "num_gpus = 0: must be between 1 and 4,096"),
        (2, 0.0, None, r"bandwidth_bytes_per_s = 0\.0: must be above 0"),
        (2, float("nan"), None, "bandwidth_bytes_per_s = nan: must be above 0"),
        (2, 65e9, 0, "batch_size = 0: must be at least 1"),
        (5, 65e9, None, "num_gpus = 5: must be at most 4, the operators of a pass of 'small'"),
    ],
)
def test_impossible_arguments_are_refused(
    tmp_path: Path, num_gpus: int, bandwidth: float, batch_size: int | None, message: str
) -> None:
    trace = read_triosim(write_small(tmp_path / "small"))
    with pytest.raises(InputError, match=message):
        milliseconds(trace, TrioSimCase.PIPELINE, num_gpus, bandwidth=bandwidth, batch_size=batch_size)
