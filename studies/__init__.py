"""Which designs are best? Search, and its record in MLflow.

study, search, nsga2   a job in, its archive of evaluated designs out
tracking, bulk_runs    a study as an MLflow run with a run for each design beneath it
design_log             every evaluated design in one Parquet file
"""
