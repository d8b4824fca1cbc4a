"""What does a budget buy? Llama 3.1 70B under three budgets, on H100 or on H200: `python examples/compare_budgets.py`."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from planner import Recommendation, load_job, recommend

JOB = Path(__file__).parent / "llama-3.1-70b.yaml"
BUDGETS_USD = (1.75e6, 1.83e6, 2.2e6)


def main() -> None:
    """Prints one line for each budget and GPU type."""
    table = Table("budget", "accelerator", "GPUs", "days", "cost", "t CO2e", "or what would help")
    job = load_job(JOB)
    for budget_usd in BUDGETS_USD:
        for offer in job.offers[:2]:
            limits = job.limits.model_copy(update={"budget_usd": budget_usd})
            question = job.model_copy(update={"limits": limits, "offers": (offer,)})
            answer = recommend(question, seed=1, tracking=False)
            table.add_row(f"${budget_usd / 1e6:.2f} M", offer.accelerator.id, *cells(answer))
    Console().print(table)


def cells(answer: Recommendation) -> list[str]:
    """Returns the figures of the recommended design, or the smallest change that would make one possible."""
    if best := answer.best:
        figures = f"{best.plan.num_gpus:,}", f"{best.time_to_train_days:.1f}", f"${best.cost_usd / 1e6:.2f} M"
        return [*figures, f"{best.carbon_kgco2e / 1e3:.0f}", ""]
    found = answer.infeasibility
    changes = found.relaxations[0].limits if found and found.relaxations else {}
    helps = ", ".join(f"{name} = {value:,.0f}" for name, value in changes.items())
    return ["-"] * 4 + [helps or "no single change"]


if __name__ == "__main__":
    main()
