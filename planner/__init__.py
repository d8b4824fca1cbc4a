"""What should I buy, and how do I run it? The front door of capplan for Python programs.

    from planner import load_job, recommend

    answer = recommend(load_job("job.yaml"), seed=1)
    answer.best.plan.num_gpus, answer.best.cost_usd, answer.why

Names are imported on first use, so `import planner` costs nothing. Where to find what:

text, input, job                   words and units; reading files and arguments, all problems reported at once; job files
measured, calibration, validation  how rows of measurements are read, constants fitted to them, accuracy of the simulation
recommended                        an answer as values: designs, the best for each objective, and the files it is written to
uncertain, what_if, notes          how certain an answer is, what-if cases, reasons and remarks; `grid_conventions`
explain                            why a design is not allowed, and what would help
one_design, timeline, goodput      one plan in full, its run over time, and its share of productive time; `layer_cut`
launch                             the arguments with which Megatron-LM runs a plan, and what it runs otherwise
deep, trace, opendc                one plan operator by operator; traced steps on many accelerators; other simulators
sweep, purchase                    a grid of sizes; a fleet of jobs, and what to buy for it
views, report                      how answers look on a terminal, and as a page with every figure
tracking, answer, study, compare   MLflow; answering a job; studies that survive crashes; two answers side by side
cli                                the command line: a module or a package for each command
json_forms, schemas                the schema of every `--json` output and of the input files
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

__all__ = [
    "CapplanError",
    "Design",
    "Goodput",
    "Infeasibility",
    "InputError",
    "Job",
    "Launch",
    "Plan",
    "PlanExplanation",
    "PurchasePlan",
    "Recommendation",
    "SimulatedDesign",
    "SpaceExplanation",
    "StudyAnswer",
    "StudyError",
    "StudyStore",
    "Target",
    "TrackingError",
    "calibrate",
    "explain_plan",
    "explain_space",
    "launch_plan",
    "load_calibration",
    "load_fleet",
    "load_job",
    "load_sweep",
    "parse_job",
    "plan_purchase",
    "play_job_goodput",
    "recommend",
    "resume_study",
    "run_study_of",
    "run_sweep",
    "simulate_plan",
    "sweep_rows",
]

if TYPE_CHECKING:
    from planner.answer.recommend import recommend
    from planner.calibration.calibrate import calibrate
    from planner.calibration.file import load_calibration
    from planner.explain.answer import explain_plan, explain_space
    from planner.explain.explanation import PlanExplanation, SpaceExplanation
    from planner.goodput.answer import Goodput
    from planner.goodput.job import play_job_goodput
    from planner.job.file import load_job, parse_job
    from planner.launch.answer import Launch, launch_plan
    from planner.one_design.simulated_design import SimulatedDesign, simulate_plan
    from planner.purchase.answer import plan_purchase
    from planner.purchase.fleet import load_fleet
    from planner.purchase.plan import PurchasePlan
    from planner.recommended.recommendation import Design, Infeasibility, Recommendation
    from planner.study.durable import StudyAnswer, resume_study, run_study_of
    from planner.sweep.grid import load_sweep, run_sweep
    from planner.sweep.table import sweep_rows
    from planner.tracking.sending import Target
    from simulator.domain.job import Job
    from simulator.domain.plan import Plan
    from simulator.errors import CapplanError, InputError, StudyError, TrackingError
    from studies.files.store import StudyStore

_HOMES = {
    "CapplanError": "simulator.errors",
    "Design": "planner.recommended.recommendation",
    "Goodput": "planner.goodput.answer",
    "Infeasibility": "planner.recommended.recommendation",
    "InputError": "simulator.errors",
    "Job": "simulator.domain.job",
    "Launch": "planner.launch.answer",
    "Plan": "simulator.domain.plan",
    "PlanExplanation": "planner.explain.explanation",
    "PurchasePlan": "planner.purchase.plan",
    "Recommendation": "planner.recommended.recommendation",
    "SimulatedDesign": "planner.one_design.simulated_design",
    "SpaceExplanation": "planner.explain.explanation",
    "StudyAnswer": "planner.study.durable",
    "StudyError": "simulator.errors",
    "StudyStore": "studies.files.store",
    "Target": "planner.tracking.sending",
    "TrackingError": "simulator.errors",
    "calibrate": "planner.calibration.calibrate",
    "explain_plan": "planner.explain.answer",
    "explain_space": "planner.explain.answer",
    "launch_plan": "planner.launch.answer",
    "load_calibration": "planner.calibration.file",
    "load_fleet": "planner.purchase.fleet",
    "load_job": "planner.job.file",
    "load_sweep": "planner.sweep.grid",
    "parse_job": "planner.job.file",
    "plan_purchase": "planner.purchase.answer",
    "play_job_goodput": "planner.goodput.job",
    "recommend": "planner.answer.recommend",
    "resume_study": "planner.study.durable",
    "run_study_of": "planner.study.durable",
    "run_sweep": "planner.sweep.grid",
    "simulate_plan": "planner.one_design.simulated_design",
    "sweep_rows": "planner.sweep.table",
}
"""Module of each public name."""

if not TYPE_CHECKING:  # with __getattr__ in sight, a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
