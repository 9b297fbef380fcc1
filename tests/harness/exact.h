/* Kernels against their computations written out, with all their results; included by kernels.c. */

/* The logarithm at the level that the harness is compiled for: near one, at the edges of the reduced
 * range, over all magnitudes, and of values that are not finite. */
static void check_logarithm(void)
{
    int is_right = 1;
    for (int k = 0; k < 4000; k++) {
        const double scale = ldexp(1.0, k % 996), edge = k % 4 == 1 ? 0.75 : 1.5;
        const double near = 1.0 + ldexp(uniform(), -(k % 52)), far = pow(10.0, 300.0 * uniform());
        const double at_edge = scale * edge * (1.0 + (k % 3 - 1) * DBL_EPSILON);
        double x[LANES], found[LANES];
        for (int i = 0; i < LANES; i++) x[i] = i % 2 ? far : k % 2 && at_edge >= 1.0 ? at_edge : near;
        store(found, log_from_one(load_f8(x)));
        for (int i = 0; i < LANES; i++)
            is_right &= fabs(found[i] - log(x[i])) <= 4.0 * DBL_EPSILON * log(x[i]);
    }
    const double special[] = {INFINITY, NAN};
    for (int k = 0; k < 2; k++) is_right &= isnan(lane_sum(log_from_one(splat(special[k]))));
    is_right &= lane_sum(log_from_one(splat(1.0))) == 0.0;
    expect(is_right, "logarithm", 0, 0, 0, 0, 0);
}

/* Scores of one task become derivatives. */
static void check_task_losses(int level, loss_kind_t kind, ptrdiff_t n)
{
    problem_t p = problem_of(level, ROWS, F8, n, 1);
    double *scores = doubles(n), *truth = doubles(n), value = 0.5, slope = 0.25, influence;
    double true_value = value, true_slope = slope;
    const loss_t loss = loss_of_kind(kind);
    int is_right = 1;
    for (ptrdiff_t i = 0; i < n; i++) {
        scores[i] = 6.0 * uniform() - 3.0;
        if (i % 3 == 0) /* a residual of 1e-5 to 1e-4, where series replace functions */
            scores[i] = p.sign[i] * (loss.margin - 1e-4 * loss.scale * (0.1 + 0.9 * uniform())) - 0.3;
        const double residual = loss.margin - p.sign[i] * (scores[i] + 0.3);
        true_value += p.weight[i] * loss_of(&loss, residual, &influence);
        truth[i] = -p.sign[i] * p.weight[i] * influence;
        true_slope += truth[i];
    }
    p.kernels->task_losses(&loss, p.codes, 1, p.weight, 0.3, n, scores, &value, &slope);
    for (ptrdiff_t i = 0; i < n; i++)
        is_right &= fabs(scores[i] - truth[i]) <= 1e-15 + 1e-10 * fabs(truth[i]);
    is_right &= is_near(value, true_value, true_value) && is_near(slope, true_slope, true_value);
    expect_of(&p, is_right, "task_losses");
    free(scores), free(truth);
    release(&p);
}

/* The joint loss of five classes: margins, derivatives and sums. */
static void check_joint_classes(int level, loss_kind_t kind, ptrdiff_t n)
{
    enum { CLASSES = 5 };
    problem_t p = problem_of(level, ROWS, F8, n, 1);
    double *scores = doubles(CLASSES * n), *truth = doubles(CLASSES * n), *margins = doubles(n);
    double *intercept = doubles(CLASSES), *slope = doubles(CLASSES), *true_slope = doubles(CLASSES);
    double value = 0.5, true_value = value, influence;
    const joint_t joint = {loss_of_kind(kind), 0.4, CLASSES, p.codes, p.weight, intercept, margins,
                           n};
    int is_right = 1;
    for (int k = 0; k < CLASSES; k++) intercept[k] = 0.2 * k - 0.3, slope[k] = true_slope[k] = 0.1;
    for (ptrdiff_t k = 0; k < CLASSES * n; k++) scores[k] = 4.0 * uniform() - 2.0;
    for (ptrdiff_t i = 0; i < n; i++) {
        const ptrdiff_t y = p.codes[i];
        double total = 0.0;
        for (int k = 0; k < CLASSES; k++) {
            truth[k * n + i] = exp((scores[k * n + i] + intercept[k]) / joint.temperature);
            total += k == y ? 0.0 : truth[k * n + i];
        }
        const double margin = scores[y * n + i] + intercept[y] - joint.temperature * log(total);
        true_value += p.weight[i] * loss_of(&joint.loss, joint.loss.margin - margin, &influence);
        for (int k = 0; k < CLASSES; k++) {
            const double share = k == y ? -1.0 : truth[k * n + i] / total;
            truth[k * n + i] = p.weight[i] * influence * share;
            true_slope[k] += truth[k * n + i];
        }
        margins[i] = margin;
    }
    double *true_margins = doubles(n);
    memcpy(true_margins, margins, (size_t)n * sizeof(double));
    p.kernels->joint_losses(&joint, n, scores, &value, slope);
    for (ptrdiff_t i = 0; i < n; i++) is_right &= is_near(margins[i], true_margins[i], 10.0);
    for (ptrdiff_t k = 0; k < CLASSES * n; k++) is_right &= is_near(scores[k], truth[k], 10.0);
    for (int k = 0; k < CLASSES; k++) is_right &= is_near(slope[k], true_slope[k], true_value);
    expect_of(&p, is_right && is_near(value, true_value, true_value), "joint_losses, five classes");
    free(scores), free(truth), free(margins), free(true_margins), free(intercept), free(slope);
    free(true_slope);
    release(&p);
}

/* After a frozen pass: value, gap and balance, and the coefficients that the dual variables have. */
static int is_dual_state(const problem_t *p, const dual_pass_t *pass, int lane)
{
    const ptrdiff_t lanes = pass->n_lanes;
    const loss_t *loss = &pass->loss[lane];
    double value = 0.0, gap = 0.0, balance = 0.0, size = 1.0, *coef = doubles(p->d);
    int is_right = 1;
    for (ptrdiff_t i = 0; i < p->n; i++) {
        const double y = p->codes[i] == pass->positive[lane] ? 1.0 : -1.0, w = p->weight[i];
        const double stored = pass->residual[i * lanes + lane];
        double score = 0.0, dual, unused;
        for (ptrdiff_t j = 0; j < p->d; j++)
            score += p->plain[i * p->d + j] * pass->coef[j * lanes + lane];
        const double residual = loss->margin - y * (score + pass->intercept[lane]);
        const double stored_loss = loss_of(loss, stored, &dual);
        const double here = w * loss_of(loss, residual, &unused);
        dual *= w;
        value += here + 0.5 * dual * y * score;
        gap += here - w * stored_loss + dual * (stored - residual);
        balance += y * dual;
        size += fabs(here) + fabs(dual);
        for (ptrdiff_t j = 0; j < p->d; j++)
            coef[j] += y * dual * p->plain[i * p->d + j] / pass->penalty[lane];
    }
    for (ptrdiff_t j = 0; j < p->d; j++)
        is_right &= is_near(pass->coef[j * lanes + lane], coef[j], 1.0);
    free(coef);
    is_right &= is_near(pass->intercept[lane], pass->constant * balance / pass->penalty[lane], 1.0);
    is_right &= is_near(pass->value[lane], value, size) && is_near(pass->gap[lane], gap, size);
    return is_right && is_near(pass->balance[lane], balance, size);
}

/* Rows that a pass shrinks have a dual variable of zero, and no row is lost. */
static int are_shrunk(const problem_t *p, const dual_pass_t *pass)
{
    int is_right = 1;
    char *seen = take((size_t)p->n);
    for (ptrdiff_t at = 0; at < p->n; at++) {
        const ptrdiff_t row = pass->rows[at];
        double influence = 0.0;
        is_right &= row >= 0 && row < p->n && !seen[row];
        if (!is_right) break;
        seen[row] = 1;
        if (at < pass->n_unshrunk) continue;
        for (int k = 0; k < pass->n_lanes; k++) {
            loss_of(&pass->loss[k], pass->residual[row * pass->n_lanes + k], &influence);
            is_right &= influence == 0.0;
        }
    }
    free(seen);
    return is_right;
}

/* The results of steps written out. */
typedef struct {
    double *coef, *total, *path, path_intercept[4], intercept, total_intercept;
} plain_t;

/* Steps written out: all coefficients are shrunk, changed and projected in every step. */
static void plain_descent(const problem_t *p, const descent_t *s, plain_t *plain)
{
    double *coef = plain->coef;
    for (ptrdiff_t t = 0, mark = 0; t < s->n_steps; t++) {
        const double when = 1.0 + (double)t, shrink = 1.0 - s->decay / when;
        const double length = s->rate / (when * (double)s->batch);
        const ptrdiff_t *rows = s->draws + t * s->batch;
        double square = 0.0, factors[8], influence;
        for (ptrdiff_t i = 0; i < s->batch; i++) {
            const double y = s->sign[rows[i]], score = score_of(p, coef, plain->intercept, rows[i]);
            loss_of(&s->loss, s->loss.margin - y * score, &influence);
            factors[i] = length * y * influence;
        }
        for (ptrdiff_t j = 0; j < p->d; j++) coef[j] *= shrink;
        if (s->penalise_intercept) plain->intercept *= shrink;
        for (ptrdiff_t i = 0; i < s->batch; i++) {
            for (ptrdiff_t j = 0; j < p->d; j++) coef[j] += factors[i] * p->plain[rows[i] * p->d + j];
            if (s->fit_intercept) plain->intercept += factors[i];
        }
        for (ptrdiff_t j = 0; j < p->d; j++) square += coef[j] * coef[j];
        if (s->penalise_intercept) square += plain->intercept * plain->intercept;
        if (square > s->radius * s->radius) {
            const double factor = s->radius / sqrt(square);
            for (ptrdiff_t j = 0; j < p->d; j++) coef[j] *= factor;
            if (s->penalise_intercept) plain->intercept *= factor;
        }
        for (ptrdiff_t j = 0; j < p->d; j++) plain->total[j] += coef[j];
        plain->total_intercept += plain->intercept;
        if (mark == s->n_marks || t + 1 != s->marks[mark]) continue;
        for (ptrdiff_t j = 0; j < p->d; j++)
            plain->path[mark * p->d + j] = s->total ? plain->total[j] / when : coef[j];
        plain->path_intercept[mark++] = s->total ? plain->total_intercept / when : plain->intercept;
    }
}

/* Iterations in which Newton's method ends on the problems of the harness. */
enum { NEWTON_MOST = 20 };

/* The objective of Newton's method at its point, and its gradient. */
static double newton_objective(const newton_t *t, double *gradient)
{
    const ptrdiff_t d = t->n_columns, n_scores = t->n_scores;
    double value = 0.0, influence;
    for (ptrdiff_t k = 0; k < n_scores * d; k++) {
        const double penalty = isinf(t->penalty[k % d]) ? 0.0 : t->penalty[k % d];
        gradient[k] = penalty * t->point[k];
        value += 0.5 * penalty * t->point[k] * t->point[k];
    }
    for (ptrdiff_t i = 0; i < t->n_rows; i++) {
        const double *x = t->rows + i * t->stride;
        double f[8] = {0.0}, slope[8] = {0.0}, total = 0.0;
        const ptrdiff_t y = n_scores > 1 ? t->codes[i] : 0;
        for (ptrdiff_t k = 0; k < n_scores; k++)
            for (ptrdiff_t j = 0; j < d; j++) f[k] += x[j] * t->point[k * d + j];
        for (ptrdiff_t k = 0; k < n_scores; k++) total += k == y ? 0.0 : exp(f[k] / t->temperature);
        const double sign = n_scores > 1 || t->codes[i] == t->positive ? 1.0 : -1.0;
        const double others = n_scores > 1 ? t->temperature * log(total) : 0.0;
        value += t->weight[i] * loss_of(&t->loss, t->loss.margin - sign * f[y] + others, &influence);
        for (ptrdiff_t k = 0; k < n_scores; k++)
            slope[k] = k == y ? -sign : exp(f[k] / t->temperature) / total;
        for (ptrdiff_t k = 0; k < n_scores * d; k++)
            gradient[k] += t->weight[i] * influence * slope[k / d] * x[k % d];
    }
    return value;
}

/* The log-loss of a link at some slopes, with its ridge. */
static double link_objective(const link_t *t, const double *slopes)
{
    double sum = 0.0;
    for (ptrdiff_t row = 0; row < t->n_rows; row++) {
        double logits[8] = {0.0}, total = 0.0;
        const ptrdiff_t n_classes = t->n_scores == 1 ? 2 : t->n_scores;
        for (ptrdiff_t k = 0; k < t->n_scores; k++) {
            const double f = t->scores[row * t->n_scores + k];
            logits[t->n_scores == 1 ? 1 : k] =
                slopes[0] * fmin(f - t->low, 0.0) + slopes[1] * fmin(fmax(f, t->low), 0.0)
                + slopes[2] * fmax(fmin(f, t->high), 0.0) + slopes[3] * fmax(f - t->high, 0.0);
        }
        for (ptrdiff_t k = 0; k < n_classes; k++) total += exp(logits[k]);
        sum += t->weights[row] * (log(total) - logits[t->codes[row]]);
    }
    for (int j = 0; j < LINK_SLOPES; j++)
        sum += 0.5 * t->ridge * (slopes[j] - t->mean) * (slopes[j] - t->mean);
    return sum;
}

/* The slopes of a link are a minimum within the bounds, and so is the log-loss that it returns. */
static void check_link(int level, ptrdiff_t n, ptrdiff_t n_scores, double noise, double ridge)
{
    double *scores = doubles(n * n_scores), *weights = doubles(n), ridge_part = 0.0;
    ptrdiff_t *codes = take((size_t)n * sizeof *codes);
    link_t t = {.scores = scores, .codes = codes, .weights = weights, .n_rows = n,
                .n_scores = n_scores, .low = -1.0, .high = 1.2, .mean = 2.0, .ridge = ridge,
                .min_slope = 1e-3, .max_slope = 50.0, .work = doubles(link_doubles(n_scores))};
    const ptrdiff_t n_classes = n_scores == 1 ? 2 : n_scores;
    int is_right = 1;
    for (ptrdiff_t i = 0; i < n; i++) {
        codes[i] = (ptrdiff_t)(uniform() * (double)n_classes), weights[i] = 1.0 / (double)n;
        for (ptrdiff_t k = 0; k < n_scores; k++) {
            const int is_own = codes[i] == (n_scores == 1 ? 1 : k);
            scores[i * n_scores + k] = (is_own ? 1.0 : -1.0) + noise * (2.0 * uniform() - 1.0);
        }
    }
    kernels_at(level)->fit_link(&t);
    const double least = link_objective(&t, t.slopes);
    for (int j = 0; j < LINK_SLOPES; j++) {
        double trial[LINK_SLOPES];
        memcpy(trial, t.slopes, sizeof trial);
        for (int side = -1; side <= 1; side += 2) {
            trial[j] = fmin(fmax(t.slopes[j] + 1e-3 * side, t.min_slope), t.max_slope);
            is_right &= link_objective(&t, trial) >= least - 1e-10;
        }
        is_right &= t.slopes[j] >= t.min_slope && t.slopes[j] <= t.max_slope;
        ridge_part += 0.5 * ridge * (t.slopes[j] - t.mean) * (t.slopes[j] - t.mean);
    }
    is_right &= is_near(t.log_loss, least - ridge_part, 1.0);
    expect(is_right, "fit_link", level, 0, 0, n, n_scores);
    free(scores), free(weights), free(codes), free(t.work);
}
