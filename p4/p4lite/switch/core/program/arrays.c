#include "arrays.h"

#define SCALE UINT64_C(1000000000)

void p4_meter_configure(struct p4_meter *m, uint64_t cir, uint64_t cburst, uint64_t pir, uint64_t pburst,
                        uint64_t now_ns)
{
    m->cir = cir;
    m->cburst = cburst;
    m->pir = pir;
    m->pburst = pburst;
    m->ctokens = (u128)cburst * SCALE;
    m->ptokens = (u128)pburst * SCALE;
    m->last_ns = now_ns;
    m->configured = 1;
}

static void refill(u128 *tokens, uint64_t rate, uint64_t burst, uint64_t elapsed_ns)
{
    u128 full = (u128)burst * SCALE;
    u128 gained = (u128)rate * elapsed_ns;
    *tokens = gained >= full - *tokens ? full : *tokens + gained;
}

unsigned p4_meter_execute(struct p4_meter *m, uint64_t amount, uint64_t now_ns)
{
    if (!m->configured)
        return P4_GREEN;
    uint64_t elapsed = now_ns > m->last_ns ? now_ns - m->last_ns : 0;
    if (now_ns > m->last_ns)
        m->last_ns = now_ns;
    refill(&m->ctokens, m->cir, m->cburst, elapsed);
    refill(&m->ptokens, m->pir, m->pburst, elapsed);
    u128 cost = (u128)amount * SCALE;
    if (m->ptokens < cost)
        return P4_RED;
    m->ptokens -= cost;
    if (m->ctokens < cost)
        return P4_YELLOW;
    m->ctokens -= cost;
    return P4_GREEN;
}

const uint64_t *p4_register_words(const struct p4_register_array *a, uint64_t index, struct p4_faults *faults)
{
    static const uint64_t zeros[1024]; /* the widest register has 2^16 bits */
    return p4_register_has(a, index, faults) ? a->cells + (uint64_t)a->words * (uint32_t)index : zeros;
}

/* splitmix64, the high part of a product with rejection of the biased remainder (Lemire). */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

uint64_t p4_random(struct p4_instance *in, uint64_t lo, uint64_t hi)
{
    uint64_t span = hi - lo + 1;
    if (span == 0)
        return next_random(&in->random_state);
    uint64_t least = (0 - span) % span;
    u128 product;
    do
        product = (u128)next_random(&in->random_state) * span;
    while ((uint64_t)product < least);
    return lo + (uint64_t)(product >> 64);
}
