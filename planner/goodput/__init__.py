"""What share of its time does a run with saves and failures spend productively?"""
