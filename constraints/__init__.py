"""May it exist? The rules of layouts, the limits of a job, and why nothing keeps them all.

layout, lattice       which splits of a model there are
bounds, space         what can be ruled out before simulation
limits, evaluation    what a simulated design exceeds
feasibility           which limits contradict each other
relaxation            what would make a design possible
"""
