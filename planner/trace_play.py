"""How long do the Chakra traces in a folder take on a network? The answer of `capplan trace play`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

from planner import __version__
from planner.played_step import PlayedStep, StepRun, accelerator_times, circuit_summary, hot_links
from planner.trace_request import TraceRequest
from simulator.deep.chakra import ChakraNode
from simulator.deep.chakra_files import read_chakra
from simulator.deep.chakra_play import chakra_step
from simulator.deep.play import play
from simulator.deep.trace_text import broken, read_json
from simulator.deep.waits import waits

_TRACE = re.compile(r"(.+)\.(\d{1,6})\.(?:et|json)", re.ASCII)


class PlayAnswer(PlayedStep):
    """Chakra traces, played."""

    traces: str
    """How their files begin."""


@dataclass(frozen=True, kw_only=True)
class PlayRun(StepRun):
    """Played traces with all that is known of them."""

    answer: PlayAnswer


def play_traces(request: TraceRequest) -> PlayRun:
    """Returns the traces in a folder, played on a network.

    Args:
        request: the folder, with `NAME.RANK.et` or `.json` of every accelerator and `NAME.groups.json`, and the network;
            the number of accelerators is that of the files.

    Raises:
        InputError: files are missing or broken, or do not fit together.
    """
    name, files = _files(request.path)
    ranks: list[tuple[ChakraNode, ...]] = [read_chakra(file) for file in files]
    topology = replace(request, num_gpus=len(ranks)).topology()
    groups = _groups(request.path / f"{name}.groups.json")
    step = chakra_step(ranks, groups, topology, algorithm=request.collectives)
    played = play(step.graph, topology, step.paths)
    found = waits(step.graph, played, len(step.paths))
    answer = PlayAnswer(
        capplan_version=__version__,
        traces=name,
        num_gpus=len(ranks),
        step_s=played.makespan_s,
        num_tasks=len(step.graph),
        accelerators=accelerator_times(step.graph, found),
        hot_links=hot_links(topology, step.paths, played, found),
        circuits=circuit_summary(topology, played),
    )
    return PlayRun(answer=answer, graph=step.graph, topology=topology, paths=step.paths, played=played)


def _files(folder: Path) -> tuple[str, list[Path]]:
    """The traces of a folder, those of accelerator 0 first, and how their names begin."""
    if not folder.is_dir():
        raise broken(folder, "", "", "is no folder: give the one with NAME.0.et, NAME.1.et and so on")
    found: dict[str, dict[int, Path]] = {}
    for path in sorted(folder.iterdir()):
        if match := _TRACE.fullmatch(path.name):
            other = found.setdefault(match[1], {}).setdefault(int(match[2]), path)
            if other != path:
                raise broken(
                    folder, "", "", f"has accelerator {int(match[2])} twice: {other.name}, {path.name}"
                )
    if len(found) != 1:
        rule = f"has traces of {len(found)} runs ({', '.join(sorted(found))[:60]}): it must be one"
        raise broken(folder, "", "", rule if found else "has no traces, such as step.0.et")
    ((name, files),) = found.items()
    missing = set(range(len(files))) - files.keys()
    if missing:
        raise broken(
            folder, "", "", f"lacks the trace of accelerator {min(missing)}: {name}.{min(missing)}.et"
        )
    return name, [files[rank] for rank in range(len(files))]


def _groups(path: Path) -> dict[int, tuple[int, ...]]:
    """Accelerators of each group; none where there is no such file."""
    if not path.exists():
        return {}
    document = read_json(path)
    rule = 'must be groups and their accelerators, such as {"1": [0, 1]}'
    if not isinstance(document, dict):
        raise broken(path, "", json.dumps(document)[:60], rule)
    groups = {}
    for key, ranks in document.items():
        is_group = key.isascii() and key.isdigit() and len(key) < 10 and isinstance(ranks, list)
        if not is_group or not all(type(rank) is int and rank >= 0 for rank in ranks):
            raise broken(path, key[:60], json.dumps(ranks)[:60], rule)
        groups[int(key)] = tuple(ranks)
    return groups
