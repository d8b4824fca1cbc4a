"""How long does it take to try every design of GPT-3 175B on 512 GPUs, and what is found?

    python -m benchmarks.exhaust                        13 million designs
    python -m benchmarks.exhaust --power-caps 4         about one million

The degrees are those that Calculon's search covers for this model and cluster (arXiv 2311.02076): all divisors of 512 that the
model allows, every micro-batch that divides the batch, every pipeline and every number of chunks. ZeRO stages, context
parallelism, checkpoint schemes, spares and power caps are added. The search is that of `search: {algorithm: exhaustive}`,
without a journal; designs excluded by bounds are not counted.
"""

from __future__ import annotations

import argparse
import json
import resource
import time

import numpy as np

from benchmarks.search_jobs import SCHEMES
from constraints.divisors import divisors
from constraints.evaluation import Evaluation, evaluate
from constraints.space import pruned_space
from planner.job.file import parse_job
from simulator.domain.job import Job
from simulator.units import MIB
from studies.designs.archive import Archive
from studies.designs.reduction import Reduction
from studies.evaluation.evaluator import Simulation
from studies.search import Searcher
from studies.study import run_study

NUM_POWER_CAPS = 50
"""One every 3.3 W between 60 and 100 % of 400 W; the driver takes whole watts."""
BATCH = 1536
NUM_HEADS = 96


def job_of(num_power_caps: int) -> Job:
    """Returns GPT-3 on 512 A100 with every degree that divides what it has to divide."""
    return parse_job(
        {
            "workload": {
                "model": "gpt3-175b",
                "tokens": 300e9,
                "sequence_length": 2048,
                "global_batch_size": BATCH,
            },
            "offers": [{"accelerator": "a100-sxm4-80gb", "num_gpus": 512, "rent_usd_per_gpu_hour": 2.0}],
            "site": "us-iowa",
            "search": {
                "algorithm": "exhaustive",
                "num_refinements": 0,
                "tensor_parallel": divisors(NUM_HEADS),
                "pipeline_parallel": list(range(1, NUM_HEADS + 1)),
                "context_parallel": [1, 2, 4, 8],
                "micro_batch_sizes": divisors(BATCH),
                "zero_stages": [0, 1, 2, 3],
                "checkpoint_schemes": SCHEMES,
                "power_caps": np.linspace(0.6, 1.0, num_power_caps).round(4).tolist(),
            },
        }
    )


def exhausted(job: Job) -> dict[str, float]:
    """Tries every design of a job and returns what that took and found."""
    archive = Archive(job)

    def record(found: Evaluation | Reduction, stage: str) -> None:
        del stage
        archive.add(found)

    started_s, cpu_s = time.perf_counter(), time.process_time()
    run_study(Searcher(job=job, archive=archive, evaluator=Simulation(job), record=record), seed=1)
    seconds, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_s
    return {
        "num_designs": archive.num_evaluated,
        "num_feasible": archive.num_feasible,
        "front_size": 0 if archive.front is None else len(archive.front),
        "seconds": seconds,
        "cpu_seconds": cpu_s,
        "designs_per_s": archive.num_evaluated / seconds,
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB,
    }


def main() -> None:
    """Tries the designs and prints the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--power-caps", type=int, default=NUM_POWER_CAPS)
    job = job_of(parser.parse_args().power_caps)
    evaluate(job, pruned_space(job_of(1)).layouts.take(slice(0, 1)))  # loads what is compiled
    print(json.dumps(exhausted(job), indent=2))


if __name__ == "__main__":
    main()
