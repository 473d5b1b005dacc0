"""Caffe's data: databases, Datum records, pictures as OpenCV reads them, mean pictures, DataTransformer."""

from undertow.caffe.data.database import new_database, open_database
from undertow.caffe.data.datum import datum_from_pixels, datum_pixels, parse_datum
from undertow.caffe.data.mean import read_mean, write_mean
from undertow.caffe.data.pictures import decode, encode_picture, read_picture, resize_picture
from undertow.caffe.data.transformer import DataTransformer

__all__ = [
    "DataTransformer",
    "datum_from_pixels",
    "datum_pixels",
    "decode",
    "encode_picture",
    "new_database",
    "open_database",
    "parse_datum",
    "read_mean",
    "read_picture",
    "resize_picture",
    "write_mean",
]
