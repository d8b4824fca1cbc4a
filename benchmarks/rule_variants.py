"""How far are published steps from simulated ones if a rule or a setting is changed?

    python -m benchmarks.rule_variants

Prints the mean errors of such comparisons that docs/model/ and docs/validation.md quote: simulated over measured, less one.
Nothing is fitted anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.sheets import Sheet
from planner.calibration.steps import MeasuredSteps
from planner.measured.runs import Row, read_rows
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.machine.rank import Rank
from simulator.table import Floats

NEMO_OF_2022 = {
    "tensor_parallel": "8",
    "pipeline_parallel": "8",
    "virtual_pipeline": "1",
    "micro_batch_size": "2",
}
"""Layout of GPT-3 175B in the configurations of NeMo-Megatron-Launcher of September 2022."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Rows that are simulated in another way than they are shipped."""

    name: str
    is_chosen: Callable[[Row], bool]
    columns: Mapping[str, str] = field(default_factory=dict)
    """Cells of the rows that are others."""
    workload: Mapping[str, object] = field(default_factory=dict)
    """Fields of the workload that are others."""

    def errors(self, rows: Sequence[Row]) -> tuple[Floats, Floats]:
        """Returns the errors of the chosen rows as they are shipped and in this variant, `(n,)` each."""
        chosen = [row for row in rows if self.is_chosen(row)]
        changed = [_with_cells(row, self.columns) for row in chosen]
        as_shipped = MeasuredSteps.of(chosen).log_errors(Rank.of)
        return np.expm1(as_shipped), np.expm1(MeasuredSteps.of(changed).log_errors(self._rank))

    def _rank(self, job: Job, plans: PlanTable) -> Rank:
        workload = job.workload.model_copy(update=dict(self.workload))
        return Rank.of(job.model_copy(update={"workload": workload}), plans)


def _with_cells(row: Row, cells: Mapping[str, str]) -> Row:
    """Returns a row with other cells, and the replicas that are left for its accelerators."""
    changed = {**row, **cells}
    degrees = ("tensor_parallel", "pipeline_parallel", "context_parallel")
    ranks = int(np.prod([int(changed[name]) for name in degrees]))
    return {**changed, "data_parallel": str(int(row["num_gpus"]) // ranks)}


def _is_fp8_over(ranks: str) -> Callable[[Row], bool]:
    return lambda row: row["precision"] == "fp8" and row["tensor_parallel"] == ranks


def _is_row(row_id: str) -> Callable[[Row], bool]:
    return lambda row: row["row_id"] == row_id


def _is_nemo_175b(row: Row) -> bool:
    return row["group"] == "NeMo 23.08" and row["model"] == "GPT3-175B"


VARIANTS = (
    Variant(
        name="NeMo 23.08, fused attention",
        is_chosen=lambda row: row["group"] == "NeMo 23.08",
        columns={"attention": "flash"},
    ),
    Variant(
        name="NeMo 23.08, GPT-3 175B, layout of 2022, selective recomputation",
        is_chosen=_is_nemo_175b,
        columns={**NEMO_OF_2022, "recompute": "selective"},
    ),
    Variant(
        name="the same, full recomputation",
        is_chosen=_is_nemo_175b,
        columns={**NEMO_OF_2022, "recompute": "full"},
    ),
    *(
        Variant(
            name=f"fp8, tensor parallelism {ranks}, gathers in 16 bits",
            is_chosen=_is_fp8_over(ranks),
            workload={"gathers_cast_inputs": False},
        )
        for ranks in ("2", "4", "8")
    ),
    Variant(
        name="Korthikanti et al., sums of input gradients beside nothing",
        is_chosen=lambda row: row["group"].startswith("Korthikanti"),
        workload={"overlaps_input_gradients": False},
    ),
    *(
        Variant(
            name=f"{row_id}, experts in one kernel",
            is_chosen=_is_row(row_id),
            columns={"expert_products": "grouped"},
        )
        for row_id in ("mbr-0050+2", "mbr-0191", "card-0048", "card-0024", "nemo-0087")
    ),
    Variant(
        name="Qwen3-30B-A3B, no norms of queries and keys",
        is_chosen=lambda row: row["model"].startswith("Qwen3"),
        columns={"qk_norm": ""},
    ),
)


def sheet(rows: Sequence[Row]) -> Sheet:
    """Returns mean, lowest and highest error of every variant beside those of the rows as they are shipped."""
    lines = []
    for variant in VARIANTS:
        as_shipped, changed = variant.errors(rows)
        lines.append([variant.name, str(len(changed)), *_cells(as_shipped), *_cells(changed)])
    head = ("variant", "n", "as shipped", "lowest", "highest", "so", "lowest", "highest")
    return Sheet(name="variants", head=head, lines=lines)


def _cells(errors: Floats) -> list[str]:
    return [f"{value:+.1%}" for value in (errors.mean(), errors.min(), errors.max())]


def main() -> None:
    """Prints the table."""
    print(sheet([row for row in read_rows() if not row["left_out_because"]]).markdown())


if __name__ == "__main__":
    main()
