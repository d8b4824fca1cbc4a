"""Of which messages is a collective made?"""
