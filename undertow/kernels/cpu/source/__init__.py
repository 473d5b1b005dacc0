"""The kernels themselves, compiled by Numba. Imported only when something has to be compiled.

All arguments are 64-bit integers (byte addresses, byte strides, sizes, flags) unless a kernel says
otherwise. Nothing here checks anything: sizes are checked by the callers in `raw` and above.
"""
