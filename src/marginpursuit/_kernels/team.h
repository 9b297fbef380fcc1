/* What a sweep of a team of tasks is made of, whatever the element type: a lane for each task. */

enum {
    TEAM_VECTORS = TEAM / LANES,
    COLUMNS_AHEAD = 32, /* stored elements between asking for a column and needing it */
};

ALWAYS_INLINE void add_team(vec factor, const double *coef, vec *total)
{
    UNROLL
    for (int v = 0; v < TEAM_VECTORS; v++) total[v] += factor * load_f8(coef + v * LANES);
}

static void start_team(const loss_t *loss, const double *intercept, running_t *run)
{
    for (int v = 0; v < TEAM_VECTORS; v++) {
        running_t lanes[LANES];
        for (int k = 0; k < LANES; k++) {
            const int task = v * LANES + k;
            const sweep_t s = {.intercept = intercept[task], .loss = loss[task]};
            lanes[k] = start(&s);
        }
#define GATHER(field)                                                              \
    do {                                                                           \
        ALIGNED double all[LANES];                                                 \
        for (int k = 0; k < LANES; k++) all[k] = first_lane(lanes[k].field);       \
        run[v].field = load_f8(all);                                               \
    } while (0)
        GATHER(intercept);
        GATHER(level);
        GATHER(scale);
        GATHER(cap);
        GATHER(bound);
        GATHER(floor);
        GATHER(above);
#undef GATHER
        run[v].rows = run[v].singles = (sums_t){splat(0.0), splat(0.0)};
    }
}

/* Turns the scores of a row into derivatives; returns whether any is other than 0. */
ALWAYS_INLINE int team_derivatives(const team_t *team, running_t *run, ptrdiff_t row, vec *scores)
{
    const double *weights = team->weight + row * team->n_parts;
    const ptrdiff_t code = team->codes[row];
    ALIGNED double sign[TEAM], weight[TEAM], slope[TEAM];
    int any = 0;
    for (int k = 0; k < TEAM; k++) {
        sign[k] = code == team->positive[k] ? 1.0 : -1.0;
        weight[k] = weights[team->part[k]];
    }
    for (int v = 0; v < TEAM_VECTORS; v++) {
        const vec y = load_f8(sign + v * LANES), c = load_f8(weight + v * LANES);
        scores[v] = derivative(&run[v], scores[v], y, c, &run[v].rows);
        store(slope + v * LANES, scores[v]);
    }
    for (int k = 0; k < TEAM; k++) any |= slope[k] != 0.0;
    return any;
}

static void finish_team(const running_t *run, team_t *team)
{
    for (int v = 0; v < TEAM_VECTORS; v++) {
        store(team->value + v * LANES, run[v].rows.value);
        store(team->slope + v * LANES, run[v].rows.slope);
    }
}
