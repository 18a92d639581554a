/* Hosts of the virtual clock, many at once: what they send goes in by one call, and what concerns them comes back. */
#include "internal.h"

int pf_transmitters(struct fabric *f, struct port *const *ports, uint32_t count, struct pf_transmitter *transmitters,
                    uint64_t *lookahead_ns)
{
    if (f->real)
        return PF_E_CLOCK;
    pf_lock(f);
    for (uint32_t i = 0; i < count; i++) {
        const struct linkdir *d = &ports[i]->host_in;
        transmitters[i] = (struct pf_transmitter){d->set.rate_bps, d->set.overhead_bytes, d->set.host_queue_bytes,
                                                  d->free_at, d->rate_rest};
    }
    *lookahead_ns = f->lookahead_ns;
    pf_unlock(f);
    return PF_OK;
}

static int send_locked(struct fabric *f, struct port *const *ports, const struct pf_send *sends, uint64_t count,
                       const uint8_t *bytes, uint64_t *told)
{
    uint64_t surprises = 0;
    int result = f->real ? PF_E_CLOCK : PF_OK;
    for (uint64_t i = 0; i < count && result == PF_OK; i++) {
        const struct pf_send *s = &sends[i];
        uint64_t free_at = 0;
        f->sending_at = s->at_ns;
        result = port_inject(f, ports[s->port], bytes, s->length, s->missing, s->at_ns, &free_at);
        surprises += free_at != s->free_at_ns;
        bytes += result == PF_OK ? s->length - s->missing : 0;
        *told = result == PF_OK ? surprises : i;
    }
    f->sending_at = PF_NO_TIME;
    return result;
}

int pf_send(struct fabric *f, struct port *const *ports, const struct pf_send *sends, uint64_t count,
            const uint8_t *bytes, uint64_t *told)
{
    *told = 0;
    pf_lock(f);
    int result = send_locked(f, ports, sends, count, bytes, told);
    pf_unlock(f);
    return result;
}

int pf_exchange(struct fabric *f, struct port *const *ports, const struct pf_send *sends, uint64_t count,
                const uint8_t *bytes, uint64_t until_ns, uint64_t foresee_ns, uint64_t *told, struct pf_batch *out)
{
    *told = 0;
    *out = (struct pf_batch){0};
    pf_lock(f);
    int result = send_locked(f, ports, sends, count, bytes, told);
    if (result == PF_OK)
        result = run_locked(f, until_ns, 1, foresee_ns, out);
    pf_unlock(f);
    return result;
}
