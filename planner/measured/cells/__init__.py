"""What do the cells of a row say, as text, as numbers, and as yes or no?"""
