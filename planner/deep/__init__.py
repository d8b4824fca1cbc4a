"""What does the deep simulation show about a plan, operator by operator and flow by flow?"""
