"""What does the deep depth say of a plan, operator by operator and flow by flow?"""
