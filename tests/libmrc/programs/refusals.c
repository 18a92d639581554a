/* Asks a device for what it does not have, and writes "CASE errno" to stderr behind what the library says. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

static void told(const char *name, int refused)
{
	fprintf(stderr, "%s %d\n", name, refused ? errno : 0);
	errno = 0;
}

static int result(int failed)
{
	errno = failed;
	return failed != 0;
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = ibv_open_device(list[0]);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
	struct ibv_qp_init_attr_ex more = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .cap = {4, 4, 1, 1, 0},
					   .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd};
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 4, .max_sge = 1000}};
	struct ibv_ah_attr handle = {.is_global = 1, .port_num = 1};
	struct ibv_qp_attr change = {.qp_state = IBV_QPS_SQD};
	struct ibv_send_wr work = {.opcode = IBV_WR_RDMA_WRITE}, *bad;
	struct ibv_recv_wr receive = {.num_sge = 0}, *bad_receive;
	struct ibv_qp *qp;
	char memory[64];

	init.qp_type = IBV_QPT_UD;
	told("ud", !ibv_create_qp(pd, &init));
	init.qp_type = IBV_QPT_UC;
	told("uc", !ibv_create_qp(pd, &init));
	init.qp_type = IBV_QPT_RC;
	init.cap.max_inline_data = 4096;
	told("inline", !ibv_create_qp(pd, &init));
	init.cap.max_inline_data = 0;
	init.cap.max_send_sge = 1000;
	told("elements", !ibv_create_qp(pd, &init));
	init.cap.max_send_sge = 1;
	init.cap.max_send_wr = 1000000;
	told("requests", !ibv_create_qp(pd, &init));
	init.cap.max_send_wr = 4;
	init.send_cq = NULL;
	told("no_cq", !ibv_create_qp(pd, &init));
	init.send_cq = cq;
	told("ud_ex", !ibv_create_qp_ex(context, &more));
	more.qp_type = IBV_QPT_RC;
	more.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
	told("xrc", !ibv_create_qp_ex(context, &more));
	told("mw", !ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	told("ah", !ibv_create_ah(pd, &handle));
	told("cq", !ibv_create_cq(context, 0, NULL, NULL, 0));
	told("vector", !ibv_create_cq(context, 1, NULL, NULL, 9));
	told("resize", result(ibv_resize_cq(cq, 1 << 20)));
	told("srq", !ibv_create_srq(pd, &shared));
	told("bind", !ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND));
	told("empty", !ibv_reg_mr(pd, memory, 0, IBV_ACCESS_LOCAL_WRITE));
	qp = ibv_create_qp(pd, &init);
	told("sqd", result(ibv_modify_qp(qp, &change, IBV_QP_STATE)));
	change.qp_state = IBV_QPS_RTR;
	told("rtr", result(ibv_modify_qp(qp, &change, IBV_QP_STATE)));
	told("send", result(ibv_post_send(qp, &work, &bad)));
	/* Of work requests a queue pair says one line only. */
	ibv_post_send(qp, &work, &bad);
	told("receive", result(ibv_post_recv(ibv_create_qp(pd, &init), &receive, &bad_receive)));
	told("mcast", result(ibv_attach_mcast(qp, &handle.grh.dgid, 0)));
	ibv_free_device_list(list);
	return 0;
}
