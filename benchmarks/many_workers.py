"""How would an exhaustive study of 10^10 designs run on 1,000 workers? Measured costs of a chunk, played as events.

    python -m benchmarks.many_workers --measure     # costs on this machine, over a real cluster of two workers
    python -m benchmarks.many_workers               # 10^10 designs with the costs below

The leader is the process of the study with Dask's scheduler beside it: one queue that prepares chunks, hands them out and
takes in results. A worker holds `CHUNKS_PER_WORKER` chunks and works on one of them. Workers fail, lose the chunks that they
hold, and come back; their chunks go out again. Three ways to share the work are compared:

    sent     the leader lists the designs and sends them
    named    the leader sends the number of a block, and the worker lists its designs: `capplan study run --keep front`
    shared   workers also prune the layouts by their bounds, which the leader does alone, beforehand, in the other two
"""

from __future__ import annotations

import argparse
import heapq
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np

from constraints.space import pruned_space
from planner import load_job
from studies.blocks import block_parts
from studies.distributed import CHUNKS_PER_WORKER, Cluster, local_cluster
from studies.distributed_tasks import own_code, packed_job, packed_part, packed_plans, reduce_part
from studies.journal import Journal
from studies.payload import from_bytes
from studies.reduction import read_reduction

EXAMPLE = Path(__file__).parents[1] / "examples" / "llama-3.1-70b.yaml"
DAY_S = 86_400.0
Way = Literal["sent", "named", "shared"]


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What the parts of a study cost; the defaults were measured (docs/many-machines.md says how)."""

    worker_s_per_design: float = 14e-6
    """Listing, simulating, judging and reducing, on one core."""
    pruning_s_per_design: float = 1.6e-6
    """Bounding layouts, of which all are kept and each has eight designs."""
    listing_s_per_design: float = 0.7e-6
    """Listing designs at the leader."""
    packing_s_per_design: float = 0.25e-6
    """Making bytes of the designs to send."""
    bytes_per_design: float = 5.3
    """Size of a design on its way to a worker."""
    leader_s_per_chunk: float = 4e-3
    """Handing out a chunk and having its result: client and scheduler together."""
    result_s_per_chunk: float = 8.5e-3
    """Taking in a result: decoding, journal, front."""
    bytes_per_result: float = 17e3
    """Size of a front on its way back."""
    latency_s: float = 8e-3
    """Between the leader and a worker."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is to be done, and by whom."""

    num_designs: float = 1e10
    num_workers: int = 1_000
    designs_per_chunk: int = 2_097_152
    way: Way = "shared"
    worker_mtbf_s: float = 30 * DAY_S
    """Mean time between failures of one worker; assumed."""
    restart_s: float = 120.0
    """Until a worker that failed is back; assumed."""
    spread: float = 0.2
    """Standard deviation of the logarithm of a chunk's time; assumed."""


@dataclass(frozen=True, kw_only=True)
class Played:
    """What came of it."""

    wall_s: float
    leader_load_fraction: float
    """Share of the wall time in which the leader was busy."""
    speedup: float
    """Over one worker that never waits or fails."""
    num_chunks: int
    num_repeated: int
    """Chunks that went out again because their worker had failed."""
    leader_bytes_per_s: float
    """Traffic through the leader."""


def play(study: Study, costs: Costs, seed: int = 0) -> Played:
    """Plays a study event by event: a worker asks for a chunk, the leader serves one request after another."""
    draw = np.random.default_rng(seed)
    is_sent = study.way == "sent"
    size = study.designs_per_chunk
    handout_s = costs.leader_s_per_chunk
    if is_sent:
        handout_s += size * (costs.listing_s_per_design + costs.packing_s_per_design)
    mean_factor = np.exp(study.spread**2 / 2)  # so that the spread does not change the mean

    num_chunks = left = int(np.ceil(study.num_designs / size))
    free_at_s = [0.0] * study.num_workers
    fails_at_s = draw.exponential(study.worker_mtbf_s, study.num_workers).tolist()
    worker_s, pruning_s = costs.worker_s_per_design, costs.pruning_s_per_design
    if study.way == "shared":
        worker_s, pruning_s = worker_s + pruning_s, 0.0
    leader_free_s = leader_busy_s = pruning_s * study.num_designs
    num_done = num_repeated = 0
    requests = [
        (0.0, slot, slot % study.num_workers, False) for slot in range(CHUNKS_PER_WORKER * study.num_workers)
    ]
    heapq.heapify(requests)
    serial = len(requests)
    while num_done < num_chunks:
        now_s, _, worker, has_result = heapq.heappop(requests)
        work_s = costs.result_s_per_chunk if has_result else 0.0
        num_done += has_result
        takes_chunk = left > 0
        work_s += handout_s if takes_chunk else 0.0
        leader_free_s = max(now_s, leader_free_s) + work_s
        leader_busy_s += work_s
        if not takes_chunk:
            if num_done < num_chunks and not requests:
                raise AssertionError("chunks are under way, but nobody works on them")
            continue
        left -= 1
        begin_s = max(leader_free_s + costs.latency_s, free_at_s[worker])
        end_s = begin_s + size * worker_s * draw.lognormal(0.0, study.spread) / mean_factor
        is_lost = end_s > fails_at_s[worker]
        if is_lost:
            end_s = max(begin_s, fails_at_s[worker])
            fails_at_s[worker] = end_s + study.restart_s + draw.exponential(study.worker_mtbf_s)
            left += 1
            num_repeated += 1
        free_at_s[worker] = end_s + (study.restart_s if is_lost else 0.0)
        heapq.heappush(requests, (free_at_s[worker] + costs.latency_s, serial, worker, not is_lost))
        serial += 1
    size_bytes = costs.bytes_per_result + (size * costs.bytes_per_design if is_sent else 0.0)
    return Played(
        wall_s=leader_free_s,
        leader_load_fraction=leader_busy_s / leader_free_s,
        speedup=study.num_designs * (costs.worker_s_per_design + costs.pruning_s_per_design) / leader_free_s,
        num_chunks=num_chunks,
        num_repeated=num_repeated,
        leader_bytes_per_s=(num_chunks + num_repeated) * size_bytes / leader_free_s,
    )


def measured() -> Costs:
    """Returns the costs on this machine, in processor seconds, so that other programs on it matter less."""
    job = load_job(EXAMPLE)
    space = pruned_space(job)
    plans = next(space.design_batches(32_768))
    num_designs = len(plans)
    packed, payload = packed_job(job), packed_plans(plans)
    part = packed_part(next(block_parts(space, num_designs)))
    result = reduce_part(packed, own_code(), part)
    num_reduced = read_reduction(job, from_bytes(result)).num_evaluated
    with TemporaryDirectory() as folder, Journal.create(Path(folder) / "a.study", {}) as journal:
        numbers = iter(range(1_000))

        def take_in() -> None:
            reduction = read_reduction(job, from_bytes(result))
            journal.append_reduction(next(numbers), "benchmark", 0.0, reduction)

        result_s = processor_s(take_in)
    with local_cluster(2) as cluster:
        leader_s, latency_s = _round_trips(cluster, packed, payload)
    return Costs(
        worker_s_per_design=processor_s(lambda: reduce_part(packed, own_code(), part)) / num_reduced,
        pruning_s_per_design=processor_s(lambda: pruned_space(job)) / space.num_layouts / 8,
        listing_s_per_design=processor_s(lambda: sum(map(len, space.design_batches(32_768))))
        / space.num_designs,
        packing_s_per_design=processor_s(lambda: packed_plans(plans)) / num_designs,
        bytes_per_design=len(payload) / num_designs,
        leader_s_per_chunk=leader_s,
        result_s_per_chunk=result_s,
        bytes_per_result=float(len(result)),
        latency_s=latency_s,
    )


def processor_s(work: Callable[[], object], num_times: int = 5) -> float:
    """Returns the least processor time of some calls after a first one."""
    times_s = []
    for _ in range(num_times + 1):
        start_s = time.process_time()
        work()
        times_s.append(time.process_time() - start_s)
    return min(times_s[1:])


def echo(job: bytes, code: str, designs: bytes) -> bytes:
    """Stands for a chunk that takes no time."""
    del job, code
    return designs[:16_000]


def _round_trips(cluster: Cluster, job: bytes, payload: bytes, num_chunks: int = 300) -> tuple[float, float]:
    """Processor seconds of client and scheduler per chunk, and the time until a single one is back."""
    cluster.submit(echo, job, payload)()
    start_s = time.process_time()
    for pending in [cluster.submit(echo, job, payload) for _ in range(num_chunks)]:
        pending()
    leader_s = (time.process_time() - start_s) / num_chunks
    times_s = []
    for _ in range(20):
        begun_s = time.perf_counter()
        cluster.submit(echo, job, payload[:1_000])()
        times_s.append(time.perf_counter() - begun_s)
    return leader_s, min(times_s) / 2


def table(costs: Costs, study: Study) -> str:
    """Returns wall time, load of the leader and speed-up against workers and size of a chunk, as Markdown."""
    lines = [
        "| way | workers | designs a chunk | hours | leader busy | speed-up | chunks again | leader, MB/s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for way in ("sent", "named", "shared"):
        for num_workers in (10, 100, 1_000):
            for size in (32_768, 262_144, 2_097_152):
                case = replace(study, way=way, num_workers=num_workers, designs_per_chunk=size)
                found = play(case, costs)
                lines.append(
                    f"| {way} | {num_workers:,} | {size:,} | {found.wall_s / 3600:,.2f} | "
                    f"{100 * found.leader_load_fraction:.0f} % | {found.speedup:,.0f} | {found.num_repeated:,} | "
                    f"{found.leader_bytes_per_s / 1e6:.2f} |"
                )
    return "\n".join(lines)


def main() -> None:
    """Measures the costs, or plays the study and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="print the costs on this machine and end")
    parser.add_argument("--designs", type=float, default=1e10)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(asdict(measured()), indent=2))
    else:
        print(table(Costs(), Study(num_designs=arguments.designs)))


if __name__ == "__main__":
    main()
