"""From scores to probabilities: links, coupling of pairs of classes, weights in intervals of scores."""


def coupled(const double[:, ::1] logits not None, Py_ssize_t n_classes, double limit):
    """Return logarithms of the probabilities of classes; `_link.py` documents the arguments."""
    cdef coupling_t t
    t.n_rows, t.n_classes, t.limit = logits.shape[0], n_classes, limit
    if t.n_rows < 1 or n_classes < 2 or not limit > 0:
        raise ValueError("coupling needs at least one row, two classes and a positive limit")
    check_length("a row of logits", logits.shape[1], n_classes * (n_classes - 1) // 2)
    cdef double[::1] work = empty(coupling_doubles(n_classes))
    found = empty((t.n_rows, n_classes))
    cdef double[:, ::1] out = found
    t.logits, t.work, t.out = &logits[0, 0], &work[0], &out[0, 0]
    with nogil:
        couple(&t)
    return found


def interval_sums(
    const double[:, ::1] scores not None, const double[::1] weights not None, double width,
    Py_ssize_t first, Py_ssize_t n_intervals,
):
    """Return weights summed over intervals of scores; `_arrays.py` documents the arguments."""
    cdef intervals_t t
    t.n_rows, t.n_columns = scores.shape[0], scores.shape[1]
    t.first, t.n_intervals, t.width = first, n_intervals, width
    check_length("weights", weights.shape[0], t.n_rows)
    if n_intervals < 1 or not width > 0:
        raise ValueError("sums need at least one interval and a positive width")
    found = zeros((t.n_columns, n_intervals))
    cdef double[:, ::1] sums = found
    if t.n_rows > 0 and t.n_columns > 0:
        t.scores, t.weights, t.sums = &scores[0, 0], &weights[0], &sums[0, 0]
        with nogil:
            add_to_intervals(&t)
    return found


def link_slopes(
    const double[:, ::1] scores not None, const Py_ssize_t[::1] codes not None,
    const double[::1] weights not None, double threshold, double mean, double ridge, bounds,
    str level=BEST,
):
    """Return the four slopes of a link, and its mean log-loss; `_link.py` documents the arguments."""
    cdef link_t t
    cdef const kernels_t *kernels = kernels_at(level_of(level))
    t.n_rows, t.n_scores = scores.shape[0], scores.shape[1]
    if t.n_rows < 1 or t.n_scores < 1:
        raise ValueError("a link needs at least one row and one score")
    check_length("codes", codes.shape[0], t.n_rows)
    check_length("weights", weights.shape[0], t.n_rows)
    check_inside("codes", codes, max(2, t.n_scores))
    cdef double[::1] work = array("d", bytes(8 * link_doubles(t.n_scores)))
    t.scores, t.codes, t.weights, t.work = &scores[0, 0], &codes[0], &weights[0], &work[0]
    t.low, t.high, t.mean, t.ridge = -1.0 - threshold, 1.0 - threshold, mean, ridge
    t.min_slope, t.max_slope = bounds
    with nogil:
        kernels.fit_link(&t)
    return [t.slopes[k] for k in range(LINK_SLOPES)], t.log_loss
