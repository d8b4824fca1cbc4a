"""Which designs are best? Search, and what is kept of it.

study, search            a job in, its archive of evaluated designs out
algorithm                what a search algorithm is; exhaustive, evolution, neighbours, optuna_search, random_search, refine
evaluator, journal       where evaluations come from, and where they go before MLflow or an answer has them
store, identity          which studies there are, and when two are the same
tracking, bulk_runs      a study as an MLflow run with a run for each design beneath it
design_log               every evaluated design in one Parquet file
"""
