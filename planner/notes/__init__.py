"""Why is a design recommended, and what should a reader know besides its figures? A sentence each, or none."""
