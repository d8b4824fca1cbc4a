"""How is a job answered? A search finds the best designs, one is recommended, and the answer is written where it is wanted."""
