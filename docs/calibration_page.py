"""How accurate is the simulator on a measured H100 and H200? The tables of the page on calibration, from files in examples/."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from docs.markdown import replaced, table_of_numbers
from planner.calibration.answer import CalibrationAnswer, LayerFit, PassFit
from planner.calibration.kernels import calibrate_kernels
from planner.calibration.table import read_kernels
from planner.text.human import percent
from simulator.domain.hardware import Precision
from simulator.units import MIB, MILLISECOND

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "calibrate.md"
FILES = {name: ROOT / "examples" / "calibration" / f"{name.lower()}-kernels.csv" for name in ("H100", "H200")}


def filled_calibration() -> str:
    """Returns the page with its marked parts regenerated."""
    answers = {name: calibrate_kernels(read_kernels(file)) for name, file in FILES.items()}
    text = PAGE.read_text(encoding="utf-8")
    return replaced(replaced(text, "kinds", _kinds(answers)), "layers", _layers(answers))


def _kinds(answers: dict[str, CalibrationAnswer]) -> str:
    heading = ["kernels", "number"]
    heading += [f"{name}, {constants}" for name in answers for constants in ("published", "left out")]
    rows = []
    for alike in zip(*(answer.kinds for answer in answers.values()), strict=True):
        errors = [(one.error_before_fraction, one.error_left_out_fraction) for one in alike]
        rows.append(
            [alike[0].name, str(alike[0].num_kernels), *(percent(error) for pair in errors for error in pair)]
        )
    return table_of_numbers(heading, rows)


def _layers(answers: dict[str, CalibrationAnswer]) -> str:
    heading = ["layer", "sequences", "PyTorch", "kept", "simulated"]
    heading += [
        f"{name}, {way}" for name in answers for way in ("forward", "published", "backward", "published")
    ]
    rows = []
    for alike in zip(*(answer.layers for answer in answers.values()), strict=True):
        first = alike[0]
        in_8_bits = "" if first.precision is Precision.BF16 else f", {first.precision.value}"
        words = [first.model, f"{first.batch} x {first.sequence_length:,}", f"{first.software}{in_8_bits}"]
        passes = [cell for layer in alike for way in (layer.forward, layer.backward) for cell in _pass(way)]
        rows.append([*words, *_kept(first), *passes])
    return table_of_numbers(heading, rows)


def _kept(layer: LayerFit) -> Iterator[str]:
    if layer.kept_bytes is None or layer.kept_error_fraction is None:
        yield from ("", "")
        return
    yield f"{layer.kept_bytes / MIB:,.1f} MiB"
    yield f"{layer.kept_error_fraction:+.1%}"


def _pass(one: PassFit) -> Iterator[str]:
    yield f"{one.measured_s / MILLISECOND:.4g} ms"
    yield f"{one.error_before_fraction:+.1%}"
