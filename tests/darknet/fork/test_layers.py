"""Networks with the fork's sections: gradients of the loss, sharing, state, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.darknet.layers.small import COST, Section, build, check_network, conv, net, samples
from undertow.core.modes import test_mode as inference
from undertow.darknet.dialect import ALEXEYAB, EXACT
from undertow.darknet.files.cfg import make_config, parse_cfg
from undertow.darknet.network import Network
from undertow.errors import FormatError, ShapeError


def of(name: str, **values: Any) -> Section:
    values = {"from" if key == "source" else key: value for key, value in values.items()}
    return name, values


NETS: dict[str, list[Section]] = {
    "route groups": [
        conv(4),
        of("route", layers=-1, groups=2, group_id=1),
        conv(2),
        of("route", layers="-1,-3", groups=2),
    ],
    "weighted shortcut": [
        conv(4),
        conv(3),
        conv(4),
        of("shortcut", source="-2,-3", weights_type="per_channel", weights_normalization="softmax", activation="mish"),
    ],
    "one weight for each input": [
        conv(4),
        conv(4),
        of("shortcut", source=-2, weights_type="per_feature", weights_normalization="relu"),
    ],
    "several sources": [conv(4), conv(2), conv(3), of("shortcut", source="-2,-3", activation="swish")],
    "scale channels": [
        conv(4),
        of("avgpool"),
        conv(4, size=1, activation="logistic"),
        of("scale_channels", source=-3, activation="swish"),
    ],
    "scale width and height": [conv(4), conv(1), of("scale_channels", source=-2, scale_wh=1)],
    "sam": [conv(4), conv(4, size=1), of("sam", source=-2)],
    "implicit": [conv(3), of("implicit", filters=3), of("scale_channels", source=-2), conv(2, size=1)],
    "local_avgpool": [conv(2), of("local_avgpool", size=3, stride_x=2, stride_y=1), of("empty")],
    "reorg3d": [conv(2), of("maxpool", size=2, stride_x=2, stride_y=1, padding=2), of("reorg3d", stride=2)],
    "antialiasing": [conv(2, antialiasing=1, stride=2, activation="mish"), conv(2, antialiasing=2)],
    "blurred maxpool": [conv(2), of("maxpool", size=2, stride=2, antialiasing=1)],
    "maxpool_depth": [conv(5), of("maxpool", maxpool_depth=1, out_channels=2)],
    "dilation": [conv(2, dilation=2), conv(2, stride_x=2, stride_y=1)],
    "normalised channels": [conv(4, activation="normalize_channels_softmax"), conv(4, activation="hard_mish")],
    "batch norm of several iterations": [conv(3, cbn=1)],
    "shared": [conv(3), conv(3), conv(3, share_index=-1), conv(3, share_index=1)],
    "shared with batch norm": [conv(3), conv(3, batch_normalize=1), conv(3, batch_normalize=1, share_index=-1)],
}  # fmt: skip


@pytest.mark.parametrize("name", NETS)
def test_gradients_are_those_of_the_loss(name: str) -> None:
    network = build([net(), *NETS[name], COST])
    check_network(network, *samples(network), rtol=1e-4)


@pytest.mark.parametrize(
    "section",
    [
        of("conv_lstm", output=1, pad=1, peephole=1, batch_normalize=1),
        of("conv_lstm", output=2, size=1, state_constrain=1, groups=1),
        of("crnn", output=2, hidden=3, pad=1, activation="tanh"),
        of("history", history_size=3),
    ],
    ids=["conv_lstm", "1x1 conv_lstm", "crnn", "history"],
)
def test_gradients_through_time(section: Section) -> None:
    network = build([net(batch=1, time_steps=3, width=3, height=2, channels=2), conv(2, size=1), section, COST])
    check_network(network, *samples(network), rtol=1e-4)


def test_a_state_goes_on_at_inference() -> None:
    network = build([net(batch=1, time_steps=2, width=4, height=3), of("history", history_size=3)])
    images, _ = samples(network)
    with inference():
        network.forward(images)
        second = network.forward(images[::-1]).data
        np.testing.assert_array_equal(second[0], np.concatenate([images[1], images[1], images[0]]))
        network.reset_state()
        first = network.forward(images).data
    np.testing.assert_array_equal(first[0], np.concatenate([images[0], np.zeros((6, 3, 4))]))


def test_a_shared_layer_is_updated_once(rng: np.random.Generator) -> None:
    network = build([net(), *NETS["shared"], COST])
    owner, *users = network.layers[1:4]
    assert all(user.owner is owner and user.weights is owner.weights for user in users)
    before = owner.weights.copy()
    network.train_datum(*samples(network))
    moved = owner.weights - before
    rate = network.learning_rate / network.batch
    gradient = -network.layers[1].parameters["weights"].grad
    np.testing.assert_allclose(moved, rate * (gradient - network.options.decay * network.batch * before), rtol=1e-6)
    assert sum(1 for _ in network.parameters()) == 4


def test_a_net_is_resized_with_what_it_shares() -> None:
    network = build([net(), *NETS["shared"], COST])
    weights = network.layers[1].weights
    network.resize(8, 8)
    assert all(layer.weights is weights for layer in network.layers[1:4])


def test_the_fork_keeps_biases_of_batchnorm_layers(tmp_path: Any) -> None:
    sections = [net(), of("batchnorm"), conv(2), COST]
    network = build(sections, ALEXEYAB)
    network.save_weights(tmp_path / "fork.weights")
    again = build(sections, ALEXEYAB)
    for array in again.layers[0].arrays().values():
        array[...] = 0
    again.load_weights(tmp_path / "fork.weights")
    for name, array in network.layers[0].arrays().items():
        np.testing.assert_allclose(again.layers[0].arrays()[name], array, rtol=1e-6)
    assert (tmp_path / "fork.weights").read_bytes()[4:12] == bytes([2, 0, 0, 0, 5, 0, 0, 0])
    network.train_datum(*samples(network))
    assert not np.array_equal(network.layers[0].biases, again.layers[0].biases)


def test_letter_box_in_the_cfg_asks_for_grey_bars() -> None:
    assert not build([net(), conv(2)], ALEXEYAB).letterbox
    assert build([net(letter_box=1), conv(2)], ALEXEYAB).letterbox
    assert build([net(), conv(2)], EXACT).letterbox


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ([conv(4), of("route", layers=-1, groups=3)], "which groups=3 does not divide"),
        ([conv(4), conv(2, stride=2), of("shortcut", source="-2,-2")], "another width or height"),
        ([conv(4), conv(4), of("scale_channels", source=-2)], "it needs 1x1x4"),
        ([conv(4), conv(3), of("sam", source=-2)], "must have one shape"),
        ([conv(4), of("sam")], "which layer to multiply"),
        ([conv(4), of("reorg3d", stride=4)], "not a multiple of stride=4"),
        ([conv(4), of("maxpool", maxpool_depth=1, out_channels=5)], "out_channels=5 is more than the 4"),
        ([conv(4, dilation=2, pad=0)], "with dilation=2 only 1 of the 3 outputs"),
        ([conv(4), conv(3, share_index=-1)], "the parameters of layer 0"),
        ([conv(3), of("avgpool"), conv(3, share_index=-1)], r"names layer 1, a \[avgpool\]"),
        ([conv(3), conv(3, share_index=-1), conv(3, share_index=-1)], "no parameters of its own"),
        ([conv(2, antialiasing=2, size=1, stride=1), of("maxpool", size=5, padding=0)], "the window of 5x5 is larger"),
        ([of("conv_lstm", output=2)], "so that the state cannot be fed back"),
        ([of("conv_lstm", output=2, pad=1, groups=2)], "groups=2 does not divide the channels"),
        ([of("crnn", output=2, hidden=2, size=2, pad=1)], "so that the state cannot be fed back"),
        ([of("crnn", output_filters=2, size=5)], "followed only with output= or hidden="),
        ([conv(4), of("Gaussian_yolo", classes=2, num=1, anchors="1,1")], r"\(classes\+9\)\*len\(mask\)"),
    ],
)
def test_what_does_not_fit_is_refused(sections: list[Section], reason: str) -> None:
    with pytest.raises((FormatError, ShapeError), match=reason) as caught:
        Network(make_config([net(), *sections]))
    assert caught.value.line is not None


@pytest.mark.parametrize(
    ("head", "dialect", "reason"),
    [
        (of("yolo", iou_loss="ciou"), EXACT, "training with iou_loss=ciou is not supported yet"),
        (of("yolo", obj_normalizer=0.4), EXACT, "training with obj_normalizer=0.4"),
        (of("yolo"), ALEXEYAB, r"training \[yolo\] in the dialect alexeyab"),
        (of("yolo", scale_x_y=1.1), EXACT, r"<cfg>:\d+: training with scale_x_y=1.1 .* remove the key$"),
        (of("yolo", new_coords=1), EXACT, "training with new_coords=1"),
        (of("Gaussian_yolo"), EXACT, r"<cfg>:15: training \[Gaussian_yolo\] .* train one with \[yolo\] instead$"),
        (of("Gaussian_yolo"), ALEXEYAB, r"<cfg>:15: training \[Gaussian_yolo\] .* train one with \[yolo\] instead$"),
        (
            of("yolo", iou_loss="ciou", iou_normalizer=0.07, scale_x_y=1.1, new_coords=0),
            ALEXEYAB,
            "remove the keys iou_loss, iou_normalizer, scale_x_y and train in the dialect exact",
        ),
    ],
)
def test_losses_that_are_not_here_are_refused(head: Section, dialect: Any, reason: str) -> None:
    filters = 2 * (11 if head[0] == "Gaussian_yolo" else 7)
    values = {"classes": 2, "num": 2, "anchors": "1,1,2,2", **head[1]}
    text = make_config([net(), conv(filters), (head[0], values)]).to_text()
    network = Network(parse_cfg(text), dialect)
    images, truth = samples(network)
    network.predict(images)
    with pytest.raises(FormatError, match=reason):
        network.train_datum(images, truth)


def test_dilation_spreads_a_kernel_with_holes(rng: np.random.Generator) -> None:
    """A dilated 3x3 kernel is a 5x5 one with zeros between."""
    network = build([net(), conv(2, dilation=2, activation="linear")])
    wide = build([net(), conv(2, size=5, activation="linear")])
    wide.layers[0].weights[...] = 0
    wide.layers[0].weights[:, :, ::2, ::2] = network.layers[0].weights
    wide.layers[0].biases[...] = network.layers[0].biases
    images, _ = samples(network)
    with inference():
        np.testing.assert_allclose(network.forward(images).data, wide.forward(images).data, rtol=1e-10)


def test_inference_uses_the_forks_epsilon() -> None:
    network = build([net(), conv(2, batch_normalize=1, activation="linear")], ALEXEYAB)
    plain = build([net(), conv(2, activation="linear")])
    layer = network.layers[0]
    layer.rolling_variance[...] = 1e-5
    plain.layers[0].weights[...] = layer.weights
    plain.layers[0].biases[...] = 0
    images, _ = samples(network)
    with inference():
        before = plain.forward(images).data
        shifted = before - layer.rolling_mean.reshape(-1, 1, 1)
        expected = layer.scales.reshape(-1, 1, 1) * shifted / np.sqrt(2e-5) + layer.biases.reshape(-1, 1, 1)
        np.testing.assert_allclose(network.forward(images).data, expected, rtol=1e-10)


def test_dialect_without_batch_norm_changes_no_output() -> None:
    sections = [net(), *NETS["weighted shortcut"]]
    images, _ = samples(build(sections))
    with inference():
        outputs = [
            build(sections, dialect).forward(images).data for dialect in (EXACT, replace(EXACT, letterbox=False))
        ]
    np.testing.assert_array_equal(*outputs)
