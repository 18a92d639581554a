/* The control functions of fabric.h: each takes the lock, so it falls between two batches of packets. */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "run.h"

struct fabric *pf_create(const struct pf_config *config)
{
    struct fabric *f = config->abi == PF_ABI ? calloc(1, sizeof *f) : NULL;
    if (!f)
        return NULL;
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutexattr_setprotocol(&recursive, PTHREAD_PRIO_INHERIT); /* the loop may be a real-time thread */
    pthread_mutex_init(&f->lock.mutex, &recursive);
    pthread_mutexattr_destroy(&recursive);
    atomic_init(&f->lock.waiting, 0);
    atomic_init(&f->stop_requested, false);
    pthread_mutex_init(&f->notify_mutex, NULL);
    pthread_barrier_init(&f->started, NULL, 2);
    f->real = config->real_clock;
    f->seed = config->seed;
    f->busy_poll_ns = config->busy_poll_ns;
    f->round_ns = config->round_ns;
    f->realtime = config->realtime;
    f->pool_limit = config->memory_limit_bytes;
    f->receive = target_receive;
    f->leave = device_send;
    f->switches_tail = &f->switches;
    f->lookahead_ns = f->sending_at = PF_NO_TIME;
    f->epoll_fd = f->wake_fd = f->netlink_fd = -1;
    f->notify_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (f->real) {
        f->origin = clock_read(f);
        f->epoch_ns = clock_ns(CLOCK_REALTIME);
    }
    if (f->notify_fd < 0 || (f->real && device_loop_fds(f) != PF_OK)) {
        pf_destroy(f);
        return NULL;
    }
    return f;
}

static void groups_clear(struct sw *s)
{
    for (uint32_t i = 0; i < s->groups_size; i++)
        free(s->groups[i].replicas);
    for (uint32_t i = 0; i < s->sessions_size; i++)
        free(s->sessions[i].own.replicas);
    free(s->groups);
    free(s->sessions);
    s->groups = NULL;
    s->sessions = NULL;
    s->groups_size = s->sessions_size = 0;
}

static void sources_free(struct fabric *f, struct port *q)
{
    while (q->sources) {
        struct source *next = q->sources->next;
        source_free(f, q->sources);
        q->sources = next;
    }
}

static void port_free(struct fabric *f, struct port *q)
{
    pcap_close(q);
    free(q->pfc);
    sources_free(f, q);
    free(q);
}

void pf_destroy(struct fabric *f)
{
    pf_stop(f);
    devices_close(f);
    for (struct sw *s = f->switches; s; s = s->next) /* packets may refer to any port */
        EACH_PORT(s, q) {
            device_close(f, q);
            credits_free(f, q);
        }
    while (f->switches) {
        struct sw *s = f->switches;
        f->switches = s->next;
        EACH_PORT(s, q)
            port_free(f, q);
        free(s->ports);
        groups_clear(s);
        phv_pool_clear(s);
        free(s);
    }
    while (f->notify_head) {
        struct notification_node *n = f->notify_head;
        f->notify_head = n->next;
        free(n);
    }
    if (f->trace)
        fclose(f->trace);
    device_loop_close(f);
    if (f->notify_fd >= 0)
        close(f->notify_fd);
    pool_destroy(f);
    free(f->list.heap);
    free(f->outbox.heap);
    free(f->deliveries);
    pthread_mutex_destroy(&f->notify_mutex);
    pthread_barrier_destroy(&f->started);
    pthread_mutex_destroy(&f->lock.mutex);
    free(f);
}

uint64_t pf_now(struct fabric *f)
{
    if (f->real)
        return clock_read(f);
    LOCKED(f);
    return f->now;
}

uint64_t pf_events(struct fabric *f)
{
    LOCKED(f);
    return f->events;
}

struct sw *pf_switch_add(struct fabric *f, const struct pf_switch_config *config)
{
    if (config->priority_queues < 1 || config->priority_queues > PF_MAX_PRIORITIES || config->cpu_port > MAX_PORT)
        return NULL;
    struct sw *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->fabric = f;
    s->config = *config;
    LOCKED(f);
    *f->switches_tail = s;
    f->switches_tail = &s->next;
    if (config->cpu_port >= 0) {
        s->cpu = switch_port(s, (uint32_t)config->cpu_port);
        if (s->cpu)
            s->cpu->peer_kind = PEER_CPU;
    }
    return s;
}

static void flush_all(struct sw *s)
{
    EACH_PORT(s, q)
        port_flush(s->fabric, q);
}

int pf_switch_load(struct sw *s, struct p4_instance *instance)
{
    if (instance && instance->program->abi != P4LITE_ABI)
        return PF_E_RANGE;
    LOCKED(s->fabric);
    flush_all(s);
    phv_pool_clear(s);
    s->instance = instance;
    s->program = instance ? instance->program : NULL;
    groups_clear(s);
    pf_switch_tick(s);
    return PF_OK;
}

int pf_switch_remove(struct sw *s)
{
    LOCKED(s->fabric);
    s->state = PF_STOPPED;
    EACH_PORT(s, q)
        pf_port_remove(q);
    pf_switch_load(s, NULL);
    groups_clear(s);
    return PF_OK;
}

void pf_switch_tick(struct sw *s)
{
    LOCKED(s->fabric);
    if (s->instance)
        s->instance->now_ns = s->fabric->real ? clock_read(s->fabric) : s->fabric->now;
}

int pf_switch_state(struct sw *s, uint32_t state)
{
    if (state > PF_STOPPED)
        return PF_E_RANGE;
    LOCKED(s->fabric);
    s->state = state;
    if (state == PF_STOPPED)
        flush_all(s);
    if (state == PF_RUNNING) {
        EACH_PORT(s, q)
            if (q->packets || port_has_more(q))
                port_kick(s->fabric, q);
        settle(s->fabric);
    }
    return PF_OK;
}

int pf_switch_restart(struct sw *s)
{
    LOCKED(s->fabric);
    flush_all(s);
    groups_clear(s);
    s->state = PF_RUNNING;
    return PF_OK;
}

static void port_reset_stats(struct port *q)
{
    memset(&q->stats, 0, sizeof q->stats);
    memset(&q->lag, 0, sizeof q->lag);
    pfc_reset_stats(q->sw->fabric, q);
    credits_reset_stats(q->sw->fabric, q);
    for (uint32_t i = 0; i < PF_MAX_PRIORITIES; i++) {
        memset(&q->queues[i].stats, 0, sizeof q->queues[i].stats);
        q->queues[i].stats.max_packets = q->queues[i].packets;
        q->queues[i].stats.max_bytes = q->queues[i].bytes;
    }
}

int pf_switch_stats(struct sw *s, struct pf_switch_stats *out, uint32_t reset)
{
    LOCKED(s->fabric);
    *out = s->stats;
    EACH_PORT(s, q) {
        if (!q->implicit)
            continue;
        out->other_queued += q->packets;
        for (int why = 0; why < PF_PORT_DROPS; why++)
            out->other_drops[why] += q->stats.drops[why];
    }
    if (reset) {
        memset(&s->stats, 0, sizeof s->stats);
        EACH_PORT(s, q)
            port_reset_stats(q);
    }
    return PF_OK;
}

static int group_set(struct group *g, const struct pf_replica *replicas, uint32_t count)
{
    struct pf_replica *copy = calloc(count ? count : 1, sizeof *copy);
    if (!copy)
        return PF_E_MEMORY;
    if (count)
        memcpy(copy, replicas, count * sizeof *copy);
    free(g->replicas);
    *g = (struct group){copy, count, true};
    return PF_OK;
}

int pf_switch_group(struct sw *s, uint32_t group, const struct pf_replica *replicas, uint32_t count)
{
    if (group < 1 || group > 65535)
        return PF_E_RANGE;
    LOCKED(s->fabric);
    if (!reserve((void **)&s->groups, &s->groups_size, group, sizeof *s->groups))
        return PF_E_MEMORY;
    return group_set(&s->groups[group], replicas, count);
}

int pf_switch_group_delete(struct sw *s, uint32_t group)
{
    LOCKED(s->fabric);
    if (group >= s->groups_size || !s->groups[group].present)
        return PF_E_MISSING;
    free(s->groups[group].replicas);
    s->groups[group] = (struct group){NULL, 0, false};
    return PF_OK;
}

int pf_switch_session(struct sw *s, uint32_t session, int64_t port, int64_t group, const struct pf_replica *replicas,
                      uint32_t count, uint32_t truncate_bytes)
{
    if (session > P4_CLONE_MASK)
        return PF_E_RANGE;
    LOCKED(s->fabric);
    if (!reserve((void **)&s->sessions, &s->sessions_size, session, sizeof *s->sessions))
        return PF_E_MEMORY;
    struct session *at = &s->sessions[session];
    int result = group_set(&at->own, replicas, count);
    if (result != PF_OK)
        return result;
    at->port = port;
    at->group = group;
    at->truncate_to = truncate_bytes ? truncate_bytes : P4_NO_TRUNCATE;
    at->present = true;
    return PF_OK;
}

int pf_switch_session_delete(struct sw *s, uint32_t session)
{
    LOCKED(s->fabric);
    if (session >= s->sessions_size || !s->sessions[session].present)
        return PF_E_MISSING;
    free(s->sessions[session].own.replicas);
    memset(&s->sessions[session], 0, sizeof s->sessions[session]);
    return PF_OK;
}

int pf_switch_packet_out(struct sw *s, const uint8_t *data, uint32_t len)
{
    struct fabric *f = s->fabric;
    if (!s->cpu)
        return PF_E_MISSING;
    if (len > MAX_PACKET)
        return PF_E_RANGE;
    LOCKED(f);
    settle(f);
    struct packet *p = packet_new(f, len);
    if (!p)
        return PF_E_MEMORY;
    memcpy(p->data, data, len);
    p->len = len;
    target_receive(f, s->cpu, p);
    settle(f);
    return PF_OK;
}

int pf_trace(struct fabric *f, const char *path, uint32_t limited)
{
    FILE *file = NULL;
    /* Standard error may be a file that others write, too: it is added to, and read while packets pass. */
    bool device = path && strncmp(path, "/dev/", 5) == 0;
    if (path && !(file = fopen(path, device ? "ae" : "we")))
        return PF_E_SYSTEM;
    if (file)
        setvbuf(file, NULL, device ? _IOLBF : _IOFBF, 1 << 18);
    pf_lock(f);
    FILE *old = f->trace;
    f->trace = file;
    f->trace_limited = limited != 0;
    pf_unlock(f);
    if (old && fclose(old) != 0)
        return PF_E_SYSTEM;
    return PF_OK;
}

void pf_files_room(struct fabric *f, uint64_t bytes)
{
    LOCKED(f);
    f->files_room = bytes;
}

/* -- ports ---------------------------------------------------------------------------------------------------------- */

int pf_port_add(struct sw *s, uint32_t number, struct port **out)
{
    struct fabric *f = s->fabric;
    if (number > MAX_PORT || number == s->config.drop_port)
        return PF_E_RANGE;
    LOCKED(f);
    struct port *q = switch_port(s, number);
    if (!q)
        return PF_E_MEMORY;
    if (!q->implicit || q->peer_kind == PEER_CPU)
        return PF_E_EXISTS;
    q->implicit = false;
    q->peer_kind = PEER_EXTERNAL;
    q->collect = true;
    lookahead_update(f);
    *out = q;
    return PF_OK;
}

static void unlink_one(struct fabric *f, struct port *q)
{
    linkdir_cut(f, &q->out, PF_D_LINK_DOWN);
    q->out.to = NULL;
    q->peer = NULL;
    q->in = &q->host_in;
    q->peer_kind = PEER_EXTERNAL;
    storm_update(f, q);
    credits_reset(f, q);
}

int pf_port_unlink(struct port *a)
{
    struct fabric *f = a->sw->fabric;
    LOCKED(f);
    struct port *b = a->peer;
    if (!b)
        return PF_E_MISSING;
    unlink_one(f, a);
    unlink_one(f, b);
    lookahead_update(f);
    return PF_OK;
}

/* Takes a patch away, of which this is the other end. */
static void unpatch(struct fabric *f, struct port *q)
{
    port_flush(f, q);
    q->patch->patch = NULL;
    q->patch = NULL;
}

/* The structure stays, like that of a port that was not added, since packets inside the switch may still refer to it. */
int pf_port_remove(struct port *q)
{
    struct fabric *f = q->sw->fabric;
    LOCKED(f);
    pf_port_unlink(q);
    device_close(f, q);
    pcap_close(q);
    sources_free(f, q);
    if (q->patch)
        unpatch(f, q->patch);
    pfc_free(f, q);
    credits_free(f, q);
    port_flush(f, q);
    linkdir_cut(f, &q->out, PF_D_LINK_DOWN);
    linkdir_cut(f, &q->host_in, PF_D_LINK_DOWN);
    static const struct pf_link_settings plain;
    linkdir_set(&q->out, &plain);
    linkdir_set(&q->host_in, &plain);
    q->out.up = q->host_in.up = true;
    q->implicit = true;
    q->peer_kind = PEER_NONE;
    storm_update(f, q);
    lookahead_update(f);
    return PF_OK;
}

int pf_port_link(struct port *a, struct port *b)
{
    struct fabric *f = a->sw->fabric;
    if (a == b || b->sw->fabric != f)
        return PF_E_RANGE;
    LOCKED(f);
    if (a->peer_kind != PEER_EXTERNAL || b->peer_kind != PEER_EXTERNAL)
        return PF_E_BUSY;
    struct port *ends[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        struct port *q = ends[i], *peer = ends[1 - i];
        linkdir_cut(f, &q->host_in, PF_D_LINK_DOWN);
        linkdir_cut(f, &q->out, PF_D_LINK_DOWN);
        q->peer_kind = PEER_SWITCH;
        q->peer = peer;
        q->out.to = peer;
        q->in = &peer->out;
        storm_update(f, q);
    }
    credits_reset(f, a);
    credits_reset(f, b);
    lookahead_update(f);
    return PF_OK;
}

int pf_port_patch(struct port *a, struct port *b)
{
    struct fabric *f = a->sw->fabric;
    if (a == b || a->sw != b->sw)
        return PF_E_RANGE;
    LOCKED(f);
    if (a->patch || b->patch)
        return PF_E_BUSY;
    port_flush(f, a); /* a queue holds either packets of a program or patched ones */
    port_flush(f, b);
    a->patch = b;
    b->patch = a;
    return PF_OK;
}

static struct linkdir *direction(struct port *q, uint32_t outgoing)
{
    return outgoing ? &q->out : q->in;
}

int pf_port_settings(struct port *q, uint32_t outgoing, const struct pf_link_settings *settings)
{
    struct fabric *f = q->sw->fabric;
    LOCKED(f);
    settle(f);
    struct linkdir *d = direction(q, outgoing);
    uint64_t old_rate = d->set.rate_bps;
    linkdir_set(d, settings);
    if (d == &d->owner->out)
        port_rate_changed(f, d->owner, old_rate);
    else if (settings->rate_bps == 0 || settings->rate_bps > old_rate)
        d->free_at = d->free_at < f->now ? d->free_at : f->now;
    storm_update(f, q);
    lookahead_update(f);
    settle(f);
    return PF_OK;
}

int pf_port_up(struct port *q, uint32_t outgoing, uint32_t up)
{
    struct fabric *f = q->sw->fabric;
    struct linkdir *d = direction(q, outgoing);
    LOCKED(f);
    settle(f);
    if (d->up && !up) {
        linkdir_cut(f, d, PF_D_LINK_DOWN);
        pfc_link_lost(f, d->owner);
        if (d->owner->peer)
            pfc_link_lost(f, d->owner->peer);
    }
    d->up = up;
    storm_update(f, q);
    credits_announce(f, d->owner);
    if (d->owner->peer)
        credits_announce(f, d->owner->peer);
    settle(f);
    return PF_OK;
}

int pf_port_is_up(struct port *q, uint32_t outgoing)
{
    LOCKED(q->sw->fabric);
    return direction(q, outgoing)->up && device_is_up(q);
}

int pf_port_queue(struct port *q, int32_t priority, uint64_t packets, uint64_t bytes)
{
    if (priority < PF_QUEUE_BUFFER || priority >= (int32_t)q->sw->config.priority_queues)
        return PF_E_RANGE;
    LOCKED(q->sw->fabric);
    if (priority == PF_QUEUE_BUFFER) {
        q->limit_packets = packets;
        q->limit_bytes = bytes;
    }
    for (int32_t i = 0; i < (int32_t)PF_MAX_PRIORITIES; i++)
        if (priority == PF_QUEUE_EACH || priority == i) {
            q->queues[i].limit_packets = packets;
            q->queues[i].limit_bytes = bytes;
        }
    return PF_OK;
}

int pf_port_stats(struct port *q, struct pf_port_stats *out, uint32_t reset)
{
    LOCKED(q->sw->fabric);
    device_collect_drops(q);
    *out = q->stats;
    out->on_wire = linkdir_carries(&q->out) + linkdir_carries(&q->host_in);
    for (uint32_t i = 0; i < PF_MAX_PRIORITIES; i++) {
        struct queue *queue = &q->queues[i];
        out->queues[i] = queue->stats;
        out->queues[i].depth_packets = queue->packets;
        out->queues[i].depth_bytes = queue->bytes;
    }
    out->service_lag = histogram_read(&q->lag);
    if (reset)
        port_reset_stats(q);
    return PF_OK;
}

int pf_port_samples(struct fabric *f, struct port *const *ports, uint32_t count, uint32_t priority, uint64_t reasons,
                    struct pf_port_sample *out)
{
    if (priority >= PF_MAX_PRIORITIES)
        return PF_E_RANGE;
    LOCKED(f);
    for (uint32_t i = 0; i < count; i++) {
        struct port *q = ports[i];
        const struct queue *queue = &q->queues[priority];
        device_collect_drops(q);
        uint64_t all = 0, some = 0;
        for (uint32_t reason = 0; reason < PF_PORT_DROPS; reason++) {
            all += q->stats.drops[reason];
            some += reasons >> reason & 1 ? q->stats.drops[reason] : 0;
        }
        uint64_t up = device_is_up(q) ? (direction(q, 1)->up ? 1u : 0u) | (direction(q, 0)->up ? 2u : 0u) : 0u;
        uint64_t controls = (q->pfc ? 1u : 0u) | (q->credits ? 2u : 0u);
        out[i] = (struct pf_port_sample){q->stats.tx_bytes, queue->bytes, queue->stats.max_bytes, all, some,
                                         q->stats.storm_frames, controls, q->stats.rx_bytes, up};
    }
    return PF_OK;
}

int pf_port_capture(struct port *q, const char *path, const char *label, uint32_t snaplen, uint32_t flags)
{
    LOCKED(q->sw->fabric);
    if (path)
        return pcap_open(q, path, label, snaplen, flags);
    pcap_close(q);
    return PF_OK;
}

int pf_port_collect(struct port *q, uint32_t collect)
{
    LOCKED(q->sw->fabric);
    q->collect = collect;
    return PF_OK;
}

int pf_port_generate(struct port *q, const uint8_t *frames, const uint32_t *lengths, uint32_t nframes, uint64_t count,
                     uint64_t start_ns, uint64_t interval_ns)
{
    struct fabric *f = q->sw->fabric;
    if (!nframes || !count)
        return PF_E_RANGE;
    struct source *s = calloc(1, sizeof *s);
    if (!s)
        return PF_E_MEMORY;
    s->port = q;
    s->left = count;
    s->interval_ns = interval_ns;
    s->timer.pos = NO_POS;
    s->timer.due = source_due;
    s->frames = calloc(nframes, sizeof *s->frames);
    s->lengths = calloc(nframes, sizeof *s->lengths);
    bool ok = s->frames && s->lengths;
    for (; ok && s->nframes < nframes; s->nframes++) {
        uint32_t len = lengths[s->nframes];
        struct buf *b = len <= MAX_PACKET ? malloc(sizeof *b + len) : NULL;
        if (!(ok = b != NULL))
            break;
        memcpy(b->mem, frames, len);
        frames += len;
        s->frames[s->nframes] = b;
        s->lengths[s->nframes] = len;
    }
    LOCKED(f);
    int result = PF_OK;
    if (f->real && start_ns < f->now)
        start_ns = f->now; /* the clock went on since the caller read it */
    if (!ok || q->peer_kind != PEER_EXTERNAL || start_ns < f->now) {
        result = !ok ? PF_E_MEMORY : q->peer_kind != PEER_EXTERNAL ? PF_E_BUSY : PF_E_PAST;
        source_free(f, s);
    } else {
        s->next = q->sources;
        q->sources = s;
        timer_arm(f, &s->timer, start_ns, next_order(f));
        if (f->real)
            settle(f);
    }
    return result;
}

/* -- flow control --------------------------------------------------------------------------------------------------- */

int pf_port_pfc(struct port *q, uint32_t priority, const struct pf_pfc_settings *set)
{
    struct fabric *f = q->sw->fabric;
    if (priority >= q->sw->config.priority_queues ||
        (set && (set->xon_bytes > set->xoff_bytes || set->quanta < 1 || set->quanta > 0xffff)))
        return PF_E_RANGE;
    LOCKED(f);
    settle(f);
    int result = PF_OK;
    if (set && q->credits && q->credits->enabled)
        result = PF_E_BUSY;
    else if (set)
        result = pfc_enable(f, q, priority, set);
    else if (q->pfc)
        pfc_disable(f, q->pfc, priority);
    settle(f);
    return result;
}

int pf_port_credits(struct port *q, uint32_t priority, const struct pf_credit_settings *set)
{
    struct fabric *f = q->sw->fabric;
    if (priority >= q->sw->config.priority_queues ||
        (set && (set->buffer_bytes < CREDIT_BLOCK || set->buffer_bytes > (uint64_t)CREDIT_BLOCK << 30)))
        return PF_E_RANGE;
    LOCKED(f);
    settle(f);
    int result = PF_OK;
    if (set && q->pfc && q->pfc->enabled)
        result = PF_E_BUSY;
    else if (set && q->credits && q->credits->classes[priority].buffer &&
             set->buffer_bytes / CREDIT_BLOCK != q->credits->classes[priority].buffer)
        result = PF_E_EXISTS; /* what was promised cannot be taken back */
    else if (set)
        result = credits_enable(f, q, priority, set);
    else if (q->credits && q->credits->enabled >> priority & 1)
        credits_disable(f, q->credits, priority);
    settle(f);
    return result;
}

/* The time until which counters are read; an idle loop leaves its own behind. */
static uint64_t time_of_reading(const struct fabric *f)
{
    return f->real ? clock_read(f) : f->now;
}

uint32_t pf_port_pfc_stats(struct port *q, struct pf_pfc_stats *out)
{
    struct fabric *f = q->sw->fabric;
    LOCKED(f);
    uint32_t enabled = q->pfc ? q->pfc->enabled : 0;
    if (q->pfc)
        pfc_read(q->pfc, time_of_reading(f), out);
    return enabled;
}

uint32_t pf_port_credit_stats(struct port *q, struct pf_credit_stats *out)
{
    struct fabric *f = q->sw->fabric;
    LOCKED(f);
    uint32_t enabled = q->credits ? q->credits->enabled : 0;
    if (q->credits)
        credits_read(q->credits, time_of_reading(f), out);
    return enabled;
}
