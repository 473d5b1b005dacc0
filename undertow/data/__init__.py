"""Data: datasets, batches prepared ahead by threads, small datasets; pictures and their augmentation."""

from undertow.data.datasets import ArrayDataset, Dataset, MappedDataset, Subset, split
from undertow.data.loader import Loader, LoadError, stack
from undertow.data.mnist import mnist, read_idx
from undertow.data.samplers import InOrder, Sampler, Shuffled, Weighted
from undertow.data.small import digits, sine, spirals

__all__ = [
    "ArrayDataset",
    "Dataset",
    "InOrder",
    "LoadError",
    "Loader",
    "MappedDataset",
    "Sampler",
    "Shuffled",
    "Subset",
    "Weighted",
    "digits",
    "mnist",
    "read_idx",
    "sine",
    "spirals",
    "split",
    "stack",
]
