"""Which gradients and weights do replicas exchange, and how long do the copies around it take?"""
