"""How many micro-batches may interleaved stages process, and in which groups? A Hypothesis strategy for tests."""

from __future__ import annotations

from hypothesis import strategies as st


@st.composite
def dealt_micro_batches(draw: st.DrawFn, num_stages: int) -> tuple[int, int]:
    """Returns m and N; each group, including the last one, has at least as many micro-batches as there are stages."""
    group_size = draw(st.integers(num_stages, 3 * num_stages + 2))
    left = draw(st.sampled_from([0, *range(num_stages, group_size)]))
    return group_size * draw(st.integers(1, 4)) + left, group_size
