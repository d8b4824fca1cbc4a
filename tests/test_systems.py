"""Does everything exist that the page of other systems names, and does no row leave its question open?"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import click
import pytest

from planner.cli.commands import commands
from tests.planner.views.test_survey_table import SURVEYED

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "systems.md"
FOUND = {
    "TrioSim (ISCA 2025), Table 1": "Li et al., ASTRA-sim 2, DistSim, vTrain, TrioSim",
    "the paper beside PerfSim-Survey-2026, Table 2": (
        "Timeloop, MAESTRO, Sparseloop, PyTorchSim, ArchGym, Accel-Sim, GPGPU-Sim, AMALI, Li et al., NeuSight, Habitat, "
        "ASTRA-sim 2, SimAI, Echo, PRISM, Lumos, Vidur, Frontier, TrioSim, nn-Meter, LitePred, HELP, TVM, Ansor, TLP"
    ),
    "simulators, by their repositories or papers": (
        "ASTRA-sim 3, GENIE, Chakra, STG, AICB, SimCCL, OpenDC, Kavier, AIReSim, Proteus, Daydream, dPRO, Phantora, "
        "Multiverse, ATLAHS, LogGOPSim, ns-3, htsim, Wormhole, Holistic Trace Analysis, Splitwise, DistServe, "
        "MGPUSim, Multi2Sim, gem5, Charon, Simulon, Maya, LLMServingSim"
    ),
    "models of operators, by their repositories or papers": (
        "aiconfigurator, Zhang et al. (arXiv 2509.22832), GenZ, LLMCompass, SCALE-Sim"
    ),
    "closed forms, by their repositories or papers": (
        "Paleo, ParaDL, Calculon, llm-analysis, SimuMax, AMPeD, MAD-Max, Epoch AI's training model, DistIR, DeepFlow, "
        "RAPID-LLM, mlsysim, Primus projection, COMET, Optimus, Guo et al. (imec), LLMem, DNNMem"
    ),
    "planners, by their repositories or papers": (
        "FlexFlow, Unity, Galvatron, Sailor, Metis, MoFa, PipeDream, OPPA, BudEcosystem simulator, Perseus, Zeus, NeMo, "
        "Paddle, FlagScale, DeepSpeed tuners, AutoParallel, ConfigIQ, llm-d-planner, Mist, Merak, Crius, DistTrain, "
        "Alpa, Themis, TACCL, TACOS, WATOS, Theseus, WSC-LLM"
    ),
    "planners that Sailor (SOSP 2025) compares itself with": "AMP, Varuna, Piper, DTFM, FlashFlex, Aceso, Galvatron, Metis",
    "Svedas et al. (arXiv 2506.09275), Table VII": (
        "EETCO, Baidu, Moonwalk, GreenChip, MLCO2, experiment-impact-tracker, ACT, imec.netzero, Carbon Explorer, "
        "Luccioni et al., TTM-CAS, Chiplet Cloud, CodeCarbon, GreenSKU, LLMCarbon, OpenCarbonEval, SCARIF, CATCH, "
        "CATransformers, CORDOBA, GreenScale"
    ),
}
"""Systems that the page must not lose, by where their names are from."""


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in table if row[0] != "system"]


ROWS = rows()


def is_there(name: str) -> bool:
    """Whether a file, or a command of the command line with its subcommands, exists."""
    if not name.startswith("capplan "):
        return (ROOT / name).is_file()
    command: click.Command | None = commands
    for word in name.split()[1:]:
        if not isinstance(command, click.Group):
            return False
        command = command.commands.get(word)
    return command is not None


def test_every_system_has_a_row_of_five_cells() -> None:
    assert {len(row) for row in ROWS} == {5}
    assert len({row[0] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("source", FOUND)
def test_every_system_that_was_found_has_one_row(source: str) -> None:
    named = [name for row in ROWS for name in row[0].split(", ")]
    assert {name: named.count(name) for name in FOUND[source].split(", ")} == dict.fromkeys(
        FOUND[source].split(", "), 1
    )


def test_the_systems_of_the_surveys_table_of_costs_are_those_of_the_other_page() -> None:
    first_names = {name.partition(",")[0] for name in SURVEYED}
    assert first_names == set(FOUND["Svedas et al. (arXiv 2506.09275), Table VII"].split(", "))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_shows_something_that_exists_or_says_that_it_is_missing(row: list[str]) -> None:
    _, does, here, shown_by, missing = row
    assert does
    names = re.findall(r"`([^`]+)`", shown_by)
    assert [name for name in names if not is_there(name)] == []
    if not names:
        assert (here, shown_by) == ("-", "-")
        assert missing.startswith(("missing: ", "out of scope: "))


def test_names_that_do_not_exist_are_found() -> None:
    assert is_there("capplan trace simulate")
    assert not any(
        is_there(name) for name in ("capplan trace nothing", "capplan simulate it", "tests/none.py")
    )


def test_what_triosims_paper_says_is_shown_by_tests_that_exist() -> None:
    section = (
        (ROOT / "docs" / "deep" / "comparisons.md")
        .read_text(encoding="utf-8")
        .partition("its code does not\n")[2]
    )
    table = [
        line.split(" | ") for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")
    ]
    shown = [re.findall(r"`(test_\w+\.py): (test_\w+)`", row[3]) for row in table[1:]]
    assert all(shown)
    missing = [
        name
        for file, name in itertools.chain(*shown)
        if f"def {name}(" not in "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob(file))
    ]
    assert (len(shown), missing) == (16, [])
