"""Does the Containerfile do what the README says, with nothing that may be another thing tomorrow?"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINES = (ROOT / "Containerfile").read_text(encoding="utf-8").splitlines()
STEPS = [line.split(maxsplit=1) for line in LINES if line and not line.startswith("#")]
README = (ROOT / "README.md").read_text(encoding="utf-8")
HOME = "/capplan"
PINS = {
    name.lower().replace("_", "-")
    for name in re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
}


def step(name: str) -> str:
    """What the only step of a kind does."""
    (found,) = [rest for kind, rest in STEPS if kind == name]
    return found


def test_its_steps_are_the_first_command_of_the_readme() -> None:
    command = re.findall(r"^sh install\.sh && .*$", README, re.MULTILINE)[0]
    install, asked = command.split(" && ")
    words: list[str] = json.loads(step("ENTRYPOINT")) + json.loads(step("CMD"))
    assert step("RUN") == install
    assert shlex.join(words).removeprefix(f"{HOME}/") == asked


def test_the_image_below_is_one_version_of_a_python_that_the_project_takes() -> None:
    match = re.fullmatch(r"python:(\d+)\.(\d+)\.\d+-slim-[a-z]+", step("FROM"))
    assert match
    supported = re.search(r'requires-python = ">=(\d+)\.(\d+)"', (ROOT / "pyproject.toml").read_text("utf-8"))
    assert supported
    assert [int(part) for part in match.groups()] >= [int(part) for part in supported.groups()]


def test_nothing_is_downloaded_but_by_the_installation_which_is_pinned_to_its_last_part() -> None:
    assert {kind for kind, _ in STEPS} == {"FROM", "ENV", "WORKDIR", "COPY", "RUN", "ENTRYPOINT", "CMD"}
    assert step("WORKDIR") == HOME
    environment = " ".join(rest for kind, rest in STEPS if kind == "ENV")
    for variable in ("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT"):
        assert f"{variable}={HOME}/constraints.txt" in environment
    # What builds the package, and what that needs.
    assert {"hatchling", "packaging", "pathspec", "pluggy", "trove-classifiers"} <= PINS


def test_the_image_takes_no_environment_and_no_studies_from_the_checkout() -> None:
    ignored = (ROOT / ".containerignore").read_text(encoding="utf-8").splitlines()
    assert {".venv", ".git", "capplan-studies", "mlruns"} <= set(ignored)
