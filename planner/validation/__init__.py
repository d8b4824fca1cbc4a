"""How near are simulated steps and runs to measured ones, and how sure is each?"""
