"""How close are simulated steps and runs to measured ones, and how certain is each?"""
