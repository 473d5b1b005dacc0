"""`caffe.proto.caffe_pb2`: protobuf classes of all messages, as the module generated from caffe.proto has them.

They are built on first use from the schema of SSD's fork, or of those that `python -m undertow.caffe --fork` names, and
work with `google.protobuf.text_format` and all methods of protobuf messages. Without the package protobuf (extra
`caffe`) using any of them raises MissingPackage; the readers of `undertow.caffe.proto` do not need it.
`undertow.caffe.proto.protobuf` has the classes of other forks.
"""

from __future__ import annotations

from typing import Any

from undertow.caffe.proto.chosen import chosen_forks
from undertow.caffe.proto.protobuf import protobuf_names


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return [known for known in protobuf_names(chosen_forks()) if not known.startswith("_")]
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        return protobuf_names(chosen_forks())[name]
    except KeyError:
        raise AttributeError(f"caffe_pb2 has no {name}") from None


def __dir__() -> list[str]:
    return sorted(protobuf_names(chosen_forks()))
