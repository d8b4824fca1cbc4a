"""Which designs are best? Search, and what is kept of it.

study, search    a job in, its archive of evaluated designs out; `algorithm` is what a search asks for designs
searchers        NSGA-II and NSGA-III, Optuna's samplers, chance, neighbours, and refinement of a front
evaluation       where evaluations come from: this process, many machines, other studies
designs          keys, knobs and front of designs
files            which studies there are on disk, when two are the same, and every evaluated design
tracking         a study as an MLflow run with a run for each design beneath it
"""
