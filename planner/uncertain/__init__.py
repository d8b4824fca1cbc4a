"""How certain is an answer? Uncertain inputs, their effect on the figures, and indistinguishable designs."""
