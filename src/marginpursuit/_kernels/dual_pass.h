/* Dual coordinate ascent over single rows, one lane per task or for a single task.
 *
 * The coefficients are w = sum of y_i a_i x_i / p over the rows, with dual variables a_i and penalty
 * p. At the minimiser a_i is the weighted influence at the residual r_i of the row. The pass stores
 * the dual variable of a row as the residual at which the loss has this influence. A step sets it
 * to the maximiser of the dual with all other dual variables fixed: with c the weight of the row,
 * q = c |x|^2 / p and psi(r) the influence for weight 1,
 *
 *     r + q psi(r) = level - m + q a / c  =: t .
 *
 * The left-hand side increases in r. In units of the scale, with q times the overconfidence where t
 * is negative, the equation is u + q psi(u) = |t| for u >= 0.
 *
 * At each step the duality gap is the sum over all rows of
 * c (phi(m) - phi(m') - phi'(m') (m - m')), m the margin and m' the level less the stored residual:
 * zero where the stored residual is that of the row.
 *
 * Shrinking: a row whose dual variable is zero before and after its step, and whose margin exceeds
 * the level by more than `radius` times its norm, is moved behind the others, for all later
 * passes. Its loss and its terms of the gap are zero as long as its margin exceeds the level.
 */

enum {
    CUBIC_STEPS = 60,   /* the most of Halley's method; usually 2, and 2 + log(q)/2 for a large q */
    NEWTON_STEPS = 100, /* the most for another rho; pseudo-Huber takes 3 log10(q) and a few */
};

#define CUBIC_STEP 1e-4 /* the last step of u, relative to u: its third power is left */

typedef struct {
    loss_state_t loss;
    vec gap, balance, inverse_penalty, radius;
} dual_state_t;

static void start_dual(const dual_pass_t *pass, dual_state_t *state)
{
    loss_state_t losses[LANE_VECTORS];
    start_lanes(pass->loss, pass->intercept, losses);
    for (int v = 0; v < LANE_VECTORS; v++)
        state[v] = (dual_state_t){losses[v], splat(0.0), splat(0.0),
                                  splat(1.0) / load_f8(pass->penalty + v * LANES),
                                  load_f8(pass->radius + v * LANES)};
}

/* Puts the unshrunk rows into random order (Fisher and Yates), with the generator splitmix64. */
static void shuffle(ptrdiff_t *rows, ptrdiff_t n, uint64_t state)
{
    for (ptrdiff_t k = n - 1; k > 0; k--) {
        uint64_t bits = state += UINT64_C(0x9e3779b97f4a7c15);
        bits = (bits ^ (bits >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        bits = (bits ^ (bits >> 27)) * UINT64_C(0x94d049bb133111eb);
        const double uniform = (double)((bits ^ (bits >> 31)) >> 11) * 0x1p-53;
        const ptrdiff_t other = (ptrdiff_t)(uniform * (double)(k + 1)), row = rows[k];
        rows[k] = rows[other];
        rows[other] = row;
    }
}

/* The root of Catoni's u + q psi(u) = t by Halley's method, from a start >= 0.
 *
 * Up to the truncation point psi(u) = u - u^3/6 is concave: the root is between those of the tangent
 * at 0 and of the chord to the truncation point, which is at most 1.5 times as large. The start is
 * clipped to this interval. All roots of the cubic are real, so that the iterates approach the root from
 * one side.
 * The equation is divided by 1 + q. */
ALWAYS_INLINE vec catoni_root(vec q, vec t, vec start)
{
    const vec one = splat(1.0), truncation_target = splat(TRUNCATION) + q * splat(INFLUENCE_BOUND);
    const vec inverse = one / (one + q), cubic = one - inverse;
    const vec tangent = smaller(t, truncation_target) * inverse;
    const vec chord = smaller(splat(TRUNCATION), splat(1.5) * tangent);
    vec u = larger(tangent, smaller(chord, start));
    for (int k = 1; k <= CUBIC_STEPS; k++) {
        const vec term = cubic * u, slope = one - splat(0.5) * term * u;
        const vec excess = u - splat(1.0 / 6.0) * (term * u) * u - tangent;
        const vec square = slope * slope + splat(0.5) * term * excess;
        const vec step = excess * slope / larger(splat(DBL_MIN), square);
        u -= step;
        if (k >= 2 && !any_negative(splat(CUBIC_STEP) * u - absolute(step))) break;
    }
    return where_negative(truncation_target - t, t - q * splat(INFLUENCE_BOUND), u);
}

/* psi(u), and psi'(u) in `slope`, for u >= 0. */
ALWAYS_INLINE vec influence_and_slope(loss_kind_t kind, vec u, vec *slope)
{
    const vec one = splat(1.0), two = splat(2.0);
    if (kind == PSEUDO_HUBER) {
        const vec bounded = smaller(splat(1e100), u);
        const vec inverse = one / root(one + bounded * bounded);
        *slope = inverse * inverse * inverse;
        return bounded * inverse;
    }
    if (kind == LOG_COSH) {
        const vec a = expm1_of_negative(-u), b = a * (a + two), tanh = -b / (two + b);
        *slope = (one - tanh) * (one + tanh);
        return tanh;
    }
    if (kind == HUBER) {
        *slope = where_negative(u - one, one, splat(0.0));
        return smaller(one, u);
    }
    *slope = one;
    return u;
}

/* The root of u + q psi(u) = t by Newton's method. psi is concave on u >= 0, with psi(u) <= u and
 * psi(u) <= 1 unless it is the square's. The start is therefore at most the root, and the iterates
 * increase to it. */
OUT_OF_LINE vec monotone_root(loss_kind_t kind, vec q, vec t)
{
    const vec one = splat(1.0), linear = t / (one + q);
    vec u = kind == SQUARE ? linear : larger(t - q, linear);
    for (int k = 0; k < NEWTON_STEPS; k++) {
        vec slope;
        const vec influence = influence_and_slope(kind, u, &slope);
        const vec step = (t - u - q * influence) / (one + q * slope);
        u += step;
        if (!any_negative(splat(4.0 * DBL_EPSILON) * u - step)) break;
    }
    return u;
}

/* The step of one row: returns the changes of the coefficients, in units of the row, and writes the
 * residual at which the loss has the new dual variable. `slack` is negative in the lanes in which
 * the row may be shrunk. */
ALWAYS_INLINE vec dual_step(const dual_pass_t *pass, dual_state_t *state, ptrdiff_t row, vec y,
                            vec score, vec *stored, vec *slack)
{
    loss_state_t *loss = &state->loss;
    const vec weight = splat(pass->weight[row]), square = splat(pass->square[row]);
    const vec before = *stored, residual = loss->level - y * (score + loss->intercept);
    vec value = splat(0.0), stored_value = splat(0.0), unused = splat(0.0);
    influence(loss, residual, weight, &value);
    const vec dual = influence(loss, before, weight, &stored_value);
    /* The penalty is half the sum of dual variable times margin, without the intercept. */
    loss->rows.value += value + splat(0.5) * dual * y * score;
    state->gap += value - stored_value + dual * (before - residual);
    vec new_dual = dual, change = splat(0.0);
    if (!pass->is_frozen) {
        const vec curvature = square * state->inverse_penalty, target = residual + curvature * dual;
        const vec q = curvature * where_negative(target, weight * loss->overconfidence, weight);
        const vec size = absolute(target) * loss->inverse_scale;
        const vec start = absolute(before) * loss->inverse_scale;
        const vec u = loss->kind == CATONI ? catoni_root(q, size, start)
                                           : monotone_root(loss->kind, q, size);
        *stored = with_sign(loss->scale * u, target);
        new_dual = influence(loss, *stored, weight, &unused);
        change = y * (new_dual - dual) * state->inverse_penalty;
        loss->intercept += splat(pass->constant) * change;
    }
    state->balance += y * new_dual;
    /* Positive where a dual variable is not zero, however small it is. */
    const vec is_zero = -absolute(dual) - absolute(new_dual);
    *slack = where_negative(is_zero, splat(1.0), residual + state->radius * root(square));
    return change;
}

#ifdef WITH_CSR
/* Turns the scores of a row, one lane per task, into changes of the coefficients; returns whether
 * any is non-zero, and whether the row is not shrunk in `is_unshrunk`. */
OUT_OF_LINE int dual_lanes(const dual_pass_t *pass, dual_state_t *state, ptrdiff_t row,
                           vec *scores, int *is_unshrunk)
{
    const ptrdiff_t code = pass->codes[row];
    ALIGNED double sign[TASK_LANES], change[TASK_LANES], slack[TASK_LANES];
    int any = 0;
    for (int k = 0; k < TASK_LANES; k++) sign[k] = is_positive(code, pass->positive[k]) ? 1.0 : -1.0;
    for (int v = 0; v < LANE_VECTORS; v++) {
        double *residuals = pass->residual + row * TASK_LANES + v * LANES;
        vec stored = load_f8(residuals), lane_slack = splat(1.0);
        const vec y = load_f8(sign + v * LANES);
        scores[v] = dual_step(pass, &state[v], row, y, scores[v], &stored, &lane_slack);
        store(residuals, stored);
        store(change + v * LANES, scores[v]);
        store(slack + v * LANES, lane_slack);
    }
    *is_unshrunk = 0;
    for (int k = 0; k < TASK_LANES; k++) {
        any |= change[k] != 0.0;
        *is_unshrunk |= !(slack[k] < 0.0);
    }
    return any;
}
#endif

/* The same for a single task, whose state is the same in all lanes of the first vector. A row whose
 * dual variable is zero, and remains so, takes no step. */
OUT_OF_LINE double dual_single(const dual_pass_t *pass, dual_state_t *state, ptrdiff_t row,
                               double score, int *is_unshrunk)
{
    const loss_state_t *loss = &state->loss;
    const double y = is_positive(pass->codes[row], pass->positive[0]) ? 1.0 : -1.0;
    const double residual = first_lane(loss->level) - y * (score + first_lane(loss->intercept));
    double *stored = pass->residual + row;
    *is_unshrunk = 1;
    if (residual <= 0.0 && *stored <= 0.0 && pass->loss[0].overconfidence == 0.0) {
        *is_unshrunk = !(residual + pass->radius[0] * sqrt(pass->square[row]) < 0.0);
        return 0.0;
    }
    vec lane = splat(*stored), slack;
    const vec change = dual_step(pass, state, row, splat(y), splat(score), &lane, &slack);
    *stored = first_lane(lane);
    return first_lane(change);
}

static void finish_dual(const dual_state_t *state, dual_pass_t *pass)
{
    const int n_vectors = pass->n_lanes == 1 ? 1 : LANE_VECTORS;
    for (int v = 0; v < n_vectors; v++) {
        store(pass->intercept + v * LANES, state[v].loss.intercept);
        store(pass->value + v * LANES, state[v].loss.rows.value);
        store(pass->gap + v * LANES, state[v].gap);
        store(pass->balance + v * LANES, state[v].balance);
    }
}

enum {
    ROWS_AHEAD = 2, /* rows between the prefetch of a row and its step */
};

/* Prefetches what a step reads besides the elements of its row. */
ALWAYS_INLINE void prefetch_state(const dual_pass_t *pass, ptrdiff_t row)
{
    PREFETCH(pass->codes + row);
    PREFETCH(pass->weight + row);
    PREFETCH(pass->square + row);
    PREFETCH(pass->residual + row * pass->n_lanes);
}

/* The step of the first of ROWS_AHEAD + 1 rows; returns whether it is not shrunk. */
typedef int (*dual_row_t)(const matrix_t *, const dual_pass_t *, dual_state_t *,
                          const ptrdiff_t *rows);

/* A pass over the unshrunk rows, in random order unless it is frozen. Those that stay so are
 * moved to the front. */
ALWAYS_INLINE void visit_rows(const dual_row_t visit, const matrix_t *m, dual_pass_t *pass)
{
    dual_state_t state[LANE_VECTORS];
    start_dual(pass, state);
    if (!pass->is_frozen) shuffle(pass->rows, pass->n_unshrunk, pass->seed);
    const ptrdiff_t n = pass->n_unshrunk;
    pass->n_unshrunk = 0;
    for (ptrdiff_t at = 0; at < n; at++) {
        ptrdiff_t rows[ROWS_AHEAD + 1];
        for (ptrdiff_t k = 0; k <= ROWS_AHEAD; k++)
            rows[k] = pass->rows[at + k < n ? at + k : n - 1];
        prefetch_state(pass, rows[ROWS_AHEAD]);
        if (!visit(m, pass, state, rows)) continue;
        pass->rows[at] = pass->rows[pass->n_unshrunk];
        pass->rows[pass->n_unshrunk++] = rows[0];
    }
    finish_dual(state, pass);
}

/* The inner product of n floats and n doubles, in double precision. */
static inline double mixed_product(ptrdiff_t n, const float *a, const double *b)
{
    vec sums[4] = {splat(0.0), splat(0.0), splat(0.0), splat(0.0)};
    ptrdiff_t j = 0;
    for (; j + 4 * LANES <= n; j += 4 * LANES) {
        UNROLL
        for (int v = 0; v < 4; v++) sums[v] += load_f4(a + j + v * LANES) * load_f8(b + j + v * LANES);
    }
    double sum = lane_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; j < n; j++) sum += (double)a[j] * b[j];
    return sum;
}

/* The step of a dense row of doubles or floats, of one task; the coefficients are doubles. */
#define DENSE_DUAL_PASS(real, product)                                                             \
    static int dense_dual_row_##real(const matrix_t *m, const dual_pass_t *pass,                   \
                                     dual_state_t *state, const ptrdiff_t *rows)                   \
    {                                                                                              \
        const ptrdiff_t row = rows[0], n = m->n_columns;                                           \
        const real *data = m->data, *x = data + row * m->stride;                                   \
        prefetch_span((const char *)(data + rows[ROWS_AHEAD] * m->stride),                         \
                      n * (ptrdiff_t)sizeof(real));                                                \
        int is_unshrunk;                                                                             \
        const double score = product(n, x, pass->coef);                                            \
        const double change = dual_single(pass, state, row, score, &is_unshrunk);                    \
        if (change != 0.0)                                                                         \
            for (ptrdiff_t j = 0; j < n; j++) pass->coef[j] += change * (double)x[j];              \
        return is_unshrunk;                                                                          \
    }

DENSE_DUAL_PASS(double, inner_product)
DENSE_DUAL_PASS(float, mixed_product)

static void dense_dual_pass(const matrix_t *m, dual_pass_t *pass)
{
    if (m->item == (ptrdiff_t)sizeof(float)) visit_rows(dense_dual_row_float, m, pass);
    else visit_rows(dense_dual_row_double, m, pass);
}
