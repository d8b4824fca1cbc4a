"""Which layers, weights, tokens and states does a rank have? The plan, laid out over the model."""
