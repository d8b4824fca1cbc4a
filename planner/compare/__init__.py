"""What is different between answers, and what makes the difference?"""
