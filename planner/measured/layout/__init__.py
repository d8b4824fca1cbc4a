"""How was a measured run laid out? Its degrees, batches, pipeline schedule, and what its replicas shard."""
