/*
 * Writes a line into the memory of a peer, by mrc.h. In two hosts of a lab:
 *
 *     write            waits for a peer, and prints what it wrote
 *     write HOST TEXT  writes TEXT into the memory of the peer in HOST
 */
#include <mrc.h>

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PORT "18600"
#define GID_INDEX 3

/* What each tells the other. */
struct place {
	union ibv_gid gid;
	uint32_t qpn, rkey;
	uint64_t address;
};

static char memory[256];

static void must(int good, const char *what)
{
	if (!good) {
		perror(what);
		exit(1);
	}
}

/* Return a connected socket: to a host, or with the first that connects to us. */
static int meet(const char *host)
{
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = host ? 0 : AI_PASSIVE}, *found;
	int on = 1, fd;

	must(!getaddrinfo(host, PORT, &hints, &found), "name of the host");
	fd = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (host) {
		while (connect(fd, found->ai_addr, found->ai_addrlen))
			usleep(100000);
	} else {
		must(!bind(fd, found->ai_addr, found->ai_addrlen) && !listen(fd, 1), "listening");
		fd = accept(fd, NULL, NULL);
	}
	freeaddrinfo(found);
	return fd;
}

static void connect_pair(struct mrc_qp *qp, const struct place *peer)
{
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qpn};

	must(!mrc_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, NULL, 0), "INIT");
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.dgid = peer->gid;
	attr.ah_attr.grh.sgid_index = GID_INDEX;
	must(!mrc_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, NULL, 0),
	     "RTR");
	attr.qp_state = IBV_QPS_RTS;
	must(!mrc_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN, NULL, 0), "RTS");
}

int main(int count, char **words)
{
	struct mrc_context_attr version = {.mrc_api_version_used = MRC_API_CURRENT_VERSION};
	struct mrc_qp_init_attr wanted = {.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1}, .sq_sig_all = 1};
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *device;
	struct mrc_context *context;
	struct place own, peer;
	struct ibv_wc done = {0};
	struct ibv_mr *region;
	struct mrc_qp *qp;
	int fd;

	must(devices && devices[0], "no device; run this by `mrclab exec`");
	device = ibv_open_device(devices[0]);
	must(device != NULL, "opening the device");
	context = mrc_create_context(device, &version);
	must(context != NULL, "MRC");
	wanted.pd = ibv_alloc_pd(device);
	wanted.send_cq = wanted.recv_cq = mrc_create_cq(context, 16, NULL, NULL, 0);
	qp = mrc_create_qp(context, &wanted);
	must(qp != NULL, "queue pair");
	region = ibv_reg_mr(wanted.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	must(region != NULL, "memory");

	own = (struct place){.rkey = region->rkey, .address = (uintptr_t)memory};
	must(!mrc_get_qpn(qp, &own.qpn) && !ibv_query_gid(device, 1, GID_INDEX, &own.gid), "own address");
	fd = meet(count > 1 ? words[1] : NULL);
	must(write(fd, &own, sizeof(own)) == sizeof(own) && read(fd, &peer, sizeof(peer)) == sizeof(peer), "meeting");
	connect_pair(qp, &peer);
	/* A byte from each: both are connected. */
	must(write(fd, "c", 1) == 1 && read(fd, &own, 1) == 1, "meeting");
	if (count > 2) {
		struct ibv_sge element = {(uintptr_t)memory, sizeof(memory), region->lkey};
		struct ibv_send_wr request = {.sg_list = &element, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;

		request.wr.rdma.remote_addr = peer.address;
		request.wr.rdma.rkey = peer.rkey;
		snprintf(memory, sizeof(memory), "%s", words[2]);
		must(!mrc_post_send(qp, &request, &bad), "posting");
		while (!mrc_poll_cq(wanted.send_cq, 1, &done))
			;
		printf("written: %s\n", ibv_wc_status_str(done.status));
		must(write(fd, "w", 1) == 1, "meeting");
	} else {
		must(read(fd, &own, 1) == 1, "meeting");
		printf("read: %s\n", memory);
	}
	ibv_free_device_list(devices);
	return done.status != IBV_WC_SUCCESS;
}
