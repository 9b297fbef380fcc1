/* csr.c and class_tiles.h against their computations written out; included by kernels.c. */

static csr_t csr_of(const problem_t *p)
{
    const int wide = p->layout == CSR_64;
    const ptrdiff_t stored =
        wide ? ((const int64_t *)p->m.indptr)[p->n] : ((const int32_t *)p->m.indptr)[p->n];
    return (csr_t){wide, p->m.indices, p->m.indptr, stored, p->n, p->d};
}

static ptrdiff_t index_of(int wide, const void *indices, ptrdiff_t at)
{
    return wide ? ((const int64_t *)indices)[at] : ((const int32_t *)indices)[at];
}

/* Whether a matrix is refused with one index changed, which is restored. */
static int is_refused(const csr_t *m, const void *indices, ptrdiff_t at, ptrdiff_t value)
{
    const layout_t layout = m->wide ? CSR_64 : CSR_32;
    const ptrdiff_t before = index_of(m->wide, indices, at);
    put_index(layout, (void *)indices, at, value);
    const int refused = !csr_is_sound(m);
    put_index(layout, (void *)indices, at, before);
    return refused;
}

static void check_csr_is_sound(const problem_t *p)
{
    csr_t m = csr_of(p);
    const ptrdiff_t last = m.n_stored - 1, half = p->n / 2;
    int is_right = csr_is_sound(&m);
    is_right &= is_refused(&m, m.indices, 0, p->d) && is_refused(&m, m.indices, last, p->d);
    is_right &= is_refused(&m, m.indices, 0, -1) && is_refused(&m, m.indices, last, -1);
    is_right &= !is_refused(&m, m.indices, 0, p->d - 1) && !is_refused(&m, m.indices, last, 0);
    is_right &= is_refused(&m, m.indptr, 0, 1) && is_refused(&m, m.indptr, 0, -1);
    is_right &= is_refused(&m, m.indptr, p->n, last) && is_refused(&m, m.indptr, p->n, last + 2);
    is_right &= is_refused(&m, m.indptr, half, index_of(m.wide, m.indptr, half + 1) + 1);
    is_right &= is_refused(&m, m.indptr, half, index_of(m.wide, m.indptr, half - 1) - 1);
    m.n_columns = 0;
    is_right &= !csr_is_sound(&m);
    m.n_columns = -1;
    is_right &= !csr_is_sound(&m);
    m.n_columns = PTRDIFF_MAX; /* more columns than an index of 32 bits can name */
    is_right &= csr_is_sound(&m) && is_refused(&m, m.indices, 0, -1);
    m.n_rows = m.n_stored = 0;
    is_right &= csr_is_sound(&m);
    const int64_t indptr[] = {0, 1}, zero = 0; /* an element in column 0, where there is no column */
    m = (csr_t){1, &zero, indptr, 1, 1, 1};
    is_right &= csr_is_sound(&m);
    for (m.n_columns = 0; m.n_columns > -2; m.n_columns--) is_right &= !csr_is_sound(&m);
    expect_of(p, is_right, "csr_is_sound");
}

/* Sums of outer squares of the rows [first, last), added to what is there, with the transpose of the
 * total; every third has no weight. */
static void check_csr_squares(const problem_t *p, ptrdiff_t first, ptrdiff_t last)
{
    const csr_t m = csr_of(p);
    const layout_t layout = p->layout;
    double *total = doubles(p->d * p->d), *truth = doubles(p->d * p->d), *weight = doubles(p->n);
    int is_right = 1;
    for (ptrdiff_t k = 0; k < p->d * p->d; k++) total[k] = uniform();
    for (ptrdiff_t k = 0; k < p->d * p->d; k++)
        truth[k] = total[k] + total[k % p->d * p->d + k / p->d];
    for (ptrdiff_t i = 0; i < p->n; i++) weight[i] = i % 3 ? p->weight[i] : 0.0;
    for (ptrdiff_t i = first; i < last; i++)
        for (ptrdiff_t k = 0; k < p->d * p->d; k++)
            truth[k] += weight[i] * p->plain[i * p->d + k / p->d] * p->plain[i * p->d + k % p->d];
    is_right &= csr_add_squares(&m, p->m.data, weight, first, last, total);
    for (ptrdiff_t k = 0; k < p->d * p->d; k++)
        is_right &= is_near(total[k] + total[k % p->d * p->d + k / p->d], truth[k], 64.0 * (double)p->n);
    expect_of(p, is_right, "csr_add_squares");

    /* A bad index is found in rows that have a weight, and not read in the others. */
    ptrdiff_t row = first;
    while (row < last && (row % 3 == 0 || index_of(m.wide, m.indptr, row) == index_of(m.wide, m.indptr, row + 1)))
        row++;
    if (row == last) {
        free(total), free(truth), free(weight);
        return;
    }
    const ptrdiff_t begin = index_of(m.wide, m.indptr, row), end = index_of(m.wide, m.indptr, row + 1);
    const ptrdiff_t before = index_of(m.wide, m.indices, end - 1);
    is_right = 1;
    for (int sign = 0; sign < 2; sign++) {
        put_index(layout, (void *)m.indices, end - 1, sign ? -1 : p->d);
        is_right &= !csr_add_squares(&m, p->m.data, weight, row, row + 1, total);
        const double kept = weight[row];
        weight[row] = 0.0;
        is_right &= csr_add_squares(&m, p->m.data, weight, row, row + 1, total);
        weight[row] = kept;
    }
    put_index(layout, (void *)m.indices, end - 1, before);
    is_right &= csr_add_squares(&m, p->m.data, weight, row, row + 1, total);
    csr_t shorter = m;
    shorter.n_stored = end;
    is_right &= csr_add_squares(&shorter, p->m.data, weight, row, row + 1, total);
    shorter.n_stored = end - 1;
    is_right &= !csr_add_squares(&shorter, p->m.data, weight, row, row + 1, total);
    put_index(layout, (void *)m.indptr, row, -1); /* ends before it begins */
    is_right &= !csr_add_squares(&m, p->m.data, weight, row, row + 1, total);
    put_index(layout, (void *)m.indptr, row, end + 1);
    is_right &= !csr_add_squares(&m, p->m.data, weight, row, row + 1, total);
    put_index(layout, (void *)m.indptr, row, begin);
    expect_of(p, is_right, "bad indices of csr_add_squares");
    free(total), free(truth), free(weight);
}

/* Sums of values and squares, added to what is there, and the largest values of the columns; every third
 * row has no weight. */
static void check_csr_moments(const problem_t *p)
{
    csr_t m = csr_of(p);
    double *total = doubles(2 * p->d), *truth = doubles(2 * p->d), *weight = doubles(p->n);
    double *largest = doubles(p->d), *most = doubles(p->d);
    int is_right = 1;
    for (ptrdiff_t k = 0; k < 2 * p->d; k++) total[k] = truth[k] = uniform();
    for (ptrdiff_t j = 0; j < p->d; j++) largest[j] = most[j] = uniform();
    for (ptrdiff_t i = 0; i < p->n; i++) {
        weight[i] = i % 3 ? p->weight[i] : 0.0;
        for (ptrdiff_t j = 0; j < p->d; j++) {
            const double x = p->plain[i * p->d + j];
            truth[2 * j] += weight[i] * x;
            truth[2 * j + 1] += weight[i] * x * x;
            if (fabs(x) > most[j]) most[j] = fabs(x);
        }
    }
    is_right &= csr_moments(&m, p->m.data, weight, total);
    is_right &= csr_largest(&m, p->m.data, largest);
    for (ptrdiff_t k = 0; k < 2 * p->d; k++)
        is_right &= is_near(total[k], truth[k], 64.0 * (double)p->n);
    for (ptrdiff_t j = 0; j < p->d; j++) is_right &= largest[j] == most[j];
    m.n_stored++; /* not sound */
    is_right &= !csr_moments(&m, p->m.data, weight, total);
    is_right &= !csr_largest(&m, p->m.data, largest);
    expect_of(p, is_right, "csr_moments, csr_largest");
    free(total), free(truth), free(weight), free(largest), free(most);
}

/* Coefficients in rows or in columns become a table, and the gradients of a table become rows. */
static void check_tables(ptrdiff_t d, ptrdiff_t n_tasks, int in_columns)
{
    double *coef = doubles(d * n_tasks), *centre = doubles(d), *factors = doubles(d);
    double *gradient = doubles(d * n_tasks);
    task_sweep_t tasks = {.table = doubles(d * 2 * TASK_LANES)};
    const scaling_t scaling = {d, centre, factors};
    const ptrdiff_t task_stride = in_columns ? 1 : d, column_stride = in_columns ? n_tasks : 1;
    int is_right = 1;
    for (ptrdiff_t j = 0; j < d; j++) centre[j] = uniform(), factors[j] = 0.5 + uniform();
    for (ptrdiff_t k = 0; k < d * n_tasks; k++) coef[k] = uniform() - 0.5;
    for (ptrdiff_t k = 0; k < d * 2 * TASK_LANES; k++) tasks.table[k] = 7.0;
    for (int k = 0; k < TASK_LANES; k++) tasks.intercept[k] = 7.0, tasks.slope[k] = uniform();
    fill_table(&tasks, &scaling, (const char *)coef, task_stride * (ptrdiff_t)sizeof(double),
               column_stride * (ptrdiff_t)sizeof(double), n_tasks);
    for (int k = 0; k < TASK_LANES; k++) {
        double intercept = 0.0;
        for (ptrdiff_t j = 0; j < d; j++) {
            const double own = k < n_tasks ? factors[j] * coef[k * task_stride + j * column_stride] : 0.0;
            intercept -= centre[j] * own;
            is_right &= is_near(tasks.table[j * 2 * TASK_LANES + k], own, 1.0);
            is_right &= tasks.table[(j * 2 + 1) * TASK_LANES + k] == 0.0;
            tasks.table[(j * 2 + 1) * TASK_LANES + k] = uniform();
        }
        is_right &= is_near(tasks.intercept[k], intercept, 1.0);
    }
    expect(is_right, "fill_table", 0, in_columns, 0, n_tasks, d);
    read_table(&tasks, &scaling, gradient, n_tasks);
    for (ptrdiff_t k = 0; k < n_tasks; k++)
        for (ptrdiff_t j = 0; j < d; j++) {
            const double own = tasks.table[(j * 2 + 1) * TASK_LANES + k] - centre[j] * tasks.slope[k];
            is_right &= is_near(gradient[k * d + j], factors[j] * own, 1.0);
        }
    expect(is_right, "read_table", 0, in_columns, 0, n_tasks, d);
    free(coef), free(centre), free(factors), free(gradient), free(tasks.table);
}

static void check_csr(const problem_t *p)
{
    check_csr_is_sound(p);
    if (p->type != F8) return;
    check_csr_moments(p);
    check_csr_squares(p, 0, p->n);
    check_csr_squares(p, p->n / 3, p->n - p->n / 5);
}

/* Float32 rows and many classes against plain sums. `spread` is the size of the scores: rows far beyond
 * the level have derivatives of zero. */
static void check_class_tiles(int level, ptrdiff_t n, ptrdiff_t d, ptrdiff_t n_classes, double spread)
{
    problem_t p = problem_of(level, ROWS, F4, n, d);
    const ptrdiff_t padded = (n_classes + TASK_GROUP - 1) / TASK_GROUP * TASK_GROUP;
    const ptrdiff_t width = (d + PADDING) / PADDING * PADDING, first = n / 5;
    float *coef = take((size_t)(padded * d) * sizeof *coef);
    float *work = take((size_t)class_tile_floats(n_classes, width) * sizeof *work);
    double *intercept = doubles(n_classes), *gradient = doubles(n_classes * width);
    double *truth = doubles(n_classes * width), *powers = doubles(n_classes), value = 0.25;
    const joint_t joint = {{CATONI, 1.0, 0.8, 0.0}, 0.3, n_classes, p.codes, p.weight, intercept, NULL,
                           0};
    class_tiles_t s = {&joint, d, d, width, coef, value, gradient, work};
    const double rounding = 1e-5 * (1.0 + spread); /* of float32 scores, which grow with the spread */
    int is_right = 1;
    if (!p.kernels->class_tiles) goto end;
    for (ptrdiff_t i = 0; i < n; i++) p.codes[i] = (ptrdiff_t)(uniform() * (double)n_classes);
    for (ptrdiff_t k = 0; k < n_classes; k++) intercept[k] = uniform() - 0.5;
    for (ptrdiff_t k = 0; k < n_classes * d; k++) coef[k] = (float)(spread * (uniform() - 0.5));
    for (ptrdiff_t k = 0; k < n_classes * width; k++) gradient[k] = truth[k] = uniform();
    p.kernels->class_tiles(p.m.data, first, n, &s);
    for (ptrdiff_t i = first; i < n; i++) {
        const ptrdiff_t y = p.codes[i];
        double top = -INFINITY, total = 0.0, own = 0.0, influence;
        for (ptrdiff_t k = 0; k < n_classes; k++) {
            powers[k] = intercept[k];
            for (ptrdiff_t j = 0; j < d; j++) powers[k] += p.plain[i * d + j] * (double)coef[k * d + j];
            if (k != y) top = fmax(top, powers[k]);
            else own = powers[k];
        }
        for (ptrdiff_t k = 0; k < n_classes; k++) {
            powers[k] = exp((powers[k] - top) / joint.temperature);
            total += k == y ? 0.0 : powers[k];
        }
        const double margin = own - top - joint.temperature * log(total);
        value += p.weight[i] * loss_of(&joint.loss, joint.loss.margin - margin, &influence);
        influence = margin > joint.loss.margin ? 0.0 : p.weight[i] * influence;
        for (ptrdiff_t k = 0; k < n_classes; k++) {
            const double slope = k == y ? -influence : influence * powers[k] / total;
            for (ptrdiff_t j = 0; j < d; j++) truth[k * width + j] += slope * p.plain[i * d + j];
            truth[k * width + d] += slope;
        }
    }
    for (ptrdiff_t k = 0; k < n_classes * width; k++)
        is_right &= fabs(gradient[k] - truth[k]) <= rounding * (1.0 + fabs(truth[k]));
    expect_of(&p, is_right && fabs(s.value - value) <= rounding * value, "class_tiles");
end:
    free(coef), free(work), free(intercept), free(gradient), free(truth), free(powers);
    release(&p);
}
