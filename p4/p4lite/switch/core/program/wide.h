/* Two's complement integers of n 64-bit limbs, least significant first: the fallback for values that fit no
 * 128-bit integer. P4_WIDE(n) defines the type wn and its operations as values. */
#ifndef P4LITE_WIDE_H
#define P4LITE_WIDE_H

#include "bits.h"

static inline uint64_t p4w_sign(const uint64_t *a, int n)
{
    return (uint64_t)((int64_t)a[n - 1] >> 63);
}

static inline void p4w_resize(uint64_t *r, int m, const uint64_t *a, int n)
{
    uint64_t fill = p4w_sign(a, n);
    for (int i = 0; i < m; i++)
        r[i] = i < n ? a[i] : fill;
}

static inline void p4w_add(uint64_t *r, const uint64_t *a, const uint64_t *b, int n)
{
    u128 carry = 0;
    for (int i = 0; i < n; i++) {
        carry += (u128)a[i] + b[i];
        r[i] = (uint64_t)carry;
        carry >>= 64;
    }
}

static inline void p4w_sub(uint64_t *r, const uint64_t *a, const uint64_t *b, int n)
{
    u128 carry = 1;
    for (int i = 0; i < n; i++) {
        carry += (u128)a[i] + ~b[i];
        r[i] = (uint64_t)carry;
        carry >>= 64;
    }
}

static inline void p4w_mul(uint64_t *r, const uint64_t *a, const uint64_t *b, int n)
{
    memset(r, 0, (size_t)n * 8);
    for (int i = 0; i < n; i++) {
        u128 carry = 0;
        for (int j = 0; i + j < n; j++) {
            carry += (u128)a[i] * b[j] + r[i + j];
            r[i + j] = (uint64_t)carry;
            carry >>= 64;
        }
    }
}

static inline void p4w_shl(uint64_t *r, const uint64_t *a, uint32_t s, int n)
{
    for (int i = n - 1; i >= 0; i--) {
        int64_t from = (int64_t)i - (int64_t)(s / 64);
        uint64_t high = from >= 0 ? a[from] : 0, low = from >= 1 ? a[from - 1] : 0;
        r[i] = s % 64 ? high << (s % 64) | low >> (64 - s % 64) : high;
    }
}

static inline void p4w_sar(uint64_t *r, const uint64_t *a, uint32_t s, int n)
{
    uint64_t fill = p4w_sign(a, n);
    for (int i = 0; i < n; i++) {
        uint64_t from = (uint64_t)i + s / 64;
        uint64_t low = from < (uint64_t)n ? a[from] : fill, high = from + 1 < (uint64_t)n ? a[from + 1] : fill;
        r[i] = s % 64 ? low >> (s % 64) | high << (64 - s % 64) : low;
    }
}

static inline int p4w_cmp(const uint64_t *a, const uint64_t *b, int n)
{
    if (a[n - 1] != b[n - 1])
        return (int64_t)a[n - 1] < (int64_t)b[n - 1] ? -1 : 1;
    for (int i = n - 2; i >= 0; i--)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

static inline void p4w_negate(uint64_t *a, int n)
{
    u128 carry = 1;
    for (int i = 0; i < n; i++) {
        carry += ~a[i];
        a[i] = (uint64_t)carry;
        carry >>= 64;
    }
}

/* Quotient and remainder of magnitudes by shift and subtract; signs as C has them. Either result may be NULL. */
static inline void p4w_divmod(uint64_t *q, uint64_t *r, const uint64_t *a, const uint64_t *b, int n, uint64_t *fault)
{
    uint64_t x[n], y[n], rest[n], quotient[n];
    memcpy(x, a, sizeof x);
    memcpy(y, b, sizeof y);
    memset(rest, 0, sizeof rest);
    memset(quotient, 0, sizeof quotient);
    int nx = (int)(p4w_sign(a, n) & 1), ny = (int)(p4w_sign(b, n) & 1), zero = 1;
    for (int i = 0; i < n; i++)
        zero &= b[i] == 0;
    if (zero) {
        p4_fault(fault);
    } else {
        if (nx)
            p4w_negate(x, n);
        if (ny)
            p4w_negate(y, n);
        for (int i = n * 64 - 1; i >= 0; i--) {
            p4w_shl(rest, rest, 1, n);
            rest[0] |= x[i / 64] >> (i % 64) & 1;
            if (p4w_cmp(rest, y, n) >= 0) {
                p4w_sub(rest, rest, y, n);
                quotient[i / 64] |= UINT64_C(1) << (i % 64);
            }
        }
        if (nx != ny)
            p4w_negate(quotient, n);
        if (nx)
            p4w_negate(rest, n);
    }
    if (q)
        memcpy(q, quotient, sizeof quotient);
    if (r)
        memcpy(r, rest, sizeof rest);
}

static inline void p4w_sx(uint64_t *a, int n, unsigned bits)
{
    int top = (int)((bits - 1) / 64);
    unsigned rest = bits - 64 * (unsigned)top;
    if (rest < 64)
        a[top] = p4_sx64(a[top], rest);
    uint64_t fill = (uint64_t)((int64_t)a[top] >> 63);
    for (int i = top + 1; i < n; i++)
        a[i] = fill;
}

/* Bits of a packet to limbs and back; the unused high bits of limbs read as 0. */
static inline void p4w_get_bits(uint64_t *r, int n, const uint8_t *d, uint64_t offset, unsigned width)
{
    for (int i = 0; i < n; i++) {
        unsigned take = width < 64 ? width : 64;
        r[i] = take ? p4_get_bits64(d, offset + width - take, take) : 0;
        width -= take;
    }
}

static inline void p4w_put_bits(uint8_t *d, uint64_t offset, unsigned width, const uint64_t *a)
{
    for (int i = 0; width > 0; i++) {
        unsigned take = width < 64 ? width : 64;
        p4_put_bits128(d, offset + width - take, take, a[i]);
        width -= take;
    }
}

#define P4W_RESIZE(target, source, x)                                                                    \
    __extension__({                                                                                      \
        source from_ = (x);                                                                              \
        target to_;                                                                                      \
        p4w_resize(to_.w, (int)(sizeof to_ / 8), from_.w, (int)(sizeof from_ / 8));                      \
        to_;                                                                                             \
    })

/* As P4W_RESIZE, for a source without sign. */
#define P4W_RESIZEU(target, source, x)                                                                   \
    __extension__({                                                                                      \
        source from_ = (x);                                                                              \
        target to_;                                                                                      \
        int have_ = (int)(sizeof from_ / 8), want_ = (int)(sizeof to_ / 8);                              \
        for (int i_ = 0; i_ < want_; i_++)                                                               \
            to_.w[i_] = i_ < have_ ? from_.w[i_] : 0;                                                    \
        to_;                                                                                             \
    })

#define P4_WIDE_BINARY(N, name, call)                                                                    \
    static inline P4_UNUSED w##N w##N##_##name(w##N a, w##N b) { w##N r; call; return r; }

#define P4_WIDE(N)                                                                                       \
    typedef struct { uint64_t w[N]; } w##N;                                                              \
    P4_WIDE_BINARY(N, add, p4w_add(r.w, a.w, b.w, N))                                                    \
    P4_WIDE_BINARY(N, sub, p4w_sub(r.w, a.w, b.w, N))                                                    \
    P4_WIDE_BINARY(N, mul, p4w_mul(r.w, a.w, b.w, N))                                                    \
    P4_WIDE_BINARY(N, and, for (int i = 0; i < N; i++) r.w[i] = a.w[i] & b.w[i])                         \
    P4_WIDE_BINARY(N, or, for (int i = 0; i < N; i++) r.w[i] = a.w[i] | b.w[i])                          \
    P4_WIDE_BINARY(N, xor, for (int i = 0; i < N; i++) r.w[i] = a.w[i] ^ b.w[i])                         \
    static inline P4_UNUSED w##N w##N##_not(w##N a) { for (int i = 0; i < N; i++) a.w[i] = ~a.w[i]; return a; } \
    static inline P4_UNUSED w##N w##N##_shl(w##N a, uint32_t s) { w##N r; p4w_shl(r.w, a.w, s, N); return r; } \
    static inline P4_UNUSED w##N w##N##_sar(w##N a, uint32_t s) { w##N r; p4w_sar(r.w, a.w, s, N); return r; } \
    static inline P4_UNUSED w##N w##N##_sx(w##N a, unsigned bits) { p4w_sx(a.w, N, bits); return a; }    \
    static inline P4_UNUSED int w##N##_cmp(w##N a, w##N b) { return p4w_cmp(a.w, b.w, N); }              \
    static inline P4_UNUSED int w##N##_zero(w##N a)                                                      \
    {                                                                                                    \
        uint64_t any = 0;                                                                                \
        for (int i = 0; i < N; i++)                                                                      \
            any |= a.w[i];                                                                               \
        return any == 0;                                                                                 \
    }                                                                                                    \
    static inline P4_UNUSED w##N w##N##_div(w##N a, w##N b, uint64_t *fault)                             \
    {                                                                                                    \
        w##N r;                                                                                          \
        p4w_divmod(r.w, NULL, a.w, b.w, N, fault);                                                       \
        return r;                                                                                        \
    }                                                                                                    \
    static inline P4_UNUSED w##N w##N##_mod(w##N a, w##N b, uint64_t *fault)                             \
    {                                                                                                    \
        w##N r;                                                                                          \
        p4w_divmod(NULL, r.w, a.w, b.w, N, fault);                                                       \
        return r;                                                                                        \
    }                                                                                                    \
    static inline P4_UNUSED w##N w##N##_clamp(w##N a, w##N lo, w##N hi)                                  \
    {                                                                                                    \
        return p4w_cmp(a.w, lo.w, N) < 0 ? lo : p4w_cmp(a.w, hi.w, N) > 0 ? hi : a;                      \
    }                                                                                                    \
    static inline P4_UNUSED w##N w##N##_fill(uint64_t low, uint64_t next, uint64_t fill)                 \
    {                                                                                                    \
        w##N r;                                                                                          \
        r.w[0] = low;                                                                                    \
        r.w[1] = next;                                                                                   \
        for (int i = 2; i < N; i++)                                                                      \
            r.w[i] = fill;                                                                               \
        return r;                                                                                        \
    }                                                                                                    \
    static inline P4_UNUSED w##N w##N##_fromu64(uint64_t x) { return w##N##_fill(x, 0, 0); }             \
    static inline P4_UNUSED w##N w##N##_froms64(uint64_t x)                                              \
    {                                                                                                    \
        uint64_t fill = (uint64_t)((int64_t)x >> 63);                                                    \
        return w##N##_fill(x, fill, fill);                                                               \
    }                                                                                                    \
    static inline P4_UNUSED w##N w##N##_fromu128(u128 x)                                                 \
    {                                                                                                    \
        return w##N##_fill((uint64_t)x, (uint64_t)(x >> 64), 0);                                         \
    }                                                                                                    \
    static inline P4_UNUSED w##N w##N##_froms128(u128 x)                                                 \
    {                                                                                                    \
        return w##N##_fill((uint64_t)x, (uint64_t)(x >> 64), (uint64_t)((i128)x >> 127));                \
    }                                                                                                    \
    static inline P4_UNUSED uint64_t w##N##_lo64(w##N a) { return a.w[0]; }                              \
    static inline P4_UNUSED u128 w##N##_lo128(w##N a) { return P4_U128(a.w[1], a.w[0]); }                \
    static inline P4_UNUSED w##N w##N##_load(const uint64_t *from)                                       \
    {                                                                                                    \
        w##N r;                                                                                          \
        memcpy(r.w, from, sizeof r.w);                                                                   \
        return r;                                                                                        \
    }                                                                                                    \
    static inline P4_UNUSED void w##N##_store(uint64_t *to, w##N a, unsigned bits)                       \
    {                                                                                                    \
        if (bits % 64)                                                                                   \
            a.w[N - 1] &= (UINT64_C(1) << (bits % 64)) - 1;                                              \
        memcpy(to, a.w, sizeof a.w);                                                                     \
    }

#endif
