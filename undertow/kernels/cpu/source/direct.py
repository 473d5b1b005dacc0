"""Convolutions without a transform: any window, stride, padding and dilation, NHWC.

`convolve` reads every pixel through an address table (padding points to zeros), so it needs no unfolded copy
of the input. The gradient of the input is the same operation on other addresses: for stride s the pixels fall
into s * s classes, each a convolution with some of the taps.
"""
# mypy: ignore-errors

from __future__ import annotations

from undertow.kernels.cpu.source.compiler import inline, kernel
from undertow.kernels.cpu.source.micro import ROWS, ind, nn, tn
from undertow.kernels.cpu.source.simd import (
    LANES,
    VBYTES,
    fma,
    load,
    load_double,
    load_float,
    load_int,
    load_part,
    splat,
    store,
    store_double,
    store_float,
    store_int,
    store_part,
    where_greater,
    zero,
)

KT = 288  # rows of B per pass of convolve, in whole taps: two panels are 36 KB
REACH = 8 * ROWS  # bytes per tap in a record of the address table


@kernel
def add_sums(sums, values, n):
    """Add n floats to n float64 totals."""
    for i in range(n):
        store_double(sums + 8 * i, load_double(sums + 8 * i) + load_float(values + 4 * i))


@kernel(floats=("slope",))
def epilogue(y, ys, C, n, bias, slope, sums, sq, tmp):
    """On n pixels still in cache: add bias, leaky (slope other than 1), sums of y and y^2 into float64.

    bias, sums: 0 for none. sums: float64 [C], the squares sq bytes behind. tmp: 2 * LANES floats.
    """
    sl = splat(slope)
    act = slope != 1
    for c in range(0, C, LANES):
        left = C - c
        if bias or act:
            b = zero()
            if bias:
                b = load_part(bias + 4 * c, left)
            for i in range(n):
                q = y + i * ys + 4 * c
                v = load_part(q, left) + b
                if act:
                    v = where_greater(v, zero(), v, v * sl)
                store_part(q, v, left)
    if sums:
        c = 0
        while c + 2 * LANES <= C:
            _sum_two(y + 4 * c, ys, n, sums + 8 * c, sq, tmp)
            c += 2 * LANES
        while c < C:
            _sum(y + 4 * c, ys, min(C - c, LANES), n, sums + 8 * c, sq, tmp)
            c += LANES


@inline
def _sum(y, ys, C, n, sums, sq, tmp):
    """Sums of C <= LANES channels of n pixels, and of their squares."""
    a1, a2 = zero(), zero()
    for i in range(n):
        v = load_part(y + i * ys, C)
        a1 = a1 + v
        a2 = fma(v, v, a2)
    store(tmp, a1)
    store(tmp + VBYTES, a2)
    add_sums(sums, tmp, C)
    add_sums(sums + sq, tmp + VBYTES, C)


@inline
def _sum_two(y, ys, n, sums, sq, tmp):
    """The same for twice LANES channels: an addition need not wait for the one before."""
    a1, a2, b1, b2 = zero(), zero(), zero(), zero()
    for i in range(n):
        v, w = load(y + i * ys), load(y + i * ys + VBYTES)
        a1, b1 = a1 + v, b1 + w
        a2, b2 = fma(v, v, a2), fma(w, w, b2)
    store(tmp, a1)
    store(tmp + VBYTES, b1)
    add_sums(sums, tmp, 2 * LANES)
    store(tmp, a2)
    store(tmp + VBYTES, b2)
    add_sums(sums + sq, tmp, 2 * LANES)


@inline
def _table(src, ss, HS, WS, dst, ds, HD, WD, ny, nx, my, mx, y0, x0, oy, ox, taps, offsets, q, n, table, zeros):
    """Addresses for pixels q .. q + n of one class: the target's, then the source's for every tap."""
    group = (taps + 1) * REACH
    img = q // (ny * nx)
    j = (q - img * ny * nx) // nx
    i = q - (img * ny + j) * nx
    r = 0
    while r < n:  # one run: pixels of the same row and the same record
        run = min(nx - i, min(n - r, ROWS - r % ROWS))
        d = table + r // ROWS * group + r % ROWS * 8
        a = dst + ((img * HD + y0 + j * oy) * WD + x0 + i * ox) * ds
        for k in range(run):
            store_int(d + 8 * k, a + k * ox * ds)
        for t in range(taps):
            d += REACH
            y = load_int(offsets + 16 * t) + j * my
            x = load_int(offsets + 16 * t + 8) + i * mx
            a = src + ((img * HS + y) * WS + x) * ss
            if y < 0 or y >= HS:
                for k in range(run):
                    store_int(d + 8 * k, zeros)
            elif x >= 0 and x + (run - 1) * mx < WS:
                for k in range(run):
                    store_int(d + 8 * k, a + k * mx * ss)
            else:
                for k in range(run):
                    inside = x + k * mx >= 0 and x + k * mx < WS
                    store_int(d + 8 * k, a + k * mx * ss if inside else zeros)
        r += run
        i += run
        if i == nx:
            i = 0
            j += 1
            if j == ny:
                j = 0
                img += 1


@inline
def _is_padding(entries, m, zeros):
    """Whether a tap reads zeros for all m pixels of a record."""
    k = 0
    while k < m and load_int(entries + 8 * k) == zeros:
        k += 1
    return k == m


@kernel
def _gather(n, table, group, t, taps, K, B, pb, column, cols, acc, zeros, ahead):
    """`ind` without the taps at both ends that lie in the padding for a whole record, as above a picture's first row.

    With a 5x5 window on few pixels they are up to half of all. Meanwhile two panels of as many rows at `ahead` are
    asked for, as evenly as possible.
    """
    slow = 0
    while slow < 2 and n > 2 * ROWS << slow:
        slow += 1
    size = taps * K * 64 >> slow  # what each record asks for
    for first in range(0, n, ROWS):
        m = min(ROWS, n - first)
        entries = table + (t + 1) * REACH
        low, high = 0, taps
        while low < high and _is_padding(entries + low * REACH, m, zeros):
            low += 1
        while low < high and _is_padding(entries + (high - 1) * REACH, m, zeros):
            high -= 1
        piece = first // ROWS
        way = ahead + (piece >> slow) * pb + (piece & (1 << slow) - 1) * size if piece < 2 << slow else ahead
        ind(m, table, group, t + low, high - low, K, B + low * K * 64, pb, column, cols, acc, way, slow)
        table += group


@kernel(floats=("slope",))
def convolve(
    src, ss, HS, WS, W, pb, dst, ds, HD, WD, ny, nx, my, mx, y0, x0, oy, ox, taps, offsets,
    K, C, P, T, b0, b1, tmp, zeros, acc, bias, slope, sums, sq,
):  # fmt: skip
    """dst[pixel] (+)= sum over taps of src[pixel of the tap] W_t, blocks b0..b1 of T pixels out of P.

    Pixel (img, j, i), j < ny, i < nx, is dst[img, y0 + j*oy, x0 + i*ox]; tap t reads
    src[img, offsets[t][0] + j*my, offsets[t][1] + i*mx], zeros outside. W: panels pb bytes apart, [taps][K][16].
    tmp: 2 * LANES floats, then the table, T (a multiple of ROWS) * (taps + 1) int64. zeros: K zero floats.
    """
    passes = max(1, min(taps, (taps * K + KT - 1) // KT))
    step = max(1, (taps + passes - 1) // passes)
    group = (taps + 1) * REACH
    table = tmp + 8 * LANES
    for b in range(b0, b1):
        q = b * T
        n = min(T, P - q)
        _table(src, ss, HS, WS, dst, ds, HD, WD, ny, nx, my, mx, y0, x0, oy, ox, taps, offsets, q, n, table, zeros)
        for t in range(0, max(1, taps), step):
            for c in range(0, C, 32):
                B = W + c // 16 * pb + t * K * 64
                count = min(step, taps - t)
                ahead = B + 2 * pb if c + 32 < C else W + (t + count) * K * 64
                _gather(n, table, group, t, count, K, B, pb, 4 * c, min(32, C - c), acc or t > 0, zeros, ahead)
        epilogue(dst + q * ds, ds, C, n, bias, slope, sums, sq, tmp)


@kernel
def pad_row(x, xs, H, W, Ci, y, left, width, out):
    """Row y of an image as `width` dense pixels, the first being column -left; zeros outside the image."""
    low = min(max(left, 0), width)
    high = min(max(left + W, low), width)
    if y < 0 or y >= H:
        low, high = width, width
    for k in range(low * Ci):
        store_float(out + 4 * k, 0.0)
    for k in range(high * Ci, width * Ci):
        store_float(out + 4 * k, 0.0)
    source = x + (y * W + low - left) * xs
    target = out + low * Ci * 4
    if xs == 4 * Ci:
        floats = (high - low) * Ci
        for k in range(0, floats, LANES):
            store_part(target + 4 * k, load_part(source + 4 * k, floats - k), floats - k)
    else:
        for i in range(high - low):
            for k in range(Ci):
                store_float(target + (i * Ci + k) * 4, load_float(source + i * xs + 4 * k))


@inline
def _pad_rows(x, xs, H, W, Ci, img, y, dy, kh, left, width, rb, out):
    for k in range(kh):
        pad_row(x + img * H * W * xs, xs, H, W, Ci, y + k * dy, left, width, out + k * rb)


@kernel(floats=("slope",))
def rows_forward(
    x, xs, H, W, Wt, y, ys, Ho, Wo, kh, kw, sy, sx, dy, pt, pl, Ci, Co, r0, r1, tmp, acc, bias, slope, sums, sq
):  # fmt: skip
    """Few input channels: output rows r0..r1 of N * Ho, each from kh padded copies of input rows.

    tmp: 2 * LANES floats, then kh rows of ((Wo - 1) * sx + kw) * Ci floats.
    """
    width = (Wo - 1) * sx + kw
    rb = width * Ci * 4
    A = tmp + 8 * LANES
    for r in range(r0, r1):
        img = r // Ho
        _pad_rows(x, xs, H, W, Ci, img, (r - img * Ho) * sy - pt, dy, kh, pl, width, rb, A)
        q = y + r * Wo * ys
        for c in range(0, Co, 32):
            B = Wt + c // 16 * kh * kw * Ci * 64
            pb = kh * kw * Ci * 64
            nn(Wo, A, sx * Ci * 4, kh, rb, kw * Ci, B, pb, q + 4 * c, ys, min(32, Co - c), acc)
        epilogue(q, ys, Co, Wo, bias, slope, sums, sq, tmp)


@inline
def _panels(dy, ds, Co, n, D, ps):
    """n rows of Co floats to panels [ceil(Co/16)][n][16], ps bytes apart, zeros behind Co."""
    for i in range(n):
        for c in range(0, Co, LANES):
            store_part(D + c // 16 * ps + i * 64 + c % 16 * 4, load_part(dy + i * ds + 4 * c, Co - c), LANES)
        if LANES == 8 and Co % 16 and Co % 16 <= 8:
            store_part(D + Co // 16 * ps + i * 64 + 32, zero(), LANES)


@kernel
def rows_backward_weights(
    x, xs, H, W, dy, ds, Ho, Wo, dW, kh, kw, sy, sx, dil, pt, pl, Ci, Co, r0, r1, add, tmp
):  # fmt: skip
    """dW of `rows_forward` from output rows r0..r1; overwrites dW, or adds to it.

    tmp: kh * kw * Ci int64, then the padded rows, then dy's panels, each from a multiple of 64 bytes.
    """
    width = (Wo - 1) * sx + kw
    rb = width * Ci * 4
    K = kw * Ci
    A = tmp + (kh * K * 8 + 63) // 64 * 64
    D = A + (kh * rb + 63) // 64 * 64
    ps = Wo * 64
    for k in range(kh * K):
        store_int(tmp + 8 * k, k // K * rb + k % K * 4)
    for r in range(r0, r1):
        img = r // Ho
        _pad_rows(x, xs, H, W, Ci, img, (r - img * Ho) * sy - pt, dil, kh, pl, width, rb, A)
        B, ldb, pb = dy + r * Wo * ds, ds, 64
        if Co != 16 and Co != 32:  # those two lie in memory as panels do
            _panels(B, ds, Co, Wo, D, ps)
            B, ldb, pb = D, 64, ps
        for c in range(0, Co, 32):
            C = dW + c // 16 * kh * K * 64
            tn(kh * K, A, tmp, sx * Ci * 4, Wo, B + c // 16 * pb, ldb, pb, C, kh * K * 64, Co - c, r > r0 or add)


@kernel
def wide_backward_weights(
    x, xs, H, W, dy, ds, Ho, Wo, dW, kh, kw, sy, sx, dly, dlx, pt, pl, Ci, Co, r0, r1, p0, p1, tmp
):  # fmt: skip
    """dW panels p0..p1 from output rows r0..r1 of N * Ho, x being read in place; overwrites them.

    For wide images: the sum along one row has to be worth a tile. tmp: panels of one row of dy.
    """
    taps = kh * kw
    ps = Wo * 64
    for c in range(p0 * taps * Ci * 16, p1 * taps * Ci * 16, LANES):
        store_part(dW + 4 * c, zero(), LANES)
    for r in range(r0, r1):
        img = r // Ho
        oy = r - img * Ho
        _panels(dy + r * Wo * ds + 64 * p0, ds, min(16 * p1, Co) - 16 * p0, Wo, tmp, ps)
        for t in range(taps):
            kr = t // kw
            shift = pl - (t - kr * kw) * dlx
            y = oy * sy - pt + kr * dly
            low, high = max(0, (shift + sx - 1) // sx), min(Wo, (W - 1 + shift) // sx + 1)
            if y >= 0 and y < H and low < high:
                A = x + ((img * H + y) * W + low * sx - shift) * xs
                for p in range(p0, p1, 2):
                    B = tmp + (p - p0) * ps + low * 64
                    C = dW + (p * taps + t) * Ci * 64
                    tn(Ci, A, 0, sx * xs, high - low, B, 64, ps, C, taps * Ci * 64, 16 * (p1 - p), 1)


@kernel
def backward_weights(
    x, xs, H, W, dy, ds, Ho, Wo, dW, kh, kw, sy, sx, dly, dlx, pt, pl, Ci, Co, P, T, b0, b1, p0, p1, tmp
):  # fmt: skip
    """dW panels p0..p1 from blocks b0..b1 of T output pixels; overwrites them.

    The rows of x under a tap are gathered with a padded stride: with a power of two, T rows would share a few
    sets of the cache. tmp: T * (4*Ci + 64) bytes, then panels of dy.
    """
    taps = kh * kw
    lda = 4 * Ci + 64
    D = tmp + T * lda
    ps = T * 64
    for b in range(b0, b1):
        q = b * T
        n = min(T, P - q)
        _panels(dy + q * ds + 64 * p0, ds, min(16 * p1, Co) - 16 * p0, n, D, ps)
        for t in range(taps):
            kr = t // kw
            kc = t - kr * kw
            img = q // (Ho * Wo)
            oy = (q - img * Ho * Wo) // Wo
            ox = q - (img * Ho + oy) * Wo
            for i in range(n):
                iy, ix = oy * sy - pt + kr * dly, ox * sx - pl + kc * dlx
                d = tmp + i * lda
                if iy >= 0 and iy < H and ix >= 0 and ix < W:
                    s = x + ((img * H + iy) * W + ix) * xs
                    for c in range(0, Ci, LANES):
                        store_part(d + 4 * c, load_part(s + 4 * c, Ci - c), Ci - c)
                else:
                    for c in range(0, Ci, LANES):
                        store_part(d + 4 * c, zero(), Ci - c)
                ox += 1
                if ox == Wo:
                    ox = 0
                    oy += 1
                    if oy == Ho:
                        oy = 0
                        img += 1
            for p in range(p0, p1, 2):
                C = dW + (p * taps + t) * Ci * 64
                tn(Ci, tmp, 0, lda, n, D + (p - p0) * ps, 64, ps, C, taps * Ci * 64, 16 * (p1 - p), b > b0)


@kernel
def bias_gradient(dy, ds, C, p0, p1, db, tmp):
    """db[c] = sum of dy over pixels p0..p1: float32 within 64 pixels, float64 across them. db: float64 [C]."""
    for c in range(C):
        store_double(db + 8 * c, 0.0)
    for p in range(p0, p1, 64):
        for c in range(0, C, LANES):
            a = zero()
            for i in range(p, min(p + 64, p1)):
                a = a + load_part(dy + i * ds + 4 * c, C - c)
            store_part(tmp, a, LANES)
            add_sums(db + 8 * c, tmp, min(LANES, C - c))
