/* Probabilities of classes from those of pairs of classes; see coupling.c. */
#ifndef MARGINPURSUIT_COUPLING_H
#define MARGINPURSUIT_COUPLING_H

#include <stddef.h>

typedef struct {
    const double *logits; /* (n_rows, n_classes (n_classes - 1) / 2), of the first class of each pair */
    ptrdiff_t n_rows, n_classes;
    double limit;         /* of the absolute logits */
    double *work;         /* scratch: coupling_doubles() */
    double *out;          /* (n_rows, n_classes): logarithms of the probabilities, less their mean */
} coupling_t;

/* The doubles of scratch that a call needs. */
static inline ptrdiff_t coupling_doubles(ptrdiff_t n_classes) { return (n_classes + 1) * n_classes; }

void couple(coupling_t *);

#endif
