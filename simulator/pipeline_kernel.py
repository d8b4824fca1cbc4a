"""How is the training step of one design played? The compiled event loop behind `simulator.pipeline`.

A stage is a clock and a fixed order of forwards and backwards. Stages are advanced in turn, each until its
next operation lacks an input; every operation is visited once, and its end is the larger of two clocks plus
its duration, so that the order of the visits changes nothing. Records instead of one array per quantity,
and event functions copied into their loop, because counting references to arrays costs more than an event.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from simulator.compiled import compiled, compiled_parallel, inlined
from simulator.pipeline_cycle import remember, repeated_micro_batches, skip
from simulator.pipeline_state import (
    PipelineBatch,
    PipelineDesign,
    PipelineResults,
    PipelineWorkspace,
    Records,
    design_of,
    has_schedule,
    load_chunks,
    new_workspace,
    workspace_of,
)


@compiled_parallel
def play_blocks(batch: PipelineBatch, results: PipelineResults, num_blocks: int) -> None:
    """Plays the designs of a batch on several threads; no design sees another one."""
    for block in prange(num_blocks):
        play_block(batch, results, block, num_blocks)


@compiled
def play_block(batch: PipelineBatch, results: PipelineResults, first: int, stride: int) -> None:
    """Plays every `stride`-th design of a batch, with one workspace for all of them."""
    memory = new_workspace(batch)
    for row in range(first, batch.num_stages.shape[0], stride):
        design = design_of(batch, row)
        if not has_schedule(design):
            _fill_with_nan(design, results, row)
            continue
        work = workspace_of(memory, design)
        load_chunks(batch, row, design, work.chunks)
        play_design(design, None, work.chunks, work.stages, work.spans, is_in_full=False)
        _write_results(design, work, results, row)
        if _silence_network(design, work.chunks):
            play_design(design, None, work.chunks, work.stages, work.spans, is_in_full=False)
            results.exposed_sync_s[row] = results.step_s[row] - _step_s(design, work)


@compiled
def _silence_network(design: PipelineDesign, chunks: Records) -> bool:
    """Sets gradient sync and parameter gather to zero; returns False when they are zero already."""
    was_used = False
    for chunk in range(design.num_chunks):
        was_used = was_used or chunks[chunk].sync_s != 0.0 or chunks[chunk].gather_s != 0.0
        chunks[chunk].sync_s = 0.0
        chunks[chunk].gather_s = 0.0
    return was_used


@compiled
def play_design(
    design: PipelineDesign,
    durations: Records | None,
    chunks: Records,
    stages: Records,
    spans: Records,
    is_in_full: bool,
) -> None:
    """Plays one step: sweeps up and down the stages, each as far as its inputs allow.

    Activations travel up and gradients down, so that a sweep moves every stage by about p operations and
    the number of visits in vain stays below the number of operations. Unless every operation is wanted, what
    only repeats itself is skipped (`simulator.pipeline_cycle`).

    Durations `(C, M)` by chunk and micro-batch have `forward_s` and `backward_s`; None stands for micro-batches
    that are all alike, with the durations of their chunks. Micro-batches that differ are wanted in full.
    """
    _reset(design, chunks, stages)
    num_left = 2 * design.num_chunks * design.num_micro_batches
    # Sweeps since a state was remembered, and after how many the next one is, twice as late each time (Brent, 1980).
    num_sweeps, patience = 0, 0 if is_in_full else 1
    while num_left > 0:
        num_played = 0
        for stage in range(design.num_stages):
            num_played += _advance_stage(design, durations, chunks, stages, spans, stage)
        for stage in range(design.num_stages - 1, -1, -1):
            num_played += _advance_stage(design, durations, chunks, stages, spans, stage)
        assert num_played > 0
        num_left -= num_played
        num_sweeps += 1
        if patience == 0 or chunks[design.num_chunks - 1].num_forwards == 0:
            continue
        num_skipped = _skipped(design, chunks, stages, spans)
        num_left -= num_skipped
        if num_skipped > 0:
            patience = 0
        elif num_sweeps >= patience:
            remember(chunks, stages, design.num_chunks, design.num_stages)
            num_sweeps, patience = 0, 2 * patience


@compiled
def _skipped(design: PipelineDesign, chunks: Records, stages: Records, spans: Records) -> int:
    """Skips all whole periods before the forwards run out, if the pipeline repeats itself; returns the operations."""
    period = repeated_micro_batches(chunks, stages, spans, design.num_chunks, design.num_stages)
    if period == 0:
        return 0
    num_periods = (design.num_micro_batches - chunks[0].num_forwards) // period
    return int(skip(chunks, stages, spans, design.num_chunks, design.num_stages, num_periods))


@compiled
def _reset(design: PipelineDesign, chunks: Records, stages: Records) -> None:
    """Puts every clock and counter to the start of the step."""
    for stage in range(design.num_stages):
        stages[stage].compute_free_s = 0.0
        stages[stage].network_free_s = 0.0
        stages[stage].gathered_s = 0.0
        stages[stage].then_free_s = 0.0
        stages[stage].num_forwards = 0
        stages[stage].num_backwards = 0
        stages[stage].peak_in_flight = 0
    for chunk in range(design.num_chunks):
        chunks[chunk].num_forwards = 0
        chunks[chunk].num_backwards = 0
        chunks[chunk].then_forwards = 0
        chunks[chunk].then_backwards = 0
        if design.num_overlap_buckets == 0:
            stages[chunk % design.num_stages].compute_free_s += chunks[chunk].gather_s


@inlined
def _advance_stage(
    design: PipelineDesign,
    durations: Records | None,
    chunks: Records,
    stages: Records,
    spans: Records,
    stage: int,
) -> int:
    """Plays operations of a stage in its fixed order until one lacks its input; returns how many.

    A schedule of w warm-up forwards followed by one forward, one backward in turn is the same as: run a
    forward whenever at most w activations are held, else a backward.
    """
    num_each_way = design.num_chunks // design.num_stages * design.num_micro_batches
    num_warm_up = design.num_stages - 1 - stage
    if design.num_chunks > design.num_stages:
        num_warm_up = 2 * num_warm_up + design.num_chunks - design.num_stages
    num_before = stages[stage].num_forwards + stages[stage].num_backwards
    while stages[stage].num_backwards < num_each_way:
        num_forwards = stages[stage].num_forwards
        num_in_flight = num_forwards - stages[stage].num_backwards
        if num_forwards < num_each_way and num_in_flight <= num_warm_up:
            is_played = _play_forward(design, durations, chunks, stages, spans, stage)
        else:
            is_played = _play_backward(design, durations, chunks, stages, spans, stage)
        if not is_played:
            break
    return int(stages[stage].num_forwards + stages[stage].num_backwards - num_before)


@inlined
def _chunk_offset(design: PipelineDesign, virtual_micro_batch: int) -> int:
    """Returns the offset of the chunk whose turn it is: a stage does p micro-batches on each in turn."""
    if design.num_chunks == design.num_stages:
        return 0
    turn = virtual_micro_batch // design.num_stages
    return turn * design.num_stages % design.num_chunks


@inlined
def _play_forward(
    design: PipelineDesign,
    durations: Records | None,
    chunks: Records,
    stages: Records,
    spans: Records,
    stage: int,
) -> bool:
    """Plays the next forward of a stage; returns False when its activation is not yet computed."""
    rank = stages[stage]
    chunk = stage + _chunk_offset(design, rank.num_forwards)
    micro_batch = chunks[chunk].num_forwards
    start_s = rank.compute_free_s
    if chunk > 0:
        if chunks[chunk - 1].num_forwards <= micro_batch:
            return False
        start_s = max(start_s, spans[chunk - 1, micro_batch].forward_end_s + design.send_s)
    duration_s = chunks[chunk].forward_s
    if durations is not None:
        duration_s = durations[chunk, micro_batch].forward_s
    end_s = start_s + duration_s
    if micro_batch == 0 and design.num_overlap_buckets > 0:
        start_s, end_s = _first_forward(design, chunks, stages, chunk, start_s, duration_s)
    spans[chunk, micro_batch].forward_start_s = start_s
    spans[chunk, micro_batch].forward_end_s = end_s
    is_blocked = design.send_blocks_sender and chunk + 1 < design.num_chunks
    rank.compute_free_s = end_s + design.send_s if is_blocked else end_s
    chunks[chunk].num_forwards += 1
    rank.num_forwards += 1
    rank.peak_in_flight = max(rank.peak_in_flight, rank.num_forwards - rank.num_backwards)
    return True


@inlined
def _first_forward(
    design: PipelineDesign,
    chunks: Records,
    stages: Records,
    chunk: int,
    start_s: float,
    duration_s: float,
) -> tuple[float, float]:
    """Returns start and end of a chunk's first forward, fed by its parameters piece by piece."""
    stage, num_pieces = chunk % design.num_stages, design.num_overlap_buckets
    gather_start_s, gather_s = stages[stage].gathered_s, chunks[chunk].gather_s
    stages[stage].gathered_s = gather_start_s + gather_s
    end_s = streamed_end_s(gather_start_s, gather_s, start_s, duration_s, num_pieces)
    return max(start_s, gather_start_s + gather_s / num_pieces), end_s


@inlined
def _play_backward(
    design: PipelineDesign,
    durations: Records | None,
    chunks: Records,
    stages: Records,
    spans: Records,
    stage: int,
) -> bool:
    """Plays the next backward of a stage; returns False when its gradient is not yet computed."""
    rank = stages[stage]
    last_of_rank = stage + design.num_chunks - design.num_stages
    chunk = last_of_rank - _chunk_offset(design, rank.num_backwards)
    micro_batch = chunks[chunk].num_backwards
    start_s = rank.compute_free_s
    if chunk + 1 < design.num_chunks:
        if chunks[chunk + 1].num_backwards <= micro_batch:
            return False
        start_s = max(start_s, spans[chunk + 1, micro_batch].backward_end_s + design.send_s)
    duration_s = chunks[chunk].backward_s
    if durations is not None:
        duration_s = durations[chunk, micro_batch].backward_s
    if micro_batch + 1 == design.num_micro_batches and design.num_overlap_buckets > 0:
        rank.network_free_s = streamed_end_s(
            start_s, duration_s, rank.network_free_s, chunks[chunk].sync_s, design.num_overlap_buckets
        )
    spans[chunk, micro_batch].backward_start_s = start_s
    spans[chunk, micro_batch].backward_end_s = start_s + duration_s
    is_blocked = design.send_blocks_sender and chunk > 0
    rank.compute_free_s = start_s + duration_s + (design.send_s if is_blocked else 0.0)
    chunks[chunk].num_backwards += 1
    rank.num_backwards += 1
    return True


@inlined
def streamed_end_s(
    producer_start_s: float, producer_s: float, consumer_free_s: float, consumer_s: float, num_pieces: int
) -> float:
    """Returns when a consumer ends that takes K equal pieces from a producer, each no sooner than produced.

    With a the producer's start, x its duration, u the time from which the consumer is free and y its
    duration, piece k is there at a + (k+1) x/K and leaves K-k pieces to consume, hence

        end = max(u + y, max_k [a + (k+1) x/K + (K-k) y/K]);

    the inner maximum is linear in k and so at the first or at the last piece.
    """
    first_piece_s = producer_start_s + producer_s / num_pieces + consumer_s
    last_piece_s = producer_start_s + producer_s + consumer_s / num_pieces
    return max(consumer_free_s + consumer_s, first_piece_s, last_piece_s)


@compiled
def _stage_end_s(design: PipelineDesign, work: PipelineWorkspace, stage: int) -> float:
    """Returns when a stage has its last backward and all its gradient syncs done."""
    end_s = float(work.spans[stage, design.num_micro_batches - 1].backward_end_s)
    if design.num_overlap_buckets > 0:
        return max(end_s, float(work.stages[stage].network_free_s))
    for chunk in range(stage, design.num_chunks, design.num_stages):
        end_s += work.chunks[chunk].sync_s
    return end_s


@compiled
def _step_s(design: PipelineDesign, work: PipelineWorkspace) -> float:
    """Returns when the last stage to finish has finished."""
    step_s = 0.0
    for stage in range(design.num_stages):
        step_s = max(step_s, _stage_end_s(design, work, stage))
    return step_s


@compiled
def _write_results(
    design: PipelineDesign, work: PipelineWorkspace, results: PipelineResults, row: int
) -> None:
    """Writes one played design into its row of the results."""
    m, p = design.num_micro_batches, design.num_stages
    results.step_s[row] = _step_s(design, work)
    for stage in range(p):
        results.stage_end_s[row, stage] = _stage_end_s(design, work, stage)
        results.peak_in_flight[row, stage] = work.stages[stage].peak_in_flight
    for chunk in range(design.num_chunks):
        results.busy_s[row, chunk % p] += m * (work.chunks[chunk].forward_s + work.chunks[chunk].backward_s)
        if design.send_blocks_sender:
            num_sends = m * (int(chunk > 0) + int(chunk + 1 < design.num_chunks))
            results.send_busy_s[row, chunk % p] += num_sends * design.send_s


@compiled
def _fill_with_nan(design: PipelineDesign, results: PipelineResults, row: int) -> None:
    """Marks a design whose schedule does not exist."""
    results.step_s[row] = np.nan
    results.exposed_sync_s[row] = np.nan
    results.busy_s[row, : design.num_stages] = np.nan
    results.send_busy_s[row, : design.num_stages] = np.nan
    results.stage_end_s[row, : design.num_stages] = np.nan
