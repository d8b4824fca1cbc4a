"""Is the step of a plan the same when its Chakra traces are read back and played?"""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.deep.collectives.collective_forms import Algorithm
from simulator.deep.networks.topologies import cluster, ring, switch
from simulator.deep.plans.plan_export import export_plan, step_on
from simulator.deep.plans.plan_step import plan_step
from simulator.deep.playing.play import play
from simulator.deep.traced_steps.chakra_play import chakra_step
from simulator.deep.traces.chakra import CommType, NodeType
from simulator.deep.traces.chakra_files import read_chakra
from simulator.errors import InputError
from simulator.units import MICROSECOND
from tests.simulator.builders import job_of, plan_of, training
from tests.simulator.deep.plan_cases import FEW, Case

ASTRA = Path(__file__).parents[2] / "data" / "astra"
CASES = ("tensor", "sharded weights", "pipeline", "interleaved", "zb-h1", "context", "experts on two nodes")


def _of_four_micro_batches(case: Case) -> Case:
    """Returns a step of at most four micro-batches of each replica."""
    workload = case.job.workload
    batch = min(workload.global_batch_size, 4 * case.plan.data_parallel)
    short = workload.model_copy(update={"global_batch_size": batch})
    return Case(job=case.job.model_copy(update={"workload": short}), plan=case.plan)


@pytest.mark.short(3)
@pytest.mark.parametrize("name", CASES)
def test_read_back_and_played_it_takes_as_long(name: str, tmp_path: Path) -> None:
    case = _of_four_micro_batches(FEW[name])
    export = export_plan(case.job, case.plan)
    export.write(tmp_path, "step")
    topology = switch(case.plan.num_gpus, 50e9, 1e-6)
    ranks = [read_chakra(tmp_path / f"step.{rank}.et") for rank in range(case.plan.num_gpus)]
    read = chakra_step(ranks, export.groups, topology)
    read_s = play(read.graph, topology, read.paths).makespan_s
    tasks, paths = step_on(case.job, case.plan, topology)
    own_s = play(tasks, topology, paths).makespan_s
    # Durations are whole microseconds there, with their sums kept; an operator may begin half a microsecond later.
    assert read_s == pytest.approx(own_s, abs=50 * MICROSECOND)


@pytest.mark.parametrize("name", ["data on two nodes"])
def test_on_nodes_it_takes_about_as_long_as_the_plan(name: str) -> None:
    # Around one ring with one card of each node it would take twice or three times as long. Latencies and what links
    # reach of their bandwidth differ: the plan's come from measurements.
    case = FEW[name]
    export = export_plan(case.job, case.plan)
    topology = cluster(
        case.plan.num_gpus // 8,
        8,
        scale_up_bytes_per_s=450e9,
        scale_up_latency_s=1e-6,
        card_bytes_per_s=50e9,
        fabric_latency_s=2e-6,
    )
    read = chakra_step(export.nodes, export.groups, topology)
    read_s = play(read.graph, topology, read.paths).makespan_s
    assert read_s == pytest.approx(plan_step(case.job, case.plan).step_time_s, rel=0.15)


@pytest.mark.parametrize(("schedule", "astra_ns"), [("gpipe", 56_681_914), ("zb_h1", 51_768_414)])
def test_a_pipeline_takes_as_long_as_in_astra_sim(schedule: str, astra_ns: int) -> None:
    # Exported steps of 8 micro-batches, played by ASTRA-sim with its congestion-aware analytical network at commit 4f387bc: a
    # ring of 50 GB/s, of 2^30 bytes, and 500 ns, one chunk, an end point of 1 ns. A stage of GPipe stands still while it sends:
    # without that its step would be 7 x 0.157 ms shorter.
    ranks = [read_chakra(ASTRA / schedule / f"step.{rank}.et") for rank in range(4)]
    groups = {1: (0, 3), 2: (0, 1, 2, 3)}
    step = chakra_step(ranks, groups, ring(4, 50 * 2**30, 5e-7), algorithm=Algorithm.RING)
    played_s = play(step.graph, step.topology, step.paths).makespan_s
    # What end points take there is in the last microsecond.
    assert played_s == pytest.approx(astra_ns * 1e-9, abs=2 * MICROSECOND)


def test_every_rank_has_its_collectives_with_their_true_bytes() -> None:
    job = job_of(training("llama-3.1-8b", sequence_length=4096, global_batch_size=4))
    export = export_plan(job, plan_of(tensor=2, data=2))
    nodes = export.nodes[0]
    gathers = [
        node
        for node in nodes
        if node.type is NodeType.COMM_COLL_NODE
        and node.number("comm_type") == CommType.ALL_GATHER
        and export.groups[int(str(node.attributes["pg_name"]))] == (0, 1)
    ]
    # Two micro-batches of 32 layers gather at two blocks forward, and twice backward, to enter and for the weights; the output
    # layer does once each, the embedding once. A rank contributes half of 4096 x 4096 values of 2 bytes.
    assert len(gathers) == 2 * (32 * 6 + 3)
    assert {node.number("comm_size") for node in gathers} == {4096 * 4096}
    assert len(export.nodes) == 4


def test_keys_and_values_of_a_ring_are_all_there() -> None:
    job = job_of(training("llama-3.1-8b", sequence_length=8192, global_batch_size=2))
    export = export_plan(job, plan_of(context=4, data=2))
    passed = [
        node.number("comm_size")
        for node in export.nodes[0]
        if node.type is NodeType.COMM_COLL_NODE
        and node.number("comm_type") == CommType.ALL_GATHER
        and export.groups[int(str(node.attributes["pg_name"]))] == (0, 1, 2, 3)
    ]
    # A rank has 2,048 of the tokens, each with 8 keys and 8 values of 128 numbers of 2 bytes. In 32 layers they go round
    # once forward, and twice backward, of which one time are gradients: keys alone first, both together twice, gradients alone.
    part = 2048 * 2 * 8 * 128 * 2
    assert passed[:32] == [part] * 32
    assert passed[32:] == [round(part / 3), round(part * 4 / 3), round(part / 3)] * 32


def test_a_step_of_too_many_nodes_is_refused() -> None:
    job = job_of(training("llama-3.1-70b", sequence_length=8192, global_batch_size=4096))
    with pytest.raises(InputError, match="nodes; at most 4,000,000 are written"):
        export_plan(job, plan_of(tensor=8, pipeline=4, data=16))
