"""Which options were typed, and which of them would have no effect? Those are refused instead of being ignored."""

from __future__ import annotations

from collections.abc import Mapping

import click
from click.core import ParameterSource

NETWORK_OF: Mapping[str, str] = {
    "gpus_per_node": "nodes",
    "card_bandwidth": "nodes",
    "ports": "photonic",
    "set_up": "photonic",
}
"""The only networks that read each parameter."""
KINDS = ("ring", "switch", "full", "nodes", "photonic")
"""Values of `--network` that name a kind of network; any other value is a file."""


def is_given(name: str) -> bool:
    """Returns whether a parameter of the running command was typed, even if with its default value."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def refuse_unread_of_network(network: str) -> None:
    """Raises `click.UsageError` if a typed option belongs to another network, or is set by the network file."""
    if network not in KINDS:
        for name in ("bandwidth", "latency", "ramp", *NETWORK_OF):
            if is_given(name):
                raise click.UsageError(
                    f"{option(name)} is what the network file {network} says: leave it out."
                )
        return
    for name, reader in NETWORK_OF.items():
        if network != reader and is_given(name):
            raise click.UsageError(
                f"{option(name)} is read with --network {reader} only: leave it out, or ask for that."
            )


def refuse_unread_of_rules(rules: str, parallel: str) -> None:
    """Raises `click.UsageError` if a typed option does not exist under these rules, or for decentralised workers."""
    unread: tuple[str, ...] = ()
    about = "--rules triosim covers"
    if rules == "triosim":
        unread = ("latency", "ramp", "order", "collectives")
        unread += () if parallel == "pp" else ("microbatches",)
    elif parallel == "hop":
        unread, about = ("ramp", "order", "interleaved", "collectives"), "workers of --parallel hop have"
    for name in unread:
        if is_given(name):
            raise click.UsageError(f"{option(name)} is nothing that {about}: leave it out.")


def option(name: str) -> str:
    """Returns the name of a parameter on the command line."""
    return f"--{name.replace('_', '-')}"
