"""Differentiable operations: forward and backward side by side, one file per family."""

__all__: list[str] = []
