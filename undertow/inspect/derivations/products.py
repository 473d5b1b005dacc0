"""Products: dense layers and convolutions."""

from undertow.inspect.derivations.lines import Lines


def _convolution(transposed: str, weights: str) -> Lines:
    return (
        "with X = the windows of x, one a column, a single product does all positions:  y = w X + b",
        "a small change dy = dw X + w dX + db changes the loss by sum(gy * dy)",
        "read off what stands beside dw, dX and db:  gw = gy X^T,  gX = w^T gy,  gb = sum of gy over positions",
        "X repeats input values where windows overlap, so gx adds up (col2im) what all their copies receive",
        f"in names:  gx = {transposed}(gy, w),  gw = {weights}(gy, x)",
    )


def _transposed(convolution: str, weights: str) -> Lines:
    return (
        "the way forward is the way back of a convolution:  y = col2im(X) + b with X = w^T x",
        "col2im adds up, so each element of X receives the gy of the place where it landed:  gX = im2col(gy)",
        "dX = dw^T x + w^T dx, and sum(gX * dX) gives  gx = w gX,  gw = x gX^T",
        f"these are the products of a convolution of gy:  gx = {convolution}(gy, w),  gw = {weights}(x, gy)",
        "b is added at every place:  gb = sum of gy over them",
    )


DERIVATIONS: dict[str, Lines] = {
    "linear": (
        "y = x w^T + b for each row x",
        "a small change dy = dx w^T + x dw^T + db changes the loss by sum(gy * dy)",
        "read off what stands beside dx, dw and db:  gx = gy w,  gw = gy^T x,  gb = sum of gy over rows",
    ),
    "matmul": (
        "y = a b, so dy = da b + a db",
        "sum(gy * dy) gives  ga = gy b^T,  gb = a^T gy",
        "a matrix that was broadcast over others receives the sum over them",
    ),
    "conv2d": _convolution("deconv2d", "conv2d_weights"),
    "convnd": _convolution("deconvnd", "convnd_weights"),
    "conv2d_weights": (
        "y = gy X^T with X = the windows of x, one a column; what arrives at this y is called gw",
        "a small change dy = dgy X^T + gy dX^T changes the loss by sum(gw * dy)",
        "read off what stands beside dgy and dX:  ggy = gw X, which is conv2d(x, gw);  gX = gw^T gy",
        "gX added up (col2im) at the places of its windows:  gx = deconv2d(gy, gw)",
    ),
    "deconv2d": _transposed("conv2d", "conv2d_weights"),
    "deconvnd": _transposed("convnd", "convnd_weights"),
    "im2col": (
        "every y is one of the x, or 0 beyond the border: dy/dx is 1 for the copies of an x, else 0",
        "an x in several windows has several copies, so gx adds up the gy of all of them:  gx = col2im(gy)",
    ),
    "col2im": (
        "every y is the sum of the x that land on its place: dy/dx is 1 for those, else 0",
        "so each x receives the gy of the place where it landed:  gx = im2col(gy)",
    ),
    "einsum": (
        "y is a sum of products with one element of each operand, so it is linear in each of them",
        "a change of x_i alone:  dy = the same sum with dx_i in its place",
        "sum(gy * dy) is then a sum of products of gy, dx_i and the other operands, over all letters",
        "what stands beside an element of dx_i is the sum over the letters that x_i does not name:",
        "gx_i = einsum of gy and the other operands, with the subscripts of x_i as result",
    ),
    "locally_connected": (
        "every place p,q has weights of its own:  y = w X + b with X = the window of x there",
        "dy = dw X + w dX + db, and sum(gy * dy) gives  gw = gy X^T,  gX = w^T gy,  gb = gy, summed over images",
        "windows overlap:  gx = the gX of all windows laid back and added",
    ),
    "xnor_conv2d": (
        "sign is flat: the derivative of y by x and w is 0 almost everywhere, and nothing could learn",
        "so the way back takes sign(x) for x and s sign(w) for w, as if their slope were 1",
        "what is left is a convolution:  gx, gw = those of y = conv2d(x, w)",
    ),
}
