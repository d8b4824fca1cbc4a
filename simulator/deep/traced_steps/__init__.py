"""What would a traced step be on other accelerators, and on many of them?"""
