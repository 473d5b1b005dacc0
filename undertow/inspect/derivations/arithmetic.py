"""Arithmetic, elementary functions, and sums over axes."""

from undertow.inspect.derivations.lines import BROADCAST, Lines, of_one_element

_LARGEST = (
    "a small change of an x that is not chosen has no effect: dy/dx is 0 there and 1 at the chosen one",
    "where n elements are equal to y there is a kink; each of them is given its share:  gx = gy / n",
)


def _chosen(sign: str, other: str) -> Lines:
    return (
        "y is a where that is chosen, else b: dy/da and dy/db are 1 for the one and 0 for the other",
        f"ga = gy where a {sign} b,  gb = gy where a {other} b;  equal: a kink, gy / 2 each",
        BROADCAST,
    )


DERIVATIONS: dict[str, Lines] = {
    "add": ("dy = da + db", "sum(gy * dy) gives both gy as it is:  ga = gy,  gb = gy", BROADCAST),
    "sub": ("dy = da - db", "sum(gy * dy) gives  ga = gy,  gb = -gy", BROADCAST),
    "mul": ("dy = b da + a db, element by element", "sum(gy * dy) gives  ga = gy b,  gb = gy a", BROADCAST),
    "div": ("dy = da / b - a db / b^2", "sum(gy * dy) gives  ga = gy / b,  gb = -gy a / b^2", BROADCAST),
    "pow": (
        "a^b = e^(b ln(a)):  dy/da = b a^(b-1),  dy/db = a^b ln(a)",
        "ga = b a^(b-1) gy,  gb = a^b ln(a) gy",
        BROADCAST,
    ),
    "maximum": _chosen(">", "<"),
    "minimum": _chosen("<", ">"),
    "where": (
        "y is a where the condition holds, else b: dy/da is 1 there and dy/db elsewhere, both 0 otherwise",
        "ga = gy where the condition holds, else 0;  gb = gy elsewhere;  the condition itself has no slope",
        BROADCAST,
    ),
    "neg": of_one_element("dy/dx = -1:  gx = -gy"),
    "power": of_one_element("dy/dx = c x^(c-1), and for c = 0 y = 1 everywhere: slope 0", "gx = c x^(c-1) gy"),
    "square": of_one_element("(x + dx)^2 = x^2 + 2 x dx + ..., so dy/dx = 2 x:  gx = 2 x gy"),
    "abs": of_one_element("y = x above 0 and -x below: slope sign(x), at the kink 0 is taken:  gx = sign(x) gy"),
    "clip": of_one_element("y = x between low and high: slope 1;  held at a limit elsewhere: slope 0;  gx = gy or 0"),
    "exp": of_one_element("e^x is its own slope:  dy/dx = e^x = y,  gx = y gy"),
    "expm1": of_one_element("dy/dx = e^x, and y = e^x - 1, so e^x = y + 1:  gx = (y + 1) gy"),
    "log": of_one_element("x = e^y, so dx/dy = e^y = x, and dy/dx = 1 / x:  gx = gy / x"),
    "log10": of_one_element("log10 x = ln x / ln 10, so dy/dx = 1 / (x ln 10):  gx = gy / (x ln 10)"),
    "log2": of_one_element("log2 x = ln x / ln 2, so dy/dx = 1 / (x ln 2):  gx = gy / (x ln 2)"),
    "log1p": of_one_element("1 + x has the slope 1, ln that of 1 over its argument:  gx = gy / (1 + x)"),
    "sqrt": of_one_element("x = y^2, so dx/dy = 2 y, and dy/dx = 1 / (2 y):  gx = gy / (2 y)"),
    "sin": of_one_element("dy/dx = cos(x):  gx = cos(x) gy"),
    "cos": of_one_element("dy/dx = -sin(x):  gx = -sin(x) gy"),
    "tan": of_one_element(
        "tan x = sin(x) / cos(x), so dy/dx = (cos(x)^2 + sin(x)^2) / cos(x)^2 = 1 + y^2", "gx = (1 + y^2) gy"
    ),
    "tanh": of_one_element(
        "tanh x = sinh(x) / cosh(x), so dy/dx = (cosh(x)^2 - sinh(x)^2) / cosh(x)^2 = 1 - y^2", "gx = (1 - y^2) gy"
    ),
    "sinh": of_one_element("sinh x = (e^x - e^-x) / 2, so dy/dx = (e^x + e^-x) / 2 = cosh(x):  gx = cosh(x) gy"),
    "cosh": of_one_element("cosh x = (e^x + e^-x) / 2, so dy/dx = (e^x - e^-x) / 2 = sinh(x):  gx = sinh(x) gy"),
    "arcsin": of_one_element(
        "x = sin(y), so dx/dy = cos(y) = sqrt(1 - x^2), which is positive for these y", "gx = gy / sqrt(1 - x^2)"
    ),
    "arccos": of_one_element(
        "x = cos(y), so dx/dy = -sin(y) = -sqrt(1 - x^2), as sin is positive for these y", "gx = -gy / sqrt(1 - x^2)"
    ),
    "arctan": of_one_element("x = tan(y), so dx/dy = 1 + tan(y)^2 = 1 + x^2:  gx = gy / (1 + x^2)"),
    "erf": of_one_element(
        "the slope of an integral by its upper end is what stands in it, at that end: 2 / sqrt(pi) e^(-x^2)",
        "gx = 2 / sqrt(pi) e^(-x^2) gy",
    ),
    "exp_affine": of_one_element("dy/dx = outer exp(inner x) inner = inner y:  gx = gy inner y"),
    "log_affine": of_one_element(
        "shift + scale x has the slope scale, log that of 1 over its argument",
        "gx = gy outer scale / (shift + scale x)",
    ),
    "power_affine": of_one_element(
        "shift + scale x has the slope scale, the power that of power times the power - 1 of its base",
        "gx = gy power scale (shift + scale x)^(power - 1)",
    ),
    "sum": ("dy = sum of dx: every element has the slope 1", "so each receives the whole of it:  gx = gy"),
    "mean": ("dy = (sum of dx) / n: every element has the slope 1 / n", "so each receives  gx = gy / n"),
    "var": (
        "dy = 2 sum of (x - mean x) (dx - mean dx) / (n - correction)",
        "the x - mean x add up to 0, so mean dx, the same for all of them, falls away",
        "what stands beside dx:  gx = 2 (x - mean x) gy / (n - correction)",
    ),
    "max": _LARGEST,
    "min": _LARGEST,
    "prod": (
        "y is linear in each x_i, with the product of all others beside it: that is dy/dx_i",
        "gx_i = gy times the product of all others, which is right where some x are 0, too",
    ),
    "quotient_product": (
        "y is linear in each x, with the product of the others beside it: that is dy/dx",
        "Caffe takes it as y / x, one division for the whole product:  gx = gy y / x, not a number where x = 0",
    ),
    "cumsum": (
        "x_i is in y_j for every j from i on: dy_j/dx_i is 1 there, else 0",
        "so gx_i adds up all gy from its place on:  gx_i = gy_i + ... + gy_last",
    ),
}
