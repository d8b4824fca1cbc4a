"""How good is it? Time, cost, energy and carbon of simulated designs, and which designs none beats.

usage, cost, carbon   what a run uses, and what that costs and emits, part by part
scores                outcomes in, objectives and their parts out
metrics               the same per token, per exaFLOP, rented and bought
pareto                front, hypervolume, compromise
input_uncertainty     what survives when prices, grids and footprints are drawn from their ranges
pausing               the run with pauses, or started later
baselines             what simpler tools would say
"""
