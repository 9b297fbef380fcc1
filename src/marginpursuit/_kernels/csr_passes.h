/* Passes of several tasks and of dual coordinate ascent over CSR rows, for one kind of stored values.
 * No include guard: sweep.c includes this file for float64, float32, int64 and all other types, with T
 * (the type of the values), NAMED (the name of a function) and STORED(m, k, row, copy, n), which
 * sets n and returns the first n of the stored values [k, row.last); STORED_AGAIN does so for a row
 * whose values have been read before.
 *
 * float64, float32 and int64 (counts of words) are read where they are. Values of other types are
 * converted, up to CONVERTED_VALUES of them at a time; a row that is no longer is converted once for its
 * scores and for its addition to the coefficients. This takes 0 to 8 % longer than functions for each of
 * these seven types, which would take as long to compile as all other kernels of CSR rows.
 *
 * `wide` says whether the indices are of 64 bits, and is a constant to the compiler.
 */

/* The scores of a row, one lane per task. The columns of the elements that follow, up to `end`, are
 * prefetched: hardware prefetchers cannot predict them. */
ALWAYS_INLINE void NAMED(lane_scores)(const int wide, const matrix_t *m, csr_row_t row, double *copy,
                                      const double *table, const ptrdiff_t stride, ptrdiff_t end,
                                      vec *scores)
{
    vec odd[LANE_VECTORS];
    UNROLL
    for (int v = 0; v < LANE_VECTORS; v++) scores[v] = odd[v] = splat(0.0);
    for (ptrdiff_t start = row.first, n; start < row.last; start += n) {
        const T *x = STORED(m, start, row, copy, n);
        ptrdiff_t j = 0;
        for (; j + 2 <= n; j += 2) {
            const ptrdiff_t k = start + j;
            const ptrdiff_t ahead = k + COLUMNS_AHEAD + 1 < end ? k + COLUMNS_AHEAD : k;
            PREFETCH(table + index_at(wide, m->indices, ahead) * stride);
            PREFETCH(table + index_at(wide, m->indices, ahead + 1) * stride);
            add_lanes(splat(x[j]), table + index_at(wide, m->indices, k) * stride, scores);
            add_lanes(splat(x[j + 1]), table + index_at(wide, m->indices, k + 1) * stride, odd);
        }
        if (j < n)
            add_lanes(splat(x[j]), table + index_at(wide, m->indices, start + j) * stride, scores);
    }
    UNROLL
    for (int v = 0; v < LANE_VECTORS; v++) scores[v] += odd[v];
}

/* Adds factor times row, one lane per task, after its scores: a short row has been converted. */
ALWAYS_INLINE void NAMED(lane_add)(const int wide, const matrix_t *m, csr_row_t row, double *copy,
                                   double *table, const ptrdiff_t stride, const vec *factors)
{
    for (ptrdiff_t k = row.first, n; k < row.last; k += n) {
        const T *x = STORED_AGAIN(m, k, row, copy, n);
        for (ptrdiff_t j = 0; j < n; j++) {
            double *sum = table + index_at(wide, m->indices, k + j) * stride;
            const vec value = splat(x[j]);
            UNROLL
            for (int v = 0; v < LANE_VECTORS; v++)
                store(sum + v * LANES, load_f8(sum + v * LANES) + value * factors[v]);
        }
    }
}

/* A sweep of several tasks. */
ALWAYS_INLINE void NAMED(csr_sweep_tasks)(const int wide, const matrix_t *m, ptrdiff_t n_rows,
                                          task_sweep_t *tasks)
{
    const ptrdiff_t n_stored = index_at(wide, m->indptr, n_rows), stride = 2 * TASK_LANES;
    ALIGNED double copy[CONVERTED_VALUES];
    loss_state_t state[LANE_VECTORS];
    start_lanes(tasks->loss, tasks->intercept, state);
    for (ptrdiff_t i = 0; i < n_rows; i++) {
        const csr_row_t row = csr_row(wide, m, i);
        vec scores[LANE_VECTORS];
        NAMED(lane_scores)(wide, m, row, copy, tasks->table, stride, n_stored, scores);
        if (lane_derivatives(tasks, state, i, scores))
            NAMED(lane_add)(wide, m, row, copy, tasks->table + TASK_LANES, stride, scores);
    }
    finish_lanes(state, tasks);
}

/* The score of a row, for one task. */
ALWAYS_INLINE double NAMED(csr_score)(const int wide, const matrix_t *m, csr_row_t row, double *copy,
                                      const double *coef)
{
    double sums[4] = {0.0, 0.0, 0.0, 0.0};
    for (ptrdiff_t k = row.first, n; k < row.last; k += n) {
        const T *x = STORED(m, k, row, copy, n);
        ptrdiff_t j = 0;
        for (; j + 4 <= n; j += 4) {
            UNROLL
            for (int c = 0; c < 4; c++)
                sums[c] += x[j + c] * coef[index_at(wide, m->indices, k + j + c)];
        }
        for (; j < n; j++) sums[0] += x[j] * coef[index_at(wide, m->indices, k + j)];
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* Adds factor times row to the coefficients of one task, after its score. */
ALWAYS_INLINE void NAMED(csr_add)(const int wide, const matrix_t *m, csr_row_t row, double *copy,
                                  double factor, double *coef)
{
    for (ptrdiff_t k = row.first, n; k < row.last; k += n) {
        const T *x = STORED_AGAIN(m, k, row, copy, n);
        for (ptrdiff_t j = 0; j < n; j++) coef[index_at(wide, m->indices, k + j)] += factor * x[j];
    }
}

/* The step of dual coordinate ascent for rows[0], of one task or one lane per task; returns whether the
 * row stays active. The elements of rows[ROWS_AHEAD] are prefetched and, for many lanes, the coefficients
 * of rows[1]. */
ALWAYS_INLINE int NAMED(csr_dual_row)(const int wide, const int is_single, const matrix_t *m,
                                      const dual_pass_t *pass, dual_state_t *state,
                                      const ptrdiff_t *rows)
{
    const csr_row_t row = csr_row(wide, m, rows[0]);
    ALIGNED double copy[CONVERTED_VALUES];
    int is_active;
    prefetch_csr_row(wide, m, rows[ROWS_AHEAD]);
    if (is_single) {
        const double score = NAMED(csr_score)(wide, m, row, copy, pass->coef);
        const double change = dual_single(pass, state, rows[0], score, &is_active);
        if (change != 0.0) NAMED(csr_add)(wide, m, row, copy, change, pass->coef);
    } else {
        const csr_row_t next = csr_row(wide, m, rows[1]);
        vec scores[LANE_VECTORS];
        for (ptrdiff_t k = next.first; k < next.last && k < next.first + COLUMNS_AHEAD; k++)
            PREFETCH(pass->coef + index_at(wide, m->indices, k) * TASK_LANES);
        NAMED(lane_scores)(wide, m, row, copy, pass->coef, TASK_LANES, row.last, scores);
        if (dual_lanes(pass, state, rows[0], scores, &is_active))
            NAMED(lane_add)(wide, m, row, copy, pass->coef, TASK_LANES, scores);
    }
    return is_active;
}

/* The functions of one width of the indices, for the table in sweep.c. */
#define CSR_FUNCTIONS(csr, wide)                                                                   \
    static void NAMED(csr##_sweep_tasks)(const matrix_t *m, ptrdiff_t n_rows, task_sweep_t *tasks) \
    {                                                                                              \
        NAMED(csr_sweep_tasks)(wide, m, n_rows, tasks);                                            \
    }                                                                                              \
    static int NAMED(csr##_dual_lanes)(const matrix_t *m, const dual_pass_t *pass,                 \
                                       dual_state_t *state, const ptrdiff_t *rows)                 \
    {                                                                                              \
        return NAMED(csr_dual_row)(wide, 0, m, pass, state, rows);                                 \
    }                                                                                              \
    static int NAMED(csr##_dual_single)(const matrix_t *m, const dual_pass_t *pass,                \
                                        dual_state_t *state, const ptrdiff_t *rows)                \
    {                                                                                              \
        return NAMED(csr_dual_row)(wide, 1, m, pass, state, rows);                                 \
    }                                                                                              \
    static void NAMED(csr##_dual_pass)(const matrix_t *m, dual_pass_t *pass)                       \
    {                                                                                              \
        if (pass->n_lanes == 1) visit_rows(NAMED(csr##_dual_single), m, pass);                     \
        else visit_rows(NAMED(csr##_dual_lanes), m, pass);                                         \
    }
CSR_FUNCTIONS(csr_32, 0)
CSR_FUNCTIONS(csr_64, 1)
#undef CSR_FUNCTIONS

#undef NAME
#undef T
#undef STORED
#undef STORED_AGAIN
