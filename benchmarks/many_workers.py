"""How would an exhaustive study of 10^10 designs run on 1,000 workers? Measured costs per chunk, simulated as events.

    python -m benchmarks.many_workers --measure     # costs on this machine, over a real cluster of two workers
    python -m benchmarks.many_workers               # 10^10 designs with the costs below

The leader is the study's process together with Dask's scheduler: one queue that prepares chunks, hands them out and collects
results. A worker holds `CHUNKS_PER_WORKER` chunks and works on one of them. Workers fail, lose the chunks that they hold, and
return; their chunks are handed out again. Three ways to share the work are compared:

    sent     the leader lists the designs and sends them
    named    the leader sends the number of a block, and the worker lists its designs
    shared   before that, workers also prune the blocks by their bounds: `capplan study run --keep front`

In the first two the leader prunes alone, beforehand.
"""

from __future__ import annotations

import argparse
import heapq
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np

from benchmarks.search_jobs import WIDE
from constraints.space import pruned_space
from planner import load_job
from studies.designs.blocks import block_parts
from studies.designs.payload import from_bytes
from studies.designs.reduction import read_reduction
from studies.evaluation.distributed import CHUNKS_PER_WORKER, Cluster, local_cluster
from studies.evaluation.distributed_tasks import own_code, packed_job, packed_part, packed_plans, reduce_part
from studies.files.journal import Journal

EXAMPLE = Path(__file__).parents[1] / "examples" / "llama-3.1-70b.yaml"
DAY_S = 86_400.0
MTBF_S = {"30 days": 30 * DAY_S, "1 day": DAY_S, "1 hour": 3_600.0, "10 minutes": 600.0}
"""How often workers fail in the second table; machines that may be taken away at any time fail by the hour."""
Way = Literal["sent", "named", "shared"]


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What the parts of a study cost; the defaults were measured (docs/many-machines.md says how)."""

    worker_s_per_design: float = 14e-6
    """Listing, simulating, judging and reducing, on one core; the layouts of a block are listed before."""
    pruning_s_per_layout: float = 12.6e-6
    """Listing and bounding a layout, on one core."""
    listing_s_per_design: float = 0.7e-6
    """Listing designs at the leader, where it sends them."""
    packing_s_per_design: float = 0.25e-6
    """Serializing the designs to send."""
    bytes_per_design: float = 5.3
    """Size of a design on its way to a worker."""
    leader_s_per_chunk: float = 4e-3
    """Handing out a chunk and receiving its result: client and scheduler together."""
    result_s_per_chunk: float = 8.5e-3
    """Taking in a result: decoding, journal, front."""
    bytes_per_result: float = 17e3
    """Size of a front on its way back."""
    latency_s: float = 8e-3
    """Latency between the leader and a worker."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """The work to do, and the workers."""

    num_designs: float = 1e10
    designs_per_layout: float = 8.0
    """No layout is pruned; pruning would only make the study shorter."""
    layouts_per_block: int = 131_072
    """Layouts pruned together: 16,384 ways to split the model (`constraints.lattice`), each with eight choices."""
    num_workers: int = 1_000
    designs_per_chunk: int = 2_097_152
    way: Way = "shared"
    worker_mtbf_s: float = 30 * DAY_S
    """Mean time between failures of one worker; assumed."""
    restart_s: float = 120.0
    """Time until a failed worker is back; assumed."""
    spread: float = 0.2
    """Standard deviation of the logarithm of a chunk's time; assumed."""


@dataclass(frozen=True, kw_only=True)
class Played:
    """Result of a simulated study."""

    wall_s: float
    leader_load_fraction: float
    """Share of the wall time in which the leader was busy."""
    speedup: float
    """Relative to one worker that prunes and simulates alone, and never waits or fails."""
    num_chunks: int
    num_repeated: int
    """Number of chunks handed out again because their worker had failed."""
    leader_bytes_per_s: float
    """Traffic through the leader."""


@dataclass(kw_only=True)
class Leader:
    """One queue, served request by request."""

    free_s: float = 0.0
    """When the last request was served."""
    busy_s: float = 0.0
    """How much of that time it was busy."""
    num_chunks: int = 0
    num_repeated: int = 0

    def serve(self, now_s: float, work_s: float) -> None:
        """Does a piece of work as soon as it is requested and all earlier requests are done."""
        self.free_s = max(now_s, self.free_s) + work_s
        self.busy_s += work_s


@dataclass(frozen=True, kw_only=True)
class Work:
    """Chunks that are handed out together."""

    num_chunks: int
    worker_s: float
    """Mean time of a chunk on a worker."""
    handout_s: float
    """The leader's time to hand one out."""
    result_s: float
    """Its time to collect a result."""


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Workers, when each is free again, and when it fails next."""

    study: Study
    draw: np.random.Generator
    free_at_s: list[float]
    fails_at_s: list[float]

    @classmethod
    def of(cls, study: Study, seed: int) -> Fleet:
        """Returns workers that are all at hand."""
        draw = np.random.default_rng(seed)
        fails_at_s = draw.exponential(study.worker_mtbf_s, study.num_workers).tolist()
        return cls(study=study, draw=draw, free_at_s=[0.0] * study.num_workers, fails_at_s=fails_at_s)

    def run(self, worker: int, begin_s: float, mean_s: float) -> tuple[float, bool]:
        """A worker begins a chunk; returns when it ends or is lost with the worker, which then starts again."""
        study, draw = self.study, self.draw
        # The mean of the draws, so that the spread does not change that of the chunks.
        mean_factor = np.exp(study.spread**2 / 2)
        end_s = begin_s + mean_s * draw.lognormal(0.0, study.spread) / mean_factor
        is_lost = end_s > self.fails_at_s[worker]
        if is_lost:
            end_s = max(begin_s, self.fails_at_s[worker]) + study.restart_s
            self.fails_at_s[worker] = end_s + draw.exponential(study.worker_mtbf_s)
        self.free_at_s[worker] = end_s
        return end_s, is_lost


def hand_out(work: Work, leader: Leader, fleet: Fleet, latency_s: float) -> None:
    """Plays chunks event by event: a worker asks for one, the leader serves one request after another."""
    left = work.num_chunks
    num_slots = CHUNKS_PER_WORKER * fleet.study.num_workers
    requests = [(leader.free_s, slot, slot % fleet.study.num_workers, False) for slot in range(num_slots)]
    heapq.heapify(requests)
    serial, num_done = num_slots, 0
    while num_done < work.num_chunks:
        now_s, _, worker, has_result = heapq.heappop(requests)
        num_done += has_result
        leader.serve(now_s, (work.result_s if has_result else 0.0) + (work.handout_s if left else 0.0))
        if not left:
            if num_done < work.num_chunks and not requests:
                raise AssertionError("chunks are under way, but nobody works on them")
            continue
        left -= 1
        begin_s = max(leader.free_s + latency_s, fleet.free_at_s[worker])
        end_s, is_lost = fleet.run(worker, begin_s, work.worker_s)
        left += is_lost
        leader.num_repeated += is_lost
        heapq.heappush(requests, (end_s + latency_s, serial, worker, not is_lost))
        serial += 1
    leader.num_chunks += work.num_chunks


def play(study: Study, costs: Costs, seed: int = 0) -> Played:
    """Plays a study: its pruning, then its designs."""
    leader, fleet = Leader(), Fleet.of(study, seed)
    num_layouts = study.num_designs / study.designs_per_layout
    pruning_s = num_layouts * costs.pruning_s_per_layout
    if study.way == "shared":
        pruning = Work(
            num_chunks=int(np.ceil(num_layouts / study.layouts_per_block)),
            worker_s=study.layouts_per_block * costs.pruning_s_per_layout,
            handout_s=costs.leader_s_per_chunk,
            result_s=0.0,  # a bit for each layout: nothing beside the chunk itself
        )
        hand_out(pruning, leader, fleet, costs.latency_s)
    else:
        leader.serve(0.0, pruning_s)
    hand_out(_designs(study, costs), leader, fleet, costs.latency_s)
    size_bytes = leader.num_chunks * costs.bytes_per_result
    if study.way == "sent":
        size_bytes += study.num_designs * costs.bytes_per_design
    return Played(
        wall_s=leader.free_s,
        leader_load_fraction=leader.busy_s / leader.free_s,
        speedup=(study.num_designs * costs.worker_s_per_design + pruning_s) / leader.free_s,
        num_chunks=leader.num_chunks,
        num_repeated=leader.num_repeated,
        leader_bytes_per_s=size_bytes / leader.free_s,
    )


def _designs(study: Study, costs: Costs) -> Work:
    """Listing, simulating and reducing, chunk by chunk."""
    size, handout_s = study.designs_per_chunk, costs.leader_s_per_chunk
    if study.way == "sent":
        handout_s += size * (costs.listing_s_per_design + costs.packing_s_per_design)
    return Work(
        num_chunks=int(np.ceil(study.num_designs / size)),
        worker_s=size * costs.worker_s_per_design,
        handout_s=handout_s,
        result_s=costs.result_s_per_chunk,
    )


def measured() -> Costs:
    """Returns the costs on this machine, in processor seconds, so that other programs on it matter less."""
    job = load_job(EXAMPLE, WIDE)
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
        pruning_s_per_layout=processor_s(lambda: pruned_space(job)) / space.num_layouts,
        listing_s_per_design=processor_s(lambda: sum(map(len, space.design_batches(32_768))))
        / space.num_designs,
        packing_s_per_design=processor_s(lambda: packed_plans(plans)) / num_designs,
        bytes_per_design=len(payload) / num_designs,
        leader_s_per_chunk=leader_s,
        result_s_per_chunk=result_s,
        bytes_per_result=float(len(result)),
        latency_s=latency_s,
    )


def processor_s(work: Callable[[], object]) -> float:
    """Returns the least processor time of five calls after a first one."""
    times_s = []
    for _ in range(6):
        start_s = time.process_time()
        work()
        times_s.append(time.process_time() - start_s)
    return min(times_s[1:])


def echo(job: bytes, code: str, designs: bytes) -> bytes:
    """Stand-in for a chunk that takes no time."""
    del job, code
    return designs[:16_000]


def _round_trips(cluster: Cluster, job: bytes, payload: bytes) -> tuple[float, float]:
    """Processor seconds of client and scheduler per chunk, and the time until a single one is back."""
    num_chunks = 300
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


HEAD = (
    "| way | workers | designs a chunk | hours | leader busy | speed-up | chunks again | leader, MB/s |",
    "|---|---:|---:|---:|---:|---:|---:|---:|",
)


def table(costs: Costs, study: Study) -> str:
    """Returns wall time, load of the leader and speed-up against workers and size of a chunk, as Markdown."""
    ways: tuple[Way, ...] = ("sent", "named", "shared")
    sizes = (32_768, 262_144, 2_097_152)
    cases = [
        replace(study, way=way, num_workers=num_workers, designs_per_chunk=size)
        for way, num_workers, size in product(ways, (10, 100, 1_000), sizes)
    ]
    return "\n".join([*HEAD, *(line_of(case, costs) for case in cases)])


def failures(costs: Costs, study: Study) -> str:
    """Returns the same for a thousand workers that fail more and more often, as Markdown."""
    lines = [f"| mean time between failures of a worker {HEAD[0]}", f"|---:{HEAD[1]}"]
    for label, mtbf_s in MTBF_S.items():
        lines.append(f"| {label} {line_of(replace(study, worker_mtbf_s=mtbf_s), costs)}")
    return "\n".join(lines)


def line_of(case: Study, costs: Costs) -> str:
    """Returns one row of the table."""
    found = play(case, costs)
    return (
        f"| {case.way} | {case.num_workers:,} | {case.designs_per_chunk:,} | {found.wall_s / 3600:,.2f} | "
        f"{100 * found.leader_load_fraction:.0f} % | {found.speedup:,.0f} | {found.num_repeated:,} | "
        f"{found.leader_bytes_per_s / 1e6:.2f} |"
    )


def main() -> None:
    """Measures the costs, or plays the study and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="print the costs on this machine and end")
    parser.add_argument("--designs", type=float, default=1e10)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(asdict(measured()), indent=2))
    else:
        study = Study(num_designs=arguments.designs)
        print(table(Costs(), study), failures(Costs(), study), sep="\n\n")


if __name__ == "__main__":
    main()
