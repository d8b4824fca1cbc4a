"""Which options did somebody type, and which of those would nobody read? They are refused instead of being passed over.

Only click is imported here: the command line is built with it.
"""

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
"""Networks that alone read a parameter."""
KINDS = ("ring", "switch", "full", "nodes", "photonic")
"""What `--network` names; all else is a file."""


def is_given(name: str) -> bool:
    """Returns whether a parameter of the running command was typed, be it with its default."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def refuse_unread_of_network(network: str) -> None:
    """Raises `click.UsageError` where an option of another network was typed, or one that the network file says."""
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
    """Raises `click.UsageError` where an option was typed that the rules, or decentralised workers, do not have."""
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
    """Returns what a parameter is called on the command line."""
    return f"--{name.replace('_', '-')}"
