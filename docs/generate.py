"""How are the pages kept up to date? References are generated from the types, the README's results from real answers.

python -m docs.generate            writes the references, the schemas, and the marked parts of other pages
python -m docs.generate --check    fails when a page on disk differs, and names it
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from docs.answer_page import (
    ANSWER_PAGE,
    GOODPUT_PAGE,
    SIMULATE_PAGE,
    answer_reference,
    answer_sections,
    goodput_reference,
    models_in,
    simulate_reference,
)
from docs.by_hand import PAGE as BY_HAND_PAGE
from docs.by_hand import by_hand_page
from docs.calibration_page import PAGE as CALIBRATION_PAGE
from docs.calibration_page import filled_calibration
from docs.carbon_report import PAGE as CARBON_PAGE
from docs.carbon_report import filled_carbon_report
from docs.cluster_size import PAGE as STUDY_PAGE
from docs.cluster_size import all_rows, filled_page
from docs.explain_page import (
    CONSTRAINTS_INTRODUCTION,
    CONSTRAINTS_PAGE,
    PURCHASE_INTRODUCTION,
    PURCHASE_PAGE,
    constraint_tables,
)
from docs.frameworks_page import PAGE as FRAMEWORKS_PAGE
from docs.frameworks_page import filled_frameworks
from docs.getting_started import GETTING_STARTED, filled_getting_started
from docs.job_rules import rules_section
from docs.launch_page import LAUNCH_PAGE, launch_reference
from docs.markdown import row_of_text
from docs.network_page import NETWORK_INTRODUCTION, NETWORK_PAGE
from docs.perfsim_page import PAGE as PERFSIM_PAGE
from docs.perfsim_page import perfsim_page
from docs.readme import README, filled_readme
from planner.explain.explanation import PlanExplanation, SpaceExplanation
from planner.input.schema import Form, form_of, known_fields
from planner.purchase.fleet import Fleet
from planner.purchase.plan import PurchasePlan
from planner.schemas import NAMES, schema_text
from planner.sweep.grid import Sweep
from simulator.deep.networks.described_cables import Cable
from simulator.deep.networks.network_file import KINDS, NetworkFile
from simulator.domain.job import Job
from simulator.record import Record, meanings

PAGE = Path(__file__).with_name("job-file.md")
SWEEP_PAGE = Path(__file__).with_name("sweep.md")
SCHEMAS = Path(__file__).with_name("schemas")
INTRODUCTION = """\
# The job file

A job file says what is to be trained, what hardware is on offer, where, and within which limits. It is YAML
(version 1.2: `2e12` is a number, `no` is text), JSON, or TOML (by the suffix `.toml`). Every quantity has its
unit in its name; fractions are 0..1; bytes, seconds, watts and dollars have no prefix: `30e6` is 30 MW.

- `examples/` holds complete files.
- `capplan init` asks a few questions and writes one; editors complete and check it by its [schema](schemas.md).
- What is required must be given. `null` is the same as leaving a field out, unless the field says otherwise.
- Commands replace values: `--set limits.budget_usd=4e6`, `--set offers[0].num_gpus.max=512` (offers are counted from 0),
  `--set site.power_usage_effectiveness=1.1`, `--set limits.deadline_days=null`.
- [Single fields of a known model](#one-field-of-a-known-model) can be changed in the same way.
- All problems of a file are reported at once, each with the path of its field; the exit code is 2.
- Anchors, aliases and tags of YAML are refused, as are duplicate fields, unknown ones, and files above 1 MB.
- Numbers other than 0 lie between 1e-30 and 1e30 in absolute value, where a field has no narrower range.
- [Fields that need or exclude each other](#fields-that-need-or-exclude-each-other) are told, too. Fields that change nothing
  are named in the answer (*Notes*, `warnings`).
- Limits that turn out too tight are no problem of the file: the study proves it and says what would help (exit code 3).

This page is generated from the types: `python -m docs.generate`.

## The fields of most jobs

Most jobs have no more than these. All others have defaults, which the tables below tell.

```yaml
workload:                                # what is trained
  model: llama-3.1-70b                   # capplan catalog models; or {config: path/to/config.json}
  framework: megatron-lm                 # capplan catalog frameworks
  tokens: 2e12                           # of the whole run
  sequence_length: 8192
  global_batch_tokens: 4e6               # tokens per step; or global_batch_size, in sequences
offers:                                  # the hardware, as many kinds as you like
  - accelerator: h100-sxm5-80gb          # capplan catalog accelerators
    num_gpus: {min: 64, max: 2048}       # those that train
    max_nodes: 264                       # all nodes that there are, spares included; left out: as many as it takes
    rent_usd_per_gpu_hour: 2.6           # or purchase_usd_per_node; left out: the rents of the catalogue
site: us-iowa                            # capplan catalog sites
limits: {budget_usd: 2.5e6, deadline_days: 45, power_w: 4e6}
objectives: [time_to_train, cost, carbon]
reliability: {gpu_hours_per_failure: 5e4}   # from your own logs; or typical, mature, frontier, young, harsh
search: {checkpoint_schemes: [async, sync_sharded]}   # only what your software can do
```

## One field of a known model

A model of the catalogue, or one from a `config.json`, can be trained with some fields of its [shape](#modelshape) changed. What
is not named stays as it is known, also inside a part such as `experts`; `null` takes an optional part out:

```text
model: {name: deepseek-v3.2, num_layers: 30, experts: {num_experts: 64}}   # a smaller relative
model: {name: deepseek-v3.2, latent_attention: {indexer: null}}            # the same, seeing all tokens
model: {config: mine/config.json, vocabulary_size: 64000}
```

Kinds of layers that are counted over the whole model keep their share where `num_layers` changes and they are not named: blocks
of a [hybrid](#linearattention) (24 layers of `qwen3-next-80b-a3b`, which has 36 and 12 blocks in 48, have 18 and 6), and layers
with [compressed attention](#compressedattention), rounded. A number of layers in which the blocks of a hybrid do not come out
whole is refused, unless they are named. What follows from the place of a layer stays: leading dense layers, one of every n
layers with experts, with an indexer or without a window.

`--set workload.model.num_layers=30` does the same to a job that names a model, and so does `--set workload.model.experts=null`.
The axes of a [sweep](sweep.md) take such fields, too. Answers, reports and MLflow then tell what the model is:
`DeepSeek-V3.2, changed: num_layers 30`. A model from a `config.json` with a `name` of its own keeps that name. A shape with all
of its required fields is a model of its own, whatever its name, and takes nothing from the catalogue; what `--set` changes of
it, such as of the job that an answer keeps, is told in its name, too.
"""
SWEEP_INTRODUCTION = """\
# Sweeps: sizes, checkpoint schemes and intervals of one job

Use a sweep to see how cluster size, checkpoint scheme and interval change a job, as a table for plots of your own.
`capplan sweep SWEEP.yaml` simulates every combination of a grid: the fields of the job that are named as axes, the sizes of
the cluster, the checkpoint schemes and the intervals between saves.

```sh
capplan sweep examples/studies/cluster-size-and-checkpointing.yaml --output rows.csv
```

At each size, capplan takes the layout with the shortest step that fits the memory, and spares that suffice for 99 of 100
failures, as far as `max_nodes` of the offer leaves any. The rows of one size therefore differ only in how they save. If a
scheme is impossible with this layout, such as `replica_ft` under ZeRO-3, it runs on the fastest layout of the search that
supports it and whose main memory holds its saves. If there is none, its rows have no figures, and `broken_constraint` names
[what rules out all layouts](constraints.md). Limits of the job are not applied: a sweep shows everything. Of several offers,
the fastest at a size is taken, and named; to compare accelerators, sweep a job for each. A size above the `max_nodes` of every
offer is refused, and so is a value of an axis that gives the same designs as another one, such as of a limit.

For every size and scheme, the terminal shows the largest goodput and the interval that reaches it. `*` marks schemes on
another layout, and `-`, with the reason, schemes that no layout supports. Where axes such as sites, grids and prices leave
all of this as it is, cost, energy and carbon of the fastest scheme stand beside its time. Below the tables it tells [how
well the steps are known](validation.md): their 80 % interval, and once each why some are known less well, as `simulate` does
(never measured, barely validated, scaled from other accelerators). `--output` (a new CSV file) and `--json` have every row:
model, layout, whether it is the fastest of its size (`is_fastest_layout`), step, its interval, these reasons with ` | `
between them (`step_time_notes`) and MFU; stall, commit time, bytes per GPU and interval of the saves; tokens per second with
and without interruptions; time, energy, cost and carbon. Where nothing is ever saved, or a run never ends, the file has
`inf`, and JSON `null`. [The study of cluster size](studies/cluster-size-and-checkpointing.md) is made from one.

From Python:

```python
from planner import load_sweep, run_sweep, sweep_rows

sweep = load_sweep("examples/studies/cluster-size-and-checkpointing.yaml")
rows = sweep_rows(sweep, run_sweep(sweep))
```

This page is generated from the types: `python -m docs.generate`.
"""


def sweep_reference() -> str:
    """Returns the page on sweeps."""
    return "\n".join([SWEEP_INTRODUCTION, _section(Sweep)])


def constraints_reference() -> str:
    """Returns the page on constraints and their explanations."""
    types = answer_sections(PlanExplanation, SpaceExplanation)
    return "\n".join([CONSTRAINTS_INTRODUCTION, *constraint_tables(), *types])


def purchase_reference() -> str:
    """Returns the page on purchase plans: the fields of a fleet, then those of the answer."""
    asked = (_section(model) for model in models_in(Fleet, []))
    return "\n".join([PURCHASE_INTRODUCTION, *asked, *answer_sections(PurchasePlan)])


def network_reference() -> str:
    """Returns the page on network files: the file, then every kind of network."""
    models: dict[type[Record], None] = dict.fromkeys((NetworkFile, *KINDS.values(), Cable))
    return "\n".join([NETWORK_INTRODUCTION, *(_section(model) for model in models)])


def job_file_reference() -> str:
    """Returns the page: one section with a table for every type in a job file."""
    return "\n".join([INTRODUCTION, *(_section(model) for model in models_in(Job, [])), rules_section()])


def _section(model: type[Record]) -> str:
    summary = (model.__doc__ or "").strip().split("\n\n")[0].replace("\n    ", " ")
    rows = [_row(model, name) for name in known_fields(model)]
    header = "| field | what to write | left out | meaning |\n|---|---|---|---|"
    return "\n".join([f"## {model.__name__}\n", f"{summary}\n", header, *rows, ""])


def _row(model: type[Record], name: str) -> str:
    field, form = model.model_fields.get(name), form_of(model, name)
    written = _form_written(form, field) if form else _written(field)
    meaning = (form.meaning if form else "") or meanings(model).get(name, "")
    return row_of_text((f"`{name}`", written, _default(field, form), " ".join(meaning.split())))


def _form_written(form: Form, field: FieldInfo | None) -> str:
    """Returns the text of a form, with links to the types that it names and the bounds of its number."""
    bounds = _bounds(field.metadata) if field is not None and _NUMBER.match(form.written) else ""
    written = _TYPES.sub(lambda found: f"fields of [{found[1]}](#{found[1].lower()})", form.written)
    return (
        f"{written}{', ' if written in ('number', 'whole number') else '; '}{bounds}" if bounds else written
    )


def _written(field: FieldInfo | None) -> str:
    assert field is not None, "a field that only files have needs a form"
    bounds = _bounds(field.metadata)
    return _words(field.annotation) + (f", {bounds}" if bounds else "")


def _words(annotation: object) -> str:
    """Returns a type in a user's words."""
    arguments = get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return f"fields of [{annotation.__name__}](#{annotation.__name__.lower()})"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(f"`{member.value}`" for member in annotation)
    match get_origin(annotation):
        case _ if annotation in _WORDS:
            return _WORDS[annotation]
        case origin if origin is Literal:
            return " or ".join(f"`{value}`" for value in arguments)
        case origin if origin in (Union, UnionType):
            return ", or ".join(_words(inner) for inner in arguments if inner is not NoneType)
        case origin if origin is tuple:
            return f"list: {_words(arguments[0])}"
        case origin if origin is dict:
            return f"mapping from {_words(arguments[0])} to {_words(arguments[1])}"
        case _ if hasattr(annotation, "__metadata__"):
            bounds = _bounds(getattr(arguments[1], "metadata", arguments[1:]))
            return _words(arguments[0]) + (f", {bounds}" if bounds else "")
        case _:
            raise TypeError(f"no words for {annotation!r}")


_LONG_NUMBER = 1e6
_EXPONENT = re.compile(r"e([+-])0*(?=[1-9])")
_NUMBER = re.compile(r"(?:whole )?number\b(?!, or \{)")
"""Forms that are a single number, with the bounds of the field."""
_TYPES = re.compile(r"\bfields of ([A-Z]\w+)")
"""Types that a form names."""
_WORDS: dict[object, str] = {
    object: "any value",
    int: "whole number",
    float: "number",
    str: "text",
    bool: "true or false",
}
_SIGNS = {"gt": "> {}", "ge": ">= {}", "lt": "< {}", "le": "<= {}"}


def _bounds(metadata: Sequence[object]) -> str:
    """Returns the bounds of a number, the lower one first; omits bounds of lengths, which only protect the program."""
    return ", ".join(
        sign.format(_short(f"{value:,.15g}"))
        for name, sign in _SIGNS.items()
        for limit in metadata
        if isinstance(value := getattr(limit, name, None), (int, float))
    )


def _default(field: FieldInfo | None, form: Form | None) -> str:
    if form and form.default:
        return form.default
    if field is None:
        return ""
    return "**required**" if field.is_required() else _value(field.default)


def _value(value: object) -> str:
    """Returns a default as a user would write it."""
    match value:
        case None:
            return "not set"
        case Record():
            return _record(value)
        case bool():
            return f"`{str(value).lower()}`"
        case Enum():
            return f"`{value.value}`"
        case tuple():
            return f"`[{', '.join(_value(item).strip('`') for item in value)}]`"
        case dict():
            return "`{}`"
        case float():
            return _short(f"`{value:.15g}`" if value < _LONG_NUMBER else f"`{value:g}`")
        case _:
            return f"`{value}`"


def _record(value: Record) -> str:
    """Returns the text for a record as a default: its own defaults, if its type has defaults for all fields."""
    if not any(field.is_required() for field in type(value).model_fields.values()) and value == type(value)():
        return "the defaults below"
    fields = (f"{name}: {_value(inner).strip('`')}" for name, inner in value.model_dump().items())
    return f"`{{{', '.join(fields)}}}`"


def _short(number: str) -> str:
    """Returns a number without leading zeros in its exponent: `1e+09` becomes `1e9`."""
    return _EXPONENT.sub(lambda found: "e" + found[1].strip("+"), number)


def main() -> int:
    """Writes or checks the pages; returns the exit code."""
    parser = argparse.ArgumentParser(description="Write the pages that are made from types and answers.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a page is out of date")
    is_check = parser.parse_args().check
    pages = {
        PAGE: job_file_reference(),
        SWEEP_PAGE: sweep_reference(),
        ANSWER_PAGE: answer_reference(),
        SIMULATE_PAGE: simulate_reference(),
        LAUNCH_PAGE: launch_reference(),
        GOODPUT_PAGE: goodput_reference(),
        CONSTRAINTS_PAGE: constraints_reference(),
        PURCHASE_PAGE: purchase_reference(),
        NETWORK_PAGE: network_reference(),
        PERFSIM_PAGE: perfsim_page(),
        README: filled_readme(),
        BY_HAND_PAGE: by_hand_page(),
        CARBON_PAGE: filled_carbon_report(),
        FRAMEWORKS_PAGE: filled_frameworks(),
        CALIBRATION_PAGE: filled_calibration(),
        GETTING_STARTED: filled_getting_started(),
        STUDY_PAGE: filled_page(all_rows()),
        **{SCHEMAS / f"{name}.schema.json": schema_text(name) for name in NAMES},
    }
    stale = [
        path for path, text in pages.items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        if is_check:
            print(f"{path.name} is out of date: run python -m docs.generate", file=sys.stderr)  # noqa: T201
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(pages[path], encoding="utf-8")
    return int(is_check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
