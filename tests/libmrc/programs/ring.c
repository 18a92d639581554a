/*
 * Two threads at the ends of one ring of `ring.h`: every entry arrives whole and in order.
 *
 * Usage: ring ENTRIES CAPACITY. Exit status: 0, 1 (an entry was torn, lost or too early, which stderr says), 2 (usage).
 */
#include "ring.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define WORDS 8

struct entry {
	uint64_t words[WORDS];
};

static _Atomic uint64_t words[RING_HEAD_BYTES / sizeof(uint64_t)];
static struct entry *entries;
static uint64_t capacity, count;

static struct ring end(void)
{
	return (struct ring){.words = words,
			     .entries = (unsigned char *)entries,
			     .capacity = capacity,
			     .entry_bytes = sizeof(struct entry)};
}

static void *produce(void *unused)
{
	struct ring ring = end();

	while (ring.place < count) {
		if (!ring_room(&ring)) {
			sched_yield();
			continue;
		}
		struct entry *entry = ring_at(&ring, ring.place++);

		for (int word = 0; word < WORDS; word++)
			entry->words[word] = ring.place + (uint64_t)word;
		ring_publish(&ring);
	}
	return unused;
}

static int consume(void)
{
	struct ring ring = end();

	while (ring.place < count) {
		uint64_t pending = ring_pending(&ring);

		if (!pending)
			sched_yield();
		if (pending > capacity) {
			fprintf(stderr, "%llu entries wait in a ring of %llu\n", (unsigned long long)pending,
				(unsigned long long)capacity);
			return 1;
		}
		while (pending--) {
			const struct entry *entry = ring_at(&ring, ring.place++);

			for (int word = 0; word < WORDS; word++) {
				uint64_t wanted = ring.place + (uint64_t)word;

				if (entry->words[word] == wanted)
					continue;
				fprintf(stderr, "entry %llu: word %d is %llu\n", (unsigned long long)ring.place, word,
					(unsigned long long)entry->words[word]);
				return 1;
			}
			ring_release(&ring);
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	pthread_t producer;

	if (argc != 3)
		return 2;
	count = strtoull(argv[1], NULL, 10);
	capacity = strtoull(argv[2], NULL, 10);
	if (!capacity || capacity & (capacity - 1))
		return 2;
	entries = calloc(capacity, sizeof *entries);
	if (!entries || pthread_create(&producer, NULL, produce, NULL))
		return 2;
	int code = consume();

	if (code)
		return code; /* The producer may wait for ever. */
	pthread_join(producer, NULL);
	free(entries);
	return 0;
}
