/* Completion queues, and channels to wait for them. */
#include "internal.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

/* A program that polls without end asks the kernel this seldom whether the agent is still there. */
#define POLLS_PER_CHECK 1024
#define SUPPORTED_WC_FLAGS IBV_WC_STANDARD_FLAGS

/* -- channels ----------------------------------------------------------------------------------------------------- */

struct ibv_comp_channel *lab_create_channel(struct ibv_context *base)
{
	struct lab_context *context = lab_of(base);
	struct lab_channel *channel = calloc(1, sizeof(*channel));
	struct answer answer;
	int failed;

	if (!channel)
		return NULL;
	failed = lab_ask(context, REQUEST("create_channel", ""), &answer);
	if (!failed && answer.count != 1) {
		failed = EPROTO;
		answer_refuse(&answer);
	}
	if (failed)
		return give_up(channel, failed);
	channel->number = (uint32_t)number_in(answer.root, "channel", 0);
	channel->bell = answer.files[0];
	answer_free(&answer);
	channel->base.context = base;
	channel->base.fd = lab_watch(channel->bell, context);
	if (channel->base.fd < 0) {
		close(channel->bell);
		free(channel);
		return NULL;
	}
	pthread_mutex_init(&channel->lock, NULL);
	pthread_mutex_lock(&context->table_lock);
	channel->next = context->channels;
	context->channels = channel;
	pthread_mutex_unlock(&context->table_lock);
	return &channel->base;
}

int lab_destroy_channel(struct ibv_comp_channel *base)
{
	struct lab_channel *channel = CONTAINER(base, struct lab_channel, base);
	struct lab_context *context = lab_of(base->context);
	struct lab_channel **at = &context->channels;
	int failed;

	if (is_forked(context))
		return ENODEV;
	pthread_mutex_lock(&channel->lock);
	failed = channel->queues ? EBUSY : 0;
	pthread_mutex_unlock(&channel->lock);
	if (failed)
		return failed;
	failed = lab_ask(context, REQUEST("destroy_channel", "sI", "channel", INT(channel->number)), NULL);
	if (failed && failed != ENODEV)
		return failed;
	pthread_mutex_lock(&context->table_lock);
	while (*at != channel)
		at = &(*at)->next;
	*at = channel->next;
	pthread_mutex_unlock(&context->table_lock);
	close(channel->bell);
	close(channel->base.fd);
	pthread_mutex_destroy(&channel->lock);
	free(channel);
	return 0;
}

int lab_get_cq_event(struct ibv_comp_channel *base, struct ibv_cq **cq, void **user)
{
	struct lab_channel *channel = CONTAINER(base, struct lab_channel, base);
	struct lab_context *context = lab_of(base->context);

	for (;;) {
		int failed = lab_wait(context, base->fd, channel->bell);
		struct lab_cq *queue;

		if (failed)
			return fail(failed);
		pthread_mutex_lock(&channel->lock);
		for (queue = channel->queues; queue; queue = queue->next)
			if (ring_noted(&queue->ring) > queue->events_taken)
				break;
		if (queue) {
			struct lab_cq **at = &channel->queues;

			queue->events_taken++;
			*cq = &queue->base;
			*user = queue->base.cq_context;
			/* To the end of the list, so that a busy queue does not keep the others waiting. */
			while (*at != queue)
				at = &(*at)->next;
			*at = queue->next;
			while (*at)
				at = &(*at)->next;
			*at = queue;
			queue->next = NULL;
		}
		pthread_mutex_unlock(&channel->lock);
		if (queue)
			return 0;
		/* The notification was of a queue that has been destroyed. */
	}
}

void lab_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
	if (is_forked(lab_of(cq->context)))
		return;
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += count;
	pthread_cond_broadcast(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}

/* -- completion queues -------------------------------------------------------------------------------------------- */

static struct lab_cq *make_cq(struct ibv_context *base, int cqe, void *user, struct ibv_comp_channel *channel_base)
{
	struct lab_context *context = lab_of(base);
	struct lab_channel *channel = channel_base ? CONTAINER(channel_base, struct lab_channel, base) : NULL;
	struct lab_cq *cq;
	struct answer answer;
	int failed;

	if (cqe < 1)
		return give_up(NULL, refused(EINVAL, "create_cq: cqe %d: at least 1", cqe));
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;
	failed = lab_ask(context, REQUEST("create_cq", "sIso*", "cqe", INT(cqe), "channel",
					  channel ? json_integer(channel->number) : NULL), &answer);
	if (failed)
		return give_up(cq, failed);
	cq->base.context = base;
	cq->base.channel = channel_base;
	cq->base.cq_context = user;
	cq->base.handle = (uint32_t)number_in(answer.root, "cq", 0);
	cq->base.cqe = (int)number_in(answer.root, "cqe", 0);
	failed = answer.count == 1 ? lab_map(&cq->ring, answer.files[0], (uint64_t)cq->base.cqe,
					     sizeof(struct ring_completion))
				   : EPROTO;
	answer_refuse(&answer); /* the mapping stays */
	if (failed)
		return give_up(cq, failed);
	pthread_mutex_init(&cq->lock, NULL);
	pthread_mutex_init(&cq->base.mutex, NULL);
	pthread_cond_init(&cq->base.cond, NULL);
	add_node(context, &context->queues, &cq->node, cq->base.handle);
	if (channel) {
		pthread_mutex_lock(&channel->lock);
		cq->next = channel->queues;
		channel->queues = cq;
		channel->base.refcnt++;
		pthread_mutex_unlock(&channel->lock);
	}
	return cq;
}

struct ibv_cq *lab_create_cq(struct ibv_context *base, int cqe, void *user, struct ibv_comp_channel *channel,
			     int vector)
{
	struct lab_cq *cq;

	if (vector < 0 || vector >= base->num_comp_vectors)
		return give_up(NULL, refused(EINVAL, "create_cq: comp_vector %d: there is 0 only", vector));
	cq = make_cq(base, cqe, user, channel);
	return cq ? &cq->base : NULL;
}

int lab_destroy_cq(struct ibv_cq *base)
{
	struct lab_cq *cq = CONTAINER(base, struct lab_cq, base);
	struct lab_context *context = lab_of(base->context);
	uint32_t taken = 0, async_taken;
	int failed;

	if (is_forked(context))
		return ENODEV;
	failed = lab_ask(context, REQUEST("destroy_cq", "sI", "cq", INT(base->handle)), NULL);
	if (failed && failed != ENODEV)
		return failed;
	if (base->channel) {
		struct lab_channel *channel = CONTAINER(base->channel, struct lab_channel, base);
		struct lab_cq **at = &channel->queues;
		uint64_t noted, one;

		pthread_mutex_lock(&channel->lock);
		while (*at != cq)
			at = &(*at)->next;
		*at = cq->next;
		channel->base.refcnt--;
		taken = (uint32_t)cq->events_taken;
		/* Notifications that no call will take would wake the program for nothing. */
		noted = ring_noted(&cq->ring);
		for (uint64_t i = cq->events_taken; i < noted; i++)
			if (read(channel->bell, &one, sizeof(one)) != sizeof(one))
				break;
		pthread_mutex_unlock(&channel->lock);
	}
	async_taken = remove_node(context, &context->queues, &cq->node, &cq->async_taken);
	pthread_mutex_lock(&base->mutex);
	while (base->comp_events_completed != taken || base->async_events_completed != async_taken)
		pthread_cond_wait(&base->cond, &base->mutex);
	pthread_mutex_unlock(&base->mutex);
	lab_unmap(&cq->ring);
	pthread_mutex_destroy(&cq->lock);
	pthread_mutex_destroy(&base->mutex);
	pthread_cond_destroy(&base->cond);
	free(cq);
	return 0;
}

/* Record what a completion says of its queue pair; returns NULL for a queue pair that is gone. */
static struct lab_qp *account(struct lab_context *context, const struct ring_completion *completion)
{
	struct node *node = table_find(&context->pairs, completion->qp_num);
	struct lab_qp *qp;

	if (!node)
		return NULL;
	qp = CONTAINER(node, struct lab_qp, node);
	if (completion->status != IBV_WC_SUCCESS)
		atomic_store_explicit(&qp->failed, true, memory_order_relaxed);
	if (!(completion->opcode & IBV_WC_RECV)) {
		atomic_store_explicit(&qp->sent_ended, completion->ended, memory_order_relaxed);
	} else if (qp->base.srq) {
		struct lab_srq *srq = CONTAINER(qp->base.srq, struct lab_srq, base);

		if (atomic_load_explicit(&srq->waiting, memory_order_relaxed))
			atomic_fetch_sub_explicit(&srq->waiting, 1, memory_order_relaxed);
	} else {
		atomic_store_explicit(&qp->received_ended, completion->ended, memory_order_relaxed);
	}
	return qp;
}

void lab_clean_cq(struct ibv_cq *base, uint32_t number)
{
	struct lab_cq *cq = CONTAINER(base, struct lab_cq, base);
	struct lab_context *context = lab_of(base->context);
	uint64_t pending, at, kept;

	pthread_mutex_lock(&cq->lock);
	pthread_mutex_lock(&context->table_lock);
	pending = ring_pending(&cq->ring);
	at = kept = pending > cq->ring.capacity ? cq->ring.place : cq->ring.place + pending;
	/* The others move towards the newest, since only the oldest can be given back. */
	while (at-- > cq->ring.place) {
		const struct ring_completion *completion = ring_at(&cq->ring, at);

		if (completion->qp_num == number)
			account(context, completion);
		else if (--kept != at)
			memcpy(ring_at(&cq->ring, kept), completion, sizeof(*completion));
	}
	if (pending <= cq->ring.capacity) {
		cq->ring.place = kept;
		ring_release(&cq->ring);
	}
	pthread_mutex_unlock(&context->table_lock);
	pthread_mutex_unlock(&cq->lock);
}

/* Take up to `count` completions, under the lock of the queue. Those of destroyed queue pairs are left out. */
static int take(struct lab_cq *cq, int count, struct ibv_wc *wc)
{
	struct lab_context *context = lab_of(cq->base.context);
	uint64_t pending = ring_pending(&cq->ring);
	int found = 0;

	if (!pending) {
		if (++cq->idle < POLLS_PER_CHECK)
			return 0;
		cq->idle = 0;
		if (!connection_lost(&context->connection))
			return 0;
		/* The agent may have delivered more before it died. */
		pending = ring_pending(&cq->ring);
		if (!pending)
			return -ENODEV;
	}
	if (pending > cq->ring.capacity)
		return -EIO;
	pthread_mutex_lock(&context->table_lock);
	for (; pending && found < count; pending--) {
		const struct ring_completion *completion = ring_at(&cq->ring, cq->ring.place);
		struct lab_qp *qp = account(context, completion);

		cq->ring.place++;
		if (!qp)
			continue;
		memset(&wc[found], 0, sizeof(wc[found]));
		wc[found].wr_id = completion->wr_id;
		wc[found].status = completion->status;
		wc[found].opcode = completion->opcode;
		wc[found].byte_len = completion->byte_len;
		wc[found].imm_data = htonl(completion->immediate);
		wc[found].qp_num = completion->qp_num;
		wc[found].src_qp = qp->attr.dest_qp_num;
		wc[found].wc_flags = completion->flags & IBV_WC_WITH_IMM;
		found++;
	}
	pthread_mutex_unlock(&context->table_lock);
	ring_release(&cq->ring);
	return found;
}

int lab_poll_cq(struct ibv_cq *base, int count, struct ibv_wc *wc)
{
	struct lab_cq *cq = CONTAINER(base, struct lab_cq, base);
	int found;

	if (is_forked(lab_of(base->context)))
		return fail(ENODEV);
	pthread_mutex_lock(&cq->lock);
	found = take(cq, count, wc);
	pthread_mutex_unlock(&cq->lock);
	return found < 0 ? fail(-found) : found;
}

int lab_req_notify_cq(struct ibv_cq *base, int solicited_only)
{
	struct lab_cq *cq = CONTAINER(base, struct lab_cq, base);
	struct ring_request request = {.opcode = RING_NOTIFY, .number = base->handle};

	if (!base->channel)
		return is_forked(lab_of(base->context)) ? ENODEV : 0; /* there is no channel to notify */
	if (is_forked(lab_of(base->context)))
		return ENODEV;
	request.flags = solicited_only ? IBV_SEND_SOLICITED : 0;
	/* What has come so far is not notified of; what comes from now on is, even if the agent hears of this later. */
	request.wr_id = ring_produced(&cq->ring);
	return lab_arm(lab_of(base->context), &request, &cq->ring, request.wr_id);
}

/* -- reading one completion at a time ----------------------------------------------------------------------------- */

static int next_poll(struct ibv_cq_ex *ex)
{
	struct lab_cq *cq = CONTAINER(ex, struct lab_cq, ex);
	int found = take(cq, 1, &cq->current);

	if (found < 0)
		return -found;
	if (!found)
		return ENOENT;
	ex->wr_id = cq->current.wr_id;
	ex->status = cq->current.status;
	return 0;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct lab_cq *cq = CONTAINER(ex, struct lab_cq, ex);
	int failed;

	if (attr->comp_mask)
		return EINVAL;
	if (is_forked(lab_of(ex->context)))
		return ENODEV;
	pthread_mutex_lock(&cq->lock);
	failed = next_poll(ex);
	if (failed)
		pthread_mutex_unlock(&cq->lock);
	return failed;
}

static void end_poll(struct ibv_cq_ex *ex)
{
	pthread_mutex_unlock(&CONTAINER(ex, struct lab_cq, ex)->lock);
}

#define READ(name, type, value)                                                                                       \
	static type name(struct ibv_cq_ex *ex)                                                                        \
	{                                                                                                             \
		const struct ibv_wc *wc = &CONTAINER(ex, struct lab_cq, ex)->current;                                 \
		(void)wc;                                                                                             \
		return value;                                                                                         \
	}
READ(read_opcode, enum ibv_wc_opcode, wc->opcode)
READ(read_byte_len, uint32_t, wc->byte_len)
READ(read_imm_data, __be32, wc->imm_data)
READ(read_qp_num, uint32_t, wc->qp_num)
READ(read_src_qp, uint32_t, wc->src_qp)
READ(read_wc_flags, unsigned int, wc->wc_flags)
READ(read_zero32, uint32_t, 0)
READ(read_zero16, uint16_t, 0)
READ(read_zero8, uint8_t, 0)
READ(read_zero64, uint64_t, 0)

static void read_tm_info(struct ibv_cq_ex *ex, struct ibv_wc_tm_info *info)
{
	(void)ex;
	memset(info, 0, sizeof(*info));
}

static void set_reading_functions(struct ibv_cq_ex *cq)
{
	cq->start_poll = start_poll;
	cq->next_poll = next_poll;
	cq->end_poll = end_poll;
	cq->read_opcode = read_opcode;
	cq->read_vendor_err = read_zero32;
	cq->read_byte_len = read_byte_len;
	cq->read_imm_data = read_imm_data;
	cq->read_qp_num = read_qp_num;
	cq->read_src_qp = read_src_qp;
	cq->read_wc_flags = read_wc_flags;
	cq->read_slid = read_zero32;
	cq->read_sl = read_zero8;
	cq->read_dlid_path_bits = read_zero8;
	cq->read_completion_ts = read_zero64;
	cq->read_cvlan = read_zero16;
	cq->read_flow_tag = read_zero32;
	cq->read_tm_info = read_tm_info;
	cq->read_completion_wallclock_ns = read_zero64;
}

struct ibv_cq_ex *lab_create_cq_ex(struct ibv_context *base, struct ibv_cq_init_attr_ex *attr)
{
	const uint32_t known = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
	struct lab_cq *cq;

	if (attr->comp_mask & ~known || attr->wc_flags & ~(uint64_t)SUPPORTED_WC_FLAGS ||
	    (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS && attr->flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED))
		return give_up(NULL, refused(EOPNOTSUPP, "create_cq_ex: comp_mask %#x, wc_flags %#llx or flags %#x are more than "
					     "this device has", attr->comp_mask, (unsigned long long)attr->wc_flags,
					     attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0));
	if (attr->comp_vector >= (uint32_t)base->num_comp_vectors || attr->cqe > INT32_MAX)
		return give_up(NULL, refused(EINVAL, "create_cq_ex: comp_vector %u: there is 0 only; cqe %u", attr->comp_vector,
					     attr->cqe));
	cq = make_cq(base, (int)attr->cqe, attr->cq_context, attr->channel);
	if (!cq)
		return NULL;
	set_reading_functions(&cq->ex);
	return &cq->ex;
}
