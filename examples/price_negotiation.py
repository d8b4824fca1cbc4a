"""At which price would we choose the other GPU? Bisection over its rent: `python examples/price_negotiation.py`."""

from pathlib import Path

from rich.console import Console

from planner import Job, load_job, recommend

JOB = Path(__file__).parent / "llama-3.1-70b.yaml"
CHALLENGER = "a100-sxm4-80gb"
LOWEST_USD, HIGHEST_USD = 0.4, 2.0
CLOSE_ENOUGH_USD = 0.02
QUICK = (
    "search.num_refinements=0",
    "search.micro_batch_sizes=[1]",
    "search.zero_stages=[1]",
    "search.checkpoint_schemes=[async]",
    "search.with_spares=[true]",
)
"""Leaves out decisions that hardly affect the answer here, which shortens the search to seconds."""


def main() -> None:
    """Prints the choice at the quoted price, and the rent at which the challenger would be chosen."""
    job, console = asked(), Console(highlight=False)
    quote = next(offer.rent_usd_per_gpu_hour for offer in job.offers if offer.accelerator.id == CHALLENGER)
    assert quote  # the example has a rental price
    console.print(f"at the quote of {quote.mid:.2f} USD/GPU-hour for {CHALLENGER}: {chosen(job, quote.mid)}")
    if chosen(job, LOWEST_USD) != CHALLENGER:
        console.print(f"not even {LOWEST_USD:.2f} USD/GPU-hour would change that")
        return
    if chosen(job, HIGHEST_USD) == CHALLENGER:
        console.print(f"{CHALLENGER} is chosen even at {HIGHEST_USD:.2f} USD/GPU-hour")
        return
    low, high = LOWEST_USD, HIGHEST_USD
    while high - low > CLOSE_ENOUGH_USD:
        middle = (low + high) / 2
        low, high = (middle, high) if chosen(job, middle) == CHALLENGER else (low, middle)
    console.print(f"{CHALLENGER} is chosen up to {low:.2f} USD/GPU-hour: offer them that")


def asked() -> Job:
    """Returns the job of the example with cost as its only objective, on fleets of 512 GPUs or more."""
    sizes = [f"offers[{index}].num_gpus.min=512" for index in range(3)]
    return load_job(JOB, ["objectives=[cost]", "limits.deadline_days=120", *sizes, *QUICK])


def chosen(job: Job, usd_per_gpu_hour: float) -> str:
    """Returns the accelerator that is recommended when the challenger has this rent."""
    offers = tuple(
        offer.model_copy(
            update={"rent_usd_per_gpu_hour": offer.rent_usd_per_gpu_hour.model_copy(
                update=dict.fromkeys(("low", "mid", "high"), usd_per_gpu_hour)
            )}
        )
        if offer.accelerator.id == CHALLENGER and offer.rent_usd_per_gpu_hour
        else offer
        for offer in job.offers
    )  # fmt: skip
    best = recommend(job.model_copy(update={"offers": offers}), seed=1, tracking=False).best
    return best.accelerator if best else "none"


if __name__ == "__main__":
    main()
