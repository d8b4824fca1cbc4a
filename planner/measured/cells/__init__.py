"""How are the cells of a row read? As text, as numbers, and as yes or no."""
