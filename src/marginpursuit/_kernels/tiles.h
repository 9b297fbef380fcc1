/* A sweep of dense float32 rows for several tasks, or classes, at once, in reduced precision.
 *
 * The matrix products of a BLAS first pack the rows, which takes as long as the products themselves
 * if there are few tasks. Here a tile of rows stays in cache for the scores of all tasks, their
 * derivatives, and the sums of derivative times row. Products are in float32, as are the sums over
 * one row or one tile; everything else is in double.
 *
 * Rows and coefficients are padded with zeros to a multiple of PADDING columns, and the coefficients
 * to a multiple of TASK_GROUP tasks, so that no vector is cut short.
 */
enum {
    WIDTH = 2 * LANES, /* floats in a vector */
    ROW_GROUP = 4,                            /* rows whose dot products are made together */
    TASKS_HELD = LANES >= 8 ? TASK_GROUP : 2, /* tasks whose sums the registers hold */
};

typedef float floats __attribute__((vector_size(sizeof(vec)), aligned(4), may_alias));

ALWAYS_INLINE floats floats_at(const float *p) { return *(const floats *)p; }

/* The sums of pairs of lanes, in double. */
ALWAYS_INLINE vec halved(floats v)
{
    ALIGNED float lanes[WIDTH];
    memcpy(lanes, &v, sizeof v);
    return load_f4(lanes) + load_f4(lanes + LANES);
}

/* scores[t][i] = x_i.coef[t], for all tasks and n rows of a tile; the last ROW_GROUP is filled up. */
static void tile_scores(const float *x, ptrdiff_t n, ptrdiff_t d, const float *coef,
                        ptrdiff_t n_tasks, double (*scores)[TILE_ROWS])
{
    enum { SUMS = ROW_GROUP * TASKS_HELD };
    for (ptrdiff_t i = 0; i < n; i += ROW_GROUP) {
        const float *row[ROW_GROUP];
        for (int r = 0; r < ROW_GROUP; r++) row[r] = x + (i + r < n ? i + r : n - 1) * d;
        for (ptrdiff_t t = 0; t < n_tasks; t += TASKS_HELD) {
            const float *c = coef + t * d;
            floats sum[SUMS] = {{0}};
            for (ptrdiff_t j = 0; j < d; j += WIDTH) {
                floats values[ROW_GROUP];
                UNROLL
                for (int r = 0; r < ROW_GROUP; r++) values[r] = floats_at(row[r] + j);
                UNROLL
                for (int k = 0; k < TASKS_HELD; k++) {
                    const floats w = floats_at(c + k * d + j);
                    UNROLL
                    for (int r = 0; r < ROW_GROUP; r++) sum[k * ROW_GROUP + r] += values[r] * w;
                }
            }
            ALIGNED double sums[SUMS];
            for (int s = 0; s < SUMS; s += LANES) {
                vec wide[LANES];
                UNROLL
                for (int v = 0; v < LANES; v++) wide[v] = halved(sum[s + v]);
                store(sums + s, lane_sums(wide));
            }
            for (int k = 0; k < TASKS_HELD; k++)
                memcpy(scores[t + k] + i, sums + k * ROW_GROUP, ROW_GROUP * sizeof(double));
        }
    }
}

/* Adds the sum of factors[t][i] x_i over the rows of a tile to the gradient of each task, for
 * `vectors` times WIDTH columns. */
ALWAYS_INLINE void strip_adjoint(const int vectors, const float *x, ptrdiff_t n, ptrdiff_t d,
                                  float (*factors)[TILE_ROWS], ptrdiff_t n_tasks,
                                  double *gradient, ptrdiff_t stride)
{
    for (ptrdiff_t t = 0; t < n_tasks; t += TASKS_HELD) {
        floats sum[TASKS_HELD][4] = {{{0}}};
        for (ptrdiff_t i = 0; i < n; i++) {
            floats values[4];
            UNROLL
            for (int v = 0; v < vectors; v++) values[v] = floats_at(x + i * d + v * WIDTH);
            UNROLL
            for (int k = 0; k < TASKS_HELD; k++) {
                const float f = factors[t + k][i];
                UNROLL
                for (int v = 0; v < vectors; v++) sum[k][v] += values[v] * f;
            }
        }
        for (int k = 0; k < TASKS_HELD && t + k < n_tasks; k++)
            for (int v = 0; v < vectors; v++) {
                ALIGNED float lanes[WIDTH];
                double *total = gradient + (t + k) * stride + v * WIDTH;
                memcpy(lanes, &sum[k][v], sizeof lanes);
                store(total, load_f8(total) + load_f4(lanes));
                store(total + LANES, load_f8(total + LANES) + load_f4(lanes + LANES));
            }
    }
}

/* Turns the scores of rows [first, first + n) into derivatives of the losses of all tasks, or of a
 * joint loss; adds to values and slopes. */
static void tile_losses(const tiles_t *s, ptrdiff_t first, ptrdiff_t n, double (*scores)[TILE_ROWS])
{
    if (s->joint) {
        joint_t joint = *s->joint;
        joint.codes += first;
        joint.weight += first;
        joint_losses(&joint, n, scores[0], s->value, s->slope);
        return;
    }
    for (ptrdiff_t t = 0; t < s->n_tasks; t++) {
        const double *weight = s->weight + s->part[t] * s->n_rows + first;
        task_losses(s->loss + t, s->codes + first, s->positive[t], weight, s->intercept[t], n,
                    scores[t], s->value + t, s->slope + t);
    }
}

static void tiles(const float *x, ptrdiff_t first, ptrdiff_t last, ptrdiff_t d, tiles_t *s)
{
    ALIGNED double scores[MAX_TASKS][TILE_ROWS];
    ALIGNED float factors[MAX_TASKS][TILE_ROWS] = {{0.0f}};
    const ptrdiff_t padded = (s->n_tasks + TASK_GROUP - 1) / TASK_GROUP * TASK_GROUP;
    for (ptrdiff_t i = first; i < last; i += TILE_ROWS) {
        const ptrdiff_t n = last - i < TILE_ROWS ? last - i : TILE_ROWS;
        const float *rows = x + i * d;
        ptrdiff_t j = 0;
        tile_scores(rows, n, d, s->coef, padded, scores);
        tile_losses(s, i, n, scores);
        for (ptrdiff_t t = 0; t < s->n_tasks; t++)
            for (ptrdiff_t k = 0; k < n; k++) factors[t][k] = (float)scores[t][k];
        for (; j + 4 * WIDTH <= d; j += 4 * WIDTH)
            strip_adjoint(4, rows + j, n, d, factors, s->n_tasks, s->gradient + j, s->stride);
        for (; j < d; j += WIDTH)
            strip_adjoint(1, rows + j, n, d, factors, s->n_tasks, s->gradient + j, s->stride);
    }
}
