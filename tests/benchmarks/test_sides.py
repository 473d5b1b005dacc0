"""Small versions of what is measured: both sides run, and compute the same (each `compare` checks it)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

import undertow as ut
from benchmarks import accuracy, darknet_program, engines, inference, layered, recurrent, scalar, solver, specs, train
from benchmarks.timing import Timed, Timing

torch = pytest.importorskip("torch")
ONCE = Timing(1)


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
    ut.set_threads(None)


def check(timed: Mapping[str, Timed], *names: str) -> None:
    assert set(timed) == {"undertow", *names}
    assert all(each.median > 0 for each in timed.values())


@pytest.mark.parametrize("name", ["yolov3-tiny", "darknet53"])
def test_darknet_networks(name: str) -> None:
    check(train.compare(name, 4, 128, 1, ["torch contiguous"], ONCE), "torch contiguous")


@pytest.mark.parametrize(("name", "size"), [("lenet", 28), ("cifar-quick", 32), ("mobilenet", 64)])
def test_classifiers(name: str, size: int) -> None:
    timed = layered.compare(replace(specs.SPECS[name], size=size), 8, 1, ONCE, warmup=1)
    check(timed, "torch contiguous", "torch channels_last")


def test_lenet_through_a_solver() -> None:
    check(solver.compare(8, 1, ONCE), "torch contiguous", "torch channels_last")


def test_resnet_has_the_known_number_of_parameters() -> None:
    net = layered.ours(replace(specs.SPECS["resnet50"], size=32))
    assert net.parameter_count() == 25_557_032  # torchvision's resnet50


def test_mobilenet_has_the_known_number_of_parameters() -> None:
    net = layered.ours(replace(specs.SPECS["mobilenet"], size=32))
    assert net.parameter_count() == 4_231_976  # timm's mobilenetv1_100


def test_other_updates_are_noticed() -> None:
    with pytest.raises(AssertionError, match="updates otherwise"):
        layered.check_same_losses({"a": iter([1.0, 2.0, 3.0]).__next__, "b": iter([1.0, 2.0, 4.0]).__next__})
    with pytest.raises(AssertionError, match="another loss"):
        layered.check_same_losses({"a": iter([1.0, 2.0, 3.0]).__next__, "b": iter([1.1, 2.0, 3.0]).__next__})


def test_accuracy_of_the_precisions() -> None:
    found = {distance.side: distance for distance in accuracy.compare("yolov3-tiny", 2, 64, 1)}
    assert set(found) == {"reference", "precise", "fast"}
    for distance in found.values():
        assert 1e-9 < distance.outputs < 1e-4
        assert 1e-9 < distance.median <= distance.worst < 5e-2  # signs that flip at kinks are in it


def test_lstm() -> None:
    check(recurrent.compare(1, ONCE, hidden=16, steps=5, batch=4), "torch")


def test_scalars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalar, "REPEATS", 5)
    check(scalar.compare(1, ONCE), "torch")


@pytest.mark.parametrize("engine", list(engines.MODULES))
def test_inference(engine: str) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip(engines.MODULES[engine])
    check(inference.compare("yolov3-tiny", 2, 96, 1, [engine], ONCE), engine)


def test_iterations_are_read_from_what_darknet_prints() -> None:
    text = "Loaded: 0.1 seconds\n1: 12.5, 12.5 avg, 0.001000 rate, 30.251400 seconds, 4 images\n"
    assert [found[2] for found in darknet_program.ITERATION.finditer(text)] == ["30.251400"]


@pytest.mark.darknet_program
def test_the_darknet_program() -> None:
    import shutil

    if shutil.which(darknet_program.PROGRAM) is None:
        pytest.skip("there is no program 'darknet' on the PATH")
    timed = darknet_program.compare("yolov3-tiny", 1, 64, 1, Timing(2), iterations=1)
    check(timed, "darknet")
