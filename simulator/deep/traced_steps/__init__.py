"""How would a traced step run on other accelerators, and on many of them?"""
