"""How good is it? Time, cost, energy and carbon of simulated designs, and which designs none beats.

scores   outcomes in, objectives and their parts out
pareto   front, hypervolume, compromise
"""
