"""What does the JSON of an answer contain? The reference pages, written from the types of the answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Literal, Union, get_args, get_origin

from planner.deep.answer import DeepStep
from planner.goodput.answer import Goodput
from planner.input.plan_input import SHORT_FORMS
from planner.input.schema import record_in
from planner.one_design.simulated_design import SimulatedDesign
from planner.recommended.recommendation import Recommendation
from simulator.record import Choice, Record, meanings

ANSWER_PAGE = Path(__file__).with_name("answer.md")
SIMULATE_PAGE = Path(__file__).with_name("simulate.md")
GOODPUT_PAGE = Path(__file__).with_name("goodput.md")
INTRODUCTION = """\
# The answer as JSON

`capplan recommend JOB.yaml --json` prints one object, `--output DIR` writes the same one as `recommendation.json`, and
`planner.recommend` returns it as a value. Two runs of the same job, version and seed differ in `created_at` only,
and in `mlflow` where they are recorded in another place. Every quantity has its unit in its name: seconds, bytes, watts,
dollars, kg of CO2 equivalents; fractions are 0..1.

`--output DIR` also writes `front.csv` (`.parquet` with `--format parquet`), one line for each design of the front, with its
objectives, its region, its operational and embodied carbon and its water, and `designs.parquet`, one for each design that was
evaluated; `design_id` is the same number in all of them. `report.html` beside them is [a page that explains the
answer](report.md), and `job.json` the job with all names resolved. A folder that holds a file of one of these names is
refused: nothing is overwritten. So is one into which another run is writing.

`front.csv` leaves empty what a plan leaves out; `designs.parquet`, exports of studies and MLflow have 0 there, which no
such decision can be. `checkpoint_interval_s` of `front.csv` and MLflow is the interval that is used; in `designs.parquet`
and exports it is the plan's own, NaN or empty where the plan leaves it out, beside `used_checkpoint_interval_s`. Damage to
`designs.parquet` is noticed by its checksums.

This page is generated from the types: `python -m docs.generate`.
"""
SIMULATE_INTRODUCTION = """\
# One plan

Use `capplan simulate` to judge a plan of your own, whether or not the search would choose it. It shows time, cost, energy,
carbon and memory; the breakdown of the step and of the run; the spread of replays; what another value of each choice would
change; one step of the pipeline as a picture; which inputs drive the result; and every limit and layout rule that the plan
breaks:

```text
capplan simulate JOB.yaml --plan tp=8,pp=4,dp=16,mbs=2
```

A plan that breaks a rule or limit is still an answer (exit code 0, `is_feasible` is false). An unknown key or a value of the
wrong type is an error (exit code 2). `--json` prints one [SimulatedDesign](#simulateddesign), which `planner.simulate_plan`
returns as a value.

## The plan

The keys of `--plan` are the fields of [Plan](answer.md#plan), as `key=value` pairs or in a file (`--plan plan.yaml`); of
an answer, such as `answer/recommendation.json`, its recommended plan is taken:

- Short forms are {short_forms}.
- `accelerator=NAME` stands for `offer`. Neither is needed if the job has only one offer.
- You can omit `num_gpus`, which is the product of tensor, pipeline, context and data parallelism. If you give `num_gpus`, you
  can omit `data_parallel` instead.
- Every other omitted field has the default of a plan: 1 for every degree and the micro-batch, `recompute=none`,
  `zero_stage=1`, `precision=bf16`, `checkpoint_scheme=async`, no spare nodes, no power cap, and the checkpoint interval that
  loses the least time.

Below *Configuration*, the answer to a job prints the command that simulates its recommended design, with everything that
differs from these defaults.

`--set` overrides values of the job ([how](job-file.md)), and `--calibration FILE.yaml` takes [constants of your
cluster](calibrate.md). Two options override decisions of the plan:

- `--scheme NAME` sets `checkpoint_scheme`.
- `--interval` sets `checkpoint_interval_s`: in seconds (`600`), in steps (`100steps`: the time that the run takes for them,
  including stragglers), or `auto` for the interval that loses the least time, even if the job gives one.

A layout outside the offer's range of accelerators is simulated all the same. A layout that breaks another layout rule cannot
run: its `design` is null, and `violations` says why, with the nearest valid values.

## One step of the pipeline

The picture has one row for each stage, with time from left to right. For a step with many micro-batches it shows the
beginning and the end, where stages wait for each other, and says how much is omitted between them. Each row also shows how
the stage spends the step: `busy` with forward and backward passes, exposed communication, and waiting for other stages.

The picture and `timeline` in the JSON come from the same compiled kernel as the step time. The parts of every stage sum to
the step time, and their mean over the stages is the [breakdown of the step](answer.md#design), bucket by bucket. Traffic of
the replicas counts as the time it adds to the step, whichever stage it holds up first. A wait for parameters that is absorbed
by a later wait for other stages is part of the bubble.

`--timeline FILE.json` writes every event and every wait of the step, with chunk, micro-batch and exposed communication, for
<https://ui.perfetto.dev> or chrome://tracing. It has one row for each stage and one for the stage's background traffic. An
older timeline is replaced; any other file is left alone (exit code 2).

## What is computed

*Compute in one step* splits `compute` into its operators: the attention core and the products around it, feed-forward blocks
or experts with router and permutation, scans of linear attention, the indexer of attention to chosen tokens, memory-bound
operators, output layer and loss, and waits for the host. What is recomputed is told apart. `operators` in the JSON has each of
them forward, backward and recomputed. They are means over the accelerators and sum to `compute_s`. The
[deep depth](#the-deep-depth) plays the same operators one by one.

## What drives the result

capplan moves every uncertain input over its range, one at a time, and simulates the plan again. Inputs and ranges are those
that a recommendation [draws](cost-energy-carbon.md#how-sure), from the 5th to the 95th percentile, so that both
say the same about the same plan:

- the price of the hardware, and every field of [`input_factors`](job-file.md#inputfactors);
- the step time by the error of simulated steps on published runs ([validation.md](validation.md)), in two parts: *step time*
  is what all layouts on the same accelerators share, *step time of the layout* is each one's own. The 80 % interval of the
  step time that answers tell has both parts in it;
- the network's bandwidth, by a fifth either way. It is not drawn, because the error of a step includes that of the network.

Each range comes with its reason. The view shows the inputs that move a result most, each as a bar between the
lowest and the highest result. `sensitivities` in the JSON has all inputs that move any of the five results. An input that
cannot matter to the plan is left out, such as the price of electricity for rented hardware, or interruptions of nodes that
nobody takes back; so is water, which is none of these results. Interactions of two inputs are not shown.
`--no-sensitivities` skips this analysis.

## The deep depth

`--depth deep` plays one step operator by operator and message by message on the network of the offer, and explains it: its
parts beside those of the fast depth and why they differ, who waits for whom, and which links cause the longest waits ([what
is assumed](deep/plans.md), [how to](how-to/explain-a-step.md)). `--json` prints one [DeepStep](#deepstep),
which `planner.deep.answer.simulate_deep` returns as a value.

- `--speed RANK=FACTOR` makes an accelerator slower or faster than the others. `--slow-link KIND:N=SHARE` leaves a link only a
  share of its bandwidth: `scale-up:3` and `card:3` of accelerator 3, `leaf:0` from a leaf to the spine. You can repeat both.
- `--unfolded` plays every message of every accelerator, for up to 1,024 accelerators and 16 million tasks. Without it,
  accelerators that do the same are played once.
- `--network FILE` replaces the network of the offer by that of [a file](network-file.md), with the algorithms of
  `--collectives`. `--slow-link` then takes the links of that network, as in `gpu:3-switch:0=0.5`.
- `--timeline FILE.json` writes every operator and every flow that was played.
- A layout that cannot run is an error, as is anything that this depth does not play; the message names it (exit code 2).
  Options about the run (`--scheme`, `--interval`, `--no-sensitivities`) cannot be combined with this depth.

This page is generated from the types: `python -m docs.generate`.
"""
GOODPUT_INTRODUCTION = """\
# Goodput: what a run makes good, and with what to save

This page is for choosing a checkpoint scheme and interval. `capplan goodput` computes the goodput of a run, either from a few
numbers or from a plan of a job, and the best interval for it.

## A run in numbers

```sh
capplan goodput --mtbf-s 10980 --interval-s 371 --stall-s 0.8 --commit-s 60 --restart-s 390
```

This command plays a run from these numbers alone, without a job, and prints the closed form and the best interval beside the
result (`--interval-s auto`, the default, uses that interval). `--json` prints one [Goodput](#goodput). The conventions are
those of [the model](model.md). Without `--work-s` or `--work-days` the run is long enough for a stable mean: as much work as
meets 1,000 failures, but between 100 and 30,000 intervals. Runs of more than a billion saves and failures, over all
replications, are refused (exit code 2).

## The run of a job

`capplan goodput --job JOB.yaml --plan tp=4,pp=12,dp=8,mbs=2` answers the same for one plan of a job. The plan is written as
for [capplan simulate](simulate.md#the-plan), with `--scheme`, `--interval` and `--set`. Failures follow from the cluster;
stall, commit, tax and loading from the checkpoint scheme; restarts from the fleet; and the work from the simulated step.

To show which scheme to use, the answer ends with all checkpoint schemes that the plan can use, each at its own best interval:
goodput by the closed form, stall, interval, restart and main memory.

- `--restart-s`, `--policy`, `--work-s` and `--work-days` replace the job's figures, for every scheme.
- `--stall-s`, `--commit-s`, `--tax` and `--slots` replace those of the plan's scheme, for example with your own measurements.
- Up-times in the simulated run follow the job's `reliability.weibull_shape`. The closed form includes its effect on the
  goodput of long runs. Best intervals are those of shape 1.
- `--mtbf-s` and `--job` exclude each other. `--set reliability.failures_per_1000_node_days=12` changes the failure rate of a
  job.

Goodput on this page is work over wall time, and the slow-down by a straggler counts as work. `goodput_fraction` of [a
design](answer.md#design) counts only steps at full speed and includes the first start in its wall time, so it is lower;
`design_goodput_fraction` repeats it. In programs, use `planner.goodput.job.play_job_goodput`.

This page is generated from the types: `python -m docs.generate`.
"""


def simulate_reference() -> str:
    """Returns the page: one section for every type of this answer that the page on `recommend` lacks."""
    shorts: dict[str, list[str]] = {}
    for short, name in SHORT_FORMS.items():
        shorts.setdefault(name, []).append(f"`{short}`")
    pairs = ", ".join(f"{' or '.join(names)} for `{name}`" for name, names in shorts.items())
    introduction = SIMULATE_INTRODUCTION.replace("{short_forms}", pairs)
    return "\n".join([introduction, *answer_sections(SimulatedDesign, DeepStep)])


def goodput_reference() -> str:
    """Returns the page: one section for every type of a goodput answer."""
    return "\n".join([GOODPUT_INTRODUCTION, *answer_sections(Goodput)])


def answer_sections(*answers: type[Record]) -> list[str]:
    """Returns one section for every type of the given answers that the page on `recommend` lacks."""
    known = models_in(Recommendation, [])
    found = list(known)
    for answer in answers:
        models_in(answer, found)
    return [_section(model, elsewhere=known) for model in found if model not in known]


def answer_reference() -> str:
    """Returns the page: one section with a table for every type in an answer."""
    return "\n".join([INTRODUCTION, *(_section(model) for model in models_in(Recommendation, []))])


def models_in(model: type[Record], found: list[type[Record]]) -> list[type[Record]]:
    """Returns a type and the types of its fields, each once, in reading order."""
    if model not in found:
        found.append(model)
        for field in model.model_fields.values():
            if inner := record_in(field.annotation):
                models_in(inner, found)
    return found


def _section(model: type[Record], elsewhere: Sequence[type[Record]] = ()) -> str:
    summary = (model.__doc__ or "").strip().split("\n\n")[0].replace("\n    ", " ")
    meaning = meanings(model)
    rows = [
        f"| `{name}` | {_words(field.annotation, elsewhere)} | {' '.join(meaning.get(name, '').split())} |"
        for name, field in model.model_fields.items()
        if not field.exclude
    ]
    return "\n".join(
        [f"## {model.__name__}\n", f"{summary}\n", "| field | type | meaning |\n|---|---|---|", *rows, ""]
    )


def _words(annotation: object, elsewhere: Sequence[type[Record]]) -> str:
    """Returns a type in JSON terms; types on the page on `recommend` are linked there."""
    arguments = get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Record):
        page = ANSWER_PAGE.name if annotation in elsewhere else ""
        return f"[{annotation.__name__}]({page}#{annotation.__name__.lower()})"
    if isinstance(annotation, type) and issubclass(annotation, Choice):
        return " or ".join(f"`{member.value}`" for member in annotation)
    match get_origin(annotation):
        case _ if annotation in _WORDS:
            return _WORDS[annotation]
        case origin if origin is Literal:
            return " or ".join(f"`{value}`" for value in arguments)
        case origin if origin in (Union, UnionType):
            return " or ".join(_words(inner, elsewhere) for inner in arguments)
        case origin if origin is tuple:
            return f"list of {_words(arguments[0], elsewhere)}"
        case origin if origin is dict:
            return f"object of {_words(arguments[1], elsewhere)}"
        case _:
            return _words(arguments[0], elsewhere)  # a number with bounds


_WORDS: dict[object, str] = {
    int: "whole number",
    float: "number",
    str: "text",
    bool: "true or false",
    NoneType: "null",
}
