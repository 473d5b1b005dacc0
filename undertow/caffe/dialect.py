"""Dialects: where Caffe's results differ from the true derivative.

Each field is one difference, with its meaning and its place in the original (src/caffe/layers). Layers are built from
these values; no backward asks for a dialect by name. docs/caffe-differences.md tells the same with numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from undertow.caffe.arguments import WrongValue, text_of


@dataclass(frozen=True)
class Dialect:
    """One reading of Caffe's nets; see `DIALECTS` for the two there are.

    name: how messages and commands call it.
    in_place_reads_result: the backward pass of an in-place layer, and of the layer before it, sees the values that
        were written over its own (bnll_layer.cpp, log_layer.cpp, power_layer.cpp, clip_layer.cpp: bottom[0]->cpu_data()
        in Backward_cpu; sigmoid_layer.cpp and others: top[0]->cpu_data()). Otherwise such layers keep what they need.
    in_place_squares_slope: Log and Power in place lose the gradient that arrives and give the square of their slope:
        they write the slope into bottom[0]'s diff, which is top[0]'s too, before they read that (log_layer.cpp,
        power_layer.cpp, Backward_cpu).
    share_memory: Split, Flatten, Reshape and Concat or Slice of one blob share memory even when a later layer works in
        place on one of the shares, and all others see that (split_layer.cpp, reshape_layer.cpp: ShareData).
    mvn_ignores_eps: the gradient of MVN takes the deviation plus eps for the deviation (mvn_layer.cpp, Backward_cpu).
    contrastive_epsilon: what is added to the distance that the gradient of ContrastiveLoss divides by
        (contrastive_loss_layer.cpp: dist + Dtype(1e-4)).
    loss_clamps_forward_only: SoftmaxWithLoss cuts probabilities off below FLT_MIN, and InfogainLoss below 1e-20, in
        the value but not in the gradient (softmax_loss_layer.cpp, infogain_loss_layer.cpp). Otherwise the logarithm
        of the probability is computed without being cut off.
    prob_top_gradient: whether a gradient that arrives at the second top of InfogainLoss, the probabilities, is passed
        on (infogain_loss_layer.cpp: only top[0] is read).
    exposed_state_gradient: whether gradients flow through the states of LSTM and RNN with `expose_hidden`
        (recurrent_layer.cpp, Reshape: the state tops and bottoms share data, never diff).
    cont_derivative: whether the forget gate's slope in LSTMUnit is the true one also where the continuation
        indicator is neither 0 nor 1 (lstm_unit_layer.cpp: f * (1 - f) with f = cont * sigmoid).
    division_gradients: Power with a power other than 0, 1, 2 divides its output by its argument, and Eltwise PROD
        with `stable_prod_grad: false` its output by each input: not a number where those are 0 (power_layer.cpp,
        eltwise_layer.cpp).
    parameter_shares_diff: the top of a Parameter layer and its parameter have one diff, so that a backward pass
        overwrites the parameter's gradient instead of adding to it (parameter_layer.hpp: ShareDiff).
    multibox_ignores_variance: with encode_variance_in_target, MultiBoxLoss divides predictions by the variance but not
        their gradient (SSD's multibox_loss_layer.cpp, bbox_util.cpp: EncodeLocPrediction).
    """

    name: str
    in_place_reads_result: bool = False
    in_place_squares_slope: bool = False
    share_memory: bool = False
    mvn_ignores_eps: bool = False
    contrastive_epsilon: float = 0.0
    loss_clamps_forward_only: bool = False
    prob_top_gradient: bool = True
    exposed_state_gradient: bool = True
    cont_derivative: bool = True
    division_gradients: bool = False
    parameter_shares_diff: bool = False
    multibox_ignores_variance: bool = False


EXACT = Dialect("exact")

CAFFE = Dialect(
    "caffe",
    in_place_reads_result=True,
    in_place_squares_slope=True,
    share_memory=True,
    mvn_ignores_eps=True,
    contrastive_epsilon=1e-4,
    loss_clamps_forward_only=True,
    prob_top_gradient=False,
    exposed_state_gradient=False,
    cont_derivative=False,
    division_gradients=True,
    parameter_shares_diff=True,
    multibox_ignores_variance=True,
)

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (EXACT, CAFFE)}


def dialect_named(name: str | Dialect) -> Dialect:
    """The dialect of that name, or the dialect itself. Raises WrongValue, a ValueError, that lists the names."""
    if isinstance(name, Dialect):
        return name
    if text_of(name, "a dialect") not in DIALECTS:
        raise WrongValue(f"there is no dialect '{name}'", remedy=f"there are {', '.join(DIALECTS)}")
    return DIALECTS[name]
