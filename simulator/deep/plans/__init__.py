"""What happens in a step of a plan, operator by operator and message by message?"""
