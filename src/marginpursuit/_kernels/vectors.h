/* A vector of doubles at the SIMD level of this compilation, and how the element types load into
 * one.
 *
 * Every level offers the same: `vec` of LANES doubles, with C's operators; splat; store; a load
 * for each element type, of any alignment; LANES_OF(f), the vector of f(0) to f(LANES - 1);
 * `lane_sum` of a vector and `lane_sums` of LANES vectors at once; `keep_last`, which zeroes all but
 * the last n lanes; and lane by lane `smaller` and `larger` (b where one is NaN), `absolute`, `root`,
 * `with_sign` (a with the sign of b) and `where_negative` (x < 0 ? a : b); `any_negative` is whether a
 * lane is.
 */
#ifndef MARGINPURSUIT_VECTORS_H
#define MARGINPURSUIT_VECTORS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")
#define ALIGNED __attribute__((aligned(64)))
#define PREFETCH(p) __builtin_prefetch(p)
#define OUT_OF_LINE static __attribute__((noinline))
#else
#define ALWAYS_INLINE static inline
#define OUT_OF_LINE static
#define UNROLL
#define ALIGNED
#define PREFETCH(p) ((void)(p))
#endif

/* IEEE half precision as stored; one element is converted by bits, so that no compiler support
 * is needed. */
typedef struct { uint16_t bits; } half_t;

ALWAYS_INLINE double half_value(half_t h)
{
    const uint32_t magnitude = (uint32_t)(h.bits & 0x7fffu) << 13;
    const uint32_t special = magnitude >= 0x0f800000u ? 0x70000000u : 0u; /* inf and NaN */
    const uint32_t word = magnitude | special | ((uint32_t)(h.bits & 0x8000u) << 16);
    float small;
    memcpy(&small, &word, sizeof small);
    return special ? (double)small : (double)small * 0x1p112; /* also right for subnormals */
}

/* TYPES(X) calls X(name, type, value of an element e as double). */
#define PLAIN(e) ((double)(e))
#define TYPES(X)              \
    X(f8, double, PLAIN)      \
    X(f4, float, PLAIN)       \
    X(f2, half_t, half_value) \
    X(i1, int8_t, PLAIN)      \
    X(u1, uint8_t, PLAIN)     \
    X(i2, int16_t, PLAIN)     \
    X(u2, uint16_t, PLAIN)    \
    X(i4, int32_t, PLAIN)     \
    X(u4, uint32_t, PLAIN)    \
    X(i8, int64_t, PLAIN)

#if defined(__AVX512F__)

#include <immintrin.h>
enum { LANES = 8 };
typedef __m512d vec;

#define LOW_64(p) _mm_loadl_epi64((const __m128i *)(p))
#define LOAD_128(p) _mm_loadu_si128((const __m128i *)(p))
#define LOAD_256(p) _mm256_loadu_si256((const __m256i *)(p))
#define WIDEN(words) _mm512_cvtepi32_pd(words)

#define LANES_OF(f) ((vec){f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7)})
ALWAYS_INLINE vec splat(double a) { return _mm512_set1_pd(a); }
ALWAYS_INLINE void store(double *p, vec v) { _mm512_storeu_pd(p, v); }
ALWAYS_INLINE vec load_f8(const double *p) { return _mm512_loadu_pd(p); }
ALWAYS_INLINE vec load_f4(const float *p) { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); }
ALWAYS_INLINE vec load_f2(const half_t *p) { return _mm512_cvtps_pd(_mm256_cvtph_ps(LOAD_128(p))); }
ALWAYS_INLINE vec load_i1(const int8_t *p) { return WIDEN(_mm256_cvtepi8_epi32(LOW_64(p))); }
ALWAYS_INLINE vec load_u1(const uint8_t *p) { return WIDEN(_mm256_cvtepu8_epi32(LOW_64(p))); }
ALWAYS_INLINE vec load_i2(const int16_t *p) { return WIDEN(_mm256_cvtepi16_epi32(LOAD_128(p))); }
ALWAYS_INLINE vec load_u2(const uint16_t *p) { return WIDEN(_mm256_cvtepu16_epi32(LOAD_128(p))); }
ALWAYS_INLINE vec load_i4(const int32_t *p) { return WIDEN(LOAD_256(p)); }
ALWAYS_INLINE vec load_u4(const uint32_t *p) { return _mm512_cvtepu32_pd(LOAD_256(p)); }
ALWAYS_INLINE vec load_i8(const int64_t *p) { return _mm512_cvtepi64_pd(_mm512_loadu_si512(p)); }

ALWAYS_INLINE vec keep_last(vec v, ptrdiff_t n)
{
    return _mm512_maskz_mov_pd((__mmask8)(0xff << (LANES - n)), v);
}

ALWAYS_INLINE vec smaller(vec a, vec b) { return _mm512_min_pd(a, b); }
ALWAYS_INLINE vec larger(vec a, vec b) { return _mm512_max_pd(a, b); }
ALWAYS_INLINE vec absolute(vec a) { return _mm512_abs_pd(a); }
ALWAYS_INLINE vec root(vec a) { return _mm512_sqrt_pd(a); }
ALWAYS_INLINE vec with_sign(vec a, vec b)
{
    const vec sign = splat(-0.0);
    return _mm512_or_pd(_mm512_andnot_pd(sign, a), _mm512_and_pd(sign, b));
}
ALWAYS_INLINE vec where_negative(vec x, vec a, vec b)
{
    return _mm512_mask_mov_pd(b, _mm512_cmp_pd_mask(x, splat(0.0), _CMP_LT_OQ), a);
}

ALWAYS_INLINE int any_negative(vec x)
{
    return _mm512_cmp_pd_mask(x, splat(0.0), _CMP_LT_OQ) != 0;
}

ALWAYS_INLINE double lane_sum(vec v) { return _mm512_reduce_add_pd(v); }

ALWAYS_INLINE vec lane_sums(const vec *v)
{
#define ADD_PAIRS(a, b) (_mm512_unpacklo_pd(a, b) + _mm512_unpackhi_pd(a, b))
#define ADD_QUARTERS(a, b) (_mm512_shuffle_f64x2(a, b, 0x88) + _mm512_shuffle_f64x2(a, b, 0xdd))
    const vec ab = ADD_PAIRS(v[0], v[1]), cd = ADD_PAIRS(v[2], v[3]);
    const vec ef = ADD_PAIRS(v[4], v[5]), gh = ADD_PAIRS(v[6], v[7]);
    return ADD_QUARTERS(ADD_QUARTERS(ab, cd), ADD_QUARTERS(ef, gh));
}

#elif defined(__AVX2__)

#include <immintrin.h>
enum { LANES = 4 };
typedef __m256d vec;

ALWAYS_INLINE __m128i low_32(const void *p)
{
    int32_t word;
    memcpy(&word, p, sizeof word);
    return _mm_cvtsi32_si128(word);
}
#define LOW_64(p) _mm_loadl_epi64((const __m128i *)(p))
#define LOAD_128(p) _mm_loadu_si128((const __m128i *)(p))
#define WIDEN(words) _mm256_cvtepi32_pd(words)

#define LANES_OF(f) ((vec){f(0), f(1), f(2), f(3)})
ALWAYS_INLINE vec splat(double a) { return _mm256_set1_pd(a); }
ALWAYS_INLINE void store(double *p, vec v) { _mm256_storeu_pd(p, v); }
ALWAYS_INLINE vec load_f8(const double *p) { return _mm256_loadu_pd(p); }
ALWAYS_INLINE vec load_f4(const float *p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
ALWAYS_INLINE vec load_f2(const half_t *p) { return _mm256_cvtps_pd(_mm_cvtph_ps(LOW_64(p))); }
ALWAYS_INLINE vec load_i1(const int8_t *p) { return WIDEN(_mm_cvtepi8_epi32(low_32(p))); }
ALWAYS_INLINE vec load_u1(const uint8_t *p) { return WIDEN(_mm_cvtepu8_epi32(low_32(p))); }
ALWAYS_INLINE vec load_i2(const int16_t *p) { return WIDEN(_mm_cvtepi16_epi32(LOW_64(p))); }
ALWAYS_INLINE vec load_u2(const uint16_t *p) { return WIDEN(_mm_cvtepu16_epi32(LOW_64(p))); }
ALWAYS_INLINE vec load_i4(const int32_t *p) { return WIDEN(LOAD_128(p)); }
ALWAYS_INLINE vec load_u4(const uint32_t *p) /* by way of p - 2^31, which is an int32 */
{
    return WIDEN(_mm_xor_si128(LOAD_128(p), _mm_set1_epi32(INT32_MIN))) + splat(0x1p31);
}
ALWAYS_INLINE vec load_i8(const int64_t *p) /* AVX2 has no conversion from int64 */
{
    return (vec){(double)p[0], (double)p[1], (double)p[2], (double)p[3]};
}

ALWAYS_INLINE vec keep_last(vec v, ptrdiff_t n)
{
    static const int64_t masks[2 * LANES] = {0, 0, 0, 0, -1, -1, -1, -1};
    return _mm256_and_pd(v, _mm256_loadu_pd((const double *)(masks + n)));
}

ALWAYS_INLINE vec smaller(vec a, vec b) { return _mm256_min_pd(a, b); }
ALWAYS_INLINE vec larger(vec a, vec b) { return _mm256_max_pd(a, b); }
ALWAYS_INLINE vec absolute(vec a) { return _mm256_andnot_pd(splat(-0.0), a); }
ALWAYS_INLINE vec root(vec a) { return _mm256_sqrt_pd(a); }
ALWAYS_INLINE vec with_sign(vec a, vec b)
{
    return _mm256_or_pd(absolute(a), _mm256_and_pd(splat(-0.0), b));
}
ALWAYS_INLINE vec where_negative(vec x, vec a, vec b)
{
    return _mm256_blendv_pd(b, a, _mm256_cmp_pd(x, splat(0.0), _CMP_LT_OQ));
}

ALWAYS_INLINE int any_negative(vec x)
{
    return _mm256_movemask_pd(_mm256_cmp_pd(x, splat(0.0), _CMP_LT_OQ)) != 0;
}

ALWAYS_INLINE double lane_sum(vec v) { return (v[0] + v[1]) + (v[2] + v[3]); }

ALWAYS_INLINE vec lane_sums(const vec *v)
{
    const vec ab = _mm256_hadd_pd(v[0], v[1]), cd = _mm256_hadd_pd(v[2], v[3]);
    return _mm256_permute2f128_pd(ab, cd, 0x20) + _mm256_permute2f128_pd(ab, cd, 0x31);
}

#elif defined(__GNUC__) /* pairs of doubles, in the vector extension of GCC and Clang */

enum { LANES = 2 };
typedef double vec __attribute__((vector_size(16)));
typedef int64_t mask __attribute__((vector_size(16)));

#define LOAD(name, T, VALUE) \
    ALWAYS_INLINE vec load_##name(const T *p) { return (vec){VALUE(p[0]), VALUE(p[1])}; }
TYPES(LOAD)
#define LANES_OF(f) ((vec){f(0), f(1)})
ALWAYS_INLINE vec splat(double a) { return (vec){a, a}; }
ALWAYS_INLINE void store(double *p, vec v) { memcpy(p, &v, sizeof v); }
ALWAYS_INLINE vec keep_last(vec v, ptrdiff_t n) { return n == LANES ? v : (vec){0.0, v[1]}; }
ALWAYS_INLINE vec choose(mask which, vec a, vec b)
{
    return (vec)((which & (mask)a) | (~which & (mask)b));
}
ALWAYS_INLINE vec smaller(vec a, vec b) { return choose((mask)(a < b), a, b); }
ALWAYS_INLINE vec larger(vec a, vec b) { return choose((mask)(a > b), a, b); }
ALWAYS_INLINE vec absolute(vec a) { return (vec)((mask)a & ~(mask)splat(-0.0)); }
ALWAYS_INLINE vec root(vec a) { return (vec){sqrt(a[0]), sqrt(a[1])}; }
ALWAYS_INLINE vec with_sign(vec a, vec b) { return choose((mask)splat(-0.0), b, a); }
ALWAYS_INLINE vec where_negative(vec x, vec a, vec b)
{
    return choose((mask)(x < splat(0.0)), a, b);
}
ALWAYS_INLINE int any_negative(vec x) { return x[0] < 0.0 || x[1] < 0.0; }
ALWAYS_INLINE double lane_sum(vec v) { return v[0] + v[1]; }
ALWAYS_INLINE vec lane_sums(const vec *v) { return (vec){v[0][0] + v[0][1], v[1][0] + v[1][1]}; }

#else /* plain C */

enum { LANES = 1 };
typedef double vec;

#define LOAD(name, T, VALUE) \
    ALWAYS_INLINE vec load_##name(const T *p) { return VALUE(*p); }
TYPES(LOAD)
#define LANES_OF(f) (f(0))
ALWAYS_INLINE vec splat(double a) { return a; }
ALWAYS_INLINE void store(double *p, vec v) { *p = v; }
ALWAYS_INLINE vec keep_last(vec v, ptrdiff_t n) { return (void)n, v; }
ALWAYS_INLINE vec smaller(vec a, vec b) { return a < b ? a : b; }
ALWAYS_INLINE vec larger(vec a, vec b) { return a > b ? a : b; }
ALWAYS_INLINE vec absolute(vec a) { return fabs(a); }
ALWAYS_INLINE vec root(vec a) { return sqrt(a); }
ALWAYS_INLINE vec with_sign(vec a, vec b) { return copysign(a, b); }
ALWAYS_INLINE vec where_negative(vec x, vec a, vec b) { return x < 0.0 ? a : b; }
ALWAYS_INLINE int any_negative(vec x) { return x < 0.0; }
ALWAYS_INLINE double lane_sum(vec v) { return v; }
ALWAYS_INLINE vec lane_sums(const vec *v) { return *v; }

#endif
/* The inner product of two arrays of n doubles. */
static inline double inner_product(ptrdiff_t n, const double *a, const double *b)
{
    vec sums[4] = {splat(0.0), splat(0.0), splat(0.0), splat(0.0)};
    ptrdiff_t j = 0;
    for (; j + 4 * LANES <= n; j += 4 * LANES) {
        UNROLL
        for (int v = 0; v < 4; v++) sums[v] += load_f8(a + j + v * LANES) * load_f8(b + j + v * LANES);
    }
    for (; j + LANES <= n; j += LANES) sums[0] += load_f8(a + j) * load_f8(b + j);
    double sum = lane_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; j < n; j++) sum += a[j] * b[j];
    return sum;
}

#endif
