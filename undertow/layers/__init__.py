"""Layers: parameters and the functions they go into; initialisers; saving."""

from undertow.layers.module import Module, ModuleList, Sequential

__all__ = ["Module", "ModuleList", "Sequential"]
