"""How is the best cut of a plan's layers shown? The verdict, both cuts side by side, and the line for the job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from planner.layer_cut import CutFigures, LayerCut
from planner.text import human
from planner.text.cut_words import in_short
from planner.text.text_blocks import grid, headline, sentences, title

if TYPE_CHECKING:
    from rich.console import Console

LEAST_GAIN = 1e-6
"""Smaller gains, as shares of the step, do not count."""


def show_layer_cut(found: LayerCut, console: Console) -> None:
    """Writes both cuts."""
    headline(console, f"Job {found.job}: {_verdict(found)}", is_good=found.best is not None)
    columns = [column for column in (found.present, found.best) if column]
    heads = [name for name, column in (("present", found.present), ("best", found.best)) if column]
    if columns:
        title(console, "cuts of the layers")
        grid(console, [("", *heads), *_rows(columns)])
    if found.setting and not _is_present(found):
        title(console, "setting for the job")
        listed = found.setting.partition("=")[2]
        sentences(console, [f"workload: {{stage_layers: {listed}}}", f'or --set "{found.setting}"'])
    title(console, "notes")
    sentences(console, _notes(found))


def _verdict(found: LayerCut) -> str:
    if found.best is None:
        sure = "no cut of the layers fits" if found.is_proven else "no cut of the layers was found that fits"
        usable = human.usable_share(found.memory_headroom_fraction)
        return f"{sure} {usable}the memory ({human.memory(found.memory_capacity_bytes)})"
    if _is_present(found):
        return "the present cut of the layers is the best that fits the memory"
    if found.present is None or found.gain_fraction is None:
        return f"the best cut of the layers has a step time of {human.duration(found.best.step_time_s)}"
    if not found.present.fits_memory:
        return "another cut of the layers fits the memory; the present one does not"
    return f"another cut of the layers makes the step {human.percent(found.gain_fraction)} shorter"


def _is_present(found: LayerCut) -> bool:
    """Whether the present cut is already the best."""
    if found.present is None or found.best is None or not found.present.fits_memory:
        return False
    return found.gain_fraction is not None and found.gain_fraction < LEAST_GAIN


def _rows(columns: Sequence[CutFigures]) -> Iterator[tuple[str, ...]]:
    yield "layers per chunk", *(in_short(one.layers) for one in columns)
    if any(one.stage_layers != one.layers for one in columns):
        yield "layers per stage", *(in_short(one.stage_layers) for one in columns)
    if all(one.megatron_layout for one in columns):
        yield "in Megatron Core", *(str(one.megatron_layout) for one in columns)
    yield "step time", *(human.duration(one.step_time_s) for one in columns)
    yield (
        "slowest stage, per micro-batch",
        *(f"{human.duration(one.slowest_stage_s)} (stage {one.slowest_stage})" for one in columns),
    )
    yield "fullest stage", *(_fullest(one) for one in columns)


def _fullest(one: CutFigures) -> str:
    too_much = "" if one.fits_memory else ", does not fit"
    return f"{human.memory(one.fullest_stage_bytes)} (stage {one.fullest_stage}{too_much})"


def _notes(found: LayerCut) -> Iterator[str]:
    if found.is_proven:
        what = "could be better" if found.best else "could fit"
        yield f"Proven: every cut that {what} was simulated ({human.count(found.num_simulated)} simulations)."
    else:
        yield (
            f"Not proven: there are too many cuts to simulate all of them; {human.count(found.num_simulated)} were simulated, "
            "moving layers one by one."
        )
    if found.best and not (found.is_proven or found.is_balance_proven):
        yield "It is also not proven that no other cut has a faster slowest stage."
    if found.setting and not _is_present(found):
        yield (
            f"With this setting, only pipelines of {len(found.best.layers) if found.best else 0} chunks are searched: use it "
            "for the plan that you run, not during the search."
        )
