"""Is DualPipe, played in both directions, DualPipeV on half of the stages with half of the micro-batches?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from simulator.pipeline.schedule import play_pipelines
from simulator.pipeline.shape import DUAL_PIPE_V

Work = tuple[str, int, int]
"""Forward (F), whole backward (B), gradient of the inputs (I) or of the weights (W), of a direction and a micro-batch of it."""


class _Device:
    """What one of p devices does with m/2 micro-batches of either direction: `dualpipe.py` of deepseek-ai/DualPipe."""

    def __init__(self, rank: int, num_devices: int, half_batch: int) -> None:
        self.half = min(rank, num_devices - 1 - rank)
        self.is_second, self.num_devices, self.half_batch = rank >= num_devices // 2, num_devices, half_batch
        self.next = {(kind, phase): 0 for kind in "FB" for phase in (0, 1)}
        self.late: list[tuple[int, int]] = []

    def _forward(self, phase: int) -> Work:
        self.next["F", phase] += 1
        return "F", phase ^ self.is_second, self.next["F", phase] - 1

    def _backward(self, phase: int, *, is_split: bool = False) -> Work:
        self.next["B", phase] += 1
        direction, number = phase ^ self.is_second, self.next["B", phase] - 1
        if is_split:
            self.late.append((direction, number))
        return "I" if is_split else "B", direction, number

    def _weights(self) -> Work:
        return "W", *self.late.pop(0)

    def work(self) -> Iterator[tuple[Work, ...]]:
        """Yields what is done at a time: one, or a forward and a backward as a pair."""
        to_middle, from_end = self.num_devices // 2 - 1 - self.half, self.half + 1
        for _ in range(2 * to_middle):
            yield (self._forward(0),)
        for _ in range(from_end):
            yield (self._forward(0),)
            yield (self._forward(1),)
        for _ in range(to_middle):
            yield (self._backward(1, is_split=True),)
            yield (self._weights(),)
            yield (self._forward(1),)
        for number in range(self.half_batch - self.num_devices + from_end):
            pair = self._forward(0), self._backward(1)
            if number == 0 and to_middle == 0:
                yield (pair[0],)
                yield (pair[1],)
            else:
                yield pair
            yield self._forward(1), self._backward(0)
        for _ in range(to_middle):
            yield (self._backward(1),)
            yield self._forward(1), self._backward(0)
        is_split = False
        for number in range(from_end):
            is_split = is_split or (number == from_end // 2 and self.half % 2 == 1)
            yield (self._backward(1, is_split=is_split),)
            is_split = is_split or (number == from_end // 2 and self.half % 2 == 0)
            yield (self._backward(0, is_split=is_split),)
        for _ in range(to_middle):
            yield (self._weights(),)
            yield (self._backward(0, is_split=True),)
        while self.late:
            yield (self._weights(),)


class _Player:
    """Plays DualPipe on as many devices as stages have times, `F`, `I` and `W`."""

    def __init__(self, times_s: dict[str, list[float]], num_micro_batches: int) -> None:
        self.times_s, self.last = times_s, len(times_s["F"]) - 1
        self.lists = [
            list(_Device(rank, self.last + 1, num_micro_batches // 2).work()) for rank in range(self.last + 1)
        ]
        self.done_s: dict[tuple[str, int, int, int], float] = {}

    def step_s(self) -> float:
        free_s, places = [0.0] * len(self.lists), [0] * len(self.lists)
        while any(place < len(items) for place, items in zip(places, self.lists, strict=True)):
            before = list(places)
            for rank, items in enumerate(self.lists):
                while places[rank] < len(items) and self._is_ready(rank, items[places[rank]]):
                    free_s[rank] = self._do(rank, items[places[rank]], free_s[rank])
                    places[rank] += 1
            assert places != before, "the devices wait for each other"
        return max(free_s)

    def _is_ready(self, rank: int, pair: Sequence[Work]) -> bool:
        return all(source is None or source in self.done_s for source in self._sources(rank, pair))

    def _do(self, rank: int, pair: Sequence[Work], free_s: float) -> float:
        sources = [source for source in self._sources(rank, pair) if source is not None]
        end_s = max([free_s, *(self.done_s[source] for source in sources)])
        end_s += sum(self._length_s(rank, work) for work in pair)
        for kind, direction, number in pair:
            if kind != "W":
                left = "F" if kind == "F" else "B"
                self.done_s[left, direction, self._stage(rank, direction), number] = end_s
        return end_s

    def _sources(self, rank: int, pair: Sequence[Work]) -> list[tuple[str, int, int, int] | None]:
        return [self._source(*work, self._stage(rank, work[1])) for work in pair]

    def _source(self, kind: str, direction: int, number: int, stage: int) -> tuple[str, int, int, int] | None:
        if kind == "W" or (kind == "F" and stage == 0):
            return None
        if kind == "F":
            return "F", direction, stage - 1, number
        return ("F", direction, stage, number) if stage == self.last else ("B", direction, stage + 1, number)

    def _length_s(self, rank: int, work: Work) -> float:
        stage = self._stage(rank, work[1])
        return sum(self.times_s[part][stage] for part in ("IW" if work[0] == "B" else work[0]))

    def _stage(self, rank: int, direction: int) -> int:
        return rank if direction == 0 else self.last - rank


@pytest.mark.parametrize(
    ("num_devices", "num_micro_batches"), [(4, 8), (4, 12), (6, 12), (6, 20), (8, 16), (8, 30), (16, 120)]
)
def test_dual_pipe_takes_what_its_equal_of_half_the_stages_takes(
    num_devices: int, num_micro_batches: int
) -> None:
    draw = np.random.default_rng(num_devices * num_micro_batches)
    for _ in range(5):
        times_s = {kind: draw.uniform(0.5, 2.0, num_devices) for kind in "FIW"}
        nothing = np.zeros((1, num_devices))
        equal = play_pipelines(
            schedule=[DUAL_PIPE_V],
            num_stages=[num_devices // 2],
            num_chunks_per_stage=[2],
            num_micro_batches=[num_micro_batches // 2],
            chunk_forward_s=times_s["F"][None],
            chunk_backward_s=(times_s["I"] + times_s["W"])[None],
            chunk_weight_gradient_s=times_s["W"][None],
            send_s=[0.0],
            send_blocks_sender=[False],
            gradient_sync_s=nothing,
            parameter_gather_s=nothing,
            num_overlap_buckets=[0],
        )
        player = _Player({kind: times.tolist() for kind, times in times_s.items()}, num_micro_batches)
        assert player.step_s() == pytest.approx(equal.step_s[0], rel=1e-9)
