"""What makes some ranks, micro-batches or hours slower, and how much longer are steps and runs then?"""
