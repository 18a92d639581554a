/* The control functions of fabric.h: each takes the lock, so it falls between two batches of packets. */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

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
    f->switches_tail = &f->switches;
    f->lookahead_ns = f->sending_at = PF_NO_TIME;
    f->epoll_fd = f->wake_fd = f->netlink_fd = -1;
    f->notify_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (f->real) {
        struct timespec ts;
        f->origin = clock_read(f);
        clock_gettime(CLOCK_REALTIME, &ts);
        f->epoch_ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
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

static void port_free(struct fabric *f, struct port *q)
{
    pcap_close(q);
    free(q->pfc);
    while (q->sources) {
        struct source *next = q->sources->next;
        source_free(f, q->sources);
        q->sources = next;
    }
    free(q);
}

void pf_destroy(struct fabric *f)
{
    pf_stop(f);
    for (struct sw *s = f->switches; s; s = s->next) /* packets may refer to any port */
        for (uint32_t i = 0; i < s->ports_size; i++)
            if (s->ports[i]) {
                device_close(f, s->ports[i]);
                credits_free(f, s->ports[i]);
            }
    while (f->switches) {
        struct sw *s = f->switches;
        f->switches = s->next;
        for (uint32_t i = 0; i < s->ports_size; i++)
            if (s->ports[i])
                port_free(f, s->ports[i]);
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
    free(f->delivered);
    pthread_mutex_destroy(&f->notify_mutex);
    pthread_barrier_destroy(&f->started);
    pthread_mutex_destroy(&f->lock.mutex);
    free(f);
}

void pf_lock(struct fabric *f)
{
    p4_lock_control(&f->lock);
}

void pf_unlock(struct fabric *f)
{
    p4_unlock(&f->lock);
}

struct p4_lock *pf_lock_address(struct fabric *f)
{
    return &f->lock;
}

uint64_t pf_now(struct fabric *f)
{
    if (f->real)
        return clock_read(f);
    pf_lock(f);
    uint64_t now = f->now;
    pf_unlock(f);
    return now;
}

uint64_t pf_events(struct fabric *f)
{
    pf_lock(f);
    uint64_t events = f->events;
    pf_unlock(f);
    return events;
}

/* Grows a zero-filled array so that `index` is in it. */
static bool reserve(void **array, uint32_t *size, uint64_t index, size_t element)
{
    if (index < *size)
        return true;
    uint64_t wanted = *size ? *size : 16;
    while (wanted <= index)
        wanted *= 2;
    uint8_t *grown = realloc(*array, wanted * element);
    if (!grown)
        return false;
    memset(grown + *size * element, 0, (wanted - *size) * element);
    *array = grown;
    *size = (uint32_t)wanted;
    return true;
}

/* The port with this number, made on the spot: programs may send to ports that were not added. */
struct port *switch_port(struct sw *s, uint32_t number)
{
    if (number < s->ports_size && s->ports[number])
        return s->ports[number];
    struct port *q = number <= MAX_PORT ? calloc(1, sizeof *q) : NULL;
    if (!q || !reserve((void **)&s->ports, &s->ports_size, number, sizeof *s->ports)) {
        free(q);
        return NULL;
    }
    q->sw = s;
    q->number = number;
    q->peer_kind = PEER_NONE;
    q->implicit = true;
    q->timer.pos = NO_POS;
    q->timer.kind = TIMER_PORT;
    q->storm.pos = NO_POS;
    q->storm.kind = TIMER_STORM;
    linkdir_init(s->fabric, &q->out, q, NULL);
    linkdir_init(s->fabric, &q->host_in, q, q);
    q->in = &q->host_in;
    for (uint32_t i = 0; i < PF_MAX_PRIORITIES; i++)
        q->queues[i].limit_packets = 64;
    s->ports[number] = q;
    return q;
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
    pf_lock(f);
    *f->switches_tail = s;
    f->switches_tail = &s->next;
    if (config->cpu_port >= 0) {
        s->cpu = switch_port(s, (uint32_t)config->cpu_port);
        if (s->cpu)
            s->cpu->peer_kind = PEER_CPU;
    }
    pf_unlock(f);
    return s;
}

static void flush_all(struct sw *s)
{
    for (uint32_t i = 0; i < s->ports_size; i++)
        if (s->ports[i])
            port_flush(s->fabric, s->ports[i]);
}

int pf_switch_load(struct sw *s, struct p4_instance *instance)
{
    if (instance && instance->program->abi != P4LITE_ABI)
        return PF_E_RANGE;
    pf_lock(s->fabric);
    flush_all(s);
    phv_pool_clear(s);
    s->instance = instance;
    s->program = instance ? instance->program : NULL;
    groups_clear(s);
    pf_switch_tick(s);
    pf_unlock(s->fabric);
    return PF_OK;
}

int pf_switch_remove(struct sw *s)
{
    pf_lock(s->fabric);
    s->state = PF_STOPPED;
    for (uint32_t i = 0; i < s->ports_size; i++)
        if (s->ports[i])
            pf_port_remove(s->ports[i]);
    pf_switch_load(s, NULL);
    groups_clear(s);
    pf_unlock(s->fabric);
    return PF_OK;
}

void pf_switch_tick(struct sw *s)
{
    pf_lock(s->fabric);
    if (s->instance)
        s->instance->now_ns = s->fabric->real ? clock_read(s->fabric) : s->fabric->now;
    pf_unlock(s->fabric);
}

static void kick_all(struct sw *s)
{
    for (uint32_t i = 0; i < s->ports_size; i++)
        if (s->ports[i] && (s->ports[i]->packets || port_has_more(s->ports[i])))
            port_kick(s->fabric, s->ports[i]);
}

int pf_switch_state(struct sw *s, uint32_t state)
{
    if (state > PF_STOPPED)
        return PF_E_RANGE;
    pf_lock(s->fabric);
    s->state = state;
    if (state == PF_STOPPED)
        flush_all(s);
    if (state == PF_RUNNING) {
        kick_all(s);
        settle(s->fabric);
    }
    pf_unlock(s->fabric);
    return PF_OK;
}

int pf_switch_restart(struct sw *s)
{
    pf_lock(s->fabric);
    flush_all(s);
    groups_clear(s);
    s->state = PF_RUNNING;
    pf_unlock(s->fabric);
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
    pf_lock(s->fabric);
    *out = s->stats;
    for (uint32_t i = 0; i < s->ports_size; i++) {
        const struct port *q = s->ports[i];
        if (!q || !q->implicit)
            continue;
        out->other_queued += q->packets;
        for (int why = 0; why < PF_PORT_DROPS; why++)
            out->other_drops[why] += q->stats.drops[why];
    }
    if (reset) {
        memset(&s->stats, 0, sizeof s->stats);
        for (uint32_t i = 0; i < s->ports_size; i++)
            if (s->ports[i])
                port_reset_stats(s->ports[i]);
    }
    pf_unlock(s->fabric);
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
    pf_lock(s->fabric);
    int result = reserve((void **)&s->groups, &s->groups_size, group, sizeof *s->groups)
                     ? group_set(&s->groups[group], replicas, count)
                     : PF_E_MEMORY;
    pf_unlock(s->fabric);
    return result;
}

int pf_switch_group_delete(struct sw *s, uint32_t group)
{
    int result = PF_E_MISSING;
    pf_lock(s->fabric);
    if (group < s->groups_size && s->groups[group].present) {
        free(s->groups[group].replicas);
        s->groups[group] = (struct group){NULL, 0, false};
        result = PF_OK;
    }
    pf_unlock(s->fabric);
    return result;
}

int pf_switch_session(struct sw *s, uint32_t session, int64_t port, int64_t group, const struct pf_replica *replicas,
                      uint32_t count, uint32_t truncate_bytes)
{
    if (session > P4_CLONE_MASK)
        return PF_E_RANGE;
    pf_lock(s->fabric);
    int result = PF_E_MEMORY;
    if (reserve((void **)&s->sessions, &s->sessions_size, session, sizeof *s->sessions)) {
        struct session *at = &s->sessions[session];
        result = group_set(&at->own, replicas, count);
        if (result == PF_OK) {
            at->port = port;
            at->group = group;
            at->truncate_to = truncate_bytes ? truncate_bytes : P4_NO_TRUNCATE;
            at->present = true;
        }
    }
    pf_unlock(s->fabric);
    return result;
}

int pf_switch_session_delete(struct sw *s, uint32_t session)
{
    int result = PF_E_MISSING;
    pf_lock(s->fabric);
    if (session < s->sessions_size && s->sessions[session].present) {
        free(s->sessions[session].own.replicas);
        memset(&s->sessions[session], 0, sizeof s->sessions[session]);
        result = PF_OK;
    }
    pf_unlock(s->fabric);
    return result;
}

int pf_switch_packet_out(struct sw *s, const uint8_t *data, uint32_t len)
{
    struct fabric *f = s->fabric;
    if (!s->cpu)
        return PF_E_MISSING;
    if (len > MAX_PACKET)
        return PF_E_RANGE;
    pf_lock(f);
    settle(f);
    struct packet *p = packet_new(f, len);
    if (p) {
        memcpy(p->data, data, len);
        p->len = len;
        target_receive(f, s->cpu, p);
        settle(f);
    }
    pf_unlock(f);
    return p ? PF_OK : PF_E_MEMORY;
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
    pf_lock(f);
    f->files_room = bytes;
    pf_unlock(f);
}
