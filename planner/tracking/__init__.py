"""How do studies reach MLflow, and where can they be viewed?"""
