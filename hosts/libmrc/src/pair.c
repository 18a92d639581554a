/* Queue pairs and shared receive queues. */
#include "internal.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#define PSN_MASK 0xffffff
/* What reaches RTR, by libibverbs' rules for RC that both wires need. */
#define RTR_MASK (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)

/* -- creation ----------------------------------------------------------------------------------------------------- */

static bool rc_runs_over_mrc(void)
{
	const char *wanted = getenv("MRCLAB_RC");

	return wanted && !strcmp(wanted, "mrc");
}

static struct lab_qp *make_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, bool mrc)
{
	struct lab_context *context = lab_of(pd->context);
	struct lab_qp *qp;
	struct writer writer;
	struct answer answer;
	int failed;

	if (!attr->send_cq || !attr->recv_cq || attr->cap.max_inline_data > INLINE_BYTES ||
	    attr->cap.max_send_sge > MAX_SGE || attr->cap.max_recv_sge > MAX_SGE) {
		errno = EINVAL;
		return NULL;
	}
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;
	qp->cap = attr->cap;
	if (!qp->cap.max_send_wr)
		qp->cap.max_send_wr = 1;
	if (attr->srq)
		qp->cap.max_recv_wr = qp->cap.max_recv_sge = 0;
	write_begin(&writer, "create_qp");
	write_number(&writer, "pd", pd->handle);
	write_number(&writer, "send_cq", attr->send_cq->handle);
	write_number(&writer, "recv_cq", attr->recv_cq->handle);
	write_number(&writer, "max_send_wr", qp->cap.max_send_wr);
	write_number(&writer, "max_recv_wr", qp->cap.max_recv_wr);
	write_number(&writer, "max_send_sge", qp->cap.max_send_sge);
	write_number(&writer, "max_inline_data", qp->cap.max_inline_data);
	write_bool(&writer, "sq_sig_all", attr->sq_sig_all);
	write_number(&writer, "max_recv_sge", qp->cap.max_recv_sge);
	write_text(&writer, "wire", mrc ? "mrc" : "roce");
	if (attr->srq)
		write_number(&writer, "srq", attr->srq->handle);
	failed = lab_ask(context, &writer, &answer);
	if (failed) {
		free(qp);
		errno = failed;
		return NULL;
	}
	attr->cap = qp->cap;
	qp->mrc = mrc;
	qp->sq_sig_all = attr->sq_sig_all;
	qp->base.context = pd->context;
	qp->base.qp_context = attr->qp_context;
	qp->base.pd = pd;
	qp->base.send_cq = attr->send_cq;
	qp->base.recv_cq = attr->recv_cq;
	qp->base.srq = attr->srq;
	qp->base.qp_num = qp->base.handle = (uint32_t)json_number(answer.root, "qp_num", 0);
	qp->base.state = IBV_QPS_RESET;
	qp->base.qp_type = IBV_QPT_RC;
	answer_free(&answer);
	pthread_mutex_init(&qp->base.mutex, NULL);
	pthread_cond_init(&qp->base.cond, NULL);
	pthread_mutex_init(&qp->batch_lock, NULL);
	pthread_mutex_lock(&context->table_lock);
	table_add(&context->pairs, &qp->node, qp->base.qp_num);
	pthread_mutex_unlock(&context->table_lock);
	return qp;
}

struct ibv_qp *lab_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, bool mrc)
{
	struct lab_qp *qp;

	if (attr->qp_type != IBV_QPT_RC) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	qp = make_qp(pd, attr, mrc || rc_runs_over_mrc());
	return qp ? &qp->base : NULL;
}

struct ibv_qp *lab_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_CREATE_FLAGS;
	const uint64_t all = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
			     IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
			     IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	const uint64_t writes = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
	bool mrc = rc_runs_over_mrc();
	bool extended = attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	struct lab_qp *qp;

	if (attr->comp_mask & ~known || (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && attr->create_flags) ||
	    attr->qp_type != IBV_QPT_RC || (extended && attr->send_ops_flags & ~(mrc ? writes : all))) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd || attr->pd->context != context) {
		errno = EINVAL;
		return NULL;
	}
	/* It begins with the members of the plain structure. */
	qp = make_qp(attr->pd, (struct ibv_qp_init_attr *)attr, mrc);
	if (!qp)
		return NULL;
	if (extended) {
		qp->extended = true;
		lab_set_batch_functions(&qp->ex);
	}
	return &qp->base;
}

/* Remove an object from its table; return how many events of it the program has taken. */
static uint32_t remove_node(struct lab_context *context, struct table *table, struct node *node,
			    const uint32_t *async_taken)
{
	uint32_t taken;

	pthread_mutex_lock(&context->event_lock);
	pthread_mutex_lock(&context->table_lock);
	table_remove(table, node);
	taken = *async_taken;
	pthread_mutex_unlock(&context->table_lock);
	pthread_mutex_unlock(&context->event_lock);
	return taken;
}

/* Wait until the program has acknowledged all events that it has taken; then destroy what it was told by. */
static void await_acknowledgements(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *completed,
				   uint32_t taken)
{
	pthread_mutex_lock(mutex);
	while (*completed != taken)
		pthread_cond_wait(cond, mutex);
	pthread_mutex_unlock(mutex);
	pthread_mutex_destroy(mutex);
	pthread_cond_destroy(cond);
}

int lab_destroy_qp(struct ibv_qp *base)
{
	struct lab_qp *qp = CONTAINER(base, struct lab_qp, base);
	struct lab_context *context = lab_of(base->context);
	struct writer writer;
	uint32_t taken;
	int failed;

	if (is_forked(context))
		return ENODEV;
	write_begin(&writer, "destroy_qp");
	write_number(&writer, "qp", base->qp_num);
	failed = lab_ask(context, &writer, NULL);
	if (failed && failed != ENODEV)
		return failed;
	taken = remove_node(context, &context->pairs, &qp->node, &qp->async_taken);
	await_acknowledgements(&base->mutex, &base->cond, &base->events_completed, taken);
	pthread_mutex_destroy(&qp->batch_lock);
	free(qp->batch);
	free(qp);
	return 0;
}

/* -- modification ------------------------------------------------------------------------------------------------- */

/* Keep what was set, for queries. */
static void keep(struct lab_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	struct ibv_qp_attr *own = &qp->attr;

#define KEEP(bit, member)                                                                                             \
	if (mask & (bit))                                                                                             \
	own->member = attr->member
	KEEP(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	KEEP(IBV_QP_PKEY_INDEX, pkey_index);
	KEEP(IBV_QP_PORT, port_num);
	KEEP(IBV_QP_AV, ah_attr);
	KEEP(IBV_QP_PATH_MTU, path_mtu);
	KEEP(IBV_QP_TIMEOUT, timeout);
	KEEP(IBV_QP_RETRY_CNT, retry_cnt);
	KEEP(IBV_QP_RNR_RETRY, rnr_retry);
	KEEP(IBV_QP_RQ_PSN, rq_psn);
	KEEP(IBV_QP_SQ_PSN, sq_psn);
	KEEP(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	KEEP(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	KEEP(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	KEEP(IBV_QP_DEST_QPN, dest_qp_num);
#undef KEEP
}

static void write_roce_attributes(struct writer *writer, const struct ibv_qp_attr *attr, int mask)
{
	if (mask & IBV_QP_ACCESS_FLAGS)
		write_number(writer, "qp_access_flags", attr->qp_access_flags & 0xf);
	if (mask & IBV_QP_TIMEOUT)
		write_number(writer, "timeout", attr->timeout);
	if (mask & IBV_QP_RETRY_CNT)
		write_number(writer, "retry_cnt", attr->retry_cnt);
	if (mask & IBV_QP_RNR_RETRY)
		write_number(writer, "rnr_retry", attr->rnr_retry);
	if (mask & IBV_QP_MIN_RNR_TIMER)
		write_number(writer, "min_rnr_timer", attr->min_rnr_timer);
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		write_number(writer, "max_rd_atomic", attr->max_rd_atomic);
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		write_number(writer, "max_dest_rd_atomic", attr->max_dest_rd_atomic);
}

static void write_mrc_attributes(struct writer *writer, const struct mrc_qp_attr *more, int mask)
{
	if (mask & MRC_QP_MAX_WIMM)
		write_number(writer, "max_wimm", more->wimm.max_wimm);
	if (mask & MRC_QP_MAX_WIMM_DEST)
		write_number(writer, "max_wimm_dest", more->wimm.max_wimm_dest);
	if (mask & MRC_QP_MPR)
		write_number(writer, "mpr", more->mpr.mpr);
	if (mask & MRC_QP_MPR_DEST)
		write_number(writer, "mpr_dest", more->mpr.mpr_dest);
	if (mask & MRC_QP_TIMEOUT)
		write_number(writer, "timeout", more->timeout);
	if (mask & MRC_QP_RETRY_CNT) {
		write_number(writer, "linear_cnt", more->retry.linear_cnt);
		write_number(writer, "exp_cnt", more->retry.exp_cnt);
	}
	if (mask & MRC_QP_CAP)
		write_bool(writer, "dynamic_mpr", more->cap & MRC_QP_CAP_DYNAMIC_MPR);
}

/* Profiles have numbers here and names in the agent: that of profile N is `c-N`, and 0 is the default. */
static void write_profile(struct writer *writer, const char *key, uint64_t id)
{
	char name[32];

	if (id)
		snprintf(name, sizeof(name), "c-%llu", (unsigned long long)id);
	write_text(writer, key, id ? name : "default");
}

static void write_remote(struct writer *writer, const struct lab_qp *qp, const struct ibv_qp_attr *attr)
{
	char address[INET6_ADDRSTRLEN];

	inet_ntop(AF_INET6, attr->ah_attr.grh.dgid.raw, address, sizeof(address));
	write_open(writer, "remote", '{');
	write_text(writer, "gid", address);
	write_number(writer, "qp_num", attr->dest_qp_num & PSN_MASK);
	write_number(writer, "rq_psn", attr->rq_psn & PSN_MASK);
	write_number(writer, "path_mtu", lab_mtu_bytes(attr->path_mtu));
	write_bool(writer, "trim_nack", !(qp->mrc_cap & MRC_QP_CAP_TRIM_NACK_DEST_UNSUPPORTED));
	write_bool(writer, "service_time", !(qp->mrc_cap & MRC_QP_CAP_SVC_TIME_DEST_UNSUPPORTED));
	write_close(writer, '}');
}

/* Return 0, or the errno with which a change is refused before the agent hears of it. */
static int check_change(const struct lab_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	if (mask & IBV_QP_CUR_STATE && attr->cur_qp_state != qp->base.state)
		return EINVAL;
	if (mask & (IBV_QP_ALT_PATH | IBV_QP_RATE_LIMIT))
		return EOPNOTSUPP;
	if (mask & IBV_QP_PKEY_INDEX && attr->pkey_index)
		return EINVAL;
	if (!(mask & IBV_QP_STATE))
		return 0;
	if (attr->qp_state == IBV_QPS_SQD || attr->qp_state == IBV_QPS_SQE)
		return EOPNOTSUPP;
	if (attr->qp_state > IBV_QPS_ERR)
		return EINVAL;
	if (attr->qp_state == IBV_QPS_RTR && qp->base.state != IBV_QPS_RTR) {
		if ((mask & RTR_MASK) != RTR_MASK || !attr->ah_attr.is_global || !lab_mtu_bytes(attr->path_mtu))
			return EINVAL;
		if (attr->ah_attr.grh.sgid_index >= GIDS)
			return EINVAL;
	}
	return 0;
}

int lab_modify_qp(struct ibv_qp *base, const struct ibv_qp_attr *attr, int mask, const struct mrc_qp_attr *more,
		  int more_mask)
{
	struct lab_qp *qp = CONTAINER(base, struct lab_qp, base);
	struct lab_context *context = lab_of(base->context);
	bool move = mask & IBV_QP_STATE && !(attr->qp_state == base->state && attr->qp_state != IBV_QPS_ERR);
	enum ibv_qp_state state = base->state;
	struct writer writer;
	struct answer answer;
	int failed = is_forked(context) ? ENODEV : check_change(qp, attr, mask);

	if (failed)
		return failed;
	if (more_mask & MRC_QP_CAP)
		qp->mrc_cap = more->cap;
	write_begin(&writer, "modify_qp");
	write_number(&writer, "qp", base->qp_num);
	write_open(&writer, "attributes", '{');
	if (mask & IBV_QP_SQ_PSN)
		write_number(&writer, "sq_psn", attr->sq_psn & PSN_MASK);
	if (qp->mrc)
		write_mrc_attributes(&writer, more, more_mask);
	else
		write_roce_attributes(&writer, attr, mask);
	write_close(&writer, '}');
	if (more_mask & MRC_QP_EV_PROFILE_ID)
		write_profile(&writer, "ev_profile", more->profile.ev_profile_id);
	if (more_mask & MRC_QP_CC_PROFILE_ID)
		write_profile(&writer, "cc_profile", more->profile.cc_profile_id);
	if (more_mask & MRC_QP_HINT && more->qp_hint)
		write_number(&writer, "hint", more->qp_hint->number);
	if (move) {
		write_number(&writer, "state", attr->qp_state);
		if (attr->qp_state == IBV_QPS_RTR)
			write_remote(&writer, qp, attr);
	}
	failed = lab_ask(context, &writer, &answer);
	if (failed)
		return failed;
	state = (enum ibv_qp_state)json_number(answer.root, "state", state);
	answer_free(&answer);
	keep(qp, attr, mask);
	if (more_mask & MRC_QP_HINT && more->qp_hint)
		qp->hint = more->qp_hint;
	if (state == IBV_QPS_RESET) {
		/* As drivers of NICs do; also, what these completions say would be wrong for what is posted from now on. */
		lab_clean_cq(base->send_cq, base->qp_num);
		lab_clean_cq(base->recv_cq, base->qp_num);
		/* What was under way has ended without a completion. */
		pthread_mutex_lock(&context->post_lock);
		atomic_store(&qp->sent_ended, qp->sent);
		atomic_store(&qp->received_ended, qp->received);
		atomic_store(&qp->failed, false);
		pthread_mutex_unlock(&context->post_lock);
	}
	base->state = state;
	return 0;
}

/* -- queries ------------------------------------------------------------------------------------------------------ */

static uint64_t profile_id(const char *name)
{
	return name && !strncmp(name, "c-", 2) ? strtoull(name + 2, NULL, 10) : 0;
}

static void read_mrc_attributes(const struct lab_qp *qp, const struct json *answer, struct mrc_qp_attr *more)
{
	const struct json *values = json_get(answer, "attributes");

	memset(more, 0, sizeof(*more));
	more->mpr.mpr = (uint8_t)json_number(values, "mpr", 0);
	more->mpr.mpr_dest = (uint8_t)json_number(values, "mpr_dest", 0);
	more->wimm.max_wimm = (uint16_t)json_number(values, "max_wimm", 0);
	more->wimm.max_wimm_dest = (uint16_t)json_number(values, "max_wimm_dest", 0);
	more->timeout = (uint8_t)json_number(values, "timeout", 0);
	more->retry.linear_cnt = (uint8_t)json_number(values, "linear_cnt", 0);
	more->retry.exp_cnt = (uint8_t)json_number(values, "exp_cnt", 0);
	more->profile.ev_profile_id = profile_id(json_text(answer, "ev_profile", NULL));
	more->profile.cc_profile_id = profile_id(json_text(answer, "cc_profile", NULL));
	more->qp_hint = qp->hint;
	more->cap = qp->mrc_cap & ~(uint32_t)MRC_QP_CAP_DYNAMIC_MPR;
	if (json_bool(values, "dynamic_mpr", false))
		more->cap |= MRC_QP_CAP_DYNAMIC_MPR;
}

int lab_query_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init, struct mrc_qp_attr *more)
{
	struct lab_qp *qp = CONTAINER(base, struct lab_qp, base);
	struct writer writer;
	struct answer answer;
	int failed;

	write_begin(&writer, "query_qp");
	write_number(&writer, "qp", base->qp_num);
	failed = lab_ask(lab_of(base->context), &writer, &answer);
	if (failed)
		return failed;
	base->state = (enum ibv_qp_state)json_number(answer.root, "state", base->state);
	if (attr) {
		*attr = qp->attr;
		attr->qp_state = attr->cur_qp_state = base->state;
		attr->cap = qp->cap;
		attr->path_mig_state = IBV_MIG_MIGRATED;
	}
	if (init) {
		memset(init, 0, sizeof(*init));
		init->qp_context = base->qp_context;
		init->send_cq = base->send_cq;
		init->recv_cq = base->recv_cq;
		init->srq = base->srq;
		init->cap = qp->cap;
		init->qp_type = base->qp_type;
		init->sq_sig_all = qp->sq_sig_all;
	}
	if (more)
		read_mrc_attributes(qp, answer.root, more);
	answer_free(&answer);
	return 0;
}

/* -- shared receive queues ---------------------------------------------------------------------------------------- */

struct ibv_srq *lab_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct lab_context *context = lab_of(pd->context);
	struct lab_srq *srq;
	struct writer writer;
	struct answer answer;
	int failed;

	if (!attr->attr.max_wr || attr->attr.max_sge > MAX_SGE) {
		errno = EINVAL;
		return NULL;
	}
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return NULL;
	write_begin(&writer, "create_srq");
	write_number(&writer, "pd", pd->handle);
	write_number(&writer, "max_wr", attr->attr.max_wr);
	write_number(&writer, "max_sge", attr->attr.max_sge);
	failed = lab_ask(context, &writer, &answer);
	if (failed) {
		free(srq);
		errno = failed;
		return NULL;
	}
	srq->base.context = pd->context;
	srq->base.srq_context = attr->srq_context;
	srq->base.pd = pd;
	srq->base.handle = (uint32_t)json_number(answer.root, "srq", 0);
	srq->max_wr = attr->attr.max_wr;
	srq->max_sge = attr->attr.max_sge;
	answer_free(&answer);
	pthread_mutex_init(&srq->base.mutex, NULL);
	pthread_cond_init(&srq->base.cond, NULL);
	pthread_mutex_lock(&context->table_lock);
	table_add(&context->shared, &srq->node, srq->base.handle);
	pthread_mutex_unlock(&context->table_lock);
	return &srq->base;
}

struct ibv_srq *lab_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	const uint32_t known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;

	if (attr->comp_mask & ~known ||
	    (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && attr->srq_type != IBV_SRQT_BASIC)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd || attr->pd->context != context) {
		errno = EINVAL;
		return NULL;
	}
	return lab_create_srq(attr->pd, (struct ibv_srq_init_attr *)attr);
}

int lab_modify_srq(struct ibv_srq *base, struct ibv_srq_attr *attr, int mask)
{
	struct writer writer;

	if (mask & IBV_SRQ_MAX_WR)
		return EOPNOTSUPP;
	if (!(mask & IBV_SRQ_LIMIT))
		return 0;
	write_begin(&writer, "modify_srq");
	write_number(&writer, "srq", base->handle);
	write_number(&writer, "limit", attr->srq_limit);
	return lab_ask(lab_of(base->context), &writer, NULL);
}

int lab_query_srq(struct ibv_srq *base, struct ibv_srq_attr *attr)
{
	struct lab_srq *srq = CONTAINER(base, struct lab_srq, base);
	struct writer writer;
	struct answer answer;
	int failed;

	write_begin(&writer, "query_srq");
	write_number(&writer, "srq", base->handle);
	failed = lab_ask(lab_of(base->context), &writer, &answer);
	if (failed)
		return failed;
	attr->max_wr = (uint32_t)json_number(answer.root, "max_wr", 0);
	attr->max_sge = (uint32_t)json_number(answer.root, "max_sge", 0);
	attr->srq_limit = (uint32_t)json_number(answer.root, "limit", 0);
	atomic_store(&srq->waiting, (uint32_t)json_number(answer.root, "posted", 0));
	answer_free(&answer);
	return 0;
}

int lab_destroy_srq(struct ibv_srq *base)
{
	struct lab_srq *srq = CONTAINER(base, struct lab_srq, base);
	struct lab_context *context = lab_of(base->context);
	struct writer writer;
	uint32_t taken;
	int failed;

	if (is_forked(context))
		return ENODEV;
	write_begin(&writer, "destroy_srq");
	write_number(&writer, "srq", base->handle);
	failed = lab_ask(context, &writer, NULL);
	if (failed && failed != ENODEV)
		return failed;
	taken = remove_node(context, &context->shared, &srq->node, &srq->async_taken);
	await_acknowledgements(&base->mutex, &base->cond, &base->events_completed, taken);
	free(srq);
	return 0;
}
