/* The event list: a four-ary heap ordered by time, ties by when they were planned, so that a run is deterministic. */
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

static void place(struct fabric *f, uint32_t pos, struct heap_entry e)
{
    f->heap[pos] = e;
    e.timer->pos = pos;
}

static void sift_up(struct fabric *f, uint32_t pos, struct heap_entry e)
{
    while (pos > 0) {
        uint32_t parent = (pos - 1) / 4;
        if (!before(&e, &f->heap[parent]))
            break;
        place(f, pos, f->heap[parent]);
        pos = parent;
    }
    place(f, pos, e);
}

static void sift_down(struct fabric *f, uint32_t pos, struct heap_entry e)
{
    for (;;) {
        uint32_t first = pos * 4 + 1, best = pos;
        const struct heap_entry *least = &e;
        for (uint32_t c = first; c < first + 4 && c < f->heap_size; c++)
            if (before(&f->heap[c], least)) {
                least = &f->heap[c];
                best = c;
            }
        if (best == pos)
            break;
        place(f, pos, f->heap[best]);
        pos = best;
    }
    place(f, pos, e);
}

struct order next_order(struct fabric *f)
{
    bool here = f->after == PF_NO_TIME || f->after == f->now;
    return (struct order){here ? 2 * f->now : 2 * f->after + 1, ++f->seq};
}

/* Arms or moves a timer. Running out of memory for the event list is the one error that ends the process. */
void timer_arm(struct fabric *f, struct timer *t, uint64_t time, struct order order)
{
    struct heap_entry e = {time, order, t};
    t->time = time;
    if (t->pos != NO_POS) {
        if (before(&e, &f->heap[t->pos]))
            sift_up(f, t->pos, e);
        else
            sift_down(f, t->pos, e);
        return;
    }
    if (f->heap_size == f->heap_capacity) {
        uint32_t capacity = f->heap_capacity ? 2 * f->heap_capacity : 256;
        struct heap_entry *grown = realloc(f->heap, capacity * sizeof *grown);
        if (!grown) {
            fputs("p4lite: out of memory for the event list\n", stderr);
            abort();
        }
        f->heap = grown;
        f->heap_capacity = capacity;
    }
    sift_up(f, f->heap_size++, e);
}

void timer_cancel(struct fabric *f, struct timer *t)
{
    uint32_t pos = t->pos;
    if (pos == NO_POS)
        return;
    t->pos = NO_POS;
    struct heap_entry last = f->heap[--f->heap_size];
    if (pos == f->heap_size)
        return;
    if (pos > 0 && before(&last, &f->heap[(pos - 1) / 4]))
        sift_up(f, pos, last);
    else
        sift_down(f, pos, last);
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

/* Executes the first event of the list. */
void run_step(struct fabric *f)
{
    struct timer *t = f->heap[0].timer;
    if (t->time > f->now)
        f->now = t->time;
    f->events++;
    switch (t->kind) {
    case TIMER_LINK: /* moves its own timer on to the next packet */
        linkdir_arrived(f, CONTAINER(struct linkdir, timer, t));
        break;
    case TIMER_PORT:
        timer_cancel(f, t);
        /* the loop may be late; the transmitter goes on from when it was due, so that the rate holds */
        port_serve(f, CONTAINER(struct port, timer, t), t->time);
        break;
    case TIMER_PACKET:
        timer_cancel(f, t);
        linkdir_arrived_late(f, CONTAINER(struct packet, timer, t));
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
    while (f->heap_size && f->heap[0].time <= until)
        run_step(f);
}
