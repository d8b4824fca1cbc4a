"""How long do the Chakra traces in a folder take on a network? The answer of `capplan trace play`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from planner import __version__
from planner.deep.events import check_size
from planner.deep.played_step import (
    PlayedStep,
    StepRun,
    accelerator_times,
    circuit_summary,
    hot_links,
    lacks_ramp,
)
from planner.trace.request import TraceRequest
from simulator.deep.playing.play import play
from simulator.deep.playing.waits import Accelerators, receivers, same_operators, waits
from simulator.deep.traced_steps.chakra_play import Groups, chakra_step
from simulator.deep.traces.chakra import ChakraNode, NodeType
from simulator.deep.traces.chakra_files import read_chakra_trace
from simulator.deep.traces.trace_text import broken, read_json

_TRACE = re.compile(r"(.+)\.(\d{1,6})\.(?:et|json)", re.ASCII)
_MOST_TRACES = 10**6


class PlayAnswer(PlayedStep):
    """Chakra traces, played."""

    traces: str
    """How the names of their files begin."""
    callers_in: tuple[int, ...] = ()
    """Accelerators whose traces name callers in `ctrl_deps`, which impose no wait there; in all other traces they do."""


@dataclass(frozen=True, kw_only=True)
class PlayRun(StepRun):
    """Played traces with everything that is known about them."""

    answer: PlayAnswer


def play_traces(request: TraceRequest, *, is_drawn: bool = False) -> PlayRun:
    """Returns the traces in a folder, played on a network.

    Args:
        request: the folder, with `NAME.RANK.et` or `.json` of every accelerator and `NAME.groups.json`, and the network;
            the number of accelerators is that of the files.
        is_drawn: whether a timeline will be drawn.

    Raises:
        InputError: files are missing or invalid, do not fit together, or are too large to be drawn.
    """
    name, files = _files(request.path)
    traces = [read_chakra_trace(file) for file in files]
    ranks = [trace.nodes for trace in traces]
    groups = _groups(request.path / f"{name}.groups.json")
    _check_all_there(request.path, name, files[0].suffix, ranks, groups)
    topology = replace(request, num_gpus=len(ranks)).topology()
    step = chakra_step(ranks, groups, topology, algorithm=request.collectives)
    if is_drawn:
        check_size(step.graph)
    played = play(step.graph, topology, step.paths)
    known = Accelerators(receiver=receivers(topology, step.paths), team=same_operators(step.graph, played))
    found = waits(step.graph, played, len(step.paths), known)
    answer = PlayAnswer(
        capplan_version=__version__,
        traces=name,
        callers_in=tuple(rank for rank, trace in enumerate(traces) if trace.has_callers),
        num_gpus=len(ranks),
        step_s=played.makespan_s,
        num_tasks=len(step.graph),
        accelerators=accelerator_times(step.graph, found),
        hot_links=hot_links(topology, step.paths, played, found.path_s),
        circuits=circuit_summary(topology, played),
        lacks_ramp=lacks_ramp(step.graph, topology),
    )
    return PlayRun(answer=answer, graph=step.graph, topology=topology, paths=step.paths, played=played)


def _files(folder: Path) -> tuple[str, list[Path]]:
    """How the names of a folder's traces begin, and the traces, accelerator 0 first."""
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
        lacks = f"{name}.{min(missing)}{next(iter(files.values())).suffix}"
        raise broken(folder, "", "", f"lacks the trace of accelerator {min(missing)}: {lacks}")
    return name, [files[rank] for rank in range(len(files))]


def _check_all_there(
    folder: Path, name: str, suffix: str, ranks: Sequence[Sequence[ChakraNode]], groups: Groups
) -> None:
    """Refuses traces that name accelerators beyond the last one that has a file."""
    last, place = max(_named(name, suffix, ranks, groups), default=(0, ""))
    if len(ranks) <= last < _MOST_TRACES:
        others = last - len(ranks)
        lacks = f"{name}.{len(ranks)}{suffix} {f'and {others} more are' if others else 'is'} missing"
        rule = f"has {len(ranks)} of {last + 1} traces: {lacks}; {place} names accelerator {last}"
        raise broken(folder, "", "", rule)


def _named(
    name: str, suffix: str, ranks: Sequence[Sequence[ChakraNode]], groups: Groups
) -> Iterator[tuple[int, str]]:
    """Yields the accelerators that are named, and where."""
    for group, members in groups.items():
        yield from ((rank, f"group {group} of {name}.groups.json") for rank in members)
    partners = {NodeType.COMM_SEND_NODE: "comm_dst", NodeType.COMM_RECV_NODE: "comm_src"}
    for rank, nodes in enumerate(ranks):
        for node in nodes:
            partner = node.attributes.get(partners.get(node.type, ""))
            if isinstance(partner, int):
                yield partner, f"node {node.id} of {name}.{rank}{suffix}"


def _groups(path: Path) -> dict[int, tuple[int, ...]]:
    """Accelerators of each group; none if there is no such file."""
    if not path.exists():
        return {}
    document = read_json(path, is_each_name_once=True)
    rule = 'must be groups and their accelerators, such as {"1": [0, 1]}'
    if not isinstance(document, dict):
        raise broken(path, "", json.dumps(document)[:60], rule)
    groups: dict[int, tuple[int, ...]] = {}
    for key, ranks in document.items():
        is_group = key.isascii() and key.isdigit() and len(key) < 10 and isinstance(ranks, list)
        if not is_group or not all(type(rank) is int and rank >= 0 for rank in ranks):
            raise broken(path, key[:60], json.dumps(ranks)[:60], rule)
        if int(key) in groups:
            raise broken(path, key, "", f"is group {int(key)} once more: give each group once")
        if len(set(ranks)) < len(ranks):
            twice = next(rank for place, rank in enumerate(ranks) if rank in ranks[:place])
            raise broken(path, key, "", f"has accelerator {twice} twice: name each member once")
        groups[int(key)] = tuple(ranks)
    return groups
