"""Where should it run? One design in many regions by carbon and electricity: `python examples/region_choice.py`.

The design is chosen once, by time; then the same plan is simulated in every region. Grid figures with different accounting
conventions are only roughly comparable; a note below the table names them. To wait for a greener grid, use the job's
`what_if.start_within_hours`; to pause, `what_if.pauses` (docs/cost-energy-carbon.md).
"""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from planner import Design, load_job, recommend, simulate_plan
from planner.grid_conventions import grid_convention, grid_notes
from simulator import catalog

JOB = Path(__file__).parent / "bloom-176b.yaml"
REGIONS = ("us-iowa", "us-virginia", "france", "sweden", "germany", "poland", "india")


def main() -> None:
    """Prints carbon and energy of one plan in each region, lowest carbon first."""
    best = recommend(load_job(JOB, ["search.num_refinements=0"]), seed=1, tracking=False).best
    assert best  # the example has feasible designs
    found = {region: in_region(region, best) for region in REGIONS}
    table = Table(
        "region",
        "t CO2e",
        "of it operation",
        "MWh",
        "electricity",
        "grid",
        title=f"{best.plan.num_gpus} GPUs",
    )
    for region, design in sorted(found.items(), key=lambda item: item[1].carbon_kgco2e):
        operation = design.carbon_parts_kgco2e["operational_kgco2e"] / design.carbon_kgco2e
        table.add_row(
            region,
            f"{design.carbon_kgco2e / 1e3:,.0f}",
            f"{operation:.0%}",
            f"{design.energy_kwh / 1e3:,.0f}",
            f"${design.cost_parts_usd.get('electricity_usd', 0.0) / 1e3:,.0f} k",
            grid_convention(catalog.site(region)).words,
        )
    console = Console()
    console.print(table)
    for note in grid_notes(map(catalog.site, REGIONS)):
        console.print(note)


def in_region(region: str, best: Design) -> Design:
    """Returns the plan simulated with the grid, electricity price and cooling of a region."""
    job = load_job(JOB, [f"site={region}"])
    design = simulate_plan(job, best.plan, with_sensitivities=False).design
    assert design  # the layout does not depend on the region
    return design


if __name__ == "__main__":
    main()
