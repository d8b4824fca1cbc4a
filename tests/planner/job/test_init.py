"""Does `capplan init` write valid job files, and check every answer as it is given?"""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from planner import load_job
from planner.cli import commands as cli
from planner.cli.init import OPTIONS, SCHEMA_FILE
from planner.input.yaml_text import read_document
from planner.job.init_job import QUESTIONS, number
from planner.schemas import schema_text
from planner.text.human import typed
from simulator.catalog import Kind, default_node, names
from tests.json_schema import problems

ROOT = Path(__file__).parents[3]
OWN_MODEL = {
    "model_type": "llama",
    "hidden_size": 1024,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "intermediate_size": 4096,
    "vocab_size": 32000,
    "max_position_embeddings": 8192,
}


def init(folder: Path, *arguments: str) -> Path:
    file = folder / "job.yaml"
    assert cli.main(["init", str(file), "--yes", *arguments]) == 0
    return file


def test_without_any_answer_it_writes_a_job_that_loads_and_keeps_its_schema(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = init(tmp_path)
    job = load_job(file)
    # 20 tokens for each of 8.0 billion parameters, to one digit.
    assert job.workload.tokens == 2e11
    assert job.workload.global_batch_size == 512
    assert [offer.accelerator.id for offer in job.offers] == ["h100-sxm5-80gb"]
    assert job.limits.budget_usd is None
    assert job.offers[0].max_nodes is None
    schema = json.loads((tmp_path / SCHEMA_FILE).read_text(encoding="utf-8"))
    assert list(problems(read_document(file), schema, schema)) == []
    assert f"Next: capplan recommend {file}" in capsys.readouterr().out


def test_options_stand_in_the_file(tmp_path: Path) -> None:
    job = load_job(
        init(
            tmp_path,
            *("--model", "Llama-3.1-70B", "--tokens", "2T", "--sequence-length", "4096"),
            *("--batch-tokens", "8M", "--accelerators", "h100-sxm5-80gb, gaudi2", "--gpus", "128 to 512"),
            *(
                "--max-nodes",
                "64, 70",
                "--rent",
                "2.5, 1.1",
                "--site",
                "sweden",
                "--budget",
                "$2.5M",
                "--deadline-days",
                "40",
            ),
            *("--power-w", "3.5M", "--objectives", "cost, carbon"),
        )
    )
    assert (job.workload.model.name, job.workload.tokens) == ("Llama 3.1 70B", 2e12)
    assert job.workload.sequence_length == 4096
    assert [(o.accelerator.id, o.num_gpus.min, o.num_gpus.max) for o in job.offers] == [
        ("h100-sxm5-80gb", 128, 512),
        ("gaudi2", 128, 512),
    ]
    assert [offer.max_nodes for offer in job.offers] == [64, 70]
    assert [o.rent_usd_per_gpu_hour.mid for o in job.offers if o.rent_usd_per_gpu_hour] == [2.5, 1.1]
    assert job.site.region == "sweden"
    assert (job.limits.budget_usd, job.limits.deadline_days, job.limits.power_w) == (2.5e6, 40.0, 3.5e6)
    assert [objective.value for objective in job.objectives] == ["cost", "carbon"]


def test_a_price_to_uncomment_is_that_of_the_usual_node(tmp_path: Path) -> None:
    text = init(tmp_path, "--accelerators", "h100-sxm5-80gb,b200-sxm-180gb").read_text(encoding="utf-8")
    prices = [default_node(name).purchase_usd for name in ("h100-sxm5-80gb", "b200-sxm-180gb")]
    assert re.findall(r"# purchase_usd_per_node: (\d+)", text) == [
        f"{price:.0f}" for price in prices if price
    ]


def test_what_is_commented_out_can_be_uncommented(tmp_path: Path) -> None:
    file = init(tmp_path)
    lines = file.read_text(encoding="utf-8").splitlines()
    fields = (
        "# limits",
        "  # budget",
        "  # deadline",
        "  # power",
        "  # precisions",
        "    # rent",
        "    # max",
    )
    opened = [line.replace("# ", "", 1) if line.startswith(fields) else line for line in lines]
    file.write_text("\n".join(opened), encoding="utf-8")
    job = load_job(file)
    assert (job.limits.budget_usd, job.limits.deadline_days, job.limits.power_w) == (2e6, 45.0, 3e6)
    assert len(job.workload.precisions) == 2
    assert job.offers[0].price_source == "user"
    assert job.offers[0].max_nodes == 128  # servers of eight for up to 1,024


@pytest.mark.parametrize(("longest", "length"), [(4096, 4096), (131_072, 8192), ("long", 8192)])
def test_a_sequence_is_no_longer_than_the_model_was_made_for(
    longest: object, length: int, tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(OWN_MODEL | {"max_position_embeddings": longest}), encoding="utf-8")
    assert load_job(init(tmp_path, "--model", str(config))).workload.sequence_length == length


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("nowhere/job.yaml", "nowhere does not exist: make it first"),
        ("nowhere", "nowhere/job.yaml in a folder that exists"),
        (".", "is a folder: name a file in it, such as "),
    ],
)
def test_a_file_in_no_folder_is_refused_with_the_way_out(
    file: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["init", str(tmp_path / file), "--yes"]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.short(16)
@pytest.mark.parametrize("model", names(Kind.MODELS))
def test_every_model_of_the_catalogue_gets_a_job_that_loads(model: str, tmp_path: Path) -> None:
    # Short sequences: some models were made for no more than 2,048 tokens.
    file = init(tmp_path, "--model", model, "--sequence-length", "2048", "--no-schema")
    load_job(file)
    assert not (tmp_path / SCHEMA_FILE).exists()
    assert SCHEMA_FILE not in file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "llama-3.1-80b"], "is not in the catalogue; nearest: llama-3.1-8b"),
        (["--tokens", "many"], "must be a positive number, such as 5e11, 500B or 2T"),
        (["--tokens", "-5"], "must be a positive number"),
        (["--tokens", "1e999"], "must be a positive number"),
        (["--sequence-length", "10.5"], "must be a whole number, such as 8192"),
        (["--model", "nowhere/config.json"], "--model = 'nowhere/config.json': "),
        (["--model", "no\x1bwhere.json"], "must be a path of printable signs only"),
        (["--accelerators", "h100"], "--accelerators = 'h100': is not in the catalogue; nearest: h100-"),
        (["--accelerators", ","], "needs at least one accelerator"),
        (
            ["--accelerators", "h100-sxm5-80gb,H100-sxm5-80gb", "--rent", "2,3"],
            "1 problem\n  --accelerators = 'h100-sxm5-80gb,H100-sxm5-80gb': names h100-sxm5-80gb more than once",
        ),
        (["--accelerators", "gaudi2"], "--rent: is needed: the catalogue has no rent of gaudi2"),
        (["--framework", "fsdp"], "is not in the catalogue; nearest: fsdp2, fsdp2-eager"),
        (["--rent", "1,2,3"], "must be one number, or one for each of h100-sxm5-80gb"),
        (["--max-nodes", "1,2"], "must be one number, or one for each of h100-sxm5-80gb"),
        (["--max-nodes", "1.5"], "must be a whole number, such as 128; empty for no limit"),
        (["--max-nodes", "127"], "the 1,024 accelerators that may be taken; 127 nodes hold 1,016 h100"),
        (["--max-nodes", "1000001"], "must be at most 1,000,000"),
        (["--gpus", "512-64"], "must be a range such as 64-1024"),
        (["--gpus", "0-5"], "whole numbers from 1 to 1,000,000, the smaller number first"),
        (["--deadline-days", "0"], "must be a positive number, such as 45; empty for none"),
        (["--power-w", "-1"], "must be a positive number, such as 3M or 3e6; empty for none"),
        (["--site", "xx"], "is not in the catalogue; all: capplan catalog sites"),
        (["--gpus", "9e9"], "must be a range"),
        (["--site", "atlantis"], "is not in the catalogue"),
        (["--objectives", "speed"], "must be one or more of time_to_train, cost, energy, carbon"),
        (["--gpus", "3-5"], "num_gpus"),  # no multiple of a server's eight
        (["--batch-tokens", "100"], "global_batch_tokens"),  # less than one sequence
    ],
)
def test_a_broken_answer_is_named_and_nothing_is_written(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["init", str(tmp_path / "job.yaml"), "--yes", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ("--model", "llama-3.1-80b", "--accelerators", "h100,b200-sxm-180gb,v900", "--site", "xx")
    assert cli.main(["init", str(tmp_path / "job.yaml"), "--yes", *wrong, "--rent", "1,2,3"]) == 2
    err = capsys.readouterr().err
    assert "3 problems" in err  # how many rents there should be is not known without the accelerators
    assert all(part in err for part in ("'llama-3.1-80b'", "h100 is not", "v900 is not", "'xx'"))


def test_a_model_may_be_an_own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "jobs").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(OWN_MODEL), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["init", "jobs/own.yaml", "--yes", "--model", "model/config.json"]) == 0
    job = load_job(tmp_path / "jobs" / "own.yaml")
    assert (job.workload.model.name, job.workload.model.num_layers) == ("llama", 2)
    # Embedding and output 2 x 32,000 x 1,024, two layers of 4 x 1,024^2 + 3 x 1,024 x 4,096: 99 million parameters, and
    # twenty tokens for each, to one digit.
    assert job.workload.tokens == 2e9


def test_a_file_that_is_no_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**OWN_MODEL, "num_attention_heads": None}), encoding="utf-8")
    assert cli.main(["init", str(tmp_path / "job.yaml"), "--yes", "--model", str(config)]) == 2
    assert "num_attention_heads" in capsys.readouterr().err


def test_without_a_terminal_nothing_is_taken_for_granted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["init", str(tmp_path / "job.yaml"), "--model", "llama-3.1-8b"]) == 2
    assert "add --yes to use defaults" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_there", [True, False])
def test_a_full_disk_leaves_no_half_job_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, is_there: bool
) -> None:
    file = tmp_path / "job.yaml"
    if is_there:
        file.write_text("mine")

    def full(self: Path, text: str, **_: object) -> int:
        self.write_bytes(text[:5].encode())
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    assert cli.main(["init", str(file), "--yes", "--force"]) == 1
    assert f"FILE = {file}: cannot be written: No space left on device" in capsys.readouterr().err
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [
        ("job.yaml", "mine")
    ] * is_there


def test_a_file_is_replaced_by_force_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("precious", encoding="utf-8")
    assert cli.main(["init", str(file), "--yes"]) == 2
    assert "exists: choose another name, or --force to replace it" in capsys.readouterr().err
    assert file.read_text(encoding="utf-8") == "precious"
    init(tmp_path, "--force")
    load_job(file)


def test_a_schema_that_is_not_ours_stays(tmp_path: Path) -> None:
    (tmp_path / SCHEMA_FILE).write_text("{}", encoding="utf-8")
    init(tmp_path)
    assert (tmp_path / SCHEMA_FILE).read_text(encoding="utf-8") == "{}"


@pytest.mark.parametrize("name", ["job.json", "missing/job.yaml", "."])
def test_a_place_that_will_not_do_is_refused(name: str, tmp_path: Path) -> None:
    assert cli.main(["init", str(tmp_path / name), "--yes"]) == 2


def on_a_terminal(folder: Path, typed: str) -> tuple[int, str]:
    """Runs the command with a terminal as its input, types, and returns exit code and questions."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "planner.cli", "init", str(folder / "job.yaml")],
            cwd=ROOT,
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        os.write(ours, typed.encode())
        _, questions = process.communicate(timeout=120)
        return process.returncode, questions
    finally:
        os.close(ours)
        os.close(theirs)


def test_on_a_terminal_it_asks_and_asks_again_after_a_wrong_answer(tmp_path: Path) -> None:
    answers = ["llama3", "llama-3.1-70b", "", "lots", "4096", *[""] * 11]
    code, questions = on_a_terminal(tmp_path, "\n".join(answers) + "\n")
    assert code == 0, questions
    job = load_job(tmp_path / "job.yaml")
    assert job.workload.model.name == "Llama 3.1 70B"
    assert job.workload.sequence_length == 4096
    assert job.workload.tokens == 1e12  # 20 for each of 70.6 billion parameters, to one digit
    assert "'llama3' is not in the catalogue" in questions
    assert "'lots' must be a positive number" in questions
    assert all(question.text in questions for question in QUESTIONS)


def test_interrupting_the_questions_writes_nothing(tmp_path: Path) -> None:
    code, _ = on_a_terminal(tmp_path, "llama-3.1-70b\n\x04")  # Ctrl-D: no more answers
    assert code == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2T", 2e12),
        ("500B", 5e11),
        ("4M", 4e6),
        ("8k", 8e3),
        ("1.5e12", 1.5e12),
        ("1,024", 1024),
        ("2,6", 2.6),
    ],
)
def test_numbers_may_have_a_suffix(text: str, value: float) -> None:
    assert number(text) == value
    assert float(typed(value)) == value


def test_every_question_has_its_option() -> None:
    assert list(OPTIONS) == [question.name for question in QUESTIONS]


def test_the_schema_beside_the_file_is_the_one_that_is_printed(tmp_path: Path) -> None:
    init(tmp_path)
    assert (tmp_path / SCHEMA_FILE).read_text(encoding="utf-8") == schema_text("job")
