"""How sure is an answer? Unsure inputs, what they do to the figures, and designs that cannot be told apart."""
