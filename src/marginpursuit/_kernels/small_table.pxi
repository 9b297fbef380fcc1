"""The fit to a small dense table in one call; see small_table.h."""


def small_table(
    const double[:, ::1] matrix not None, const Py_ssize_t[::1] codes not None,
    double[::1] weights not None, problem, const double[::1] start=None, str level=BEST,
):
    """Fit a small dense table in one call; None where the general fit is needed.

    `problem` is a `SmallProblem`. The weights, positive and with sum one, are overwritten by those
    with bounded leverage. `start` has coefficients and intercepts of all scores. Returns
    coefficients (n_scores, n_columns), intercepts, scores (n_scores, n_rows), and a tuple: the
    objective, Newton steps, passes, the chosen factor, the slopes of the link and the number of
    rows that it is fitted to.
    """
    cdef small_table_t t
    cdef const double[::1] factors = problem.factors, direction = problem.direction
    t.kernels = kernels_at(level_of(level))
    t.n_rows, t.n_columns = matrix.shape[0], matrix.shape[1]
    t.n_classes, t.n_scores, t.n_factors = problem.n_classes, problem.n_scores, factors.shape[0]
    if t.n_rows < 1 or t.n_columns < 1 or t.n_classes < 2 or t.n_scores not in (1, t.n_classes):
        raise ValueError("a small table needs rows, columns and two classes, or a score for each")
    if t.n_scores == 1 and t.n_classes > 2:
        raise ValueError(f"one score is for two classes; got {t.n_classes}")
    if t.n_factors > MAX_FACTORS:
        raise ValueError(f"there may be at most {MAX_FACTORS} factors; got {t.n_factors}")
    check_length("codes", codes.shape[0], t.n_rows)
    check_inside("codes", codes, t.n_classes)
    check_length("weights", weights.shape[0], t.n_rows)
    check_length("direction", direction.shape[0], t.n_columns)
    if start is not None:
        check_length("start", start.shape[0], t.n_scores * (t.n_columns + 1))
    t.loss, t.temperature = loss_of(problem.loss), problem.temperature
    if t.n_scores > 1 and not t.temperature > 0:
        raise ValueError("a joint loss needs a positive temperature")
    t.has_intercept, t.n_samples = problem.has_intercept, problem.n_samples
    t.leverage_bound, t.far_distance = problem.leverage_bound, problem.far_rows.far_distance
    t.apart_distance = problem.far_rows.apart_distance
    t.hidden_distance = problem.far_rows.hidden_distance
    t.alpha, t.inflation = problem.alpha, problem.inflation
    t.max_increase, t.max_joint_increase = problem.max_increase, problem.max_joint_increase
    t.min_likelihood_gain = problem.min_likelihood_gain
    t.min_distinct_rows = problem.min_distinct_rows
    t.tol, t.certain, t.half_tol, t.half_certain = problem.tolerances
    t.objective_floor = problem.objective_floor
    t.max_iter, t.half_max_iter = problem.max_iter, problem.half_max_iter
    t.link.low, t.link.high = -1.0, 1.0
    t.link.mean, t.prior_variance = problem.prior.mean, problem.prior.deviation ** 2
    t.link.min_slope, t.link.max_slope = problem.prior.bounds
    coef, intercept = empty((t.n_scores, t.n_columns)), empty(t.n_scores)
    scores = empty((t.n_scores, t.n_rows))
    cdef double[:, ::1] coef_view = coef, scores_view = scores
    cdef double[::1] intercept_view = intercept
    cdef double[::1] work = empty(small_table_doubles(&t))
    t.matrix, t.codes, t.direction = &matrix[0, 0], &codes[0], &direction[0]
    t.factors = &factors[0] if t.n_factors else NULL
    t.coef, t.intercept, t.scores = &coef_view[0, 0], &intercept_view[0], &scores_view[0, 0]
    t.weight, t.work = &weights[0], &work[0]
    t.start = NULL if start is None else &start[0]
    cdef bint is_fitted
    with nogil:
        is_fitted = fit_small_table(&t)
    if not is_fitted:
        return None
    slopes = [t.link.slopes[k] for k in range(LINK_SLOPES)] if t.n_factors else []
    numbers = t.value, t.n_iter, t.n_passes, t.factor, slopes, t.count
    return coef, intercept, scores, numbers
