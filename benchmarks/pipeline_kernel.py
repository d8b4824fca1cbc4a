"""How many pipeline events per second does the compiled kernel play, and how many the slow reference?

    python -m benchmarks.pipeline_kernel

An event is one forward or backward of one micro-batch on one chunk. The population mixes sizes and schedules like a search; the
reference plays its first designs.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from numba import set_num_threads

from benchmarks.pipeline_reference import Step, play, play_without_network
from simulator.pipeline.schedule import PipelineColumns, play_pipelines

NUM_DESIGNS = 4000
NUM_BY_REFERENCE = 20


def population(num_designs: int, seed: int) -> PipelineColumns:
    """Returns random designs: 1 to 16 stages of 1 to 4 chunks, 1 to 8 micro-batches per stage."""
    draw = np.random.default_rng(seed)
    num_stages = draw.choice([1, 2, 4, 8, 16], num_designs)
    num_chunks_per_stage = draw.choice([1, 2, 4], num_designs)
    shape = (num_designs, int((num_stages * num_chunks_per_stage).max()))
    return {
        "num_stages": num_stages,
        "num_chunks_per_stage": num_chunks_per_stage,
        "num_micro_batches": num_stages * draw.integers(1, 9, num_designs),
        "chunk_forward_s": draw.uniform(0.9, 1.1, shape),
        "chunk_backward_s": draw.uniform(1.8, 2.2, shape),
        "send_s": draw.uniform(0.0, 0.1, num_designs),
        "send_blocks_sender": draw.random(num_designs) < 0.5,
        "gradient_sync_s": draw.uniform(0.0, 2.0, shape),
        "parameter_gather_s": draw.uniform(0.0, 2.0, shape),
        "num_overlap_buckets": draw.integers(0, 9, num_designs),
        "num_gather_buckets": draw.integers(0, 9, num_designs),
    }


def step_of(columns: PipelineColumns, row: int) -> Step:
    """Returns one design as the reference reads it."""
    return Step(
        num_stages=int(np.asarray(columns["num_stages"])[row]),
        num_chunks_per_stage=int(np.asarray(columns["num_chunks_per_stage"])[row]),
        num_micro_batches=int(np.asarray(columns["num_micro_batches"])[row]),
        forward_s=np.asarray(columns["chunk_forward_s"])[row].tolist(),
        backward_s=np.asarray(columns["chunk_backward_s"])[row].tolist(),
        sync_s=np.asarray(columns["gradient_sync_s"])[row].tolist(),
        gather_s=np.asarray(columns["parameter_gather_s"])[row].tolist(),
        send_s=float(np.asarray(columns["send_s"])[row]),
        send_blocks_sender=bool(np.asarray(columns["send_blocks_sender"])[row]),
        num_overlap_buckets=int(np.asarray(columns["num_overlap_buckets"])[row]),
        num_gather_buckets=int(np.asarray(columns["num_gather_buckets"])[row]),
    )


def num_events(columns: PipelineColumns, num_designs: int) -> int:
    """Returns the events of the first designs; each is played a second time without network."""
    p, v, m = (
        np.asarray(columns[name])[:num_designs]
        for name in ("num_stages", "num_chunks_per_stage", "num_micro_batches")
    )
    return int((4 * p * v * m).sum())


def seconds_of_kernel(columns: PipelineColumns) -> float:
    """Returns the shortest of five runs, after one that compiles."""
    play_pipelines(**columns)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        play_pipelines(**columns)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def seconds_of_reference(columns: PipelineColumns, num_designs: int) -> float:
    """Returns the time of one run."""
    steps = [step_of(columns, row) for row in range(num_designs)]
    start = time.perf_counter()
    for step in steps:
        play(step)
        play_without_network(step)
    return time.perf_counter() - start


def main() -> None:
    """Prints events per second of kernel and reference, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--threads", type=int, default=1)
    set_num_threads(parser.parse_args().threads)
    columns = population(NUM_DESIGNS, seed=1)
    kernel = num_events(columns, NUM_DESIGNS) / seconds_of_kernel(columns)
    reference = num_events(columns, NUM_BY_REFERENCE) / seconds_of_reference(columns, NUM_BY_REFERENCE)
    print(f"kernel     {kernel:12,.0f} events/s")
    print(f"reference  {reference:12,.0f} events/s")
    print(f"ratio      {kernel / reference:12,.0f}")


if __name__ == "__main__":
    main()
