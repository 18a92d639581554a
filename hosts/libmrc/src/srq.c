/* Shared receive queues. */
#include "internal.h"

#include <stdlib.h>

struct ibv_srq *lab_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct lab_context *context = lab_of(pd->context);
	struct lab_srq *srq;
	struct answer answer;
	int failed;

	if (!attr->attr.max_wr || attr->attr.max_sge > MAX_SGE)
		return give_up(NULL, refused(EINVAL, "create_srq: max_wr %u: at least 1; max_sge %u: at most %d",
					     attr->attr.max_wr, attr->attr.max_sge, MAX_SGE));
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return NULL;
	failed = lab_ask(context, REQUEST("create_srq", "sIsIsI", "pd", INT(pd->handle), "max_wr", INT(attr->attr.max_wr),
					  "max_sge", INT(attr->attr.max_sge)), &answer);
	if (failed)
		return give_up(srq, failed);
	srq->base.context = pd->context;
	srq->base.srq_context = attr->srq_context;
	srq->base.pd = pd;
	srq->base.handle = (uint32_t)number_in(answer.root, "srq", 0);
	srq->max_wr = attr->attr.max_wr;
	srq->max_sge = attr->attr.max_sge;
	answer_free(&answer);
	pthread_mutex_init(&srq->base.mutex, NULL);
	pthread_cond_init(&srq->base.cond, NULL);
	add_node(context, &context->shared, &srq->node, srq->base.handle);
	return &srq->base;
}

struct ibv_srq *lab_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	const uint32_t known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;

	if (attr->comp_mask & ~known ||
	    (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && attr->srq_type != IBV_SRQT_BASIC))
		return give_up(NULL, refused(EOPNOTSUPP, "create_srq_ex: this device has basic shared receive queues only"));
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd || attr->pd->context != context)
		return give_up(NULL, refused(EINVAL, "create_srq_ex: a protection domain of this device is needed"));
	return lab_create_srq(attr->pd, (struct ibv_srq_init_attr *)attr);
}

int lab_modify_srq(struct ibv_srq *base, struct ibv_srq_attr *attr, int mask)
{
	if (mask & IBV_SRQ_MAX_WR)
		return refused(EOPNOTSUPP, "modify_srq: a shared receive queue keeps its max_wr");
	if (!(mask & IBV_SRQ_LIMIT))
		return 0;
	return lab_ask(lab_of(base->context),
		       REQUEST("modify_srq", "sIsI", "srq", INT(base->handle), "limit", INT(attr->srq_limit)), NULL);
}

int lab_query_srq(struct ibv_srq *base, struct ibv_srq_attr *attr)
{
	struct lab_srq *srq = CONTAINER(base, struct lab_srq, base);
	struct answer answer;
	int failed = lab_ask(lab_of(base->context), REQUEST("query_srq", "sI", "srq", INT(base->handle)), &answer);

	if (failed)
		return failed;
	attr->max_wr = (uint32_t)number_in(answer.root, "max_wr", 0);
	attr->max_sge = (uint32_t)number_in(answer.root, "max_sge", 0);
	attr->srq_limit = (uint32_t)number_in(answer.root, "limit", 0);
	atomic_store(&srq->waiting, (uint32_t)number_in(answer.root, "posted", 0));
	answer_free(&answer);
	return 0;
}

int lab_destroy_srq(struct ibv_srq *base)
{
	struct lab_srq *srq = CONTAINER(base, struct lab_srq, base);
	struct lab_context *context = lab_of(base->context);
	uint32_t taken;
	int failed;

	if (is_forked(context))
		return ENODEV;
	failed = lab_ask(context, REQUEST("destroy_srq", "sI", "srq", INT(base->handle)), NULL);
	if (failed && failed != ENODEV)
		return failed;
	taken = remove_node(context, &context->shared, &srq->node, &srq->async_taken);
	await_acknowledgements(&base->mutex, &base->cond, &base->events_completed, taken);
	free(srq);
	return 0;
}

/* Return whether one more receive fits into a shared queue. What a destroyed queue pair had taken was never counted, so
 * that the agent is asked before a program is refused. */
static bool fits_shared(struct lab_srq *srq)
{
	struct ibv_srq_attr attr;

	if (atomic_load_explicit(&srq->waiting, memory_order_relaxed) < srq->max_wr)
		return true;
	if (lab_query_srq(&srq->base, &attr))
		return false;
	return atomic_load_explicit(&srq->waiting, memory_order_relaxed) < srq->max_wr;
}

int lab_post_srq_recv(struct ibv_srq *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct lab_srq *srq = CONTAINER(base, struct lab_srq, base);
	struct lab_context *context = lab_of(base->context);
	int failed = 0;

	for (; wr; wr = wr->next) {
		struct ring_request request;

		if (is_forked(context))
			failed = ENODEV;
		else if (!fits_shared(srq))
			failed = ENOMEM;
		else
			failed = lab_copy_receive(&request, base->handle, wr, RING_SRQ_RECV, srq->max_sge);
		if (!failed) {
			pthread_mutex_lock(&context->post_lock);
			failed = lab_add(context, &request, 1);
			if (!failed)
				lab_publish_receives(context, 1);
			pthread_mutex_unlock(&context->post_lock);
		}
		if (failed) {
			*bad = wr;
			return failed;
		}
		atomic_fetch_add_explicit(&srq->waiting, 1, memory_order_relaxed);
	}
	return 0;
}
