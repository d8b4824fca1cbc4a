"""What does the deep depth say about a plan, operator by operator and flow by flow?"""
