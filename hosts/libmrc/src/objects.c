/* What objects of all kinds are made of: tables of their numbers, memory shared with the agent, bells, and their ends. */
#include "internal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

/* -- tables ------------------------------------------------------------------------------------------------------- */

void add_node(struct lab_context *context, struct table *table, struct node *node, uint32_t number)
{
	struct node **bucket = &table->bucket[number % BUCKETS];

	pthread_mutex_lock(&context->table_lock);
	node->number = number;
	node->next = *bucket;
	*bucket = node;
	pthread_mutex_unlock(&context->table_lock);
}

uint32_t remove_node(struct lab_context *context, struct table *table, struct node *node, const uint32_t *async_taken)
{
	struct node **at = &table->bucket[node->number % BUCKETS];
	uint32_t taken;

	pthread_mutex_lock(&context->event_lock);
	pthread_mutex_lock(&context->table_lock);
	while (*at && *at != node)
		at = &(*at)->next;
	if (*at)
		*at = node->next;
	taken = *async_taken;
	pthread_mutex_unlock(&context->table_lock);
	pthread_mutex_unlock(&context->event_lock);
	return taken;
}

struct node *table_find(const struct table *table, uint32_t number)
{
	struct node *node = table->bucket[number % BUCKETS];

	while (node && node->number != number)
		node = node->next;
	return node;
}

/* -- shared memory and bells -------------------------------------------------------------------------------------- */

int lab_map(struct ring *ring, int fd, uint64_t capacity, size_t entry_bytes)
{
	void *memory;

	/* A capacity that is no power of two, or large, is not the agent's. */
	if (!capacity || capacity & (capacity - 1) || capacity > 1 << 24)
		return EPROTO;
	memset(ring, 0, sizeof(*ring));
	ring->bytes = RING_HEAD_BYTES + capacity * entry_bytes;
	memory = mmap(NULL, ring->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		return errno;
	ring->words = memory;
	ring->entries = (unsigned char *)memory + RING_HEAD_BYTES;
	ring->capacity = capacity;
	ring->entry_bytes = entry_bytes;
	return 0;
}

void lab_unmap(struct ring *ring)
{
	if (ring->words)
		munmap((void *)ring->words, ring->bytes);
	ring->words = NULL;
}

/* Return a file descriptor for programs, readable while a bell has something, or once the agent is gone. Without that a
 * program would wait for ever for an agent that cannot ring any more. */
int lab_watch(int bell, const struct lab_context *context)
{
	int fd = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event rings = {.events = EPOLLIN};
	struct epoll_event hang_up = {.events = EPOLLRDHUP};

	if (fd < 0)
		return -1;
	if (!epoll_ctl(fd, EPOLL_CTL_ADD, bell, &rings) &&
	    !epoll_ctl(fd, EPOLL_CTL_ADD, context->connection.fd, &hang_up))
		return fd;
	close(fd);
	return -1;
}

int lab_wait(struct lab_context *context, int fd, int bell)
{
	struct pollfd ready[2] = {{.fd = bell, .events = POLLIN}, {.fd = context->connection.fd, .events = POLLRDHUP}};
	int flags;

	if (atomic_load(&context->connection.state) == CONNECTION_FORKED)
		return ENODEV;
	flags = fcntl(fd, F_GETFL);
	for (;;) {
		uint64_t one;
		int found = poll(ready, 2, flags >= 0 && flags & O_NONBLOCK ? 0 : -1);

		if (found < 0)
			return errno;
		if (!found)
			return EAGAIN;
		if (ready[0].revents & POLLIN && read(bell, &one, sizeof(one)) == sizeof(one))
			return 0;
		if (ready[1].revents && connection_lost(&context->connection))
			return ENODEV;
	}
}

/* -- ends --------------------------------------------------------------------------------------------------------- */

void await_acknowledgements(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *completed,
				   uint32_t taken)
{
	pthread_mutex_lock(mutex);
	while (*completed != taken)
		pthread_cond_wait(cond, mutex);
	pthread_mutex_unlock(mutex);
	pthread_mutex_destroy(mutex);
	pthread_cond_destroy(cond);
}
