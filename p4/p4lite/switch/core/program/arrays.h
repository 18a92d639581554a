/* Counters, meters and registers of an instance. The packet path uses the inline functions; control operations
 * are in control.c. */
#ifndef P4LITE_ARRAYS_H
#define P4LITE_ARRAYS_H

#include "bits.h"
#include "pipeline.h"

struct p4_counter {
    uint64_t packets, bytes;
};

/* Two-rate three-colour marker (RFC 2698, colour-blind). Tokens are scaled by 10^9, so that rates per second and
 * time in nanoseconds need no rounding: one unit of traffic costs 10^9. */
struct p4_meter {
    uint64_t cir, cburst, pir, pburst;
    u128 ctokens, ptokens;
    uint64_t last_ns;
    uint8_t configured;
};

struct p4_counter_array { struct p4_counter *cells; uint64_t size; };
struct p4_meter_array { struct p4_meter *cells; uint64_t size; uint8_t bytes; };

/* Cells of `words` limbs each; `mask` cuts the highest limb to the register's width. */
struct p4_register_array { uint64_t *cells; uint64_t size, mask; uint32_t words; };

enum { P4_GREEN = 0, P4_YELLOW = 1, P4_RED = 2 };

/* Fills the buckets and forgets the past. */
void p4_meter_configure(struct p4_meter *m, uint64_t cir, uint64_t cburst, uint64_t pir, uint64_t pburst,
                        uint64_t now_ns);
/* Colour of `amount` bytes or one packet at now_ns; an unconfigured meter is green. */
unsigned p4_meter_execute(struct p4_meter *m, uint64_t amount, uint64_t now_ns);

static inline void p4_count(struct p4_counter *c, uint32_t length)
{
    c->packets++;
    c->bytes += length;
}

static inline void p4_counter_array_count(struct p4_counter_array *a, uint64_t index, uint32_t length,
                                          struct p4_faults *faults)
{
    index = (uint32_t)index; /* BMv2 takes indices as unsigned int */
    if (index < a->size)
        p4_count(&a->cells[index], length);
    else
        faults->counter_index++;
}

static inline uint64_t p4_register_read64(const struct p4_register_array *a, uint64_t index, struct p4_faults *faults)
{
    index = (uint32_t)index;
    if (index < a->size)
        return a->cells[index];
    faults->register_index++;
    return 0;
}

static inline u128 p4_register_read128(const struct p4_register_array *a, uint64_t index, struct p4_faults *faults)
{
    index = (uint32_t)index;
    if (index < a->size)
        return P4_U128(a->cells[2 * index + 1], a->cells[2 * index]);
    faults->register_index++;
    return 0;
}

/* Limbs of a cell; of zeros when out of bounds. */
const uint64_t *p4_register_words(const struct p4_register_array *a, uint64_t index, struct p4_faults *faults);

/* Whether the index is in bounds (else it is counted), for register_read, which then leaves its target alone. */
static inline int p4_register_has(const struct p4_register_array *a, uint64_t index, struct p4_faults *faults)
{
    if ((uint32_t)index < a->size)
        return 1;
    faults->register_index++;
    return 0;
}

static inline void p4_register_write64(struct p4_register_array *a, uint64_t index, uint64_t value,
                                       struct p4_faults *faults)
{
    if (p4_register_has(a, index, faults))
        a->cells[(uint32_t)index] = value & a->mask;
}

static inline void p4_register_write128(struct p4_register_array *a, uint64_t index, u128 value,
                                        struct p4_faults *faults)
{
    if (!p4_register_has(a, index, faults))
        return;
    uint64_t *cell = a->cells + 2 * (uint64_t)(uint32_t)index;
    cell[0] = (uint64_t)value;
    cell[1] = (uint64_t)(value >> 64) & a->mask;
}

static inline void p4_register_write_words(struct p4_register_array *a, uint64_t index, const uint64_t *value,
                                           struct p4_faults *faults)
{
    if (!p4_register_has(a, index, faults))
        return;
    uint64_t *cell = a->cells + (uint64_t)a->words * (uint32_t)index;
    memcpy(cell, value, a->words * sizeof *cell);
    cell[a->words - 1] &= a->mask;
}

/* Uniform in [lo, hi]. */
uint64_t p4_random(struct p4_instance *in, uint64_t lo, uint64_t hi);

#endif
