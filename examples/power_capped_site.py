"""What can a site with little power train? Time and energy by site power: `python examples/power_capped_site.py`."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from planner import load_job, recommend

JOB = Path(__file__).parent / "bloom-176b.yaml"
SITES_W = (150e3, 200e3, 250e3)
WITHOUT_REFINEMENT = "search.num_refinements=0"


def main() -> None:
    """Prints the fastest design under each power limit, with and without power caps on the accelerators."""
    table = Table("site", "power caps", "GPUs", "accelerator", "cap", "peak", "days", "MWh")
    for power_w in SITES_W:
        for caps in ("[1.0]", "[1.0, 0.8]"):
            job = load_job(
                JOB,
                [
                    f"limits={{power_w: {power_w:g}}}",
                    f"search.power_caps={caps}",
                    "objectives=[time_to_train]",
                    WITHOUT_REFINEMENT,
                ],
            )
            best = recommend(job, seed=1, tracking=False).best
            cells = ["-"] * 6
            if best:
                plan = best.plan
                cells = [
                    f"{plan.num_gpus:,}",
                    best.accelerator,
                    f"{plan.power_cap_fraction:.0%}",
                    f"{best.peak_power_w / 1e3:.0f} kW",
                    f"{best.time_to_train_days:.1f}",
                    f"{best.energy_kwh / 1e3:,.0f}",
                ]
            table.add_row(f"{power_w / 1e3:.0f} kW", "none" if caps == "[1.0]" else "allowed", *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
