/* The slopes of a link from scores to probabilities, fitted to held-out scores; see link.c. */
#ifndef MARGINPURSUIT_LINK_H
#define MARGINPURSUIT_LINK_H

#include <stddef.h>

enum { LINK_SLOPES = 4 };

typedef struct {
    const double *scores;   /* (n_rows, n_scores), in units of the margin */
    const ptrdiff_t *codes; /* the class of each row */
    const double *weights;  /* of the rows, sum one */
    ptrdiff_t n_rows;
    ptrdiff_t n_scores;     /* 1 for two classes: the first one has the score zero */
    double low, high;       /* the knots below and above zero */
    double mean, ridge;     /* the objective has ridge (slope - mean)^2 / 2 for each slope */
    double min_slope, max_slope; /* bounds of the slopes */
    double *work;           /* scratch: link_doubles() */
    double slopes[LINK_SLOPES]; /* out */
    double log_loss;            /* out: the mean log-loss of the rows, without the ridge */
} link_t;

/* The doubles of scratch that a fit needs: scores and logits of up to eight rows. */
static inline ptrdiff_t link_doubles(ptrdiff_t n_scores) { return 16 * n_scores; }

#endif
