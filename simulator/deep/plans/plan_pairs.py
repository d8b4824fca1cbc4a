"""Which passes of a plan run in pairs, and what do they wait for? The pairs of `simulator.pipeline.dual_pipe` as tasks.

Passes are named by direction and chunk; their tasks are `(m, R)`, micro-batches and the played accelerators of a stage.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from simulator.deep.plans.plan_items import BACKWARD, FORWARD
from simulator.deep.plans.plan_pass import Pass
from simulator.deep.plans.plan_traffic import After
from simulator.deep.playing.tasks import NONE, TaskGraphBuilder
from simulator.pipeline.dual_pipe import is_of_pair, leaves_with
from simulator.pipeline.shape import DUAL_PIPE_V, PipelineShape
from simulator.table import Booleans, Integers

Named = tuple[int, int]


def paired_batches(pipeline: PipelineShape, direction: int, chunk: int) -> Booleans:
    """Returns whether each micro-batch's pass is one of a pair, `(m,)`."""
    kind, number = direction * pipeline.num_chunks + chunk, pipeline.num_micro_batches
    if pipeline.schedule != DUAL_PIPE_V:
        return np.zeros(number, dtype=np.bool_)
    return np.array([is_of_pair(pipeline, kind, micro_batch) for micro_batch in range(number)])


def leaving(
    graph: TaskGraphBuilder, pipeline: PipelineShape, passes: Mapping[Named, Pass], name: Named
) -> After:
    """Returns what the messages of a pass wait for: its end, or that of the pass with which they leave.

    Args:
        graph: the graph to which tasks are added.
        pipeline: its shape.
        passes: all passes.
        name: the pass whose messages leave.
    """
    done = passes[name].done
    if pipeline.schedule != DUAL_PIPE_V:
        return done
    gone = graph.add("leaves", after=[np.full(done[0].shape, NONE)]).reshape(done[0].shape)
    for row in range(pipeline.num_micro_batches):
        kind, micro_batch = leaves_with(pipeline, name[0] * pipeline.num_chunks + name[1], row)
        for each in passes[divmod(kind, pipeline.num_chunks)].done:
            graph.add_edges(each[micro_batch], gone[row])
    return (gone,)


def meet(
    graph: TaskGraphBuilder,
    pipeline: PipelineShape,
    passes: Mapping[Named, Pass],
    arrivals: Mapping[Named, Integers],
) -> None:
    """Makes the forward of each pair wait for the message for which its backward waits.

    Args:
        graph: the graph to which edges are added.
        pipeline: its shape.
        passes: all passes.
        arrivals: tasks at which messages arrive, by the pass that receives them.
    """
    for chunk in range(pipeline.num_chunks):
        paired = np.flatnonzero(paired_batches(pipeline, FORWARD, chunk))
        arrived = arrivals.get((BACKWARD, pipeline.num_chunks - 1 - chunk))
        if arrived is not None:
            begin = passes[FORWARD, chunk].begin[paired]
            graph.add_edges(arrived[paired - pipeline.num_stages], begin)


def behind(graph: TaskGraphBuilder, sent: After, after: After, is_behind: Booleans) -> Integers:
    """Returns tasks that wait for `after` and, in the micro-batches of `is_behind`, `(m,)`, also for `sent`."""
    gate = graph.add("ready", after=after).reshape(after[0].shape)
    for each in sent:
        graph.add_edges(each[is_behind], gate[is_behind])
    return gate
