"""What stands in the JSON of an answer? The reference pages, written from the types of the answers."""

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

`--output DIR` also writes `front.csv` (`.parquet` with `--format parquet`), one line for each design of the front, and
`designs.parquet`, one for each design that was evaluated; `design_id` is the same number in all of them. `report.html`
beside them is [a page that explains the answer](report.md), and `job.json` the job with all names resolved. A folder that
holds a file of one of these names is refused: nothing is overwritten. So is one
into which another run is writing.

This page is generated from the types: `python -m docs.generate`.
"""
SIMULATE_INTRODUCTION = """\
# One plan

`capplan simulate JOB.yaml --plan tp=8,pp=4,dp=16,mbs=2` simulates one plan of a job in full, whether the search would
have chosen it or not: time, cost, energy, carbon, memory, the step and the run by what they are spent on, the spread
of replays, one step of the pipeline as a picture, which inputs drive the result, and every limit and layout rule that
the plan breaks. A plan that breaks some is an answer like any other (exit code 0, `is_feasible` is false); an unknown
key or a value of the wrong type is not (exit code 2). `--json` prints one [SimulatedDesign](#simulateddesign), which
`planner.simulate_plan` returns as a value.

## The plan

The keys of `--plan` are the fields of [Plan](answer.md#plan), in `key=value` pairs or in a file (`--plan plan.yaml`;
the `plan` of any answer will do):

- short forms: {short_forms};
- `accelerator=NAME` stands for `offer`, and neither is needed where the job has one offer;
- `num_gpus` may be left out: it is the product of tensor, pipeline, context and data parallelism; or `data_parallel`,
  when `num_gpus` is given;
- what else is left out has the default of a plan: 1 for every degree and the micro-batch, `recompute=none`,
  `zero_stage=1`, `precision=bf16`, `checkpoint_scheme=async`, no spare nodes, no power cap, and the interval between
  saves that loses least.

Below *Configuration* the answer to a job prints the command that simulates its recommended design, with all that differs from
these defaults.

`--set` replaces values of the job ([how](job-file.md)), and `--calibration FILE.yaml` takes [constants of your
cluster](calibrate.md). Two decisions can be typed beside the plan, and then count instead of those in it: `--scheme NAME` is
its `checkpoint_scheme`, and `--interval` its `checkpoint_interval_s`, in seconds (`600`), in steps (`100steps`: as long as
the run takes for them, stragglers included), or `auto` for the interval that loses least, also where the job has one.

A layout outside the offer's range of accelerators is simulated all the same; one that breaks another rule of layouts
cannot run, so its `design` is null and `violations` says why, with the nearest values that would do.

## One step of the pipeline

The picture has one row for each stage and time from left to right. Of a step with many micro-batches it shows the
beginning and the end, where stages wait for each other, and says how much is left out between them. Beside each row
stands what the stage spends the step on: `busy` with forwards and backwards, communication that nothing hides, and
waiting for other stages. The picture and `timeline` in the JSON come from the same compiled kernel as the step time. The
parts of every stage sum to it, and their mean over the stages is the [breakdown of the step](answer.md#design), bucket by
bucket. Traffic of the replicas counts by how much longer the step is for it, whichever stage it holds up first: a wait
for parameters that a later wait for other stages makes up for is part of the bubble.

`--timeline FILE.json` writes every event and every wait of the step, with chunk, micro-batch and the communication that
nothing hides in it, for <https://ui.perfetto.dev> or chrome://tracing: one row for each stage, and one for its traffic
in the background.
An older timeline is replaced; any other file is left alone (exit code 2).

## What drives the result

Every input that is not known exactly moves over its range, one at a time, and the plan is simulated again: the price
between its low and its high end, the time of a step by the error of simulated steps on published runs
([validation.md](validation.md)), failures, restarts, stragglers, bandwidths, power, PUE, grid, electricity, and the terms
of ownership. Each range comes with its reason. The view shows what moves a result most, as a bar from where the result
falls to, to where it rises to; `sensitivities` in the JSON has all inputs, also those that do not matter (such as the
price of electricity, where the hardware is rented). What two inputs do together is not seen. `--no-sensitivities`
leaves this out.

## The deep depth

`--depth deep` plays one step operator by operator and message by message on the network of the offer, and explains it:
its parts beside those of the fast depth and why they differ, who waits for whom, which links are waited for longest
([what is assumed](deep.md#a-plan-at-the-deep-depth), [how to](how-to/explain-a-step.md)). `--json` prints one
[DeepStep](#deepstep), which `planner.deep.answer.simulate_deep` returns as a value.

- `--speed RANK=FACTOR` makes an accelerator slower or faster than the others; `--slow-link KIND:N=SHARE` leaves a link a
  share of its bandwidth: `scale-up:3` and `card:3` of accelerator 3, `leaf:0` from a leaf to the spine. Both may be repeated.
- `--unfolded` plays every message of every accelerator, up to 1,024 of them and 16 million tasks; else accelerators that do
  the same are played once.
- `--network FILE` plays the messages on the network of [a file](network-file.md) in the place of the offer's, by the algorithms
  of `--collectives`; `--slow-link` then takes its links, as in `gpu:3-switch:0=0.5`.
- `--timeline FILE.json` writes every operator and every flow that was played.
- A layout that cannot run, and what this depth does not play, is an error that names it (exit code 2). Options about the run
  (`--scheme`, `--interval`, `--no-sensitivities`) do not go with it.

This page is generated from the types: `python -m docs.generate`.
"""
GOODPUT_INTRODUCTION = """\
# Goodput: what a run makes good, and with what to save

## A run in numbers

`capplan goodput --mtbf-s 10980 --interval-s 371 --stall-s 0.8 --commit-s 60 --restart-s 390` plays a run of which only
the numbers are given, without a job, and prints its closed form and its best interval beside it (`--interval-s auto`,
the default, takes that one). `--json` prints one [Goodput](#goodput). [The model](model.md) has the conventions. Without
`--work-s` or `--work-days` the run is long enough for a stable mean: as much work as meets 1,000 failures, but 100 to
30,000 intervals. Runs of more than a billion saves and failures, over all replications, are refused (exit code 2).

## The run of a job

`capplan goodput --job JOB.yaml --plan tp=4,pp=12,dp=8,mbs=2` asks the same of one plan of a job (the plan as for
[capplan simulate](simulate.md#the-plan), with `--scheme`, `--interval` and `--set`): failures follow from the cluster,
stall, commit, tax and loading from the checkpoint scheme, restarts from the fleet, and the work from the simulated step.
Below the answer stand all checkpoint schemes that the plan can use, each at the interval that suits it best: goodput by the
closed form, stall, interval, restart and main memory. That is the answer to "with what should I save?".

- `--restart-s`, `--policy`, `--work-s` and `--work-days` count instead of the job's figures, for every scheme;
- `--stall-s`, `--commit-s`, `--tax` and `--slots` instead of those of the plan's scheme, say because you measured them;
- up-times have the job's `reliability.weibull_shape` in what is played, and in the closed form as it changes the goodput of
  long runs; best intervals are those of shape 1;
- `--mtbf-s` and `--job` exclude each other; `--set reliability.failures_per_1000_node_days=12` changes the failures.

Goodput here is work over wall time, and a straggler's slow-down is work. `goodput_fraction` of
[a design](answer.md#design) counts only steps at full speed and has the first start in its wall time, so that it is
lower; `design_goodput_fraction` repeats it. `planner.goodput.job.play_job_goodput` is the same for programs.

This page is generated from the types: `python -m docs.generate`.
"""


def simulate_reference() -> str:
    """Returns the page: one section for every type of this answer that the page on `recommend` does not hold."""
    shorts: dict[str, list[str]] = {}
    for short, name in SHORT_FORMS.items():
        shorts.setdefault(name, []).append(f"`{short}`")
    pairs = ", ".join(f"{' or '.join(names)} for `{name}`" for name, names in shorts.items())
    introduction = SIMULATE_INTRODUCTION.replace("{short_forms}", pairs)
    return "\n".join([introduction, *answer_sections(SimulatedDesign, DeepStep)])


def goodput_reference() -> str:
    """Returns the page: one section for every type of a goodput."""
    return _page(GOODPUT_INTRODUCTION, Goodput)


def _page(introduction: str, answer: type[Record]) -> str:
    return "\n".join([introduction, *answer_sections(answer)])


def answer_sections(*answers: type[Record]) -> list[str]:
    """Returns one section for every type of some answers that the page on `recommend` does not hold."""
    known = models_in(Recommendation, [])
    found = list(known)
    for answer in answers:
        models_in(answer, found)
    return [_section(model, elsewhere=known) for model in found if model not in known]


def answer_reference() -> str:
    """Returns the page: one section with a table for every type that an answer holds."""
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


def _words(annotation: object, elsewhere: Sequence[type[Record]] = ()) -> str:
    """Returns a type in the words of JSON; types of the page on `recommend` are linked there."""
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
