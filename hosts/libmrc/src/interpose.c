/*
 * The functions of libibverbs, for unmodified programs: those on objects here, those on devices in interpose_device.c,
 * its texts in texts.c, and what answers programs that look functions up in lookup.c.
 *
 * They have no symbol versions: the dynamic linker then binds references of any version to them, as long as this library
 * comes before libibverbs (LD_PRELOAD, or the order on the linker's command line). libibverbs stays loaded beside it
 * for what libmlx5, libefa and librdmacm need of its inner functions. Without MRC_DEVICE, and for objects of other
 * devices, each call is handed over to it.
 */
#include "handover.h"

/* -- memory ------------------------------------------------------------------------------------------------------- */

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	if (is_lab(context))
		return lab_alloc_pd(context);
	HAND_OVER(NULL, ibv_alloc_pd, context);
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	if (is_lab(pd->context))
		return lab_dealloc_pd(pd);
	HAND_OVER(ENOSYS, ibv_dealloc_pd, pd);
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *memory, size_t length, int access)
{
	if (is_lab(pd->context))
		return lab_reg_mr(pd, memory, length, (uintptr_t)memory, (unsigned int)access);
	HAND_OVER(NULL, ibv_reg_mr, pd, memory, length, access);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *memory, size_t length, uint64_t iova, int access)
{
	if (is_lab(pd->context))
		return lab_reg_mr(pd, memory, length, iova, (unsigned int)access);
	HAND_OVER(NULL, ibv_reg_mr_iova, pd, memory, length, iova, access);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *memory, size_t length, uint64_t iova,
				       unsigned int access)
{
	if (is_lab(pd->context))
		return lab_reg_mr(pd, memory, length, iova, access);
	HAND_OVER(NULL, ibv_reg_mr_iova2, pd, memory, length, iova, access);
}

EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
					int access)
{
	if (is_lab(pd->context))
		return fail_null(EOPNOTSUPP);
	HAND_OVER(NULL, ibv_reg_dmabuf_mr, pd, offset, length, iova, fd, access);
}

EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *memory, size_t length, int access)
{
	if (is_lab(mr->context))
		return lab_rereg_mr(mr, flags, pd, memory, length, access);
	HAND_OVER(IBV_REREG_MR_ERR_INPUT, ibv_rereg_mr, mr, flags, pd, memory, length, access);
}

EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	if (is_lab(mr->context))
		return lab_dereg_mr(mr);
	HAND_OVER(ENOSYS, ibv_dereg_mr, mr);
}

/* -- completions -------------------------------------------------------------------------------------------------- */

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	if (is_lab(context))
		return lab_create_channel(context);
	HAND_OVER(NULL, ibv_create_comp_channel, context);
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	if (is_lab(channel->context))
		return lab_destroy_channel(channel);
	HAND_OVER(ENOSYS, ibv_destroy_comp_channel, channel);
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *user, struct ibv_comp_channel *channel,
				    int vector)
{
	if (is_lab(context))
		return lab_create_cq(context, cqe, user, channel, vector);
	HAND_OVER(NULL, ibv_create_cq, context, cqe, user, channel, vector);
}

EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	if (!is_lab(cq->context))
		HAND_OVER(ENOSYS, ibv_resize_cq, cq, cqe);
	return cqe <= cq->cqe ? 0 : EOPNOTSUPP;
}

EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
	if (is_lab(cq->context))
		return lab_destroy_cq(cq);
	HAND_OVER(ENOSYS, ibv_destroy_cq, cq);
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **user)
{
	if (is_lab(channel->context))
		return lab_get_cq_event(channel, cq, user);
	HAND_OVER(-1, ibv_get_cq_event, channel, cq, user);
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
	void (*next)(struct ibv_cq *, unsigned int);

	if (is_lab(cq->context)) {
		lab_ack_cq_events(cq, count);
		return;
	}
	next = (void (*)(struct ibv_cq *, unsigned int))(uintptr_t)next_function("ibv_ack_cq_events");
	if (next)
		next(cq, count);
}

EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	int failed;

	if (!is_lab(context))
		HAND_OVER(-1, ibv_get_async_event, context, event);
	failed = lab_get_async_event(lab_of(context), event, false);
	if (!failed)
		return 0;
	errno = failed;
	return -1;
}

/* Return whether an event is of one of our objects; those without an object need no acknowledgement from anybody. */
static bool is_lab_event(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return is_lab(event->element.cq->context);
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return is_lab(event->element.qp->context);
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return is_lab(event->element.srq->context);
	default:
		return lab_wanted();
	}
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	void (*next)(struct ibv_async_event *);

	if (is_lab_event(event)) {
		lab_ack_async_event(event);
		return;
	}
	next = (void (*)(struct ibv_async_event *))(uintptr_t)next_function("ibv_ack_async_event");
	if (next)
		next(event);
}

/* -- queue pairs -------------------------------------------------------------------------------------------------- */

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	if (is_lab(pd->context))
		return lab_create_qp(pd, attr, false);
	HAND_OVER(NULL, ibv_create_qp, pd, attr);
}

EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	struct lab_qp *own;

	if (!is_lab(qp->context))
		HAND_OVER(NULL, ibv_qp_to_qp_ex, qp);
	own = CONTAINER(qp, struct lab_qp, base);
	return own->extended ? &own->ex : NULL;
}

EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	if (is_lab(qp->context))
		return lab_modify_qp(qp, attr, mask, NULL, 0);
	HAND_OVER(ENOSYS, ibv_modify_qp, qp, attr, mask);
}

EXPORT int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	if (is_lab(qp->context))
		return lab_query_qp(qp, attr, init, NULL);
	HAND_OVER(ENOSYS, ibv_query_qp, qp, attr, mask, init);
}

/* Packets of a message may come in any order, by several planes. */
EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	if (is_lab(qp->context))
		return 0;
	HAND_OVER(0, ibv_query_qp_data_in_order, qp, op, flags);
}

EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
	if (is_lab(qp->context))
		return lab_destroy_qp(qp);
	HAND_OVER(ENOSYS, ibv_destroy_qp, qp);
}

EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	if (is_lab(pd->context))
		return lab_create_srq(pd, attr);
	HAND_OVER(NULL, ibv_create_srq, pd, attr);
}

EXPORT int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	if (is_lab(srq->context))
		return lab_modify_srq(srq, attr, mask);
	HAND_OVER(ENOSYS, ibv_modify_srq, srq, attr, mask);
}

EXPORT int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	if (is_lab(srq->context))
		return lab_query_srq(srq, attr);
	HAND_OVER(ENOSYS, ibv_query_srq, srq, attr);
}

EXPORT int ibv_destroy_srq(struct ibv_srq *srq)
{
	if (is_lab(srq->context))
		return lab_destroy_srq(srq);
	HAND_OVER(ENOSYS, ibv_destroy_srq, srq);
}

EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	if (is_lab(qp->context))
		return EOPNOTSUPP;
	HAND_OVER(ENOSYS, ibv_set_ece, qp, ece);
}

EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	if (is_lab(qp->context))
		return EOPNOTSUPP;
	HAND_OVER(ENOSYS, ibv_query_ece, qp, ece);
}

/* -- what only unreliable datagrams need -------------------------------------------------------------------------- */

EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	if (is_lab(pd->context))
		return fail_null(EOPNOTSUPP);
	HAND_OVER(NULL, ibv_create_ah, pd, attr);
}

EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
			       struct ibv_ah_attr *attr)
{
	if (!is_lab(context))
		HAND_OVER(-1, ibv_init_ah_from_wc, context, port, wc, grh, attr);
	errno = EOPNOTSUPP;
	return -1;
}

EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	if (is_lab(pd->context))
		return fail_null(EOPNOTSUPP);
	HAND_OVER(NULL, ibv_create_ah_from_wc, pd, wc, grh, port);
}

EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
	if (is_lab(ah->context))
		return EINVAL;
	HAND_OVER(ENOSYS, ibv_destroy_ah, ah);
}

EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	if (is_lab(qp->context))
		return EOPNOTSUPP;
	HAND_OVER(ENOSYS, ibv_attach_mcast, qp, gid, lid);
}

EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	if (is_lab(qp->context))
		return EOPNOTSUPP;
	HAND_OVER(ENOSYS, ibv_detach_mcast, qp, gid, lid);
}

/* -- forks -------------------------------------------------------------------------------------------------------- */

/* Pages are not pinned, so that a fork cannot part the program from what the device writes to. */
EXPORT int ibv_fork_init(void)
{
	if (lab_wanted())
		return 0;
	HAND_OVER(ENOSYS, ibv_fork_init);
}

EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	if (lab_wanted())
		return IBV_FORK_UNNEEDED;
	HAND_OVER(IBV_FORK_DISABLED, ibv_is_fork_initialized);
}
