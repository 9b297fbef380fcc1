/* The joint loss of several classes: phi(f_y - T log sum of exp(f_k/T) over k != y).
 *
 * A block of rows at a time: the scores of a class are a contiguous vector of rows, so that the
 * maximum, the powers and their sum over the classes are computed for LANES rows at once. The last
 * block of fewer rows is padded with zeros, and its padding has derivatives of zero.
 */
#ifndef MARGINPURSUIT_JOINT_H
#define MARGINPURSUIT_JOINT_H

#include "loss.h"
#include "sweep.h"
#include "vectors.h"

enum { JOINT_ROWS = 64 }; /* of a block, a multiple of LANES */

/* Adds the intercept of a class to its scores in a block, and raises `largest` to them. */
static void begin_class(double intercept, ptrdiff_t n, double *f, double *largest)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        f[i] += intercept;
        largest[i] = largest[i] > f[i] ? largest[i] : f[i];
    }
}

/* Replaces scores by exp((f - largest)/T), and adds them to the totals. */
static void raise_class(double inverse, const double *largest, double *f, double *total)
{
    for (int i = 0; i < JOINT_ROWS; i += LANES) {
        const vec power = exp_of_negative((load_f8(f + i) - load_f8(largest + i)) * splat(inverse));
        store(f + i, power);
        store(total + i, load_f8(total + i) + power);
    }
}

/* Multiplies powers by the factors of their rows; returns the sum. */
static double scale_class(const double *factor, double *f)
{
    vec sum = splat(0.0);
    for (int i = 0; i < JOINT_ROWS; i += LANES) {
        const vec derivative = load_f8(f + i) * load_f8(factor + i);
        store(f + i, derivative);
        sum += derivative;
    }
    return lane_sum(sum);
}

/* Copies the first n scores of a class into a block, and sets its padding to zero. */
static void pad_class(const double *f, ptrdiff_t n, double *padded)
{
    memcpy(padded, f, (size_t)n * sizeof(double));
    for (ptrdiff_t i = n; i < JOINT_ROWS; i++) padded[i] = 0.0;
}

static void joint_losses(const joint_t *joint, ptrdiff_t n, double *scores, double *value,
                         double *slope)
{
    ALIGNED double sign[JOINT_ROWS], class_score[JOINT_ROWS], largest[JOINT_ROWS], total[JOINT_ROWS];
    ALIGNED double margin[JOINT_ROWS], factor[JOINT_ROWS], padded[JOINT_ROWS];
    for (int i = 0; i < JOINT_ROWS; i++) sign[i] = 1.0;
    sweep_t s = {.sign = sign, .loss = joint->loss};
    loss_state_t state = start_loss(&s);
    const ptrdiff_t stride = joint->stride;
    const vec temperature = splat(joint->temperature);
    for (ptrdiff_t first = 0; first < n; first += JOINT_ROWS) {
        const ptrdiff_t n_block = n - first < JOINT_ROWS ? n - first : JOINT_ROWS;
        const ptrdiff_t *codes = joint->codes + first;
        const size_t size = (size_t)n_block * sizeof(double);
        for (int i = 0; i < JOINT_ROWS; i++) {
            class_score[i] = total[i] = factor[i] = 0.0;
            largest[i] = i < n_block ? -INFINITY : 0.0;
        }
        for (ptrdiff_t i = 0; i < n_block; i++) { /* -infinity: the class of a row is not among k != y */
            double *f = scores + codes[i] * stride + first + i;
            class_score[i] = *f + joint->intercept[codes[i]];
            *f = -INFINITY;
        }
        for (ptrdiff_t k = 0; k < joint->n_classes; k++)
            begin_class(joint->intercept[k], n_block, scores + k * stride + first, largest);
        for (ptrdiff_t k = 0; k < joint->n_classes; k++) {
            double *f = scores + k * stride + first;
            if (n_block == JOINT_ROWS) raise_class(1.0 / joint->temperature, largest, f, total);
            else {
                pad_class(f, n_block, padded);
                raise_class(1.0 / joint->temperature, largest, padded, total);
                memcpy(f, padded, size);
            }
        }
        for (int i = 0; i < JOINT_ROWS; i += LANES) {
            const vec others = load_f8(largest + i) + temperature * log_from_one(load_f8(total + i));
            store(margin + i, load_f8(class_score + i) - others);
        }
        if (joint->margins) memcpy(joint->margins + first, margin, size);
        s.weight = joint->weight + first;
        apply_loss(&state, &s, 0, n_block, margin); /* now the derivatives in the margins */
        for (ptrdiff_t i = 0; i < n_block; i++) factor[i] = -margin[i] / total[i];
        for (ptrdiff_t k = 0; k < joint->n_classes; k++) {
            double *f = scores + k * stride + first;
            if (n_block == JOINT_ROWS) slope[k] += scale_class(factor, f);
            else {
                pad_class(f, n_block, padded);
                slope[k] += scale_class(factor, padded);
                memcpy(f, padded, size);
            }
        }
        for (ptrdiff_t i = 0; i < n_block; i++) {
            scores[codes[i] * stride + first + i] = margin[i];
            slope[codes[i]] += margin[i];
        }
    }
    finish_loss(&state, &s);
    *value += s.value;
}

#endif
