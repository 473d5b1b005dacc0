"""Darknet's Python wrapper: its C library and its module `darknet`, for scripts that were written for them."""
