"""With which exit code does a command end? docs/exit-codes.md has the details."""

OK, FAILED, BROKEN_INPUT, INFEASIBLE, INTERRUPTED, NO_READER = 0, 1, 2, 3, 130, 141
OF_ANSWER = {"recommended": OK, "infeasible": INFEASIBLE, "interrupted": INTERRUPTED}
"""Exit code by the status of an answer."""
