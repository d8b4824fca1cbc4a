"""Which names may a half-typed value of an option mean? For shell completion alone."""

from __future__ import annotations

from collections.abc import Callable

import click

Completer = Callable[[click.Context, click.Parameter, str], list[str]]

OF_INIT = {"model": "models", "framework": "frameworks", "accelerators": "accelerators", "site": "sites"}
"""Kinds of the catalogue whose names options of `capplan init` take."""


def names_of(kind: str) -> Completer:
    """Returns what completes a name of a kind of the catalogue, or the last one of several in a list."""

    def completed(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
        from simulator.catalog import Kind, names

        before, comma, begun = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names(Kind(kind)) if name.startswith(begun)]

    return completed


def schemes(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Returns the checkpoint schemes that a half-typed one may mean."""
    from simulator.domain.plan import CheckpointScheme

    return [scheme.value for scheme in CheckpointScheme if scheme.value.startswith(incomplete)]
