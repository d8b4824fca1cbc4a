"""Why is a design not allowed, and what would help? Constraints, checks, proofs."""
