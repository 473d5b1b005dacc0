"""The structures of Darknet's python wrapper (python/darknet.py), with the fields that AlexeyAB's fork added."""

from __future__ import annotations

import ctypes as ct

FloatPtr = ct.POINTER(ct.c_float)
IntPtr = ct.POINTER(ct.c_int)


class BOX(ct.Structure):
    """Centre and size."""

    _fields_ = (("x", ct.c_float), ("y", ct.c_float), ("w", ct.c_float), ("h", ct.c_float))


class DETECTION(ct.Structure):
    """A box with its probabilities, prob[0] .. prob[classes - 1]. best_class_idx: -1 where none is above 0."""

    _fields_ = (
        ("bbox", BOX),
        ("classes", ct.c_int),
        ("best_class_idx", ct.c_int),
        ("prob", FloatPtr),
        ("mask", FloatPtr),
        ("objectness", ct.c_float),
        ("sort_class", ct.c_int),
        ("uc", FloatPtr),
        ("points", ct.c_int),
        ("embeddings", FloatPtr),
        ("embedding_size", ct.c_int),
        ("sim", ct.c_float),
        ("track_id", ct.c_int),
    )


class DETNUMPAIR(ct.Structure):
    """The detections of one picture of a batch."""

    _fields_ = (("num", ct.c_int), ("dets", ct.POINTER(DETECTION)))


class IMAGE(ct.Structure):
    """A picture: data holds c planes of h rows of w floats, 0..1, red first; it lives until free_image."""

    _fields_ = (("w", ct.c_int), ("h", ct.c_int), ("c", ct.c_int), ("data", FloatPtr))


class METADATA(ct.Structure):
    """Names of the classes, as bytes."""

    _fields_ = (("classes", ct.c_int), ("names", ct.POINTER(ct.c_char_p)))
