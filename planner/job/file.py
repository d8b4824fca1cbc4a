"""How is a job file read? A file, or a mapping with the same fields, becomes a `Job` or one error.

    load_job("job.yaml", ["limits.budget_usd=4e6"])      a file in YAML, JSON or TOML
    parse_job({"workload": {...}, "offers": [...], ...})   the same from a Python program

Each step has its own module: parse the text (`planner.input.yaml_text`), replace values (`overrides`), keep plain values only
(`planner.input.plain`), look up names (`resolve`, `offers`), check the rules of the domain types, and check for limits that
exclude everything (`limits`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from planner.input.arguments import check_mapping, check_text, path_given
from planner.input.plain import plain_copy
from planner.input.problems import Findings
from planner.input.record_input import name_of, read_mapping, validated
from planner.input.yaml_text import JOB_FIELDS
from planner.job.framework import telling_habits
from planner.job.limits import contradictions
from planner.job.named_model import told_in_name
from planner.job.overrides import with_overrides
from planner.job.own_catalog import own_figures
from planner.job.own_factors import with_own_factors
from planner.job.resolve import resolve
from simulator.catalog import overlaid
from simulator.domain.job import Job
from simulator.errors import InputError


def load_job(path: str | Path, overrides: Sequence[str] = ()) -> Job:
    """Returns the job in a file, with all names resolved to figures.

    Args:
        path: File in YAML, JSON or TOML; `docs/job-file.md` lists its fields. A job without a name gets the
            file's name, without the suffix.
        overrides: Values that replace those of the file, such as `limits.budget_usd=4e6`; later ones win.

    Raises:
        InputError: The file cannot be read, or breaks rules; all broken rules are in `problems`.
    """
    file = path_given(path)
    document = read_mapping(file, least=JOB_FIELDS)
    return parse_job(document, name=name_of(file), folder=file.parent, source=str(file), overrides=overrides)


def parse_job(
    document: Mapping[str, object],
    *,
    name: str = "job",
    folder: Path | None = None,
    source: str = "",
    overrides: Sequence[str] = (),
) -> Job:
    """Returns the job that a mapping describes, with all names resolved to figures.

    Args:
        document: Fields as in a job file; domain types, such as a `Site`, may stand for their fields.
        name: Name of the job if the document gives none.
        folder: Where relative paths of `config.json` files start; by default the current folder.
        source: Where the document comes from, for error messages.
        overrides: Values that replace those of the document, as for `load_job`.

    Raises:
        InputError: The document breaks rules; all broken rules are in `problems`.

    Example:
        >>> job = parse_job({
        ...     "workload": {"model": "llama-3.1-8b", "tokens": 1e12, "sequence_length": 8192,
        ...                  "global_batch_tokens": 4e6},
        ...     "offers": [{"accelerator": "h100-sxm5-80gb", "num_gpus": {"min": 64, "max": 256}}],
        ...     "site": "us-iowa",
        ... })
        >>> job.workload.global_batch_size
        512
    """
    check_mapping(document, "job", "must be a mapping of the fields of a job file; load_job reads a file")
    check_text(name, "name")
    below = Path() if folder is None else path_given(folder, "folder", "a folder")
    findings = Findings()
    plain = plain_copy(with_overrides(document, overrides, findings), findings)
    if overrides and not findings.problems:
        plain = told_in_name(plain, plain_copy(document, Findings()), overrides, findings)
    own = own_figures(plain.pop("catalog", None), below, findings)
    with overlaid(own):
        fields = resolve(plain, name=name, folder=below, findings=findings)
        fields = with_own_factors(fields, own.get("factors.csv", {}))
        try:
            job = validated(Job, fields, findings, source)
        except InputError as error:
            raise telling_habits(error, plain) from None
    if problems := contradictions(job):
        raise InputError(problems, source)
    return job
