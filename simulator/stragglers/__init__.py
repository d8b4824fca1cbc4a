"""What makes some ranks, micro-batches or hours slower, and how much longer do steps and runs take as a result?"""
