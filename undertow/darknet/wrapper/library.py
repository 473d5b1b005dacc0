"""The C functions of libdarknet.so, as ctypes shows them: each has a `restype` and `argtypes` that a script may set."""

from __future__ import annotations

import ctypes as ct
from collections.abc import Callable
from typing import Any

import numpy as np

from undertow.darknet.detection.boxes import Candidates
from undertow.darknet.detection.detector import fit_picture
from undertow.darknet.detection.nms import do_nms_obj, do_nms_sort
from undertow.darknet.files.datafile import read_data
from undertow.darknet.network import Network
from undertow.darknet.runs import load
from undertow.darknet.wrapper import structures
from undertow.darknet.wrapper.memory import (
    Floats,
    Memory,
    Structure,
    fill_detections,
    pixels_of,
    read_detections,
    text_of,
    write_detections,
)
from undertow.data.images import load_image
from undertow.data.resize import letterbox_image, resize_image
from undertow.errors import ShapeError, UndertowError


class Function:
    """One function of the library. restype: what it returns, a structure or pointer of the script's own kind."""

    def __init__(self, name: str, body: Callable[..., Any], restype: Any) -> None:
        self.__name__ = name
        self._body = body
        self.restype = restype
        self.argtypes: Any = None

    def __call__(self, *values: Any) -> Any:
        return self._body(self.restype, *(_plain(value) for value in values))


def _plain(value: Any) -> Any:
    """Numbers out of ctypes' boxes, what byref holds as a pointer; the rest as it is."""
    if isinstance(value, (ct.c_int, ct.c_float, ct.c_void_p, ct.c_double, ct.c_long)):
        return value.value
    return ct.pointer(value._obj) if type(value).__name__ == "CArgObject" else value


class Library:
    """Stands for `CDLL("libdarknet.so")`: its functions as attributes, AttributeError for names it does not have."""

    def __init__(self) -> None:
        self.memory = Memory()
        self._networks: dict[int, Network] = {}
        self._fitted: dict[int, bool | None] = {}
        self._outputs: dict[int, Floats] = {}
        for name, (method, restype) in _FUNCTIONS.items():
            setattr(self, name, Function(name, getattr(self, method), restype))

    def __getattr__(self, name: str) -> Function:
        raise AttributeError(f"libdarknet.so: undefined symbol: {name} (Undertow has {', '.join(_FUNCTIONS)})")

    # --- networks ---------------------------------------------------------------------------------------

    def _load_network(self, _: Any, cfg: Any, weights: Any, clear: int = 0, batch: int = 1) -> int:
        net = load(text_of(cfg), text_of(weights) if weights else None)
        if clear:
            net.seen = 0
        handle = max(self._networks, default=0) + 1
        self._networks[handle] = net
        return handle

    def network(self, handle: Any) -> Network:
        """The network that a script's pointer means; UndertowError where it means none."""
        if handle not in self._networks:
            raise UndertowError(f"{handle!r} is no network", remedy="pass what load_net or load_network returned")
        return self._networks[handle]

    def _free_network(self, _: Any, handle: Any) -> None:
        self.network(handle)
        for held in (self._networks, self._fitted, self._outputs):
            held.pop(handle, None)

    def _width(self, _: Any, handle: Any) -> int:
        return self.network(handle).w

    def _height(self, _: Any, handle: Any) -> int:
        return self.network(handle).h

    def _reset_rnn(self, _: Any, handle: Any) -> None:
        self.network(handle).reset_state()

    def _nothing(self, _: Any, *values: Any) -> int:
        return 0

    # --- predictions ------------------------------------------------------------------------------------

    def _predicted(self, restype: Any, handle: Any, values: Floats, fitted: bool | None) -> Any:
        """Run; the output lives until the network's next prediction."""
        net = self.network(handle)
        shape = (net.c, net.h, net.w) if net.c else (net.inputs,)
        self._outputs[handle] = np.ascontiguousarray(net.predict(values.reshape(-1, *shape)), np.float32).copy()
        self._fitted[handle] = fitted
        return ct.cast(self._outputs[handle].ctypes.data, restype or structures.FloatPtr)

    def _predict(self, restype: Any, handle: Any, data: Any) -> Any:
        inputs = self.network(handle).inputs
        self.memory.check(data, inputs, "the network's input")
        values = np.ctypeslib.as_array(ct.cast(data, structures.FloatPtr), (inputs,))
        return self._predicted(restype, handle, values.copy(), None)

    def _picture(self, net: Network, image: Structure) -> Floats:
        pixels = pixels_of(image, self.memory).copy()
        if len(pixels) != net.c:
            raise ShapeError(f"the network takes pictures of {net.c} channels, this one has {len(pixels)}")
        return pixels

    def _predict_image(self, restype: Any, handle: Any, image: Structure) -> Any:
        net = self.network(handle)
        return self._predicted(restype, handle, fit_picture(net, self._picture(net, image)), net.letterbox)

    def _predict_letterbox(self, restype: Any, handle: Any, image: Structure) -> Any:
        net = self.network(handle)
        picture = letterbox_image(self._picture(net, image), net.w, net.h)
        return self._predicted(restype, handle, picture, True)

    # --- boxes ------------------------------------------------------------------------------------------

    def _found(self, handle: Any, size: tuple[int, int], threshold: float, relative: int, letter: Any, i: int) -> Any:
        """Boxes mapped back by the way the picture was fitted in; by `letter` where the script fitted it itself."""
        net, fitted = self.network(handle), self._fitted.get(handle)
        if handle not in self._outputs:
            raise UndertowError("there are no boxes before a prediction", remedy="call network_predict_image first")
        letterbox = fitted if fitted is not None else (net.letterbox if letter is None else bool(letter))
        with np.errstate(over="ignore", invalid="ignore"):  # huge boxes of a young net
            return net.candidates(size, threshold, relative=bool(relative), letterbox=letterbox, index=i)

    def _boxes(
        self,
        restype: Any,
        handle: Any,
        w: int,
        h: int,
        threshold: float,
        hier: float,
        classes: Any,
        relative: int,
        count: Any,
        letter: Any = None,
    ) -> Any:
        found = self._found(handle, (w, h), threshold, relative, letter, 0)
        count[0] = len(found)
        return fill_detections(found, restype._type_, self.memory)

    def _make_boxes(self, restype: Any, handle: Any, threshold: float = 0.0, count: Any = None) -> Any:
        """As many structures as the last prediction has boxes above the threshold."""
        found = self._found(handle, (1, 1), threshold, 1, None, 0)
        if count is not None:
            count[0] = len(found)
        return fill_detections(found, restype._type_, self.memory)

    def _predict_batch(
        self,
        restype: Any,
        handle: Any,
        image: Structure,
        batch: int,
        w: int,
        h: int,
        threshold: float,
        hier: float,
        classes: Any,
        relative: int,
        letter: int,
    ) -> Any:
        net = self.network(handle)
        if batch < 1:
            raise ShapeError(f"a batch of {batch} pictures has none")
        self.memory.check(image.data, batch * net.inputs, "the batch")
        values = np.ctypeslib.as_array(image.data, (batch * net.inputs,)).copy()
        self._predicted(None, handle, values, None)
        pairs = (restype._type_ * batch)()
        kind = dict(restype._type_._fields_)["dets"]._type_
        for i in range(batch):
            found = self._found(handle, (w, h), threshold, relative, letter, i)
            pairs[i].num, pairs[i].dets = len(found), fill_detections(found, kind, self.memory)
        pointer = ct.cast(pairs, restype)
        self.memory.keep(pointer, batch, pairs)
        return pointer

    def _suppress(self, how: Callable[[Candidates, float], Candidates], dets: Any, total: int, thresh: float) -> None:
        self.memory.check(dets, total, "the list of detections")
        fields = dict(dets._type_._fields_)
        write_detections(dets, how(read_detections(dets, total, fields), thresh), fields)

    def _nms_obj(self, _: Any, dets: Any, total: int, classes: int, thresh: float) -> None:
        self._suppress(do_nms_obj, dets, total, thresh)

    def _nms_sort(self, _: Any, dets: Any, total: int, classes: int, thresh: float) -> None:
        self._suppress(do_nms_sort, dets, total, thresh)

    def _free(self, _: Any, pointer: Any, count: int = 0) -> None:
        self.memory.free(pointer)

    def _free_batch(self, _: Any, pairs: Any, count: int) -> None:
        self.memory.check(pairs, count, "the list of batches")
        for i in range(count):
            self.memory.free(pairs[i].dets)
        self.memory.free(pairs)

    # --- pictures and names -----------------------------------------------------------------------------

    def _image(self, restype: Any, pixels: Floats) -> Structure:
        kind = restype if hasattr(restype, "_fields_") else structures.IMAGE
        pixels = np.ascontiguousarray(pixels, np.float32)
        c, h, w = pixels.shape
        image = kind(w, h, c, ct.cast(pixels.ctypes.data, dict(kind._fields_)["data"]))
        self.memory.keep(image.data, pixels.size, pixels)
        return image

    def _make_image(self, restype: Any, w: int, h: int, c: int) -> Structure:
        if min(w, h, c) < 1:
            raise ShapeError(f"an image of {w} x {h} with {c} channels has no pixels")
        return self._image(restype, np.zeros((c, h, w), np.float32))

    def _load_image(self, restype: Any, path: Any, w: int, h: int) -> Structure:
        picture = load_image(text_of(path), 3)
        if w and h and (w, h) != (picture.shape[2], picture.shape[1]):
            picture = resize_image(picture, w, h)
        return self._image(restype, picture)

    def _letterbox(self, restype: Any, image: Structure, w: int, h: int) -> Structure:
        return self._image(restype, letterbox_image(pixels_of(image, self.memory), w, h))

    def _free_image(self, _: Any, image: Structure) -> None:
        self.memory.free(image.data)

    def _rgbgr(self, _: Any, image: Structure) -> None:
        pixels = pixels_of(image, self.memory)
        pixels[[0, -1]] = pixels[[-1, 0]]

    def _copy_bytes(self, _: Any, image: Structure, data: Any) -> None:
        pixels = pixels_of(image, self.memory)
        if not isinstance(data, (bytes, bytearray)):
            data = ct.string_at(data, pixels.size)
        if len(data) < pixels.size:
            raise ShapeError(f"an image of {pixels.size} values cannot be filled from {len(data)} bytes")
        c, h, w = pixels.shape
        values = np.frombuffer(data, np.uint8, pixels.size).reshape(h, w, c)
        np.divide(values.transpose(2, 0, 1), np.float32(255), out=pixels)

    def _metadata(self, restype: Any, path: Any) -> Structure:
        names = read_data(text_of(path)).read_names()
        kind = restype if hasattr(restype, "_fields_") else structures.METADATA
        array = (ct.c_char_p * len(names))(*(name.encode("utf-8", "surrogateescape") for name in names))
        meta = kind(len(names), ct.cast(array, dict(kind._fields_)["names"]))
        self.memory.keep(meta.names, len(names), array)
        return meta


_DETECTIONS = ct.POINTER(structures.DETECTION)
# Name in C: the method that does it, and what it returns unless a script says so.
_FUNCTIONS: dict[str, tuple[str, Any]] = {
    "load_network": ("_load_network", ct.c_void_p),
    "load_network_custom": ("_load_network", ct.c_void_p),
    "free_network_ptr": ("_free_network", None),
    "network_width": ("_width", ct.c_int),
    "network_height": ("_height", ct.c_int),
    "reset_rnn": ("_reset_rnn", None),
    "network_predict": ("_predict", structures.FloatPtr),
    "network_predict_ptr": ("_predict", structures.FloatPtr),
    "network_predict_image": ("_predict_image", structures.FloatPtr),
    "network_predict_image_letterbox": ("_predict_letterbox", structures.FloatPtr),
    "network_predict_batch": ("_predict_batch", ct.POINTER(structures.DETNUMPAIR)),
    "get_network_boxes": ("_boxes", _DETECTIONS),
    "make_network_boxes": ("_make_boxes", _DETECTIONS),
    "do_nms_obj": ("_nms_obj", None),
    "do_nms_sort": ("_nms_sort", None),
    "free_detections": ("_free", None),
    "free_batch_detections": ("_free_batch", None),
    "free_ptrs": ("_nothing", None),
    "make_image": ("_make_image", structures.IMAGE),
    "load_image_color": ("_load_image", structures.IMAGE),
    "letterbox_image": ("_letterbox", structures.IMAGE),
    "rgbgr_image": ("_rgbgr", None),
    "copy_image_from_bytes": ("_copy_bytes", None),
    "free_image": ("_free_image", None),
    "get_metadata": ("_metadata", structures.METADATA),
    "cuda_set_device": ("_nothing", None),
    "init_cpu": ("_nothing", None),
}
