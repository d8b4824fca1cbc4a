"""Which jobs do the tests of the search use? Real ones, reduced until all designs can be evaluated in a second."""

from __future__ import annotations

from constraints.evaluation import Evaluation
from planner.job.file import parse_job
from simulator.domain.job import Job
from simulator.domain.limits import Limits
from simulator.domain.offer import Estimate
from studies.designs.archive import Archive
from studies.designs.reduction import Reduction
from studies.evaluation.evaluator import Evaluator, Simulation
from studies.progress import Stop, never_stop
from studies.search import Searcher
from studies.study import StudyResult, run_study


def small_job(**search: object) -> Job:
    """Llama 3.1 8B on up to 128 H100 or A100: about eighteen thousand designs."""
    return parse_job(
        {
            "workload": {
                "model": "llama-3.1-8b",
                "tokens": 2e11,
                "sequence_length": 8192,
                "global_batch_size": 128,
            },
            "offers": [
                {
                    "accelerator": "h100-sxm5-80gb",
                    "num_gpus": {"min": 16, "max": 128},
                    "rent_usd_per_gpu_hour": 2.6,
                },
                {
                    "accelerator": "a100-sxm4-80gb",
                    "num_gpus": {"min": 16, "max": 128},
                    "rent_usd_per_gpu_hour": 1.3,
                },
            ],
            "site": "us-iowa",
            "objectives": ["time_to_train", "cost", "carbon"],
            "search": {
                "num_refinements": 0,
                "micro_batch_sizes": [1, 2],
                "zero_stages": [1, 3],
                "checkpoint_schemes": ["async", "in_memory_peer"],
                **search,
            },
        }
    )


def study(job: Job, seed: int = 0, should_stop: Stop = never_stop) -> tuple[StudyResult, list[Evaluation]]:
    """Runs a study and returns its result and everything that it evaluated."""
    result, batches = study_by_batch(job, Simulation(job), seed, should_stop)
    return result, [evaluation for _, evaluation in batches]


def study_by_batch(
    job: Job, evaluator: Evaluator, seed: int = 0, should_stop: Stop = never_stop
) -> tuple[StudyResult, list[tuple[str, Evaluation]]]:
    """Runs a study and returns its result and every evaluated batch, with the stage that requested it."""
    archive = Archive(job)
    batches: list[tuple[str, Evaluation]] = []

    def record(found: Evaluation | Reduction, stage: str) -> None:
        assert isinstance(found, Evaluation)
        archive.add(found)
        batches.append((stage, found))

    searcher = Searcher(job=job, archive=archive, evaluator=evaluator, record=record, should_stop=should_stop)
    return run_study(searcher, seed=seed), batches


def with_h100_rent(job: Job, usd: float) -> Job:
    """Returns the small job with another H100 rent, in USD per hour."""
    h100, *others = job.offers
    rent = Estimate(low=usd, mid=usd, high=usd)
    return job.model_copy(
        update={"offers": (h100.model_copy(update={"rent_usd_per_gpu_hour": rent}), *others)}
    )


def with_limits(job: Job, limits: dict[str, float]) -> Job:
    """Returns the job with these limits and no others."""
    return job.model_copy(update={"limits": Limits.model_validate(limits)})
