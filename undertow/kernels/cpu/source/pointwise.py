"""1x1 windows, for which OIHW weights are a matrix, and dense layers: one product for each pass.

All is read where it lies, but for the weights on the way forward, which have to be turned. Copies of the others, even
into a cache that is near, take longer than what they save. Gradients of weights: dW[o][i] = sum over pixels of
dy[pixel][o] x[pixel][i]; the input channels are the vectors' lanes, so the results' rows are those of OIHW weights.
"""
# mypy: ignore-errors

from __future__ import annotations

from undertow.kernels.cpu.source.compiler import inline, kernel
from undertow.kernels.cpu.source.direct import epilogue
from undertow.kernels.cpu.source.micro import ROWS, nr, tr
from undertow.kernels.cpu.source.packing import pack
from undertow.kernels.cpu.source.simd import LANES, fma, load_part, prefetch, store_part, tell_nan, zero

KC = 512  # rows of B per pass of a product: a strip is 64 KB, which tiles read from the second cache as fast
NEAR = 1 << 15  # bytes of B that stay in cache anyway
STRIP = 32  # columns at a time; in gradients of weights their rows of a block stay in the first cache for all tiles


@kernel(floats=("slope",))
def product(x, xs, B, lb, pb, y, ys, P, K, N, T, b0, b1, tmp, acc, bias, slope, sums, sq, wanted, size):
    """y[P, N] (+)= x[P, K] B[K, N], blocks b0..b1 of T pixels.

    B: panels of 16 columns pb bytes apart, their rows lb bytes apart: packed weights, or with pb = 64 rows of N floats.
    tmp: 2 * LANES floats and, for rows of N floats that do not fill their last panel, 32 * K floats.
    wanted: `size` bytes that are read next, after all blocks.
    """
    small = 4 * K * N <= NEAR
    whole, rest = N, tmp + 8 * LANES
    if lb != 64 and N % 16:
        whole = N // STRIP * STRIP
        _copy(B + 4 * whole, 0, lb, N - whole, 1, K, rest)
    for b in range(b0, b1):
        xb, yb = x + b * T * xs, y + b * T * ys
        n, following = min(T, P - b * T), min(T, P - b * T - T)
        x_ahead, x_size, y_ahead, y_size = xb + T * xs, following * xs, yb + T * ys, following * ys
        if b + 1 == b1:
            x_ahead, x_size, y_size = wanted, size, 0
        done = 0  # bytes asked for
        for c in range(0, N, STRIP):
            W, wl, wp = B + c // 16 * pb, lb, pb
            if c >= whole:
                W, wl, wp = rest, 4 * STRIP, 64
            behind = B + (c // 16 + 2) * pb if c + STRIP < N else B
            cols = min(STRIP, N - c)
            for k in range(0, K, KC):
                m = min(KC, K - k)
                w_ahead = W + (k + KC) * wl if k + KC < K else behind
                if small:
                    w_ahead = 0
                A, C = xb + 4 * k, yb + 4 * c
                _column(
                    n, A, xs, m, W + k * wl, wl, wp, C, ys, cols, acc or k > 0, b1 == b0 + 1 and k == 0,
                    w_ahead, lb, pb, x_ahead, x_size, y_ahead, y_size, done
                )  # fmt: skip
                done += max(0, (n + ROWS - 1) // ROWS - (0 if small else 2)) * m * 64
            b4, s8 = bias + 4 * c if bias else 0, sums + 8 * c if sums else 0
            epilogue(yb + 4 * c, ys, cols, n, b4, slope, s8, sq, tmp)


@inline
def _column(
    n, A, xs, K, W, wl, wp, C, ys, cols, acc, cold, w_ahead, lb, pb, x_ahead, x_size, y_ahead, y_size, done
):  # fmt: skip
    """n rows of a strip of y. While a tile is computed, cache lines are asked for that later ones need.

    First the next rows of B, two columns of lines (w_ahead, or 0), then what lies at x_ahead and y_ahead, of which
    `done` bytes have been asked for. To ask for y, too, although it is only written, is worth more than all the rest;
    if cold, nobody has asked for this y yet.
    """
    for r in range(0, n, ROWS):
        ahead, at = A, 0
        if r < 2 * ROWS and w_ahead:
            ahead, at = w_ahead + r // ROWS * pb, lb
        else:
            if done < x_size:
                ahead, at = x_ahead + done, 64
            elif done < x_size + y_size:
                ahead, at = y_ahead + done - x_size, 64
            done += 64 * K
        if cold and r + ROWS < n:
            _ask(C + (r + ROWS) * ys, ys, min(ROWS, n - r - ROWS))
        nr(min(ROWS, n - r), A + r * xs, xs, K, W, wl, wp, C + r * ys, ys, cols, acc, ahead, at)


@kernel(floats=("slope",))
def few_forward(x, xs, w, y, ys, P, K, N, p0, p1, tmp, acc, bias, slope, sums, sq):
    """`product` of all P pixels, output panels p0..p1 of OIHW weights, two at a time packed in the cache.

    tmp: 64 floats, then 32 * K.
    """
    packed = tmp + 256
    for p in range(p0, p1, 2):
        both = min(2, p1 - p)
        pack(w, K, 1, N, packed - p * K * 64, p, p + both, tmp)
        cols = min(16 * both, N - 16 * p)
        b4, s8 = bias + 64 * p if bias else 0, sums + 128 * p if sums else 0
        wanted, size = w + 64 * (p + 2) * K, 128 * K if p + 2 < p1 else 0
        product(
            x, xs, packed, 64, K * 64, y + 64 * p, ys, P, K, cols, P, 0, 1, tmp, acc, b4, slope, s8, sq, wanted, size
        )  # fmt: skip


@kernel
def backward_weights(x, xr, xs, dy, ds, Ci, Co, R, W, T, b0, b1, dW, tmp, w, ws, subtract, ruined):
    """dW from blocks b0..b1 of T runs of W pixels out of R runs; overwrites it.

    xr, xs: bytes of x from run to run and from pixel to pixel within one; W is 1 where all pixels are xr apart.
    dW: panels of input channels, [ceil(Ci/16)][Co][16]. w: 0, or rows of Ci floats ws bytes apart that become (or
    from which is taken, if subtract) the result. tmp: T * W * 128 bytes. ruined: 0, or an int64 that becomes 1 where
    what is written to w is not finite.
    """
    for b in range(b0, b1):
        last = b + 1 == b1
        xb, yb = x + b * T * xr, dy + b * T * W * ds
        x_ahead, y_ahead = 0 if last else xb + T * xr, 0 if last else yb + T * W * ds
        n, width, step = min(T, R - b * T), W, xs
        if W == 1:
            n, width, step = 1, n, xr
        target = w if last else 0
        _block(
            xb, xr, step, yb, ds, Ci, Co, n, width, b > b0, x_ahead, y_ahead, dW, tmp, target, ws, subtract, ruined
        )  # fmt: skip


@kernel
def _block(x, xr, xs, dy, ds, Ci, Co, R, W, acc, x_ahead, y_ahead, dW, tmp, w, ws, subtract, ruined):
    """One block of R runs. x_ahead, y_ahead: where the next one lies, or 0.

    While a tile is computed, a column of cache lines is asked for that a later one needs: first of the next strip of
    x, then of dy, of the next block or, in the first strip of the first block, of the tile behind this one.
    """
    line, bad = 0, zero()
    for c in range(0, Ci, STRIP):
        cols = min(STRIP, Ci - c)
        B, br, bs = x + 4 * c, xr, xs
        if cols % 16:
            _copy(B, xr, xs, cols, R, W, tmp)
            B, br, bs = tmp, 128 * W, 128
        strip_ahead = x_ahead if c + STRIP >= Ci else x + 4 * (c + STRIP)
        C = dW + c // 16 * Co * 64
        for o in range(0, Co, ROWS):
            ahead, ar, at = C, 0, 0
            if o < 2 * ROWS and strip_ahead:
                ahead, ar, at = strip_ahead + o // ROWS * 64, xr, xs
            elif y_ahead and line < Co // 16:
                ahead, ar, at = y_ahead + line * 64, W * ds, ds
                line += 1
            elif c == 0 and not acc:
                ahead, ar, at = dy + 4 * (o + 2 * ROWS) - 4, W * ds, ds
            m = min(ROWS, Co - o)
            target, sums = w + o * ws + 4 * c, C + 64 * o
            if w:
                _ask(target, ws, m)
                if not acc:
                    sums = dW  # the whole sum comes from this tile
            tr(m, dy + 4 * o, ds, R, W, B, br, bs, sums, Co * 64, cols, acc, ahead, ar, at)
            if w:
                bad = _deliver(sums, Co * 64, 0, 1, cols, target, ws, m, subtract, bad)
    tell_nan(bad, ruined)


@inline
def _copy(x, xr, xs, cols, R, W, out):
    """A strip that ends within a panel as [R][W][32], zeros behind it: R runs of W rows, xr and xs bytes apart."""
    for r in range(R):
        for i in range(W):
            for c in range(0, STRIP, LANES):
                store_part(out + 4 * c, load_part(x + r * xr + i * xs + 4 * c, cols - c), LANES)
            out += 4 * STRIP


@inline
def _ask(w, ws, n):
    """Ask for n rows of a strip."""
    for k in range(n):
        prefetch(w + k * ws)
        prefetch(w + k * ws + 64)


@inline
def _deliver(parts, panel, step, count, cols, w, ws, n, subtract, bad):
    """n rows of `cols` columns at w become, or are lessened by, the sum of `count` panels, step bytes apart.

    Adds 0 times what is written to bad.
    """
    for k in range(n):
        for c in range(0, cols, LANES):
            at, left = w + k * ws + 4 * c, cols - c
            s = parts + c // 16 * panel + 64 * k + c % 16 * 4
            v = load_part(s, left)
            for p in range(1, count):
                v = v + load_part(s + p * step, left)
            if subtract:
                v = load_part(at, left) - v
            store_part(at, v, left)
            bad = fma(v, zero(), bad)
    return bad


@kernel
def add_up(parts, step, count, Ci, Co, w, ws, subtract, ruined, o0, o1):
    """Rows o0..o1 of w become, or are lessened by, the sum of `count` dW of `backward_weights`, step bytes apart."""
    w += o0 * ws
    tell_nan(_deliver(parts + 64 * o0, Co * 64, step, count, Ci, w, ws, o1 - o0, subtract, zero()), ruined)
