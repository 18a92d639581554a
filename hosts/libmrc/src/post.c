/* Posting: work requests of programs, checked and written into the ring that the agent reads, and when it is woken. */
#include "internal.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <unistd.h>

#define FLAGS (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE)
#define ROOM_WAIT_NS 20000
#define ROOM_TIMEOUT_S 30
/* Entries that may wait in the ring without the agent's bell. It serves 256 of a program in one round, all of them before
 * a packet that has just come. */
#define QUIET_ENTRIES 64

/* -- the ring of work requests ------------------------------------------------------------------------------------ */

static void ring_doorbell(const struct lab_context *context)
{
	uint64_t one = 1;

	/* A bell that is full rings already. */
	if (write(context->doorbell, &one, sizeof(one)) != sizeof(one))
		return;
}

/* Show the agent the new entries, under the lock for posting, and wake it. */
static void publish(struct lab_context *context)
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
		publish(context);
	else
		ring_publish(&context->submissions);
}

/* Wait until `count` entries fit into the ring, under the lock for posting. */
static int wait_for_room(struct lab_context *context, uint32_t count)
{
	const struct timespec pause = {.tv_nsec = ROOM_WAIT_NS};
	uint64_t deadline;

	if (count > context->submissions.capacity)
		return ENOMEM;
	if (ring_room(&context->submissions) >= count)
		return 0;
	deadline = now_ns() + (uint64_t)ROOM_TIMEOUT_S * 1000000000;
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
			     : wait_for_room(context, count);

	for (uint32_t i = 0; i < count && !failed; i++)
		place(&context->submissions, &requests[i]);
	return failed;
}

static int submit(struct lab_context *context, const struct ring_request *requests, uint32_t count)
{
	int failed;

	pthread_mutex_lock(&context->post_lock);
	failed = lab_add(context, requests, count);
	if (!failed)
		publish(context);
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
			publish(context);
	}
	pthread_mutex_unlock(&context->post_lock);
	return failed;
}

/* -- what may be posted ------------------------------------------------------------------------------------------- */

static const uint8_t ring_opcodes[] = {
	[IBV_WR_RDMA_WRITE] = RING_WRITE,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = RING_WRITE_IMM,
	[IBV_WR_SEND] = RING_SEND,
	[IBV_WR_SEND_WITH_IMM] = RING_SEND_IMM,
	[IBV_WR_RDMA_READ] = RING_READ,
	[IBV_WR_ATOMIC_CMP_AND_SWP] = RING_COMPARE_SWAP,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = RING_FETCH_ADD,
};

static int check_opcode(struct lab_qp *qp, unsigned int opcode)
{
	bool known = opcode < sizeof(ring_opcodes) && ring_opcodes[opcode];

	if (known && (!qp->mrc || opcode <= IBV_WR_RDMA_WRITE_WITH_IMM))
		return 0;
	/* One line for each queue pair: a program that goes on would fill the screen. */
	if (!atomic_exchange(&qp->complained, true))
		say("queue pair %u: operation %u of ibv_wr_opcode is not one of %s", qp->base.qp_num, opcode,
		    qp->mrc ? "MRC, which has RDMA_WRITE and RDMA_WRITE_WITH_IMM" : "this device");
	return EOPNOTSUPP;
}

/* Return the errno of a work request that is refused; one line for each queue pair, as above. */
static int complain(struct lab_qp *qp, const char *why)
{
	if (!atomic_exchange(&qp->complained, true))
		say("queue pair %u: %s", qp->base.qp_num, why);
	return EINVAL;
}

static int check_send(struct lab_qp *qp, uint32_t more)
{
	uint32_t under_way = qp->sent - atomic_load_explicit(&qp->sent_ended, memory_order_relaxed);

	if (qp->base.state != IBV_QPS_RTS && qp->base.state != IBV_QPS_ERR)
		return complain(qp, "a work request before the state RTS");
	return under_way + more < qp->cap.max_send_wr ? 0 : ENOMEM;
}

static int copy_elements(struct ring_request *request, const struct ibv_sge *list, size_t count, uint32_t most)
{
	if (count > most || count > MAX_SGE)
		return EINVAL;
	for (size_t i = 0; i < count; i++) {
		request->data.element[i].address = list[i].addr;
		request->data.element[i].length = list[i].length;
		request->data.element[i].key = list[i].lkey;
	}
	request->elements = (uint16_t)count;
	return 0;
}

static int copy_inline(struct ring_request *request, const void *bytes, size_t length, uint32_t most)
{
	if (length > INLINE_BYTES || request->inline_bytes + length > most)
		return EINVAL;
	if (length)
		memcpy(request->data.bytes + request->inline_bytes, bytes, length);
	request->inline_bytes += (uint32_t)length;
	return 0;
}

/* Copy a work request; `request` may lie in the ring, where the agent does not look before it is published. */
static int copy_send(struct lab_qp *qp, struct ring_request *request, const struct ibv_send_wr *wr)
{
	int failed = check_opcode(qp, wr->opcode);

	if (failed)
		return failed;
	if (wr->num_sge < 0)
		return EINVAL;
	memset(request, 0, offsetof(struct ring_request, data));
	request->opcode = ring_opcodes[wr->opcode];
	request->flags = (uint8_t)(wr->send_flags & FLAGS);
	request->number = qp->base.qp_num;
	request->wr_id = wr->wr_id;
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_SEND_WITH_IMM:
		request->immediate = ntohl(wr->imm_data);
		break;
	default:
		break;
	}
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		request->remote = wr->wr.rdma.remote_addr;
		request->key = wr->wr.rdma.rkey;
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		request->remote = wr->wr.atomic.remote_addr;
		request->key = wr->wr.atomic.rkey;
		request->operand = wr->wr.atomic.compare_add;
		request->swap = wr->wr.atomic.swap;
		break;
	default:
		break;
	}
	if (!(request->flags & IBV_SEND_INLINE)) {
		if (copy_elements(request, wr->sg_list, (size_t)wr->num_sge, qp->cap.max_send_sge))
			return complain(qp, "a work request has more elements than max_send_sge");
		return 0;
	}
	for (int i = 0; i < wr->num_sge && !failed; i++)
		failed = copy_inline(request, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length,
				     qp->cap.max_inline_data);
	return failed ? complain(qp, "a work request has more bytes inline than max_inline_data") : 0;
}

int lab_post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct lab_qp *qp = CONTAINER(base, struct lab_qp, base);
	struct lab_context *context = lab_of(base->context);
	int failed = 0;

	if (atomic_load_explicit(&context->connection.state, memory_order_relaxed) != CONNECTION_OPEN) {
		*bad = wr;
		return ENODEV;
	}
	pthread_mutex_lock(&context->post_lock);
	for (; wr; wr = wr->next) {
		failed = check_send(qp, 0);
		if (!failed && !ring_room(&context->submissions)) {
			ring_publish(&context->submissions);
			failed = wait_for_room(context, 1);
		}
		if (!failed)
			failed = copy_send(qp, ring_at(&context->submissions, context->submissions.place), wr);
		if (failed) {
			*bad = wr;
			break;
		}
		context->submissions.place++;
		qp->sent++;
	}
	publish(context);
	pthread_mutex_unlock(&context->post_lock);
	return failed;
}

/* Copy a receive. MRC carries its data to the address that the writer names, so that a receive needs no memory. */
int lab_copy_receive(struct ring_request *request, uint32_t number, const struct ibv_recv_wr *wr, uint8_t opcode,
			uint32_t max_sge)
{
	memset(request, 0, offsetof(struct ring_request, data));
	request->opcode = opcode;
	request->number = number;
	request->wr_id = wr->wr_id;
	if (opcode == RING_RECV) {
		request->elements = 1;
		return 0;
	}
	return wr->num_sge < 0 ? EINVAL : copy_elements(request, wr->sg_list, (size_t)wr->num_sge, max_sge);
}

int lab_post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct lab_qp *qp = CONTAINER(base, struct lab_qp, base);
	struct lab_context *context = lab_of(base->context);
	uint32_t posted = 0;
	int failed = 0;

	if (atomic_load_explicit(&context->connection.state, memory_order_relaxed) != CONNECTION_OPEN)
		failed = ENODEV;
	else if (base->srq || base->state == IBV_QPS_RESET)
		failed = complain(qp, base->srq ? "a receive, and it takes those of its shared receive queue"
						: "a receive before the state INIT");
	if (failed) {
		*bad = wr;
		return failed;
	}
	pthread_mutex_lock(&context->post_lock);
	for (; wr; wr = wr->next) {
		uint32_t waiting = qp->received - atomic_load_explicit(&qp->received_ended, memory_order_relaxed);

		if (waiting >= qp->cap.max_recv_wr)
			failed = ENOMEM;
		if (!failed && !ring_room(&context->submissions)) {
			ring_publish(&context->submissions);
			failed = wait_for_room(context, 1);
		}
		if (!failed)
			failed = lab_copy_receive(ring_at(&context->submissions, context->submissions.place), base->qp_num,
					      wr, qp->mrc ? RING_RECV : RING_RECV_INTO, qp->cap.max_recv_sge);
		if (failed) {
			*bad = wr;
			break;
		}
		context->submissions.place++;
		qp->received++;
		posted++;
	}
	/* Receives of a queue pair that has failed complete at once. */
	if (base->state == IBV_QPS_ERR || atomic_load_explicit(&qp->failed, memory_order_relaxed))
		publish(context);
	else
		lab_publish_receives(context, posted);
	pthread_mutex_unlock(&context->post_lock);
	return failed;
}

/* -- batches: wr_start to wr_complete ----------------------------------------------------------------------------- */

/* The batch is built aside, and goes into the ring in one piece: other queue pairs may post in the meantime. */
static void wr_start(struct ibv_qp_ex *ex)
{
	struct lab_qp *qp = CONTAINER(ex, struct lab_qp, ex);

	if (is_forked(lab_of(ex->qp_base.context)))
		return;
	pthread_mutex_lock(&qp->batch_lock);
	qp->batch_count = 0;
	qp->batch_failed = 0;
}

static struct ring_request *add_request(struct ibv_qp_ex *ex, unsigned int opcode)
{
	struct lab_qp *qp = CONTAINER(ex, struct lab_qp, ex);
	struct ring_request *request;
	int failed = is_forked(lab_of(ex->qp_base.context)) ? ENODEV : check_opcode(qp, opcode);

	if (!failed)
		failed = check_send(qp, qp->batch_count);
	if (!failed && qp->batch_count == qp->batch_room) {
		uint32_t room = qp->batch_room ? qp->batch_room * 2 : 8;
		struct ring_request *grown = realloc(qp->batch, room * sizeof(*grown));

		if (grown) {
			qp->batch = grown;
			qp->batch_room = room;
		} else {
			failed = ENOMEM;
		}
	}
	if (failed) {
		if (!qp->batch_failed)
			qp->batch_failed = failed;
		return NULL;
	}
	request = &qp->batch[qp->batch_count++];
	memset(request, 0, sizeof(*request));
	request->opcode = ring_opcodes[opcode];
	request->flags = (uint8_t)(ex->wr_flags & FLAGS & ~(unsigned int)IBV_SEND_INLINE);
	request->number = ex->qp_base.qp_num;
	request->wr_id = ex->wr_id;
	return request;
}

static void add(struct ibv_qp_ex *ex, unsigned int opcode, uint32_t key, uint64_t address, uint32_t immediate,
		uint64_t operand, uint64_t swap)
{
	struct ring_request *request = add_request(ex, opcode);

	if (!request)
		return;
	request->remote = address;
	request->key = key;
	request->immediate = immediate;
	request->operand = operand;
	request->swap = swap;
}

/* A request of a batch: its function's name and parameters, and what `add` is given. */
#define REQUEST_OF(name, parameters, ...)                                                                             \
	static void name parameters                                                                                   \
	{                                                                                                             \
		add(ex, __VA_ARGS__);                                                                                 \
	}
REQUEST_OF(wr_rdma_write, (struct ibv_qp_ex *ex, uint32_t key, uint64_t address), IBV_WR_RDMA_WRITE, key, address, 0, 0, 0)
REQUEST_OF(wr_rdma_write_imm, (struct ibv_qp_ex *ex, uint32_t key, uint64_t address, __be32 immediate),
	   IBV_WR_RDMA_WRITE_WITH_IMM, key, address, ntohl(immediate), 0, 0)
REQUEST_OF(wr_rdma_read, (struct ibv_qp_ex *ex, uint32_t key, uint64_t address), IBV_WR_RDMA_READ, key, address, 0, 0, 0)
REQUEST_OF(wr_send, (struct ibv_qp_ex *ex), IBV_WR_SEND, 0, 0, 0, 0, 0)
REQUEST_OF(wr_send_imm, (struct ibv_qp_ex *ex, __be32 immediate), IBV_WR_SEND_WITH_IMM, 0, 0, ntohl(immediate), 0, 0)
REQUEST_OF(wr_atomic_cmp_swp, (struct ibv_qp_ex *ex, uint32_t key, uint64_t address, uint64_t compare, uint64_t swap),
	   IBV_WR_ATOMIC_CMP_AND_SWP, key, address, 0, compare, swap)
REQUEST_OF(wr_atomic_fetch_add, (struct ibv_qp_ex *ex, uint32_t key, uint64_t address, uint64_t operand),
	   IBV_WR_ATOMIC_FETCH_AND_ADD, key, address, 0, operand, 0)

/* Those that no device of the lab has: `add` refuses them by their opcode. */
#define REFUSED(name, opcode, ...)                                                                                    \
	static void name(struct ibv_qp_ex *ex, __VA_ARGS__)                                                           \
	{                                                                                                             \
		add(ex, opcode, 0, 0, 0, 0, 0);                                                                       \
	}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
REFUSED(wr_bind_mw, IBV_WR_BIND_MW, struct ibv_mw *mw, uint32_t key, const struct ibv_mw_bind_info *info)
REFUSED(wr_local_inv, IBV_WR_LOCAL_INV, uint32_t key)
REFUSED(wr_send_inv, IBV_WR_SEND_WITH_INV, uint32_t key)
REFUSED(wr_send_tso, IBV_WR_TSO, void *header, uint16_t length, uint16_t mss)

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t number, uint32_t key)
{
	/* RC has its peer. */
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *ex, uint32_t number)
{
}
#pragma GCC diagnostic pop

/* Return the request whose data is set now, and record a failure of setting it. */
static struct ring_request *latest(struct lab_qp *qp)
{
	return qp->batch_failed || !qp->batch_count ? NULL : &qp->batch[qp->batch_count - 1];
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t count, const struct ibv_sge *list)
{
	struct lab_qp *qp = CONTAINER(ex, struct lab_qp, ex);
	struct ring_request *request = latest(qp);

	if (request)
		qp->batch_failed = copy_elements(request, list, count, qp->cap.max_send_sge);
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t key, uint64_t address, uint32_t length)
{
	struct ibv_sge element = {.addr = address, .length = length, .lkey = key};

	/* Programs may set an element of no bytes for a request without data. */
	wr_set_sge_list(ex, length ? 1 : 0, &element);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t count, const struct ibv_data_buf *list)
{
	struct lab_qp *qp = CONTAINER(ex, struct lab_qp, ex);
	struct ring_request *request = latest(qp);

	if (!request)
		return;
	request->flags |= IBV_SEND_INLINE;
	for (size_t i = 0; i < count && !qp->batch_failed; i++)
		qp->batch_failed = copy_inline(request, list[i].addr, list[i].length, qp->cap.max_inline_data);
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *bytes, size_t length)
{
	struct ibv_data_buf one = {.addr = bytes, .length = length};

	wr_set_inline_data_list(ex, 1, &one);
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct lab_qp *qp = CONTAINER(ex, struct lab_qp, ex);
	struct lab_context *context = lab_of(ex->qp_base.context);
	int failed = qp->batch_failed;

	if (is_forked(context))
		return ENODEV;
	if (!failed && qp->batch_count) {
		/* `sent` belongs to the lock for posting; the ring takes the requests after it. */
		pthread_mutex_lock(&context->post_lock);
		failed = check_send(qp, qp->batch_count - 1);
		if (!failed)
			qp->sent += qp->batch_count;
		pthread_mutex_unlock(&context->post_lock);
		if (!failed) {
			failed = submit(context, qp->batch, qp->batch_count);
			if (failed) {
				pthread_mutex_lock(&context->post_lock);
				qp->sent -= qp->batch_count;
				pthread_mutex_unlock(&context->post_lock);
			}
		}
	}
	pthread_mutex_unlock(&qp->batch_lock);
	return failed;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	if (!is_forked(lab_of(ex->qp_base.context)))
		pthread_mutex_unlock(&CONTAINER(ex, struct lab_qp, ex)->batch_lock);
}

void lab_set_batch_functions(struct ibv_qp_ex *qp)
{
	qp->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	qp->wr_atomic_fetch_add = wr_atomic_fetch_add;
	qp->wr_bind_mw = wr_bind_mw;
	qp->wr_local_inv = wr_local_inv;
	qp->wr_rdma_read = wr_rdma_read;
	qp->wr_rdma_write = wr_rdma_write;
	qp->wr_rdma_write_imm = wr_rdma_write_imm;
	qp->wr_send = wr_send;
	qp->wr_send_imm = wr_send_imm;
	qp->wr_send_inv = wr_send_inv;
	qp->wr_send_tso = wr_send_tso;
	qp->wr_set_ud_addr = wr_set_ud_addr;
	qp->wr_set_xrc_srqn = wr_set_xrc_srqn;
	qp->wr_set_inline_data = wr_set_inline_data;
	qp->wr_set_inline_data_list = wr_set_inline_data_list;
	qp->wr_set_sge = wr_set_sge;
	qp->wr_set_sge_list = wr_set_sge_list;
	qp->wr_start = wr_start;
	qp->wr_complete = wr_complete;
	qp->wr_abort = wr_abort;
}
