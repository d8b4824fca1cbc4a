"""How good is a design? Its time, cost, energy and carbon, and which designs no other design beats.

usage, cost, carbon   what a run uses, and what that costs and emits, part by part
scores                simulated outcomes in, objectives and their parts out
metrics               the same per token, per exaFLOP, rented and bought
pareto                front, hypervolume, compromise
input_table           which inputs are uncertain, and what of a job changes with each
input_uncertainty     how conclusions hold up when prices, grids and footprints are drawn from their ranges
pausing               the run with pauses, or with a later start
baselines             what simpler tools would predict
"""
