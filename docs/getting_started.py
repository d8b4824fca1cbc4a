"""What do the commands of docs/getting-started.md print? The page's samples of output, regenerated."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from docs.markdown import replaced
from planner.cli.commands import main

GETTING_STARTED = Path(__file__).with_name("getting-started.md")
NAME = "job-1a2b3c4d"
"""Placeholder for the name of a study, which changes with every change of the code."""
_NAME = re.compile(r"job-[0-9a-f]{8}")
_INIT = re.compile(r"^capplan (init job\.yaml .*?[^\\])$", re.MULTILINE | re.DOTALL)
_CHANGED = re.compile(r"^capplan (study run job\.yaml --set .*)$", re.MULTILINE)
_QUIET = ("--no-tracking", "--quiet")


def filled_getting_started() -> str:
    """Returns the page with the samples of its studies regenerated, without what differs from run to run."""
    text = GETTING_STARTED.read_text(encoding="utf-8")
    with TemporaryDirectory() as folder, chdir(folder):
        _printed(_words(_INIT, text))
        _printed(["study", "run", "job.yaml", *_QUIET])
        (study,) = Path("capplan-studies").glob("*.study")
        status = _printed(["study", "status", str(study)])
        second = _printed([*_words(_CHANGED, text), *_QUIET])
    text = replaced(text, "status", _block(status_sample(status)))
    return replaced(text, "origins", _block(_lines(second, "simulated now", "read from", "taken from")))


def _words(command: re.Pattern[str], text: str) -> list[str]:
    (written,) = command.findall(text)
    return shlex.split(written.replace("\\\n", " "))


def _printed(arguments: Sequence[str]) -> str:
    with redirect_stdout(StringIO()) as printed:
        code = main([*arguments])
    if code:
        raise RuntimeError(f"capplan {shlex.join(arguments)} ended with {code}")
    return printed.getvalue()


def status_sample(printed: str) -> list[str]:
    """Returns the lines of `study status` that are the same in every run, with a placeholder for the name."""
    head = _NAME.sub(NAME, printed.splitlines()[0])
    return [head, "", "  ...", *_lines(printed, "designs ", "front "), "  ..."]


def _lines(printed: str, *starts: str) -> list[str]:
    return [line.rstrip() for line in printed.splitlines() if line.strip().startswith(starts)]


def _block(lines: Sequence[str]) -> str:
    return "\n".join(["```text", *lines, "```"])
