"""What does the shipped study of cluster size and checkpointing show? The tables and figures of its page, from one sweep.

python -m docs.cluster_size     writes the table of all designs, the figures, and the marked parts of the page
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from docs.markdown import replaced, table_of_numbers
from planner.sweep.grid import AUTO, Sweep, load_sweep, run_sweep
from planner.sweep.table import Row, is_auto, sweep_rows, write_rows
from planner.sweep.view import best_by_scheme, number
from simulator import catalog
from simulator.run.columns import BackPressure
from simulator.run.events import expected_goodput, optimal_interval_s
from simulator.table import Floats
from simulator.units import DAY, GIGA, JOULES_PER_KWH, JOULES_PER_MWH, MINUTE

ROOT = Path(__file__).parents[1]
SWEEP = ROOT / "examples" / "studies" / "cluster-size-and-checkpointing.yaml"
PAGE = ROOT / "docs" / "studies" / "cluster-size-and-checkpointing.md"
MODEL = "workload.model"
ASYNC, ASSISTED, PEER, SYNC = "async", "gradient_assisted", "in_memory_peer", "sync_sharded"
MARKERS = {ASYNC: "o", ASSISTED: "x", PEER: "s", SYNC: "^"}
COLORS = {ASYNC: "#1f77b4", ASSISTED: "#d62728", PEER: "#2ca02c", SYNC: "#7f7f7f"}
MOST_BYTES = 80e9
"""Memory of one accelerator."""
DIMINISHED_FRACTION = 0.9
"""Gain from a doubling below which returns are called diminishing; 1 would be proportional."""
WORTH_IT_FRACTION = 1e-3
"""Share of a run's cost below which a gain counts as none; far below the difference between two runs."""
MWH_PER_KWH = JOULES_PER_KWH / JOULES_PER_MWH


def filled_page(rows: Sequence[Row]) -> str:
    """Returns the page with its marked parts regenerated."""
    text = PAGE.read_text(encoding="utf-8")
    for name, body in {
        "short": _short(rows),
        "sizes": _sizes(rows),
        "doubling": _doubling(rows),
        "schemes": _schemes(rows),
        "intervals": _intervals(rows),
        "worth": _worth(rows),
        "stops": _stops_paying(rows),
        "thresholds": _thresholds(),
    }.items():
        text = replaced(text, name, body)
    return text


def all_rows() -> list[Row]:
    """Returns every design of the study."""
    sweep: Sweep = load_sweep(SWEEP)
    return sweep_rows(sweep, run_sweep(sweep, SWEEP.parent))


def _models(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(str(row[MODEL]) for row in rows))


def _sizes_of(rows: Iterable[Row]) -> list[int]:
    return sorted({int(number(row, "num_gpus")) for row in rows})


def _at(rows: Sequence[Row], model: str, size: int) -> dict[str, Row]:
    """The best design of every scheme for a model and a size, at the interval that loses least."""
    return best_by_scheme([r for r in rows if r[MODEL] == model and r["num_gpus"] == size and is_auto(r)])


def _clusters(rows: Sequence[Row]) -> Iterator[tuple[str, int, dict[str, Row]]]:
    """Every model on every size, with the best design of every scheme."""
    return ((model, size, _at(rows, model, size)) for model in _models(rows) for size in _sizes_of(rows))


def _saved(best: Mapping[str, Row], scheme: str, figure: str) -> float:
    """How much less of a figure a scheme takes than asynchronous saves."""
    return number(best[ASYNC], figure) - number(best[scheme], figure)


def _layout(row: Row) -> str:
    names = ("tensor_parallel", "pipeline_parallel", "virtual_pipeline", "data_parallel")
    t, p, v, d = (int(number(row, name)) for name in names)
    chunks = f" (VPP {v})" if v > 1 else ""
    extras = f"; {row['recompute']} recompute" if row["recompute"] != "none" else ""
    return f"TP {t} PP {p}{chunks} DP {d}; ZeRO-{int(number(row, 'zero_stage'))}{extras}"


def _short(rows: Sequence[Row]) -> str:
    """The results of the study, in sentences."""
    sentences = [
        sentence
        for model in _models(rows)
        for sentence in (
            _diminishing(rows, model),
            _schemes_in_short(rows, model),
            _worth_in_short(rows, model),
        )
    ]
    return "\n".join(f"- {sentence}" for sentence in sentences)


def _gains(rows: Sequence[Row], model: str) -> list[tuple[int, float]]:
    """Every size, with the gain in tokens per second of the whole run from doubling up to it."""
    rates = [
        (size, number(_at(rows, model, size)[ASYNC], "effective_tokens_per_s")) for size in _sizes_of(rows)
    ]
    return [(size, after / before - 1.0) for (_, before), (size, after) in itertools.pairwise(rates)]


def _diminishing(rows: Sequence[Row], model: str) -> str:
    gains = _gains(rows, model)
    weak = [(size, gain) for size, gain in gains if gain < DIMINISHED_FRACTION]
    last = f"the last doubling, to {gains[-1][0]:,}, adds {gains[-1][1]:.0%}"
    if not weak:
        return f"**{model}**: every doubling adds at least {DIMINISHED_FRACTION:.0%} to the tokens per second; {last}."
    first = f"the first that adds less than {DIMINISHED_FRACTION:.0%} is the one to {weak[0][0]:,} ({weak[0][1]:.0%})"
    return f"**{model}**: of the doublings {first}; {last}."


def _schemes_in_short(rows: Sequence[Row], model: str) -> str:
    size = _sizes_of(rows)[-1]
    best = _at(rows, model, size)
    words = []
    for scheme, name in ((PEER, "memory of peers"), (SYNC, "saves that training waits for")):
        points = 100.0 * (number(best[scheme], "goodput_fraction") - number(best[ASYNC], "goodput_fraction"))
        mwh = _saved(best, scheme, "energy_kwh") * MWH_PER_KWH
        usd = _saved(best, scheme, "cost_usd")
        words.append(f"{name}: {points:+.2f} points of goodput ({mwh:+,.0f} MWh and {usd:+,.0f} $ saved)")
    return f"**{model}** on {size:,} GPUs, against asynchronous saves: {'; '.join(words)}."


def _worth_in_short(rows: Sequence[Row], model: str) -> str:
    best_at = {size: _at(rows, model, size) for size in _sizes_of(rows)}
    size = max(best_at, key=lambda found: _saved(best_at[found], ASSISTED, "cost_usd"))
    usd = _saved(best_at[size], ASSISTED, "cost_usd")
    share = usd / number(best_at[size][ASYNC], "cost_usd")
    return (
        f"**{model}**: gradient assistance is worth most on {size:,} GPUs, {usd:,.0f} $ or {share:.3%} of the run, each "
        "scheme at its best interval."
    )


def _sizes(rows: Sequence[Row]) -> str:
    lines = []
    for model, size, best in _clusters(rows):
        row = best[ASYNC]
        lines.append(
            (
                f"{model}, {size:,}",
                _layout(row),
                f"{number(row, 'step_time_s'):.4g}",
                f"{number(row, 'mfu_fraction'):.1%}",
                f"{number(row, 'goodput_fraction'):.2%}",
                f"{number(row, 'time_to_train_days'):.3g}",
                f"{number(row, 'energy_kwh') * MWH_PER_KWH:,.0f}",
                f"{number(row, 'cost_usd') / 1e6:.3g}",
                f"{number(row, 'carbon_kgco2e') / 1e3:,.0f}",
            )
        )
    heading = (
        "model, GPUs", "fastest layout", "step (s)", "MFU", "goodput", "days", "MWh", "million $", "t CO2e",
    )  # fmt: skip
    return table_of_numbers(heading, lines)


def _doubling(rows: Sequence[Row]) -> str:
    """The gain in tokens per second from the second half of every cluster."""
    sizes = _sizes_of(rows)
    lines = []
    for small, large in itertools.pairwise(sizes):
        cells = [f"{small:,} to {large:,}"]
        for model in _models(rows):
            before, after = _at(rows, model, small)[ASYNC], _at(rows, model, large)[ASYNC]
            cells += [
                f"{number(after, figure) / number(before, figure) - 1.0:.1%}"
                for figure in ("tokens_per_s", "effective_tokens_per_s")
            ]
        lines.append(cells)
    heads = [f"{model}: {what}" for model in _models(rows) for what in ("throughput", "with the whole run")]
    return table_of_numbers(["GPUs", *heads], lines)


def _schemes(rows: Sequence[Row]) -> str:
    lines = []
    for model, size, best in _clusters(rows):
        cells = [
            f"{number(best[s], 'goodput_fraction'):.2%}, {number(best[s], 'used_interval_s') / MINUTE:.1f}"
            for s in COLORS
        ]
        per_gpu = number(best[ASYNC], "checkpoint_bytes_per_gpu") / GIGA
        lines.append((f"{model}, {size:,}", f"{per_gpu:.2f}", *cells))
    return table_of_numbers(("model, GPUs", "GB per GPU", *(f"`{scheme}`" for scheme in COLORS)), lines)


def _intervals(rows: Sequence[Row]) -> str:
    """Goodput at fixed intervals, on the largest cluster."""
    size = _sizes_of(rows)[-1]
    asked = list(dict.fromkeys(str(row["checkpoint_interval_s"]) for row in rows))
    lines = []
    for model in _models(rows):
        for scheme in COLORS:
            found = {
                str(r["checkpoint_interval_s"]): r
                for r in rows
                if (r[MODEL], r["num_gpus"], r["checkpoint_scheme"]) == (model, size, scheme)
            }
            lines.append(
                (f"{model}, `{scheme}`", *(f"{number(found[a], 'goodput_fraction'):.2%}" for a in asked))
            )
    words = [a if a == AUTO else f"{float(a):,.0f} s" for a in asked]
    return table_of_numbers((f"at {size:,} GPUs", *words), lines)


def _worth(rows: Sequence[Row]) -> str:
    """The gain from gradient-assisted saves over asynchronous ones, each at its best interval."""
    lines = []
    for model, size, best in _clusters(rows):
        plain, assisted = best[ASYNC], best[ASSISTED]
        saved_usd = _saved(best, ASSISTED, "cost_usd")
        lines.append(
            (
                f"{model}, {size:,}",
                f"{number(plain, 'checkpoint_bytes_per_gpu') / GIGA:.2f}",
                f"{number(plain, 'stall_s'):.2f}",
                f"{number(assisted, 'stall_s'):.2f}",
                f"{number(assisted, 'goodput_fraction') - number(plain, 'goodput_fraction'):+.3%}",
                f"{_saved(best, ASSISTED, 'energy_kwh') * MWH_PER_KWH:+.1f}",
                f"{saved_usd:+,.0f}",
                f"{saved_usd / number(plain, 'cost_usd'):+.3%}",
            )
        )
    heading = (
        "model, GPUs", "GB per GPU", "stall async (s)", "stall assisted (s)", "goodput", "MWh saved", "$ saved",
        "share of cost",
    )  # fmt: skip
    return table_of_numbers(heading, lines)


def _stops_paying(rows: Sequence[Row]) -> str:
    """Least bytes per GPU at which gradient-assisted saves still pay."""
    pays = [
        (number(best[ASYNC], "checkpoint_bytes_per_gpu") / GIGA, model, size)
        for model, size, best in _clusters(rows)
        if _saved(best, ASSISTED, "cost_usd") > WORTH_IT_FRACTION * number(best[ASYNC], "cost_usd")
    ]
    if not pays:
        return f"At no size of this study do they save as much as {WORTH_IT_FRACTION:.1%} of the cost of the run."
    least, model, size = min(pays)
    return (
        f"They save more than {WORTH_IT_FRACTION:.1%} of the cost of the run down to {least:.2f} GB of saved state per "
        f"GPU ({model} on {size:,} GPUs) and at no size below that."
    )


def _thresholds() -> str:
    """Least bytes per GPU at which hiding the copy gains a given goodput, by MTBF and by the other costs of a save."""
    lines = []
    for mtbf_s, words in (
        (600.0, "10 minutes"),
        (3600.0, "1 hour"),
        (10_980.0, "3.05 hours"),
        (DAY, "1 day"),
    ):
        for fixed_s in (0.6, 0.05):
            found = [_least_bytes(mtbf_s, fixed_s, gain) for gain in (0.001, 0.01)]
            cells = ["never" if value is None else f"{value / GIGA:.2g} GB" for value in found]
            lines.append((f"{words}, {fixed_s:g} s", *cells))
    return table_of_numbers(("mean up-time, fixed stall", "gain of 0.1 points", "gain of 1 point"), lines)


def _least_bytes(mtbf_s: float, fixed_s: float, gain: float) -> float | None:
    copied = np.geomspace(1e6, MOST_BYTES, 2000)
    stall_s = fixed_s + copied / catalog.node("dgx-h100").host_copy_bytes_per_s
    found = copied[
        _best_goodput(mtbf_s, np.full_like(stall_s, fixed_s)) - _best_goodput(mtbf_s, stall_s) >= gain
    ]
    return float(found[0]) if len(found) else None


def _best_goodput(mtbf_s: float, stall_s: Floats) -> Floats:
    """Goodput at the best interval, saves committed after a minute and restarts of 390 s."""
    run: dict[str, npt.ArrayLike] = {
        "mtbf_s": mtbf_s,
        "stall_s": stall_s,
        "commit_s": 60.0,
        "tax_fraction": 0.0,
        "slots": 1,
        "restart_s": 390.0,
    }
    interval_s = optimal_interval_s(**run, minimum_interval_s=60.0)
    long_run = {**run, "work_s": np.inf, "interval_s": interval_s, "policy": BackPressure.SKIP}
    return expected_goodput(**long_run)


def draw(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draws the figures of the page and returns their files; the same rows give the same bytes."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "capplan", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3})
    return [_draw_sizes(rows, folder), _draw_intervals(rows, folder), _draw_worth(rows, folder)]


def _draw_sizes(rows: Sequence[Row], folder: Path) -> Path:
    from matplotlib import pyplot as plt

    models, sizes = _models(rows), _sizes_of(rows)
    figure, axes = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
    for model, style in zip(models, ("-", "--"), strict=False):
        first = number(_at(rows, model, sizes[0])[ASYNC], "effective_tokens_per_s") / sizes[0]
        for scheme, color in COLORS.items():
            rates = [number(_at(rows, model, size)[scheme], "effective_tokens_per_s") for size in sizes]
            share = [rate / size / first for rate, size in zip(rates, sizes, strict=True)]
            label = f"{model}, {scheme}"
            axes[0].plot(sizes, share, style, color=color, marker=MARKERS[scheme], markersize=4, label=label)
            goodput = [number(_at(rows, model, size)[scheme], "goodput_fraction") for size in sizes]
            axes[1].plot(sizes, goodput, style, color=color, marker=MARKERS[scheme], markersize=4)
    for axis, title in zip(axes, ("Tokens per second and GPU, first size = 1", "Goodput"), strict=True):
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=45)
        axis.set_xlabel("GPUs")
        axis.set_title(title, fontsize=9)
    axes[0].legend(fontsize=7, handlelength=4)
    return _written(figure, folder / "cluster-size.svg")


def _draw_intervals(rows: Sequence[Row], folder: Path) -> Path:
    from matplotlib import pyplot as plt

    models, size = _models(rows), _sizes_of(rows)[-1]
    figure, axes = plt.subplots(1, len(models), figsize=(9.0, 3.4), layout="constrained", sharey=True)
    for axis, model in zip(axes, models, strict=True):
        for scheme, color in COLORS.items():
            found = sorted(
                (number(r, "used_interval_s") / MINUTE, number(r, "goodput_fraction"))
                for r in rows
                if (r[MODEL], r["num_gpus"], r["checkpoint_scheme"]) == (model, size, scheme)
            )
            axis.plot(
                *zip(*found, strict=True), color=color, marker=MARKERS[scheme], markersize=4, label=scheme
            )
        axis.set_xscale("log")
        axis.set_xlabel("minutes of training between saves")
        axis.set_title(f"{model} on {size:,} GPUs", fontsize=9)
    axes[0].set_ylabel("goodput")
    axes[0].legend(fontsize=7)
    return _written(figure, folder / "interval.svg")


def _draw_worth(rows: Sequence[Row], folder: Path) -> Path:
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(5.5, 3.4), layout="constrained")
    for model, marker in zip(_models(rows), ("o", "s"), strict=False):
        found = []
        for size in _sizes_of(rows):
            best = _at(rows, model, size)
            plain = best[ASYNC]
            gain = number(plain, "cost_usd") / number(best[ASSISTED], "cost_usd") - 1.0
            found.append((number(plain, "checkpoint_bytes_per_gpu") / GIGA, 100.0 * gain))
        axis.plot(*zip(*found, strict=True), marker=marker, markersize=4, label=model)
    axis.axhline(100.0 * WORTH_IT_FRACTION, color="grey", linestyle=":")
    axis.set_xscale("log")
    axis.set_xlabel("saved state per GPU (GB)")
    axis.set_ylabel("cost saved against asynchronous saves (%)")
    axis.legend(fontsize=7)
    return _written(figure, folder / "gradient-assisted.svg")


def _written(figure: object, path: Path) -> Path:
    from matplotlib import pyplot as plt
    from matplotlib.figure import Figure

    assert isinstance(figure, Figure)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path


def main() -> int:
    """Writes table, figures and page."""
    rows = all_rows()
    write_rows(rows, PAGE.with_suffix(".csv"))
    draw(rows, PAGE.parent)
    PAGE.write_text(filled_page(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
