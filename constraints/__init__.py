"""Is a design allowed? The rules of layouts, the limits of a job, and why no design meets them all.

registry              every constraint by its name
layout, lattice       which ways there are to split a model
layout_model          why no layout exists, and which one is nearest
bounds, space         what can be ruled out before simulation
removal               how many designs each constraint removes
limits, evaluation    which limits a simulated design exceeds
feasibility           which limits contradict each other
relaxation            what would make a design possible
stage_balance         how many layers each pipeline stage should hold
purchase_problem,     what to buy, reserve and rent for several jobs
  purchase_model
"""
