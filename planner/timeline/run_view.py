"""What does a run look like? A text picture: one row for each use of the time, from the initial start to the end.

The darker a character, the larger the share of its column's time that goes to this use. Every row has its own scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from planner.recommended.design_words import part_words
from planner.text import human
from planner.text.text_blocks import grid, sentences, title
from planner.timeline.run import RunSummary
from simulator.run_timeline import NUM_INTERRUPTIONS, RunEventKind, RunTimeline
from simulator.table import Booleans, Floats
from simulator.units import DAY

if TYPE_CHECKING:
    from rich.console import Console

SHADES = " .:-=+*#"
"""Characters from no share to the largest share of a row."""
MOST_COUNT = 9
"""More interruptions than this in one column are shown as a plus sign."""
MOST_STOPS = 8
"""Number of interruptions that are listed one by one: those that cost most."""
LEAST_COLUMNS = 20

_ROWS = {
    "training": (RunEventKind.TRAINING,),
    "saves": (RunEventKind.SAVE, RunEventKind.SAVE_AHEAD, RunEventKind.BACKPRESSURE_WAIT),
    "restarts": (RunEventKind.RESTART, RunEventKind.RESTORE, RunEventKind.INITIALIZATION),
    "wait for nodes": (RunEventKind.REPLACEMENT_WAIT,),
    "fewer replicas": (RunEventKind.REDUCED_CAPACITY,),
}
_INDENT, _LABEL_WIDTH, _SHARE_WIDTH = 2, 16, 10


def show_run(run: RunTimeline, summary: RunSummary, console: Console) -> None:
    """Writes the picture of a run, how its time is spent, and its costliest interruptions."""
    width = max(LEAST_COLUMNS, console.width - _INDENT - _LABEL_WIDTH - _SHARE_WIDTH)
    stops = human.counted(len(summary.stops), "interruption")
    length = human.duration(summary.wall_time_s)
    title(console, f"One run (replay {run.replication}, seed {run.seed}): {length}, {stops}")
    console.print(Text(f"{'':{_INDENT + _LABEL_WIDTH}}0{length:>{width - 1}}", style="dim"))
    for line in _lines(run, width):
        console.print(line)
    sentences(console, _legend(run, width))
    title(console, "Breakdown of the wall time")
    grid(console, _parts(summary))
    if summary.stops:
        title(console, "Costliest interruptions")
        grid(console, _costliest(summary))


def _lines(run: RunTimeline, width: int) -> Iterator[Text]:
    events = run.events
    for name, kinds in _ROWS.items():
        is_here = np.isin(events.kind, [kind.code for kind in kinds])
        if is_here.any():
            spent_s = _spent_s(run, is_here, width)
            yield _line(name, _shaded(spent_s), human.percent(spent_s.sum() / run.wall_time_s))
    is_stop = events.kind < NUM_INTERRUPTIONS
    if is_stop.any():
        column = np.minimum(events.start_s[is_stop] / run.wall_time_s * width, width - 1).astype(np.intp)
        counts = np.bincount(column, minlength=width)
        signs = [str(count) if count <= MOST_COUNT else "+" for count in counts.tolist()]
        yield _line("interruptions", "".join(signs).replace("0", " "), f"{is_stop.sum():,}")


def _spent_s(run: RunTimeline, is_here: Booleans, width: int) -> Floats:
    """Returns the time that each column spends on the chosen events, `(width,)`."""
    chosen = run.events.take(is_here)
    order = np.argsort(chosen.start_s)
    times_s = np.stack([chosen.start_s[order], chosen.end_s[order]], axis=1).ravel()
    sums_s = np.concatenate([[0.0], np.cumsum(chosen.end_s[order] - chosen.start_s[order])])
    known_s = np.stack([sums_s[:-1], sums_s[1:]], axis=1).ravel()
    edges_s = np.linspace(0.0, run.wall_time_s, width + 1)
    return np.diff(np.interp(edges_s, times_s, known_s))


def _shaded(spent_s: Floats) -> str:
    most_s = spent_s.max()
    # Whatever happens at all is seen.
    shade = np.ceil(spent_s / most_s * (len(SHADES) - 1)) if most_s > 0.0 else np.zeros(len(spent_s))
    return "".join(SHADES[int(level)] for level in shade.tolist())


def _line(name: str, signs: str, share: str) -> Text:
    line = Text(f"{'':{_INDENT}}{name:<{_LABEL_WIDTH}}")
    line.append(signs, style="red" if name == "interruptions" else "cyan")
    return line.append(f"{share:>{_SHARE_WIDTH}}")


def _legend(run: RunTimeline, width: int) -> Iterator[str]:
    column = human.duration(run.wall_time_s / width)
    yield f"Each character is {column}; darker means more of that row's time ({SHADES.strip()})."
    if not run.has_saves:
        yield "There are too many saves to show; their time counts as training."


def _parts(summary: RunSummary) -> Iterator[tuple[str, str, str]]:
    for name, seconds in sorted(summary.seconds.items(), key=lambda part: -part[1]):
        share = seconds / summary.wall_time_s
        if share >= human.LEAST_TOLD_FRACTION:
            yield part_words(name), human.duration(seconds), human.percent(share)


def _costliest(summary: RunSummary) -> Iterator[tuple[str, str, str, str]]:
    stops = sorted(summary.stops, key=lambda stop: -(stop.lost_work_s + stop.away_s))[:MOST_STOPS]
    for stop in sorted(stops, key=lambda stop: stop.at_s):
        yield (
            f"day {stop.at_s / DAY:,.1f}",
            human.words(stop.kind),
            f"{human.duration(stop.lost_work_s)} of work lost",
            f"{human.duration(stop.away_s)} until training resumes",
        )
