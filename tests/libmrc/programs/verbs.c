/* libibverbs' own functions: extended queue pairs and completion queues, and all operations; as cases.c. */
#include "cases.h"

#include <arpa/inet.h>

struct verbs_end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq_ex *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex;
	struct ibv_mr *mr;
	uint64_t *memory;
	union ibv_gid gid;
};

static struct verbs_end open_verbs(const char *path, uint64_t operations, bool shared)
{
	struct verbs_end end = {.context = open_context(path)};
	struct ibv_cq_init_attr_ex cq_attr = {.cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS};
	struct ibv_qp_init_attr_ex attr = {.qp_type = IBV_QPT_RC, .send_ops_flags = operations};
	struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 8, .max_sge = 2}};

	end.pd = ibv_alloc_pd(end.context);
	end.cq = ibv_create_cq_ex(end.context, &cq_attr);
	CHECK(end.pd && end.cq);
	if (shared) {
		end.srq = ibv_create_srq(end.pd, &srq_attr);
		CHECK(end.srq);
	}
	attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(end.cq);
	attr.pd = end.pd;
	attr.srq = end.srq;
	attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr.cap.max_send_wr = attr.cap.max_recv_wr = 8;
	attr.cap.max_send_sge = attr.cap.max_recv_sge = 2;
	attr.cap.max_inline_data = 64;
	end.qp = ibv_create_qp_ex(end.context, &attr);
	CHECK(end.qp && end.qp->state == IBV_QPS_RESET);
	end.ex = ibv_qp_to_qp_ex(end.qp);
	CHECK(end.ex);
	end.memory = calloc(1, 4096);
	end.mr = ibv_reg_mr(end.pd, end.memory, 4096,
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				    IBV_ACCESS_REMOTE_ATOMIC);
	CHECK(end.mr && !ibv_query_gid(end.context, 1, 0, &end.gid));
	return end;
}

/* One that only answers its peer may stay in RTR. */
static void move_verbs(struct verbs_end *end, const struct verbs_end *peer, bool sends)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp_init_attr init;

	attr.qp_access_flags =
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	CHECK(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = peer->qp->qp_num;
	attr.rq_psn = 5;
	attr.max_dest_rd_atomic = 4;
	attr.min_rnr_timer = 12;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.dgid = peer->gid;
	CHECK(!ibv_modify_qp(end->qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	if (!sends)
		return;
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = 5;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 4;
	CHECK(!ibv_modify_qp(end->qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				     IBV_QP_MAX_QP_RD_ATOMIC));
	memset(&attr, 0, sizeof(attr));
	CHECK(!ibv_query_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &init));
	CHECK(attr.qp_state == IBV_QPS_RTS && attr.dest_qp_num == peer->qp->qp_num && attr.timeout == 14);
	CHECK(init.cap.max_send_wr == 8 && init.qp_type == IBV_QPT_RC && init.srq == end->srq);
}

/* Wait for one completion; it can be read until `ibv_end_poll`. */
static void wait_for_one(struct verbs_end *end, uint64_t wr_id, enum ibv_wc_opcode opcode)
{
	struct ibv_poll_cq_attr attr = {0};
	int failed;

	do {
		failed = ibv_start_poll(end->cq, &attr);
	} while (failed == ENOENT);
	CHECK(!failed && end->cq->wr_id == wr_id && end->cq->status == IBV_WC_SUCCESS);
	CHECK(ibv_wc_read_opcode(end->cq) == opcode && ibv_wc_read_qp_num(end->cq) == end->qp->qp_num);
}

static void close_verbs(struct verbs_end *end)
{
	CHECK(!ibv_destroy_qp(end->qp) && !ibv_destroy_cq(ibv_cq_ex_to_cq(end->cq)));
	CHECK(!end->srq || !ibv_destroy_srq(end->srq));
	CHECK(!ibv_dereg_mr(end->mr) && !ibv_dealloc_pd(end->pd) && !ibv_close_device(end->context));
	free(end->memory);
}

#define BATCH_WRITES (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM)

/* Batches go out in one piece or not at all, and completions are read one by one. */
static void batches(void)
{
	struct verbs_end a = open_verbs(paths[0], BATCH_WRITES, false), b = open_verbs(paths[1], BATCH_WRITES, false);
	struct ibv_recv_wr receive = {.wr_id = 7}, *bad;
	uint64_t at = (uintptr_t)b.memory;
	char text[] = "bytes of a batch";

	move_verbs(&a, &b, true);
	move_verbs(&b, &a, false);
	CHECK(!ibv_post_recv(b.qp, &receive, &bad));
	a.memory[0] = 0x1122334455667788;
	ibv_wr_start(a.ex);
	a.ex->wr_id = 1;
	a.ex->wr_flags = 0;
	ibv_wr_rdma_write(a.ex, b.mr->rkey, at);
	ibv_wr_set_sge(a.ex, a.mr->lkey, (uintptr_t)a.memory, 8);
	a.ex->wr_id = 2;
	a.ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write_imm(a.ex, b.mr->rkey, at + 64, htonl(9));
	ibv_wr_set_inline_data(a.ex, text, sizeof(text));
	CHECK(!ibv_wr_complete(a.ex));
	wait_for_one(&a, 2, IBV_WC_RDMA_WRITE);
	ibv_end_poll(a.cq);
	wait_for_one(&b, 7, IBV_WC_RECV_RDMA_WITH_IMM);
	CHECK(ntohl(ibv_wc_read_imm_data(b.cq)) == 9 && ibv_wc_read_byte_len(b.cq) == sizeof(text));
	CHECK(ibv_wc_read_wc_flags(b.cq) == IBV_WC_WITH_IMM && ibv_next_poll(b.cq) == ENOENT);
	ibv_end_poll(b.cq);
	CHECK(b.memory[0] == a.memory[0] && !strcmp((char *)b.memory + 64, text));
	/* A batch that was given up, and one that does not fit, leave nothing behind. */
	ibv_wr_start(a.ex);
	ibv_wr_rdma_write(a.ex, b.mr->rkey, at + 8);
	ibv_wr_set_sge(a.ex, a.mr->lkey, (uintptr_t)a.memory, 8);
	ibv_wr_abort(a.ex);
	ibv_wr_start(a.ex);
	for (int i = 0; i < 9; i++) {
		ibv_wr_rdma_write(a.ex, b.mr->rkey, at + 8);
		ibv_wr_set_sge(a.ex, a.mr->lkey, (uintptr_t)a.memory, 8);
	}
	CHECK(ibv_wr_complete(a.ex) == ENOMEM);
	ibv_wr_start(a.ex);
	ibv_wr_rdma_write(a.ex, b.mr->rkey, at + 8);
	ibv_wr_set_inline_data(a.ex, text, 65);
	CHECK(ibv_wr_complete(a.ex) == EINVAL);
	ibv_wr_start(a.ex);
	a.ex->wr_id = 3;
	ibv_wr_rdma_write(a.ex, b.mr->rkey, at + 16);
	ibv_wr_set_sge(a.ex, a.mr->lkey, (uintptr_t)a.memory, 8);
	CHECK(!ibv_wr_complete(a.ex));
	wait_for_one(&a, 3, IBV_WC_RDMA_WRITE);
	ibv_end_poll(a.cq);
	CHECK(b.memory[2] == a.memory[0] && b.memory[1] == 0);
	close_verbs(&a);
	close_verbs(&b);
}

#define ALL_OPERATIONS                                                                                                \
	(BATCH_WRITES | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |               \
	 IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)

/* Sends into receives, of the queue pair or shared; reads and atomic operations: RC over RoCEv2. */
static void reliable(void)
{
	for (int shared = 0; shared < 2; shared++) {
		struct verbs_end a = open_verbs(paths[0], ALL_OPERATIONS, false);
		struct verbs_end b = open_verbs(paths[1], ALL_OPERATIONS, shared);
		struct ibv_sge into = {(uintptr_t)b.memory + 128, 64, b.mr->lkey};
		struct ibv_sge from = {(uintptr_t)a.memory, 16, a.mr->lkey};
		struct ibv_recv_wr receive = {.wr_id = 7, .sg_list = &into, .num_sge = 1}, *bad_receive;
		struct ibv_send_wr send = {.wr_id = 1, .sg_list = &from, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED},
				   *bad;

		move_verbs(&a, &b, true);
		move_verbs(&b, &a, shared);
		CHECK(!(shared ? ibv_post_srq_recv(b.srq, &receive, &bad_receive)
			       : ibv_post_recv(b.qp, &receive, &bad_receive)));
		a.memory[0] = 11;
		a.memory[1] = 12;
		send.opcode = IBV_WR_SEND_WITH_IMM;
		send.imm_data = htonl(99);
		CHECK(!ibv_post_send(a.qp, &send, &bad));
		wait_for_one(&a, 1, IBV_WC_SEND);
		ibv_end_poll(a.cq);
		wait_for_one(&b, 7, IBV_WC_RECV);
		CHECK(ntohl(ibv_wc_read_imm_data(b.cq)) == 99 && ibv_wc_read_byte_len(b.cq) == 16);
		ibv_end_poll(b.cq);
		CHECK(b.memory[16] == 11 && b.memory[17] == 12);
		send.opcode = IBV_WR_RDMA_READ;
		send.wr.rdma.remote_addr = (uintptr_t)b.memory + 128;
		send.wr.rdma.rkey = b.mr->rkey;
		a.memory[0] = a.memory[1] = 0;
		CHECK(!ibv_post_send(a.qp, &send, &bad));
		wait_for_one(&a, 1, IBV_WC_RDMA_READ);
		ibv_end_poll(a.cq);
		CHECK(a.memory[0] == 11 && a.memory[1] == 12);
		from.length = 8;
		send.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		send.wr.atomic.remote_addr = (uintptr_t)b.memory + 128;
		send.wr.atomic.compare_add = 30;
		send.wr.atomic.rkey = b.mr->rkey;
		CHECK(!ibv_post_send(a.qp, &send, &bad));
		wait_for_one(&a, 1, IBV_WC_FETCH_ADD);
		ibv_end_poll(a.cq);
		CHECK(a.memory[0] == 11 && b.memory[16] == 41);
		send.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
		send.wr.atomic.compare_add = 41;
		send.wr.atomic.swap = 77;
		CHECK(!ibv_post_send(a.qp, &send, &bad));
		wait_for_one(&a, 1, IBV_WC_COMP_SWAP);
		ibv_end_poll(a.cq);
		CHECK(a.memory[0] == 41 && b.memory[16] == 77);
		if (shared) {
			struct ibv_srq_attr attr;

			for (int i = 0; i < 8; i++)
				CHECK(!ibv_post_srq_recv(b.srq, &receive, &bad_receive));
			CHECK(ibv_post_srq_recv(b.srq, &receive, &bad_receive) == ENOMEM && bad_receive == &receive);
			CHECK(!ibv_query_srq(b.srq, &attr) && attr.max_wr == 8 && attr.max_sge == 2);
		}
		close_verbs(&a);
		close_verbs(&b);
	}
}

static const struct test_case cases[] = {
	{"batches", batches},
	{"reliable", reliable},
};

int main(int count, char **arguments)
{
	return run_case(cases, sizeof(cases) / sizeof(*cases), count, arguments);
}
