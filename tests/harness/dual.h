/* Steps, order and shrinking of dual coordinate ascent, one property each; included by kernels.c. */

/* A pass whose lanes differ in classes, losses, penalties and radii. */
static dual_pass_t distinct_pass(const problem_t *p, ptrdiff_t n_lanes, loss_kind_t kind, double *square)
{
    dual_pass_t pass = {.n_lanes = n_lanes, .codes = p->codes, .weight = p->weight, .constant = 1.0,
                        .square = square, .n_unshrunk = p->n};
    pass.rows = take((size_t)p->n * sizeof(ptrdiff_t));
    pass.residual = doubles(p->n * n_lanes), pass.coef = doubles(p->d * n_lanes);
    for (ptrdiff_t i = 0; i < p->n; i++) {
        pass.rows[i] = i, square[i] = 1.0;
        for (ptrdiff_t j = 0; j < p->d; j++) square[i] += p->plain[i * p->d + j] * p->plain[i * p->d + j];
    }
    for (int k = 0; k < TASK_LANES; k++) {
        const int lane = n_lanes == 1 ? 0 : k;
        pass.positive[k] = lane % 3, pass.loss[k] = loss_of_kind(kind);
        pass.loss[k].margin *= 1.0 + 0.2 * lane, pass.loss[k].scale *= 1.0 + 0.1 * lane;
        pass.penalty[k] = exp(1.5 * lane - 3.0), pass.radius[k] = INFINITY;
    }
    return pass;
}

static void release_pass(dual_pass_t *pass)
{
    free(pass->rows), free(pass->residual), free(pass->coef);
}

/* A single row: one step maximises the dual, and leaves no gap. */
static void check_dual_step(int level, layout_t layout, ptrdiff_t n_lanes, loss_kind_t kind)
{
    problem_t p = problem_of(level, layout, F8, 1, 9);
    double square;
    dual_pass_t pass = distinct_pass(&p, n_lanes, kind, &square);
    int is_right = 1;
    p.kernels->dual_pass(p.layout, p.type, &p.m, &pass);
    pass.is_frozen = 1;
    p.kernels->dual_pass(p.layout, p.type, &p.m, &pass);
    for (int k = 0; k < n_lanes; k++)
        is_right &= fabs(pass.gap[k]) <= 1e-10 * (1.0 + pass.value[k]) && is_dual_state(&p, &pass, k);
    expect_of(&p, is_right && pass.n_unshrunk == 1, "a step of dual_pass");
    release_pass(&pass);
    release(&p);
}

/* A frozen pass shrinks the rows whose dual variables are zero and whose margins exceed the level by more
 * than the radius, in every lane, and no others. */
static void check_shrinking(int level, layout_t layout, ptrdiff_t n_lanes)
{
    problem_t p = problem_of(level, layout, F8, 70, 9);
    double *square = doubles(p.n);
    dual_pass_t pass = distinct_pass(&p, n_lanes, CATONI, square);
    int is_right = 1, n_shrunk = 0;
    char *stays = take((size_t)p.n);
    for (ptrdiff_t j = 0; j < p.d * n_lanes; j++) pass.coef[j] = 2.0 * (uniform() - 0.5);
    for (ptrdiff_t i = 0; i < p.n * n_lanes; i++) pass.residual[i] = uniform() < 0.1 / (double)n_lanes;
    for (int k = 0; k < TASK_LANES; k++) {
        pass.loss[k].overconfidence = 0.0;
        pass.radius[k] = 0.01 * (1.0 + (n_lanes == 1 ? 0 : k)), pass.intercept[k] = 0.1;
        pass.positive[k] = 0; /* of equal classes, so that all lanes may agree */
    }
    for (ptrdiff_t i = 0; i < p.n; i++) {
        const double y = p.codes[i] == 0 ? 1.0 : -1.0;
        for (int k = 0; k < n_lanes; k++) {
            double score = pass.intercept[k];
            if (n_lanes > 1) /* all coefficients are those of the first lane */
                for (ptrdiff_t j = 0; j < p.d; j++)
                    pass.coef[j * n_lanes + k] = pass.coef[j * n_lanes];
            for (ptrdiff_t j = 0; j < p.d; j++)
                score += p.plain[i * p.d + j] * pass.coef[j * n_lanes + k];
            const double residual = pass.loss[k].margin - y * score;
            stays[i] |= pass.residual[i * n_lanes + k] > 0.0
                        || !(residual + pass.radius[k] * sqrt(square[i]) < 0.0);
        }
        n_shrunk += !stays[i];
    }
    pass.is_frozen = 1;
    p.kernels->dual_pass(p.layout, p.type, &p.m, &pass);
    is_right &= pass.n_unshrunk == p.n - n_shrunk && n_shrunk > 2 && n_shrunk < p.n - 2;
    for (ptrdiff_t at = 0; at < pass.n_unshrunk; at++) is_right &= stays[pass.rows[at]];
    for (ptrdiff_t at = pass.n_unshrunk; at < p.n; at++) is_right &= !stays[pass.rows[at]];
    expect_of(&p, is_right, "rows that a frozen dual_pass shrinks");
    free(stays), free(square);
    release_pass(&pass);
    release(&p);
}

/* Over many seeds each of the six orders of three rows is as frequent as the others. */
static void check_order(int level, layout_t layout)
{
    enum { SEEDS = 3000 };
    problem_t p = problem_of(level, layout, F8, 3, 9);
    double square[3];
    int counts[9] = {0}, is_right = 1;
    dual_pass_t pass = distinct_pass(&p, 1, CATONI, square);
    for (int seed = 0; seed < SEEDS; seed++) {
        for (ptrdiff_t i = 0; i < 3; i++) pass.rows[i] = i;
        pass.seed = (uint64_t)seed, pass.n_unshrunk = 3;
        p.kernels->dual_pass(p.layout, p.type, &p.m, &pass);
        counts[3 * pass.rows[0] + pass.rows[1]]++;
    }
    for (int k = 0; k < 9; k++)
        is_right &= k % 4 == 0 ? counts[k] == 0 : abs(counts[k] - SEEDS / 6) < 100;
    expect_of(&p, is_right, "order of dual_pass");
    release_pass(&pass);
    release(&p);
}

static void check_dual(int level)
{
    for (int layout = 0; layout < N_LAYOUTS; layout++) {
        if (layout == COLUMNS) continue; /* it has no dual pass */
        const ptrdiff_t most = layout == ROWS ? 1 : TASK_LANES;
        for (ptrdiff_t n_lanes = 1; n_lanes <= most; n_lanes += TASK_LANES - 1) {
            for (int repeat = 0; repeat < 6; repeat++)
                for (int kind = CATONI; kind <= SQUARE; kind++)
                    check_dual_step(level, (layout_t)layout, n_lanes, (loss_kind_t)kind);
            check_shrinking(level, (layout_t)layout, n_lanes);
        }
        check_order(level, (layout_t)layout);
    }
}
