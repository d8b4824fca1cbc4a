"""Which designs lie behind the front? All that were simulated, as columns compact enough to embed in a page."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from constraints.limits import ExcessTable
from planner.report.data import DesignCounts
from simulator.domain.job import Job
from simulator.errors import StudyError
from simulator.table import Booleans, Floats, Integers
from studies.designs.spread_rows import spread_rows
from studies.files.design_log import table_of
from studies.files.journal import Journal
from studies.tracking.design_table import Columns, study_columns

MOST_DRAWN: Final = 100_000
"""Most designs in a page; they take about 3 MB."""
CUT_BITS: Final = 7
"""Low bits of a number that are rounded to 0: six correct digits remain, and the numbers compress better."""
METRICS: Final = (
    "time_to_train_days",
    "cost_usd",
    "energy_kwh",
    "carbon_kgco2e",
    "peak_power_w",
    "peak_memory_bytes",
    "mfu_fraction",
    "goodput_fraction",
)
"""Figures of every design in the page."""
COUNTS: Final = (
    "num_gpus",
    "tensor_parallel",
    "pipeline_parallel",
    "virtual_pipeline",
    "context_parallel",
    "expert_parallel",
    "data_parallel",
    "micro_batch_size",
    "zero_stage",
    "recompute_num_layers",
    "shard_ranks",
    "interleaved_group_size",
    "num_spare_nodes",
)
"""Decisions that are whole numbers."""
WORDS: Final = ("accelerator", "recompute", "precision", "checkpoint_scheme")
"""Decisions that are words."""
EXCESS_NAMES: Final = tuple(ExcessTable.names())
_TABLE_COLUMNS: Final = (
    "design_id",
    *METRICS,
    *COUNTS,
    *WORDS,
    *(f"excess_{name}" for name in EXCESS_NAMES),
)
"""Columns of a table of designs from which a cloud is made."""
UNCHANGEABLE: Final = ("memory", "host_memory", "progress")
"""Limits that do not come from the user."""


@dataclass(frozen=True, kw_only=True)
class DesignCloud:
    """Designs whose run ends, as columns `(n,)`."""

    num_simulated: int
    """Number of all simulated designs."""
    design_id: Integers
    numbers: Mapping[str, Floats]
    """`METRICS` and `COUNTS`, by name."""
    words: Mapping[str, tuple[str, ...]]
    """What the codes of each of `WORDS` mean."""
    codes: Mapping[str, Integers]
    """`WORDS` as positions in `words`."""
    broken: Integers
    """One bit for each of `EXCESS_NAMES` that a design violates; 0 if it is feasible."""

    def __len__(self) -> int:
        return len(self.design_id)

    @property
    def days(self) -> Floats:
        """Wall time of each run."""
        return self.numbers["time_to_train_days"]

    @property
    def cost_usd(self) -> Floats:
        """Cost of each run."""
        return self.numbers["cost_usd"]

    @property
    def num_gpus(self) -> Floats:
        """Accelerators that train."""
        return self.numbers["num_gpus"]

    @property
    def accelerators(self) -> tuple[str, ...]:
        """Names of the accelerators, at their codes."""
        return self.words["accelerator"]

    @property
    def accelerator(self) -> Integers:
        """Code of each design's accelerator."""
        return self.codes["accelerator"]

    @property
    def num_feasible(self) -> int:
        """Designs that meet all limits."""
        return int(np.count_nonzero(self.broken == 0))

    @property
    def is_possible(self) -> Booleans:
        """Whether a design meets the limits that a user cannot change."""
        bits = sum(1 << EXCESS_NAMES.index(name) for name in UNCHANGEABLE)
        return np.asarray((self.broken & bits) == 0)

    def has(self, design_id: int, days: float, cost_usd: float) -> bool:
        """Returns whether a design is there with these figures."""
        is_it = (
            (self.design_id == design_id) & np.isclose(self.days, days) & np.isclose(self.cost_usd, cost_usd)
        )
        return bool(is_it.any())

    def take(self, rows: NDArray[np.intp]) -> DesignCloud:
        """Returns the chosen rows."""
        return replace(
            self,
            design_id=self.design_id[rows],
            numbers={name: column[rows] for name, column in self.numbers.items()},
            codes={name: column[rows] for name, column in self.codes.items()},
            broken=self.broken[rows],
        )

    def thinned(self, most: int = MOST_DRAWN) -> DesignCloud:
        """Returns at most `most` designs, evenly spread.

        Half of them are feasible and half violate a limit; if there are too few of one kind, more of the other are taken.
        """
        if len(self) <= most:
            return self
        feasible, broken = np.flatnonzero(self.broken == 0), np.flatnonzero(self.broken)
        num_feasible = min(len(feasible), max(most - most // 2, most - len(broken)))
        kept = (
            feasible[spread_rows(len(feasible), num_feasible)],
            broken[spread_rows(len(broken), most - num_feasible)],
        )
        return self.take(np.sort(np.concatenate(kept)))


def design_counts(cloud: DesignCloud, drawn: DesignCloud) -> DesignCounts:
    """Returns how many designs of each kind there are, and how many of them are drawn."""
    return DesignCounts(
        num_designs=cloud.num_simulated,
        num_feasible=cloud.num_feasible,
        num_broken=len(cloud) - cloud.num_feasible,
        num_feasible_drawn=drawn.num_feasible,
        num_broken_drawn=len(drawn) - drawn.num_feasible,
    )


def cloud_of_study(job: Job, journal: Journal) -> DesignCloud:
    """Returns the designs of a study under the prices and limits of a job."""
    return _cloud(study_columns(job, journal))


def cloud_of_table(path: Path) -> DesignCloud:
    """Returns the designs of a table `designs.parquet`, or of the parts of one in a folder.

    Raises:
        StudyError: there is no such table, or it lacks columns, or one of them holds other values.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = sorted(path.glob("*.parquet")) if path.suffix != ".parquet" else [path]
    try:
        # A search with nothing to simulate writes a table without columns.
        tables = [table_of(part, _TABLE_COLUMNS) for part in parts if pq.read_schema(part).names]
        return _cloud({name: table[name].to_numpy() for name in _TABLE_COLUMNS} for table in tables)
    except (OSError, KeyError, ValueError, TypeError, pa.ArrowException) as error:
        raise StudyError(f"{path} is not a table of designs of this version: {error}") from error


def _cloud(batches: Iterable[Columns]) -> DesignCloud:
    parts = [_columns(batch) for batch in batches]
    if not parts:
        parts = [_columns(_no_designs())]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    ends = np.ones(len(columns["design_id"]), dtype=np.bool_)
    for name in METRICS:
        ends &= np.isfinite(columns[name].astype(np.float64))
    kept = {name: column[ends] for name, column in columns.items()}
    words, codes = {}, {}
    for name in WORDS:
        words[name], codes[name] = _coded(kept[name])
    return DesignCloud(
        num_simulated=len(ends),
        design_id=kept["design_id"].astype(np.int64),
        numbers={name: kept[name].astype(np.float64) for name in (*METRICS, *COUNTS)},
        words=words,
        codes=codes,
        broken=kept["broken"].astype(np.int64),
    )


def _coded(column: NDArray[np.generic]) -> tuple[tuple[str, ...], Integers]:
    """The sorted words of a column, and the code of each row; only the distinct words are sorted, not the rows."""
    import pyarrow as pa

    encoded = pa.array(column, type=pa.string()).dictionary_encode()
    known = np.array(encoded.dictionary.to_pylist(), dtype=np.str_)
    places = np.argsort(np.argsort(known)).astype(np.int64)
    return tuple(sorted(known.tolist())), places[encoded.indices.to_numpy()]


def _columns(batch: Columns) -> Columns:
    """The columns that a page needs, with the broken limits as bits."""
    broken = np.zeros(len(batch["design_id"]), dtype=np.int64)
    for bit, name in enumerate(EXCESS_NAMES):
        broken |= (batch[f"excess_{name}"].astype(np.float64) > 0).astype(np.int64) << bit
    return {**{name: batch[name] for name in ("design_id", *METRICS, *COUNTS, *WORDS)}, "broken": broken}


def _no_designs() -> Columns:
    return {name: np.zeros(0, dtype=np.str_ if name in WORDS else np.float64) for name in _TABLE_COLUMNS}


def packed(cloud: DesignCloud) -> tuple[str, str]:
    """Returns a description of the columns as JSON, and the columns as Base64 of gzip, in the order of the description.

    Numbers are 32-bit floats rounded to about six digits, stored in byte planes: first the lowest byte of every number.
    """
    columns: dict[str, tuple[str, np.ndarray]] = {
        "design_id": ("u4", cloud.design_id),
        **{name: ("f4", cloud.numbers[name]) for name in METRICS},
        **{name: ("u4", cloud.numbers[name]) for name in COUNTS},
        **{name: ("u1", cloud.codes[name]) for name in WORDS},
        "broken": ("u2", cloud.broken),
    }
    layout = {
        "rows": len(cloud),
        "columns": [{"name": name, "type": kind} for name, (kind, _) in columns.items()],
        "words": cloud.words,
        "limits": EXCESS_NAMES,
    }
    raw = b"".join(_planes(column, kind) for kind, column in columns.values())
    return json.dumps(layout, separators=(",", ":")), zipped(raw)


def zipped(raw: bytes) -> str:
    """Returns bytes as embedded in the page: Base64 of gzip; deterministic."""
    return base64.b64encode(gzip.compress(raw, compresslevel=6, mtime=0)).decode("ascii")


def _planes(column: np.ndarray, kind: str) -> bytes:
    values = np.ascontiguousarray(column.astype(f"<{kind}"))
    if kind == "f4":
        half = np.uint32(1 << (CUT_BITS - 1))
        values = (values.view("<u4") + half) >> np.uint32(CUT_BITS) << np.uint32(CUT_BITS)
    width = values.dtype.itemsize
    return np.ascontiguousarray(values.view(np.uint8).reshape(-1, width).T).tobytes()
