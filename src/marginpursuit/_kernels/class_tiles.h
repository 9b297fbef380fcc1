/* A sweep of dense float32 rows for the joint loss of many classes, in reduced precision.
 *
 * The rows of a tile are the lanes of vectors: the scores of a class are TILE_ROWS contiguous floats,
 * and those of all classes fit a second-level cache. Scores and powers are float32; sums over classes,
 * margins, and sums over tiles are double. With e_k = exp((f_k - largest)/T) for the classes k other than
 * y, S their sum, and phi' the derivative in the margin, the derivative in f_k is -phi'/S e_k, and that
 * in f_y is -phi'/S (-S). The rows are multiplied by -phi'/S, and the tile of powers, with -S for y, is
 * that of derivatives. Rows with phi' = 0 have no part in the products.
 */
enum { STRIP = LANES >= 8 ? 4 : 2 /* vectors of rows whose scores the registers hold */ };

/* The scores of TASK_GROUP classes: those of a tile whose columns have TILE_ROWS floats each. */
static void class_scores(const float *columns, ptrdiff_t n_columns, const float *coef, ptrdiff_t width,
                         const float *intercept, float *scores)
{
    for (int i = 0; i < TILE_ROWS; i += STRIP * WIDTH) {
        floats sum[TASK_GROUP][STRIP];
        UNROLL
        for (int k = 0; k < TASK_GROUP; k++) {
            UNROLL
            for (int v = 0; v < STRIP; v++) sum[k][v] = (floats){0} + intercept[k];
        }
        for (ptrdiff_t j = 0; j < n_columns; j++) {
            floats values[STRIP];
            UNROLL
            for (int v = 0; v < STRIP; v++) values[v] = floats_at(columns + j * TILE_ROWS + i + v * WIDTH);
            UNROLL
            for (int k = 0; k < TASK_GROUP; k++) {
                const float w = coef[k * width + j];
                UNROLL
                for (int v = 0; v < STRIP; v++) sum[k][v] += values[v] * w;
            }
        }
        for (int k = 0; k < TASK_GROUP; k++)
            memcpy(scores + k * TILE_ROWS + i, sum[k], sizeof sum[k]);
    }
}

/* e^x for x <= 0 to 2e-7, at least e^-87: the Taylor polynomial up to r^6/6! of x = k log 2 + r. */
ALWAYS_INLINE float short_exp(float x)
{
    const float low = x < -87.0f ? -87.0f : x; /* NaN stays NaN */
    const float shifted = low * 0x1.715476p+0f + 0x1.8p23f, k = shifted - 0x1.8p23f;
    const float r = (low - k * 0x1.62e4p-1f) - k * 0x1.7f7d1cp-20f;
    float sum = 1.0f / 720.0f, power;
    uint32_t bits;
    sum = sum * r + 1.0f / 120.0f;
    sum = sum * r + 1.0f / 24.0f;
    sum = sum * r + 1.0f / 6.0f;
    sum = sum * r + 0.5f;
    sum = sum * (r * r) + r;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + (UINT32_C(127) << 23);
    memcpy(&power, &bits, sizeof power);
    return power + power * sum;
}

/* Replaces the scores of TASK_GROUP classes by exp((f - largest)/T), and adds them to the totals. */
static void class_powers(const float *largest, float inverse, float *scores, double *total)
{
    ALIGNED float sum[TILE_ROWS] = {0.0f};
    for (int k = 0; k < TASK_GROUP; k++) {
        float *f = scores + k * TILE_ROWS;
        for (int i = 0; i < TILE_ROWS; i++) {
            f[i] = short_exp((f[i] - largest[i]) * inverse);
            sum[i] += f[i];
        }
    }
    for (int i = 0; i < TILE_ROWS; i++) total[i] += sum[i];
}

/* Adds the sum of power[k][tile_row[i]] row_i over n rows to the gradients of n_classes <= TASK_GROUP
 * classes, for WIDTH columns. */
static void class_adjoint(const float *rows, ptrdiff_t stride, ptrdiff_t n, const int *tile_row,
                          const float *powers, ptrdiff_t n_classes, double *gradient, ptrdiff_t width)
{
    floats sum[TASK_GROUP][2] = {{{0}}}; /* of rows with even and with odd numbers */
    ptrdiff_t i = 0;
    for (; i + 1 < n; i += 2) {
        const floats even = floats_at(rows + i * stride), odd = floats_at(rows + (i + 1) * stride);
        const float *f = powers + tile_row[i], *g = powers + tile_row[i + 1];
        UNROLL
        for (int k = 0; k < TASK_GROUP; k++) {
            sum[k][0] += even * f[k * TILE_ROWS];
            sum[k][1] += odd * g[k * TILE_ROWS];
        }
    }
    if (i < n)
        for (int k = 0; k < TASK_GROUP; k++)
            sum[k][0] += floats_at(rows + i * stride) * powers[tile_row[i] + k * TILE_ROWS];
    for (ptrdiff_t k = 0; k < n_classes; k++) {
        ALIGNED float lanes[WIDTH];
        const floats both = sum[k][0] + sum[k][1];
        double *to = gradient + k * width;
        memcpy(lanes, &both, sizeof lanes);
        for (int c = 0; c < WIDTH; c++) to[c] += lanes[c];
    }
}

/* A tile of rows, in the memory that the caller provides. */
typedef struct {
    float *scores;    /* (padded classes, TILE_ROWS): scores, then powers */
    float *columns;   /* (n_columns, TILE_ROWS) */
    float *rows;      /* (TILE_ROWS, width): rows with phi' != 0, times -phi'/S */
    float *intercept; /* of the padded classes */
    ALIGNED double total[TILE_ROWS], margin[TILE_ROWS];
    ALIGNED float largest[TILE_ROWS], class_score[TILE_ROWS];
    int tile_row[TILE_ROWS]; /* the number in the tile of each of `rows` */
} class_tile_t;

/* The joint margins of n rows of x; the scores become powers. */
static void tile_margins(const class_tiles_t *s, const float *x, const ptrdiff_t *codes, ptrdiff_t n,
                         class_tile_t *t)
{
    const ptrdiff_t n_classes = s->joint->n_classes;
    const double temperature = s->joint->temperature;
    for (ptrdiff_t i = 0; i < n; i++)
        for (ptrdiff_t j = 0; j < s->n_columns; j++)
            t->columns[j * TILE_ROWS + i] = x[i * s->stride + j];
    for (ptrdiff_t k = 0; k < n_classes; k += TASK_GROUP)
        class_scores(t->columns, s->n_columns, s->coef + k * s->stride, s->stride, t->intercept + k,
                     t->scores + k * TILE_ROWS);
    for (int i = 0; i < TILE_ROWS; i++) t->largest[i] = -INFINITY, t->total[i] = 0.0;
    for (ptrdiff_t i = 0; i < n; i++) {
        float *f = t->scores + codes[i] * TILE_ROWS + i;
        t->class_score[i] = *f;
        *f = -INFINITY;
    }
    for (ptrdiff_t k = 0; k < n_classes; k++)
        for (int i = 0; i < TILE_ROWS; i++) {
            const float f = t->scores[k * TILE_ROWS + i];
            t->largest[i] = t->largest[i] > f ? t->largest[i] : f;
        }
    for (ptrdiff_t k = 0; k < n_classes; k += TASK_GROUP)
        class_powers(t->largest, (float)(1.0 / temperature), t->scores + k * TILE_ROWS, t->total);
    for (ptrdiff_t i = 0; i < n; i++)
        t->margin[i] = (double)t->class_score[i] - t->largest[i] - temperature * log(t->total[i]);
}

/* Writes the rows times -phi'/S, with a last column of ones for the slopes; returns their number. */
static ptrdiff_t scaled_rows(const class_tiles_t *s, const ptrdiff_t *codes, ptrdiff_t n,
                             class_tile_t *t)
{
    const ptrdiff_t d = s->n_columns;
    ptrdiff_t n_used = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        if (t->margin[i] == 0.0) continue;
        const float factor = (float)(-t->margin[i] / t->total[i]);
        float *row = t->rows + n_used * s->width;
        for (ptrdiff_t j = 0; j < d; j++) row[j] = factor * t->columns[j * TILE_ROWS + i];
        row[d] = factor;
        for (ptrdiff_t j = d + 1; j < s->width; j++) row[j] = 0.0f;
        t->scores[codes[i] * TILE_ROWS + i] = (float)-t->total[i];
        t->tile_row[n_used++] = (int)i;
    }
    return n_used;
}

static void class_tiles(const float *x, ptrdiff_t first, ptrdiff_t last, class_tiles_t *s)
{
    const ptrdiff_t n_classes = s->joint->n_classes, width = s->width;
    const ptrdiff_t padded = (n_classes + TASK_GROUP - 1) / TASK_GROUP * TASK_GROUP;
    ALIGNED double sign[TILE_ROWS];
    class_tile_t t = {.scores = s->work};
    t.columns = t.scores + padded * TILE_ROWS;
    t.rows = t.columns + width * TILE_ROWS;
    t.intercept = t.rows + width * TILE_ROWS;
    for (ptrdiff_t k = 0; k < padded; k++)
        t.intercept[k] = k < n_classes ? (float)s->joint->intercept[k] : -INFINITY;
    memset(t.columns, 0, (size_t)(width * TILE_ROWS) * sizeof(float));
    for (int i = 0; i < TILE_ROWS; i++) sign[i] = 1.0;
    sweep_t loss = {.sign = sign, .loss = s->joint->loss};
    loss_state_t state = start_loss(&loss);
    for (ptrdiff_t begin = first; begin < last; begin += TILE_ROWS) {
        const ptrdiff_t n = last - begin < TILE_ROWS ? last - begin : TILE_ROWS;
        const ptrdiff_t *codes = s->joint->codes + begin;
        tile_margins(s, x + begin * s->stride, codes, n, &t);
        loss.weight = s->joint->weight + begin;
        apply_loss(&state, &loss, 0, n, t.margin); /* now the derivatives in the margins */
        const ptrdiff_t n_used = scaled_rows(s, codes, n, &t);
        for (ptrdiff_t k = 0; n_used && k < n_classes; k += TASK_GROUP) {
            const ptrdiff_t n_group = n_classes - k < TASK_GROUP ? n_classes - k : TASK_GROUP;
            for (ptrdiff_t j = 0; j < width; j += WIDTH)
                class_adjoint(t.rows + j, width, n_used, t.tile_row, t.scores + k * TILE_ROWS, n_group,
                              s->gradient + k * width + j, width);
        }
    }
    finish_loss(&state, &loss);
    s->value += loss.value;
}
