"""How long does an optimizer step take? Its micro-batches, its replicas and its update, put together."""
