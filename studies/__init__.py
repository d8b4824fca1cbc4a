"""Which designs are best? The search, and what is stored of it.

study, search    a job in, its archive of evaluated designs out; `algorithm` is the interface that proposes designs
searchers        NSGA-II and NSGA-III, Optuna's samplers, random search, neighbours, and refinement of a front
evaluation       where evaluations come from: this process, many machines, other studies
designs          keys and knobs of designs, and their front
files            which studies are on disk, when two are the same, and every evaluated design
tracking         a study as an MLflow run, with a child run for each design
"""
