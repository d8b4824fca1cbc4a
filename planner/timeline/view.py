"""What does a step look like? A text picture: one row per stage, time from left to right.

For a step with many micro-batches only the beginning and the end are shown, where stages wait for each other. In between,
every stage alternates between one forward and one backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from planner.text import human
from planner.text.text_blocks import sentences, title
from simulator.step.step_events import ALL, EventKind, StepEvents
from simulator.step.timeline import StepTimeline
from simulator.table import Floats, Integers

if TYPE_CHECKING:
    from rich.console import Console

MOST_ROWS = 24
"""Of more stages than this only the first and the last are shown."""
LEAST_COLUMNS = 30
SAMPLES_PER_COLUMN = 9
"""Moments at which each column is sampled; it shows the most frequent event."""
GAP = " ... "
"""Stands for the omitted middle."""
WHOLE_FRACTION = 0.9
"""A step whose beginning and end are more than this share of it is shown as a whole."""

_LETTERS = {
    EventKind.FORWARD: "F",
    EventKind.BACKWARD: "B",
    EventKind.WEIGHT_GRADIENT: "W",
    EventKind.SEND: "s",
    EventKind.PARAMETER_GATHER: "p",
    EventKind.GRADIENT_SYNC: "g",
    EventKind.OPTIMIZER: "o",
    EventKind.BUBBLE: ".",
}
_ALPHABET = "".join(_LETTERS[kind] + _LETTERS[kind].lower() for kind in EventKind)
"""Each kind of event twice, in the order of their codes: for even and for odd micro-batches."""
_WORDS = {EventKind.BUBBLE: "waiting for other stages"}
_STYLES = {
    "F": "cyan",
    "B": "green",
    "W": "green",
    "o": "magenta",
    "s": "yellow",
    "p": "yellow",
    "g": "yellow",
    ".": "dim",
}
_SHARES = {
    "busy": ("compute_s",),
    "comm": (
        "tensor_comm_s",
        "expert_comm_s",
        "shard_comm_s",
        "host_copy_s",
        "pipeline_send_s",
        "gradient_sync_s",
    ),
    "wait": ("pipeline_bubble_s",),
}
"""The shares that are shown next to a row; the optimizer's is left out because it is close to nothing."""
_INDENT, _LABEL_WIDTH, _SHARE_WIDTH = 2, 6, 6
_MARGINS = _INDENT + _LABEL_WIDTH + len(_SHARES) * _SHARE_WIDTH


@dataclass(frozen=True, kw_only=True)
class _Window:
    """An interval of time, and how many columns show it."""

    start_s: float
    end_s: float
    num_columns: int


@dataclass(frozen=True, kw_only=True)
class _Picture:
    """Which part of a step is shown, and how."""

    timeline: StepTimeline
    windows: tuple[_Window, ...]
    """The whole step or, for a long one, its beginning and its end."""
    tells_apart: bool
    """Whether lower-case letters mark micro-batches with odd numbers."""

    @classmethod
    def of(cls, timeline: StepTimeline, width: int) -> _Picture:
        """Returns the picture that fits into `width` columns."""
        own = _row(timeline, 0)
        forwards, backwards = (
            own.take(own.kind == kind.code) for kind in (EventKind.FORWARD, EventKind.BACKWARD)
        )
        forward_s, backward_s = (float(np.median(ops.end_s - ops.start_s)) for ops in (forwards, backwards))
        warm_s = float(backwards.end_s[0]) + forward_s + backward_s
        cool_s = timeline.step_time_s - float(forwards.start_s[-1]) + forward_s + backward_s
        windows = _windows(timeline.step_time_s, warm_s, cool_s, width)
        column_s = (windows[0].end_s - windows[0].start_s) / windows[0].num_columns
        return cls(timeline=timeline, windows=windows, tells_apart=forward_s >= column_s)


def _windows(step_s: float, warm_s: float, cool_s: float, width: int) -> tuple[_Window, ...]:
    """Returns warm-up and cool-down on one scale, or the whole step if little else is left."""
    if warm_s + cool_s >= WHOLE_FRACTION * step_s:
        return (_Window(start_s=0.0, end_s=step_s, num_columns=width),)
    num_columns = width - len(GAP)
    num_warm = min(num_columns - 1, max(1, round(num_columns * warm_s / (warm_s + cool_s))))
    return (
        _Window(start_s=0.0, end_s=warm_s, num_columns=num_warm),
        _Window(start_s=step_s - cool_s, end_s=step_s, num_columns=num_columns - num_warm),
    )


def show_timeline(timeline: StepTimeline, console: Console) -> None:
    """Writes the picture of a step with its legend."""
    picture = _Picture.of(timeline, max(LEAST_COLUMNS, console.width - _MARGINS))
    stages = human.counted(timeline.num_stages, "stage")
    batches = human.counted(timeline.num_micro_batches, "micro-batch", "micro-batches")
    title(console, f"One step by stage: {stages}, {batches}, {human.duration(timeline.step_time_s)}")
    for line in (_heading(picture), *_rows(picture)):
        console.print(line)
    sentences(console, _legend(picture))


def _row(timeline: StepTimeline, stage: int) -> StepEvents:
    """Returns what a stage does, without what happens in the background."""
    events = timeline.events
    return events.take((events.stage == stage) & ~events.is_background)


def _heading(picture: _Picture) -> Text:
    """Returns the times at the ends of the windows, and the headings of the shares."""
    times = GAP.replace(".", " ").join(_ends(window) for window in picture.windows)
    heads = "".join(head.rjust(_SHARE_WIDTH) for head in _SHARES)
    return Text(f"{'':{_INDENT}}{'stage':{_LABEL_WIDTH}}{times}{heads}", style="dim")


def _ends(window: _Window) -> str:
    """Returns the times at both ends of a window, or only at its end if there is no room for two."""
    start = human.duration(window.start_s) if window.start_s else "0"
    end = human.duration(window.end_s)
    room = window.num_columns - len(start) - len(end)
    return f"{start}{'':{room}}{end}" if room > 0 else end[: window.num_columns].rjust(window.num_columns)


def _rows(picture: _Picture) -> Iterator[Text]:
    num_stages, half = picture.timeline.num_stages, MOST_ROWS // 2
    for stage in range(num_stages):
        if num_stages <= MOST_ROWS or stage < half or stage >= num_stages - half:
            yield _stage_line(picture, stage)
        elif stage == half:
            yield Text(f"{'':{_INDENT}}... {num_stages - 2 * half} stages omitted", style="dim")


def _stage_line(picture: _Picture, stage: int) -> Text:
    timeline = picture.timeline
    line = Text(f"{'':{_INDENT}}{stage:<{_LABEL_WIDTH}}")
    for index, window in enumerate(picture.windows):
        line.append(GAP if index else "", style="dim")
        for letter in _letters(_row(timeline, stage), window, tells_apart=picture.tells_apart):
            line.append(letter, style=_STYLES.get(letter) or _STYLES[letter.upper()])
    for names in _SHARES.values():
        share = sum(float(getattr(timeline.stages, name)[stage]) for name in names) / timeline.step_time_s
        line.append(human.whole_percent(share).rjust(_SHARE_WIDTH))
    return line


def _letters(own: StepEvents, window: _Window, *, tells_apart: bool) -> str:
    """Returns a letter for each column of a window: what the stage does most of that time."""
    seen = _seen_at(own, _moments_s(window), tells_apart=tells_apart)
    by_column = seen.reshape(window.num_columns, SAMPLES_PER_COLUMN)
    counts = np.stack([(by_column == code).sum(axis=1) for code in range(len(_ALPHABET))])
    return "".join(_ALPHABET[code] for code in np.argmax(counts, axis=0).tolist())


def _moments_s(window: _Window) -> Floats:
    num_moments = window.num_columns * SAMPLES_PER_COLUMN
    return window.start_s + (np.arange(num_moments) + 0.5) * (window.end_s - window.start_s) / num_moments


def _seen_at(own: StepEvents, moments_s: Floats, *, tells_apart: bool) -> Integers:
    """Returns the position in `_ALPHABET` of what happens at each moment."""
    event = np.searchsorted(own.start_s, moments_s, side="right") - 1
    is_odd = tells_apart & (own.micro_batch[event] != ALL) & (own.micro_batch[event] % 2 == 1)
    codes: Integers = 2 * own.kind[event] + is_odd
    return codes


def _legend(picture: _Picture) -> Iterator[str]:
    timeline = picture.timeline
    kinds = timeline.events.kind[~timeline.events.is_background]
    words = [
        f"{_LETTERS[kind]} {_WORDS.get(kind, human.words(kind.value))}"
        for kind in EventKind
        if kind.code in kinds
    ]
    turns = "; upper and lower case: alternate micro-batches" if picture.tells_apart else ""
    yield f"{', '.join(words)}{turns}."
    window = picture.windows[0]
    letter = human.duration((window.end_s - window.start_s) / window.num_columns)
    yield f"Each letter is {letter} and shows the event that takes most of that time."
    if len(picture.windows) > 1:
        hidden_s = picture.windows[1].start_s - picture.windows[0].end_s
        share = human.percent(hidden_s / timeline.step_time_s)
        yield f"{human.duration(hidden_s)} in the middle ({share} of the step) are omitted; the pattern repeats."
