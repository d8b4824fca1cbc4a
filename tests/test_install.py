"""Does the built package hold what it needs? The wheel, built without a network, and the scripts around it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import planner

ROOT = Path(__file__).parent.parent
ROOMS = ("planner", "studies", "constraints", "objectives", "simulator")
SHELL = shutil.which("sh") or "/bin/sh"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of a copy of the checkout, so that nothing is left behind in it."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in (*ROOMS, "pyproject.toml", "LICENSE", "README.md"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, folder)
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        *options,
        "--wheel-dir",
        str(folder / "built"),
        str(folder),
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (built,) = (folder / "built").glob("*.whl")
    return zipfile.ZipFile(built)


def test_the_wheel_is_named_after_project_and_version(wheel: zipfile.ZipFile) -> None:
    assert Path(str(wheel.filename)).name == f"capplan-{planner.__version__}-py3-none-any.whl"


def test_the_wheel_holds_every_file_of_the_five_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    expected = {
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == expected


@pytest.mark.parametrize(
    "name",
    [
        "planner/data/published_steps.csv",
        "simulator/catalog/data/accelerators.csv",
        "simulator/catalog/data/nodes.csv",
        "simulator/catalog/data/fabrics.csv",
        "simulator/catalog/data/models.yaml",
        "simulator/catalog/data/sites.csv",
        "simulator/catalog/data/rents.csv",
        "simulator/data/kernel_efficiency.csv",
        "simulator/data/link_efficiency.csv",
        "planner/py.typed",
    ],
)
def test_the_wheel_holds_the_data(wheel: zipfile.ZipFile, name: str) -> None:
    assert wheel.read(name) == (ROOT / name).read_bytes()


def test_the_wheel_brings_command_license_and_metadata(wheel: zipfile.ZipFile) -> None:
    folder = f"capplan-{planner.__version__}.dist-info"
    assert b"capplan = planner.cli.entry:main" in wheel.read(f"{folder}/entry_points.txt")
    assert b"Apache License" in wheel.read(f"{folder}/licenses/LICENSE")
    metadata = wheel.read(f"{folder}/METADATA").decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Python: >=3.11" in metadata


def test_the_packed_catalogue_can_be_read_without_the_checkout(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    wheel.extractall(tmp_path)
    code = "import sys; from planner.cli.commands import main; sys.exit(main(['catalog', 'accelerators', 'h100-sxm5-80gb']))"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    assert "H100 SXM5 80GB" in done.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the installation script and nothing that could be installed."""
    shutil.copy(ROOT / "install.sh", tmp_path)
    return tmp_path


def install(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [SHELL, "install.sh", *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_installation_refuses_an_argument_that_it_does_not_know(checkout: Path) -> None:
    done = install(checkout, "tests")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "install.sh: unknown argument: tests; 'test' is the only one\n"


def test_the_installation_says_which_python_it_needs(checkout: Path) -> None:
    old = checkout / "python3.9"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2\nexit 1\n')
    old.chmod(0o755)
    done = install(checkout, PYTHON=str(old))
    assert done.returncode == 1
    assert done.stderr.startswith("install.sh: Python 3.11 or newer is needed, found: Python 3.9.2; ")
    assert not (checkout / ".venv").exists()


def program(path: Path, lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)


@pytest.fixture
def environment(checkout: Path) -> Path:
    """An environment that is there already, whose Python only notes in `asked-pip` what it is to install."""
    for name in ("pyproject.toml", "constraints.txt", *(f"{room}/__init__.py" for room in ROOMS)):
        (checkout / name).parent.mkdir(exist_ok=True)
        (checkout / name).touch()
    program(
        checkout / ".venv/bin/python",
        f'case "$*" in *--version) ;; *) echo "$@" >>{checkout}/asked-pip ;; esac',
    )
    (checkout / ".venv/bin/activate").write_text(str(checkout / ".venv"))
    return checkout


def install_beside_uv(folder: Path, *arguments: str, ends: int) -> subprocess.CompletedProcess[str]:
    """Installs where the first uv of the path notes in `asked-uv` what it is to install, and ends like that."""
    program(folder / "tools/uv", f'echo "$@" >>{folder}/asked-uv; exit {ends}')
    return install(folder, *arguments, PATH=f"{folder / 'tools'}{os.pathsep}{os.environ['PATH']}")


def test_uv_installs_where_it_is_on_the_path_and_once(environment: Path) -> None:
    for _ in range(2):
        done = install_beside_uv(environment, "test", ends=0)
        assert (done.returncode, done.stderr) == (0, "")
    (asked,) = (environment / "asked-uv").read_text().splitlines()
    assert asked.startswith("pip install ")
    assert asked.endswith(" -c constraints.txt -e .[test]")
    assert not (environment / "asked-pip").exists()


def test_pip_installs_what_uv_cannot(environment: Path) -> None:
    done = install_beside_uv(environment, ends=2)
    assert (done.returncode, done.stderr) == (0, "")
    assert (environment / "asked-uv").exists()
    (asked,) = (environment / "asked-pip").read_text().splitlines()
    assert asked.startswith("-m pip install ")
    assert asked.endswith(" -c constraints.txt .")


@pytest.mark.parametrize("script", ["install.sh", ".ci/run"])
def test_scripts_are_free_of_syntax_errors(script: str) -> None:
    shell = SHELL if script.endswith(".sh") else shutil.which("bash") or "bash"
    done = subprocess.run([shell, "-n", str(ROOT / script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
