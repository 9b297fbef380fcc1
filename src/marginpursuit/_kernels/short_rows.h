/* Sweeps of short dense rows, of n <= SHORT_VECTORS vectors, with Catoni's loss: the gradient stays in
 * registers. products.h includes this file, and documents the macros T, NAMED and LOAD_VECTOR.
 */

/* A row as vectors; the last ends where the row ends and is 0 where it overlaps the one before. */
ALWAYS_INLINE void NAMED(load_row)(const int n, const T *x, ptrdiff_t length, vec *row)
{
    UNROLL
    for (int c = 0; c < n - 1; c++) row[c] = LOAD_VECTOR(x + c * LANES);
    row[n - 1] = keep_last(LOAD_VECTOR(x + length - LANES), length - (n - 1) * LANES);
}

/* Each row stays in registers from its score to its addition. Memory is read at full speed; the
 * losses of successive rows are evaluated one after the other. */
ALWAYS_INLINE void NAMED(sweep_by_row)(const int n, const matrix_t *m, ptrdiff_t first,
                                       ptrdiff_t last, const sweep_t *s, const double *w,
                                       loss_state_t *state, vec *gradient)
{
    const T *x = (const T *)m->data + first * m->stride;
    for (ptrdiff_t i = first; i < last; i++, x += m->stride) {
        vec row[SHORT_VECTORS];
        NAMED(load_row)(n, x, m->n_columns, row);
        const double score = lane_sum(short_dot(n, row, w));
        const vec sign = splat(s->sign[i]), weight = splat(s->weight[i]);
        const vec slope = derivative_of(1, state, splat(score), sign, weight, &state->singles);
        short_add(n, row, slope, gradient);
    }
}

/* The loss is taken of GROUP rows at once, and a row is added while the one GROUP rows later is
 * read for its score. For whole groups of rows. */
ALWAYS_INLINE void NAMED(sweep_by_group)(const int n, const matrix_t *m, ptrdiff_t first,
                                         ptrdiff_t last, const sweep_t *s, const double *w,
                                         loss_state_t *state, vec *gradient)
{
    const T *x = m->data;
    ALIGNED double f[GROUP] = {0.0};
    for (ptrdiff_t i = first; i <= last; i += GROUP) { /* at `last`, only to add */
        vec part[GROUP], row[SHORT_VECTORS];
        for (int k = 0; k < GROUP; k++) {
            if (i < last) {
                NAMED(load_row)(n, x + (i + k) * m->stride, m->n_columns, row);
                part[k] = short_dot(n, row, w);
            }
            if (f[k] != 0.0) {
                NAMED(load_row)(n, x + (i + k - GROUP) * m->stride, m->n_columns, row);
                short_add(n, row, splat(f[k]), gradient);
            }
        }
        if (i == last) break;
        UNROLL
        for (int k = 0; k < GROUP; k += LANES) store(f + k, lane_sums(part + k));
        apply_loss_of(1, state, s, i, GROUP, f);
    }
}

/* Adds the gradient of the rows from `first` on; returns the row behind the last one that it has swept,
 * which for groups is up to GROUP - 1 rows before `last`. */
ALWAYS_INLINE ptrdiff_t NAMED(short_sweep_of)(const int n, const int by_group, const matrix_t *m,
                                              ptrdiff_t first, ptrdiff_t last, const sweep_t *s,
                                              loss_state_t *state, double *gradient)
{
    const ptrdiff_t end = m->n_columns - LANES;
    ALIGNED double w[SHORT_VECTORS * LANES];
    vec g[SHORT_VECTORS];
    UNROLL
    for (int c = 0; c < n; c++) {
        store(w + c * LANES, load_f8(s->coef + (c < n - 1 ? c * LANES : end)));
        g[c] = splat(0.0);
    }
    if (by_group) last -= (last - first) % GROUP;
    if (by_group) NAMED(sweep_by_group)(n, m, first, last, s, w, state, g);
    else NAMED(sweep_by_row)(n, m, first, last, s, w, state, g);
    UNROLL
    for (int c = 0; c < n; c++) {
        double *sum = gradient + (c < n - 1 ? c * LANES : end);
        store(sum, load_f8(sum) + g[c]);
    }
    return last;
}

/* Rows of n vectors have at most n LANES elements. These are constants: the compiler omits rows that
 * are narrow, and sweeps by row where no row of n vectors is long. */
ALWAYS_INLINE ptrdiff_t NAMED(short_sweep_by_bytes)(const int n, const matrix_t *m, ptrdiff_t first,
                                                    ptrdiff_t last, const sweep_t *s,
                                                    loss_state_t *state, double *gradient)
{
    if (n * LANES < NARROW_COLUMNS) return first;
    if (n * LANES * (int)sizeof(T) >= LONG_ROW_BYTES && m->n_columns * m->item >= LONG_ROW_BYTES)
        return NAMED(short_sweep_of)(n, 0, m, first, last, s, state, gradient);
    return NAMED(short_sweep_of)(n, 1, m, first, last, s, state, gradient);
}

static ptrdiff_t NAMED(short_sweep)(const matrix_t *m, ptrdiff_t first, ptrdiff_t last,
                                    const sweep_t *s, loss_state_t *state, double *gradient)
{
#define VECTORS(n) case n: return NAMED(short_sweep_by_bytes)(n, m, first, last, s, state, gradient);
    switch ((m->n_columns + LANES - 1) / LANES) {
        VECTORS(1) VECTORS(2) VECTORS(3) VECTORS(4) VECTORS(5) VECTORS(6) VECTORS(7) VECTORS(8)
    }
#undef VECTORS
    return first;
}
