"""What do you type to use studies elsewhere? `capplan study` with export (tables), merge (into one study), sync (MLflow)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options.shared import (
    experiment_option,
    json_option,
    progress_options,
    store_option,
    tracking_uri_option,
)
from planner.cli.terminal.help import examples

if TYPE_CHECKING:
    from planner.json_forms import SyncedStudy
    from simulator.record import Record
    from studies.files.store import StudyStore


_NOT_ENDED = {
    "running": "skipped, because it is running; it is delivered when it ends",
    "stopped": "skipped, because it was stopped; `capplan study resume {name}` continues and delivers it",
}
"""Why a study is skipped, by its state."""


@click.command(
    short_help="Write the designs of a study to a table.",
    epilog=examples(
        "capplan study export job-1a2b3c4d designs.parquet", "capplan study export job-1a2b3c4d designs.csv"
    ),
)
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.parquet|FILE.csv")
@store_option
@json_option
def export(*, name: str, file: Path, folder: Path, as_json: bool) -> None:
    """Write every design that the study NAME keeps to FILE: all simulated designs, or fronts under --keep front."""
    from planner.study.export import export_designs
    from studies.files.store import StudyStore

    found = export_designs(StudyStore(folder).find(name), file)
    share = f" of {found.num_simulated:,}" if found.keep == "front" else ""
    why = " (this study keeps fronts)" if found.keep == "front" else ""
    _tell(found, f"{found.num_designs:,}{share} designs{why} in {file}", as_json=as_json)


@click.command(
    short_help="Join studies of one job into a new one.",
    epilog=examples("capplan study merge job-1a2b3c4d job-5e6f7a8b --into both"),
)
@click.argument("names", nargs=-1, required=True, metavar="NAME NAME...")
@click.option("--into", required=True, metavar="NAME", help="Name of the new study.")
@store_option
@json_option
def merge(*, names: tuple[str, ...], into: str, folder: Path, as_json: bool) -> None:
    """Join studies that differ only in seed, search or name of the job: each design once, with the common front."""
    from planner.answer.recommend import utc_now
    from planner.json_forms import StudyMerge
    from planner.study.merge import merge_studies
    from planner.study.reports import state_of
    from planner.text import human
    from studies.files.store import StudyStore

    store = StudyStore(folder)
    target, paths = store.path_named(into), [store.find(name) for name in names]
    num_designs = merge_studies(paths, target, utc_now())
    merged_from = state_of(target).merged_from
    answer = StudyMerge(study=target.stem, merged_from=merged_from, num_designs=num_designs)
    _tell(answer, f"{human.designs(num_designs)} in study {target.stem}", as_json=as_json)


@click.command(
    short_help="Deliver to MLflow the studies that it does not have yet.",
    epilog=examples(
        "capplan study sync", "capplan study sync job-1a2b3c4d --tracking-uri http://127.0.0.1:5000"
    ),
)
@click.argument("names", nargs=-1, metavar="[NAME...]")
@store_option
@tracking_uri_option
@experiment_option
@json_option
@progress_options
def sync(
    *,
    names: tuple[str, ...],
    folder: Path,
    tracking_uri: str | None,
    experiment: str,
    as_json: bool,
    quiet: bool,
) -> int:
    """Deliver the named studies, or all that are complete, to MLflow; studies that it already has are left unchanged.

    A study that cannot be delivered, or whose file is damaged, is named with the reason; the others are still delivered,
    and the exit code is 1. Without names, incomplete studies are skipped, and named.
    """
    from planner.cli.terminal.output import working, write
    from planner.json_forms import StudySync, SyncedStudy
    from planner.study.reports import list_studies
    from studies.files.store import StudyStore, called
    from studies.tracking.store_address import asked_store

    asked_store(tracking_uri)  # refuses a broken address once instead of once per study
    store = StudyStore(folder)
    states = {} if names else {study.name: study.state for study in list_studies(store)}
    found = []
    for name in names or states:
        state = states.get(name)
        if state == "merged":
            continue  # its source studies are delivered
        if state in ("running", "stopped"):
            why = _NOT_ENDED[state].format(name=called(store.find(name)))
            synced = SyncedStudy(study=name, state="skipped", failure=why)
        else:
            with working(f"delivering {name}", is_shown=not quiet):
                synced = _synced(store, name, tracking_uri, experiment)
        found.append(synced)
        if synced.failure:
            click.echo(f"{name}: {synced.failure}", err=True)
        elif not as_json:
            write(f"{name}: {'delivered' if synced.state == 'delivered' else 'already there'}\n")
    if as_json:
        _tell(StudySync(studies=tuple(found)), "", as_json=True)
    return 1 if any(synced.state == "failed" for synced in found) else 0


def _synced(store: StudyStore, name: str, tracking_uri: str | None, experiment: str) -> SyncedStudy:
    """Delivers one study; what keeps it from that is part of the result."""
    from planner.cli.options.names import message_of
    from planner.cli.terminal.output import quiet_libraries
    from planner.json_forms import SyncedStudy
    from planner.tracking.delivery import deliver
    from simulator.errors import CapplanError

    try:
        with quiet_libraries():
            delivery = deliver(store.find(name), tracking_uri=tracking_uri, experiment=experiment)
    except (CapplanError, OSError) as error:
        return SyncedStudy(study=name, state="failed", failure=message_of(error))
    return SyncedStudy(study=name, state="delivered" if delivery.is_new else "was_there")


def _tell(answer: Record, text: str, *, as_json: bool) -> None:
    from planner.cli.terminal.output import write

    write(f"{answer.model_dump_json(indent=2) if as_json else text}\n")
