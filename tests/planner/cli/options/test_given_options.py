"""Does a command refuse a typed option that would have no effect, even with its default value, and only if it is typed?"""

from __future__ import annotations

import pytest

from planner.cli.options.given import NETWORK_OF, option
from planner.cli.options.names import TRACE_FIELDS, options_named
from simulator.errors import CatalogError, InputError, Problem


def test_options_of_networks_are_called_as_on_the_command_line() -> None:
    assert [option(name) for name in NETWORK_OF] == [
        "--gpus-per-node",
        "--card-bandwidth",
        "--ports",
        "--set-up",
    ]


def test_fields_of_the_simulator_become_options() -> None:
    with (
        pytest.raises(InputError, match=r"trace: 1 problem\n  --interleaved = 2: is too many"),
        options_named(TRACE_FIELDS),
    ):
        raise InputError([Problem(path="num_chunks", value="2", rule="is too many")], "trace")


def test_what_no_option_is_called_stays_as_it_is() -> None:
    with pytest.raises(CatalogError, match="accelerator = zz9: is unknown"), options_named(TRACE_FIELDS):
        raise CatalogError([Problem(path="accelerator", value="zz9", rule="is unknown")])
