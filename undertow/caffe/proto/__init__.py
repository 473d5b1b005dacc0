"""The file formats of Caffe: prototxt, caffemodel, solverstate and their messages.

    net = read_prototxt("deploy.prototxt")              # a NetParameter, upgraded to today's form
    weights = read_caffemodel("model.caffemodel")
    blob_array(weights.layer[0].blobs[0])               # a NumPy array

The fields come from one table (`schema`), which users can add to with `register_fork`. protobuf is not needed;
with it installed, `caffe_pb2` offers real protobuf classes of the same messages.
"""

from undertow.caffe.proto.api import (
    find_beside,
    read_binary,
    read_caffemodel,
    read_prototxt,
    read_solver,
    read_solverstate,
    write_binary,
    write_caffemodel,
    write_prototxt,
    write_solverstate,
)
from undertow.caffe.proto.blobs import blob_array, blob_from_array, blob_shape
from undertow.caffe.proto.message import Message, UnknownField, new_message, walk
from undertow.caffe.proto.schema import DEFAULT_FORK, Schema, get_schema, known_forks, register_fork
from undertow.caffe.proto.text_format import parse_text
from undertow.caffe.proto.text_tokens import TextFormatError
from undertow.caffe.proto.text_writer import print_text
from undertow.caffe.proto.upgrade import upgrade_net, upgrade_solver
from undertow.caffe.proto.wire import parse_bytes

__all__ = [
    "DEFAULT_FORK",
    "Message",
    "Schema",
    "TextFormatError",
    "UnknownField",
    "blob_array",
    "blob_from_array",
    "blob_shape",
    "find_beside",
    "get_schema",
    "known_forks",
    "new_message",
    "parse_bytes",
    "parse_text",
    "print_text",
    "read_binary",
    "read_caffemodel",
    "read_prototxt",
    "read_solver",
    "read_solverstate",
    "register_fork",
    "upgrade_net",
    "upgrade_solver",
    "walk",
    "write_binary",
    "write_caffemodel",
    "write_prototxt",
    "write_solverstate",
]
