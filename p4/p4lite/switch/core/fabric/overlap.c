/* pf_exchange in a thread of the fabric's own, while its caller does what hosts do. Which of the two is faster changes
 * nothing: either knows beforehand, by the delay of the links between them, what the other can still do. */
#include <stdlib.h>

#include "internal.h"

#define SPINS 2000u /* some 50 us, before a thread lies down: waking it up takes about as long */

enum overlap_state { OVERLAP_IDLE, OVERLAP_ASKED, OVERLAP_DONE, OVERLAP_QUIT };

struct overlap {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    atomic_uint state;
    struct fabric *fabric;
    struct port *const *ports;
    const struct pf_send *sends;
    const uint8_t *bytes;
    uint64_t count, until_ns, foresee_ns, told;
    struct pf_batch batch;
    int result;
};

static void put(struct overlap *o, unsigned state)
{
    pthread_mutex_lock(&o->mutex);
    atomic_store_explicit(&o->state, state, memory_order_release);
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->mutex);
}

/* Waits until the state is another than `from`; gives it. */
static unsigned await(struct overlap *o, unsigned from)
{
    unsigned state;
    for (unsigned i = 0; i < SPINS; i++) {
        state = atomic_load_explicit(&o->state, memory_order_acquire);
        if (state != from)
            return state;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    pthread_mutex_lock(&o->mutex);
    while ((state = atomic_load_explicit(&o->state, memory_order_acquire)) == from)
        pthread_cond_wait(&o->changed, &o->mutex);
    pthread_mutex_unlock(&o->mutex);
    return state;
}

static void *work(void *argument)
{
    struct overlap *o = argument;
    unsigned state = OVERLAP_IDLE;
    while ((state = await(o, state)) != OVERLAP_QUIT) {
        if (state != OVERLAP_ASKED)
            continue;
        o->result = pf_exchange(o->fabric, o->ports, o->sends, o->count, o->bytes, o->until_ns, o->foresee_ns, &o->told,
                                &o->batch);
        put(o, state = OVERLAP_DONE);
    }
    return NULL;
}

static struct overlap *made(struct fabric *f)
{
    struct overlap *o = calloc(1, sizeof *o);
    if (!o)
        return NULL;
    o->fabric = f;
    pthread_mutex_init(&o->mutex, NULL);
    pthread_cond_init(&o->changed, NULL);
    if (pthread_create(&o->thread, NULL, work, o) != 0) {
        pthread_cond_destroy(&o->changed);
        pthread_mutex_destroy(&o->mutex);
        free(o);
        return NULL;
    }
    return o;
}

int pf_begin(struct fabric *f, struct port *const *ports, const struct pf_send *sends, uint64_t count,
             const uint8_t *bytes, uint64_t until_ns, uint64_t foresee_ns)
{
    if (!f->overlap && !(f->overlap = made(f)))
        return PF_E_MEMORY;
    struct overlap *o = f->overlap;
    if (atomic_load_explicit(&o->state, memory_order_acquire) != OVERLAP_IDLE)
        return PF_E_BUSY;
    o->ports = ports;
    o->sends = sends;
    o->count = count;
    o->bytes = bytes;
    o->until_ns = until_ns;
    o->foresee_ns = foresee_ns;
    put(o, OVERLAP_ASKED);
    return PF_OK;
}

int pf_finish(struct fabric *f, uint64_t *told, struct pf_batch *out)
{
    struct overlap *o = f->overlap;
    *told = 0;
    *out = (struct pf_batch){0};
    if (!o || atomic_load_explicit(&o->state, memory_order_acquire) == OVERLAP_IDLE)
        return PF_E_MISSING;
    await(o, OVERLAP_ASKED);
    *told = o->told;
    *out = o->batch;
    int result = o->result;
    /* no caller waits for this: the thread continues at the next request */
    atomic_store_explicit(&o->state, OVERLAP_IDLE, memory_order_release);
    return result;
}

void overlap_end(struct fabric *f)
{
    struct overlap *o = f->overlap;
    if (!o)
        return;
    f->overlap = NULL;
    if (atomic_load_explicit(&o->state, memory_order_acquire) == OVERLAP_ASKED)
        await(o, OVERLAP_ASKED);
    put(o, OVERLAP_QUIT);
    pthread_join(o->thread, NULL);
    pthread_cond_destroy(&o->changed);
    pthread_mutex_destroy(&o->mutex);
    free(o);
}
