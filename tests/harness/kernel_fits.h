/* Newton's method with a kernel, and pairwise coupling, against the conditions of a minimum; sums over
 * intervals of scores. */

static int always(void)
{
    return 1;
}

static int never(void)
{
    return 0;
}

/* At the minimum penalty c + g = 0 in each row and the derivatives g sum to zero. With the kernel of
 * polynomials of degree two of few columns the matrix is singular: K (penalty c + g) is what vanishes. */
static void check_kernel_newton(int level, ptrdiff_t n, loss_kind_t kind, int has_intercept)
{
    problem_t p = problem_of(level, ROWS, F8, n, 3);
    const ptrdiff_t stride = newton_line_length(n);
    double *gram = doubles(n * stride), *rest = doubles(n);
    kernel_newton_t t = {.gram = gram, .n_rows = n, .stride = stride, .sign = p.sign, .weight = p.weight,
                         .loss = loss_of_kind(kind), .penalty = 0.5, .has_intercept = has_intercept,
                         .tol = 1e-10, .objective_floor = 1e-12, .max_iter = 200};
    t.coef = doubles(n), t.work = doubles(kernel_newton_doubles(n));
    for (ptrdiff_t i = 0; i < n; i++)
        for (ptrdiff_t j = 0; j < stride; j++) {
            double product = 1.0;
            for (ptrdiff_t k = 0; j < n && k < p.d; k++)
                product += p.plain[i * p.d + k] * p.plain[j * p.d + k];
            gram[i * stride + j] = j < n ? product * product : 0.0;
        }
    for (ptrdiff_t i = 0; i < n; i++) t.coef[i] = i % 3 ? 0.0 : 0.01; /* any start */
    p.kernels->kernel_newton(&t);
    double value = 0.0, balance = 0.0, total = 0.0;
    for (ptrdiff_t i = 0; i < n; i++) {
        double score = 0.0, influence;
        for (ptrdiff_t j = 0; j < n; j++) score += gram[i * stride + j] * t.coef[j];
        const double margin = p.sign[i] * (score + t.intercept);
        value += p.weight[i] * loss_of(&t.loss, t.loss.margin - margin, &influence)
                 + 0.5 * t.penalty * t.coef[i] * score;
        rest[i] = t.penalty * t.coef[i] - p.sign[i] * p.weight[i] * influence;
        balance -= p.sign[i] * p.weight[i] * influence, total += p.weight[i];
    }
    int is_right = t.status == NEWTON_CONVERGED || t.status == NEWTON_ROUNDING;
    is_right &= is_near(t.value, value, value) && t.n_iter > 0 && t.n_iter <= 60 && t.gap >= -1e-12;
    is_right &= has_intercept ? fabs(balance) < 1e-4 * total : t.intercept == 0.0;
    for (ptrdiff_t i = 0; i < n; i++) {
        double gradient = 0.0;
        for (ptrdiff_t j = 0; j < n; j++) gradient += gram[i * stride + j] * rest[j];
        is_right &= fabs(gradient) < 1e-3 * (1.0 + value) * sqrt(gram[i * stride + i]);
    }
    expect_of(&p, is_right, "minimum of kernel_newton");
    /* The caller is asked where many products were made since it was asked last, and only there. */
    const double first = t.coef[0], found = t.value;
    interrupt_t interrupt = {always, 0x1p26, 0};
    t.interrupt = &interrupt;
    p.kernels->kernel_newton(&t);
    is_right = t.status == NEWTON_INTERRUPTED && interrupt.is_raised && t.n_iter == 0 && t.coef[0] == first;
    interrupt = (interrupt_t){never, 0x1p26, 0};
    p.kernels->kernel_newton(&t);
    is_right &= t.status <= NEWTON_ROUNDING && is_near(t.value, found, value) && !interrupt.is_raised;
    is_right &= interrupt.products > 0.0 && interrupt.products < 0x1p26;
    interrupt.is_asked = always;
    p.kernels->kernel_newton(&t);
    is_right &= t.status <= NEWTON_ROUNDING && !interrupt.is_raised;
    t.interrupt = NULL;
    expect_of(&p, is_right, "interrupted kernel_newton");
    /* Rows of one sign need no coefficient: the intercept is the level. */
    double *ones = doubles(n);
    for (ptrdiff_t i = 0; i < n; i++) ones[i] = -1.0;
    t.sign = ones;
    p.kernels->kernel_newton(&t);
    is_right = !has_intercept || (t.intercept == -t.loss.margin && t.value == 0.0 && t.n_iter == 0);
    for (ptrdiff_t i = 0; i < n; i++) is_right &= !has_intercept || t.coef[i] == 0.0;
    expect_of(&p, is_right, "kernel_newton with one class");
    free(gram), free(rest), free(ones), free(t.coef), free(t.work);
    release(&p);
}

/* The probabilities meet the condition of the minimum: Qp has equal entries. */
static void check_coupling(ptrdiff_t n_rows, ptrdiff_t n, double size)
{
    const ptrdiff_t n_pairs = n * (n - 1) / 2;
    double *logits = doubles(n_rows * n_pairs), *r = doubles(n * n), *p = doubles(n);
    coupling_t t = {logits, n_rows, n, 10.0, doubles(coupling_doubles(n)), doubles(n_rows * n)};
    for (ptrdiff_t k = 0; k < n_rows * n_pairs; k++) logits[k] = size * (uniform() - 0.5);
    couple(&t);
    int is_right = 1;
    for (ptrdiff_t row = 0; row < n_rows; row++) {
        const double *out = t.out + row * n, *logit = logits + row * n_pairs;
        double sum = 0.0, logs = 0.0, first = 0.0;
        for (ptrdiff_t i = 0; i < n; i++) p[i] = exp(out[i]), sum += p[i], logs += out[i];
        for (ptrdiff_t i = 0; i < n; i++)
            for (ptrdiff_t j = i + 1; j < n; j++, logit++) {
                const double bounded = fmin(10.0, fmax(-10.0, *logit));
                r[i * n + j] = 1.0 / (1.0 + exp(-bounded)), r[j * n + i] = 1.0 - r[i * n + j];
            }
        for (ptrdiff_t i = 0; i < n; i++) {
            double entry = 0.0;
            for (ptrdiff_t j = 0; j < n; j++)
                if (j != i) entry += r[j * n + i] * (r[j * n + i] * p[i] - r[i * n + j] * p[j]) / sum;
            if (i == 0) first = entry;
            is_right &= fabs(entry - first) < 1e-12 && p[i] > 0.0;
        }
        is_right &= fabs(logs) < 1e-10 * (double)n;
    }
    expect(is_right, "coupling", 0, 0, 0, n_rows, n);
    free(logits), free(r), free(p), free(t.work), free(t.out);
}

/* Each weight is in the sum of the interval that contains its score, or of the first or last one. */
static void check_intervals(ptrdiff_t n_rows, ptrdiff_t n_columns, ptrdiff_t n, ptrdiff_t first)
{
    double *scores = doubles(n_rows * n_columns), *weights = doubles(n_rows), *sums = doubles(n_columns * n);
    intervals_t t = {scores, weights, n_rows, n_columns, n, first, 0.25, sums};
    static const double special[] = {0.0, 0.25, -0.25, INFINITY, -INFINITY, NAN, 1e300, -1e-300};
    for (ptrdiff_t i = 0; i < n_rows * n_columns; i++)
        scores[i] = i % 2 ? special[i / 2 % 8] : 4.0 * (uniform() - 0.5);
    for (ptrdiff_t i = 0; i < n_rows; i++) weights[i] = uniform() - 0.5;
    for (ptrdiff_t i = 0; i < n_columns * n; i++) sums[i] = 0.0;
    add_to_intervals(&t);
    int is_right = 1;
    for (ptrdiff_t j = 0; j < n_columns; j++)
        for (ptrdiff_t k = 0; k < n; k++) {
            double sum = 0.0;
            for (ptrdiff_t row = 0; row < n_rows; row++) {
                const double score = scores[row * n_columns + j], high = 0.25 * (double)(first + k);
                const int is_above = k == 0 || score > high - 0.25, is_below = k == n - 1 || score <= high;
                if (isnan(score) ? k == 0 : is_above && is_below) sum += weights[row];
            }
            is_right &= sum == sums[j * n + k];
        }
    expect(is_right, "intervals", 0, 0, 0, n_rows, n);
    free(scores), free(weights), free(sums);
}
