"""What do you type to begin? `capplan init`, which asks a few questions and writes a valid job file."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options.completed import OF_INIT, names_of
from planner.cli.options.gathered import with_options
from planner.cli.options.shared import json_option
from planner.cli.terminal.help import examples

if TYPE_CHECKING:
    from planner.job.init_job import Answers, Question
    from simulator.errors import Problem

OPTIONS = {
    "model": ("NAME|FILE", "Model: a name from `capplan catalog models`, or a config.json."),
    "tokens": ("NUMBER", "Tokens of the whole run, such as 2T."),
    "sequence-length": ("NUMBER", "Tokens per sequence."),
    "batch-tokens": ("NUMBER", "Tokens per optimizer step, such as 4M."),
    "framework": ("NAME", "Training software: a name from `capplan catalog frameworks`."),
    "accelerators": ("NAME,...", "Accelerators on offer: names from `capplan catalog accelerators`."),
    "gpus": ("MIN-MAX", "Range of the number of accelerators, such as 64-1024."),
    "max-nodes": ("NUMBER,...", "Nodes that there are, spares included, one for all or one each."),
    "rent": ("NUMBER,...", "USD per GPU-hour, one for all or one each; default: the catalogue's rents."),
    "site": ("NAME", "Site: a name from `capplan catalog sites`."),
    "budget": ("NUMBER", "Budget in USD, such as 2.5M."),
    "deadline-days": ("NUMBER", "Deadline in days."),
    "power-w": ("NUMBER", "Limit of the facility's power in watts, such as 3M."),
    "objectives": ("NAME,...", "Objectives to minimize: time_to_train, cost, energy, carbon."),
}
"""Metavar and help of each option, by the names of `planner.job.init_job.QUESTIONS`."""
SCHEMA_FILE = "job.schema.json"


@click.command(
    short_help="Write a job file from a few questions or options.",
    epilog=examples(
        "capplan init",
        "capplan init llama.yaml --model llama-3.1-70b --tokens 2T --budget 2.5M --yes",
        "capplan init own.yaml --model model/config.json --tokens 500B --yes",
        "capplan init big.yaml --accelerators h100-sxm5-80gb,b200-sxm-180gb --gpus 512-4096 --yes",
    ),
)
@click.argument("file", type=click.Path(path_type=Path), default=Path("job.yaml"), metavar="[FILE]")
@with_options(
    *(
        click.option(
            f"--{name}",
            name.replace("-", "_"),
            metavar=metavar,
            help=meaning,
            shell_complete=names_of(OF_INIT[name]) if name in OF_INIT else None,
        )
        for name, (metavar, meaning) in OPTIONS.items()
    )
)
@click.option("--yes", is_flag=True, help="Ask no questions: use defaults for everything not given.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option(
    "--no-schema", is_flag=True, help=f"Leave out {SCHEMA_FILE}, with which editors complete the file."
)
@json_option
def init(*, file: Path, yes: bool, force: bool, no_schema: bool, as_json: bool, **given: str | None) -> None:
    """Write a commented job file; FILE defaults to job.yaml.

    On a terminal, asks for everything that no option gives, and checks every answer; elsewhere --yes is needed. The
    JSON Schema is written next to the file, for editors that complete and check it.

    Exit codes: 0 written; 2 an answer breaks a rule, or FILE exists; 130 interrupted, and nothing is written.
    """
    from planner.input.yaml_text import parse_text
    from planner.job.file import parse_job
    from planner.job.init_job import QUESTIONS, job_text

    _check_place(file, force=force)
    options = {question.name: given[question.name.replace("-", "_")] for question in QUESTIONS}
    is_asking = not yes and None in options.values()
    if is_asking and not sys.stdin.isatty():
        raise click.UsageError(
            "no terminal to ask questions on: add --yes to use defaults for everything not given"
        )
    _check_options(options, is_asking=is_asking)
    answers: dict[str, str] = {}
    for question in QUESTIONS:
        answers[question.name] = _answered(question, options[question.name], answers, is_asking=is_asking)
    text = job_text(answers, file=str(file), schema="" if no_schema else SCHEMA_FILE)
    document = parse_text(text, source=str(file))
    assert isinstance(document, Mapping)
    parse_job(document, folder=file.parent, source=str(file))
    _write_job(file, text, force=force)
    schema = None if no_schema else _write_schema(file.with_name(SCHEMA_FILE))
    _tell(file, schema, as_json=as_json)


def _tell(file: Path, schema: Path | None, *, as_json: bool) -> None:
    from planner.cli.terminal.output import write
    from planner.json_forms import WrittenJob

    command = f"capplan recommend {shlex.quote(str(file))}"
    if as_json:
        beside = str(schema) if schema else None
        written = WrittenJob(file=str(file), schema_file=beside, next_command=command)
        write(written.model_dump_json(indent=2) + "\n")
        return
    write(f"{file} is written{f', and {schema} for editors' if schema else ''}. Next: {command}\n")


def _check_options(options: Mapping[str, str | None], *, is_asking: bool) -> None:
    """Raises `InputError` with every rule that the typed options break, before anything is asked."""
    from planner.job.init_job import QUESTIONS
    from simulator.errors import InputError

    answers: dict[str, str] = {}
    problems: dict[str, Problem] = {}
    for question in QUESTIONS:
        text = options[question.name]
        default = question.default(answers)
        answers[question.name] = default
        is_later = is_asking and (text is None or any(options[name] is None for name in question.needs))
        if is_later or problems.keys() & set(question.needs):
            continue
        try:
            answers[question.name] = question.checked(default if text is None else text, answers)
        except ValueError as error:
            problems[question.name] = _option_problem(question, text, error)
    if problems:
        raise InputError(list(problems.values()))


def _answered(question: Question, text: str | None, answers: Answers, *, is_asking: bool) -> str:
    """Returns a checked answer: the one given as an option, the one typed at the prompt, or the default."""
    from simulator.errors import InputError

    def checked(typed: str) -> str:
        try:
            return question.checked(typed, answers)
        except ValueError as error:
            raise click.UsageError(f"{typed!r} {error}") from None

    default = question.default(answers)
    if text is not None or not is_asking:
        try:
            return question.checked(default if text is None else text, answers)
        except ValueError as error:
            raise InputError([_option_problem(question, text, error)]) from None
    return str(
        click.prompt(question.text, default=default, show_default=bool(default), value_proc=checked, err=True)
    )


def _option_problem(question: Question, text: str | None, error: ValueError) -> Problem:
    from simulator.errors import Problem

    return Problem(path=f"--{question.name}", value=repr(text) if text else "", rule=str(error))


def _check_place(file: Path, *, force: bool) -> None:
    rule = ""
    if file.is_dir():
        rule = f"is a folder: name a file in it, such as {file / 'job.yaml'}"
    elif file.suffix.lower() not in (".yaml", ".yml"):
        rule = f"must end in .yaml, such as {file.with_suffix('.yaml')}, or {file / 'job.yaml'} in a folder that exists"
    elif not file.parent.is_dir():
        rule = f"the folder {file.parent} does not exist: make it first"
    elif file.exists() and not force:
        rule = "exists: choose another name, or --force to replace it"
    if rule:
        raise _problem(file, rule)


def _write_job(file: Path, text: str, *, force: bool) -> None:
    from planner.input.own_files import replacing

    with replacing(file, "FILE") as draft:
        draft.write_text(text, encoding="utf-8")
        try:
            file.touch(exist_ok=force)
        except FileExistsError:
            raise _problem(file, "exists: choose another name, or --force to replace it") from None


def _write_schema(path: Path) -> Path | None:
    """Writes the schema; a file of that name that is not a schema of capplan is left unchanged."""
    from planner.input.own_files import replacing
    from planner.job.schema_file import job_file_schema, schema_as_text

    if path.exists() and '"title": "capplan job file"' not in path.read_text(
        encoding="utf-8", errors="replace"
    ):
        return None
    with replacing(path, "FILE") as draft:
        draft.write_text(schema_as_text(job_file_schema()), encoding="utf-8")
    return path


def _problem(file: Path, rule: str) -> Exception:
    from simulator.errors import InputError, Problem

    return InputError([Problem(path="FILE", value=str(file), rule=rule)])
