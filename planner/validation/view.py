"""How is a validation shown to a person? In tables: errors by group, choices between designs, memory, what was left out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from planner.input.problems import shown
from planner.text.human import count, counted, digits, duration, percent, signed_percent, whole_percent
from planner.validation.comparison import Choice, Entry, MemoryVerdicts, Modelled, Score, timed
from planner.validation.report import (
    MemoryScore,
    Report,
    mean_rank_correlation,
    mean_regret_fraction,
)
from planner.validation.rule_groups import rule_groups, shown_lines
from planner.validation.whole_runs import predictions

TITLES = {
    "source": "Step time by source",
    "accelerator": "Step time by accelerator",
    "model_family": "Step time by model family",
    "precision": "Step time by number format",
    "parallelism": "Step time by parallelism",
    "tier": "Step time by data tier",
}
MOST_REASONS = 12
MOST_FIGURES = 4
"""Maximum number of sets of figures shown for a rule; --json lists the reason of every row."""
MOST_CHOICES = 12
MOST_NAMES = 3
"""Maximum number of rows named for a reason; --json lists all."""
MOST_ROWS = 6
"""Maximum number of rows named in a list; --json lists all."""
MOST_STEPS = 40
"""Maximum number of measured steps of which each is shown; --json lists all."""


def show(report: Report, entries: Sequence[Entry], console: Console, *, source: str) -> None:
    """Prints the tables of a validation, and every row of a small file."""
    console.print(f"Simulated and measured steps: {source}", style="bold")
    console.print(
        f"{counted(report.num_rows, 'row')}, {report.num_modelled:,} of them modelled, "
        f"{report.num_scored:,} with a measured step time"
    )
    if not report.num_scored:
        console.print("Nothing to score: no modelled row has step_time_s or tokens_per_s_per_gpu.")
    for score in report.step_time["all"]:
        console.print(_headline(score))
    _show_steps(timed(entries), console)
    for table, title in TITLES.items():
        _show_scores(title, report.step_time[table], console)
    _show_worst(report.step_time["source"], console)
    _show_choices(report.choices, console)
    _show_memory(report.memory, report.memory_verdicts, console)
    _show_reasons("Rows not modelled", report.not_modelled, console)
    _show_reasons("Assumptions about cells", report.remarks, console)
    if report.unread_columns:
        console.print(f"\nUnknown columns, ignored: {_columns_text(report.unread_columns)}")


def show_whole_runs(console: Console) -> None:
    """Prints the cold predictions of published whole runs, with those of the shipped constants and of LLMCarbon."""
    head = ("", "published", "capplan", "error", "as\nshipped", "LLMCarbon")
    hours = _table("Whole runs, predicted cold: GPU-hours", *head, "error")
    energy = _table("Whole runs, predicted cold: energy, MWh", *head)
    for run in predictions():
        known, error = run.published, run.cold.energy_error_fraction
        hours.add_row(
            known.model,
            count(known.gpu_hours),
            count(run.cold.gpu_hours),
            signed_percent(run.cold.hours_error_fraction),
            signed_percent(run.shipped.hours_error_fraction),
            count(run.llmcarbon.gpu_hours),
            signed_percent(run.llmcarbon.gpu_hours / known.gpu_hours - 1.0),
        )
        shipped = run.shipped.energy_error_fraction
        energy.add_row(
            known.model,
            "" if known.energy_mwh is None else digits(known.energy_mwh),
            digits(run.cold.energy_mwh),
            "not metered" if error is None else signed_percent(error),
            "" if shipped is None else signed_percent(shipped),
            digits(run.llmcarbon.energy_mwh),
        )
    console.print(hours)
    console.print(energy)


def _columns_text(unread: Mapping[str, str | None]) -> str:
    """Names columns, possible misspellings first."""
    names = sorted(unread, key=lambda name: not unread[name])
    return ", ".join(
        f"{shown(name)} (did you mean {unread[name]}?)" if unread[name] else shown(name) for name in names
    )


def _headline(score: Score) -> str:
    return (
        f"{counted(score.num_configurations, 'configuration')}: "
        f"mean absolute error {percent(score.mean_absolute_error_fraction)}, "
        f"median {signed_percent(score.median_error_fraction)}, bias {signed_percent(score.bias_fraction)}; "
        f"{whole_percent(score.inside_interval_fraction)} of the rows inside their 80 % interval"
    )


def _show_steps(found: Sequence[Modelled], console: Console) -> None:
    """Every measured step beside the simulated one, if there are few."""
    if not 0 < len(found) <= MOST_STEPS:
        return
    table = _table("Step time by row", "", "measured", "simulated", "error", "80 % interval", "inside")
    for entry in found:
        comparison, interval = entry.comparison, entry.interval
        table.add_row(
            Text(comparison.row["row_id"]),
            duration(comparison.measured_s),
            duration(comparison.expected_s),
            signed_percent(comparison.error_fraction),
            f"{duration(interval.low_s)} to {duration(interval.high_s)}",
            "yes" if entry.is_inside else "no",
        )
    console.print(table)


def _show_scores(title: str, found: Sequence[Score], console: Console) -> None:
    if len(found) < 2 and title != TITLES["source"]:
        return
    table = _table(
        title, "", "rows", "configu-\nrations", "mean\nabs.", "median", "bias", "in 80 %\ninterval", "worst"
    )
    for score in found:
        table.add_row(
            score.group,
            str(score.num_rows),
            str(score.num_configurations),
            percent(score.mean_absolute_error_fraction),
            signed_percent(score.median_error_fraction),
            signed_percent(score.bias_fraction),
            whole_percent(score.inside_interval_fraction),
            f"{signed_percent(score.worst_error_fraction, num_decimals=0)} {score.worst_row}",
        )
    console.print(table)


def _show_worst(found: Sequence[Score], console: Console) -> None:
    """Possible causes of the worst row of every source, from its notes and assumptions."""
    known = [score for score in found if score.worst_reason]
    if not known:
        return
    console.print("\nWorst row of each source and its possible cause", style="bold")
    for score in known:
        console.print(
            f"{score.worst_row} ({signed_percent(score.worst_error_fraction, num_decimals=0)}): {score.worst_reason}",
            markup=False,
        )


def _show_choices(found: Sequence[Choice], console: Console) -> None:
    if not found:
        return
    rank = mean_rank_correlation(found)
    ranked = "" if math.isnan(rank) else f"; mean rank correlation {rank:.2f}"
    table = _table(
        f"Choice among measured designs of the same job: {counted(len(found), 'job')}, mean regret of the simulated choice "
        f"{percent(mean_regret_fraction(found))}{ranked}",
        "largest regrets",
        "designs",
        "rank corr.",
        "regret",
        "picked",
        "fastest",
    )
    for choice in sorted(found, key=lambda choice: -choice.regret_fraction)[:MOST_CHOICES]:
        correlation = "" if choice.rank_correlation is None else f"{choice.rank_correlation:.2f}"
        table.add_row(
            f"{choice.group} ({choice.source})",
            str(choice.num_designs),
            correlation,
            percent(choice.regret_fraction),
            choice.picked_row,
            choice.best_row,
        )
    console.print(table)


def _show_memory(found: Sequence[MemoryScore], verdicts: MemoryVerdicts, console: Console) -> None:
    if found:
        table = _table("Peak memory by source", "", "rows", "mean abs.", "bias", "worst")
        for score in found:
            table.add_row(
                score.group,
                str(score.num_rows),
                percent(score.mean_absolute_error_fraction),
                signed_percent(score.bias_fraction),
                f"{signed_percent(score.worst_error_fraction, num_decimals=0)} {score.worst_row}",
            )
        console.print(table)
    console.print(f"\n{_verdict_text(verdicts)}")


def _verdict_text(verdicts: MemoryVerdicts) -> str:
    wrong, unknown = verdicts.num_ran_but_simulated_too_large, verdicts.num_ran_and_recompute_not_given
    ran = verdicts.num_ran_and_fit + wrong + unknown
    failed = verdicts.num_out_of_memory_and_too_large + verdicts.num_out_of_memory_but_simulated_to_fit
    if ran + failed == 0:
        return "No run has the data needed to check simulated memory."
    rows = f" ({', '.join(verdicts.too_large_rows[:MOST_ROWS])}{', ...' if wrong > MOST_ROWS else ''})"
    return (
        f"Of {counted(ran, 'run')} that fit in memory: simulated to fit: {count(verdicts.num_ran_and_fit)}; simulated as too "
        f"large: {count(wrong)}{rows if wrong else ''}, by more than 5 %: {count(verdicts.num_ran_but_far_too_large)}; "
        f"recomputation not stated, and too large without it: {count(unknown)}; refused as plans, with headroom for "
        f"fragmentation: {count(verdicts.num_ran_but_refused_as_plan)}. Of {counted(failed, 'run')} out of memory, simulated "
        f"as too large: {count(verdicts.num_out_of_memory_and_too_large)}."
    )


def _show_reasons(title: str, reasons: Mapping[str, Sequence[str]], console: Console) -> None:
    if not reasons:
        return
    table = _table(title, "reason", "rows")
    table.add_column("row ids")
    groups = rule_groups(reasons)
    for reason, rows in shown_lines(groups[:MOST_REASONS], MOST_FIGURES):
        more = ", ..." if len(rows) > MOST_NAMES else ""
        table.add_row(Text(reason), str(len(rows)), Text(f"{', '.join(rows[:MOST_NAMES])}{more}"))
    if rest := groups[MOST_REASONS:]:
        num_rows = sum(len(group.rows) for group in rest)
        table.add_row(f"{len(rest)} other reasons (--json lists every row)", str(num_rows), "")
    console.print(table)


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=f"\n{title}", title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table
