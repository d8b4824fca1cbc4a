"""How is one value of a job written on one line? Things with a name by their name, ranges as ranges."""

from __future__ import annotations

from collections.abc import Mapping

from planner.input.problems import shown
from planner.text.human import typed
from simulator.domain.calibration import Calibration
from simulator.domain.hardware import Accelerator, Fabric, Node, Site
from simulator.domain.hourly import HourlyProfile
from simulator.domain.model import ModelShape
from simulator.domain.offer import Estimate, GpuRange
from simulator.record import Record


def in_short(value: object) -> str:
    """Returns a value on one line: things with a name by their name, ranges as ranges."""
    match value:
        case None:
            return "not set"
        case Record():
            return _record_in_short(value)
        case tuple():
            return ", ".join(in_short(item) for item in value) or "none"
        case Mapping():
            return ", ".join(f"{key} {in_short(item)}" for key, item in value.items()) or "none"
        case bool():
            return "yes" if value else "no"
        case float() | int():
            return typed(value)
        case _:
            return str(value)


def _record_in_short(value: Record) -> str:
    match value:
        case Estimate():
            span = "" if value.low == value.high else f" ({typed(value.low)} to {typed(value.high)})"
            return f"{typed(value.mid)}{span}"
        case GpuRange():
            return f"{value.min:,} to {value.max:,}"
        case Accelerator() | Node():
            return value.id
        case Site():
            return value.region
        case ModelShape():
            return value.name
        case Fabric():
            return value.kind
        case Calibration():
            return f"{value.source} ({value.date}, {value.source_sha256[:12]})"
        case HourlyProfile():
            lowest, highest = min(value.per_hour), max(value.per_hour)
            return f"{typed(value.mean)} ({typed(lowest)} to {typed(highest)}) by the hour"
        case _:
            return shown(value.model_dump(mode="json", exclude_defaults=True))
