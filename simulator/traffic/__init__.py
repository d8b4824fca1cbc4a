"""What do ranks send each other for one micro-batch, and how long do they wait for it?"""
