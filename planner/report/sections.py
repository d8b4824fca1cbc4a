"""Which texts and tables does a report have? Verdict, comparisons, excluded designs, all inputs, and reproduction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from planner.notes.doubts import doubts
from planner.notes.reasons import searched_text
from planner.recommended.comparisons import InputUncertainty
from planner.recommended.design_words import configuration, layout, merits, powers, site_words
from planner.recommended.recommendation import Design, Infeasibility, Recommendation, Spread
from planner.report.data import Quantity, Report
from planner.report.explorer import explorer
from planner.report.html import Html, joined, tag, unbroken
from planner.report.tables import number, table
from planner.report.units import text
from planner.text import human
from planner.text.limit_words import no_design
from planner.views.choices_view import SAME_ACCELERATORS, choice_rows, explained
from planner.views.comparisons_view import by_accelerator, intervals, lead_of

_BEST = "answer.recommendation"
_NOTES = "Before you rely on it"


def verdict(report: Report) -> Html:
    """Returns the recommendation with its figures and reasons, or why there is none."""
    answer, best = report.answer, report.answer.recommendation
    searched = f"{searched_text(answer)}: {answer.algorithm}."
    return joined(
        tag("p", _verdict_text(answer), class_=f"verdict {answer.status}"),
        *(tag("p", doubt, class_="warnings") for doubt in doubts(best, answer.uncertainty, _NOTES)),
        _key_figures(answer, best) if best else None,
        _sentences("Why this design", answer.why),
        _infeasibility(answer.infeasibility) if answer.infeasibility else None,
        _sentences(_NOTES, answer.warnings, class_="warnings"),
        _configuration(best) if best else None,
        tag("p", searched, class_="note"),
    )


def _verdict_text(answer: Recommendation) -> str:
    best = answer.recommendation
    if best is None:
        return (
            f"{no_design(has_limits=answer.has_limits)}."
            if answer.status == "infeasible"
            else "Stopped before a design was found."
        )
    begin = "Take" if answer.status == "recommended" else "The search was stopped; the best design so far is"
    return f"{begin} {human.count(best.plan.num_gpus)} x {best.accelerator}{site_words(answer, best)}, {layout(best.plan)}."


def _key_figures(answer: Recommendation, best: Design) -> Html:
    sure = answer.uncertainty
    cards = [
        _card(
            "Time to train",
            "time_to_train_days",
            "days",
            best,
            sure.time_to_train_days if sure else None,
            _drawn_range(answer, "time_to_train", human.duration),
        ),
        _card(
            "Cost",
            "cost_usd",
            "usd",
            best,
            sure.cost_usd if sure else None,
            _drawn_range(answer, "cost", human.dollars) or _price_range(best),
        ),
        _card("Energy", "energy_kwh", "kwh", best, None),
        _card("Carbon", "carbon_kgco2e", "kgco2e", best, None),
        _card("Goodput", "goodput_fraction", "fraction", best, sure.goodput_fraction if sure else None),
        _card("Peak power", "peak_power_w", "w", best, None),
    ]
    return tag("dl", *cards, class_="cards")


def _card(
    name: str, field: str, quantity: Quantity, best: Design, spread: Spread | None, more: Html | None = None
) -> Html:
    value: float = getattr(best, field)
    about = tag("dd", "mean", class_="note") if spread else None
    if spread and spread.p5 is not None and spread.p95 is not None:
        place = f"answer.uncertainty.{field}"
        low, high = (
            number(end, text(end, quantity), f"{place}.{name}")
            for name, end in (("p5", spread.p5), ("p95", spread.p95))
        )
        about = tag("dd", "mean; ", low, " to ", high, " in 9 of 10 replays", class_="note")
    return tag(
        "div",
        tag("dt", name),
        tag(
            "dd", number(value, _with_small_unit(text(value, quantity)), f"{_BEST}.{field}"), class_="figure"
        ),
        about,
        more,
    )


def _drawn_range(answer: Recommendation, figure: str, words: Callable[[float], str]) -> Html | None:
    """What all uncertain inputs together do to a figure; nothing where they were not drawn."""
    if answer.input_uncertainty is None:
        return None
    drawn, place = answer.input_uncertainty.figures[figure], f"answer.input_uncertainty.figures.{figure}"
    low, high = (
        number(value, words(value), f"{place}.{name}")
        for name, value in (("p5", drawn.p5), ("p95", drawn.p95))
    )
    return tag("dd", low, " to ", high, " in 9 of 10 draws of the inputs", class_="note")


def _price_range(best: Design) -> Html | None:
    """What the price range of the hardware alone does to the cost; nothing for a single price."""
    low, high = (
        number(value, text(value, "usd"), f"{_BEST}.{name}")
        for name, value in (("cost_low_usd", best.cost_low_usd), ("cost_high_usd", best.cost_high_usd))
    )
    if best.cost_low_usd == best.cost_high_usd:
        return None
    return tag("dd", low, " to ", high, " over the price range of the hardware", class_="note")


def _with_small_unit(shown: str) -> Html:
    figure, _, unit = shown.partition(" ")
    return joined(figure, " ", tag("span", unit, class_="unit")) if unit else joined(figure)


def _sentences(title: str, sentences: Sequence[str], class_: str | None = None) -> Html | None:
    if not sentences:
        return None
    return joined(
        tag("h3", title), tag("ul", *(tag("li", unbroken(each)) for each in sentences), class_=class_)
    )


def _configuration(best: Design) -> Html:
    return joined(
        tag("h3", "How to run it"),
        _facts(configuration(best)),
        tag("h3", "Further figures"),
        _facts((name, f"{figure}, {about}") for name, figure, about in (*powers(best), *merits(best))),
    )


def _facts(rows: Iterable[tuple[str, str]]) -> Html:
    """Names and words, in two columns."""
    entries = [tag("div", tag("dt", name), tag("dd", words)) for name, words in rows]
    return tag("dl", *entries, class_="facts")


def _infeasibility(found: Infeasibility) -> Html:
    changes = [human.settings(relaxation.limits) for relaxation in found.relaxations]
    return joined(
        _sentences("Why no design is feasible", [*found.reasons, found.proof]),
        _sentences("The smallest changes that help", changes),
    )


def alternatives(report: Report) -> Html:
    """Returns the front, and what other choices would cost on the same accelerators; nothing if there is no front."""
    answer, best = report.answer, report.answer.recommendation
    if not answer.front or best is None:
        return Html("")
    rows = list(choice_rows(best, answer.other_choices))
    heading, about = SAME_ACCELERATORS
    columns = ["choice", "recommended", "other values"]
    cells = [(name, tag("span", own, class_="whole"), others) for name, own, others in rows]
    choices = [tag("h3", heading), table(explained(about, rows), columns, cells)] if rows else []
    return joined(explorer(report), *choices)


def comparisons(answer: Recommendation) -> Html:
    """Returns the results over draws of uncertain inputs, and the what-if cases of the job; nothing if there are none."""
    return joined(_draws(answer), _what_if(answer))


def _draws(answer: Recommendation) -> Html | None:
    unsure = answer.input_uncertainty
    if unsure is None:
        return None
    share = number(
        unsure.on_front_fraction,
        human.percent(unsure.on_front_fraction),
        "answer.input_uncertainty.on_front_fraction",
    )
    holds = [
        tag(
            "li",
            f"{lead_of(ordering)} in ",
            number(
                ordering.holds_fraction,
                human.percent(ordering.holds_fraction),
                f"answer.input_uncertainty.orderings.{row}.holds_fraction",
            ),
            " of the draws.",
        )
        for row, ordering in enumerate(unsure.orderings)
    ]
    shares = by_accelerator(answer)
    drawn = (
        "Step times, failures, prices, grid intensities, power and embodied carbon were drawn "
        f"{human.count(unsure.num_draws)} times from their ranges. No design on the front beats the recommended one in "
        "every objective in "
    )
    return joined(
        tag("h3", "Uncertainty of the inputs"),
        tag("p", drawn, share, " of the draws."),
        tag("ul", *_kept(unsure), *([tag("li", shares)] if shares else ()), *holds),
        table(
            "90 % range over the draws",
            ["figure", "range", "main drivers"],
            [list(row) for row in intervals(unsure)],
        ),
    )


def _kept(unsure: InputUncertainty) -> Iterator[Html]:
    """Yields the share of the draws with the same recommendation, and of those that meet deadline and budget."""
    for field, words in (
        ("recommended_fraction", " recommend the same design (all inputs drawn together)."),
        ("within_deadline_fraction", " meet the deadline."),
        ("within_budget_fraction", " meet the budget."),
    ):
        value: float | None = getattr(unsure, field)
        if value is not None:
            yield tag(
                "li",
                number(value, human.percent(value), f"answer.input_uncertainty.{field}"),
                " of the draws",
                words,
            )


def _what_if(answer: Recommendation) -> Html | None:
    if not answer.what_if:
        return None
    columns: tuple[tuple[str, Quantity], ...] = (
        ("time_to_train_days", "days"),
        ("cost_usd", "usd"),
        ("energy_kwh", "kwh"),
        ("carbon_kgco2e", "kgco2e"),
    )
    rows = [
        [
            case.case,
            *(
                _known(getattr(case, field), quantity, f"answer.what_if.{row}.{field}")
                for field, quantity in columns
            ),
            case.note,
        ]
        for row, case in enumerate(answer.what_if)
    ]
    heading = ["case", "time to train", "cost", "energy", "carbon", "note"]
    return table("The recommended design in the what-if cases", heading, rows)


def _known(value: float | None, quantity: Quantity, path: str) -> str:
    return number(value, text(value, quantity), path) if value is not None else "not known"


def rejected(answer: Recommendation) -> Html:
    """Returns how many designs each constraint excluded."""
    if not answer.rejected:
        return Html("")
    rows = [
        [
            each.constraint,
            each.rule,
            *(
                number(
                    getattr(each, field), human.count(getattr(each, field)), f"answer.rejected.{row}.{field}"
                )
                for field in ("num_before_simulation", "num_after_simulation")
            ),
        ]
        for row, each in enumerate(answer.rejected)
    ]
    heading = ["constraint", "rule", "excluded by a bound", "excluded by simulation"]
    return table("Designs that each constraint excluded; one design may violate several", heading, rows)


def inputs(report: Report) -> Html:
    """Returns every input with its source and confidence, by group."""
    legend = tag(
        "p",
        "Verified: read in the cited source. Partial: second-hand, or sources disagree. Estimate: derived by a stated "
        "rule. Job: set in the job file. Default: capplan's default. Range: low and high end, varied above. "
        "docs/catalog-sources.md explains the keys of the sources.",
        class_="note",
    )
    return joined(legend, *_input_groups(report))


def _input_groups(report: Report) -> Iterator[Html]:
    for row, group in enumerate(report.inputs):
        rows = [[each.name, each.value, _confidence(each.confidence), each.source] for each in group.rows]
        content = table(group.title, ["input", "value", "confidence", "source"], rows)
        count = tag("span", f" {len(rows)}", class_="note")
        yield tag("details", tag("summary", group.title, count), content, open=row == 0)


def _confidence(word: str) -> Html:
    return tag("span", word, class_=f"confidence {word}")


def reproduction(report: Report) -> Html:
    """Returns the command, its inputs, and the versions behind this answer."""
    again = report.reproduction
    facts = {
        "capplan": again.capplan_version,
        "catalogue": again.catalog_hash,
        "seed": str(again.seed),
        "answered": report.answer.created_at,
        **{name.removesuffix("_version"): version for name, version in again.libraries.items()},
    }
    entries = [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts.items()]
    save = tag("button", "Save job.json", id="save-job", type="button")
    return joined(
        tag("p", "Save the job of this page, then run:"),
        tag("pre", tag("code", again.command), tabindex="0"),
        tag("p", save, class_="scripted"),
        tag("dl", *entries, class_="facts"),
    )
