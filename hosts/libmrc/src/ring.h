/*
 * The two ends of a ring in shared memory, as in `mrc_host/verbs/layout.py`: one producer, one consumer, no lock.
 *
 * A counter is published with release order after the entries that it stands for, and read with acquire order before
 * them. tests/libmrc/test_memory_model.py explores this algorithm under a weak memory model.
 */
#ifndef LIBMRC_RING_H
#define LIBMRC_RING_H

#include "layout.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "counters of a ring are single instructions");

struct ring {
	_Atomic uint64_t *words;
	unsigned char *entries;
	uint64_t capacity;
	size_t entry_bytes;
	uint64_t place; /* own tail of a producer, own head of a consumer */
	size_t bytes;   /* of the mapping */
};

static inline void *ring_at(const struct ring *ring, uint64_t number)
{
	return ring->entries + (number & (ring->capacity - 1)) * ring->entry_bytes;
}

/* Return how many entries fit. A consumer that has written nonsense leaves room for none. */
static inline uint64_t ring_room(const struct ring *ring)
{
	uint64_t used = ring->place - atomic_load_explicit(&ring->words[RING_HEAD], memory_order_acquire);

	return used <= ring->capacity ? ring->capacity - used : 0;
}

static inline void ring_publish(struct ring *ring)
{
	atomic_store_explicit(&ring->words[RING_TAIL], ring->place, memory_order_release);
}

/* Return how many entries the producer has added since the beginning. */
static inline uint64_t ring_produced(const struct ring *ring)
{
	return atomic_load_explicit(&ring->words[RING_TAIL], memory_order_acquire);
}

/* Return how many entries wait; more than `capacity` where the producer has written nonsense. */
static inline uint64_t ring_pending(const struct ring *ring)
{
	return ring_produced(ring) - ring->place;
}

static inline void ring_release(struct ring *ring)
{
	atomic_store_explicit(&ring->words[RING_HEAD], ring->place, memory_order_release);
}

static inline uint64_t ring_noted(const struct ring *ring)
{
	return atomic_load_explicit(&ring->words[RING_NOTED], memory_order_acquire);
}

#endif
