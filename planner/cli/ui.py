"""What do you type to look at studies in a browser? `capplan ui`, which starts MLflow's interface on their store."""

from __future__ import annotations

from contextlib import suppress

import click

from planner.cli.options.shared import tracking_uri_option
from planner.cli.terminal.help import examples


@click.command(
    short_help="Open recorded studies in a browser.",
    epilog=examples(
        "capplan ui",
        "capplan ui --port 5000",
        "capplan ui --tracking-uri sqlite:///studies/mlflow.db",
    ),
)
@tracking_uri_option
@click.option("--port", type=click.IntRange(1, 65_535), help="Port of the interface; default: any free port.")
@click.option("--json", "as_json", is_flag=True, help="Print the address as one JSON object.")
def ui(*, tracking_uri: str | None, port: int | None, as_json: bool) -> int:
    """Start the MLflow interface on the store of the studies, and print its address.

    It listens on 127.0.0.1 only, so that only users of this machine can reach it, and runs until Ctrl-C. If the store is
    a server, only its address is printed, and nothing is started.

    The addresses belong to the experiment that was changed last: its studies with their questions and recommendations,
    and the designs of their fronts as parallel coordinates. Both are views that MLflow keeps with the experiment.

    Exit codes: 0 stopped by Ctrl-C; 1 it does not start, or stopped by itself; 2 there is no such store.
    """
    try:
        return _show(tracking_uri, port, as_json=as_json)
    except KeyboardInterrupt:  # no error: it is how the interface is stopped, even while it starts
        with suppress(OSError):  # the terminal has been closed
            click.echo("Stopped.", err=True)
        return 0


def _show(tracking_uri: str | None, port: int | None, *, as_json: bool) -> int:
    """Shows the store of the studies until MLflow stops by itself; returns the exit code."""
    from planner.cli.terminal.output import quiet_libraries
    from planner.tracking.page import newest_experiment, runs_page, store_to_show, tracking_page
    from planner.tracking.views import FRONT, STUDIES, keep_views
    from studies.tracking.mlflow_server import is_server
    from studies.tracking.mlflow_session import without_password

    with quiet_libraries():
        uri = store_to_show(tracking_uri)
        experiment = newest_experiment(uri)
    if is_server(uri):
        _tell(runs_page(without_password(uri), experiment), None, as_json=as_json)
        return 0
    click.echo("Starting MLflow takes some seconds; Ctrl-C stops it.", err=True)
    has_views = experiment is not None and keep_views(uri, experiment)
    with tracking_page(uri, port) as (address, process):
        studies = runs_page(address, experiment, STUDIES if has_views else None)
        front = runs_page(address, experiment, FRONT, has_pictures=True) if has_views else None
        _tell(studies, front, as_json=as_json)
        process.wait()
    click.echo("Error: MLflow has stopped by itself", err=True)
    return 1


def _tell(studies: str, front: str | None, *, as_json: bool) -> None:
    from planner.cli.terminal.output import write

    if as_json:
        from planner.json_forms import TrackingPage

        write(TrackingPage(address=studies, front_address=front).model_dump_json() + "\n")
        return
    write(f"Studies: {studies}\n")
    if front is not None:
        write(f"Fronts, as parallel coordinates: {front}\n")
