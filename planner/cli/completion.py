"""What do you type so that the shell completes commands, options and names? `capplan completion` with the shell's name."""

from __future__ import annotations

import click

from planner.cli.terminal.help import examples

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_CAPPLAN_COMPLETE"
"""Environment variable by which the shell asks for completions; click derives it from the program's name."""


@click.command(
    short_help="Print a script for shell completion.",
    epilog=examples(
        'eval "$(capplan completion bash)"      # in ~/.bashrc',
        'eval "$(capplan completion zsh)"       # in ~/.zshrc',
        "capplan completion fish > ~/.config/fish/completions/capplan.fish",
    ),
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, *, shell: str) -> None:
    """Print the script that makes SHELL complete commands, options, choices, files and names of the catalogue."""
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None, "click completes all of SHELLS"
    click.echo(found(context.find_root().command, {}, "capplan", VARIABLE).source())
