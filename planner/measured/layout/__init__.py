"""How was a measured run laid out? Degrees, batches, the order of its pipeline, and what replicas shard."""
