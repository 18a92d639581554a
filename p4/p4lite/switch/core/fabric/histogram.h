/* A histogram of durations: eight buckets per power of two, so a quantile is at most 12.5 % off. */
#ifndef P4LITE_HISTOGRAM_H
#define P4LITE_HISTOGRAM_H

#include <string.h>

#include "fabric.h"

#define HISTOGRAM_BUCKETS (8 + 41 * 8)

struct histogram {
    uint64_t count, max;
    uint32_t buckets[HISTOGRAM_BUCKETS];
};

static inline void histogram_add(struct histogram *h, uint64_t value)
{
    unsigned index = (unsigned)value;
    if (value >= 8) {
        unsigned top = 63u - (unsigned)__builtin_clzll(value);
        index = (top - 2) * 8 + (unsigned)((value >> (top - 3)) & 7);
        if (index >= HISTOGRAM_BUCKETS)
            index = HISTOGRAM_BUCKETS - 1;
    }
    h->buckets[index]++;
    h->count++;
    if (value > h->max)
        h->max = value;
}

/* Upper end of the bucket in which the quantile lies. */
static inline uint64_t histogram_quantile(const struct histogram *h, double q)
{
    uint64_t rank = (uint64_t)(q * (double)h->count), seen = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->buckets[i];
        if (seen > rank) {
            uint64_t end = i;
            if (i >= 8) {
                unsigned top = i / 8 + 2;
                end = ((UINT64_C(8) + i % 8 + 1) << (top - 3)) - 1;
            }
            return end < h->max ? end : h->max;
        }
    }
    return h->max;
}

static inline struct pf_lag histogram_read(const struct histogram *h)
{
    struct pf_lag lag = {h->count, histogram_quantile(h, 0.5), histogram_quantile(h, 0.9),
                         histogram_quantile(h, 0.99), h->max};
    return lag;
}

#endif
