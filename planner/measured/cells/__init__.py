"""What stands in the cells of a row, as text, as numbers, and as yes or no?"""
