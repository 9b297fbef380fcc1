/* Sums of weights over rows whose scores lie in equal intervals; see intervals.c. */
#ifndef MARGINPURSUIT_INTERVALS_H
#define MARGINPURSUIT_INTERVALS_H

#include <stddef.h>

typedef struct {
    const double *scores;  /* (n_rows, n_columns) */
    const double *weights; /* (n_rows), of either sign */
    ptrdiff_t n_rows, n_columns, n_intervals, first;
    double width;
    double *sums; /* (n_columns, n_intervals), zero at the start */
} intervals_t;

void add_to_intervals(const intervals_t *);

#endif
