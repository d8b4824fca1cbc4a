"""How long does one micro-batch take in the layers of the model, forward and backward?"""
