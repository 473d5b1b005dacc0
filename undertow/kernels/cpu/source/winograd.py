"""Winograd F(m x m, r x r) for all three passes: F(4, 3), F(5, 3), F(2, 3), F(4, 5), and 3 x 3 with stride 2. NHWC.

    forward           Y  = A^T [ sum over ci of (G w G^T) * (B^T x B) ] A
    gradient of x     the same on dY, with transposed and flipped weights
    gradient of w     dW = G^T [ sum over tiles of (B^T x B) * (A dY A^T) ] G

S. Winograd 1980; A. Lavin, S. Gray 2016, "Fast algorithms for convolutional neural networks". The points for
n = 6 are 0, +-1/sqrt(2), +-sqrt(2), infinity: twice as accurate in float32 as the usual 0, +-1, +-2, infinity.
Those for n = 8 are 0, +-1/2, +-1, +-2, infinity: none of a grid around them does better by more than chance. Those for
n = 7 are +-1/4, +-7/8, +-7/4, infinity: pairs alone make half the error of 0, infinity and five others (forward 1.5,
gradients of weights 2 times that of n = 6).

With stride 2 the inputs at even offsets meet the first and the third weight, as with stride 1, those at odd offsets the
second: in one dimension 4 results take 5 products by F(4, 2) and 4 plain ones instead of 12, in two 81 instead of 144.
The gradient of the input takes the same number for 8 x 8 results of 5 x 5 gradients. 36 slabs of weights serve the 81.

Kernels take f = 10 m + r; 432 and 832 for stride 2 and the gradient of its input. Layouts, n = m + r - 1 (stride 2: 9),
strides in bytes, slabs padded by a few cache lines because n * n streams a power of two apart would share one set of
the cache:
    w, dW  [panels][r*r][Ci][16]    U, dU  [n*n, stride 2: 36][panels][Ci][16]
    V      [n*n][T][Ci padded]      M      [n*n][T][16 * panels]     D  [n*n][panels][T][16]
"""
# mypy: ignore-errors

from __future__ import annotations

from undertow.kernels.cpu.source.compiler import inline, kernel
from undertow.kernels.cpu.source.direct import add_sums
from undertow.kernels.cpu.source.micro import nv
from undertow.kernels.cpu.source.simd import (
    LANES,
    VBYTES,
    fma,
    load,
    load_int,
    load_part,
    splat,
    store,
    store_part,
    where_greater,
    zero,
)
from undertow.kernels.cpu.source.winograd_products import few_weights as products_few_weights
from undertow.kernels.cpu.source.winograd_products import images as products_images
from undertow.kernels.cpu.source.winograd_products import weights as products_weights
from undertow.kernels.cpu.source.winograd_tiles import (
    gradients23,
    gradients43,
    gradients45,
    gradients53,
    gradients432,
    inputs23,
    inputs43,
    inputs45,
    inputs53,
    inputs432,
    inputs832,
    outputs23,
    outputs43,
    outputs45,
    outputs53,
    outputs432,
    outputs832,
)
from undertow.kernels.cpu.source.winograd_weights import BLOCK, STRIDED, TMP
from undertow.kernels.cpu.source.winograd_weights import backward as weights_backward
from undertow.kernels.cpu.source.winograd_weights import forward as weights_forward

STRIDED_BACK = 832
KU = 256  # channels of large weights that are transformed at a time: two panels of all slabs are about a megabyte
PAD = 320  # bytes between slabs


@inline
def _row(C):
    """Bytes between the tiles of V and M: whole panels and, from 128 channels on, a cache line."""
    row = (C + 15) // 16 * 64
    return row + 64 if row >= 512 else row


@inline
def _sizes(f):
    """Of tiles in one dimension: the step between patches, their size, n, and m."""
    if f == STRIDED:
        return 8, 9, 9, 4
    if f == STRIDED_BACK:
        return 4, 5, 9, 8
    m, n = f // 10, f // 10 + f % 10 - 1
    return m, n, n, m


@inline
def _grid(grid):
    """The int64 numbers of a grid of tiles: N images, th x tw tiles per group of my x mx images, periods py, px.

    The images of a group lie side by side like a mosaic, every py rows and px columns, with zeros between them
    that serve as padding: fewer tiles stick out than if every image had tiles of its own.
    """
    return (
        load_int(grid), load_int(grid + 8), load_int(grid + 16), load_int(grid + 24), load_int(grid + 32),
        load_int(grid + 40), load_int(grid + 48),
    )  # fmt: skip


@inline
def _first(t, th, tw):
    """Group, row and column of tile t."""
    r = t % (th * tw)
    return t // (th * tw), r // tw, r % tw


@inline
def _next(group, ty, tx, th, tw):
    """Those of the tile behind it: divisions would take as long as a small tile's transform."""
    tx += 1
    if tx == tw:
        tx = 0
        ty += 1
        if ty == th:
            ty = 0
            group += 1
    return group, ty, tx


@inline
def _reach(x, xs, H, W, C, grid, tiles, t):
    """About where the memory of images x ends that tiles before t need; x where pixels hold other channels, too."""
    if xs != 4 * C:
        return x
    return x + load_int(grid) * H * W * xs * min(t, tiles) // tiles


@kernel
def fetch(x, xs, H, W, C, grid, group, Y, X, n, out, Cp):
    """The n x n patch at (Y, X) of a group's mosaic as [n][n][Cp], zeros outside the images and behind C."""
    N, _, _, my, mx, py, px = _grid(grid)
    for i in range(n):
        by = (Y + i) // py
        y = Y + i - by * py
        bx = X // px
        column = X - bx * px
        for j in range(n):
            d = out + (i * n + j) * 4 * Cp
            image = (group * my + by) * mx + bx
            if by >= 0 and by < my and bx >= 0 and bx < mx and image < N and y < H and column < W:
                s = x + ((image * H + y) * W + column) * xs
                for c in range(0, C, LANES):
                    store(d + 4 * c, load_part(s + 4 * c, C - c))
            else:
                for c in range(0, C, LANES):
                    store(d + 4 * c, zero())
            column += 1
            if column == px:
                column = 0
                bx += 1


@kernel
def input_block(f, x, xs, H, W, C, pt, pl, grid, t0, t1, V, lda, ss, pad, tmp):
    """B^T x B of tiles t0..t1; the first tile of a group reads from (-pt, -pl) on. V behind C is of no use."""
    step, n, _, _ = _sizes(f)
    Cp = (C + LANES - 1) // LANES * LANES
    N, th, tw, my, mx, py, px = _grid(grid)
    end = x + (N * H * W - 1) * xs + 4 * C  # whole vectors are read as long as they end before it
    group, ty, tx = _first(t0, th, tw)
    for t in range(t0, t1):
        Y, X = ty * step - pt, tx * step - pl
        by = max(Y, 0) // py if my > 1 else 0
        bx = max(X, 0) // px if mx > 1 else 0
        y0, x0 = Y - by * py, X - bx * px
        image = (group * my + by) * mx + bx
        v = V + (t - t0) * lda
        source, rs, cs = x + ((image * H + y0) * W + x0) * xs, W * xs, xs
        if (
            y0 < 0 or x0 < 0 or y0 + n > H or x0 + n > W or image >= N
            or source + (n - 1) * (rs + cs) + 4 * Cp > end
        ):  # fmt: skip
            fetch(x, xs, H, W, C, grid, group, Y, X, n, pad, Cp)
            source, rs, cs = pad, n * 4 * Cp, 4 * Cp
        if f == 43:
            inputs43(source, rs, cs, Cp, v, ss, tmp)
        elif f == 53:
            inputs53(source, rs, cs, Cp, v, ss, tmp)
        elif f == STRIDED:
            inputs432(source, rs, cs, Cp, v, ss, tmp)
        elif f == STRIDED_BACK:
            inputs832(source, rs, cs, Cp, v, ss, tmp)
        elif f == 45:
            inputs45(source, rs, cs, Cp, v, ss, tmp)
        else:
            inputs23(source, rs, cs, Cp, v, ss, tmp)
        group, ty, tx = _next(group, ty, tx, th, tw)


@kernel
def gradient_block(f, dy, ds, H, W, C, grid, t0, t1, D, ss, ps, pad, tmp):
    """A dY A^T of tiles t0..t1, in panels of 16 channels ps bytes apart, zeros behind C."""
    _, _, _, m = _sizes(f)
    Cp = (C + 15) // 16 * 16
    N, th, tw, my, mx, py, px = _grid(grid)
    group, ty, tx = _first(t0, th, tw)
    for t in range(t0, t1):
        Y, X = ty * m, tx * m
        by = Y // py if my > 1 else 0
        bx = X // px if mx > 1 else 0
        y0, x0 = Y - by * py, X - bx * px
        image = (group * my + by) * mx + bx
        if Cp == C and y0 + m <= H and x0 + m <= W and image < N:
            source, rs, cs = dy + ((image * H + y0) * W + x0) * ds, W * ds, ds
        else:
            for k in range(0, m * m * Cp * 4 if Cp != C else 0, VBYTES):
                store(pad + k, zero())
            fetch(dy, ds, H, W, C, grid, group, Y, X, m, pad, Cp)
            source, rs, cs = pad, m * 4 * Cp, 4 * Cp
        d = D + (t - t0) * 64
        if f == 43:
            gradients43(source, rs, cs, Cp, d, ss, ps, tmp)
        elif f == 53:
            gradients53(source, rs, cs, Cp, d, ss, ps, tmp)
        elif f == STRIDED:
            gradients432(source, rs, cs, Cp, d, ss, ps, tmp)
        elif f == 45:
            gradients45(source, rs, cs, Cp, d, ss, ps, tmp)
        else:
            gradients23(source, rs, cs, Cp, d, ss, ps, tmp)
        group, ty, tx = _next(group, ty, tx, th, tw)


@kernel(floats=("slope",))
def _write_tile(tile, rs, cs, y, ys, W, h, w, C, copy, acc, bias, slope, sums, s2):
    """The h x w corner of a tile to y, with bias, leaky and sums on the way (float32 sums, 2 vectors per step)."""
    sl = splat(slope)
    act = slope != 1
    for c in range(0, C, LANES):
        left = C - c
        b, a1, a2 = zero(), zero(), zero()
        if bias:
            b = load_part(bias + 4 * c, left)
        if sums:
            a1, a2 = load(sums + 4 * c), load(s2 + 4 * c)
        for i in range(h):
            for j in range(w):
                q = y + (i * W + j) * ys + 4 * c
                v = load_part(tile + i * rs + j * cs + 4 * c, left) + b
                if act:
                    v = where_greater(v, zero(), v, v * sl)
                if acc:
                    v = v + load_part(q, left)
                if copy:
                    store_part(q, v, left)
                a1 = a1 + v
                a2 = fma(v, v, a2)
        if sums:
            store(sums + 4 * c, a1)
            store(s2 + 4 * c, a2)


@kernel(floats=("slope",))
def _write_parts(
    m, tile, rs, cs, y, ys, H, W, C, grid, group, Y, X, acc, bias, slope, sums, s2
):  # fmt: skip
    """A tile at (Y, X) of a mosaic to the images it touches, as far as it lies in them."""
    N, _, _, my, mx, py, px = _grid(grid)
    i = 0
    while i < m:
        by = (Y + i) // py
        y0 = Y + i - by * py
        h = min(m - i, py - y0)
        j = 0
        while j < m:
            bx = (X + j) // px
            x0 = X + j - bx * px
            w = min(m - j, px - x0)
            image = (group * my + by) * mx + bx
            if by < my and bx < mx and image < N and y0 < H and x0 < W:
                target = y + ((image * H + y0) * W + x0) * ys
                part = tile + i * rs + j * cs
                _write_tile(
                    part, rs, cs, target, ys, W, min(h, H - y0), min(w, W - x0), C, 1, acc, bias, slope, sums, s2
                )  # fmt: skip
            j += w
        i += h


@kernel(floats=("slope",))
def output_block(
    f, y, ys, H, W, C, grid, t0, t1, M, ldm, ss, pad, tmp, acc, bias, slope, sums, sq, part
):  # fmt: skip
    """A^T M A of tiles t0..t1 to y (added to it if acc), with bias, leaky, float64 sums if sums != 0.

    part: 2 * Cp floats for the block's own sums.
    """
    _, _, _, m = _sizes(f)
    Cp = (C + LANES - 1) // LANES * LANES
    s1, s2 = part if sums else 0, part + 4 * Cp
    if sums:
        for c in range(0, 8 * Cp, VBYTES):
            store(part + c, zero())
    N, th, tw, my, mx, py, px = _grid(grid)
    group, ty, tx = _first(t0, th, tw)
    for t in range(t0, t1):
        Y, X = ty * m, tx * m
        by = Y // py if my > 1 else 0
        bx = X // px if mx > 1 else 0
        y0, x0 = Y - by * py, X - bx * px
        image = (group * my + by) * mx + bx
        source = M + (t - t0) * ldm
        direct = y0 + m <= H and x0 + m <= W and image < N and Cp == C and not (acc or bias or slope != 1)
        target, rs, cs = pad, m * 4 * Cp, 4 * Cp
        if direct:
            target, rs, cs = y + ((image * H + y0) * W + x0) * ys, W * ys, ys
        if f == 43:
            outputs43(source, ss, Cp, target, rs, cs, tmp)
        elif f == 53:
            outputs53(source, ss, Cp, target, rs, cs, tmp)
        elif f == STRIDED:
            outputs432(source, ss, Cp, target, rs, cs, tmp)
        elif f == STRIDED_BACK:
            outputs832(source, ss, Cp, target, rs, cs, tmp)
        elif f == 45:
            outputs45(source, ss, Cp, target, rs, cs, tmp)
        else:
            outputs23(source, ss, Cp, target, rs, cs, tmp)
        if not direct:
            _write_parts(m, target, rs, cs, y, ys, H, W, C, grid, group, Y, X, acc, bias, slope, s1, s2)
        elif sums:
            _write_tile(target, rs, cs, target, ys, W, m, m, C, 0, 0, 0, slope, s1, s2)
        group, ty, tx = _next(group, ty, tx, th, tw)
    if sums:
        add_sums(sums, part, C)
        add_sums(sums + sq, s2, C)


@kernel(floats=("slope",))
def forward(
    f, x, xs, H, W, pt, pl, U, us, y, ys, Ho, Wo, Ci, Co, grid, tiles, T, b0, b1, tmp, acc, bias, slope, sums, sq
):  # fmt: skip
    """Many tiles, small weights: blocks b0..b1 of T tiles; U holds G w G^T of all panels."""
    _, _, n, _ = _sizes(f)
    tw = load_int(grid + 16)
    Cop = (Co + 15) // 16 * 16
    lda, ldm = _row(Ci), _row(Co)
    sv, sm = T * lda + PAD, T * ldm + PAD
    part = tmp + TMP
    pad = part + 8 * Cop
    V = pad + n * n * 4 * (max(Ci, Co) + 16)
    M = V + n * n * sv
    for b in range(b0, b1):
        t0 = b * T
        t1 = min(tiles, t0 + T)
        input_block(f, x, xs, H, W, Ci, pt, pl, grid, t0, t1, V, lda, sv, pad, tmp)
        lead = tw if b > b0 else 0  # rows of tiles are fetched whole
        products_images(
            f, n * n, t1 - t0, V, lda, sv, U, us, Ci, Co, M, ldm, sm,
            _reach(y, ys, Ho, Wo, Co, grid, tiles, t0 + lead), _reach(y, ys, Ho, Wo, Co, grid, tiles, t1 + tw),
            _reach(x, xs, H, W, Ci, grid, tiles, t1 + lead), _reach(x, xs, H, W, Ci, grid, tiles, t1 + T + tw),
        )  # fmt: skip
        output_block(f, y, ys, Ho, Wo, Co, grid, t0, t1, M, ldm, sm, pad, tmp, acc, bias, slope, sums, sq, part)


# Few tiles, large weights: the input is transformed once; then for every pair of panels the weights are
# transformed, multiplied and the result transformed back while they are in cache. U as a whole never exists.
@kernel
def few_input(f, x, xs, H, W, pt, pl, C, grid, tiles, t0, t1, V, tmp):
    """V for tiles t0..t1 of all `tiles`. tmp: TMP bytes, then n*n*C floats."""
    lda = _row(C)
    input_block(f, x, xs, H, W, C, pt, pl, grid, t0, t1, V + t0 * lda, lda, tiles * lda + PAD, tmp + TMP, tmp)


@kernel(floats=("slope",))
def few_forward(
    form, f, V, w, y, ys, Ho, Wo, Ci, Co, grid, tiles, p0, p1, tmp, acc, bias, slope, sums, sq
):  # fmt: skip
    """Output panels p0..p1, from V of all tiles. form: of the weights, see winograd_weights.py."""
    _, _, n, _ = _sizes(f)
    lda = _row(Ci)
    ldm, us = 128 + 64, 2 * min(Ci, KU) * 64 + PAD
    sv, sm = tiles * lda + PAD, tiles * ldm + PAD
    part = tmp + TMP + BLOCK
    pad = part + 256
    M = pad + n * n * 128
    U = M + n * n * sm
    for p in range(p0, p1, 2):
        both = min(2, p1 - p)
        cols = 16 * both
        for k in range(0, Ci, KU):
            kc = min(KU, Ci - k)
            weights_forward(form, f, w, U, us, Ci, Co, p, p + both, k, k + kc, tmp)
            for e in range(n * n):
                A = V + e * sv + 4 * k
                nv(tiles, A, lda, kc, U + e * us, kc * 64, M + e * sm, ldm, cols, k > 0, A + sv)
        output_block(
            f, y + 64 * p, ys, Ho, Wo, min(cols, Co - 16 * p), grid, 0, tiles, M, ldm, sm, pad, tmp, acc,
            bias + 64 * p if bias else 0, slope, sums + 128 * p if sums else 0, sq, part,
        )  # fmt: skip


@kernel
def few_backward_weights(form, f, V, dy, ds, Ho, Wo, dW, Ci, Co, grid, tiles, p0, p1, tmp, ruined):
    """dW panels p0..p1, as form says, from V of all tiles; of D, two panels at a time exist.

    ruined: as in winograd_weights.py.
    """
    _, _, n, m = _sizes(f)
    taps = (f % 10) * (f % 10)
    lda, us, ps = _row(Ci), 2 * min(Ci, KU) * 64 + PAD, tiles * 64
    sv, sd = tiles * lda + PAD, 2 * ps + PAD
    pad = tmp + TMP + BLOCK
    D = pad + m * m * 128
    dU = D + n * n * sd
    for p in range(p0, p1, 2):
        cols = min(16 * min(2, p1 - p), Co - 16 * p)
        gradient_block(f, dy + 64 * p, ds, Ho, Wo, cols, grid, 0, tiles, D, sd, ps, pad, tmp)
        for k in range(0, Ci, KU):
            kc = min(KU, Ci - k)
            products_few_weights(
                n * n, tiles, V + 4 * k, lda, sv, D, ps, sd, dU, us, kc, cols,
                dW + (16 * p * Ci + k) * taps * 4, Ci * taps * 4, kc * taps * 4,
            )  # fmt: skip
            weights_backward(form, f, dU, us, dW, Ci, Co, p, min(p1, p + 2), k, k + kc, tmp, ruined)


@kernel
def backward_weights(
    f, x, xs, H, W, pt, pl, dy, ds, Ho, Wo, dU, us, Ci, Co, grid, tiles, T, b0, b1, p0, p1, tmp
):  # fmt: skip
    """Panels p0..p1 of dU = V^T D over blocks b0..b1; the first block overwrites."""
    _, _, n, _ = _sizes(f)
    tw = load_int(grid + 16)
    panels = p1 - p0
    lda, ps = _row(Ci), T * 64
    sv, sm = T * lda + PAD, panels * ps + PAD
    pad = tmp + TMP
    V = pad + n * n * 4 * (max(Ci, Co) + 16)
    D = V + n * n * sv
    for b in range(b0, b1):
        t0 = b * T
        t1 = min(tiles, t0 + T)
        input_block(f, x, xs, H, W, Ci, pt, pl, grid, t0, t1, V, lda, sv, pad, tmp)
        channels = min(16 * p1, Co) - 16 * p0
        gradient_block(f, dy + 64 * p0, ds, Ho, Wo, channels, grid, t0, t1, D, sm, ps, pad, tmp)
        # With more channels V, D and dU would drive out what is fetched before it is used.
        lead, to = (tw if b > b0 else 0), (t1 + T + tw if b + 1 < b1 and Ci + Co <= 192 else 0)
        products_weights(
            f, n * n, t1 - t0, V, lda, sv, D, ps, sm, dU + p0 * Ci * 64, us, Ci, panels, b > b0,
            _reach(x, xs, H, W, Ci, grid, tiles, t1 + lead), _reach(x, xs, H, W, Ci, grid, tiles, to),
            _reach(dy, ds, Ho, Wo, Co, grid, tiles, t1 + lead), _reach(dy, ds, Ho, Wo, Co, grid, tiles, to),
        )  # fmt: skip
