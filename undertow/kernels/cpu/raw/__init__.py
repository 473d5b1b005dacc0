"""Whole-layer operations on memory: addresses and pixel strides instead of arrays.

Nothing here allocates results or checks shapes; the functions cut the work into parts and hand them to the
team of threads. NumPy fronts stand one level up; a plan calls these directly on its fixed buffers.
"""
