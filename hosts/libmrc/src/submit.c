/* The ring of work requests, and when the agent is woken for what is in it. */
#include "internal.h"

#include <time.h>
#include <unistd.h>

#define ROOM_WAIT_NS 20000
#define ROOM_TIMEOUT_S 30
/* Entries that may wait in the ring without the agent's bell. It serves 256 of a program in one round, all of them before
 * a packet that has just come. */
#define QUIET_ENTRIES 64

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void ring_doorbell(const struct lab_context *context)
{
	uint64_t one = 1;

	/* A bell that is full rings already. */
	if (write(context->doorbell, &one, sizeof(one)) != sizeof(one))
		return;
}

/* Show the agent the new entries, under the lock for posting, and wake it. */
void lab_publish(struct lab_context *context)
{
	ring_publish(&context->submissions);
	context->quiet = 0;
	ring_doorbell(context);
}

/* Show the agent receives, under the lock for posting. It takes what is in the ring before it delivers a packet, and looks
 * there before it sleeps, so that it need not be woken for receives; they must not become too many for one round. */
void lab_publish_receives(struct lab_context *context, uint32_t count)
{
	context->quiet += count;
	if (context->quiet >= QUIET_ENTRIES)
		lab_publish(context);
	else
		ring_publish(&context->submissions);
}

/* Wait until `count` entries fit into the ring, under the lock for posting. */
int lab_wait_for_room(struct lab_context *context, uint32_t count)
{
	const struct timespec pause = {.tv_nsec = ROOM_WAIT_NS};
	int64_t deadline;

	if (count > context->submissions.capacity)
		return ENOMEM;
	if (ring_room(&context->submissions) >= count)
		return 0;
	deadline = now_ns() + (int64_t)ROOM_TIMEOUT_S * 1000000000;
	ring_doorbell(context);
	while (ring_room(&context->submissions) < count) {
		if (connection_lost(&context->connection))
			return ENODEV;
		if (now_ns() > deadline) {
			say("host %s: the agent takes no work requests", context->host);
			return EAGAIN;
		}
		nanosleep(&pause, NULL);
	}
	return 0;
}

/* Copy an entry into the ring; of its data only what there is. */
static void place(struct ring *ring, const struct ring_request *request)
{
	size_t data = request->flags & IBV_SEND_INLINE ? request->inline_bytes
						       : request->elements * sizeof(struct ring_element);

	if (request->opcode == RING_RECV || request->opcode == RING_NOTIFY)
		data = 0;
	memcpy(ring_at(ring, ring->place), request, offsetof(struct ring_request, data) + data);
	ring->place++;
}

/* Put entries into the ring, all or none, under the lock for posting; they must be published then. */
int lab_add(struct lab_context *context, const struct ring_request *requests, uint32_t count)
{
	int failed = atomic_load_explicit(&context->connection.state, memory_order_relaxed) != CONNECTION_OPEN
			     ? ENODEV
			     : lab_wait_for_room(context, count);

	for (uint32_t i = 0; i < count && !failed; i++)
		place(&context->submissions, &requests[i]);
	return failed;
}

int lab_submit(struct lab_context *context, const struct ring_request *requests, uint32_t count)
{
	int failed;

	pthread_mutex_lock(&context->post_lock);
	failed = lab_add(context, requests, count);
	if (!failed)
		lab_publish(context);
	pthread_mutex_unlock(&context->post_lock);
	return failed;
}

/* Ask for a notification of the completions after the first `seen` of a queue, with a request that says so. The agent
 * looks at this ring before it sleeps, and at the ring of completions nothing is added while it sleeps. So it must be woken
 * only if something was added meanwhile: then it may have looked at this ring before, and sleep already. Each end stores
 * into one ring before it loads from the other one, with a fence between: one of them sees what the other one stored. */
int lab_arm(struct lab_context *context, const struct ring_request *request, const struct ring *completions, uint64_t seen)
{
	int failed;

	pthread_mutex_lock(&context->post_lock);
	failed = lab_add(context, request, 1);
	if (!failed) {
		ring_publish(&context->submissions);
		atomic_thread_fence(memory_order_seq_cst);
		if (ring_produced(completions) != seen || ++context->quiet >= QUIET_ENTRIES)
			lab_publish(context);
	}
	pthread_mutex_unlock(&context->post_lock);
	return failed;
}
