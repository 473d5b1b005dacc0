"""Losses, those of detectors included."""

from undertow.inspect.derivations.lines import Lines

_DISTANCE = "d^2 = sum of (a - b)^2: its slope by a is 2 (a - b), and that of d is (a - b) / d"

_KEPT = "Darknet keeps delta = weight (target - y), and adds what later layers send to y as it comes, without dy/dx:"
_KEPT_TRUTH = "Darknet keeps delta = truth - p, and adds what later layers send to p as it comes, without dp/dx:"
# In place of the last two lines of a loss, in dialects that do so.
STRAIGHT: dict[str, Lines] = {
    "yolo_loss": (_KEPT, "gx = -gloss delta + gy, the derivative wherever nothing is sent to y"),
    "region_loss": (_KEPT, "gx = -gloss delta s + gy, the derivative wherever nothing is sent to y"),
    "detection_loss": (_KEPT, "gx = -gloss delta + gy, the derivative wherever nothing is sent to y"),
    "darknet_softmax": (
        "the truth of a group adds up to 1: p - truth, over T (the C program leaves T out)",
        _KEPT_TRUTH,
        "gx = -gloss delta + gp, the derivative for T = 1 wherever nothing is sent to p",
    ),
    "darknet_logistic": (_KEPT_TRUTH, "gx = -gloss delta + gp, the derivative wherever nothing is sent to p"),
}

DERIVATIONS: dict[str, Lines] = {
    "softmax_cross_entropy": (
        "one label gives -weight[t] log softmax(x)[t] / divisor",
        "log softmax(x)[t] = x[t] - log(sum of e^x), with the slopes onehot(t) - softmax(x) by x",
        "gx = (softmax(x) - onehot(t)) weight[t] gy / divisor: what was said minus what is true",
        "a label that is ignored is not in the sum: its gx is 0",
    ),
    "soft_cross_entropy": (
        "log softmax(x)_i = x_i - log(sum of e^x), with the slope (1 if i = j else 0) - softmax(x)_j by x_j",
        "gx_j = -gy / divisor times the sum over i of t_i times that = (softmax(x)_j sum(t) - t_j) gy / divisor",
        "y is linear in t:  gt = -log softmax(x) gy / divisor",
    ),
    "binary_cross_entropy": (
        "one element gives -t log x - (1 - t) log(1 - x), with the slope -t / x + (1 - t) / (1 - x) by x",
        "over a common denominator (x - t) / (x (1 - x));  the mean divides by n:  gx = (x - t) / (x (1 - x)) gy / n",
        "it is linear in t:  gt = (log(1 - x) - log x) gy / n",
    ),
    "sigmoid_cross_entropy": (
        "max(x, 0) + log(1 + exp(-|x|)) is log(1 + exp(x)), written so that nothing overflows",
        "its slope is exp(x) / (1 + exp(x)) = sigmoid(x), that of -x t is -t by x and -x by t",
        "gx = (sigmoid(x) - t) gy / divisor,  gt = -x gy / divisor;  a label that is ignored is not in the sum: 0",
    ),
    "huber_loss": (
        "by d the slope is d where |d| <= delta, else delta sign(d): d clipped to [-delta, delta]",
        "d = x - t has slope 1 by x and -1 by t;  the mean divides by n:  gx = that times gy / n,  gt = -gx",
    ),
    "l1_loss": (
        "|x - t| has the slope sign(x - t) by x, the opposite by t, and at the kink x = t 0 is taken",
        "the mean divides by n:  gx = sign(x - t) gy / n,  gt = -gx",
    ),
    "mean_squared_error": (
        "(x - t)^2 has the slope 2 (x - t) by x and -2 (x - t) by t",
        "the mean divides by n:  gx = 2 (x - t) gy / n,  gt = -gx",
    ),
    "contrastive_loss": (
        _DISTANCE,
        "dy/da = (2 s (a - b) - 2 (1 - s) max(margin - d, 0) (a - b) / d) / (2 batch); the 2 cancel",
        "ga = (s (a - b) - (1 - s) max(margin - d, 0) (a - b) / d) gy / batch",
        "b is in a - b alone:  gb = -ga",
        "legacy: max(margin - d^2, 0) has the slope -2 (a - b) where margin > d^2, else 0",
    ),
    "padded_contrastive_loss": (
        _DISTANCE,
        "dy/da = (2 s (a - b) - 2 (1 - s) max(margin - d, 0) (a - b) / d) / (2 batch); the 2 cancel",
        "Caffe divides by d + epsilon in place of d, which stays finite where a = b but is not the derivative:",
        "ga = (s (a - b) - (1 - s) max(margin - d, 0) (a - b) / (d + epsilon)) gy / batch",
        "b is in a - b alone:  gb = -ga",
    ),
    "hinge_loss": (
        "where 1 - s x <= 0 the score is good enough: 0, and so is its slope",
        "elsewhere 1 - s x has the slope -s by x:  gx = -s gy / batch for p = 1",
        "for p = 2 the square brings twice its base:  gx = -2 s max(0, 1 - s x) gy / batch",
    ),
    "kl_divergence": (
        "p (log p - log q) is linear in log q, with slope -p:  glog_q = -p gy / n",
        "by p it has the slope (log p - log q) + p / p:  gp = (log p + 1 - log q) gy / n",
        "n is 1 for the sum",
    ),
    "darknet_cost": (
        "x is in e through d = truth - x, whose slope is -1:  gx = - gloss scale delta with delta = de/dd",
        "d^2/2 gives d;  |d| gives sign d;  smooth takes the one within 1 and the other beyond",
        "wgan: e = -x where truth is not 0 gives delta 1, e = x gives -1",
        "seg: noobj multiplies e and so delta where truth is 0;  an element left out has delta 0",
    ),
    "darknet_logistic": (
        "dp/dx = p (1 - p), and the loss has the slope -truth / p + (1 - truth) / (1 - p) by p",
        "over a common denominator (p - truth) / (p (1 - p)): times dp/dx that leaves p - truth, times gloss",
        "what arrives at p from elsewhere takes dp/dx alone",
        "both add up:  gx = gloss (p - truth) + p (1 - p) gp",
    ),
    "darknet_softmax": (
        "log p_i = x_i / T - log(sum of e^(x / T)), with the slope ((1 if i = j else 0) - p_j) / T by x_j",
        "-truth_i times that, summed over i of the group:  (p_j sum(truth) - truth_j) / T, times gloss",
        "what arrives at p takes the slope of softmax:  softmax' gp = p (gp - sum(gp p)), over T",
        "gx is the sum of both",
    ),
    "mark_masked": (
        "where truth = -1234, y is a constant, and the derivative would be 0",
        "the C program marks in place and lets what later layers send pass all the same:  gx = gy",
    ),
    "yolo_loss": (
        "boxes and truth decide which target and weight a value gets; from here on they are constants",
        "where y = logistic(x): softplus'(x) = logistic(x), so weight (softplus(x) - target x) has the slope "
        "weight (y - target)",
        "for w, h, where y = x: weight (target - x)^2 / 2 has the slope weight (x - target), the same",
        "what arrives at y from layers above takes dy/dx: slope = y (1 - y), or 1 for w, h",
        "both add up:  gx = gloss weight (y - target) + gy slope",
    ),
    "region_loss": (
        "boxes and truth decide which target and weight a value gets; from here on they are constants",
        "e = (target - y)^2 / 2 has the slope y - target by y; dy/dx = y (1 - y) = s where y = logistic(x), 1 for w, h",
        "classes: -log y of the target after softmax, or cross entropy after logistic, have the slope y - target by x "
        "itself: s = 1",
        "what arrives at y takes dy/dx = slope, for softmax y (gy - sum(gy y))",
        "both add up:  gx = gloss weight (y - target) s + slope gy",
    ),
    "detection_loss": (
        "boxes and truth decide which target and weight a value gets; from here on they are constants",
        "where y = x: weight (target - y)^2 / 2 has the slope weight (y - target), and dy/dx = slope = 1",
        "classes with softmax: -sum of target log y has the slope y sum(target) - target by x, times weight",
        "what arrives at y from layers above takes dy/dx = slope, for softmax y (gy - sum(gy y))",
        "both add up:  gx = gloss weight (y - target) + slope gy",
    ),
    "iseg_loss": (
        "classes: binary cross entropy after logistic has the slope y - target by x:  gx = gloss (y - target)",
        "embeddings: .05 e^2 has the slope .1 e;  |e - mean| has sign(e - mean) by e, and minus that by the mean",
        "own means pull, others push:  gx = gloss .01 (.1 e + .1 sign(e - own mean) - .1 sign(e - other mean))",
        "a mean holds each e of its instance, divided by their number: what the mean receives they share evenly",
        "what arrives at y from layers above takes dy/dx: slope = y (1 - y) for classes, else 1:  + slope gy",
    ),
}
