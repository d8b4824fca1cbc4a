"""How does a study reach MLflow? Runs, tables and curves, and the store that receives them."""
