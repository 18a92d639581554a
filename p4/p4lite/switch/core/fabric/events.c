/* The event lists: four-ary heaps ordered by time, ties by when they were planned, so that a run is deterministic. */
#include <stdlib.h>

#include "internal.h"

static inline bool before(const struct heap_entry *a, const struct heap_entry *b)
{
    if (a->time != b->time)
        return a->time < b->time;
    if (a->order.born != b->order.born)
        return a->order.born < b->order.born;
    return a->order.seq < b->order.seq;
}

static void place(struct event_list *l, uint32_t pos, struct heap_entry e)
{
    l->heap[pos] = e;
    e.timer->pos = pos;
}

static void sift_up(struct event_list *l, uint32_t pos, struct heap_entry e)
{
    while (pos > 0) {
        uint32_t parent = (pos - 1) / 4;
        if (!before(&e, &l->heap[parent]))
            break;
        place(l, pos, l->heap[parent]);
        pos = parent;
    }
    place(l, pos, e);
}

static void sift_down(struct event_list *l, uint32_t pos, struct heap_entry e)
{
    for (;;) {
        uint32_t first = pos * 4 + 1, best = pos;
        const struct heap_entry *least = &e;
        for (uint32_t c = first; c < first + 4 && c < l->size; c++)
            if (before(&l->heap[c], least)) {
                least = &l->heap[c];
                best = c;
            }
        if (best == pos)
            break;
        place(l, pos, l->heap[best]);
        pos = best;
    }
    place(l, pos, e);
}

struct order next_order(struct fabric *f)
{
    return (struct order){2 * f->now, ++f->seq};
}

/* Arms or moves a timer. Running out of memory for the event list is the one error that ends the process. */
void timer_arm(struct fabric *f, struct timer *t, uint64_t time, struct order order)
{
    struct event_list *l = t->outbound ? &f->outbox : &f->list;
    struct heap_entry e = {time, order, t};
    t->time = time;
    if (t->pos != NO_POS) {
        if (before(&e, &l->heap[t->pos]))
            sift_up(l, t->pos, e);
        else
            sift_down(l, t->pos, e);
        return;
    }
    if (l->size == l->capacity) {
        uint32_t capacity = l->capacity ? 2 * l->capacity : 256;
        struct heap_entry *grown = realloc(l->heap, capacity * sizeof *grown);
        if (!grown) {
            fputs("p4lite: out of memory for the event list\n", stderr);
            abort();
        }
        l->heap = grown;
        l->capacity = capacity;
    }
    sift_up(l, l->size++, e);
}

void timer_cancel(struct fabric *f, struct timer *t)
{
    struct event_list *l = t->outbound ? &f->outbox : &f->list;
    uint32_t pos = t->pos;
    if (pos == NO_POS)
        return;
    t->pos = NO_POS;
    struct heap_entry last = l->heap[--l->size];
    if (pos == l->size)
        return;
    if (pos > 0 && before(&last, &l->heap[(pos - 1) / 4]))
        sift_up(l, pos, last);
    else
        sift_down(l, pos, last);
}

/* Work that an event left behind at the same instant: ports with new packets first, in the order in which
 * they got them, then resubmitted and recirculated packets. */
void drain(struct fabric *f)
{
    for (;;) {
        struct port *q = f->kicked_head;
        if (q) {
            f->kicked_head = q->next_kicked;
            if (!f->kicked_head)
                f->kicked_tail = NULL;
            q->kicked = false;
            port_serve(f, q, f->now);
            continue;
        }
        struct packet *p = list_pop(&f->again);
        if (!p)
            return;
        target_again(f, p);
    }
}

#define CONTAINER(type, member, at) ((type *)(void *)((char *)(at) - offsetof(type, member)))

/* The list that has the next event, NULL when there is none. */
struct event_list *next_events(struct fabric *f)
{
    if (!f->outbox.size)
        return f->list.size ? &f->list : NULL;
    return f->list.size && before(&f->list.heap[0], &f->outbox.heap[0]) ? &f->list : &f->outbox;
}

uint64_t next_time(struct fabric *f)
{
    const struct event_list *l = next_events(f);
    return l ? l->heap[0].time : PF_NO_TIME;
}

/* What a packet's arrival is, in the order of a wire or past it. */
static void arrived(struct fabric *f, struct timer *t)
{
    if (t->kind == TIMER_LINK) { /* moves its own timer on to the next packet */
        linkdir_arrived(f, CONTAINER(struct linkdir, timer, t), t->time);
        return;
    }
    timer_cancel(f, t);
    linkdir_arrived_late(f, CONTAINER(struct packet, timer, t), t->time);
}

/* Executes the next event, of which there is one. */
void run_step(struct fabric *f)
{
    struct timer *t = next_events(f)->heap[0].timer;
    if (t->time > f->now)
        f->now = t->time;
    f->events++;
    switch (t->kind) {
    case TIMER_LINK:
    case TIMER_PACKET:
        arrived(f, t);
        break;
    case TIMER_PORT:
        timer_cancel(f, t);
        /* the loop may be late; the transmitter goes on from when it was due, so that the rate holds */
        port_serve(f, CONTAINER(struct port, timer, t), t->time);
        break;
    case TIMER_PFC:
        timer_cancel(f, t);
        pfc_fire(f, CONTAINER(struct pfc, timer, t));
        break;
    case TIMER_CREDITS:
        timer_cancel(f, t);
        credits_fire(f, CONTAINER(struct credits, timer, t));
        break;
    case TIMER_STORM:
        timer_cancel(f, t);
        storm_fire(f, CONTAINER(struct port, storm, t));
        break;
    default:
        source_fire(f, CONTAINER(struct source, timer, t));
        break;
    }
    drain(f);
}

void run_due(struct fabric *f, uint64_t until)
{
    while (next_time(f) <= until)
        run_step(f);
}

/* Delivers what is on its way to the outside and arrives until then: nothing that happens meanwhile can change it, unless
 * a link is changed, which does not happen before `until`. */
void foresee(struct fabric *f, uint64_t until)
{
    while (f->outbox.size && f->outbox.heap[0].time <= until) {
        f->events++;
        arrived(f, f->outbox.heap[0].timer);
    }
}
