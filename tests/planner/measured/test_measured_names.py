"""Are the names of frameworks and models known however they are spelt, and are other networks left out?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from planner.measured.cells.told import CannotModelError
from planner.measured.frameworks.names import spelt
from planner.measured.frameworks.releases import exact_month, published_year, release_month, release_year
from planner.measured.rows import Unmodelled
from planner.measured.software.framework_habits import habits_of
from planner.measured.unmodelled import refuse_unlike_a_decoder
from planner.measured.workload.model_names import known_shape, norms_heads, ties_embeddings
from simulator import catalog
from simulator.units import GIGA
from tests.planner.measured_rows import KORTHIKANTI_22B, LLAMA_405B, RUN, simulated_row, the_row


class TestFrameworks:
    @pytest.mark.parametrize(
        ("written", "spelling"),
        [
            *(
                (name, "Megatron-DeepSpeed")
                for name in (
                    "Megatron DeepSpeed",
                    "Megatron_DeepSpeed",
                    "Megatron/DeepSpeed",
                    "Megatron + DeepSpeed",
                    "Megatron-LM with DeepSpeed",
                    "DeepSpeed-Megatron",
                )
            ),
            *(
                (name, "Megatron-LM")
                for name in ("Megatron LM", "Megatron_LM", "Megatron", "NVIDIA Megatron")
            ),
            ("Megatron LM 2021", "Megatron-LM 2021"),
            ("Megatron (2021)", "Megatron-LM (2021)"),
            ("Megatron-style", "Megatron-LM-style"),
            ("Megatron Bridge 25.09", "Megatron-Bridge 25.09"),
            ("NeMo Megatron_Bridge", "NeMo Megatron-Bridge"),
            ("megatron core 0.12", "Megatron-Core 0.12"),
            ("GPT NeoX", "GPT-NeoX"),
            ("Intern Evo", "InternEvo"),
            ("Megatron-LM/DeepSpeed-Ulysses", "Megatron-LM/DeepSpeed-Ulysses"),
            ("Megatron FSDP", "Megatron FSDP"),
            ("NVIDIA NeMo Megatron 23.05", "NVIDIA NeMo Megatron 23.05"),
        ],
    )
    def test_words_are_joined_as_their_authors_do(self, written: str, spelling: str) -> None:
        assert spelt(written) == spelling

    @pytest.mark.parametrize(
        ("written", "hyphenated"),
        [
            ("Megatron + DeepSpeed", "Megatron-DeepSpeed"),
            ("Megatron LM", "Megatron-LM"),
            ("NeMo Megatron Bridge 25.09", "NeMo Megatron-Bridge 25.09"),
        ],
    )
    def test_rows_have_the_same_habits_either_way(
        self, tmp_path: Path, written: str, hyphenated: str
    ) -> None:
        changes = {"gpu": "A100-80GB", "seq_len": 2048, "zero_stage_or_fsdp": "", "recompute": "full"}
        cells = {**LLAMA_405B, **changes}
        row = simulated_row(tmp_path, {**cells, "framework": written})
        assert row == simulated_row(tmp_path, {**cells, "framework": hyphenated})
        assert row["attention"] == habits_of(hyphenated, "ampere", "bf16", first_year=2024).attention


class TestSources:
    """Rows of one A100 node unless they say otherwise."""

    EARLY: Mapping[str, object] = {**KORTHIKANTI_22B, "interconnect": "4x200G HDR InfiniBand"}

    @pytest.mark.parametrize(
        ("source", "attention"),
        [
            ("Megatron-LM (May 2022)", "unfused"),
            ("MosaicML llm-foundry 2024", "flash-2"),
            ("a blog", "flash"),
        ],
    )
    def test_a_row_without_a_framework_has_that_of_its_source_and_tells_it(
        self, tmp_path: Path, source: str, attention: str
    ) -> None:
        row = simulated_row(tmp_path, {**self.EARLY, "framework": "", "source": source})
        assert row["attention"] == attention
        assert "framework" in row["assumed"].split()

    @pytest.mark.parametrize(
        "framework", ["", "vTrain", "Megatron-LM", "Megatron-style", "Megatron + DeepSpeed"]
    )
    def test_rows_of_vtrain_have_its_habits_whatever_a_table_calls_them(
        self, tmp_path: Path, framework: str
    ) -> None:
        told = {**self.EARLY, "vocab": 50257, "source": "VIA-Research/vTrain", "framework": framework}
        one_node = simulated_row(tmp_path, told)
        assert (one_node["kernel_launch"], one_node["vocabulary_size"]) == ("eager-2022", "50257")
        nodes = simulated_row(tmp_path, {**told, "n_gpus": 64, "pp": 8})
        assert (nodes["kernel_launch"], nodes["vocabulary_size"]) == ("eager-2022", "51200")
        assert nodes["step_bytes"]  # those of DeepSpeed

    def test_other_software_in_a_comparison_with_vtrain_stays_what_it_is(self, tmp_path: Path) -> None:
        told = {**self.EARLY, "source": "compared with vTrain", "framework": "MosaicML Composer 2024"}
        assert simulated_row(tmp_path, told)["attention"] == "flash-2"

    @pytest.mark.parametrize(("stages", "launch"), [(1, "eager-2022"), (2, "blocking-2022")])
    def test_hosts_of_deepspeed_wait_in_pipelines_only(
        self, tmp_path: Path, stages: int, launch: str
    ) -> None:
        told = {**self.EARLY, "framework": "Megatron-DeepSpeed 2022", "n_gpus": 16, "pp": stages, "dp": ""}
        assert simulated_row(tmp_path, {**told, "global_batch": 16})["kernel_launch"] == launch


class TestReleasesThatNobodyNamed:
    @pytest.mark.parametrize(
        ("source", "reference", "year"),
        [
            ("Narayanan et al. SC'21 Table 2", "", 2021),
            ("Megatron-LM README table, January 2021", "arXiv 2104.04473", 2021),
            ("Jiang et al. 2024 (MegaScale), runs of 2023", "", 2023),
            ("DGX Cloud recipes 24.11", "", 2024),
            ("MegaScale", "arXiv 2402.15627", 2024),
            ("MegaScale", "arXiv 2402.15627, seen 2026-01-03", 2024),
            ("torchtitan", "benchmarks/llama3_h100_202412_torchtitan.md", 2024),
            ("torchtitan", "docs/performance.md", None),
            ("a table of 20480 tokens", "figure 2048", None),
            ("", "", None),
        ],
    )
    def test_a_publication_tells_its_year(self, source: str, reference: str, year: int | None) -> None:
        assert published_year(source, reference) == year

    def test_they_are_taken_as_of_the_year_of_their_publication_and_tell_it(self, tmp_path: Path) -> None:
        cells = {**KORTHIKANTI_22B, "step_time_s": 10}
        untold = simulated_row(tmp_path, {**cells, "framework": "Megatron-LM"})
        told = simulated_row(tmp_path, {**cells, "framework": "Megatron-LM (2022)"})
        assert "names no release; taken as of 2022" in untold["remarks"]
        assert "names no release" not in told["remarks"]
        assert {**untold, "remarks": ""} == {**told, "remarks": ""}

    def test_a_release_that_is_named_counts_and_not_the_publication(self, tmp_path: Path) -> None:
        cells = {**RUN, "tp": 2, "framework": "Megatron-LM 2023", "step_time_s": 10}
        surveyed = simulated_row(tmp_path, {**cells, "source": "A survey of 2026"})
        alone = simulated_row(tmp_path, cells)
        assert "names no release" not in surveyed["remarks"]
        names = ("group", "config_key")
        assert {**surveyed, **dict.fromkeys(names, "")} == {**alone, **dict.fromkeys(names, "")}


class TestReleaseNumbers:
    @pytest.mark.parametrize(
        ("name", "year"),
        [
            # Tags of NVIDIA/Megatron-LM: v1.0 April 2020, v2.5 August 2021, core_v0.4.0 December 2023, core_v0.12.0 May 2025.
            ("Megatron-LM 1.1.5", 2020),
            ("Megatron-LM v2.5", 2021),
            ("Megatron-LM 3.0", 2022),
            ("GPT-NeoX v2", 2023),
            ("Megatron-Core 0.3.0", 2023),
            ("Megatron-LM core_r0.8.0", 2024),
            ("MCore v0.12.1", 2025),
            ("Megatron-DeepSpeed v2.4", 2021),
            # Tags of deepspeedai/DeepSpeed: v0.3.9 December 2020, v0.3.16 April 2021, v0.6.5 May 2022, v0.9.5 June 2023.
            ("DeepSpeed 0.3.9", 2020),
            ("DeepSpeed 0.3.16", 2021),
            ("Megatron-DeepSpeed 0.6.5", 2022),
            ("DeepSpeed 0.9.5 (ZeRO-3)", 2023),
            ("DeepSpeed v0.18.4", 2026),
            # Tags of NVIDIA/NeMo: v1.13.0 December 2022, v1.21.0 October 2023, v1.23.0 February 2024, v2.2.0 March 2025.
            ("NeMo 1.13", 2022),
            ("NeMo 1.15.0", 2023),
            ("NeMo 1.21.0", 2023),
            ("NeMo 1.23", 2024),
            ("NVIDIA NeMo Framework 2.2.0", 2025),
            # Tags of pytorch/torchtitan, EleutherAI/gpt-neox, mosaicml/llm-foundry, InternLM/InternEvo.
            ("torchtitan v0.2.1", 2025),
            ("torchtitan 0.2.2", 2026),
            ("llm-foundry 0.4.0", 2023),
            ("Composer 0.20.0", 2024),
            ("llm-foundry 0.5.0", 2024),
            ("InternLM 0.2.0", 2023),
            ("InternEvo 0.3.1", 2024),
            # RELEASE.md of PyTorch: 2.1 October 2023, 2.2 January 2024, 2.10 January 2026.
            ("PyTorch 2.1 FSDP", 2023),
            ("PyTorch FSDP (torch 2.2.0+cu121)", 2024),
            ("PyTorch 2.10", 2026),
            ("torchtitan (PyTorch 2.7.0.dev20241125)", 2024),
            # what runs on PyTorch counts, and what is called by a date does
            ("DeepSpeed 0.9.5 (PyTorch 2.2)", 2023),
            ("NeMo 25.02 (Megatron-Core 0.9)", 2025),
            ("Megatron-LM 0.12 (2024)", 2024),
            # of several the latest
            ("NeMo 1.23 (Megatron-Core 0.3)", 2024),
            ("Megatron-Core 0.3 with NeMo 1.23", 2024),
            # no releases of a framework
            ("NeMo 0.11", None),
            ("Megatron-LM", None),
            ("Megatron-LM 3", None),
            ("NeMo 2.0.0rc1", None),
            ("InternLM 2.5", None),
            ("NeMo Automodel 0.2", None),
            ("PyTorch FSDP2", None),
            ("Llama 3.1 405B", None),
        ],
    )
    def test_a_release_is_of_the_year_of_its_tag(self, name: str, year: int | None) -> None:
        assert release_year(name) == release_year(name.lower()) == year

    def test_a_year_alone_tells_no_month(self) -> None:
        assert exact_month("torchtitan 2025") is None
        assert release_month("torchtitan 2025") == (2025, 12)
        assert exact_month("torchtitan v0.2.0") == release_month("torchtitan v0.2.0") == (2025, 10)

    @pytest.mark.parametrize(
        ("name", "month"),
        [
            ("Megatron-Core 0.11.0", (2025, 2)),
            ("Megatron-Core 0.12.0", (2025, 5)),
            ("Megatron-Core 0.15.0", (2025, 12)),
            ("DeepSpeed 0.19.0", (2026, 5)),
        ],
    )
    def test_a_release_is_of_its_month_where_a_year_has_several(
        self, name: str, month: tuple[int, int]
    ) -> None:
        assert exact_month(name) == month

    @pytest.mark.parametrize("named", ["Megatron-LM v2.5", "Megatron-LM 3.0", "Megatron-DeepSpeed 0.6.5"])
    def test_a_survey_of_later_years_does_not_change_what_a_number_says(
        self, tmp_path: Path, named: str
    ) -> None:
        cells = {**KORTHIKANTI_22B, "framework": named, "step_time_s": 10}
        surveyed = simulated_row(tmp_path, {**cells, "source": "A survey of 2026"})
        alone = simulated_row(tmp_path, cells)
        assert "names no release" not in surveyed["remarks"]
        names = ("group", "config_key")
        assert {**surveyed, **dict.fromkeys(names, "")} == {**alone, **dict.fromkeys(names, "")}


class TestMetas:
    def test_fully_sharded_stages_keep_their_weights(self, tmp_path: Path) -> None:
        # arXiv 2407.21783, section 3.3.2: "we do not reshard after forward computation".
        row = simulated_row(tmp_path, {**LLAMA_405B, "zero_stage_or_fsdp": "FSDP"})
        assert row == simulated_row(tmp_path, LLAMA_405B)
        assert (row["zero_stage"], row["overlaps_gradient_sync"]) == ("2", "true")

    @pytest.mark.parametrize(
        ("changes", "stage"),
        [
            ({"zero_stage_or_fsdp": "distributed optimizer"}, "1"),
            ({"zero_stage_or_fsdp": ""}, "2"),
            ({"zero_stage_or_fsdp": "FSDP", "pp": 1, "dp": 1024, "global_batch": 4096}, "3"),
            ({"zero_stage_or_fsdp": "zero3"}, "3"),
        ],
    )
    def test_what_is_told_otherwise_holds(
        self, tmp_path: Path, changes: Mapping[str, object], stage: str
    ) -> None:
        assert simulated_row(tmp_path, {**LLAMA_405B, **changes})["zero_stage"] == stage


class TestUnknownFrameworks:
    @pytest.mark.parametrize(("sharding", "stage"), [("FSDP", "2"), ("ZeRO-3", "3")])
    def test_pipelines_keep_gathered_weights_unless_a_row_says_otherwise(
        self, tmp_path: Path, sharding: str, stage: str
    ) -> None:
        # As with PyTorch and in Llama 3's report: each micro-batch would gather all weights anew.
        told = {**LLAMA_405B, "framework": "home-made", "zero_stage_or_fsdp": sharding}
        assert simulated_row(tmp_path, told)["zero_stage"] == stage


class TestModels:
    @pytest.mark.parametrize(
        ("written", "name"),
        [
            ("deepseek-ai/DeepSeek-V3-Base", "deepseek-v3"),
            ("NVIDIA DeepSeek-V3", "deepseek-v3"),
            ("DeepSeek-R1", "deepseek-v3"),
            ("DeepSeek 671B", "deepseek-v3"),
            ("DSv3 (proxy 8L)", "deepseek-v3"),
            ("deepseek3-671b", "deepseek-v3"),  # MaxText's name
            ("Moonshot Kimi K2", "kimi-k2"),
            ("moonshotai/Kimi-K2-Instruct", "kimi-k2"),
            ("LLAMA3-8B", "llama-3.1-8b"),
            ("Meta-Llama-3-8B", "llama-3.1-8b"),
            ("Llama 3 405B w/ CP", "llama-3.1-405b"),
            ("Llama-3.3-70B", "llama-3.1-70b"),
            ("llama31_8b", "llama-3.1-8b"),
            ("llama31_405b", "llama-3.1-405b"),
            ("Qwen3 235B", "qwen3-235b-a22b"),
            ("DeepSeek-V3 685B", "deepseek-v3"),
            ("Kimi-K2-1T-A32B", "kimi-k2"),
            ("DBRX 36B active", "dbrx-132b"),
            ("Llama 3 8B, 15T tokens", "llama-3.1-8b"),
            ("Qwen3 MoE 235B A22B", "qwen3-235b-a22b"),
            ("Qwen3-MoE-30B", "qwen3-30b-a3b"),
            ("Qwen3-VL 30B", "qwen3-vl-30b-a3b"),
            ("Qwen/Qwen3-VL-235B", "qwen3-vl-235b-a22b"),
            ("LLaMA-1 65B", "llama-65b"),
            ("NeoX-20B", "gpt-neox-20b"),
            ("GPT-175B", "gpt3-175b"),
            ("mistralai/Mistral-7B-v0.1", "mistral-7b"),
            ("BLOOM", "bloom-176b"),
            # The same tables of sizes: arXiv 2302.13971 and 2307.09288, 2407.10671 and 2412.15115.
            ("LLaMA-7B", "llama-2-7b"),
            ("LLaMA 13B", "llama-2-13b"),
            ("Qwen2-7B", "qwen2.5-7b"),
            ("Qwen2 72B", "qwen2.5-72b"),
            ("GPT-3", "gpt3-175b"),
            ("GPT-2 1.5B", "gpt2-xl"),
            ("Megatron-Turing NLG 530B", "mt-nlg-530b"),
            # torchtitan's flavors: `17bx16e`, `17bx128e`, and a 16B whose table is DeepSeek-V2-Lite's (27 layers, 2,048 wide).
            ("Llama4-17Bx16E", "llama-4-scout"),
            ("llama4 17bx128e", "llama-4-maverick"),
            ("DeepSeek-V3 16B", "deepseek-v2-lite"),
            ("deepseek_v3 16B", "deepseek-v2-lite"),
        ],
    )
    def test_publishers_and_other_names_of_theirs(self, written: str, name: str) -> None:
        assert known_shape(written, None, None, None) == catalog.model(name)

    @pytest.mark.parametrize(
        "written",
        [
            "DeepSeek-R1-Distill-Llama-8B",
            "BLOOM-like 181B",
            "Nemotron-8B",
            "Llama 3 13B",
            "GPT-3 13B",
            "Qwen2-57B",
            "DeepSeek-V3 20B",
            "Llama 4 17Bx64E",
            "Grok-1 13B",
        ],
    )
    def test_others_of_like_names_are_not_taken_for_them(self, written: str) -> None:
        assert known_shape(written, None, None, None) is None

    def test_torchtitans_16b_is_no_cut_model_of_the_large_one(self) -> None:
        assert known_shape("DeepSeek-V3 16B", 27, 2048, 16) == catalog.model("deepseek-v2-lite")
        assert known_shape("DeepSeek-V3 16B", 4, 7168, 128) == catalog.model("deepseek-v3")

    def test_experts_of_a_flavor_stand_in_every_other_layer_as_in_its_model(self, tmp_path: Path) -> None:
        cells = {**RUN, "n_gpus": 512, "tp": 8, "pp": 1, "ep": 64, "framework": "torchtitan"}
        flavor = simulated_row(tmp_path, {**cells, "model": "llama4 17bx128e"})
        maverick = simulated_row(tmp_path, {**cells, "model": "Llama 4 Maverick"})
        differing = {name for name, cell in flavor.items() if cell != maverick[name]}
        assert differing <= {"model", "config_key"}
        assert flavor["layer_step"] == "2"

    @pytest.mark.parametrize(
        ("cells", "parameters"),
        [
            # 27 x 64 x 3 x 2048 x 11264 = 120 billion in experts that are as wide as the dense layers, as no width is given.
            ({}, "121"),
            ({"moe_ffn_hidden": 1408, "shared_expert_ffn": 2816, "dense_layers": 1}, ""),
            ({"model": "Foo 2.9B x 64 experts"}, ""),  # named after its dense network
            ({"model": "Foo 16B proxy"}, ""),
            ({"model": "Foo 8x7B"}, ""),
            ({"experts": "", "topk": "", "ep": "", "model": "Foo 3B"}, ""),
            ({"experts": "", "topk": "", "ep": "", "model": "Foo 13B"}, "2.99"),
        ],
    )
    def test_sizes_of_another_network_than_the_name_says_are_told(
        self, tmp_path: Path, cells: dict[str, object], parameters: str
    ) -> None:
        shape = {
            "layers": 27,
            "hidden": 2048,
            "heads": 16,
            "kv_heads": 16,
            "ffn_hidden": 11264,
            "vocab": 163840,
        }
        experts = {"experts": 64, "topk": 6, "ep": 8, "mlp_matrices": 3}
        row = simulated_row(tmp_path, {**RUN, "model": "Foo-16B-A3B", **shape, **experts, **cells})
        told = [remark for remark in row["remarks"].splitlines() if "the sizes of the row" in remark]
        name = cells.get("model", "Foo-16B-A3B")
        meaning = f"model = '{name}': the sizes of the row make up {parameters} billion parameters"
        assert told == ([meaning] if parameters else [])

    def test_a_cut_model_of_its_own_size_is_still_the_model(self) -> None:
        sixteen_layers = catalog.model("deepseek-v3").model_copy(update={"num_layers": 16})
        name = f"DeepSeek-V3 {sixteen_layers.num_parameters / GIGA:.0f}B proxy"
        assert known_shape(name, 16, None, None) == catalog.model("deepseek-v3")
        assert known_shape(name, None, None, None) is None

    @pytest.mark.parametrize("model", ["Llama 3.1 70B (proxy, 12 layers)", "llama-3.1-70b-12L"])
    def test_the_layers_of_a_cut_model_may_be_in_its_name(self, tmp_path: Path, model: str) -> None:
        row = simulated_row(tmp_path, {**RUN, "model": model, "tp": 8, "global_batch": 8})
        assert (row["num_layers"], row["hidden_size"]) == ("12", "8192")
        assert "layers = '': 12, as the name of the model says" in row["remarks"].splitlines()
        assert simulated_row(tmp_path, {**RUN, "model": model, "layers": 4, "tp": 8})["num_layers"] == "4"

    @pytest.mark.parametrize(
        ("model", "framework", "attention"),
        [
            ("GPT", "Megatron-LM", "unfused"),
            ("Llama 2", "Megatron-LM", "flash"),
            ("meta-llama/Llama-2", "Megatron-DeepSpeed", "flash"),
            ("LLaMA", "Megatron-LM 2022", "unfused"),
            ("MPT", "llm-foundry", "flash-1"),  # of 2023, as the habit
            ("Llama 3", "llm-foundry", "flash"),
        ],
    )
    def test_software_without_a_date_is_not_older_than_the_network(
        self, tmp_path: Path, model: str, framework: str, attention: str
    ) -> None:
        cells = {"model": model, "framework": framework, "gpu": "A100-80GB", "layers": 8, "hidden": 4096}
        row = simulated_row(tmp_path, {**RUN, **cells, "seq_len": 2048})
        assert row["attention"].replace("flash-2", "flash") == attention
        assert ("framework" in row["assumed"].split()) is ("2022" not in framework)

    def test_a_cut_model_without_layers_of_experts_is_told(self, tmp_path: Path) -> None:
        cells = {**RUN, "model": "DeepSeek V3 (proxy, 3 layers)", "ep": 8}
        assert "the first 3 of the model; give dense_layers" in simulated_row(tmp_path, cells)["remarks"]
        told = simulated_row(tmp_path, {**cells, "dense_layers": 1})
        assert (told["num_dense_layers"], "give dense_layers" in told["remarks"]) == ("1", False)

    def test_families_have_their_norms_with_a_publisher_too(self) -> None:
        assert norms_heads("Qwen/Qwen3-14B") == norms_heads("Qwen3 14B") == "per_head"
        assert ties_embeddings("OpenAI GPT-2")

    @pytest.mark.parametrize(
        ("model", "hidden", "ffn", "matrices"),
        [
            # `config.json` of the models: intermediate_size, and hidden_act with or without gate_proj
            ("OLMo-3-32B", 5120, 27648, 3),
            ("Mistral-Small-24B", 5120, 32768, 3),
            ("Gemma-7B", 3072, 24576, 3),
            ("Gemma-2-9B", 3584, 14336, 3),
            ("SmolLM2-1.7B", 2048, 8192, 3),
            ("Llama-like 3B", 3072, 12288, 3),
            ("Falcon3-7B", 3072, 23040, 3),
            ("Foo", 4096, 11008, 3),
            ("Foo", 4096, 24576, 3),
            ("Foo", 4096, 16384, 2),
            ("Foo", 2000, 8192, 2),
            ("Foo", 2000, 7936, 2),
            ("Foo", 2000, 8193, 3),
            ("Foo", 4096, "", 2),
            ("Llama-like 3B", 3072, "", 2),
            ("Nemotron-Mini-4B", 3072, 9216, 2),
            ("Apertus-8B", 4096, 21504, 2),
        ],
    )
    def test_blocks_have_a_gate_by_family_or_by_width(
        self, tmp_path: Path, model: str, hidden: int, ffn: object, matrices: int
    ) -> None:
        cells = {**RUN, "model": model, "layers": 8, "hidden": hidden, "heads": 8, "ffn_hidden": ffn}
        row = simulated_row(tmp_path, cells)
        assert row["is_gated"] == ("true" if matrices == 3 else "false")
        assert "mlp_matrices" in row["assumed"].split()
        assert simulated_row(tmp_path, {**cells, "mlp_matrices": 2})["is_gated"] == "false"

    @pytest.mark.parametrize(
        ("model", "is_tied"),
        [
            *((f"Qwen2.5-{size}", True) for size in ("0.5B", "1.5B", "3B")),
            *((f"Qwen/Qwen3-{size}", True) for size in ("0.6B", "1.7B", "4B")),
            ("Qwen2.5-Coder-1.5B-Instruct", True),
            ("Qwen3 4B", True),
            ("Qwen2.5-7B", False),
            ("Qwen2.5-32B", False),
            ("Qwen3-8B", False),
            ("Qwen3-14B", False),
            ("Qwen3-30B-A3B", False),
        ],
    )
    def test_small_models_of_qwen_tie_their_embeddings(self, model: str, is_tied: bool) -> None:
        assert ties_embeddings(model) is is_tied

    def test_without_sizes_an_unknown_one_is_told(self, tmp_path: Path) -> None:
        row = the_row(tmp_path, {**RUN, "model": "Llama 3 13B"})
        assert isinstance(row, Unmodelled)
        assert row.reason.startswith("hidden is not given, and the catalogue has no model Llama 3 13B")

    def test_a_known_name_with_other_sizes_is_not_the_known_model(self, tmp_path: Path) -> None:
        row = the_row(tmp_path, {**RUN, "model": "Llama 3.1 8B", "hidden": 8192})
        assert isinstance(row, Unmodelled)
        assert (
            row.reason
            == "layers is not given, and Llama 3.1 8B of the catalogue has other sizes than the row"
        )


class TestOtherNetworks:
    @pytest.mark.parametrize("model", ["RoBERTa", "UL2 20B", "Flan-T5", "DLRM-DCNv2", "SwinV2-MoE"])
    def test_they_are_left_out(self, model: str) -> None:
        with pytest.raises(CannotModelError, match=f"model {model}: only decoder-only transformers"):
            refuse_unlike_a_decoder(model)

    @pytest.mark.parametrize(
        "model",
        [
            "Nemotron-3-Super-49B",
            "Nemotron5-H",
            "Nemotron 5 hybrid 8B",
            "Nemotron-H 4B",
            "Nemotron-3-Nano-4B",
            "Kimi-Linear 16B",
            "Qwen3.5-397B",
            "Qwen3.6-9B",
            "MiniMax-01",
            "Falcon-H1-34B",
            "Granite 4.0 H Micro",
            "RWKV-7",
            "Hunyuan-TurboS",
            "Samba-3.8B",
        ],
    )
    def test_those_with_a_state_are_left_out_unless_the_catalogue_has_them(self, model: str) -> None:
        assert known_shape(model, None, None, None) is None
        with pytest.raises(CannotModelError, match=f"model {model}: layers with a state are known only of"):
            refuse_unlike_a_decoder(model)

    @pytest.mark.parametrize(
        ("model", "name"),
        [
            ("Nemotron-H-56B", "nemotron-h-56b"),
            ("Nemotron_H 47B", "nemotron-h-47b"),
            ("NVIDIA-Nemotron-Nano-9B-v2", "nemotron-nano-9b-v2"),
            ("Nemotron 3 Nano", "nemotron-3-nano-30b-a3b"),
            ("nvidia/Nemotron-3-Nano-30B", "nemotron-3-nano-30b-a3b"),
            ("NVIDIA-Nemotron-3-Super-120B-A12B-BF16", "nemotron-3-super-120b-a12b"),
            ("Nemotron 3 Super", "nemotron-3-super-120b-a12b"),
            ("Nemotron_3_Ultra", "nemotron-3-ultra-550b-a55b"),
            ("Qwen3-Next-80B-A3B", "qwen3-next-80b-a3b"),
            ("Qwen3-Coder-Next", "qwen3-next-80b-a3b"),
            ("Qwen3.5-35B-A3B", "qwen3.5-35b-a3b"),
            ("Qwen3.5 35B", "qwen3.5-35b-a3b"),
            # The same layers: with their module of multi-token prediction, as many weights as Megatron-Bridge's cards say
            # (71,903,645,408 and 55,562,855,904 bytes).
            ("Qwen/Qwen3.6-35B-A3B", "qwen3.5-35b-a3b"),
            ("Qwen3.8-27B", "qwen3.5-27b"),
            ("granite-4-h-tiny", "granite-4.0-h-tiny"),
            ("Kimi-Linear-48B", "kimi-linear-48b-a3b"),
            ("Granite 4.0 H Small", "granite-4.0-h-small"),
            ("Bamba-9B", "bamba-9b"),
        ],
    )
    def test_hybrids_of_the_catalogue_are_taken(self, model: str, name: str) -> None:
        known = known_shape(model, None, None, None)
        assert known == catalog.model(name)
        refuse_unlike_a_decoder(model, known)

    @pytest.mark.parametrize(
        "model", ["Llama-3.1-Nemotron-Ultra-253B", "nvidia/Llama-3_3-Nemotron-Super-49B-v1", "DeciLM-7B"]
    )
    def test_networks_of_unlike_layers_are_left_out_too(self, model: str) -> None:
        with pytest.raises(CannotModelError, match="unlike one another"):
            refuse_unlike_a_decoder(model)

    @pytest.mark.parametrize(
        "model",
        [
            "Nemotron-4 340B",
            "Llama-3.1-Nemotron-70B-Instruct",
            "Nemotron-3-8B",
            "Nemotron 15B",
            "Llama-3.1-Nemotron-Nano-8B",
            "MiniMax-M2",
            "Qwen3-235B-A22B",
            "Kimi-K2",
            "Granite 3.0 8B",
            "Falcon-180B",
            "GPT-NeoX-20B",
            "DeepSeek-V3.2",
            "StarCoder2",
        ],
    )
    def test_decoders_whose_names_are_like_those_of_other_networks_are_taken(self, model: str) -> None:
        refuse_unlike_a_decoder(model)
