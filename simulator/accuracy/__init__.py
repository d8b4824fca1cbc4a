"""How far are simulated steps from measured ones?"""
