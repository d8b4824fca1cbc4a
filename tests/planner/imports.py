"""Which packages does a piece of code import? It runs in its own process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import planner

ROOT = Path(planner.__file__).parent.parent
HEAVY = {
    "mlflow",
    "optuna",
    "ortools",
    "pymoo",
    "numba",
    "scipy",
    "pandas",
    "numpy",
    "pyarrow",
    "pydantic",
    "rich",
}
"""Packages that must not be imported to print help or to refuse an option."""


def printed_without_heavy_imports(code: str) -> str:
    """Runs code that may import from the repository, and returns what it prints."""
    told = "print('loaded:', *{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    command = [sys.executable, "-c", f"import sys\n{code}\n{told}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = done.stderr.split()
    assert loaded[0] == "loaded:"
    assert set(loaded) & HEAVY == set()
    return done.stdout


def run_and_loaded(arguments: list[str]) -> tuple[int, set[str]]:
    """Runs a command of capplan in its own process; returns its exit code and the packages that it imported."""
    told = "print(code, *{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    code = f"import sys\nfrom planner.cli.commands import main\ncode = main({arguments!r})\n{told}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    exit_code, *loaded = done.stderr.splitlines()[-1].split()
    return int(exit_code), set(loaded)
