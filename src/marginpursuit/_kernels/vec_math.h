/* Elementary functions of vectors that the losses need, to a few units in the last place.
 *
 * NaN stays NaN. Powers below e^-708 are flushed to zero.
 */
#ifndef MARGINPURSUIT_VEC_MATH_H
#define MARGINPURSUIT_VEC_MATH_H

#include "vectors.h"

/* Adding this number rounds a small double to an integer, which the low bits of the sum hold. */
#define ROUNDING_SHIFT 0x1.8p52
#define MIN_EXPONENT (-708.0)

/* log 2, and its first 40 bits with the rest: k times the first part is exact for |k| < 2^13. */
#define LOG2 0.6931471805599453
#define LOG2_HIGH 0x1.62e42fefa2p-1
#define LOG2_LOW 0x1.9ef35793c7673p-41

/* The bits of each lane as an unsigned integer. */
#if defined(__GNUC__)
typedef uint64_t bits_t __attribute__((vector_size(sizeof(vec))));
ALWAYS_INLINE bits_t bits_of(vec v) { return (bits_t)v; }
ALWAYS_INLINE vec vec_of(bits_t bits) { return (vec)bits; }
#else
typedef uint64_t bits_t;
ALWAYS_INLINE bits_t bits_of(vec v)
{
    bits_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}
ALWAYS_INLINE vec vec_of(bits_t bits)
{
    vec v;
    memcpy(&v, &bits, sizeof v);
    return v;
}
#endif

/* 2^k, for the integer k >= -1022 in the low bits of `shifted` = k + ROUNDING_SHIFT. */
ALWAYS_INLINE vec power_of_two(vec shifted)
{
    return vec_of((bits_of(shifted) << 52) + ((uint64_t)1023 << 52));
}

/* e^x = power (1 + p) for x in [-708, 0], with |p| < 0.42: returns p.
 *
 * With x = k log 2 + r and |r| <= log(2)/2, p is the Taylor polynomial of e^r - 1. Its last term
 * is r^13/13!, the error of the first omitted term less than 1e-17 r. */
ALWAYS_INLINE vec reduced_exp(vec x, vec *power)
{
    const vec shifted = x * splat(0x1.71547652b82fep+0) + splat(ROUNDING_SHIFT);
    const vec k = shifted - splat(ROUNDING_SHIFT);
    const vec r = (x - k * splat(LOG2_HIGH)) - k * splat(LOG2_LOW);
    static const double inverse_factorials[] = {
        1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0,
        1.0 / 362880.0,     1.0 / 40320.0,     1.0 / 5040.0,     1.0 / 720.0,
        1.0 / 120.0,        1.0 / 24.0,        1.0 / 6.0,        0.5,
    };
    vec sum = splat(inverse_factorials[0]);
    UNROLL
    for (int j = 1; j < 12; j++) sum = sum * r + splat(inverse_factorials[j]);
    *power = power_of_two(shifted);
    return r + r * r * sum;
}

/* e^x for x <= 0. */
ALWAYS_INLINE vec exp_of_negative(vec x)
{
    vec power;
    const vec p = reduced_exp(larger(splat(MIN_EXPONENT), x), &power);
    return where_negative(x - splat(MIN_EXPONENT), splat(0.0), power + power * p);
}

/* e^x - 1 for x <= 0. */
ALWAYS_INLINE vec expm1_of_negative(vec x)
{
    vec power;
    const vec p = reduced_exp(larger(splat(MIN_EXPONENT), x), &power);
    return (power - splat(1.0)) + power * p;
}

/* log(1 + t) for t in [0, 1]: 2 artanh z with z = t/(2 + t) <= 1/3, by the odd power series up to
 * z^35. */
ALWAYS_INLINE vec log1p_of_unit(vec t)
{
    const vec z = t / (splat(2.0) + t), square = z * z;
    vec sum = splat(1.0 / 35.0);
    UNROLL
    for (int j = 33; j > 1; j -= 2) sum = sum * square + splat(1.0 / j);
    return splat(2.0) * z + splat(2.0) * z * (square * sum);
}

/* log x for finite x >= 1; NaN where x is NaN or infinite.
 *
 * With x = 2^k m and m in [3/4, 3/2) it is k log 2 + 2 artanh z, with z = (m - 1)/(m + 1) and
 * |z| <= 1/5, by the odd power series up to z^21, whose next term is less than 2e-17 z. */
ALWAYS_INLINE vec log_from_one(vec x)
{
    const bits_t exponent = (bits_of(x) - bits_of(splat(0.75))) >> 52;
    const vec k = vec_of(exponent + bits_of(splat(ROUNDING_SHIFT))) - splat(ROUNDING_SHIFT);
    const vec m = vec_of(bits_of(x) - (exponent << 52));
    const vec z = (m - splat(1.0)) / (m + splat(1.0)), square = z * z;
    vec sum = splat(1.0 / 21.0);
    UNROLL
    for (int j = 19; j > 1; j -= 2) sum = sum * square + splat(1.0 / j);
    const vec low = splat(2.0) * z * (square * sum) + k * splat(LOG2_LOW);
    const vec not_a_number = x - x; /* zero for finite x */
    return k * splat(LOG2_HIGH) + (splat(2.0) * z + low) + not_a_number;
}

#endif
