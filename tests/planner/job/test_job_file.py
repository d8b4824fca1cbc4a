"""Does a job file become the job that it describes?"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from docs.generate import PAGE, job_file_reference
from planner.input.yaml_text import parse_text
from planner.job.batch_size import batch_notes
from planner.job.file import load_job, parse_job
from simulator import catalog
from simulator.domain.checkpointing import Checkpointing, SavePolicy
from simulator.domain.hardware import Site
from simulator.domain.offer import Estimate, GpuRange
from simulator.domain.reliability import RELIABILITY_PRESETS
from simulator.domain.straggler_causes import STRAGGLER_PRESETS, StragglerPrior, Stragglers
from studies.files.identity import job_hash
from tests.planner.job_documents import DOCUMENT, EXAMPLES, WORKLOAD, changed, job_or_error, offered, refusal

# Accepted files


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_survives_being_written_out_and_read_again(path: Path) -> None:
    job = load_job(path)
    assert job.name == path.stem
    assert parse_job(job.model_dump()) == job
    assert parse_job(json.loads(job.model_dump_json())) == job


def test_the_same_job_in_yaml_json_and_toml_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(json.dumps(DOCUMENT))
    (tmp_path / "job.yaml").write_text(
        "workload:\n  model: llama-3.1-8b\n  tokens: 1e12\n  sequence_length: 8192\n"
        "  global_batch_tokens: 4_000_000\n"
        "offers: [{accelerator: h100-sxm5-80gb, num_gpus: {min: 64, max: 256}}]\n"
        "site: us-iowa\n"
    )
    (tmp_path / "job.toml").write_text(
        'site = "us-iowa"\n[workload]\nmodel = "llama-3.1-8b"\ntokens = 1e12\nsequence_length = 8192\n'
        'global_batch_tokens = 4e6\n[[offers]]\naccelerator = "h100-sxm5-80gb"\n'
        "num_gpus = {min = 64, max = 256}\n"
    )
    jobs = [load_job(tmp_path / f"job.{suffix}") for suffix in ("json", "yaml", "toml")]
    assert jobs[0] == jobs[1] == jobs[2] == parse_job(DOCUMENT)


def test_yaml_words_stay_words() -> None:
    assert parse_text("a: no\nb: 12:30\nc: 2024-01-01\nd: 2e12\ne: 0o17", source="") == {
        "a": "no",
        "b": "12:30",
        "c": "2024-01-01",
        "d": 2e12,
        "e": "0o17",
    }


# Batches: tokens / sequence length, to the nearest multiple of the largest power of two within 5 %:
# 4e6 / 8192 = 488.3 (463.9 to 512.7) -> 512; 16e6 / 8192 = 1953.1 (1855 to 2051) -> 2048; 32e6 / 8192 = 3906.3 -> 4096;
# 12e6 / 8192 = 1464.8 (1392 to 1538) -> 3 x 512; 2e5 / 8192 = 24.4 (23.2 to 25.6) -> 3 x 8; 4.5e6 / 8192 = 549.3 (521.8 to
# 576.8) -> 9 x 64, not 512. Whole numbers stay below 64, and where they are multiples of 64: 31, 61 x 64, but 1040 -> 1024.
@pytest.mark.parametrize(
    ("tokens", "sequences"),
    [
        *((4e6, 512), ("4e6", 512), (16e6, 2048), (32e6, 4096), (12e6, 1536), (2e5, 24), (4.5e6, 576)),
        *((8192, 1), (31 * 8192, 31), (61 * 64 * 8192, 3904), (1040 * 8192, 1024)),
    ],
)
def test_a_batch_in_tokens_becomes_whole_sequences(tokens: float | str, sequences: int) -> None:
    job = parse_job(DOCUMENT, overrides=[f"workload.global_batch_tokens={tokens}"])
    assert job.workload.global_batch_size == sequences


def _batch(size: int) -> list[str]:
    return ["workload.global_batch_tokens=null", f"workload.global_batch_size={size}"]


def test_a_batch_that_splits_badly_is_told_with_one_that_splits_well() -> None:
    assert not any(list(batch_notes(parse_job(DOCUMENT, overrides=_batch(size)))) for size in (1, 4096, 1000))
    told = [
        note for size in (3904, 1664) for note in batch_notes(parse_job(DOCUMENT, overrides=_batch(size)))
    ]
    # 70 = 2 x 5 x 7 splits over sevens, which clusters have, so that 64 is not worth a remark.
    assert not list(batch_notes(parse_job(DOCUMENT, overrides=_batch(70))))
    assert "multiple of 61. 4,096 (+4.9 %) allow" in told[0]  # 3,904 = 64 x 61
    assert "multiple of 13. 1,536 (-7.7 %) allow" in told[1]  # 1,664 = 128 x 13, 1,536 = 512 x 3


def test_what_is_left_out_comes_from_the_catalogue() -> None:
    job = parse_job(DOCUMENT)
    assert job.reliability == RELIABILITY_PRESETS["typical"]  # the default in docs/job-file.md
    offer = job.offers[0]
    assert offer.accelerator == catalog.accelerator("h100-sxm5-80gb")
    assert offer.node == catalog.default_node("h100-sxm5-80gb")
    assert offer.fabric == catalog.default_fabric("h100-sxm5-80gb")
    assert (offer.rent_usd_per_gpu_hour, offer.price_source) == catalog.rent("h100-sxm5-80gb")


def test_single_values_stand_for_ranges() -> None:
    offer = parse_job(offered(rent_usd_per_gpu_hour=2.5)).offers[0]
    assert offer.num_gpus == GpuRange(min=64, max=64)
    assert offer.rent_usd_per_gpu_hour == Estimate(low=2.5, mid=2.5, high=2.5)
    assert offer.price_source == "user"


def test_an_offer_for_sale_has_no_rent() -> None:
    offer = parse_job(offered(purchase_usd_per_node={"low": 2e5, "mid": 3e5, "high": 4e5})).offers[0]
    assert offer.rent_usd_per_gpu_hour is None
    assert offer.purchase_usd_per_node == Estimate(low=2e5, mid=3e5, high=4e5)


def test_the_fabric_of_the_job_holds_for_offers_that_name_none() -> None:
    offers = [
        {"accelerator": "h100-sxm5-80gb", "num_gpus": 64},
        {"accelerator": "h100-sxm5-80gb", "num_gpus": 64, "fabric": "infiniband-xdr"},
    ]
    job = parse_job(changed(offers=offers, fabric="ethernet-roce-400g"))
    assert [offer.fabric.kind for offer in job.offers] == ["ethernet-roce-400g", "infiniband-xdr"]


def test_a_problem_of_the_common_fabric_is_reported_once_where_it_was_written() -> None:
    offer = {"accelerator": "h100-sxm5-80gb", "num_gpus": 64}
    message = refusal(changed(offers=[offer, offer], fabric={"oversubscription": 0.5}))
    assert "1 problem\n  fabric.oversubscription = 0.5: must be at least 1" in message


def test_own_figures_go_over_those_of_a_region_or_a_preset() -> None:
    job = parse_job(
        changed(
            site={"region": "us-iowa", "power_usage_effectiveness": 1.1},
            reliability={"preset": "young", "repair_days": 7, "restart": {"detect_s": 5}},
        )
    )
    assert job.site == catalog.site("us-iowa").model_copy(update={"power_usage_effectiveness": 1.1})
    young = RELIABILITY_PRESETS["young"]
    assert job.reliability.failures_per_1000_node_days == young.failures_per_1000_node_days
    assert (job.reliability.repair_days, job.reliability.restart.detect_s) == (7, 5)
    assert job.reliability.restart.initialize_s == young.restart.initialize_s


def test_a_region_of_ones_own_needs_all_figures() -> None:
    own = {
        "region": "my hall",
        "grid_kgco2e_per_kwh": 0.1,
        "electricity_usd_per_kwh": 0.2,
        "power_usage_effectiveness": 1.3,
    }
    assert parse_job(changed(site=own)).site == Site.model_validate(own)
    assert "site.region = 'my hall'" in refusal(changed(site={**own, "electricity_usd_per_kwh": None}))


def test_stragglers_are_named_by_a_preset_or_by_their_causes() -> None:
    named = parse_job(changed(reliability={"preset": "mature", "stragglers": "shared"})).reliability
    assert named.straggler_model == STRAGGLER_PRESETS["shared"]
    assert named.failures_per_1000_node_days == 2.34
    own = parse_job(changed(reliability={"preset": "mature", "stragglers": {"stage_imbalance": 1.4}}))
    assert own.reliability.straggler_model == Stragglers(stage_imbalance=1.4)
    assert parse_job(DOCUMENT).reliability.straggler_model == StragglerPrior()


def test_causes_and_a_distribution_of_stragglers_exclude_each_other() -> None:
    both = {"preset": "mature", "stragglers": "dedicated", "straggler_log_mean": -2.0}
    assert "give causes here, or straggler_log_mean, not both" in refusal(changed(reliability=both))
    unknown = refusal(changed(reliability={"preset": "mature", "stragglers": "sharde"}))
    assert "reliability.stragglers = 'sharde': must be a preset; nearest: shared" in unknown


def test_a_job_says_how_its_saves_are_made_and_names_schemes_by_their_systems() -> None:
    job = parse_job(
        changed(
            checkpointing={"slots": 4, "backpressure": "wait", "interval_steps": 500},
            search={"checkpoint_schemes": ["GoCkpt", "gemini", "async"]},
        ),
        overrides=["checkpointing.peer_copies=3", "search.checkpoint_schemes=[torchft, check-n-run]"],
    )
    assert job.checkpointing == Checkpointing(
        slots=4, backpressure=SavePolicy.WAIT, interval_steps=500, peer_copies=3
    )
    assert [scheme.value for scheme in job.search.checkpoint_schemes] == ["replica_ft", "differential"]
    assert parse_job(DOCUMENT).checkpointing == Checkpointing()


@pytest.mark.parametrize(
    ("section", "values", "rule"),
    [
        ("reliability", {"straggler_log_mean": 100}, "straggler_log_mean = 100: must be at most 2"),
        ("reliability", {"straggler_log_mean": -1e6}, "straggler_log_mean = -1000000: must be at least -20"),
        (
            "reliability",
            {"restart": {"detect_s": 1e300}},
            "restart.detect_s = 1e+300: must be at most 1000000000",
        ),
        ("reliability", {"repair_days": 1e300}, "repair_days = 1e+300: must be at most 10000"),
        ("storage", {"write_bytes_per_s": 60}, "write_bytes_per_s = 60: must be at least 1000000"),
        ("storage", {"read_bytes_per_s": 1e-300}, "read_bytes_per_s = 1e-300: must be at least 1000000"),
        ("checkpointing", {"fixed_stall_s": 1e300}, "fixed_stall_s = 1e+300: must be at most 1000000000"),
        ("checkpointing", {"replay_bytes_per_s": 150}, "replay_bytes_per_s = 150: must be at least 1000000"),
        # A run that evaluates a thousand times a step is endless by that alone, whatever fails.
        ("workload", {"evaluation_every_steps": 1e-30}, "evaluation_every_steps = 1e-30: must be at least 1"),
        (
            "workload",
            {"evaluation_every_steps": 1, "evaluation_sequences": 10**18},
            "evaluation_sequences = 1000000000000000000: must be at most 100000000",
        ),
    ],
)
def test_figures_of_runs_in_another_unit_are_refused(
    section: str, values: dict[str, object], rule: str
) -> None:
    given: dict[str, dict[str, object]] = {"reliability": {"preset": "typical"}, "workload": {**WORKLOAD}}
    own = given.get(section, {}) | values
    assert f"{section}.{rule}" in refusal(changed(**{section: own}))


# Llama 3's 419 failures in 54 days on 2,048 nodes of eight: 3.79 per thousand node-days, 50,676 hours of a GPU between two.
@pytest.mark.parametrize("preset", [{}, {"preset": "young"}], ids=["alone", "over-a-preset"])
def test_gpu_hours_between_failures_are_a_failure_rate(preset: dict[str, str]) -> None:
    gpu_hours = 16_384 * 54 * 24 / 419
    fleet = parse_job(changed(reliability={**preset, "gpu_hours_per_failure": gpu_hours})).reliability
    assert fleet.failures_per_1000_node_days == pytest.approx(419 / (2.048 * 54), rel=1e-12)
    up_time_s = 1.0 / fleet.failures_per_s(np.array([16_384]))[0]
    assert up_time_s == pytest.approx(54 * 86_400 / 419, rel=1e-12)


def test_null_leaves_a_field_out_but_turns_stragglers_off() -> None:
    job = parse_job(
        changed(
            limits=None,
            search={"micro_batch_sizes": None, "tensor_parallel": None},
            reliability={"preset": "typical", "straggler_log_mean": None},
        )
    )
    default = parse_job(DOCUMENT)
    assert (job.limits, job.search) == (default.limits, default.search)
    assert job.reliability.straggler_slowdown == 1.0
    assert "unknown field" in refusal(changed(limits={"budgt_usd": None}))


def test_domain_types_and_numpy_numbers_may_stand_for_their_fields() -> None:
    job = parse_job(
        changed(
            site=catalog.site("us-iowa"),
            offers=({"accelerator": catalog.accelerator("h100-sxm5-80gb"), "num_gpus": np.int64(64)},),
            limits={"deadline_days": np.float64(90.0)},
        )
    )
    assert job == parse_job(changed(offers=offered()["offers"], limits={"deadline_days": 90}))


@pytest.mark.parametrize("name", catalog.names(catalog.Kind.ACCELERATORS))
def test_every_accelerator_of_the_catalogue_can_be_offered(name: str) -> None:
    offer = {"accelerator": name, "num_gpus": {"min": 1, "max": 1024}, "rent_usd_per_gpu_hour": 2}
    document = changed(offers=[offer], workload={**WORKLOAD, "precisions": ["fp16", "bf16"]})
    assert parse_job(document).offers[0].node.accelerator == name
    del offer["rent_usd_per_gpu_hour"]
    if job := job_or_error(lambda: parse_job(document)):
        assert job.offers[0].price_source != "user"


# Limits that shut everything out


@pytest.mark.parametrize("limits", [{"budget_usd": 1.0}, {"deadline_days": 1e-6}, {"power_w": 1e-3}])
def test_limits_that_are_too_tight_are_left_to_the_study_which_says_what_would_help(
    limits: dict[str, float],
) -> None:
    assert parse_job(changed(limits=limits)).limits.model_dump(exclude_none=True) == limits


@pytest.mark.parametrize(
    ("least", "most", "near"),
    [
        (1, 7, "nearest: 8; for a part of a node, write out the offer's node with that many"),
        (65, 71, "nearest: 64, 72"),
    ],
)
def test_a_range_between_two_numbers_of_nodes_is_refused(least: int, most: int, near: str) -> None:
    message = refusal(
        changed(offers=[{"accelerator": "h100-sxm5-80gb", "num_gpus": {"min": least, "max": most}}])
    )
    assert f"offers[0].num_gpus = {least}..{most}" in message
    assert message.endswith(near)


def test_an_offer_that_can_keep_a_limit_on_accelerators_is_enough() -> None:
    # Whole nodes of eight from 60 on are 64; the other offer begins at 128.
    sizes = ({"min": 60, "max": 256}, {"min": 128, "max": 256})
    two = changed(offers=[{"accelerator": "h100-sxm5-80gb", "num_gpus": size} for size in sizes])
    assert parse_job(two, overrides=["limits.num_gpus=64"]).limits.num_gpus == 64
    message = refusal(two, "limits.num_gpus=63")
    assert "limits.num_gpus = 63: must be at least 64, the fewest that any offer allows" in message


def test_an_accelerator_that_computes_a_format_is_enough() -> None:
    offers = [{"accelerator": name, "num_gpus": 64} for name in ("a100-sxm4-80gb", "h100-sxm5-80gb")]
    for some, formats in ((offers, "[fp8]"), (offers[:1], "[bf16, fp8]")):
        assert parse_job(changed(offers=some), overrides=[f"workload.precisions={formats}"]).offers
    message = refusal(changed(offers=offers[:1]), "workload.precisions=[fp8]")
    assert "workload.precisions = fp8: is not computed by any offered accelerator" in message


def test_a_format_whose_recipe_no_offered_accelerator_has_is_refused() -> None:
    # Block scales of MXFP8 need Blackwell; Hopper has 8 bits with other scales.
    mxfp8 = ["workload.precisions=[fp8]", "workload.fp8_recipe=mxfp8"]
    offers = [{"accelerator": name, "num_gpus": 64} for name in ("h100-sxm5-80gb", "b200-sxm-180gb")]
    assert parse_job(changed(offers=offers), overrides=mxfp8).offers
    assert parse_job(changed(offers=offers[:1]), overrides=[mxfp8[0]]).offers
    message = refusal(changed(offers=offers[:1]), *mxfp8)
    assert (
        "workload.precisions = fp8: is not computed by any offered accelerator with fp8_recipe mxfp8; "
        in message
    )
    assert "; choose another recipe, add bf16 or another accelerator" in message


# The reference


def test_the_reference_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == job_file_reference(), "run: python -m docs.generate"


def test_a_zero_below_zero_is_the_same_question_as_zero() -> None:
    jobs = [parse_job(offered(rent_usd_per_gpu_hour=rent)) for rent in (0, 0.0, -0.0)]
    assert len({job_hash(job) for job in jobs}) == 1
