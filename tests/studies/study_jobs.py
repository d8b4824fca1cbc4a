"""Which jobs do the tests of the search use? Real ones, cut down so that every design can be evaluated in a second."""

from __future__ import annotations

from constraints.evaluation import Evaluation
from planner.job.file import parse_job
from simulator.domain.job import Job
from simulator.domain.limits import Limits
from studies.designs.archive import Archive
from studies.evaluation.evaluator import Simulation
from studies.progress import Stop, never_stop
from studies.search import Searcher
from studies.study import StudyResult, run_study


def small_job(*, h100_rent: float = 2.6, **search: object) -> Job:
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
                    "rent_usd_per_gpu_hour": h100_rent,
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
    archive = Archive(job)
    evaluated: list[Evaluation] = []

    def record(evaluation: Evaluation, stage: str) -> None:
        assert stage
        archive.add(evaluation)
        evaluated.append(evaluation)

    searcher = Searcher(
        job=job, archive=archive, evaluator=Simulation(job), record=record, should_stop=should_stop
    )
    result = run_study(searcher, seed=seed)
    return result, evaluated


def with_limits(job: Job, limits: dict[str, float]) -> Job:
    """Returns the job with these limits and no others."""
    return job.model_copy(update={"limits": Limits.model_validate(limits)})
