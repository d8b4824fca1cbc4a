"""Is the simulated network the one that a file describes, and is each error in a file reported once?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planner.cli.commands import main
from planner.deep.network_file import load_network
from planner.deep.words import slow_links_in_words
from simulator.deep.networks import topologies
from simulator.deep.networks.network_file import KINDS
from simulator.deep.networks.routing import Router
from simulator.deep.networks.slow_links import LinkNames, shares_left, slowed
from simulator.deep.networks.topologies import cluster, ring, switch
from simulator.deep.networks.topology import Topology, TopologyBuilder
from simulator.errors import InputError
from simulator.units import GIGA
from tests.planner.trace_answers import answered

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "networks").glob("*.yaml"))
CABLE = 3e9, 2e-6
RING = "network: {kind: ring, num_gpus: 4, bandwidth_bytes_per_s: 1e9, latency_s: 1e-6}\n"
NODES_FILE = (
    "network: {{kind: nodes, num_nodes: {}, gpus_per_node: {}, scale_up_bytes_per_s: 4, scale_up_latency_s: 0, "
    "card_bytes_per_s: 2, fabric_latency_s: 0, {}}}"
)
DRAGONFLY = (
    "network: {{kind: dragonfly, num_groups: {}, switches_per_group: {}, gpus_per_switch: {}, "
    "gpu_bytes_per_s: 1, local_bytes_per_s: 1, global_bytes_per_s: 1, latency_s: 0}}"
)
NODES = cluster(
    2, 2, scale_up_bytes_per_s=4.0, scale_up_latency_s=0.0, card_bytes_per_s=2.0, fabric_latency_s=0.0
)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["trace", "simulate", *arguments]) == 2
    return capsys.readouterr().err


def names_of(topology: Topology, link: str) -> set[str]:
    return {topology.link_name(number) for number in LinkNames(topology).links_of(link).tolist()}


class TestExamples:
    def test_there_is_one_of_every_kind(self) -> None:
        assert {load_network(path).network.kind for path in EXAMPLES} == set(KINDS)

    @pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
    def test_every_example_is_played(
        self, path: Path, small: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        answer = answered(capsys, small, "--gpus", "4", "--network", str(path))
        assert answer.num_gpus == 4
        assert answer.step_s >= 8.3e-3

    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ("kind: ring, num_gpus: 4", topologies.ring(4, *CABLE)),
            ("kind: switch, num_gpus: 4", topologies.switch(4, *CABLE)),
            ("kind: full, num_gpus: 4", topologies.fully_connected(4, *CABLE)),
            ("kind: torus, shape: [4, 3]", topologies.torus([4, 3], *CABLE)),
            ("kind: mesh, shape: [4, 3]", topologies.mesh([4, 3], *CABLE)),
            (
                "kind: fat-tree, num_gpus: 8, gpus_per_leaf: 4, num_spines: 3, oversubscription: 2",
                topologies.fat_tree(8, *CABLE, ranks_per_leaf=4, num_spines=3, oversubscription=2.0),
            ),
            (
                "kind: fat-tree, num_gpus: 8, gpus_per_leaf: 4, num_spines: 3",
                topologies.fat_tree(8, *CABLE, ranks_per_leaf=4, num_spines=3, oversubscription=1.0),
            ),
            (
                "kind: photonic, num_gpus: 4, num_ports: 2, set_up_s: 0.5",
                topologies.photonic(4, *CABLE, num_ports=2, set_up_s=0.5),
            ),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_a_file_describes_the_network_that_it_names(
        self, fields: str, expected: Topology, tmp_path: Path
    ) -> None:
        file = tmp_path / "own.yaml"
        bandwidth, latency = CABLE
        file.write_text(
            f"network: {{{fields}, bandwidth_bytes_per_s: {bandwidth}, latency_s: {latency}}}",
            encoding="utf-8",
        )
        found = load_network(file).build()
        assert (found.num_ranks, found.ranks_per_node) == (expected.num_ranks, expected.ranks_per_node)
        links, wanted = (
            np.stack([net.source, net.target, net.bandwidth_bytes_per_s, net.latency_s])
            for net in (found, expected)
        )
        assert links.tolist() == wanted.tolist()
        if expected.circuits is not None:
            assert found.circuits is not None
            assert found.circuits.set_up_s == 0.5
            assert set(found.circuits.num_ports.tolist()) == {2}

    def test_half_a_card_halves_what_a_link_has(self) -> None:
        topology = load_network(next(path for path in EXAMPLES if path.stem == "rails")).build()
        at_half = [
            topology.link_name(link)
            for link in np.flatnonzero(topology.bandwidth_bytes_per_s == 25 * GIGA).tolist()
        ]
        assert sorted(at_half) == ["card 3 -> leaf 3", "leaf 3 -> card 3"]

    def test_accelerators_of_a_node_meet_at_its_switch(self, tmp_path: Path) -> None:
        file = tmp_path / "own.yaml"
        file.write_text(NODES_FILE.format(2, 3, "num_spines: 1"), encoding="utf-8")
        topology = load_network(file).build()
        assert (topology.num_ranks, topology.ranks_per_node) == (6, 3)
        assert [names_of(topology, f"gpu:{gpu}-nvswitch:{gpu // 3}") != set() for gpu in range(6)] == [
            True
        ] * 6

    def test_directions_of_a_cable_can_differ(self) -> None:
        topology = load_network(next(path for path in EXAMPLES if path.stem == "cables")).build()
        up, down = (LinkNames(topology).links_of(name) for name in ("leaf:1>spine:0", "spine:0>leaf:1"))
        assert topology.bandwidth_bytes_per_s[up] == 25 * GIGA
        assert topology.bandwidth_bytes_per_s[down] == 100 * GIGA


class TestRamp:
    @pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
    def test_it_is_0_unless_the_file_says_otherwise(self, path: Path) -> None:
        assert not load_network(path).build().ramp_s.any()

    @pytest.mark.parametrize(
        "name", ["ring", "switch", "full", "photonic", "torus", "mesh", "fat-tree", "dragonfly"]
    )
    def test_it_is_that_of_all_cables(self, name: str) -> None:
        file = load_network(next(path for path in EXAMPLES if path.stem == name))
        ramped = file.network.model_copy(update={"ramp_s": 3e-6}).build()
        assert set(ramped.ramp_s.tolist()) == {3e-6}

    def test_nodes_have_one_inside_and_one_through_cards(self) -> None:
        file = load_network(next(path for path in EXAMPLES if path.stem == "rails"))
        two = {"scale_up_ramp_s": 3e-6, "fabric_ramp_s": 1e-6}
        ramped = file.model_copy(update={"network": file.network.model_copy(update=two)}).build()
        for link in range(ramped.num_links):
            expected = 3e-6 if "nvswitch" in ramped.link_name(link) else 1e-6
            assert ramped.ramp_s[link] == expected

    def test_cables_have_each_their_own_in_both_directions(self, tmp_path: Path) -> None:
        file = tmp_path / "own.yaml"
        cable = "bandwidth_bytes_per_s: 1e9, latency_s: 0"
        file.write_text(
            "network: {kind: cables, num_gpus: 3, cables: ["
            f"{{ends: 'gpu:0>gpu:1', {cable}}}, {{ends: 'gpu:1-gpu:2', {cable}, ramp_s: 2e-6}}]}}",
            encoding="utf-8",
        )
        topology = load_network(file).build()
        assert topology.ranks_per_node == 1
        found = {topology.link_name(link): topology.ramp_s[link] for link in range(topology.num_links)}
        assert found == {"gpu 0 -> gpu 1": 0.0, "gpu 1 -> gpu 2": 2e-6, "gpu 2 -> gpu 1": 2e-6}

    def test_it_is_no_less_than_0(self, tmp_path: Path) -> None:
        file = tmp_path / "own.yaml"
        file.write_text(RING.replace("latency_s", "ramp_s: -1e-6, latency_s"), encoding="utf-8")
        with pytest.raises(InputError, match="ramp_s"):
            load_network(file)

    def test_small_collectives_lose_by_it(
        self, small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "own.yaml"
        steps = []
        for ramp in ("0", "1e-3"):
            file.write_text(RING.replace("latency_s", f"ramp_s: {ramp}, latency_s"), encoding="utf-8")
            asked = ("--gpus", "4", "--parallel", "dp", "--collectives", "ring", "--network", str(file))
            steps.append(answered(capsys, small, *asked).step_s)
        # An all-reduce of 1,632 bytes around four: 1.5 of them over each cable of 1 GB/s.
        assert steps[1] - steps[0] == pytest.approx(2 * (1e-3 * 1.5 * 1632 / 1e9) ** 0.5)


class TestCommand:
    @pytest.mark.parametrize(
        "options", [(), ("--parallel", "tp"), ("--parallel", "hop"), ("--parallel", "fsdp")], ids=str
    )
    def test_a_file_is_the_same_as_its_options(
        self,
        small: str,
        options: tuple[str, ...],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        file = tmp_path / "own.yaml"
        file.write_text(RING, encoding="utf-8")
        ours = ("--bandwidth", "1e9", "--latency", "1e-6")
        if "hop" in options:
            for network in (ours, ("--network", str(file))):
                assert main(["trace", "simulate", small, "--gpus", "4", *options, *network]) == 0
            return
        from_file = answered(capsys, small, "--gpus", "4", *options, "--network", str(file))
        assert from_file.step_s == answered(capsys, small, "--gpus", "4", *options, *ours).step_s

    def test_a_slow_link_is_the_hottest(self, small: str, capsys: pytest.CaptureFixture[str]) -> None:
        net = ("--gpus", "4", "--parallel", "dp", "--bandwidth", "1e6", "--latency", "0")
        whole = answered(capsys, small, *net)
        slow = answered(capsys, small, *net, "--slow-link", "gpu:1>gpu:2=0.5", "--collectives", "ring")
        # A ring of four moves as fast as its slowest link: 1.5 x 1,632 bytes over it at half of 1 MB/s.
        assert slow.step_s - whole.step_s == pytest.approx(1.5 * 1632 / 1e6)
        assert slow.hot_links[0].link == "gpu 1 -> gpu 2"

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--network", "rong"), "'rong' must be ring, switch, full, nodes, photonic, or a network file"),
            (("--network", "none.yaml"), "none.yaml: 1 problem cannot be read"),
            (("--slow-link", "card:3=0.5"), "--slow-link = card:3: is no link of network 'ring'"),
            (("--slow-link", "gpu:0-gpu:2=0.5"), "--slow-link = gpu:0-gpu:2: is no link of network 'ring'"),
            (("--slow-link", "gpu:1=0"), "'gpu:1=0' must be a link and the share that is left"),
            (("--slow-link", "gpu:1=2"), "'gpu:1=2' must be a link and the share that is left"),
            (("--slow-link", "gpu:1=1", "--slow-link", "gpu:1=.5"), "gives gpu:1 a second share"),
            (("--slow-link", "gpu:1=.5", "--rules", "triosim"), "--slow-link: is nothing that --rules"),
        ],
    )
    def test_what_is_not_there_is_named(
        self, small: str, options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert message in " ".join(refused(capsys, small, "--gpus", "4", *options).split())

    @pytest.mark.parametrize(
        "option", [("--bandwidth", "1e9"), ("--latency", "0"), ("--ramp", "0"), ("--ports", "3")]
    )
    def test_what_the_file_says_is_no_option(
        self, small: str, option: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "own.yaml"
        file.write_text(RING, encoding="utf-8")
        told = refused(capsys, small, "--gpus", "4", "--network", str(file), *option)
        assert f"{option[0]} is what the network file" in told

    def test_more_accelerators_than_the_file_has_are_refused(
        self, small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "own.yaml"
        file.write_text(RING, encoding="utf-8")
        assert "--gpus = 8: must be at most 4" in refused(
            capsys, small, "--gpus", "8", "--network", str(file)
        )

    def test_what_the_file_says_is_not_called_an_option(
        self, small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "own.yaml"
        file.write_text(RING + "num_gpus: 4\n", encoding="utf-8")
        told = refused(capsys, small, "--gpus", "4", "--network", str(file))
        assert "num_gpus = 4: unknown field" in told
        assert "--gpus" not in told

    def test_played_traces_have_accelerators_and_no_option_of_them(
        self, small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file, folder = tmp_path / "own.yaml", str(tmp_path / "astra")
        file.write_text(RING, encoding="utf-8")
        assert main(["trace", "export", small, "--gpus", "8", "--output", folder]) == 0
        capsys.readouterr()
        assert main(["trace", "play", folder, "--network", str(file)]) == 2
        told = capsys.readouterr().err
        assert "accelerators = 8: must be at most 4" in told
        assert "--gpus" not in told

    def test_an_algorithm_that_does_not_fit_is_named(
        self, small: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        told = refused(capsys, small, "--gpus", "3", "--collectives", "halving-doubling")
        assert "--collectives = halving-doubling: needs groups of a power of two, and one has 3" in told

    def test_a_plan_that_the_network_is_too_small_for_is_not_told_of_gpus_that_nobody_typed(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "own.yaml"
        file.write_text(RING, encoding="utf-8")
        plan = ("--plan", "accelerator=h100-sxm5-80gb,tp=8,dp=2", "--depth", "deep", "--network", str(file))
        assert main(["simulate", "examples/llama-3.1-70b.yaml", *plan]) == 2
        told = capsys.readouterr().err
        assert "num_gpus = 16: must be at most 4" in told
        assert "--gpus" not in told

    def test_a_plan_needs_a_file_where_traces_take_a_word(self, capsys: pytest.CaptureFixture[str]) -> None:
        plan = ("--plan", "accelerator=h100-sxm5-80gb", "--depth", "deep", "--network", "ring")
        assert main(["simulate", "examples/llama-3.1-70b.yaml", *plan]) == 2
        assert "'ring' must be a network file" in capsys.readouterr().err


class TestFile:
    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("[1, 2]", "must be a mapping with at least network"),
            ("", r"is empty: write at least network: \{kind: ...\}"),
            ("network: 3", "network = 3: must be a mapping of fields with kind: ring, switch"),
            ("name: x", "network: is missing"),
            ("network: .nan", r"1 problem\n  network = nan: must be a finite number"),
            ("network: {kind: .nan}", r"1 problem\n  network.kind = nan: must be a finite number"),
            ("network: {kind: [ring]}", r"network.kind = .*ring.*: must be a kind; nearest: "),
            (
                "network: {kind: cables, num_gpus: 2, cables: [{end: gpu:0-gpu:1}]}",
                r"network.cables\[0\].end = .*: unknown field; nearest: ends",
            ),
            ("network: {num_gpus: 3}", "network.kind: is missing; known: ring, switch"),
            ("network: {kind: tori}", "network.kind = 'tori': must be a kind; nearest: torus"),
            (RING + "salt: 3", "salt = 3: unknown field; nearest: .*ecmp_salt"),
            (
                RING.replace("latency_s", "latency"),
                "network.latency = 1e-06: unknown field; nearest: latency_s",
            ),
            (RING.replace("latency_s", "latency"), "network.latency_s: is missing"),
            (RING.replace("1e9", "-1"), "network.bandwidth_bytes_per_s = -1: must be at least 1"),
            (RING.replace("1e9", "1e-300"), "network.bandwidth_bytes_per_s = 1e-300: must be at least 1"),
            (RING + 'slow_links: {"gpu:0": 1e-300}', "slow_links.*: must be at least 1e-12"),
            (RING.replace("4", "70000"), "network.num_gpus = 70000: must be at most 65536"),
            (
                RING.replace("ring, num_gpus: 4", "mesh, shape: [300, 300]"),
                "network: has 90,000 accelerators",
            ),
            (
                RING.replace("ring, num_gpus: 4", "torus, shape: [4, 0]"),
                r"network.shape\[1\] = 0: must be at",
            ),
            (
                "network: {kind: nodes, num_nodes: 2, gpus_per_node: 8, cards_per_node: 12}",
                r"network.cards_per_node: 12 must be at most gpus_per_node \(8\) or a multiple.*nearest: 8, 16",
            ),
            (
                # Besides one for each accelerator: 16 from each of 60,000 leaves.
                RING.replace(
                    "ring, num_gpus: 4", "fat-tree, num_gpus: 60000, gpus_per_leaf: 1, num_spines: 16"
                ),
                "network: has 1,020,000 cables, at most 1,000,000 can be played",
            ),
            (
                # 2 for each of 8,000 accelerators, 8 below each of 1,000 leaves, and 1,000 above.
                NODES_FILE.format(1000, 8, "cards_per_node: 16, is_rail_optimized: false, num_spines: 1000"),
                "network: has 1,024,000 cables",
            ),
            (
                # 2 for each of 128 accelerators, 2 below each of 64 leaves, and 16,000 above.
                NODES_FILE.format(2, 64, "num_spines: 16000"),
                "network: has 1,024,384 cables",
            ),
            (
                # One for each accelerator, 3 within each of 1,500 groups, and 1,500 x 1,499 / 2 between them.
                DRAGONFLY.format(1500, 3, 2),
                "network: has 1,137,750 cables",
            ),
            (RING + 'slow_links: {"gpu:0": 1.5}', "slow_links.*: must be at most 1"),
            (RING + 'slow_links: {"leaf:0": 0.5}', r"slow_links\[leaf:0\]: is no link of network 'ring'"),
        ],
    )
    def test_each_wrong_field_is_named(self, text: str, told: str, tmp_path: Path) -> None:
        file = tmp_path / "own.yaml"
        file.write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match=told):
            load_network(file)

    def test_a_number_that_is_none_is_named_once(self, tmp_path: Path) -> None:
        file = tmp_path / "own.yaml"
        file.write_text(RING.replace("1e9", ".nan"), encoding="utf-8")
        with pytest.raises(InputError) as refusal:
            load_network(file)
        (problem,) = refusal.value.problems
        assert (problem.path, problem.rule) == ("network.bandwidth_bytes_per_s", "must be a finite number")

    def test_a_number_that_is_none_does_not_leave_out_a_field(self, tmp_path: Path) -> None:
        file = tmp_path / "own.yaml"
        (nodes,) = (path for path in EXAMPLES if path.stem == "nodes")
        text = nodes.read_text(encoding="utf-8").replace("cards_per_node: 4", "cards_per_node: .nan")
        file.write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match=r"network\.cards_per_node = nan: must be a finite number"):
            load_network(file)

    @pytest.mark.parametrize(
        ("ends", "told"),
        [
            ("gpu:0-leaf:3", "there is no leaf:3"),
            ("gpu:0-gpu:0", "must be two different ends"),
            ("gpu:0-gpu:00", "must be two different ends"),
            ("gpu:0", "must be two ends, such as gpu:0-leaf:0"),
        ],
    )
    def test_cables_have_two_ends(self, ends: str, told: str, tmp_path: Path) -> None:
        file = tmp_path / "own.yaml"
        cable = f'{{ends: "{ends}", bandwidth_bytes_per_s: 1, latency_s: 0}}'
        file.write_text(f"network: {{kind: cables, num_gpus: 1, switches: {{leaf: 1}}, cables: [{cable}]}}")
        with pytest.raises(InputError, match=told):
            load_network(file)

    def test_all_cables_without_ends_are_named_up_to_ten(self, tmp_path: Path) -> None:
        file = tmp_path / "own.yaml"
        broken = "".join(
            f'{{ends: "gpu:0-leaf:{number}", bandwidth_bytes_per_s: 1, latency_s: 0}}, '
            for number in range(13)
        )
        file.write_text(f"network: {{kind: cables, num_gpus: 1, switches: {{leaf: 1}}, cables: [{broken}]}}")
        with pytest.raises(InputError, match=r"no leaf:1; .*no leaf:10; and 2 more") as refusal:
            load_network(file)
        assert "leaf:11" not in str(refusal.value)

    def test_two_cables_between_the_same_ends_share_their_flows(self, tmp_path: Path) -> None:
        file = tmp_path / "own.yaml"
        cable = '{ends: "gpu:0-gpu:1", bandwidth_bytes_per_s: 1, latency_s: 0}'
        file.write_text(f"network: {{kind: cables, num_gpus: 2, cables: [{cable}, {cable}]}}")
        router = Router(load_network(file).build())
        ways = router.paths(0, 1, np.arange(64))
        taken = {tuple(router.table().links_of(way).tolist()) for way in ways.tolist()}
        assert len(taken) == 2

    def test_another_salt_draws_other_ways(self) -> None:
        path = next(path for path in EXAMPLES if path.stem == "fat-tree")
        ways = set()
        for salt in range(8):
            topology = load_network(path).model_copy(update={"ecmp_salt": salt}).build()
            router = Router(topology)
            (way,) = router.paths(0, 8).tolist()
            ways.add(tuple(router.table().links_of(way).tolist()))
        assert len(ways) > 1


class TestSlowLinks:
    def test_a_card_leads_to_its_leaf_and_a_leaf_to_the_spine(self) -> None:
        assert names_of(NODES, "card:3") == {"card 3 -> leaf 1", "leaf 1 -> card 3"}
        assert names_of(NODES, "leaf:1") == {"leaf 1 -> spine 0", "spine 0 -> leaf 1"}
        assert names_of(NODES, "scale-up:2") == {"gpu 2 -> nvswitch 1", "nvswitch 1 -> gpu 2"}

    def test_a_place_with_nothing_further_out_has_all_its_cables(self) -> None:
        assert names_of(ring(4, 1.0, 0.0), "gpu:0") == {
            "gpu 0 -> gpu 1",
            "gpu 1 -> gpu 0",
            "gpu 0 -> gpu 3",
            "gpu 3 -> gpu 0",
        }
        assert len(LinkNames(switch(4, 1.0, 0.0)).links_of("switch:0")) == 8

    def test_what_leads_outward_leads_to_no_neighbour_of_the_same_kind(self) -> None:
        builder = TopologyBuilder("ring with a switch")
        ranks = builder.add_ranks(3)
        builder.connect(ranks, np.roll(ranks, -1), 1.0, 0.0)
        builder.connect(ranks, builder.add("switch"), 1.0, 0.0)
        assert names_of(builder.build(), "gpu:0") == {"gpu 0 -> switch 0", "switch 0 -> gpu 0"}

    def test_one_direction_is_one_link(self) -> None:
        assert names_of(NODES, "card:0>leaf:0") == {"card 0 -> leaf 0"}

    def test_shares_of_links_that_meet_multiply(self) -> None:
        made = slowed(switch(2, 8.0, 0.0), {"gpu:0": 0.5, "gpu:0>switch:0": 0.5})
        assert made.bandwidth_bytes_per_s[LinkNames(made).links_of("gpu:0>switch:0")] == 2.0
        assert made.bandwidth_bytes_per_s[LinkNames(made).links_of("switch:0>gpu:0")] == 4.0

    def test_what_links_have_left_counts_all_shares_under_the_first_of_equal_names(self) -> None:
        by_file = slowed(switch(2, 8.0, 0.0), {"gpu:0": 0.5, "gpu:0>switch:0": 0.5})
        left = shares_left(slowed(by_file, {"gpu:00": 0.5}), ("gpu:0", "gpu:0>switch:0", "gpu:00"))
        assert left == {"gpu:0": (0.125, 0.25), "gpu:0>switch:0": (0.125, 0.125)}
        assert list(slow_links_in_words(left)) == [
            "gpu:0 at 0.125 to 0.25 of its bandwidth",
            "gpu:0>switch:0 at 0.125 of its bandwidth",
        ]

    @pytest.mark.parametrize(
        ("one", "other"),
        [("gpu:1", "gpu:01"), ("gpu:1-switch:0", "switch:00-gpu:1"), ("gpu:1>switch:0", "gpu:001>switch:0")],
    )
    def test_one_link_under_two_names_is_refused(self, one: str, other: str) -> None:
        with pytest.raises(InputError, match=f"slow_links = {other}: is {one} by another name"):
            slowed(switch(2, 8.0, 0.0), {one: 0.5, other: 0.5})

    def test_an_option_takes_its_share_of_what_the_file_leaves(self) -> None:
        made = slowed(slowed(switch(2, 8.0, 0.0), {"gpu:0": 0.5}), {"gpu:0": 0.5})
        assert sorted(made.bandwidth_bytes_per_s) == [2.0, 2.0, 8.0, 8.0]
        assert made.routed_bytes_per_s.tolist() == [8.0] * 4
