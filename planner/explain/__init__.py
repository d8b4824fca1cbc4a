"""Why may a design not exist, and what would help? Constraints, checks, proofs."""
