/* The fused sweeps: the functions of the compiled module, for a span of rows of a matrix.
 *
 * A sweep reads each row once: score, loss and derivative while the row is in cache, then the
 * gradient. Sign conventions are those of losses/: margin m = y (x.w + b), residual level - m.
 *
 * Each SIMD level is one compilation of sweep.c and fills one `kernels_t`.
 */
#ifndef MARGINPURSUIT_SWEEP_H
#define MARGINPURSUIT_SWEEP_H

#include "link.h"

#include <stddef.h>
#include <stdint.h>

/* The element types that are read as they are, in the order of TYPES in vectors.h. */
enum { N_TYPES = 10 };

/* How a matrix lies in memory: dense in C or Fortran order, or CSR by the width of its indices. */
typedef enum { ROWS, COLUMNS, CSR_32, CSR_64, N_LAYOUTS } layout_t;

typedef struct {
    const void *data;
    ptrdiff_t n_columns;
    ptrdiff_t stride;             /* dense: elements from one row (column) to the next */
    ptrdiff_t item;               /* bytes of an element */
    int type;                     /* of an element */
    const void *indices, *indptr; /* CSR */
} matrix_t;

/* The losses that the kernels know, with the numbers of `kernel_parameters` in losses/. The first
 * five are functions rho of the residual. */
typedef enum {
    CATONI, PSEUDO_HUBER, LOG_COSH, HUBER, SQUARE, LOGISTIC, HINGE, N_LOSS_KINDS
} loss_kind_t;

typedef struct {
    loss_kind_t kind;
    double margin, scale, overconfidence;
} loss_t;

/* The arguments of a sweep that accompany the rows of a matrix, and its results. */
typedef struct {
    const double *sign;   /* y, one per row */
    const double *weight; /* sample weights, one per row */
    const double *coef;   /* w, one per column */
    double intercept;
    loss_t loss;
    double value;         /* in-out: the sum of weighted losses is added */
    double slope;         /* in-out: likewise of derivatives in the score (and intercept) */
    double *gradient;     /* in-out: likewise of derivative times row */
} sweep_t;

/* Stochastic (sub)gradient steps. Step t = 0, 1, ... has length rate/(1 + t), shrinks w by the
 * factor 1 - decay/(1 + t), adds the mean gradient of its rows and projects onto a ball.
 *
 * With `own` the matrix holds values of a kernel, in double and C order, and w is an expansion in
 * the columns: coef are its coefficients, and a step adds to own[i] instead of adding row i. */
typedef struct {
    const ptrdiff_t *draws; /* rows, `batch` for each step */
    ptrdiff_t n_steps, batch;
    const double *sign;     /* y, one per row */
    loss_t loss;
    double rate, decay;
    double radius;          /* of the ball; INFINITY where there is none */
    int fit_intercept;
    int penalise_intercept; /* treat b as the coefficient of a column of ones */
    const ptrdiff_t *own;   /* by row, the column of its kernel values; may be NULL */
    ptrdiff_t t;            /* in-out: steps taken so far */
    double *coef;           /* in-out: w */
    double intercept;       /* in-out: b */
    double square;          /* in-out: with `own`, of the norm of w */
    double *total;          /* in-out: the sum of all w so far; NULL where no mean is wanted */
    double total_intercept; /* in-out: likewise of b */
    const ptrdiff_t *marks; /* numbers of steps, rising, all in (t, t + n_steps] */
    ptrdiff_t n_marks;
    double *path;           /* out: w, or the mean, after each of these numbers of steps */
    double *path_intercept; /* out: likewise of b */
    double *factors, *lag;  /* scratch: one per row of a step; one per column, 0, with a total */
} descent_t;

/* Whether a row with this code has y = 1 in a task: the code is that of its class, `positive`; or, if
 * `positive` is negative, the code is a set of labels, and its bit ~positive is that of the task. */
static inline int is_positive(ptrdiff_t code, ptrdiff_t positive)
{
    return positive >= 0 ? code == positive : (int)((code >> ~positive) & 1);
}

/* The tasks of one pass over CSR rows, one in each lane: their coefficients and their gradients of a
 * column are two adjacent cache lines. All tasks of a pass have losses of one kind. */
enum { TASK_LANES = 8 };

typedef struct {
    const ptrdiff_t *codes;        /* the class or labels of each row */
    const double *weight;          /* (n_rows, n_parts), sample weights */
    ptrdiff_t n_parts;
    ptrdiff_t positive[TASK_LANES]; /* of each task; see is_positive */
    ptrdiff_t part[TASK_LANES];     /* the sample weights of each task */
    loss_t loss[TASK_LANES];
    double intercept[TASK_LANES];
    double value[TASK_LANES], slope[TASK_LANES]; /* out, as in a sweep */
    double *table;                 /* in-out: (n_columns, 2, TASK_LANES), coefficients and gradients */
} task_sweep_t;

/* The joint loss of several classes for some rows; see joint.h. */
typedef struct {
    loss_t loss;
    double temperature;
    ptrdiff_t n_classes;
    const ptrdiff_t *codes;  /* the class or labels of each row */
    const double *weight;    /* sample weights, one per row */
    const double *intercept; /* one per class */
    double *margins;         /* out: the joint margin of each row; may be NULL */
    ptrdiff_t stride;        /* from the scores of a class to those of the next */
} joint_t;

/* Several tasks that share a sweep of dense rows in float32, and its results. */
enum { PADDING = 16, TASK_GROUP = 4, MAX_TASKS = 48, TILE_ROWS = 64 /* of a tile */ };

typedef struct {
    ptrdiff_t n_rows;          /* of the data */
    ptrdiff_t n_tasks;         /* at most MAX_TASKS */
    const ptrdiff_t *codes;    /* the class or labels of each row */
    const double *weight;      /* sample weights, n_rows for each part */
    const float *coef;         /* a row for each task, as long as a row of the data */
    const ptrdiff_t *positive; /* here and below one entry per task; see is_positive */
    const ptrdiff_t *part;
    const loss_t *loss;
    const joint_t *joint;      /* the joint loss of all tasks, its classes, or NULL */
    const double *intercept;
    double *value;             /* in-out, as those of sweep_t; one number for a joint loss */
    double *slope;
    double *gradient;          /* in-out: a row for each task, `stride` apart */
    ptrdiff_t stride;
} tiles_t;

/* The sweep of dense float32 rows for a joint loss of any number of classes, and its results; see
 * class_tiles.h. */
typedef struct {
    const joint_t *joint;
    ptrdiff_t n_columns;
    ptrdiff_t stride;  /* of the rows, and of the coefficients of the classes */
    ptrdiff_t width;   /* of the gradients: a multiple of PADDING above n_columns */
    const float *coef; /* a row for each class, and zeros up to a multiple of TASK_GROUP rows */
    double value;      /* in-out */
    double *gradient;  /* in-out: a row for each class; column n_columns is the slope */
    float *work;       /* class_tile_floats(n_classes, width) */
} class_tiles_t;

static inline ptrdiff_t class_tile_floats(ptrdiff_t n_classes, ptrdiff_t width)
{
    const ptrdiff_t padded = (n_classes + TASK_GROUP - 1) / TASK_GROUP * TASK_GROUP;
    return padded * (TILE_ROWS + 1) + 2 * width * TILE_ROWS;
}

/* How a caller ends a long computation, as after a signal. */
typedef struct {
    int (*is_asked)(void);
    double products; /* since it was called last */
    int is_raised;   /* whether it has returned true */
} interrupt_t;

/* Whether to end, after some more products. The caller is asked after every 2^26 of them: 0.02 s where the
 * numbers are in cache, 0.1 s beyond. NULL never ends a computation. */
static inline int is_interrupted(interrupt_t *t, double products)
{
    if (!t) return 0;
    t->products += products;
    if (t->products >= 0x1p26 && !t->is_raised) {
        t->products = 0.0;
        t->is_raised = t->is_asked() != 0;
    }
    return t->is_raised;
}

/* Newton's method for one task on dense rows; see newton.c. */
enum { NEWTON_PADDING = 16 };

typedef enum {
    NEWTON_CONVERGED, NEWTON_ROUNDING, NEWTON_MAX_ITER,
    NEWTON_SINGULAR, /* the Hessian has no Cholesky factor */
    NEWTON_SLOW,     /* the decrement meets the tolerance, but has not fallen fast */
    NEWTON_INTERRUPTED
} newton_status_t;

typedef struct {
    const double *rows;     /* n_rows rows of `stride` doubles, zero from n_columns on */
    ptrdiff_t n_rows, n_columns;
    ptrdiff_t stride;       /* a multiple of NEWTON_PADDING */
    ptrdiff_t n_scores;     /* 1, or the number of classes of a joint loss */
    const ptrdiff_t *codes; /* the class of each row */
    ptrdiff_t positive;     /* with one score: the class with y = 1; others have y = -1 */
    loss_t loss;
    double temperature;     /* of a joint loss */
    const double *weight;   /* sample weights, one per row */
    const double *penalty;  /* one per column; infinite where the coefficient is zero */
    int has_intercept;      /* whether the last column is of ones */
    double tol;             /* relative suboptimality */
    double certain;         /* multiple of tol at which the Newton decrement alone is accepted */
    int is_strict;          /* whether the last Hessian must be that of the loss itself */
    double objective_floor; /* suboptimality is relative to max(value, this) */
    ptrdiff_t max_iter;
    double *point;          /* in-out: (n_scores, n_columns), the coefficients */
    const double *other;    /* another start, which is taken where its objective is less; or NULL */
    int continues;          /* whether the last call, with the same `work`, has converged for a task that
                             * differs in point, penalty and tolerances only */
    double *work;           /* scratch: newton_doubles() */
    interrupt_t *interrupt; /* or NULL */
    double losses;          /* in-out: the sum of weighted losses at the point */
    double value, gap;      /* out: the objective, and the estimate of its relative suboptimality */
    ptrdiff_t n_iter;       /* out: steps */
    ptrdiff_t n_passes;     /* out: over the rows */
    newton_status_t status; /* out */
} newton_t;

/* The length of a line of the Hessian of `size` coefficients: a multiple of every vector. */
static inline ptrdiff_t newton_line_length(ptrdiff_t size)
{
    return (size + NEWTON_PADDING - 1) / NEWTON_PADDING * NEWTON_PADDING;
}

/* The doubles of scratch that a solve needs. */
static inline ptrdiff_t newton_doubles(ptrdiff_t n_rows, ptrdiff_t n_columns, ptrdiff_t stride,
                                       ptrdiff_t n_scores)
{
    const ptrdiff_t size = n_scores * n_columns, line = newton_line_length(size);
    return (5 * n_scores + 6) * n_rows + (3 * n_scores + stride) * stride
           + (2 * line + 2) * size + 2 * n_scores + 1;
}

/* Newton's method for one binary problem with a kernel; see kernel_newton.c. */
typedef struct {
    const double *gram;     /* n_rows rows of `stride` doubles: the kernel of each row with each */
    ptrdiff_t n_rows, stride; /* the second is newton_line_length(n_rows) */
    const double *sign;     /* y in {-1, +1} of each row */
    const double *weight;   /* sample weights, positive */
    loss_t loss;
    double penalty;         /* of half the squared norm, positive */
    int has_intercept;
    double tol, objective_floor; /* as those of newton_t */
    ptrdiff_t max_iter;
    double *coef;           /* in-out: n_rows, those of the expansion */
    double intercept;       /* in-out */
    double *work;           /* scratch: kernel_newton_doubles() */
    interrupt_t *interrupt; /* or NULL */
    double value, gap;      /* out: as those of newton_t */
    ptrdiff_t n_iter;       /* out */
    newton_status_t status; /* out */
} kernel_newton_t;

/* The doubles of scratch that a solve needs. */
static inline ptrdiff_t kernel_newton_doubles(ptrdiff_t n_rows)
{
    return (newton_line_length(n_rows) + 12) * n_rows + newton_line_length(n_rows);
}

/* L-BFGS for one task with a joint loss on rows as those of tiles_t, or for a task whose objective the
 * caller evaluates: then n_classes is one, and rows, spans and coef are not used. See lbfgs.c. */
enum { LBFGS_MEMORY = 20 /* correction pairs */ };

typedef enum { LBFGS_RUNNING, LBFGS_CONVERGED, LBFGS_ROUNDING, LBFGS_MAX_ITER } lbfgs_status_t;

typedef struct {
    const float *rows;            /* n_rows rows of `width` floats, zero from n_columns on */
    ptrdiff_t n_rows, n_columns, width;
    const ptrdiff_t *spans;       /* the first row, and that after the last, of each used range */
    ptrdiff_t n_spans;
    joint_t joint;                /* the loss; its intercept and margins are not used */
    int has_intercept;
    const double *penalty;        /* one per column; infinite where the coefficients are zero */
    const double *preconditioner; /* block x block, symmetric: for each `block` entries of a point */
    ptrdiff_t block;
    int is_scaled;                /* whether the last pair scales the preconditioner */
    double tol, objective_floor;  /* as those of newton_t */
    double certain;               /* multiple of tol that one estimate of the gap must meet */
    ptrdiff_t n_confirmations;    /* estimates in a row that must meet tol */
    ptrdiff_t min_iter, max_iter; /* before one that is not certain is accepted; and the most */
    double sufficient_decrease, min_step_size; /* of the line search */
    double min_scaling;           /* of the preconditioner */
    ptrdiff_t max_idle;           /* steps without a decrease after which the value is at rounding */
    ptrdiff_t rate_span;          /* steps of the shortest span of an extrapolation */
    double *trial;                /* in-out: the point to evaluate; in the end, the minimiser */
    double *trial_gradient, trial_value; /* in: the gradient and objective there */
    float *coef;                  /* scratch: those of a sweep, padded with zeros */
    double *values, *gaps;        /* out: objective and gap of each iteration, max_iter + 1 */
    double *work;                 /* lbfgs_doubles(), which a solve keeps between calls */
    double value, slope, gap, bound, step_size, scaling, curvature, unexplored; /* in-out, first 0 */
    ptrdiff_t n_iter;             /* in-out: steps, first -1 */
    ptrdiff_t n_pairs, first_pair, n_met; /* in-out, first 0 */
    int has_stalled;              /* in-out, first 0 */
    lbfgs_status_t status;        /* in-out, first LBFGS_RUNNING */
} lbfgs_t;

/* The doubles that a solve needs for points of `size` entries. */
static inline ptrdiff_t lbfgs_doubles(ptrdiff_t size, ptrdiff_t n_classes, ptrdiff_t width)
{
    return (6 + 3 * LBFGS_MEMORY) * size + 2 * LBFGS_MEMORY + n_classes * (width + 2);
}

/* A pass of dual coordinate ascent over CSR rows, or over dense rows of doubles for a single task;
 * see dual_pass.h. A single task has one lane, and its entries below are repeated in all lanes;
 * otherwise there are TASK_LANES of them. */
typedef struct {
    ptrdiff_t *rows;            /* in-out: the unshrunk rows, which the pass shuffles; those that it
                                 * shrinks are last. They may name no column twice. */
    ptrdiff_t n_unshrunk;       /* in-out: their number */
    ptrdiff_t n_lanes;          /* 1 or TASK_LANES */
    uint64_t seed;              /* of the order of the rows */
    int is_frozen;              /* evaluate value, gap, balance and which rows are active, without
                                 * taking steps */
    const ptrdiff_t *codes;     /* the class or labels of each row */
    const double *weight;       /* sample weights, one per row, positive */
    const double *square;       /* of the norm of each row, the constant included */
    double constant;            /* the square of the entry that each row has for the intercept */
    ptrdiff_t positive[TASK_LANES]; /* of each task; see is_positive */
    loss_t loss[TASK_LANES];
    double penalty[TASK_LANES]; /* of half the square of the norm of the coefficients, positive */
    double radius[TASK_LANES];  /* of shrinking, per norm of a row */
    double intercept[TASK_LANES]; /* in-out */
    double *residual;           /* in-out: (n_rows, n_lanes), at which the influence is the dual
                                 * variable of the row */
    double *coef;               /* in-out: (n_columns, n_lanes) */
    double value[TASK_LANES];   /* out: the objective, summed over the steps */
    double gap[TASK_LANES];     /* out: likewise the duality gap */
    double balance[TASK_LANES]; /* out: the sum of y times the dual variables */
} dual_pass_t;

/* One SIMD level: its functions of rows [first, last) of a matrix. `type` counts the element types
 * in the order of TYPES; arrays with one entry per row begin at row 0 of the matrix. */
typedef struct {
    void (*sweep)(layout_t, int type, const matrix_t *, ptrdiff_t first, ptrdiff_t last, sweep_t *);
    /* out[i] = x_i.coef + intercept */
    void (*scores)(layout_t, int type, const matrix_t *, ptrdiff_t first, ptrdiff_t last,
                   const double *coef, double intercept, double *out);
    /* sum += the sum of factors[i] x_i; rows of factor 0 may be skipped */
    void (*adjoint)(layout_t, int type, const matrix_t *, ptrdiff_t first, ptrdiff_t last,
                     const double *factors, double *sum);
    /* Of dense rows: sum[j] += the sum of weights[i] z_ij and squares[j] += that of weights[i] z_ij^2,
     * with z_ij = x_ij - centre[j], or (factors[j] (x_ij - centre[j]))^2 where factors are given;
     * and out[i] = the sum of factors[j] (x_ij - centre[j])^2 */
    void (*moments)(layout_t, int type, const matrix_t *, ptrdiff_t first, ptrdiff_t last,
                    const double *centre, const double *factors, const double *weights,
                    double *sum, double *squares);
    void (*norms)(layout_t, int type, const matrix_t *, ptrdiff_t first, ptrdiff_t last,
                  const double *centre, const double *factors, double *out);
    /* out[i] = |x_i|^2; CSR rows may name no column twice */
    void (*row_squares)(layout_t, int type, const matrix_t *, ptrdiff_t first, ptrdiff_t last,
                        double *out);
    /* Turns the scores of n rows, less the intercept, into derivatives of one task: the rows that
     * are positive have y = 1, all others y = -1. Sums are added to value and slope. */
    void (*task_losses)(const loss_t *, const ptrdiff_t *codes, ptrdiff_t positive,
                        const double *weight, double intercept, ptrdiff_t n, double *scores,
                        double *value, double *slope);
    /* A sweep of several tasks over all CSR rows: gradients are added to the table. */
    void (*sweep_tasks)(layout_t, int type, const matrix_t *, ptrdiff_t n_rows, task_sweep_t *);
    /* A pass of dual coordinate ascent: CSR rows, or doubles in dense rows. */
    void (*dual_pass)(layout_t, int type, const matrix_t *, dual_pass_t *);
    /* y += factor x; returns the inner product of the new y with z. */
    double (*add_dot)(ptrdiff_t n, double factor, const double *x, double *y, const double *z);
    /* Rows that are drawn, in the order of the draws; CSR rows may name no column twice. */
    void (*descend)(layout_t, int type, const matrix_t *, descent_t *);
    /* Rows of d floats each, d a multiple of PADDING; NULL where the compiler has no vectors. */
    void (*tiles)(const float *, ptrdiff_t first, ptrdiff_t last, ptrdiff_t d, tiles_t *);
    void (*class_tiles)(const float *, ptrdiff_t first, ptrdiff_t last, class_tiles_t *); /* likewise */
    /* Turns the scores of n rows, less the intercepts, into derivatives of a joint loss. Sums are added
     * to the value and, for each class, to the slope. */
    void (*joint_losses)(const joint_t *, ptrdiff_t n, double *scores, double *value, double *slope);
    /* Minimises the objective of a task; see newton.c. */
    void (*newton)(newton_t *);
    void (*kernel_newton)(kernel_newton_t *); /* see kernel_newton.c */
    /* Takes the trial point that the caller has evaluated, or evaluates up to `n_sweeps` of them; see
     * lbfgs.c. */
    void (*lbfgs_advance)(lbfgs_t *);
    void (*lbfgs_run)(lbfgs_t *, ptrdiff_t n_sweeps);
    /* Sets the trial point again, for a preconditioner that has changed. */
    void (*lbfgs_renew)(lbfgs_t *);
    /* Fits the slopes of a link; see link.c. */
    void (*fit_link)(link_t *);
} kernels_t;

extern const kernels_t kernels_baseline;
#ifdef MARGINPURSUIT_X86
extern const kernels_t kernels_avx2;
extern const kernels_t kernels_avx512;
#endif

/* The SIMD levels this processor can run, as a count of the tables {baseline, avx2, avx512}. */
int usable_levels(void);
const kernels_t *kernels_at(int level);

#endif
