"""Which parameters suit the searcher best? Optuna tunes them on some jobs; the result is judged on unseen jobs.

    python -m benchmarks.tune_search --trials 30 --seeds 3

A trial's score is the mean share of the exhaustive fronts' volume over tuning jobs and seeds, with a twentieth of the
evaluations. The defaults and the best trial are then compared on held-out jobs with seeds that no trial has used. The output is
what docs/studies.md reports; the defaults themselves are in `studies.searchers.tuning`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import mean
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks.search import WIDTH, Exhausted
from benchmarks.search_jobs import HELD_OUT, SEEN
from simulator.domain.search_options import Algorithm
from studies.searchers.tuning import DEFAULT, Tuning

if TYPE_CHECKING:
    import optuna

TUNING_JOBS = (
    "70B, 3 objectives, its own limits",
    "70B, 3 objectives, tight",
    "405B, 2 objectives, tight power",
)
"""Of `SEEN`: those whose searches take less than a second."""
JUDGING_JOBS = (
    "BLOOM, 4 objectives, free layout",
    "405B, 3 objectives, tight carbon",
    "70B on B200, late runs, chance",
    "70B, risk of missing the deadline",
)
"""Of `HELD_OUT`, for the same reason."""
FIRST_JUDGING_SEED = 1_000
"""Seeds from here on judge; those below tune."""


def suggested(trial: optuna.Trial) -> Tuning:
    """Returns the parameters that a trial is to try."""
    return Tuning(
        screening_share=trial.suggest_float("screening_share", 0.0, 0.95),
        first_share=trial.suggest_float("first_share", 0.1, 0.5),
        num_rounds=trial.suggest_int("num_rounds", 2, 16),
        evolution_share=trial.suggest_float("evolution_share", 0.0, 1.0),
        crossover_probability=trial.suggest_float("crossover_probability", 0.5, 1.0),
        crossover_eta=trial.suggest_float("crossover_eta", 1.0, 20.0, log=True),
        mutation_eta=trial.suggest_float("mutation_eta", 1.0, 20.0, log=True),
    )


def worth(jobs: Sequence[Exhausted], tuning: Tuning, seeds: range) -> float:
    """Returns the mean share of the volume that NSGA-II finds."""
    return mean(job.share_found(Algorithm.NSGA2, seed, tuning) for job in jobs for seed in seeds)


def tuned(jobs: Sequence[Exhausted], num_trials: int, seeds: range) -> Tuning:
    """Returns the best of some trials, the defaults among them."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    study.enqueue_trial(asdict(DEFAULT))
    study.optimize(lambda trial: worth(jobs, suggested(trial), seeds), n_trials=num_trials)
    return Tuning(**study.best_params)


def parameters_table(best: Tuning) -> Table:
    """The defaults beside the best trial."""
    table = Table("parameter", "default", "best trial", title="Parameters")
    for name, value in asdict(best).items():
        table.add_row(name, f"{getattr(DEFAULT, name):g}", f"{value:.3g}")
    return table


def shares_table(groups: Mapping[str, Sequence[Exhausted]], best: Tuning, num_seeds: int) -> Table:
    """Mean shares of the volume on every group of jobs, with seeds that no trial has used."""
    table = Table("jobs", "default", "best trial", title="Mean share of the volume, fresh seeds")
    seeds = range(FIRST_JUDGING_SEED, FIRST_JUDGING_SEED + num_seeds)
    for name, jobs in groups.items():
        table.add_row(name, f"{worth(jobs, DEFAULT, seeds):.4f}", f"{worth(jobs, best, seeds):.4f}")
    return table


def main() -> None:
    """Tunes, and prints what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3, help="of each job and trial")
    arguments = parser.parse_args()
    tuning_jobs = [Exhausted.of(SEEN[name]()) for name in TUNING_JOBS]
    judging_jobs = [Exhausted.of(HELD_OUT[name]()) for name in JUDGING_JOBS]
    best = tuned(tuning_jobs, arguments.trials, range(arguments.seeds))
    console = Console(width=WIDTH)
    console.print(parameters_table(best))
    groups = {"tuned on": tuning_jobs, "held out": judging_jobs}
    console.print(shares_table(groups, best, num_seeds=2 * arguments.seeds))


if __name__ == "__main__":
    main()
