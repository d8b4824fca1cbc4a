"""Which objects do commands print that answer with tables? Their forms, for the JSON Schemas and for the printing."""

from __future__ import annotations

from typing import Literal

from simulator.catalog.files import Figure
from simulator.record import Record

Cell = float | int | bool | str | None
"""What stands in a table."""
TableRow = dict[str, Cell | tuple[str, ...]]


class SweepAnswer(Record):
    """What `capplan sweep --json` prints."""

    schema_version: int = 1
    """Version of this form; increases when a field is removed or changes its meaning."""
    rows: tuple[TableRow, ...]
    """One design each, in the order of the sweep: its axes, its decisions, and what it comes to, units in the names. Null are
    figures where no layout supports the scheme, intervals where nothing is ever saved, and times where a run never ends."""


class CatalogAnswer(Record):
    """What `capplan catalog --json` prints."""

    schema_version: int = 1
    """Version of this form; increases when a field is removed or changes its meaning."""
    kinds: dict[str, tuple[str, ...]] | None = None
    """Names of all entries by kind, where no kind was asked for."""
    entries: dict[str, tuple[Figure, ...]] | None = None
    """Figures of the entries of the kind that was asked for."""


class ValidationAnswer(Record):
    """What `capplan validate --json` prints."""

    schema_version: int = 1
    """Version of this form; increases when a field is removed or changes its meaning."""
    capplan_version: str
    """What simulated the rows,"""
    catalog_hash: str
    """and with which figures of hardware."""
    num_rows: int
    """Rows of the file."""
    num_modelled: int
    """Rows with a prediction."""
    num_scored: int
    """Rows with a prediction and a measured step time."""
    tables: dict[str, tuple[TableRow, ...] | TableRow]
    """Errors by source, accelerator and so on, jobs of which several designs were measured, memory, what was left out."""
    mean_rank_correlation: float | None
    """Mean over the jobs; null where none has enough designs."""
    mean_regret_fraction: float | None
    """Mean slow-down of the designs that the simulator picks; null where there was nothing to choose."""
    rows: tuple[dict[str, Cell | tuple[str, ...]], ...]
    """Every row with its prediction, and what had to be assumed for it."""


class StudyExport(Record):
    """What `capplan study export --json` prints."""

    schema_version: int = 1
    """Version of this form; increases when a field is removed or changes its meaning."""
    study: str
    """Name of the study."""
    file: str
    """The table that was written."""
    num_designs: int
    """Rows of the table."""
    num_simulated: int
    """Designs that the study has simulated."""
    keep: Literal["all", "front"]
    """Which designs the study keeps, and so the table has."""


class StudyMerge(Record):
    """What `capplan study merge --json` prints."""

    schema_version: int = 1
    """Version of this form; increases when a field is removed or changes its meaning."""
    study: str
    """Name of the new study."""
    merged_from: tuple[str, ...]
    """Names of the studies that were joined; of merged ones those that they hold."""
    num_designs: int
    """Designs in the new study, each once."""


class SyncedStudy(Record):
    """What became of the delivery of one study."""

    study: str
    """Name of the study, as it was given."""
    state: Literal["delivered", "was_there", "failed", "skipped"]
    """`was_there`: MLflow had the whole study before; `skipped`: it has not ended, and was not asked for by name."""
    failure: str = ""
    """Why it failed or was skipped; empty where it was not."""


class StudySync(Record):
    """What `capplan study sync --json` prints."""

    schema_version: int = 1
    """Version of this form; increases when a field is removed or changes its meaning."""
    studies: tuple[SyncedStudy, ...]
    """The studies, in the order in which they were delivered."""


class TrackingPage(Record):
    """What `capplan ui --json` prints, once the interface answers."""

    schema_version: int = 1
    """Version of this form; increases when a field is removed or changes its meaning."""
    address: str
    """Where the studies are shown."""
    front_address: str | None
    """Where the designs of their fronts are shown; null where there is no study, or where the store is a server."""


class WrittenJob(Record):
    """What `capplan init --json` prints."""

    schema_version: int = 1
    """Version of this form; increases when a field is removed or changes its meaning."""
    file: str
    """The job file that was written."""
    schema_file: str | None
    """The JSON Schema beside it, for editors; null where none was written."""
    next_command: str
    """What answers the job."""
