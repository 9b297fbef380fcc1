/* The parts of a sweep of several tasks that do not depend on the element type: one lane per task. */

enum {
    LANE_VECTORS = TASK_LANES / LANES,
    COLUMNS_AHEAD = 32, /* stored elements between the prefetch of a column and its use */
};

ALWAYS_INLINE void add_lanes(vec factor, const double *coef, vec *total)
{
    UNROLL
    for (int v = 0; v < LANE_VECTORS; v++) total[v] += factor * load_f8(coef + v * LANES);
}

static void start_lanes(const loss_t *loss, const double *intercept, loss_state_t *state)
{
    for (int v = 0; v < LANE_VECTORS; v++) {
        loss_state_t lanes[LANES];
        for (int k = 0; k < LANES; k++) {
            const int task = v * LANES + k;
            const sweep_t s = {.intercept = intercept[task], .loss = loss[task]};
            lanes[k] = start_loss(&s);
        }
#define GATHER(field)                                                              \
    do {                                                                           \
        ALIGNED double all[LANES];                                                 \
        for (int k = 0; k < LANES; k++) all[k] = first_lane(lanes[k].field);       \
        state[v].field = load_f8(all);                                             \
    } while (0)
        state[v].kind = lanes[0].kind;
        GATHER(intercept);
        GATHER(level);
        GATHER(scale);
        GATHER(inverse_scale);
        GATHER(cap);
        GATHER(bound);
        GATHER(min_residual);
        GATHER(overconfidence);
#undef GATHER
        state[v].rows = state[v].singles = (sums_t){splat(0.0), splat(0.0)};
    }
}

/* Turns the scores of a row into derivatives; returns whether any is non-zero. */
ALWAYS_INLINE int lane_derivatives(const task_sweep_t *tasks, loss_state_t *state, ptrdiff_t row,
                                   vec *scores)
{
    const double *weights = tasks->weight + row * tasks->n_parts;
    const ptrdiff_t code = tasks->codes[row];
    ALIGNED double sign[TASK_LANES], weight[TASK_LANES], slope[TASK_LANES];
    int any = 0;
    for (int k = 0; k < TASK_LANES; k++) {
        sign[k] = is_positive(code, tasks->positive[k]) ? 1.0 : -1.0;
        weight[k] = weights[tasks->part[k]];
    }
    for (int v = 0; v < LANE_VECTORS; v++) {
        const vec y = load_f8(sign + v * LANES), c = load_f8(weight + v * LANES);
        scores[v] = derivative(&state[v], scores[v], y, c, &state[v].rows);
        store(slope + v * LANES, scores[v]);
    }
    for (int k = 0; k < TASK_LANES; k++) any |= slope[k] != 0.0;
    return any;
}

#ifdef WITH_CSR
static void finish_lanes(const loss_state_t *state, task_sweep_t *tasks)
{
    for (int v = 0; v < LANE_VECTORS; v++) {
        store(tasks->value + v * LANES, state[v].rows.value);
        store(tasks->slope + v * LANES, state[v].rows.slope);
    }
}
#endif
