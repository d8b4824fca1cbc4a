"""Why is a design recommended, and what else should a reader know? One sentence per note."""
