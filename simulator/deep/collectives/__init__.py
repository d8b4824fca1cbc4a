"""Which messages does a collective consist of?"""
