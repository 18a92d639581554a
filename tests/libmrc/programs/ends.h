/* Two ends in one program, each on a host of the bed, and checks that say where they fail. */
#ifndef ENDS_H
#define ENDS_H

#include <infiniband/verbs.h>
#include <mrc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                              \
	do {                                                                                                          \
		if (!(condition)) {                                                                                   \
			fprintf(stderr, "%s:%d: %s (errno %d: %s)\n", __FILE__, __LINE__, #condition, errno,           \
				strerror(errno));                                                                     \
			exit(1);                                                                                      \
		}                                                                                                     \
	} while (0)

#define SIZE 65536

struct end {
	struct ibv_context *context;
	struct mrc_context *mrc;
	struct ibv_pd *pd;
	struct mrc_comp_channel *channel;
	struct mrc_cq *cq;
	struct mrc_qp *qp;
	struct ibv_mr *mr;
	unsigned char *memory;
	uint32_t number;
	union ibv_gid gid;
};

static inline struct ibv_context *open_context(const char *path)
{
	struct ibv_device **list;
	struct ibv_context *context;
	int count = 0;

	setenv("MRC_DEVICE", path, 1);
	list = ibv_get_device_list(&count);
	CHECK(list && count == 1 && list[0] && !list[1]);
	context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	return context;
}

static inline struct mrc_qp *create_pair(struct end *end, uint32_t sends, uint32_t receives, int signal_all)
{
	struct mrc_qp_init_attr init = {.send_cq = end->cq, .recv_cq = end->cq, .pd = end->pd, .sq_sig_all = signal_all};

	init.cap.max_send_wr = sends;
	init.cap.max_recv_wr = receives;
	init.cap.max_send_sge = 4;
	init.cap.max_recv_sge = 1;
	init.cap.max_inline_data = 256;
	return mrc_create_qp(end->mrc, &init);
}

static inline struct end open_end(const char *path)
{
	struct end end = {.context = open_context(path)};
	struct mrc_context_attr attr = {.mrc_api_version_used = MRC_API_CURRENT_VERSION};

	end.mrc = mrc_create_context(end.context, &attr);
	CHECK(end.mrc);
	end.pd = ibv_alloc_pd(end.context);
	CHECK(end.pd);
	CHECK(!mrc_create_comp_channel(end.mrc, &end.channel));
	end.cq = mrc_create_cq(end.mrc, 1024, &end, end.channel, 0);
	CHECK(end.cq);
	end.memory = calloc(1, SIZE);
	end.mr = ibv_reg_mr(end.pd, end.memory, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(end.mr && end.mr->addr == end.memory && end.mr->length == SIZE);
	end.qp = create_pair(&end, 64, 64, 0);
	CHECK(end.qp);
	CHECK(!mrc_get_qpn(end.qp, &end.number));
	CHECK(!ibv_query_gid(end.context, 1, 3, &end.gid));
	return end;
}

static inline void move(struct mrc_qp *qp, uint32_t peer, const union ibv_gid *gid)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	CHECK(!mrc_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, NULL, 0));
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = peer;
	attr.rq_psn = 77;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.dgid = *gid;
	attr.ah_attr.grh.sgid_index = 3;
	CHECK(!mrc_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, NULL, 0));
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = 77;
	CHECK(!mrc_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
						IBV_QP_RNR_RETRY, NULL, 0));
}

static inline void join(struct end *a, struct end *b)
{
	move(a->qp, b->number, &b->gid);
	move(b->qp, a->number, &a->gid);
}

static inline int post_write(struct end *from, const struct end *to, struct mrc_qp *qp, uint64_t wr_id, size_t offset,
			     uint32_t length, unsigned int flags, int64_t immediate)
{
	struct ibv_sge element = {(uintptr_t)from->memory + offset, length, from->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = wr_id, .sg_list = &element, .num_sge = 1, .send_flags = flags};
	struct ibv_send_wr *bad = NULL;
	int failed;

	wr.opcode = immediate < 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM;
	wr.imm_data = (uint32_t)immediate;
	wr.wr.rdma.remote_addr = (uintptr_t)to->memory + offset;
	wr.wr.rdma.rkey = to->mr->rkey;
	failed = mrc_post_send(qp, &wr, &bad);
	CHECK(!failed || bad == &wr);
	return failed;
}

/* Poll until `count` completions have come. */
static inline void poll_for(struct mrc_cq *cq, int count, struct ibv_wc *wc)
{
	for (int found = 0; found < count;) {
		int more = mrc_poll_cq(cq, count - found, wc + found);

		CHECK(more >= 0);
		found += more;
	}
}

static inline void close_end(struct end *end)
{
	CHECK(!mrc_destroy_qp(end->qp));
	CHECK(!mrc_destroy_cq(end->cq));
	CHECK(!mrc_destroy_comp_channel(end->channel));
	CHECK(!ibv_dereg_mr(end->mr));
	CHECK(!ibv_dealloc_pd(end->pd));
	CHECK(!mrc_destroy_context(end->mrc));
	CHECK(!ibv_close_device(end->context));
	free(end->memory);
}

#endif
