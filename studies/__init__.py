"""Which designs are best? Search, evaluation in batches, and their record in MLflow.

    evaluation            a batch of designs in, scores and violations out
    tracking, bulk_runs   a study as an MLflow run with a run for each design beneath it
    design_log            every evaluated design in one Parquet file
"""
