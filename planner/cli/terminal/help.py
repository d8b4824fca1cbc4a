"""How is the help laid out? Commands grouped by purpose, and examples at the end of every command."""

from __future__ import annotations

from collections.abc import Sequence

import click

SECTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Ask", ("init", "recommend", "explain", "purchase", "report")),
    ("Examine one plan", ("simulate", "launch", "timeline", "trace", "goodput", "sweep")),
    ("Manage studies and compare", ("study", "compare", "ui")),
    ("Reference and validation", ("catalog", "schema", "validate", "calibrate", "opendc", "completion")),
)
"""Headings of the first help page, and the commands under each; all others are listed under `More`."""
CODES = """\
\b
Exit codes:
  0    an answer
  1    the study or its record failed, a file cannot be written
  2    broken input: one message names field, value and rule
  3    proven: no design meets all limits
  130  interrupted: partial results are kept if the command says so
  141  the reader of the output has gone"""
"""End of the first help page; docs/exit-codes.md has the details."""


class Sections(click.Group):
    """A group whose help lists its commands by purpose, and that knows options of its commands in the wrong place."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses what precedes the command; an option of the command itself is sent behind it."""
        try:
            return super().parse_args(ctx, list(args))
        except click.NoSuchOption as error:
            for name in args:
                command = self.get_command(ctx, name)
                if command and any(error.option_name in option.opts for option in command.params):
                    hint = f"{error.option_name} belongs behind the command: {ctx.info_name} {name} ... {error.option_name}"
                    raise click.UsageError(hint, ctx) from None
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes one list of commands under each heading."""
        named = [name for _, names in SECTIONS for name in names]
        others = tuple(name for name in self.list_commands(ctx) if name not in named)
        for heading, names in (*SECTIONS, ("More", others)):
            rows = self._rows(ctx, names)
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def _rows(self, ctx: click.Context, names: Sequence[str]) -> list[tuple[str, str]]:
        found = ((name, self.get_command(ctx, name)) for name in names)
        return [(name, command.get_short_help_str(limit=80)) for name, command in found if command]


def examples(*lines: str) -> str:
    """Returns the end of a command's help: examples that can be typed as they are."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])
