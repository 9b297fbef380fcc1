/* The losses of losses/ on vectors of residuals: one function for each kind.
 *
 * A function receives the residual r = level - margin and the weight of each row. It adds the
 * weighted loss to `value` and returns the weighted influence, minus the derivative in the margin.
 * Factors are ordered such that an intermediate result overflows only where the final result does.
 * NaN stays NaN.
 *
 * Catoni's loss, the default, is inlined into the sweeps. The other kinds are reached through one
 * function out of line, so that they cost the default neither registers nor instructions.
 */
#ifndef MARGINPURSUIT_LOSS_H
#define MARGINPURSUIT_LOSS_H

#include "sweep.h"
#include "vec_math.h"
#include "vectors.h"

#include <float.h>

#define TRUNCATION 1.4142135623730951
#define INFLUENCE_BOUND 0.9428090415820635 /* Catoni's */
#define LARGE_RATIO 1e18                   /* 1 + u^2 rounds to u^2 */
#define SMALL_RATIO 1e-4                   /* log cosh u rounds to u^2/2 - u^4/12 */

typedef struct {
    vec value, slope;
} sums_t;

/* The parameters of the loss, and the sums so far. */
typedef struct {
    loss_kind_t kind;
    vec intercept, level, scale;
    vec inverse_scale;
    vec cap;     /* Catoni: scale times the truncation point */
    vec bound;   /* Catoni: the bound of the influence */
    vec min_residual; /* 0 where margins above the level have weight 0, else -infinity */
    vec overconfidence; /* the weight of margins above the level */
    sums_t rows;    /* of LANES rows at a time, one in each lane */
    sums_t singles; /* of one row at a time, the same in every lane */
} loss_state_t;

static loss_state_t start_loss(const sweep_t *s)
{
    const double cap = s->loss.scale * TRUNCATION, above = s->loss.overconfidence;
    const double inverse = 1.0 / s->loss.scale;
    return (loss_state_t){
        .kind = s->loss.kind,
        .intercept = splat(s->intercept),
        .level = splat(s->loss.margin),
        .scale = splat(s->loss.scale),
        .inverse_scale = splat(inverse < DBL_MAX ? inverse : DBL_MAX),
        .cap = splat(cap < DBL_MAX ? cap : DBL_MAX),
        .bound = splat(s->loss.scale * INFLUENCE_BOUND),
        .min_residual = splat(above > 0.0 ? -INFINITY : 0.0),
        .overconfidence = splat(above),
    };
}

ALWAYS_INLINE double first_lane(vec v)
{
    ALIGNED double lanes[LANES];
    store(lanes, v);
    return lanes[0];
}

static void finish_loss(const loss_state_t *state, sweep_t *s)
{
    s->value += lane_sum(state->rows.value) + first_lane(state->singles.value);
    s->slope += lane_sum(state->rows.slope) + first_lane(state->singles.slope);
}

/* The functions rho: `size` is the absolute residual, and the influence returned is that of +size.
 *
 * Catoni: u^2/2 - u^4/24 up to the truncation point, linear beyond it. */
ALWAYS_INLINE vec catoni(const loss_state_t *state, vec size, vec weight, vec *value)
{
    const vec one = splat(1.0);
    const vec ratio = smaller(splat(TRUNCATION), size * state->inverse_scale);
    const vec square = ratio * ratio;
    const vec inner = smaller(state->cap, size);
    const vec half = splat(0.5) * weight * inner;
    const vec quartic = half * (inner * (one - square * splat(1.0 / 12.0)));
    const vec linear = state->scale * (weight * (splat(INFLUENCE_BOUND) * (size - inner)));
    const vec influence = smaller(state->bound, size * (one - square * splat(1.0 / 6.0)));
    *value += quartic + linear;
    return weight * influence;
}

/* sqrt(1 + u^2) - 1 = u^2/(1 + sqrt(1 + u^2)). */
ALWAYS_INLINE vec pseudo_huber(const loss_state_t *state, vec size, vec weight, vec *value)
{
    const vec one = splat(1.0), ratio = size / state->scale, norm = root(one + ratio * ratio);
    const vec is_small = splat(LARGE_RATIO) - ratio; /* negative where the loss is linear */
    *value += (weight * size) * where_negative(is_small, state->scale, size / (one + norm));
    return weight * where_negative(is_small, state->scale, size / norm);
}

/* log cosh u. With a = e^-u - 1, cosh u - 1 = a^2/(2 (1 + a)) and tanh u = -a (a + 2)/(2 + a (a + 2)).
 * From u = 1 on log cosh u = u - log 2 + log(1 + e^-2u). */
ALWAYS_INLINE vec log_cosh(const loss_state_t *state, vec size, vec weight, vec *value)
{
    const vec one = splat(1.0), two = splat(2.0), ratio = size / state->scale;
    const vec square = ratio * ratio, is_small = ratio - splat(SMALL_RATIO);
    const vec a = expm1_of_negative(-ratio), power = one + a, b = a * (a + two);
    const vec exact = two * log1p_of_unit(a * a / (two * power)) / square;
    const vec factor = where_negative(is_small, one - square * splat(1.0 / 6.0), exact);
    const vec inner = (splat(0.5) * weight * size) * (size * factor);
    const vec rest = log1p_of_unit(power * power) - splat(LOG2);
    const vec outer = state->scale * (weight * (size + state->scale * rest));
    *value += where_negative(ratio - one, inner, outer);
    return weight * where_negative(is_small, size * (one - square * splat(1.0 / 3.0)),
                                   state->scale * (-b / (two + b)));
}

/* u^2/2 up to 1, linear beyond. */
ALWAYS_INLINE vec huber(const loss_state_t *state, vec size, vec weight, vec *value)
{
    const vec inner = smaller(state->scale, size);
    *value += (splat(0.5) * weight * inner) * inner + state->scale * (weight * (size - inner));
    return weight * inner;
}

/* u^2/2. */
ALWAYS_INLINE vec square_loss(vec size, vec weight, vec *value)
{
    *value += (splat(0.5) * weight * size) * size;
    return weight * size;
}

/* log(1 + e^r) of a residual of either sign; the influence is 1/(1 + e^-r). */
ALWAYS_INLINE vec logistic(vec residual, vec weight, vec *value)
{
    const vec one = splat(1.0), power = exp_of_negative(-absolute(residual));
    *value += weight * (larger(splat(0.0), residual) + log1p_of_unit(power));
    return weight * (where_negative(residual, power, one) / (one + power));
}

/* max(0, r); the influence is 1 where r > 0. */
ALWAYS_INLINE vec hinge(vec size, vec weight, vec *value)
{
    *value += weight * size;
    return where_negative(-size, weight, splat(0.0) * size);
}

/* Influence and value of the kinds other than Catoni's, at the residuals that `sided` returns. */
OUT_OF_LINE vec other_influence(const loss_state_t *state, vec residual, vec weight, vec *value)
{
    const vec size = absolute(residual);
    vec influence;
    switch (state->kind) {
    case PSEUDO_HUBER: influence = pseudo_huber(state, size, weight, value); break;
    case LOG_COSH: influence = log_cosh(state, size, weight, value); break;
    case HUBER: influence = huber(state, size, weight, value); break;
    case LOGISTIC: return logistic(residual, weight, value);
    case HINGE: return hinge(residual, weight, value);
    default: influence = square_loss(size, weight, value);
    }
    return with_sign(influence, residual);
}

/* The weighted influence at a residual; the weighted loss is added to `value`. Margins above the
 * level have their own weight. `is_catoni` is a constant to the compiler. */
ALWAYS_INLINE vec influence_of(const int is_catoni, const loss_state_t *state, vec residual,
                               vec weight, vec *value)
{
    const vec sided = where_negative(residual, weight * state->overconfidence, weight);
    const vec counted = larger(state->min_residual, residual);
    if (!is_catoni) return other_influence(state, counted, sided, value);
    return with_sign(catoni(state, absolute(counted), sided, value), counted);
}

/* The derivative of the loss in the score; derivative and loss are added to `sums`. */
ALWAYS_INLINE vec derivative_of(const int is_catoni, const loss_state_t *state, vec score, vec sign,
                                vec weight, sums_t *sums)
{
    const vec residual = state->level - sign * (score + state->intercept);
    const vec slope = -sign * influence_of(is_catoni, state, residual, weight, &sums->value);
    sums->slope += slope;
    return slope;
}

/* `influence_of` and `derivative_of` of any kind, for code in which a branch on the kind costs nothing. */
ALWAYS_INLINE vec influence(const loss_state_t *state, vec residual, vec weight, vec *value)
{
    if (state->kind == CATONI) return influence_of(1, state, residual, weight, value);
    return influence_of(0, state, residual, weight, value);
}

ALWAYS_INLINE vec derivative(const loss_state_t *state, vec score, vec sign, vec weight,
                             sums_t *sums)
{
    if (state->kind == CATONI) return derivative_of(1, state, score, sign, weight, sums);
    /* Copies: if the addresses of state and sums left this function, Catoni's loss could not keep
     * them in registers. */
    const loss_state_t copy = *state;
    sums_t added = {splat(0.0), splat(0.0)};
    const vec slope = derivative_of(0, &copy, score, sign, weight, &added);
    sums->value += added.value;
    sums->slope += added.slope;
    return slope;
}

/* Turns the scores of rows [first, first + n) into derivatives. */
ALWAYS_INLINE void apply_loss_of(const int is_catoni, loss_state_t *state, const sweep_t *s,
                                 ptrdiff_t first, ptrdiff_t n, double *f)
{
    const double *sign = s->sign + first, *weight = s->weight + first;
    ptrdiff_t k = 0;
    for (; k + LANES <= n; k += LANES) {
        const vec y = load_f8(sign + k), c = load_f8(weight + k), score = load_f8(f + k);
        store(f + k, derivative_of(is_catoni, state, score, y, c, &state->rows));
    }
    for (; k < n; k++) {
        const vec y = splat(sign[k]), c = splat(weight[k]), score = splat(f[k]);
        f[k] = first_lane(derivative_of(is_catoni, state, score, y, c, &state->singles));
    }
}

OUT_OF_LINE void apply_other_loss(loss_state_t *state, const sweep_t *s, ptrdiff_t first,
                                  ptrdiff_t n, double *f)
{
    apply_loss_of(0, state, s, first, n, f);
}

ALWAYS_INLINE void apply_loss(loss_state_t *state, const sweep_t *s, ptrdiff_t first, ptrdiff_t n,
                              double *f)
{
    if (state->kind == CATONI) apply_loss_of(1, state, s, first, n, f);
    else apply_other_loss(state, s, first, n, f);
}

#endif
