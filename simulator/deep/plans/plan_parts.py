"""What does every chunk of a plan's pipeline compute, send and share? Passes, weights and replica traffic, part by part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from simulator.deep.plans.plan_collectives import Collective, Group, Message, Operation, message, ring
from simulator.deep.plans.plan_ends import embedding_passes, module_passes, output_passes
from simulator.deep.plans.plan_items import PartPasses, collectives_of, moves, work, works_of
from simulator.deep.plans.plan_operators import layer_passes
from simulator.deep.plans.plan_vision import vision_passes
from simulator.domain.plan import shard_group
from simulator.layout.chunks import Chunks, ChunkWeights
from simulator.layout.expert_ranks import expert_ranks, expert_replicas, routed_shard_group
from simulator.layout.trained_weights import StepWeights
from simulator.machine.rank import Rank
from simulator.replicas.cast_weights import casts_in_passes_s, gathered_weight_bytes
from simulator.replicas.gradient_copies import gradient_copies_s, handles_gradients_apart
from simulator.replicas.replica_sync import scatters_gradients, tied_gradient_bytes
from simulator.replicas.shard_streams import stream_copies_s
from simulator.replicas.sharded_copies import gathered_copies_s, reduced_copies_s
from simulator.step.parts import (
    VISION,
    Part,
    counts_of_parts,
    has_backward,
    rank_of_part,
    weights_of_parts,
)
from simulator.step.whole_gradients import copies_s, summed_bytes, summed_weights
from simulator.traffic.stage_sends import sent_bytes

COPIES = "copies of sharded weights"
"""Label of FSDP2's copies."""
GRADIENT_COPIES = "sums and copies of gradients"
"""Label of kernels that sum gradients and copy them into buckets."""
CASTS = "casts of sharded weights"
"""Label of casts of gathered weights to 8 or 4 bits."""


@dataclass(frozen=True, kw_only=True)
class PlanParts:
    """The parts of the only design of `rank`."""

    rank: Rank
    chunks: Chunks

    @cached_property
    def kinds(self) -> tuple[tuple[Part, ...], ...]:
        """Kinds of the parts of each chunk, in the order of the model."""
        counts = counts_of_parts(self.rank.workload, self.rank.plans, self.chunks)
        return tuple(
            tuple(kind for kind, count in counts.items() for _ in range(round(count[0, chunk])))
            for chunk in range(int(self.chunks.num_chunks[0]))
        )

    @cached_property
    def passes(self) -> dict[Part, PartPasses]:
        """Passes by kind."""
        found = {kind for chunk in self.kinds for kind in chunk}
        return {kind: self._with_copies(kind, self._passes_of(kind)) for kind in found}

    def _passes_of(self, kind: Part) -> PartPasses:
        if kind in VISION:
            return vision_passes(self.rank, kind)
        if kind is Part.EMBEDDING:
            return embedding_passes(self.rank)
        if kind is Part.OUTPUT:
            return output_passes(self.rank)
        if kind is Part.MODULE:
            return module_passes(self.rank)
        return layer_passes(rank_of_part(self.rank, kind), is_expert=kind.has_experts)

    @cached_property
    def num_items(self) -> int:
        """Number of operators and collectives in all passes of one micro-batch, on one rank of each stage."""
        passes = [self.passes[kind] for chunk in self.kinds for kind in chunk]
        return sum(
            len(works_of(items)) + len(collectives_of(items))
            for each in passes
            for items in (each.forward, each.backward)
        )

    def _with_copies(self, kind: Part, passes: PartPasses) -> PartPasses:
        """Adds the copies of the weights that the passes gather and of the gradients that they produce."""
        weights = self.weights_of(kind)
        gathered = work(COPIES, float(gathered_copies_s(self.rank, weights)[0, 0]))
        again = work(COPIES, float(gathered_copies_s(self.rank, weights, is_backward=True)[0, 0]))
        reduced = work(COPIES, float(reduced_copies_s(self.rank, weights)[0, 0]))
        casts = [work(CASTS, float(each[0, 0])) for each in casts_in_passes_s(self.rank, weights.together)]
        if handles_gradients_apart(self.rank):
            reduced = (*reduced, *work(GRADIENT_COPIES, float(gradient_copies_s(self.rank, weights)[0, 0])))
        forward = (*gathered, *casts[0], *passes.forward)
        if not has_backward(self.rank.workload, kind):
            return replace(passes, forward=forward)
        return replace(passes, forward=forward, backward=(*again, *casts[1], *passes.backward, *reduced))

    def part_gathers(self, kind: Part) -> tuple[Collective, ...]:
        """Returns the weight gathers of a part in a pass, including copies on the stream of collectives before them."""
        weights = self.weights_of(kind)
        gathers = self.gathers(*(each for each in (weights.trained, weights.frozen) if each and each.is_any))
        return _longer(gathers, float(stream_copies_s(self.rank, weights)[0][0, 0]))

    def part_reductions(self, kind: Part) -> tuple[Collective, ...]:
        """Returns the gradient reductions of a part after a pass, including sums on the stream of collectives."""
        weights = self.weights_of(kind)
        trained = weights.trained
        reductions = self.reductions(trained) if trained.is_any else ()
        return _longer(reductions, float(stream_copies_s(self.rank, weights)[1][0, 0]))

    def weights_of(self, kind: Part) -> StepWeights:
        """Returns the weights of a part, `(1, 1)`."""
        return weights_of_parts(self.rank.workload, [kind])

    def chunk_weights(self, chunk: int) -> ChunkWeights:
        """Returns the trained weights of a chunk, `(1, 1)`, including the copy of a tied embedding and what pads buffers."""
        return self._exchanged.of_chunk(chunk)

    @cached_property
    def _exchanged(self) -> ChunkWeights:
        """What replicas exchange of all chunks once per step, `(1, C)`."""
        return StepWeights.of(self.rank.workload, self.rank.plans, self.chunks).exchanged

    @cached_property
    def groups(self) -> tuple[Group, Group]:
        """Groups that exchange weights and gradients: for the weights that every token meets, and for routed experts."""
        rank, plans, workload = self.rank, self.rank.plans, self.rank.workload
        shared = Group.of(rank, int(plans.tensor_parallel[0]), int(shard_group(plans)[0]))
        ranks = int(routed_shard_group(workload, plans)[0])
        return shared, Group.of(rank, int(expert_ranks(workload, plans)[0]), ranks)

    def _exchange(
        self, label: str, operation: Operation, num_bytes: tuple[float, float], groups: tuple[Group, Group]
    ) -> tuple[Collective, ...]:
        """Returns the traffic of replicas for these bytes of shared and of routed weights, each in its own group."""
        (shared_bytes, routed_bytes), (shared, routed) = num_bytes, groups
        found = [ring(label, operation, shared_bytes, shared, self.rank.links)]
        if routed_bytes > 0.0:
            found.append(ring(label, operation, routed_bytes, routed, self.rank.links))
        return moves(*found)

    def reductions(self, weights: ChunkWeights) -> tuple[Collective, ...]:
        """Returns the reduction of gradients: to their owners, or to all replicas."""
        rank, is_zero = self.rank, int(self.rank.plans.zero_stage[0]) == 0
        if bool(scatters_gradients(rank)[0]):
            return self._gradients(
                Operation.ALL_REDUCE if is_zero else Operation.REDUCE_SCATTER, weights, self.groups
            )
        plans, workload = rank.plans, rank.workload
        replicas = int((plans.data_parallel * plans.context_parallel)[0])
        every = (
            Group.of(rank, int(plans.tensor_parallel[0]), replicas),
            Group.of(rank, int(expert_ranks(workload, plans)[0]), int(expert_replicas(workload, plans)[0])),
        )
        return self._gradients(Operation.ALL_REDUCE, weights, every)

    def _gradients(
        self, operation: Operation, weights: ChunkWeights, groups: tuple[Group, Group]
    ) -> tuple[Collective, ...]:
        wire_bytes = float(self.rank.workload.wire_bytes)
        shared, routed = self._on_rank(weights)
        label = f"gradient {operation.value}"
        return self._exchange(label, operation, (wire_bytes * shared, wire_bytes * routed), groups)

    def _on_rank(self, weights: ChunkWeights) -> tuple[float, float]:
        """Shared and routed weights of one chunk, `(1, 1)`, that a rank holds."""
        shared = weights.shared_on_rank(self.rank.plans)
        routed = weights.routed_on_rank(self.rank.workload, self.rank.plans)
        return float(shared[0, 0]), float(routed[0, 0])

    def between_copies(self, weights: ChunkWeights) -> tuple[Collective, ...]:
        """Returns the once-per-step sum between copies of hybrid sharding, of the rank's share; empty without such copies."""
        rank, plans, workload = self.rank, self.rank.plans, self.rank.workload
        if not (plans.shard_ranks[0] and plans.zero_stage[0] and scatters_gradients(rank)[0]):
            return ()
        shared, routed = self.groups
        replicas = int((plans.data_parallel * plans.context_parallel)[0])
        copies = Group.of(rank, shared.span, replicas // shared.size)
        routed_copies = Group.of(rank, routed.span, int(expert_replicas(workload, plans)[0]) // routed.size)
        label, operation = "gradient all-reduce of copies", Operation.ALL_REDUCE
        found = [
            ring(label, operation, share * workload.wire_bytes, group, rank.links)
            for share, group in (
                (self._on_rank(weights)[0] / shared.size, copies),
                (float(weights.routed[0, 0]) / routed.span, routed_copies),
            )
            if share > 0.0
        ]
        return moves(*found)

    def between_tensor_ranks(self, chunks: Iterable[int]) -> tuple[Collective, ...]:
        """Returns the gradient sum of weights of these chunks that tensor-parallel ranks hold whole, including its copies."""
        rank = self.rank
        whole = summed_weights(rank, self._exchanged)[0]
        num_bytes = summed_bytes(rank, sum(float(whole[chunk]) for chunk in chunks))
        if num_bytes[0] == 0.0:
            return ()
        group = Group.of(rank, 1, int(rank.plans.tensor_parallel[0]))
        label = "gradient all-reduce of tensor-parallel ranks"
        summed = ring(label, Operation.ALL_REDUCE, float(num_bytes[0]), group, rank.links)
        return moves(summed.with_rest(summed.rest_s + float(copies_s(rank, num_bytes)[0])))

    def gathers(self, *weights: ChunkWeights) -> tuple[Collective, ...]:
        """Returns the gathers of weights, separately for each argument."""
        return tuple(
            each
            for part in weights
            for each in self._exchange(
                "weight all-gather", Operation.ALL_GATHER, self._gathered_bytes(part), self.groups
            )
        )

    def _gathered_bytes(self, weights: ChunkWeights) -> tuple[float, float]:
        """Bytes of a rank's shared and routed weights as they are gathered."""
        shared, routed = gathered_weight_bytes(self.rank.workload, self.rank.plans, weights)
        return float(shared[0, 0]), float(routed[0, 0])

    @cached_property
    def sent(self) -> Message:
        """One activation or its gradient; tensor-parallel ranks send a share each."""
        return message(float(sent_bytes(self.rank)[0]), self.rank.links)

    @cached_property
    def tied(self) -> Message | None:
        """Gradients of an embedding that both ends hold and sum up; `None` if there is nothing to sum.

        Two ranks that sum up a buffer send each other half of it twice.
        """
        num_bytes = float(tied_gradient_bytes(self.rank)[0])
        near, far = (
            ring(
                "tied",
                Operation.ALL_REDUCE,
                num_bytes,
                Group(stride=1, size=2, members_per_domain=g),
                self.rank.links,
            )
            for g in (2, 1)
        )
        if num_bytes == 0.0:
            return None
        return Message(
            num_bytes=num_bytes,
            near_rest_s=near.rest_s,
            far_rest_s=far.rest_s,
            near_bytes=near.near_bytes,
            far_bytes=far.far_bytes,
        )


def _longer(collectives: tuple[Collective, ...], by_s: float) -> tuple[Collective, ...]:
    """Returns collectives whose first takes longer by `by_s`."""
    return tuple(
        each if number else each.with_rest(each.rest_s + by_s) for number, each in enumerate(collectives)
    )
