"""Which collectives run where tensor-parallel ranks enter a block, or an end of the model, and where they leave it?"""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulator.deep.plans.plan_collectives import Collective, Group, Operation, ring
from simulator.deep.plans.plan_items import moves
from simulator.domain.lora import AdaptedProduct
from simulator.domain.model import ModelShape
from simulator.layers.encoder_costs import encoder_rank, encoder_share, projector_traffic
from simulator.layers.token_prediction import streams_bytes
from simulator.machine.rank import Rank
from simulator.memory.predicted_tokens import entering_values
from simulator.table import Floats
from simulator.traffic.latent_exchange import NUM_LATENTS, indexer_bytes, latent_bytes
from simulator.traffic.layer_collectives import num_entered

Ways = tuple[tuple[Collective, ...], tuple[Collective, ...]]
"""Collectives forward and backward."""


@dataclass(frozen=True, kw_only=True)
class TensorEnds:
    """Collectives where tensor-parallel ranks enter and leave a block, forward and backward."""

    entering: Ways
    leaving: Ways

    @classmethod
    def of(cls, rank: Rank) -> TensorEnds:
        """Returns the ends of the embedding and the output layer of the only design."""
        return cls._of(rank, (rank.hidden_bytes, rank.hidden_bytes))

    @classmethod
    def of_block(cls, rank: Rank, *products: AdaptedProduct) -> TensorEnds:
        """Returns the ends of a layer's block that these products begin; they gather 16 bits if they have adapters."""
        ends = cls._of(rank, rank.block_gather_bytes, cls._largest(rank))
        entering = cls.of(rank).entering if any(map(rank.is_adapted, products)) else ends.entering
        number = num_entered(rank.workload, products)
        return replace(ends, entering=(number * entering[0], number * entering[1]))

    @classmethod
    def again(cls, rank: Rank, num_bytes: Floats) -> tuple[Collective, ...]:
        """Returns the collective that gathers `num_bytes` of a product's input again in the backward pass, if any."""
        return cls._all(rank, Operation.ALL_GATHER, num_bytes) if num_bytes[0] > 0.0 else ()

    @classmethod
    def _largest(cls, rank: Rank) -> tuple[Collective, ...]:
        """The collective that the ranks run before a gather to agree on the largest value, if any."""
        has_any = rank.largest_bytes[0] > 0.0
        return cls._all(rank, Operation.ALL_REDUCE, rank.largest_bytes) if has_any else ()

    @classmethod
    def of_attention(cls, rank: Rank) -> TensorEnds:
        """Returns the ends of the attention block; with latent attention the latents enter it.

        In a hybrid they are those of linear attention, then those of attention, each by its share of a layer.
        """
        model, ends = rank.workload.model, cls._of_attention(rank)
        if model.linear_attention is None:
            return ends
        linear = cls._of(rank, rank.block_gather_bytes, cls._largest(rank))
        return cls(
            entering=_shared(model, linear.entering, ends.entering),
            leaving=_shared(model, linear.leaving, ends.leaving),
        )

    @classmethod
    def _of_attention(cls, rank: Rank) -> TensorEnds:
        ends = cls.of_block(rank, AdaptedProduct.QKV)
        if rank.workload.model.latent_attention is None:
            return ends
        gathered, summed = latent_bytes(rank)
        has_scatter = rank.workload.has_sequence_parallel
        backward = Operation.REDUCE_SCATTER if has_scatter else Operation.ALL_REDUCE
        ahead = NUM_LATENTS * cls._largest(rank)
        gathers = (*ahead, *cls._all(rank, Operation.ALL_GATHER, *gathered))
        entering = gathers, cls._all(rank, backward, *summed)
        return replace(ends, entering=entering)

    @classmethod
    def of_indexer(cls, rank: Rank) -> Ways:
        """Returns what an indexer gathers forward and what is added up for its loss, as often as a layer has an indexer."""
        gathered, summed = indexer_bytes(rank)
        share = rank.workload.model.indexer_share
        gathers = cls._all(rank, Operation.ALL_GATHER, *gathered)
        sums = cls._all(rank, Operation.ALL_REDUCE, *summed)
        return tuple(each.scaled(share) for each in gathers), tuple(each.scaled(share) for each in sums)

    @classmethod
    def of_projection(cls, rank: Rank) -> TensorEnds:
        """Returns the ends of the projection of multi-token prediction, which returns the residual whole."""
        inputs, has_scatter = entering_values(rank.workload.model), rank.workload.has_sequence_parallel
        summed, whole = inputs * rank.hidden_bytes, cls._all(rank, Operation.ALL_GATHER, streams_bytes(rank))
        if not has_scatter:
            return cls(entering=((), cls._all(rank, Operation.ALL_REDUCE, summed)), leaving=(whole, ()))
        gathered = cls._all(rank, Operation.ALL_GATHER, inputs * rank.block_gather_bytes[0])
        scatter = cls._all(rank, Operation.REDUCE_SCATTER, summed)
        return cls(entering=((*cls._largest(rank), *gathered), scatter), leaving=(whole, whole))

    @classmethod
    def of_projectors(cls, rank: Rank) -> Ways:
        """Returns what tensor-parallel ranks exchange behind projectors of a vision encoder, and backward ahead of them."""
        ranks, traffic = encoder_rank(rank), projector_traffic(rank)
        forward = (
            *cls._all(ranks, Operation.ALL_REDUCE, *traffic.summed),
            *cls._all(ranks, Operation.ALL_GATHER, *traffic.gathered),
        )
        backward = cls._all(ranks, Operation.ALL_REDUCE, *traffic.summed_back)
        share = float(encoder_share(rank)[0])
        return tuple(each.scaled(share) for each in forward), tuple(each.scaled(share) for each in backward)

    @classmethod
    def _of(
        cls, rank: Rank, gathered: tuple[Floats, Floats], ahead: tuple[Collective, ...] = ()
    ) -> TensorEnds:
        if not rank.workload.has_sequence_parallel:
            reduce = cls._all(rank, Operation.ALL_REDUCE, rank.hidden_bytes)
            return cls(entering=((), reduce), leaving=(reduce, ()))
        scatter = cls._all(rank, Operation.REDUCE_SCATTER, rank.hidden_bytes)
        forward, backward = (
            (*ahead, *cls._all(rank, Operation.ALL_GATHER, num_bytes)) for num_bytes in gathered
        )
        return cls(entering=(forward, scatter), leaving=(scatter, backward))

    @staticmethod
    def _all(rank: Rank, operation: Operation, *num_bytes: Floats) -> tuple[Collective, ...]:
        group = Group.of(rank, 1, int(rank.plans.tensor_parallel[0]))
        label = f"tensor {operation.value}"
        return moves(*(ring(label, operation, float(each[0]), group, rank.links) for each in num_bytes))


def _shared(model: ModelShape, linear: Ways, attention: Ways) -> Ways:
    """Collectives of linear attention and of attention, each so often as a layer has such blocks."""
    forward, backward = (
        (
            *(each.scaled(model.linear_share) for each in of_linear),
            *(each.scaled(model.attention_share) for each in of_attention),
        )
        for of_linear, of_attention in zip(linear, attention, strict=True)
    )
    return forward, backward
