/* A fit to a small dense table, in one call; see small_table.c. */
#ifndef MARGINPURSUIT_SMALL_TABLE_H
#define MARGINPURSUIT_SMALL_TABLE_H

#include "link.h"
#include "sweep.h"

enum { MAX_FACTORS = 8 };

typedef struct {
    const kernels_t *kernels; /* of a SIMD level */
    const double *matrix;     /* (n_rows, n_columns), in C order */
    ptrdiff_t n_rows, n_columns;
    double n_samples;         /* the effective number of rows, by their weights */
    const ptrdiff_t *codes;   /* the class of each row */
    ptrdiff_t n_classes;
    ptrdiff_t n_scores;       /* 1, or the number of classes of a joint loss */
    loss_t loss;
    double temperature;       /* of a joint loss */
    int has_intercept;
    double leverage_bound;    /* in median distances, for equal weights; infinite where there is none */
    double far_distance, apart_distance, hidden_distance; /* of rows that are refused: FarRowPolicy */
    double alpha;             /* the penalty */
    double inflation;         /* multiple of (kurtosis - 1)/n in its unit; 0 for "standardised" */
    const double *factors;    /* rising multiples of alpha of the half fits; see small_table.c */
    ptrdiff_t n_factors;
    double max_increase;      /* relative excess over the lowest log-loss that a smaller factor may have */
    double max_joint_increase; /* the same of a larger factor, with a joint loss */
    double min_likelihood_gain; /* of held-out rows, that a factor below one has to gain */
    ptrdiff_t min_distinct_rows; /* of a class, to be split */
    double tol, certain;      /* of the fit; see newton_t */
    double half_tol, half_certain;
    double objective_floor;   /* see newton_t */
    ptrdiff_t max_iter, half_max_iter;
    const double *direction;  /* n_columns, of the projections that order rows of equal norm */
    link_t link;              /* in: knots, prior mean and bounds; out: the link that was chosen */
    double prior_variance;    /* of a slope of the link */
    double *work;             /* scratch: small_table_doubles() */
    const double *start;      /* (n_scores, n_columns) and n_scores: coefficients and intercepts; or NULL */
    double *weight;           /* in-out: n_rows, positive weights with sum one, then with bounded leverage */
    double *coef;             /* out: (n_scores, n_columns), for the rows as they are */
    double *intercept;        /* out: n_scores */
    double *scores;           /* out: (n_scores, n_rows), of the fit */
    double value;             /* out: the objective */
    double count;             /* out: the number of rows that the link is fitted to */
    double factor;            /* out: the chosen multiple of alpha */
    ptrdiff_t n_iter;         /* out: Newton steps of the fit */
    ptrdiff_t n_passes;       /* out: over the rows */
} small_table_t;

/* The doubles of scratch that a fit needs. */
ptrdiff_t small_table_doubles(const small_table_t *);

/* Fits the table; 0 where it has a property that the general fit is for, or a solve does not converge. */
int fit_small_table(small_table_t *);

/* Copies the rows of positive weight, their weights and codes; returns their number. */
ptrdiff_t gather_rows(ptrdiff_t n_rows, ptrdiff_t stride, const double *rows, const double *weight,
                      const ptrdiff_t *codes, double *gathered_rows, double *gathered_weight,
                      ptrdiff_t *gathered_codes);

#endif
