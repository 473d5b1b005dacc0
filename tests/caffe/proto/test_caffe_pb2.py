"""`caffe_pb2`: what scripts do with the generated module works with ours, and without protobuf it says so."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest

from undertow.caffe.proto import new_message, protobuf
from undertow.errors import MissingPackage


@pytest.fixture(scope="module")
def pb2() -> ModuleType:
    pytest.importorskip("google.protobuf")
    from undertow.caffe.proto import caffe_pb2

    return caffe_pb2


def test_text_and_binary(pb2: ModuleType) -> None:
    from google.protobuf import text_format

    net = pb2.NetParameter()
    text_format.Merge('name: "n" layer { name: "c" type: "Convolution" convolution_param { pad: 1 pad: 2 } }', net)
    assert text_format.Parse(text_format.MessageToString(net), pb2.NetParameter()) == net
    again = pb2.NetParameter()
    again.ParseFromString(net.SerializeToString())
    copied = pb2.LayerParameter()
    copied.CopyFrom(again.layer[0])
    assert list(copied.convolution_param.pad) == [1, 2]
    assert copied.HasField("convolution_param")
    assert not copied.HasField("pooling_param")
    assert copied.convolution_param.bias_term is True


def test_enums_as_scripts_write_them(pb2: ModuleType) -> None:
    assert (pb2.TRAIN, pb2.TEST) == (0, 1)
    assert pb2.Phase.Name(1) == "TEST"
    assert pb2.PoolingParameter.AVE == 1
    assert pb2.PoolingParameter.PoolMethod.Value("STOCHASTIC") == 2
    assert pb2.V1LayerParameter.CONVOLUTION == 4
    assert pb2.SolverParameter.SolverMode.items()[0] == ("CPU", 0)
    layer = pb2.LayerParameter()
    layer.pooling_param.pool = pb2.PoolingParameter.AVE
    assert layer.pooling_param.HasField("pool")
    assert pb2._V1LAYERPARAMETER_LAYERTYPE.values_by_number[4].name == "CONVOLUTION"
    assert pb2._PHASE.values_by_name["TEST"].number == 1


def test_messages_go_to_other_processes(pb2: ModuleType) -> None:
    datum = pb2.Datum(channels=3, data=b"abc")
    assert type(datum).__module__ == "undertow.caffe.proto.caffe_pb2"
    assert pickle.loads(pickle.dumps(datum)) == datum
    assert copy.deepcopy(datum) == datum


def test_parameter_names_as_netspec_looks_for_them(pb2: ModuleType) -> None:
    layer = pb2.LayerParameter()
    names = [name for name in dir(layer) if name.endswith("_param")]
    types = {type(getattr(layer, name)).__name__: name for name in names}
    assert types["ConvolutionParameter"] == "convolution_param"
    assert types["PermuteParameter"] == "permute_param"


def test_blobs_as_converters_fill_them(pb2: ModuleType) -> None:
    blob = pb2.BlobProto()
    blob.data.extend(np.arange(6, dtype=np.float32).flat)
    blob.shape.dim.extend([2, 3])
    assert protobuf.from_protobuf(blob).data.tolist() == [0, 1, 2, 3, 4, 5]
    datum = pb2.Datum(channels=1, data=b"x", label=3)
    assert pb2.Datum.FromString(datum.SerializeToString()).label == 3


def test_defaults_are_caffes(pb2: ModuleType) -> None:
    for name in ("SolverParameter", "FillerParameter", "LRNParameter", "WindowDataParameter", "PriorBoxParameter"):
        ours, theirs = new_message(name), getattr(pb2, name)()
        for field in ours.descriptor.fields:
            if not field.repeated and field.message is None and field.enum is None:
                assert getattr(ours, field.name) == getattr(theirs, field.name), field


def test_names_of_the_module(pb2: ModuleType) -> None:
    names: dict[str, object] = {}
    exec("from undertow.caffe.proto.caffe_pb2 import *", names)
    assert names["NetParameter"] is pb2.NetParameter
    assert pb2.DESCRIPTOR.package == "caffe"
    assert pb2._NETPARAMETER is pb2.NetParameter.DESCRIPTOR
    assert "BlobProto" in dir(pb2)
    with pytest.raises(AttributeError, match="caffe_pb2 has no Nonsense"):
        _ = pb2.Nonsense


def test_messages_go_over_and_back(pb2: ModuleType) -> None:
    layer = new_message("LayerParameter", "segnet", name="b", bn_param={"bn_mode": "INFERENCE"})
    theirs = protobuf.to_protobuf(layer)
    assert theirs.bn_param.bn_mode == 1
    assert protobuf.from_protobuf(theirs, "segnet") == layer
    assert not hasattr(pb2.LayerParameter(), "bn_param")


def test_without_protobuf() -> None:
    """In a process of its own, since protobuf may be loaded here already."""
    script = """
import sys
sys.modules["google.protobuf"] = None
from undertow.caffe.proto import caffe_pb2
from undertow.errors import MissingPackage
def imported():
    from undertow.caffe.proto.caffe_pb2 import TRAIN
for use in (lambda: caffe_pb2.NetParameter, imported):
    try:
        use()
    except MissingPackage as error:
        assert "undertow[caffe]" in str(error), error
    else:
        raise AssertionError("no error")
assert not hasattr(caffe_pb2, "__path__")
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert issubclass(MissingPackage, ImportError)
