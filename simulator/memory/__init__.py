"""How much memory does a rank need, and for what?"""
