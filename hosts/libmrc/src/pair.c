/* Queue pairs. */
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

/* Return 0 for a type of queue pair that the device has. */
static int check_type(enum ibv_qp_type type)
{
	static const char *const names[] = {[IBV_QPT_UC] = "UC", [IBV_QPT_UD] = "UD", [IBV_QPT_RAW_PACKET] = "raw packet"};
	const char *name = (size_t)type < sizeof(names) / sizeof(*names) ? names[type] : NULL;

	if (type == IBV_QPT_RC)
		return 0;
	return refused(EOPNOTSUPP, "create_qp: queue pairs of type %d (%s): this device has RC only", (int)type,
		       name ? name : "another");
}

static struct lab_qp *make_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, bool mrc)
{
	struct lab_context *context = lab_of(pd->context);
	struct lab_qp *qp;
	struct answer answer;
	int failed;

	if (!attr->send_cq || !attr->recv_cq)
		return give_up(NULL, refused(EINVAL, "create_qp: a queue pair needs a send_cq and a recv_cq"));
	if (attr->cap.max_inline_data > INLINE_BYTES)
		return give_up(NULL, refused(EINVAL, "create_qp: max_inline_data %u: at most %d bytes go inline",
					     attr->cap.max_inline_data, INLINE_BYTES));
	if (attr->cap.max_send_sge > MAX_SGE || attr->cap.max_recv_sge > MAX_SGE)
		return give_up(NULL, refused(EINVAL, "create_qp: max_send_sge %u, max_recv_sge %u: at most %d",
					     attr->cap.max_send_sge, attr->cap.max_recv_sge, MAX_SGE));
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;
	qp->cap = attr->cap;
	if (!qp->cap.max_send_wr)
		qp->cap.max_send_wr = 1;
	if (attr->srq)
		qp->cap.max_recv_wr = qp->cap.max_recv_sge = 0;
	failed = lab_ask(context,
			 REQUEST("create_qp", "sIsIsIsIsIsIsIsIsbssso*", "pd", INT(pd->handle),
				 "send_cq", INT(attr->send_cq->handle), "recv_cq", INT(attr->recv_cq->handle),
				 "max_send_wr", INT(qp->cap.max_send_wr), "max_recv_wr", INT(qp->cap.max_recv_wr),
				 "max_send_sge", INT(qp->cap.max_send_sge), "max_recv_sge", INT(qp->cap.max_recv_sge),
				 "max_inline_data", INT(qp->cap.max_inline_data), "sq_sig_all", attr->sq_sig_all != 0,
				 "wire", mrc ? "mrc" : "roce", "srq", attr->srq ? json_integer(attr->srq->handle) : NULL),
			 &answer);
	if (failed)
		return give_up(qp, failed);
	attr->cap = qp->cap;
	qp->mrc = mrc;
	qp->sq_sig_all = attr->sq_sig_all;
	qp->base.context = pd->context;
	qp->base.qp_context = attr->qp_context;
	qp->base.pd = pd;
	qp->base.send_cq = attr->send_cq;
	qp->base.recv_cq = attr->recv_cq;
	qp->base.srq = attr->srq;
	qp->base.qp_num = qp->base.handle = (uint32_t)number_in(answer.root, "qp_num", 0);
	qp->base.state = IBV_QPS_RESET;
	qp->base.qp_type = IBV_QPT_RC;
	answer_free(&answer);
	pthread_mutex_init(&qp->base.mutex, NULL);
	pthread_cond_init(&qp->base.cond, NULL);
	pthread_mutex_init(&qp->batch_lock, NULL);
	add_node(context, &context->pairs, &qp->node, qp->base.qp_num);
	return qp;
}

struct ibv_qp *lab_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, bool mrc)
{
	struct lab_qp *qp;
	int failed = check_type(attr->qp_type);

	if (failed)
		return give_up(NULL, failed);
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
	int failed = check_type(attr->qp_type);

	if (failed)
		return give_up(NULL, failed);
	if (attr->comp_mask & ~known || (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && attr->create_flags))
		return give_up(NULL, refused(EOPNOTSUPP, "create_qp_ex: comp_mask %#x: at most PD, SEND_OPS_FLAGS and "
					     "CREATE_FLAGS of 0", attr->comp_mask));
	if (extended && attr->send_ops_flags & ~(mrc ? writes : all))
		return give_up(NULL, refused(EOPNOTSUPP, "create_qp_ex: send_ops_flags %#llx: %s",
					     (unsigned long long)attr->send_ops_flags,
					     mrc ? "MRC has RDMA_WRITE and RDMA_WRITE_WITH_IMM"
						 : "writes, sends, reads and atomics are there"));
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd || attr->pd->context != context)
		return give_up(NULL, refused(EINVAL, "create_qp_ex: a protection domain of this device is needed"));
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

int lab_destroy_qp(struct ibv_qp *base)
{
	struct lab_qp *qp = CONTAINER(base, struct lab_qp, base);
	struct lab_context *context = lab_of(base->context);
	uint32_t taken;
	int failed;

	if (is_forked(context))
		return ENODEV;
	failed = lab_ask(context, REQUEST("destroy_qp", "sI", "qp", INT(base->qp_num)), NULL);
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

/* Set a member of a request where its bit is in the mask. */
static void set(json_t *to, int bit, const char *key, uint64_t value)
{
	if (bit)
		json_object_set_new(to, key, json_integer(INT(value)));
}

static json_t *roce_attributes(const struct ibv_qp_attr *attr, int mask)
{
	json_t *to = json_object();

	set(to, mask & IBV_QP_SQ_PSN, "sq_psn", attr->sq_psn & PSN_MASK);
	set(to, mask & IBV_QP_ACCESS_FLAGS, "qp_access_flags", attr->qp_access_flags & 0xf);
	set(to, mask & IBV_QP_TIMEOUT, "timeout", attr->timeout);
	set(to, mask & IBV_QP_RETRY_CNT, "retry_cnt", attr->retry_cnt);
	set(to, mask & IBV_QP_RNR_RETRY, "rnr_retry", attr->rnr_retry);
	set(to, mask & IBV_QP_MIN_RNR_TIMER, "min_rnr_timer", attr->min_rnr_timer);
	set(to, mask & IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic", attr->max_rd_atomic);
	set(to, mask & IBV_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic", attr->max_dest_rd_atomic);
	return to;
}

/* Numbers among the attributes of a queue pair: the agent's name, the bit in a mask, and the member. */
#define MRC_ATTRIBUTES(EACH)                                                                                          \
	EACH(max_wimm, MRC_QP_MAX_WIMM, wimm.max_wimm)                                                                \
	EACH(max_wimm_dest, MRC_QP_MAX_WIMM_DEST, wimm.max_wimm_dest)                                                 \
	EACH(mpr, MRC_QP_MPR, mpr.mpr)                                                                                \
	EACH(mpr_dest, MRC_QP_MPR_DEST, mpr.mpr_dest)                                                                 \
	EACH(timeout, MRC_QP_TIMEOUT, timeout)                                                                        \
	EACH(linear_cnt, MRC_QP_RETRY_CNT, retry.linear_cnt)                                                          \
	EACH(exp_cnt, MRC_QP_RETRY_CNT, retry.exp_cnt)

static json_t *mrc_attributes(const struct ibv_qp_attr *attr, int mask, const struct mrc_qp_attr *more, int more_mask)
{
	json_t *to = json_object();

	set(to, mask & IBV_QP_SQ_PSN, "sq_psn", attr->sq_psn & PSN_MASK);
	if (!more_mask)
		return to;
#define SET(name, bit, member) set(to, more_mask & (bit), #name, more->member);
	MRC_ATTRIBUTES(SET)
#undef SET
	if (more_mask & MRC_QP_CAP)
		json_object_set_new(to, "dynamic_mpr", json_boolean(more->cap & MRC_QP_CAP_DYNAMIC_MPR));
	return to;
}

/* Profiles have numbers here and names in the agent: that of profile N is `c-N`, and 0 is the default. */
static json_t *profile_name(uint64_t id)
{
	return id ? json_sprintf("c-%llu", (unsigned long long)id) : json_string("default");
}

static json_t *remote_of(const struct lab_qp *qp, const struct ibv_qp_attr *attr)
{
	char address[INET6_ADDRSTRLEN];

	inet_ntop(AF_INET6, attr->ah_attr.grh.dgid.raw, address, sizeof(address));
	return json_pack("{sssIsIsIsbsb}", "gid", address, "qp_num", INT(attr->dest_qp_num & PSN_MASK),
			 "rq_psn", INT(attr->rq_psn & PSN_MASK), "path_mtu", INT(lab_mtu_bytes(attr->path_mtu)),
			 "trim_nack", !(qp->mrc_cap & MRC_QP_CAP_TRIM_NACK_DEST_UNSUPPORTED),
			 "service_time", !(qp->mrc_cap & MRC_QP_CAP_SVC_TIME_DEST_UNSUPPORTED));
}

/* Return 0, or the errno with which a change is refused before the agent hears of it. */
static int check_change(const struct lab_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	uint32_t number = qp->base.qp_num;

	if (mask & IBV_QP_CUR_STATE && attr->cur_qp_state != qp->base.state)
		return refused(EINVAL, "modify_qp %u: cur_qp_state is %d, and the state %d", number,
			       (int)attr->cur_qp_state, (int)qp->base.state);
	if (mask & (IBV_QP_ALT_PATH | IBV_QP_RATE_LIMIT))
		return refused(EOPNOTSUPP, "modify_qp %u: there is neither an alternate path nor a rate limit", number);
	if (mask & IBV_QP_PKEY_INDEX && attr->pkey_index)
		return refused(EINVAL, "modify_qp %u: pkey_index %u: there is 0 only", number, attr->pkey_index);
	if (!(mask & IBV_QP_STATE))
		return 0;
	if (attr->qp_state == IBV_QPS_SQD || attr->qp_state == IBV_QPS_SQE)
		return refused(EOPNOTSUPP, "modify_qp %u: there are no states SQD and SQE", number);
	if (attr->qp_state > IBV_QPS_ERR)
		return refused(EINVAL, "modify_qp %u: %d is no state", number, (int)attr->qp_state);
	if (attr->qp_state == IBV_QPS_RTR && qp->base.state != IBV_QPS_RTR) {
		if ((mask & RTR_MASK) != RTR_MASK || !attr->ah_attr.is_global || !lab_mtu_bytes(attr->path_mtu))
			return refused(EINVAL, "modify_qp %u: RTR needs AV with a GID (is_global), PATH_MTU, DEST_QPN and "
				       "RQ_PSN", number);
		if (attr->ah_attr.grh.sgid_index >= GIDS)
			return refused(EINVAL, "modify_qp %u: sgid_index %u: there are 0 to %d", number,
				       attr->ah_attr.grh.sgid_index, GIDS - 1);
	}
	return 0;
}

int lab_modify_qp(struct ibv_qp *base, const struct ibv_qp_attr *attr, int mask, const struct mrc_qp_attr *more,
		  int more_mask)
{
	struct lab_qp *qp = CONTAINER(base, struct lab_qp, base);
	struct lab_context *context = lab_of(base->context);
	bool move = mask & IBV_QP_STATE && !(attr->qp_state == base->state && attr->qp_state != IBV_QPS_ERR);
	bool meets = move && attr->qp_state == IBV_QPS_RTR;
	bool hinted = more_mask & MRC_QP_HINT && more->qp_hint;
	enum ibv_qp_state state = base->state;
	struct answer answer;
	int failed = is_forked(context) ? ENODEV : check_change(qp, attr, mask);

	if (failed)
		return failed;
	if (more_mask & MRC_QP_CAP)
		qp->mrc_cap = more->cap;
	failed = lab_ask(
		context,
		REQUEST("modify_qp", "sIsoso*so*so*so*so*", "qp", INT(base->qp_num), "attributes",
			qp->mrc ? mrc_attributes(attr, mask, more, more_mask) : roce_attributes(attr, mask),
			"ev_profile", more_mask & MRC_QP_EV_PROFILE_ID ? profile_name(more->profile.ev_profile_id) : NULL,
			"cc_profile", more_mask & MRC_QP_CC_PROFILE_ID ? profile_name(more->profile.cc_profile_id) : NULL,
			"hint", hinted ? json_integer(more->qp_hint->number) : NULL,
			"state", move ? json_integer(attr->qp_state) : NULL,
			"remote", meets ? remote_of(qp, attr) : NULL),
		&answer);
	if (failed)
		return failed;
	state = (enum ibv_qp_state)number_in(answer.root, "state", state);
	answer_free(&answer);
	keep(qp, attr, mask);
	if (hinted)
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

static void read_mrc_attributes(const struct lab_qp *qp, const json_t *answer, struct mrc_qp_attr *more)
{
	const json_t *values = json_object_get(answer, "attributes");

	memset(more, 0, sizeof(*more));
#define READ(name, bit, member) more->member = (__typeof__(more->member))number_in(values, #name, 0);
	MRC_ATTRIBUTES(READ)
#undef READ
	more->profile.ev_profile_id = profile_id(text_in(answer, "ev_profile", NULL));
	more->profile.cc_profile_id = profile_id(text_in(answer, "cc_profile", NULL));
	more->qp_hint = qp->hint;
	more->cap = qp->mrc_cap & ~(uint32_t)MRC_QP_CAP_DYNAMIC_MPR;
	if (bool_in(values, "dynamic_mpr", false))
		more->cap |= MRC_QP_CAP_DYNAMIC_MPR;
}

int lab_query_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init, struct mrc_qp_attr *more)
{
	struct lab_qp *qp = CONTAINER(base, struct lab_qp, base);
	struct answer answer;
	int failed = lab_ask(lab_of(base->context), REQUEST("query_qp", "sI", "qp", INT(base->qp_num)), &answer);

	if (failed)
		return failed;
	base->state = (enum ibv_qp_state)number_in(answer.root, "state", base->state);
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
