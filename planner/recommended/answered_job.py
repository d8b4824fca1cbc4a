"""Does an answer belong to the job that lies beside it? Files of two folders may have been mixed."""

from __future__ import annotations

from planner.recommended.recommendation import Design, Recommendation
from simulator.domain.job import Job
from studies.files.identity import job_hash


def other_job(job: Job, answer: Recommendation) -> str:
    """Returns what shows that an answer is one to another job, to be read after its name; empty if nothing does."""
    objectives = ", ".join(each.value for each in job.objectives)
    if answer.job != job.name:
        return f"answers job {answer.job}, not job {job.name}"
    if ", ".join(answer.objectives) != objectives:
        return f"has the objectives {', '.join(answer.objectives)}, and job {job.name} has {objectives}"
    designs = (*answer.front, *([answer.recommendation] if answer.recommendation else ()))
    strange = next((design for design in designs if not _is_on_offer(job, design)), None)
    if strange:
        where = f" in {strange.region}" if strange.region else ""
        return f"uses {strange.accelerator}{where} as offers[{strange.plan.offer}], which job {job.name} does not offer"
    if answer.job_hash not in ("", hash_here := job_hash(job)):
        return f"has the job_hash {answer.job_hash}, not {hash_here} of job {job.name}"
    return ""


def _is_on_offer(job: Job, design: Design) -> bool:
    if design.plan.offer >= len(job.offers):
        return False
    offer = job.offers[design.plan.offer]
    is_there = design.region in ("", job.site_of(offer).region)  # answers of older versions name no region
    return is_there and (offer.accelerator.id, offer.node.id) == (design.accelerator, design.node)
