"""With which number does a command end? docs/exit-codes.md says the same at length."""

OK, FAILED, BROKEN_INPUT, INFEASIBLE, INTERRUPTED, NO_READER = 0, 1, 2, 3, 130, 141
OF_ANSWER = {"recommended": OK, "infeasible": INFEASIBLE, "interrupted": INTERRUPTED}
"""By the status of an answer."""
