/* Visits to single rows, for a team of tasks: coordinate ascent in the dual.
 *
 * The coefficients are the sum of y_i f_i x_i over the rows, f_i the force of row i, divided by the
 * penalty p. The force is kept by the residual r_i at which the loss has it. A visit moves r_i to
 * where it is the residual that the row then has, all other forces held: with c the weight of the
 * row, a = f / c and q = c |x|^2 / p,
 *
 *     r + q a(r) = level - m + q a  =: t ,
 *
 * which rises in r. In units of the scale, with q times the overconfidence where t is negative, and
 * a(u) = u - u^3/6 up to the truncation, this is a cubic; beyond, it is linear.
 *
 * At a visit, what primal and dual objective differ by is the sum over all rows of
 * c (phi(m) - phi(m') - phi'(m') (m - m')), m the margin and m' the level less r: zero where r is
 * the residual that the row has.
 */

/* Newton's steps that take the cubic to rounding from where they start. */
enum { CUBIC_STEPS = 4 };

typedef struct {
    running_t loss;
    vec gap, balance, inverse_penalty;
} visiting_t;

static void start_visits(const visits_t *visits, visiting_t *run)
{
    running_t losses[TEAM_VECTORS];
    start_team(visits->loss, visits->intercept, losses);
    for (int v = 0; v < TEAM_VECTORS; v++)
        run[v] = (visiting_t){
            losses[v], splat(0.0), splat(0.0), splat(1.0) / load_f8(visits->penalty + v * LANES)};
}

/* The u >= 0 at which u + q a(u) = t, for t >= 0. */
ALWAYS_INLINE vec solve_visit(vec q, vec t)
{
    const vec one = splat(1.0), most = splat(TRUNCATION) + q * splat(INFLUENCE_BOUND);
    /* From the parabola at the truncation, which is beyond the root: the next point is short of it,
     * and so are all that follow, each nearer. */
    const vec left = larger(splat(0.0), most - t);
    vec u = splat(TRUNCATION) -
            splat(2.0) * left / (one + root(one + splat(2.0 * TRUNCATION) * q * left));
    UNROLL
    for (int k = 0; k < CUBIC_STEPS; k++) {
        const vec square = u * u;
        const vec excess = u + q * (u * (one - square * splat(1.0 / 6.0))) - t;
        u -= excess / (one + q * (one - splat(0.5) * square));
    }
    return where_negative(most - t, t - q * splat(INFLUENCE_BOUND), u);
}

/* Turns the scores of a row into changes of the coefficients, in units of the row; returns whether
 * any is other than 0. */
ALWAYS_INLINE int visit_row(const visits_t *visits, visiting_t *run, ptrdiff_t row, vec *scores)
{
    const ptrdiff_t code = visits->codes[row];
    const vec weight = splat(visits->weight[row]), square = splat(visits->square[row]);
    ALIGNED double sign[TEAM], change[TEAM];
    int any = 0;
    for (int k = 0; k < TEAM; k++) sign[k] = code == visits->positive[k] ? 1.0 : -1.0;
    for (int v = 0; v < TEAM_VECTORS; v++) {
        visiting_t *here = &run[v];
        running_t *loss = &here->loss;
        double *kept = visits->residual + row * TEAM + v * LANES;
        const vec y = load_f8(sign + v * LANES), before = load_f8(kept);
        const vec gap = loss->level - y * (scores[v] + loss->intercept);
        vec value = splat(0.0), bound = splat(0.0), ignored = splat(0.0);
        force(loss, gap, weight, &value);
        const vec pull = force(loss, before, weight, &bound);
        /* The penalty is half the sum of force times margin, less what the intercept has of it. */
        loss->rows.value += value + splat(0.5) * pull * y * scores[v];
        here->gap += value - bound + pull * (before - gap);
        const vec stiffness = square * here->inverse_penalty, target = gap + stiffness * pull;
        const vec q = stiffness * where_negative(target, weight * loss->above, weight);
        const vec after =
            with_sign(loss->scale * solve_visit(q, absolute(target) / loss->scale), target);
        const vec moved = force(loss, after, weight, &ignored);
        here->balance += y * moved;
        scores[v] = y * (moved - pull) * here->inverse_penalty;
        loss->intercept += splat(visits->constant) * scores[v];
        store(kept, after);
        store(change + v * LANES, scores[v]);
    }
    for (int k = 0; k < TEAM; k++) any |= change[k] != 0.0;
    return any;
}

static void finish_visits(const visiting_t *run, visits_t *visits)
{
    for (int v = 0; v < TEAM_VECTORS; v++) {
        store(visits->intercept + v * LANES, run[v].loss.intercept);
        store(visits->value + v * LANES, run[v].loss.rows.value);
        store(visits->gap + v * LANES, run[v].gap);
        store(visits->balance + v * LANES, run[v].balance);
    }
}
