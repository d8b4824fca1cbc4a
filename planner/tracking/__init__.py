"""How do studies reach MLflow, and where are they looked at?"""
