"""Normalisation, dropout and pooling."""

from undertow.inspect.derivations.lines import Lines

# With statistics that are given, mean and s are constants.
GIVEN: Lines = (
    "mean and s are constants here, given from outside, that no x of this batch moves: dy/dx = gamma / s",
    "the chain rule leaves  gx = gamma/s gy",
    "gamma stands beside (x - mean) / s, beta alone, both for a whole channel:",
    "ggamma = sum(gy (x - mean)) / s,  gbeta = sum(gy)",
)
# What is added where the way back of the C program is asked for.
ORIGINAL = "the C program's way back puts a deviation of its own into that line, as told below; so does this"
ORIGINAL_GIVEN = (
    "mean and variance are given here; the C program's way back takes them for those of the batch all the same"
)

DERIVATIONS: dict[str, Lines] = {
    "batch_norm": (
        "with h = (x - mean) / s, y = gamma h + beta:  ggamma = sum(gy h),  gbeta = sum(gy),  gh = gamma gy",
        "mean and s depend on every x of the channel (moving all x does nothing):  dh = (dx - dmean) / s - h ds / s",
        "dmean = sum(dx) / n;  d = n or n-1, what the variance is divided by, q = sqrt(variance (+ eps)) in s:",
        "dvariance = 2 sum((x - mean) dx) / d, so ds = sum((x - mean) dx) / (d q)",
        "sum(gh * dh) sorted by dx:  gx = (gh - sum(gh) / n) / s - (x - mean) sum(gh h) / (d s q)",
        "with gh and h put in:  gx = gamma/s (gy - sum(gy)/n - (x - mean) sum(gy (x - mean)) / (d s q))",
    ),
    "layer_norm": (
        "y = gamma x_hat + beta:  ggamma = sum of gy x_hat,  gbeta = sum of gy,  and g = gamma gy arrives at x_hat",
        "mean and s depend on every x:  dx_hat = (dx - mean(dx)) / s - x_hat ds / s",
        "dvariance = 2 mean((x - mean) dx), so ds = mean((x - mean) dx) / s = mean(x_hat dx)",
        "sum(g * dx_hat) sorted by dx:  gx = (g - mean(g) - x_hat mean(g x_hat)) / s",
    ),
    "lrn": (
        "scale_i holds x_j^2 of every place j in the window of i:  dscale_i/dx_j = (2 alpha / n) x_j",
        "y_i = x_i scale_i^-beta moves with x_i itself, and with scale_i by -beta x_i scale_i^(-beta - 1),",
        "which is -beta y_i / scale_i;  j lies in the window of i where i lies in that of j, so",
        "gx_j = gy_j / scale_j^beta - (2 alpha beta / n) x_j (sum of gy_i y_i / scale_i over the window of j)",
    ),
    "darknet_lrn": (
        "dnorms = 2 alpha W (x dx), as norms = kappa + alpha W x^2",
        "dy = norms^-beta dx - beta x norms^(-beta-1) dnorms",
        "sum(gy * dy) sorted by dx, with W on the other side as W^T:",
        "gx = gy norms^-beta - 2 alpha beta x W^T (gy x norms^(-beta-1))",
        "approximate, as in the C program: norms is taken for a constant, and the second term falls away",
    ),
    "l2norm": (
        "n = sqrt(sum of x^2), so dn = sum(x dx) / n = sum(y dx)",
        "dy = dx / n - x dn / n^2 = (dx - y sum(y dx)) / n",
        "sum(gy * dy) sorted by dx:  gx = (gy - y sum(gy y)) / n",
        "identity, as in the C program: the division is passed over, gx = gy",
    ),
    "mean_variance_normalize": (
        "deviation^2 = mean((x - mean)^2), so ddeviation = mean((x - mean) dx) / deviation",
        "x - mean = y (deviation + eps):  ddeviation = mean(y dx) (deviation + eps) / deviation",
        "dy = (dx - mean(dx) - y ddeviation) / (deviation + eps);  sum(gy * dy) sorted by dx:",
        "gx = (gy - mean(gy) - y mean(gy y) (deviation + eps) / deviation) / (deviation + eps)",
        "without the division  dy = dx - mean(dx)  gives  gx = gy - mean(gy)",
    ),
    "dropout": (
        "r is drawn anew each pass and depends on no x: which x pass is a constant",
        "y = x / (1 - ratio) there and 0 elsewhere:  gx = gy / (1 - ratio) where x passed, else 0",
    ),
    "darknet_dropout": (
        "r depends on no x: which x pass is a constant",
        "where r >= probability, y = f(x) / (1 - probability) has the slope f' / (1 - probability)",
        "so gx = f' gy / (1 - probability) there;  0 elsewhere, where y = 0",
    ),
    "darknet_crop": (
        "every y is 2x - 1 of one x (or that x itself): dy/dx = 2 (or 1) for this x, 0 for all others",
        "so gx = 2 gy (or gy) at the place that y was taken from, 0 outside the part",
    ),
    "max_pool2d": (
        "y of a window is its largest x; the others may change a little without any effect",
        "so dy/dx is 1 where the maximum was found and 0 elsewhere: gx of that place alone receives gy",
        "where windows overlap one x may be the largest of several: it adds up their gy",
    ),
    "max_pool2d_gather": (
        "every y is the x of one place, noted when the maximum was found: dy/dx is 1 there, 0 elsewhere",
        "so gx of that place receives gy; where several y come from one x, they add up",
    ),
    "max_pool2d_scatter": (
        "every x is added to one y, that where the maximum was found: dy/dx is 1 there, 0 elsewhere",
        "so gx is the gy of that place",
    ),
    "avg_pool2d": (
        "y is the sum of a window over its cells, so dy/dx = 1 / cells of the window for each x in it",
        "gx is the sum of gy / cells over the windows that see it",
    ),
    "avg_pool2d_spread": (
        "every x is spread over its window, 1 / cells of the window to each y:  that is dy/dx",
        "so gx = the sum of gy over the window / cells, which is avg_pool2d(gy)",
    ),
    "upsample": (
        "each x is copied to n times n places, times scale: dy/dx = scale for those",
        "so gx = scale times the sum of their gy, which is downsample(gy)",
    ),
    "downsample": (
        "y is scale times the sum of n times n values: dy/dx = scale for each of those",
        "so each of them receives scale gy:  gx = upsample(gy)",
    ),
}
