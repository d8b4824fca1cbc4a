"""How likely is a given number of nodes in repair at once, if some fail alone and others with their domain?"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, pdtrc, xlogy

from simulator.table import Floats


def probability_in_repair(num_nodes: Floats, alone: Floats, domains: Floats, domain_nodes: Floats) -> Floats:
    """Returns the probability that at least this many nodes are in repair, `(n,)`.

    With X nodes that failed alone and Y domains of k nodes, both Poisson (M/G/infinity),

        P(X + k Y >= c) = sum over j of P(Y = j) P(X >= c - k j).

    Args:
        num_nodes: c, whole numbers.
        alone: mean of X.
        domains: mean of Y.
        domain_nodes: k, whole numbers of at least 1.
    """
    enough = np.maximum(0.0, np.ceil(num_nodes / domain_nodes))
    counts = np.arange(enough.max(initial=0.0))
    missing = num_nodes[:, None] - domain_nodes[:, None] * counts
    mean = domains[:, None]
    of_count = np.exp(xlogy(counts, mean) - mean - gammaln(counts + 1.0))
    reached = np.where(missing > 0.0, pdtrc(np.maximum(missing, 1.0) - 1.0, alone[:, None]), 0.0)
    by_domains = probability_of_at_least(enough, domains)
    return np.asarray(by_domains + (of_count * reached).sum(axis=1))


def probability_of_at_least(number: Floats, mean: Floats) -> Floats:
    """Returns the probability that a Poisson number with this mean is at least a whole number, `(n,)`."""
    return np.where(number > 0.0, pdtrc(np.maximum(number, 1.0) - 1.0, mean), 1.0)
