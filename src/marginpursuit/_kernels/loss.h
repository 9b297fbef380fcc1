/* The MarginLoss of losses/ on vectors of scores, as a sweep uses it. */
#ifndef MARGINPURSUIT_LOSS_H
#define MARGINPURSUIT_LOSS_H

#include "sweep.h"
#include "vectors.h"

#include <float.h>

#define TRUNCATION 1.4142135623730951
#define INFLUENCE_BOUND 0.9428090415820635

typedef struct {
    vec value, slope;
} sums_t;

/* The parameters of the loss, and what it came to so far. */
typedef struct {
    vec intercept, level, scale, cap, bound, floor, above;
    sums_t rows;    /* of LANES rows at a time, one a lane */
    sums_t singles; /* of one row at a time, the same in every lane */
} running_t;

static running_t start(const sweep_t *s)
{
    const double cap = s->loss.scale * TRUNCATION, above = s->loss.overconfidence;
    return (running_t){
        .intercept = splat(s->intercept),
        .level = splat(s->loss.margin),
        .scale = splat(s->loss.scale),
        .cap = splat(cap < DBL_MAX ? cap : DBL_MAX),
        .bound = splat(s->loss.scale * INFLUENCE_BOUND),
        /* Where overconfidence 0 charges nothing, the residual is 0 and not perhaps infinite. */
        .floor = splat(above > 0.0 ? -INFINITY : 0.0),
        .above = splat(above),
    };
}

ALWAYS_INLINE double first_lane(vec v)
{
    ALIGNED double lanes[LANES];
    store(lanes, v);
    return lanes[0];
}

static void finish(const running_t *run, sweep_t *s)
{
    s->value += lane_sum(run->rows.value) + first_lane(run->singles.value);
    s->slope += lane_sum(run->rows.slope) + first_lane(run->singles.slope);
}

/* The force of a row, its weight times minus the derivative of the loss in the margin, at a residual;
 * the loss is added to `value`. Factors are ordered such that nothing overflows that the result does
 * not. NaN stays NaN. */
ALWAYS_INLINE vec force(const running_t *run, vec gap, vec weight, vec *value)
{
    const vec one = splat(1.0);
    const vec charge = where_negative(gap, weight * run->above, weight);
    const vec residual = larger(run->floor, gap), size = absolute(residual);
    const vec ratio = smaller(splat(TRUNCATION), size / run->scale), square = ratio * ratio;
    const vec inner = smaller(run->cap, size); /* the loss is quartic up to the cap, then linear */
    const vec half = splat(0.5) * charge * inner;
    const vec quartic = half * (inner * (one - square * splat(1.0 / 12.0)));
    const vec linear = run->scale * (charge * (splat(INFLUENCE_BOUND) * (size - inner)));
    const vec influence = smaller(run->bound, size * (one - square * splat(1.0 / 6.0)));
    *value += quartic + linear;
    return with_sign(charge * influence, residual);
}

/* The derivative of the loss in the score; it and the loss are added to `sums`. */
ALWAYS_INLINE vec derivative(const running_t *run, vec score, vec sign, vec weight, sums_t *sums)
{
    const vec gap = run->level - sign * (score + run->intercept);
    const vec slope = -sign * force(run, gap, weight, &sums->value);
    sums->slope += slope;
    return slope;
}

/* Turns the scores of rows [first, first + n) into derivatives. */
ALWAYS_INLINE void apply_loss(running_t *run, const sweep_t *s, ptrdiff_t first, ptrdiff_t n,
                              double *f)
{
    const double *sign = s->sign + first, *weight = s->weight + first;
    ptrdiff_t k = 0;
    for (; k + LANES <= n; k += LANES) {
        const vec y = load_f8(sign + k), c = load_f8(weight + k);
        store(f + k, derivative(run, load_f8(f + k), y, c, &run->rows));
    }
    for (; k < n; k++) {
        const vec y = splat(sign[k]), c = splat(weight[k]);
        f[k] = first_lane(derivative(run, splat(f[k]), y, c, &run->singles));
    }
}

/* Writes what is wanted of each of the rows [first, first + n), from their scores. */
static void write_rows(const sweep_t *s, ptrdiff_t first, ptrdiff_t n, const double *scores)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        const double margin = s->sign[first + i] * (scores[i] + s->intercept);
        const double residual = s->loss.margin - margin, ratio = fabs(residual) / s->loss.scale;
        const double above = residual < 0.0 ? s->loss.overconfidence : 1.0;
        const double bend = 1.0 - 0.5 * ratio * ratio;
        if (s->margins) s->margins[first + i] = margin;
        if (s->curvature)
            s->curvature[first + i] = s->weight[first + i] * above * (bend < 0.0 ? 0.0 : bend);
    }
}

ALWAYS_INLINE int wants_rows(const sweep_t *s) { return s->margins || s->curvature; }

#endif
