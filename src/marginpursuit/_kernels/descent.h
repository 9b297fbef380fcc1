/* Stochastic (sub)gradient steps, one or a few rows each, in time that grows with the elements
 * stored in those rows and not with the number of columns.
 *
 * Operations on every coefficient are lazy. w is stored as scale times v, so that shrinkage and
 * projection change one number; the norm of w is updated along with it. The sum of all w so far, if
 * wanted, is total + sum v - lag. Here `sum` is the sum of the scales since `lag` was last zero, and
 * a change of v adds that change times the current `sum` to `lag`.
 *
 * Included by sweep.c, for each SIMD level.
 */

enum {
    AHEAD = 4, /* draws between the prefetch of a row and its use */
};

/* Bounds of the scale and of its inverse. The sum of all w loses log10 of the bound in digits. */
#define MAX_SCALE 1e9
#define MAX_SCALE_OF_SUM 1e3

typedef struct {
    double scale;  /* w = scale v */
    double square; /* of the norm of w, with b where that is penalised; only kept for a ball */
    double sum;    /* of the scales since `lag` was zero */
} state_t;

/* Prefetches the rows of later draws. */
static void prefetch(layout_t layout, const matrix_t *m, const double *sign, const ptrdiff_t *draws,
                     ptrdiff_t n)
{
    if (n <= AHEAD) return;
    const ptrdiff_t row = draws[AHEAD];
    PREFETCH(sign + row);
    if (layout == ROWS)
        prefetch_span((const char *)m->data + row * m->stride * m->item, m->n_columns * m->item);
    if (layout == CSR_32 || layout == CSR_64) {
        const int wide = layout == CSR_64;
        if (n > 2 * AHEAD)
            PREFETCH((const char *)m->indptr + draws[2 * AHEAD] * (wide ? 8 : 4));
        prefetch_csr_row(wide, m, row);
    }
}

static double slope_of_row(const loss_state_t *loss, double score, double sign)
{
    sums_t unused = {splat(0.0), splat(0.0)};
    return first_lane(derivative(loss, splat(score), splat(sign), splat(1.0), &unused));
}

static int is_unsafe(const descent_t *s, double scale)
{
    const double max_scale = s->total ? MAX_SCALE_OF_SUM : MAX_SCALE, size = fabs(scale);
    return !(size * max_scale > 1.0 && size < max_scale);
}

/* Bring v and `total` up to date, so that the scale is 1 and the lag is 0. */
static void settle(descent_t *s, ptrdiff_t d, state_t *state)
{
    if (s->total)
        for (ptrdiff_t j = 0; j < d; j++) {
            s->total[j] += state->sum * s->coef[j] - s->lag[j];
            s->lag[j] = 0.0;
        }
    for (ptrdiff_t j = 0; j < d; j++) s->coef[j] *= state->scale;
    state->scale = 1.0;
    state->sum = 0.0;
}

static void record(const descent_t *s, ptrdiff_t d, const state_t *state, ptrdiff_t mark)
{
    double *out = s->path + mark * d;
    if (s->total) {
        const double mean = 1.0 / (double)s->t;
        for (ptrdiff_t j = 0; j < d; j++)
            out[j] = mean * (s->total[j] + (state->sum * s->coef[j] - s->lag[j]));
        s->path_intercept[mark] = mean * s->total_intercept;
    } else {
        for (ptrdiff_t j = 0; j < d; j++) out[j] = state->scale * s->coef[j];
        s->path_intercept[mark] = s->intercept;
    }
}

/* Add factor times a row to w, and factor to b; `score` is that of the row and w. */
static void add_row(const products_t *products, const matrix_t *m, descent_t *s, state_t *state,
                    ptrdiff_t row, double factor, double score)
{
    const double f = factor / state->scale, g = f * state->sum;
    const ptrdiff_t own = s->own ? s->own[row] : 0;
    if (s->radius < INFINITY) {
        const double one = s->penalise_intercept, b = one * s->intercept;
        const double square = s->own ? ((const double *)m->data)[row * m->stride + own]
                                     : products->square(m, row);
        state->square += factor * (2.0 * (score + b) + factor * (square + one));
    }
    if (s->own) {
        s->coef[own] += f;
        if (s->total) s->lag[own] += g;
    } else {
        products->adjoint(m, row, 1, &f, s->coef);
        if (s->total) products->adjoint(m, row, 1, &g, s->lag);
    }
    if (s->fit_intercept) s->intercept += factor;
}

static void project(descent_t *s, state_t *state)
{
    if (!(state->square > s->radius * s->radius)) return;
    const double factor = s->radius / sqrt(state->square);
    state->scale *= factor;
    state->square = s->radius * s->radius;
    if (s->penalise_intercept) s->intercept *= factor;
}

/* One step from w, with the scores of all its rows taken before any is added. */
static void step(const products_t *products, const matrix_t *m, descent_t *s,
                 const loss_state_t *loss, state_t *state, const ptrdiff_t *rows)
{
    const double step_number = 1.0 + (double)s->t, shrink = 1.0 - s->decay / step_number;
    const double length = s->rate / (step_number * (double)s->batch);
    double score = 0.0, first_score = 0.0;
    for (ptrdiff_t i = 0; i < s->batch; i++) {
        const double sign = s->sign[rows[i]];
        products->scores(m, rows[i], 1, s->coef, &score);
        score *= state->scale;
        if (i == 0) first_score = score;
        s->factors[i] = -length * slope_of_row(loss, score + s->intercept, sign);
    }
    state->scale *= shrink;
    state->square *= shrink * shrink;
    if (s->penalise_intercept) s->intercept *= shrink;
    if (is_unsafe(s, state->scale)) settle(s, m->n_columns, state);
    for (ptrdiff_t i = 0; i < s->batch; i++) {
        if (s->factors[i] == 0.0) continue;
        score = shrink * first_score;
        if (i > 0 && s->radius < INFINITY) { /* the rows before have moved w */
            products->scores(m, rows[i], 1, s->coef, &score);
            score *= state->scale;
        }
        add_row(products, m, s, state, rows[i], s->factors[i], score);
    }
    project(s, state);
    s->t++;
    state->sum += state->scale;
    s->total_intercept += s->intercept;
}

static void descend(layout_t layout, int type, const matrix_t *m, descent_t *s)
{
    const products_t *products = &products_of[layout][type];
    const ptrdiff_t d = m->n_columns, n_draws = s->n_steps * s->batch;
    const loss_state_t loss = start_loss(&(sweep_t){.loss = s->loss});
    state_t state = {1.0, s->penalise_intercept ? s->intercept * s->intercept : 0.0, 0.0};
    ptrdiff_t mark = 0;
    for (ptrdiff_t j = 0; j < d; j++) state.square += s->coef[j] * s->coef[j];
    if (s->own) state.square = s->square;
    for (ptrdiff_t k = 0; k < n_draws; k += s->batch) {
        for (ptrdiff_t i = k; i < k + s->batch; i++)
            prefetch(layout, m, s->sign, s->draws + i, n_draws - i);
        step(products, m, s, &loss, &state, s->draws + k);
        if (mark < s->n_marks && s->t == s->marks[mark]) record(s, d, &state, mark), mark++;
    }
    settle(s, d, &state);
    s->square = state.square;
}
