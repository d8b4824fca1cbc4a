"""How are the names and values of a comparison shown? In words, with units."""

from __future__ import annotations

import re
from collections.abc import Sequence

from planner.text import human
from planner.text.figure_units import figure_text
from simulator.units import KIB

_NAMES = {
    "mfu_fraction": "MFU",
    "time_to_train_p95_days": "P95 time to train",
    "cost_p95_usd": "P95 cost",
    "num_failures": "expected failures",
    "num_gpus": "GPUs",
    "num_spare_nodes": "spare nodes",
    "num_nodes": "nodes",
    "zero_stage": "ZeRO stage",
    "recompute_num_layers": "recomputed layers of a chunk",
    "shard_ranks": "ranks of a shard group",
    "interleaved_group_size": "micro-batches of an interleaved group",
    "micro_batch_size": "sequences of a micro-batch",
    "usd_per_million_tokens": "cost per million tokens",
    "usd_per_effective_pflop_hour": "cost per PFLOP-hour of model FLOPs",
    "kwh_per_million_tokens": "energy per million tokens",
    "gco2e_per_exaflop": "carbon per exaFLOP",
    "carbon_delay_kgco2e_s": "carbon x time to train",
    "operational_location_kgco2e": "operational, location-based",
    "operational_market_kgco2e": "operational, market-based",
    "water_l": "water",
    "break_even_months": "until buying pays off",
}
"""Names whose own words say too little."""
_FIGURES = ("_days", "_usd", "_kwh", "_kgco2e", "_bytes", "_fraction", "_w", "_s")
"""Ends of names whose numbers are shown with a prefix and a unit, unless they are rates."""
_UNITS = {"_days": "days", "_kwh": "kWh", "_kgco2e": "kg CO2e", "_bytes": "bytes", "_w": "W", "_s": "s"}
"""Units of figures as in the job."""
_RATES = {
    "_bytes_per_s": "bytes/s",
    "_bytes_per_s_per_node": "bytes/s per node",
    "_w_per_s": "W/s",
    "_usd_per_w": "USD/W",
    "_usd_per_gpu_hour": "per GPU-hour",
    "_usd_per_node": "per node",
    "_usd_per_kwh": "USD/kWh",
    "_kgco2e_per_kwh": "kg CO2e/kWh",
    "_l_per_kwh": "l/kWh",
    "_usd_per_year": "USD per year",
    "_fraction_per_year": "share per year",
    "_per_1000_node_days": "per 1,000 node-days",
    "_per_1000_domain_days": "per 1,000 domain-days",
}
"""Units of rates."""
_PRICES = ("_usd_per_gpu_hour", "_usd_per_node")
"""Ends of names of prices, which are shown like all money, each end of a range with its own prefix."""
_PRICE = re.compile(r"(?P<way>rent|purchase) (?P<figures>[\d.e]+(?: \([\d.e to]+\))?) USD/")
"""What an offer costs, as `inputs.price_text` writes it."""
_NUMBER = re.compile(r"\d[\d.]*(?:e\d+)?")
_COUNTS = ("num_gpus", "data_parallel", "sequence_length", "global_batch_size")
"""Ends of names of what is counted, often in thousands."""
_OFFER = re.compile(r"offers\[(?P<name>[^\]]+)\](?:\.(?P<field>.+))?")


def name_words(name: str) -> str:
    """Returns a field in words: `price of h100-sxm5-80gb` for `offers[h100-sxm5-80gb].price`."""
    if offer := _OFFER.fullmatch(name):
        return (
            f"{name_words(offer['field'])} of {offer['name']}"
            if offer["field"]
            else f"offer of {offer['name']}"
        )
    *records, field = name.split(".")
    rate = next((end for end in _RATES if field.endswith(end)), "")
    plain = _NAMES.get(field) or human.words(field.removesuffix(rate).removesuffix("_fraction"))
    return ": ".join([*(human.words(record) for record in records), plain])


def value_words(name: str, value: str | None) -> str:
    """Returns a value with its unit: `2.06 min` for 123.5362 of `checkpoint_interval_s`; a dash for nothing."""
    if value is None:
        return "-"
    if name == "offer" or name.endswith(".price"):
        return _PRICE.sub(lambda price: f"{price['way']} {_in_dollars(price['figures'])} per ", value)
    if not value[:1].isdigit():
        return value
    if name.endswith(_COUNTS) and value.isdecimal():
        return human.count(int(value))
    for end, unit in _RATES.items():
        if name.endswith(end):
            return f"{_in_dollars(value) if end in _PRICES else value} {unit}"
    if name.endswith(_FIGURES):
        try:
            number = float(value)
        except ValueError:
            return value
        return f"{value} bytes" if name.endswith("_bytes") and number < KIB else figure_text(name, number)
    return value


def values_words(name: str, values: Sequence[str | None]) -> list[str]:
    """Returns values side by side in words; in figures as in the job where words would make different ones look alike."""
    words = [value_words(name, value) for value in values]
    if len(set(words)) == len(set(values)):
        return words
    unit = next((f" {unit}" for end, unit in _UNITS.items() if name.endswith(end)), "")  # no rate looks alike
    return [f"{value}{unit if value[:1].isdigit() else ''}" if value else "-" for value in values]


def _in_dollars(numbers: str) -> str:
    return _NUMBER.sub(lambda number: human.dollars(float(number[0])), numbers)
