"""How does decentralised training read on a terminal? How fast it is, which workers are slow, and who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from planner.text import human
from planner.text.text_blocks import grid, headline, sentences, title
from planner.trace.hop_simulation import HopAnswer, HopWorker
from planner.trace.view import show_links

if TYPE_CHECKING:
    from rich.console import Console

MOST_WORKERS = 16
"""Number of workers that are listed; the JSON form has all of them."""


def show_hop(answer: HopAnswer, console: Console) -> None:
    """Writes iterations of decentralised training."""
    speed = f"{human.digits(answer.iterations_per_s)} iterations/s on average"
    headline(console, f"{answer.trace} on {human.count(answer.num_gpus)} workers: {speed}", is_good=True)
    sentences(console, _summary(answer))
    title(
        console, "Slowest workers: speed, waits for updates and tokens, and the workers they wait for longest"
    )
    grid(console, _rows(answer))
    if answer.num_gpus > MOST_WORKERS:
        sentences(console, [f"and {human.count(answer.num_gpus - MOST_WORKERS)} faster workers"])
    show_links(answer, console)


def _summary(answer: HopAnswer) -> Iterator[str]:
    rules = [f"graph {answer.graph}", f"gap of at most {human.count(answer.max_gap)}"]
    rules += [f"backup workers: {human.count(answer.num_backups)}"] if answer.num_backups else []
    rules += [f"updates up to {human.count(answer.staleness)} iterations old"] if answer.staleness else []
    rules += [f"skipping when {human.count(answer.skip_behind)} or more behind"] if answer.skip_behind else []
    yield ", ".join(rules)
    skipped = sum(worker.num_skipped for worker in answer.workers)
    samples = human.counted(answer.batch_size, "sample")
    yield (
        f"{human.counted(answer.num_iterations, 'iteration')} of {samples} on each worker in "
        f"{human.duration(answer.step_s)}: {human.digits(answer.samples_per_s)} samples/s"
    )
    yield (
        f"largest gap between neighbours {human.count(answer.largest_gap)}; {human.counted(skipped, 'iteration')} skipped"
    )


def _rows(answer: HopAnswer) -> Iterator[tuple[str, ...]]:
    slowest = sorted(answer.workers, key=lambda worker: (worker.iterations_per_s, worker.worker))
    for worker in slowest[:MOST_WORKERS]:
        skipped = f", {human.count(worker.num_skipped)} skipped" if worker.num_skipped else ""
        yield (
            f"worker {worker.worker}",
            f"{human.digits(worker.iterations_per_s)}/s{skipped}",
            f"updates {human.duration(worker.for_updates_s)}",
            f"tokens {human.duration(worker.for_tokens_s)}",
            _waits_for(worker),
        )


def _waits_for(worker: HopWorker) -> str:
    names = [f"{wait.worker} ({human.duration(wait.waited_s)})" for wait in worker.waits_for]
    return f"for {', '.join(names)}" if names else "for no other"
