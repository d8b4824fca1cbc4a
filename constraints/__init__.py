"""May it exist? The rules of layouts, the limits of a job, and why nothing keeps them all.

registry              every constraint by its name
layout, lattice       which splits of a model there are
layout_model          why there is none, and which is nearest
bounds, space         what can be ruled out before simulation
removal               how many designs each constraint removes
limits, evaluation    what a simulated design exceeds
feasibility           which limits contradict each other
relaxation            what would make a design possible
stage_balance         how many layers each pipeline stage should hold
purchase_problem,     what to buy, reserve and rent for several jobs
  purchase_model
"""
