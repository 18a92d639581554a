/*
 * The objects of libmrc. Each begins with the structure of libibverbs that programs see, and is also what `mrc.h` names
 * by an incomplete type: `struct mrc_cq *` is a `struct lab_cq *`.
 *
 * Locks, in the order in which a thread may take them: of a queue pair's batch, of a completion queue, of a channel, of
 * the context's events, of its tables, of its ring of work requests. A connection's lock is taken last, or alone.
 */
#ifndef LIBMRC_INTERNAL_H
#define LIBMRC_INTERNAL_H

#include "connection.h"
#include "exchange.h"
#include "mrc.h"
#include "ring.h"

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Programs' calls go by these macros to inline functions; the functions are defined here. */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define EXPORT __attribute__((visibility("default")))

#define GIDS 4
#define CONTAINER(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

/* Objects of a context by their numbers. */
struct node {
	uint32_t number;
	struct node *next;
};

#define BUCKETS 256
struct table {
	struct node *bucket[BUCKETS];
};

/* libmlx5 and libefa look at what follows a device's public part, to see whether it is theirs. */
struct lab_device {
	struct ibv_device base;
	char zeros[512];
	char path[CONNECTION_PATH];
	__be64 guid;
	struct lab_device *next;
};

struct lab_context {
	struct lab_context *next;
	struct lab_device *device;
	struct connection connection;
	struct ring submissions;
	struct ring events;
	int doorbell;
	int event_bell;
	uint32_t quiet; /* entries of the ring for which the doorbell was not rung */
	pthread_mutex_t post_lock;
	pthread_mutex_t event_lock;
	pthread_mutex_t table_lock;
	struct table pairs;
	struct table queues;
	struct table shared;
	struct lab_channel *channels;
	bool told_fatal;
	bool port_up;
	bool mrc;
	char host[64];
	struct in6_addr address;
	struct verbs_context verbs;
};

struct lab_pd {
	struct ibv_pd base;
	bool parent; /* another protection domain is behind it */
};

struct lab_mr {
	struct ibv_mr base;
	uint64_t iova;
	unsigned int access;
	struct exchanged *exchanged;
};

struct lab_channel {
	struct ibv_comp_channel base;
	struct lab_channel *next;
	uint32_t number;
	int bell;
	pthread_mutex_t lock;
	struct lab_cq *queues;
};

struct lab_cq {
	union {
		struct ibv_cq base;
		struct ibv_cq_ex ex;
	};
	struct node node;
	struct lab_cq *next; /* of the channel */
	struct ring ring;
	pthread_mutex_t lock;
	unsigned int idle;
	uint64_t events_taken;
	uint32_t async_taken;
	size_t ev_event_bytes; /* of the caller's events, where it takes changes of EVs; else 0 */
	struct ibv_wc current;
};

struct lab_srq {
	struct ibv_srq base;
	struct node node;
	uint32_t max_wr;
	uint32_t max_sge;
	_Atomic uint32_t waiting; /* an upper bound */
	uint32_t async_taken;
};

/* `sent` and `received` count what was posted, modulo 2^32, and `..._ended` what has ended. */
struct lab_qp {
	union {
		struct ibv_qp base;
		struct ibv_qp_ex ex;
	};
	struct node node;
	bool mrc;      /* on the wire */
	bool extended; /* made with `send_ops_flags` */
	struct ibv_qp_cap cap;
	int sq_sig_all;
	uint32_t sent;
	uint32_t received;
	_Atomic uint32_t sent_ended;
	_Atomic uint32_t received_ended;
	_Atomic bool complained;
	_Atomic bool failed; /* a request of it has not succeeded */
	uint32_t async_taken;
	struct ibv_qp_attr attr;
	uint32_t mrc_cap;
	struct mrc_qp_hint *hint;
	/* The batch of `wr_start`. */
	pthread_mutex_t batch_lock;
	struct ring_request *batch;
	uint32_t batch_count;
	uint32_t batch_room;
	int batch_failed;
};

/* An open context is the parent of all; several `struct mrc_context` may share one. */
struct mrc_context {
	struct lab_context *lab;
	uint32_t api_version;
};

struct mrc_qp_hint {
	struct lab_context *lab;
	uint32_t number;
};

static inline struct lab_context *lab_of(struct ibv_context *context)
{
	return CONTAINER(context, struct lab_context, verbs.context);
}

static inline bool is_forked(const struct lab_context *context)
{
	return atomic_load_explicit(&context->connection.state, memory_order_relaxed) == CONNECTION_FORKED;
}

static inline uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* Fail with an errno, as functions do that return -1 then; 0 is no failure. */
static inline int fail(int number)
{
	if (!number)
		return 0;
	errno = number;
	return -1;
}

/* Free what was to be made, and fail with an errno. */
static inline void *give_up(void *object, int failed)
{
	free(object);
	errno = failed;
	return NULL;
}

/* The errno of a function whose arguments no caller of it should give. */
#define INVALID refused(EINVAL, "%s: an argument is missing, unknown or out of range", __func__)

static inline int lab_ask(struct lab_context *context, json_t *request, struct answer *answer)
{
	return connection_ask(&context->connection, request, -1, answer);
}

/* Headers and files point one way: what a file uses stands above it here. */

/* objects.c */
void add_node(struct lab_context *context, struct table *table, struct node *node, uint32_t number);
struct node *table_find(const struct table *table, uint32_t number);
/* Take an object out of its table; return how many events of it the program has taken. */
uint32_t remove_node(struct lab_context *context, struct table *table, struct node *node, const uint32_t *async_taken);
/* Wait until the program has acknowledged all events that it has taken; then destroy what it was told by. */
void await_acknowledgements(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *completed, uint32_t taken);
int lab_map(struct ring *ring, int fd, uint64_t capacity, size_t entry_bytes);
void lab_unmap(struct ring *ring);
int lab_watch(int bell, const struct lab_context *context);
/* Wait for a bell; 0, or an errno: EINTR, EAGAIN for a non-blocking `fd` with nothing to read, ENODEV. */
int lab_wait(struct lab_context *context, int fd, int bell);

/* device.c */
int lab_query_device(struct ibv_context *context, struct ibv_device_attr *attr);
int lab_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
			struct ibv_device_attr_ex *attr, size_t size);
int lab_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size);
int lab_query_gid(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry);
uint32_t lab_mtu_bytes(enum ibv_mtu mtu);
bool lab_any_port_up(struct lab_context *context);
/* What an event is of. */
enum event_object { EVENT_OF_PORT, EVENT_OF_CQ, EVENT_OF_QP, EVENT_OF_SRQ };
enum event_object lab_event_object(enum ibv_event_type type);
int lab_get_async_event(struct lab_context *context, struct ibv_async_event *event, bool planes);
void lab_ack_async_event(struct ibv_async_event *event);

/* memory.c */
struct ibv_pd *lab_alloc_pd(struct ibv_context *context);
int lab_dealloc_pd(struct ibv_pd *pd);
struct ibv_mr *lab_reg_mr(struct ibv_pd *pd, void *address, size_t length, uint64_t iova, unsigned int access);
int lab_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *address, size_t length, int access);
int lab_dereg_mr(struct ibv_mr *mr);

/* post.c. Under the lock for posting: lab_add, lab_publish_receives. */
int lab_add(struct lab_context *context, const struct ring_request *requests, uint32_t count);
void lab_publish_receives(struct lab_context *context, uint32_t count);
int lab_copy_receive(struct ring_request *request, uint32_t number, const struct ibv_recv_wr *wr, uint8_t opcode,
		     uint32_t max_sge);
int lab_arm(struct lab_context *context, const struct ring_request *request, const struct ring *completions, uint64_t seen);
int lab_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int lab_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
void lab_set_batch_functions(struct ibv_qp_ex *qp);

/* srq.c */
struct ibv_srq *lab_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
struct ibv_srq *lab_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
int lab_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int lab_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int lab_destroy_srq(struct ibv_srq *srq);
int lab_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* completion.c */
struct ibv_comp_channel *lab_create_channel(struct ibv_context *context);
int lab_destroy_channel(struct ibv_comp_channel *channel);
struct ibv_cq *lab_create_cq(struct ibv_context *context, int cqe, void *user, struct ibv_comp_channel *channel,
			     int vector);
struct ibv_cq_ex *lab_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
int lab_destroy_cq(struct ibv_cq *cq);
int lab_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc);
/* Take away the completions of a queue pair that nothing has polled yet. */
void lab_clean_cq(struct ibv_cq *cq, uint32_t number);
int lab_req_notify_cq(struct ibv_cq *cq, int solicited_only);
int lab_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **user);
void lab_ack_cq_events(struct ibv_cq *cq, unsigned int count);

/* pair.c */
struct ibv_qp *lab_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, bool mrc);
struct ibv_qp *lab_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
int lab_modify_qp(struct ibv_qp *qp, const struct ibv_qp_attr *attr, int mask, const struct mrc_qp_attr *more,
		  int more_mask);
int lab_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init, struct mrc_qp_attr *more);
int lab_destroy_qp(struct ibv_qp *qp);

/* context.c */
extern struct ibv_context_ops lab_ops;
struct ibv_device **lab_device_list(int *count);
bool is_lab_device(const struct ibv_device *device);
struct ibv_context *lab_open_device(struct ibv_device *device);
int lab_close_device(struct ibv_context *context);

/* Return whether a context is ours: programs may hold those of other devices, too. */
static inline bool is_lab(const struct ibv_context *context)
{
	return context && context->ops.poll_cq == lab_ops.poll_cq;
}

#endif
