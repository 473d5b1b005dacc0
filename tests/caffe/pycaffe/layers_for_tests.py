"""Python layers that prototxts in the tests name."""

import numpy as np

import undertow.caffe as caffe


class Times(caffe.Layer):
    """Multiplies by the number in param_str."""

    def setup(self, bottom, top):  # type: ignore[no-untyped-def]
        self.factor = float(self.param_str)
        self.calls = []

    def reshape(self, bottom, top):  # type: ignore[no-untyped-def]
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):  # type: ignore[no-untyped-def]
        top[0].data[...] = self.factor * bottom[0].data

    def backward(self, top, propagate_down, bottom):  # type: ignore[no-untyped-def]
        self.calls.append(list(propagate_down))
        bottom[0].diff[...] = self.factor * top[0].diff


class Source(caffe.Layer):
    """A data layer without bottoms, as training scripts have them."""

    def setup(self, bottom, top):  # type: ignore[no-untyped-def]
        self.rows = np.zeros((2, 3), np.float32)

    def give(self, rows):  # type: ignore[no-untyped-def]
        self.rows = rows

    def reshape(self, bottom, top):  # type: ignore[no-untyped-def]
        top[0].reshape(*self.rows.shape)

    def forward(self, bottom, top):  # type: ignore[no-untyped-def]
        top[0].data[...] = self.rows


class Learns(caffe.Layer):
    """y = x + a, with a parameter a."""

    def setup(self, bottom, top):  # type: ignore[no-untyped-def]
        self.blobs.add_blob(1)
        self.blobs[0].data[0] = 1

    def reshape(self, bottom, top):  # type: ignore[no-untyped-def]
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):  # type: ignore[no-untyped-def]
        top[0].data[...] = bottom[0].data + self.blobs[0].data[0]

    def backward(self, top, propagate_down, bottom):  # type: ignore[no-untyped-def]
        self.blobs[0].diff[0] += top[0].diff.sum()
        bottom[0].diff[...] = top[0].diff


class Phase(caffe.Layer):
    """Gives the phase."""

    def setup(self, bottom, top):  # type: ignore[no-untyped-def]
        pass

    def reshape(self, bottom, top):  # type: ignore[no-untyped-def]
        top[0].reshape()

    def forward(self, bottom, top):  # type: ignore[no-untyped-def]
        top[0].data[()] = self.phase


class Fails(caffe.Layer):
    """Fails in setup."""

    def setup(self, bottom, top):  # type: ignore[no-untyped-def]
        raise RuntimeError("on purpose")
