"""Activations: mostly one slope for each element."""

from undertow.inspect.derivations.lines import Lines, of_one_element

DERIVATIONS: dict[str, Lines] = {
    "relu": of_one_element("y = x where x > 0: slope 1;  y = 0 elsewhere: slope 0;  gx = gy where x > 0, else 0"),
    "relu6": of_one_element("y = x between 0 and 6: slope 1;  y = 0 or 6 elsewhere: slope 0, so gx = gy or 0"),
    "leaky_relu": of_one_element("dy/dx = 1 where x > 0, and a where y = a x;  gx = gy or a gy"),
    "prelu": (
        *of_one_element("dy/dx = 1 where x > 0, and a where y = a x"),
        "a is in y = a x alone, with dy/da = x, and the same one for its whole channel",
        "so ga = sum of x gy over the places of the channel where x <= 0",
    ),
    "elu": of_one_element(
        "dy/dx = s where y = s x", "dy/dx = s a e^x where y = s a (e^x - 1);  gx = gy times one or the other"
    ),
    "hard_sigmoid": of_one_element(
        "x / 6 + 1 / 2 lies between 0 and 1 where -3 < x <= 3: slope 1 / 6",
        "elsewhere y is held at 0 or 1: slope 0;  gx = gy / 6 or 0",
    ),
    "hard_swish": of_one_element(
        "y = 0 where x <= -3 and y = x where x > 3: slopes 0 and 1",
        "between them y = x^2 / 6 + x / 2: slope x / 3 + 1 / 2;  gx = gy times the slope",
    ),
    "gelu": of_one_element(
        "product rule:  dy/dx = P(x) + x dP/dx",
        "derf(x)/dx = 2 / sqrt(pi) e^(-x^2), so dP/dx = e^(-x^2 / 2) / sqrt(2 pi) = p(x)",
        "gx = (P(x) + x p(x)) gy",
    ),
    "gelu_tanh": of_one_element(
        "product rule:  dy/dx = (1 + t) / 2 + x / 2 dt/dx",
        "dt/dx = (1 - t^2) u', as t = tanh(u), and u' = sqrt(2 / pi) (1 + 3 * 0.044715 x^2)",
        "3 * 0.044715 = 0.134145:  gx = ((1 + t) / 2 + x (1 - t^2) u' / 2) gy",
    ),
    "mish": of_one_element(
        "product rule:  dy/dx = t + x dt/dx",
        "the slope of ln(1 + e^x) is e^x / (1 + e^x) = sigmoid(x), that of tanh is 1 - t^2",
        "so dt/dx = (1 - t^2) sigmoid(x):  gx = (t + x (1 - t^2) sigmoid(x)) gy",
    ),
    "hard_mish": of_one_element(
        "dy/dx = 1 where y = x, x + 1 where y = x^2/2 + x, 0 where y = 0", "gx = gy times that slope"
    ),
    "sigmoid": of_one_element(
        "dy/dx = e^-x / (1 + e^-x)^2",
        "y = 1 / (1 + e^-x) and 1 - y = e^-x / (1 + e^-x), so dy/dx = y (1 - y)",
        "gx = y (1 - y) gy",
    ),
    "softplus": of_one_element(
        "dy/dx = beta e^(beta x) / (1 + e^(beta x)) / beta", "the beta cancel:  gx = sigmoid(beta x) gy"
    ),
    "swish": of_one_element("ds/dx = s (1 - s), so dy/dx = s + x s (1 - s)", "x s is y:  gx = (s + y (1 - s)) gy"),
    "swish_beta": of_one_element(
        "ds/dx = beta s (1 - s), so dy/dx = s + beta x s (1 - s)",
        "x s is y:  dy/dx = s + beta y (1 - s), in another order  gx = gy (beta y + s (1 - beta y))",
    ),
    "darknet_activation": of_one_element(
        "the slope f'(x) is that of the function named:  gx = f'(x) gy",
        "Darknet keeps y alone and tells f' from it; the table says where that is another value",
    ),
    "softmax": (
        "y_i = e^x_i / sum of e^x:  dy_i/dx_j = y_i (1 if i = j else 0) - y_i y_j",
        "gx_j = sum over i of gy_i dy_i/dx_j = y_j (gy_j - sum of gy y)",
    ),
    "log_softmax": (
        "the slope of ln(e^x_0 + ... + e^x_n) by x_j is e^x_j over that sum, which is e^y_j",
        "dy_i/dx_j = (1 if i = j else 0) - e^y_j",
        "gx_j = sum over i of gy_i dy_i/dx_j = gy_j - e^y_j sum of gy",
    ),
    "logsumexp": (
        "dy/dx_i = e^x_i / sum of e^x, and sum of e^x = e^y",
        "so dy/dx_i = e^(x_i - y):  gx = e^(x - y) gy",
    ),
    "gaussian_output": (
        "each output depends on its own v alone, so gv = gy times the slope of the output by v",
        "s = logistic(v) has the slope s (1 - s); w and h are v itself: slope 1",
        "x and y are scale s - (scale - 1)/2: slope scale s (1 - s)",
    ),
    "yolo_output": (
        "each y depends on its own x alone, so gx = gy dy/dx",
        "dy/dx = logistic'(x) for objectness and classes, 1 for w, h (and with new_coords, where nothing is squashed)",
        "x, y are stretched by s after that, which multiplies their slope by s",
    ),
}

_HELD = "where y is held the slope is 0"
# Of each of Darknet's activations: where its slope comes from.
DARKNET: dict[str, Lines] = {
    "logistic": ("dy/dx = exp(-x) / (1 + exp(-x))^2 = y (1 - y)",),
    "loggy": ("y = 2 s - 1 with s = 1 / (1 + exp(-x)), so dy/dx = 2 s (1 - s)", "s = (1 + y) / 2:  (1 - y^2) / 2"),
    "relu": ("y = x where x > 0: slope 1;  y = 0 elsewhere: slope 0",),
    "elu": ("slope 1 where y = x;  exp(x) where y = exp(x) - 1, which is y + 1",),
    "selu": (
        "slope 1.0507 where y = 1.0507 x",
        "slope 1.0507 * 1.6732 exp(x) elsewhere, which is y + 1.0507 * 1.6732",
    ),
    "relie": ("slope 1 where y = x, .01 where y = .01 x",),
    "ramp": ("slope .1 of .1 x everywhere, and 1 more where max(x, 0) = x",),
    "linear": ("y = x: slope 1",),
    "tanh": ("tanh(x) = sinh(x) / cosh(x), so dy/dx = (cosh(x)^2 - sinh(x)^2) / cosh(x)^2 = 1 - y^2",),
    "plse": ("three straight lines, .125 steep in the middle and .01 outside",),
    "leaky": ("slope 1 where y = x, .1 where y = .1 x",),
    "stair": ("floor is flat: slope 0 where y = floor(x / 2), slope 1 from x where y = x - floor(x) + floor(x / 2)",),
    "hardtan": (f"slope 1 where y = x;  {_HELD}",),
    "lhtan": ("slope 1 where y = x, .001 on the lines below 0 and above 1",),
}  # fmt: skip
