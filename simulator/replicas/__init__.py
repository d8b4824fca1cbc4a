"""What do replicas exchange of gradients and weights, and what do copies beside it take?"""
