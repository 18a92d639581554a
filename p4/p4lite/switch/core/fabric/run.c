/* The two clocks: running to a given time, and a thread that follows CLOCK_MONOTONIC. */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "run.h"

#define EVENTS_PER_LOCK 512u /* then control operations get their turn */
#define EPOLL_EVENTS 64

/* How long the loop looks at the rings of its interfaces before it sleeps: as long as falling asleep and being woken
 * takes, so that looking in vain at most doubles the cost. Under load this spares the call, the sender's wake-up of
 * another CPU, and batches of few packets. */
#define LOOK_NS 10000u
/* How long the loop looks at rings alone; then epoll tells of tunnels, links and wake-ups, too. */
#define ASK_NS 50000u
/* And in rounds, during which it sleeps. */
#define ASK_ROUNDS 8u
/* How long packets gather in the rings between two looks. */
#define GATHER_NS 5000u

/* When the kernel is offered again what it has not taken. */
#define AGAIN_NS 100000u

static void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

void settle(struct fabric *f)
{
    drain(f);
    if (!f->real)
        return;
    uint64_t wall = clock_read(f);
    if (next_time(f) < wall)
        wall = next_time(f); /* the loop is about to do this first */
    if (wall > f->now)
        f->now = wall;
    if (f->running) {
        uint64_t one = 1;
        if (write(f->wake_fd, &one, sizeof one) < 0 && errno != EAGAIN)
            return; /* the loop wakes up by itself at the latest at its next event */
    }
    devices_flush(f);
}

#define MAX_EVENTS_PER_INSTANT (1u << 22)

static void tick_all(struct fabric *f)
{
    for (struct sw *s = f->switches; s; s = s->next)
        if (s->instance)
            s->instance->now_ns = f->now;
}

/* Executes the next event, of which there is one. */
static void run_step(struct fabric *f)
{
    struct timer *t = next_events(f)->heap[0].timer;
    if (t->time > f->now)
        f->now = t->time;
    f->events++;
    t->due(f, t);
    drain(f);
}

/* Delivers what is on its way to the outside and arrives until then: nothing that happens meanwhile can change it, unless
 * a link is changed, which does not happen before `until`. */
static void foresee(struct fabric *f, uint64_t until)
{
    while (f->outbox.size && f->outbox.heap[0].time <= until) {
        struct timer *t = f->outbox.heap[0].timer;
        f->events++;
        t->due(f, t);
    }
}

static int run_virtual(struct fabric *f, uint64_t limit, bool stop_on_delivery, bool foresight)
{
    uint64_t instant = f->now, at_instant = 0;
    bool stopping = !stop_on_delivery;
    for (;;) {
        if (foresight && f->outbox.size) {
            /* an answer to what arrives outside is under way until then + lookahead: stay before that */
            uint64_t first = f->outbox.heap[0].time;
            if (f->lookahead_ns - 1 < limit - first && first < limit)
                limit = first + f->lookahead_ns - 1;
        }
        if (next_time(f) > limit)
            break;
        run_step(f);
        if (f->now != instant) {
            instant = f->now;
            at_instant = 0;
        } else if (++at_instant > MAX_EVENTS_PER_INSTANT) {
            return PF_E_LOOP;
        }
        if (!stopping && f->ndeliveries) {
            /* an answer to the first is under way until first + lookahead: stay before that */
            uint64_t first = f->deliveries[0].time_ns, ahead = f->lookahead_ns ? f->lookahead_ns - 1 : 0;
            stopping = true;
            if (ahead < limit - first)
                limit = first + ahead;
        }
    }
    if (limit > f->now)
        f->now = limit;
    return PF_OK;
}

/* `foresee_ns`: also what arrives outside until then is delivered, as far as it is certain. */
static int run_locked(struct fabric *f, uint64_t until_ns, uint32_t stop_on_delivery, uint64_t foresee_ns, struct pf_batch *out)
{
    if (f->real)
        return PF_E_CLOCK;
    if (until_ns == PF_NO_TIME) /* "never" is due then */
        return PF_E_RANGE;
    if (until_ns < f->now && !stop_on_delivery)
        return PF_E_PAST;
    deliveries_clear(f);
    bool hand_out = until_ns < f->now || (stop_on_delivery && f->ndeliveries); /* before time goes on */
    bool foresight = foresee_ns > f->now && f->foresight_ns && f->lookahead_ns && !f->trace;
    int result = hand_out ? PF_OK : run_virtual(f, until_ns, stop_on_delivery, foresight);
    uint64_t known = f->now;
    if (foresight && !hand_out && result == PF_OK) {
        known = f->foresight_ns < foresee_ns - f->now ? f->now + f->foresight_ns : foresee_ns;
        foresee(f, known);
    }
    f->known = known > f->known ? known : f->known;
    if (f->now >= foresee_ns)
        tick_all(f); /* control operations may follow */
    f->deliveries_taken = true;
    *out = (struct pf_batch){f->deliveries, f->ndeliveries, f->now, f->known};
    return result;
}

int pf_run(struct fabric *f, uint64_t until_ns, uint32_t stop_on_delivery, struct pf_batch *out)
{
    LOCKED(f);
    return run_locked(f, until_ns, stop_on_delivery, 0, out);
}

/* -- hosts of the virtual clock, many at once: one call takes what they send, and brings what concerns them --------- */

int pf_transmitters(struct fabric *f, struct port *const *ports, uint32_t count, struct pf_transmitter *transmitters,
                    uint64_t *lookahead_ns)
{
    if (f->real)
        return PF_E_CLOCK;
    LOCKED(f);
    for (uint32_t i = 0; i < count; i++) {
        const struct linkdir *d = &ports[i]->host_in;
        transmitters[i] = (struct pf_transmitter){d->set.rate_bps, d->set.overhead_bytes, d->set.host_queue_bytes,
                                                  d->free_at, d->rate_rest};
    }
    *lookahead_ns = f->lookahead_ns;
    return PF_OK;
}

/* Packets as long as these refer to their sender's bytes behind the first ones, where the headers are. */
#define BORROW_LEAST 1024u
#define BORROW_HEAD 256u

/* What is next of pieces. */
struct pieces {
    struct pf_piece *at;
    uint64_t used; /* of that piece */
};

static void pieces_read(struct pieces *from, uint8_t *to, uint64_t bytes)
{
    while (bytes) {
        uint64_t left = from->at->length - from->used, part = left < bytes ? left : bytes;
        memcpy(to, from->at->bytes + from->used, part);
        to += part;
        bytes -= part;
        from->used += part;
        if (part == left)
            *from = (struct pieces){from->at + 1, 0};
    }
}

/* The piece in which a packet ends, if that lends all but the head and the tail; NULL otherwise. */
static struct pf_piece *pieces_lender(const struct pieces *from, uint32_t bytes)
{
    struct pf_piece *piece = from->at;
    uint64_t left = bytes, has = piece->length - from->used;
    while (has < left) {
        left -= has;
        has = (++piece)->length;
    }
    return piece->owner && has == left && bytes - left <= BORROW_HEAD ? piece : NULL;
}

static int port_inject(struct fabric *f, struct port *q, struct pieces *from, uint32_t len, uint32_t missing,
                       uint64_t at_ns, uint64_t *free_at)
{
    struct linkdir *d = &q->host_in;
    if (len > MAX_PACKET || (missing && (uint64_t)missing + PF_LEAST_STORED > len))
        return PF_E_RANGE;
    if (q->peer_kind != PEER_EXTERNAL)
        return PF_E_BUSY;
    if (!f->real && (at_ns < d->last_inject || at_ns + d->set.delay_ns < f->now))
        return PF_E_PAST;
    struct pf_piece *lender = f->real || missing || len < BORROW_LEAST ? NULL : pieces_lender(from, len);
    uint32_t stored = lender ? BORROW_HEAD + PF_TAIL_BYTES : len - missing;
    struct packet *p = packet_new(f, stored);
    if (p && lender && !packet_borrow(f, p, lender->owner)) {
        packet_free(f, p);
        p = NULL;
    }
    if (!p)
        return PF_E_MEMORY;
    d->last_inject = at_ns;
    p->len = len;
    p->missing = len - stored;
    p->tail = p->missing ? PF_TAIL_BYTES : 0;
    if (lender) {
        pieces_read(from, p->data, BORROW_HEAD);
        p->middle = from->at->bytes + from->used;
        from->used += p->missing;
        pieces_read(from, p->data + BORROW_HEAD, PF_TAIL_BYTES);
        lender->owner = NULL;
    } else {
        pieces_read(from, p->data, stored);
    }
    *free_at = host_sends(f, q, p, at_ns);
    return PF_OK;
}

int pf_port_inject(struct port *q, const uint8_t *data, uint32_t len, uint64_t at_ns, uint64_t *free_at)
{
    struct fabric *f = q->sw->fabric;
    uint64_t free;
    struct pf_piece piece = {data, len, NULL};
    LOCKED(f);
    int result = port_inject(f, q, &(struct pieces){&piece, 0}, len, 0, at_ns, &free);
    if (result == PF_OK && free_at)
        *free_at = free;
    if (result == PF_OK && f->real)
        settle(f); /* wakes the loop */
    return result;
}

static int send_locked(struct fabric *f, struct port *const *ports, const struct pf_send *sends, uint64_t count,
                       struct pf_piece *pieces, uint64_t *told)
{
    uint64_t surprises = 0;
    struct pieces from = {pieces, 0};
    int result = f->real ? PF_E_CLOCK : PF_OK;
    for (uint64_t i = 0; i < count && result == PF_OK; i++) {
        const struct pf_send *s = &sends[i];
        uint64_t free_at = 0;
        f->sending_at = s->at_ns;
        result = port_inject(f, ports[s->port], &from, s->length, s->missing, s->at_ns, &free_at);
        surprises += free_at != s->free_at_ns;
        *told = result == PF_OK ? surprises : i;
    }
    f->sending_at = PF_NO_TIME;
    return result;
}

int pf_send(struct fabric *f, struct port *const *ports, const struct pf_send *sends, uint64_t count,
            struct pf_piece *pieces, uint64_t *told)
{
    *told = 0;
    LOCKED(f);
    return send_locked(f, ports, sends, count, pieces, told);
}

int pf_exchange(struct fabric *f, struct port *const *ports, const struct pf_send *sends, uint64_t count,
                struct pf_piece *pieces, uint64_t until_ns, uint64_t foresee_ns, uint64_t *told, struct pf_batch *out)
{
    *told = 0;
    *out = (struct pf_batch){0};
    LOCKED(f);
    int result = send_locked(f, ports, sends, count, pieces, told);
    if (result == PF_OK)
        result = run_locked(f, until_ns, 1, foresee_ns, out);
    return result;
}

/* -- the real clock ------------------------------------------------------------------------------------------------- */

/* Executes what is due, and records how late it was. */
static void run_real(struct fabric *f)
{
    for (unsigned n = 0; f->list.size && n < EVENTS_PER_LOCK; n++) { /* there is no outbox on this clock */
        if ((n & 15) == 0)
            f->wall = clock_read(f);
        const struct timer *t = f->list.heap[0].timer;
        uint64_t due = t->time;
        if (due > f->wall)
            break;
        histogram_add(&f->lag, f->wall - due);
        if (t->due == port_due) {
            struct port *q = CONTAINER(struct port, timer, (uintptr_t)t);
            histogram_add(&q->lag, f->wall - due);
        }
        run_step(f);
    }
}

/* Nanoseconds until the next event; 0: now; PF_NO_TIME: nothing planned. */
static uint64_t until_next(struct fabric *f)
{
    uint64_t next = next_time(f);
    if (next == PF_NO_TIME)
        return next;
    uint64_t wall = clock_read(f);
    return next > wall ? next - wall : 0;
}

static int wait_for(struct fabric *f, struct epoll_event *events, uint64_t wait)
{
    if (wait == PF_NO_TIME)
        return epoll_wait(f->epoll_fd, events, EPOLL_EVENTS, -1);
    struct timespec ts = {(time_t)(wait / 1000000000u), (long)(wait % 1000000000u)};
    return epoll_pwait2(f->epoll_fd, events, EPOLL_EVENTS, &ts, NULL);
}

/* Packets of one device; then what became due meanwhile, so that a round over many ports makes no link late. */
static void take_from(struct fabric *f, struct device *d)
{
    uint64_t wall = clock_read(f);
    if (wall > f->now)
        f->now = wall;
    device_receive(f, d);
    run_real(f);
    if (!f->round_ns) /* one call sends what a round has for all interfaces */
        devices_flush(f);
    if (atomic_load_explicit(&f->lock.waiting, memory_order_relaxed) > 0) {
        p4_unlock(&f->lock);
        p4_lock_packets(&f->lock);
    }
}

/* One source of input that epoll named. */
static bool attend(struct fabric *f, void *source)
{
    if (source == &f->wake_fd) {
        uint64_t counter;
        ssize_t got = read(f->wake_fd, &counter, sizeof counter);
        (void)got; /* empty: one wake-up stood for two calls */
        return false;
    }
    if (source == &f->netlink_fd) {
        device_link_event(f);
        return false;
    }
    take_from(f, source);
    return true;
}

/* The devices whose rings hold packets, without asking the kernel. A device stays in the list when its port goes. */
static bool look(struct fabric *f)
{
    bool work = false;
    for (struct device *d = f->devices; d; d = d->next)
        if (device_has_input(d)) {
            take_from(f, d);
            work = true;
        }
    return work;
}

/* What became due or arrived since the last round is done in one: a wake-up costs more than a packet. */
static void rest(const struct fabric *f, uint64_t began)
{
    uint64_t next = f->origin + began + f->round_ns;
    struct timespec until = {(time_t)(next / 1000000000u), (long)(next % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
}

/* Looks again after GATHER_NS only: a ring that is read while the sender writes it slows both, and packets cost less by
 * the batch. An event that is due before is not late. */
static void gather(const struct fabric *f, uint64_t began, uint64_t next)
{
    uint64_t until = next < began + GATHER_NS ? next : began + GATHER_NS;
    while (clock_read(f) < until)
        for (unsigned i = 0; i < 16; i++)
            cpu_relax();
}

static void *loop(void *argument)
{
    struct fabric *f = argument;
    struct epoll_event events[EPOLL_EVENTS];
    prctl(PR_SET_TIMERSLACK, 1);
    prctl(PR_SET_NAME, "p4lite-fabric");
    uint64_t last_work = 0, last_input = 0, asked = 0, wait = 0;
    bool looking = false; /* the last packets came soon after those before */
    const struct sched_param lowest = {.sched_priority = 1};
    f->start_errno = f->realtime && sched_setscheduler(0, SCHED_RR, &lowest) != 0 ? errno : 0;
    bool refused = f->start_errno != 0;
    pthread_barrier_wait(&f->started);
    if (refused)
        return NULL;
    while (!atomic_load(&f->stop_requested)) {
        if (f->busy_poll_ns && clock_read(f) - last_work < f->busy_poll_ns)
            wait = 0;
        uint64_t patience = !f->round_ns ? ASK_NS : f->tunnels ? 0 : ASK_ROUNDS * f->round_ns;
        bool ask = !looking || last_work - asked >= patience;
        int count = ask ? wait_for(f, events, looking ? 0 : wait) : 0;
        p4_lock_packets(&f->lock);
        uint64_t began = clock_read(f), events_before = f->events;
        f->wall = began;
        run_real(f);
        bool work = !ask && look(f);
        asked = ask ? began : asked;
        for (int i = 0; i < count; i++)
            work |= attend(f, events[i].data.ptr);
        run_real(f);
        bool left = devices_flush(f);
        wait = until_next(f);
        if (left && wait > AGAIN_NS)
            wait = AGAIN_NS;
        if (f->captures_dirty && wait > 1000000)
            pcap_flush(f);
        uint64_t ended = clock_read(f);
        if (work || f->events != events_before) {
            histogram_add(&f->busy, ended - began);
            last_work = ended;
        }
        if (work) {
            looking = f->round_ns || began - last_input < LOOK_NS;
            last_input = ended;
        } else if (f->round_ns || ended - last_input >= LOOK_NS) {
            looking = false;
        }
        uint64_t next = next_time(f);
        p4_unlock(&f->lock);
        if (looking && !f->round_ns)
            gather(f, began, next);
        if (f->round_ns) {
            rest(f, began);
            uint64_t rested = clock_read(f) - ended;
            wait = wait == PF_NO_TIME ? wait : wait > rested ? wait - rested : 0;
        }
    }
    return NULL;
}

int pf_start(struct fabric *f)
{
    if (!f->real || f->running)
        return PF_E_CLOCK;
    atomic_store(&f->stop_requested, false);
    int error = pthread_create(&f->thread, NULL, loop, f);
    if (error == 0) {
        pthread_barrier_wait(&f->started);
        error = f->start_errno;
        if (error)
            pthread_join(f->thread, NULL);
    }
    if (error) {
        errno = error;
        return PF_E_SYSTEM;
    }
    LOCKED(f);
    f->running = true;
    if (pthread_getcpuclockid(f->thread, &f->cpu_clock) != 0)
        f->cpu_clock = CLOCK_PROCESS_CPUTIME_ID;
    f->lag_since = clock_read(f);
    f->lag_cpu_since = clock_ns(f->cpu_clock);
    f->lag_events_since = f->events;
    return PF_OK;
}

int pf_stop(struct fabric *f)
{
    if (!f->running)
        return PF_OK;
    atomic_store(&f->stop_requested, true);
    uint64_t one = 1;
    if (write(f->wake_fd, &one, sizeof one) < 0 && errno != EAGAIN)
        return PF_E_SYSTEM;
    pthread_join(f->thread, NULL);
    f->running = false;
    pcap_flush(f);
    return PF_OK;
}

void pf_lateness(struct fabric *f, struct pf_lateness *out, uint32_t reset)
{
    LOCKED(f);
    uint64_t wall = f->real ? clock_read(f) : 0, cpu = f->running ? clock_ns(f->cpu_clock) : f->lag_cpu_since;
    *out = (struct pf_lateness){histogram_read(&f->lag), histogram_read(&f->busy), cpu - f->lag_cpu_since,
                                wall - f->lag_since, f->events - f->lag_events_since};
    if (reset) {
        memset(&f->lag, 0, sizeof f->lag);
        memset(&f->busy, 0, sizeof f->busy);
        f->lag_since = wall;
        f->lag_cpu_since = cpu;
        f->lag_events_since = f->events;
    }
}
