"""How long does the traffic inside a pass keep network cards busy, and what does other traffic on them wait for?

Tensor, context and expert parallelism, sends between stages and the replicas of one job use the same cards. Bytes that are on a
card at the same time take the sum of their times. Let x be the pass of a chunk, w the card time of its own collectives, y a
stream of the replicas that overlaps with it in K pieces, and q a send:

    end = max(x + y/K, x/K + y + w (K-1)/K)            own traffic after the first piece goes before the rest
    y + q                                              gradients of a chunk, with its last send to the chunk before
    step + sum of min(q, y)                            these sends, of all chunks but the first
    send = q (1 + min(1, w/x))                         beside a pass, where it does not stand still for the send

This holds as long as all of it leaves the link domain. Where several replicas are in one, they share its scale-up links, too,
but for sends (`simulator.step.replica_streams`). So do shards of ZeRO that overlap with a part: `simulator.step.beside_shards`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from simulator.compiled import compiled
from simulator.domain.lora import FEED_FORWARD_PRODUCTS, AdaptedProduct
from simulator.domain.plan import Recompute
from simulator.layers.encoder_costs import encoder_rank, encoder_share, projector_collectives_s
from simulator.layers.input_gradients import entered_in_layer, entered_in_output, gathered_again_s
from simulator.layers.model_ends import embedding_collectives_s
from simulator.layers.recomputed_modules import repeats_block, repeats_core, repeats_exchange
from simulator.layers.token_prediction import projection_traffic_s
from simulator.layout.expert_ranks import expert_ranks
from simulator.machine.rank import Rank, members_in_domain, once_per_rank
from simulator.memory.predicted_tokens import plans_of_modules
from simulator.row_sums import sum_columns
from simulator.step.parts import VISION, Part, rank_of_part
from simulator.table import Booleans, Floats, Integers, total
from simulator.traffic.adapter_exchange import adapter_exchange_s
from simulator.traffic.context_exchange import context_exchange_s
from simulator.traffic.expert_exchange import exchange_alone_s
from simulator.traffic.latent_exchange import indexer_exchange_s
from simulator.traffic.layer_collectives import (
    Directions,
    entering_s,
    layer_s,
    repeated_s,
)
from simulator.traffic.linear_exchange import layer_exchange_s


def uses_cards(rank: Rank) -> bool:
    """Returns whether the layers of any design have collectives that leave a link domain."""
    plans = rank.plans
    experts = expert_ranks(rank.workload, plans)
    beside = plans.tensor_parallel * plans.context_parallel
    return bool(np.any(leaves_domain(rank, 1, beside) | leaves_domain(rank, 1, experts)))


def has_collectives(rank: Rank) -> Booleans:
    """Returns which designs have collectives inside their passes, `(n,)`."""
    plans = rank.plans
    beside = plans.tensor_parallel * plans.context_parallel
    return np.asarray((beside > 1) | (expert_ranks(rank.workload, plans) > 1))


def parts_card_s(rank: Rank, kinds: Iterable[Part]) -> list[Directions]:
    """Returns the seconds of card time of one micro-batch in parts of the model, forward and backward, `(n,)`."""
    cards = replace(rank, links=rank.links.on_cards_alone())
    return [part_traffic_s(cards, kind) for kind in kinds]


def part_traffic_s(rank: Rank, kind: Part) -> Directions:
    """Returns the time of the collectives of one micro-batch in a part, including what its computation hides, `(n,)`."""
    if kind in VISION:
        return _vision_traffic_s(rank, kind)
    if kind is Part.EMBEDDING:
        return embedding_collectives_s(rank)
    if kind is Part.OUTPUT:
        number, (forward_s, backward_s) = rank.workload.model.num_predicted_tokens, entering_s(rank)
        return number * forward_s, number * (backward_s + gathered_again_s(rank, [entered_in_output(rank)]))
    if kind is Part.MODULE:
        return _module_traffic_s(rank)
    return _layer_traffic_s(rank_of_part(rank, kind), is_expert=kind.has_experts)


def _vision_traffic_s(rank: Rank, kind: Part) -> Directions:
    """A part of the vision encoder; a frozen one has no backward pass."""
    none_s = np.zeros(len(rank.plans))
    if kind is Part.PATCHES:
        return none_s, none_s
    if kind is Part.PROJECTOR:
        return projector_collectives_s(rank)
    forward_s, backward_s = _layer_traffic_s(encoder_rank(rank), is_expert=False)
    share = encoder_share(rank)
    return share * forward_s, share * backward_s if rank.workload.trained_vision == "all" else none_s


def _module_traffic_s(rank: Rank) -> Directions:
    """A module of multi-token prediction with its layer."""
    in_layer = replace(rank, plans=plans_of_modules(rank.workload, rank.plans))
    layer_s = _layer_traffic_s(in_layer, is_expert=rank.workload.model.has_expert_modules)
    own_s = projection_traffic_s(rank)
    return own_s[0] + layer_s[0], own_s[1] + layer_s[1]


def _layer_traffic_s(rank: Rank, *, is_expert: bool) -> Directions:
    """One layer, including what its computation hides."""
    none_s = np.zeros(len(rank.plans))
    tensor_s = layer_s(rank, is_expert=is_expert)
    adapters_s = adapter_exchange_s(rank, tuple(AdaptedProduct))
    attention_s = context_exchange_s(rank, (none_s, none_s))
    context_s = layer_exchange_s(rank, attention_s)
    indexer_s = indexer_exchange_s(rank)
    expert_s = exchange_alone_s(rank) if is_expert else (none_s, none_s)
    forward_s, backward_s = (
        total(traffic) for traffic in zip(tensor_s, adapters_s, context_s, indexer_s, expert_s, strict=True)
    )
    backward_s = backward_s + gathered_again_s(rank, entered_in_layer(rank, is_expert=is_expert))
    is_full = rank.plans.recompute == Recompute.FULL.code
    block_s = repeated_s(rank) + adapter_exchange_s(rank, FEED_FORWARD_PRODUCTS)[0]
    again_s = is_full * forward_s + repeats_block(rank, is_expert=is_expert) * block_s
    core_s = rank.workload.model.attention_share * attention_s[0] + indexer_s[0]
    again_s = again_s + repeats_core(rank) * core_s
    if is_expert:
        again_s = again_s + repeats_exchange(rank) * expert_s[0]
    return forward_s, backward_s + again_s


@once_per_rank
def replicas_leave_domain(rank: Rank) -> Booleans:
    """Returns which designs have replicas in several link domains, whose traffic uses network cards, `(n,)`."""
    plans = rank.plans
    return leaves_domain(rank, plans.tensor_parallel, plans.data_parallel * plans.context_parallel)


def leaves_domain(rank: Rank, stride: Integers | int, group_size: Integers) -> Booleans:
    """Returns whether a group whose ranks are `stride` apart has members in several link domains, `(n,)`."""
    return np.asarray(members_in_domain(rank, stride, group_size) < group_size)


def beside_own_traffic_s(stream_s: Floats, pass_s: Floats, own_s: Floats, num_pieces: Integers) -> Floats:
    """Returns the time of a stream that would end alone on the cards when this one ends next to a pass's own traffic.

    Alone it ends at F(y) = max(x + y/K, x/K + y), next to own traffic at E (see above); the result inverts F.

    Args:
        stream_s: y, of every chunk `(n, C)`.
        pass_s: x, likewise.
        own_s: w, likewise; 0 leaves the stream as it is.
        num_pieces: K, likewise; with 0 or 1 nothing travels beside the pass.
    """
    stream_s, pass_s, own_s = (np.ascontiguousarray(times_s) for times_s in (stream_s, pass_s, own_s))
    return _longer_s(stream_s, pass_s, own_s, np.ascontiguousarray(num_pieces))


@compiled
def _longer_s(stream_s: Floats, pass_s: Floats, own_s: Floats, num_pieces: Integers) -> Floats:
    longer_s = stream_s.copy()
    for row in range(stream_s.shape[0]):
        for chunk in range(stream_s.shape[1]):
            if stream_s[row, chunk] > 0.0 and own_s[row, chunk] > 0.0:
                alone_s, beside_s = stream_s[row, chunk], pass_s[row, chunk]
                piece = 1.0 / max(1, num_pieces[row, chunk])
                waits_s = np.minimum(own_s[row, chunk], beside_s) * (1.0 - piece)
                end_s = np.maximum(beside_s + piece * alone_s, piece * beside_s + alone_s + waits_s)
                turned_s = np.minimum(end_s - piece * beside_s, (end_s - beside_s) / piece)
                longer_s[row, chunk] = np.maximum(alone_s, turned_s)
    return longer_s


def with_last_send_s(stream_s: Floats, send_card_s: Floats) -> Floats:
    """Returns gradients of chunks `(n, C)` that share the cards with the last send, `(n,)`, to the previous chunk.

    The first chunk sends nothing back.
    """
    if not send_card_s.any():
        return stream_s
    longer_s = stream_s.copy()
    longer_s[:, 1:] += (stream_s[:, 1:] > 0.0) * send_card_s[:, None]
    return longer_s


def last_sends_wait_s(stream_s: Floats, send_card_s: Floats) -> Floats:
    """Returns how much longer a step is because the last sends share the cards with gradients of their chunks, `(n,)`.

    These gradients begin when the send does, `(n, C)`; the last backwards of a micro-batch follow each other from chunk to
    chunk.
    """
    return sum_columns(np.minimum(send_card_s[:, None], stream_s[:, 1:]))
