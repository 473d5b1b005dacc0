"""Recurrent layers: the chain rule through time."""

from undertow.inspect.derivations.lines import Lines

_SUMS = "each sum is linear in x[t], y[t-1], w_x, w_h and b, as a dense layer; the weights add up over all t:"

DERIVATIONS: dict[str, Lines] = {
    "rnn": (
        "d[t] is what arrives at the sum of step t; y[t] is a result and feeds the next sum: gy[t] + d[t+1] w_h",
        "the slope of tanh is 1 - y[t]^2 (of max(0, ...) it is 1 or 0):  d[t] = (gy[t] + d[t+1] w_h) (1 - y[t]^2)",
        _SUMS,
        "gx = d w_x,  gw_x = d^T x,  gw_h = d^T y[t-1],  gb = sum of d",
    ),
    "lstm": (
        "y[t] is a result and feeds the four sums of step t+1:  gh = gy[t] + d[t+1] w_h is all that reaches it",
        "c[t] is in y[t] = o tanh(c[t]), and in c[t+1] beside f[t+1]:  gc = gc f[t+1] + gh o (1 - tanh(c)^2)",
        "o receives gh tanh(c);  i, f, g receive gc g, gc c[t-1], gc i",
        "through the slopes s' = s (1 - s) and 1 - g^2 to the four sums:  d = (gc g i(1-i), gc c[t-1] f(1-f), "
        "gc i (1-g^2), gh tanh(c) o(1-o))",
        _SUMS,
        "gx = d w_x,  gw_x = d^T x,  gw_h = d^T y[t-1],  gb = sum of d",
    ),
    "gru": (
        "y[t] is a result, stands in y[t+1] beside z, and feeds its sums:  gh = gy[t] + z gh[t+1] + e[t+1] w_h",
        "y[t] = (1 - z) n + z y[t-1]: n receives gh (1-z), z receives gh (y[t-1]-n)",
        "to their sums, by the slopes of tanh and s:  dn = gh (1-z)(1-n^2),  dz = gh (y[t-1]-n) z(1-z)",
        "r and h_n meet in r h_n:  dr = dn h_n r(1-r), and h_n receives r dn;  d = (dr, dz, dn), e = (dr, dz, r dn)",
        "x_. and h_. are dense layers, summed over all t:"
        "  gx = d w_x,  gw_x = d^T x,  gw_h = e^T y[t-1],  gb_x, gb_h = sums of d, e",
    ),
    "lstm_unit": (
        "h = o tanh(c') passes gh o (1 - tanh(c')^2) on to c', where gc' arrives too:  e = gc' + gh o (1 - tanh(c')^2)",
        "c' = cont f c + i g is linear in each of its factors: c receives e cont f, f e cont c, i e g, g e i",
        "o receives gh tanh(c');  cont is a constant, 0 where a sequence begins",
        "through the slopes of s and tanh to the parts of x:  gc = e cont f,  gx = (e g i(1-i), e c cont f(1-f), "
        "gh tanh(c') o(1-o), e i (1-g^2))",
    ),
    "darknet_rnn": (
        "h[t] is in y[t] through out, and in h[t+1] through self: gout[t] + gself[t+1] w_self arrives there",
        "h[t] = in(x[t]) + self(h[t-1]) hands that to both; through the activation of self:  "
        "gself[t] = self' (gout[t] + gself[t+1] w_self)",
        "the C program copies that product, self' included, to in, and multiplies by in' too:  gin[t] = in' gself[t]",
        "the derivative would have in' times the bracket alone: this is what the C program does, not the slope",
    ),
    "darknet_lstm": (
        "h[t] feeds the four sums of the next step; c[t] is in h[t] = o tanh(c[t]) and in c[t+1] beside f[t+1]",
        "so gc = f gc of the step after + gh o (1 - tanh(c)^2), and the gates receive gc g, gc c, gc i and gh tanh(c)",
        "each goes through s' = s (1 - s) or 1 - g^2 to w and u, dense layers:  gx, gw add up through time",
        "the C program never clears what it keeps: before the first step it reads h[0], c[0] for h[-1], c[-1], and",
        "after the last step it begins with the f gc that the pass before left: no derivative, but what it computes",
    ),
}
