/*
 * An adapter of the conformance kit for devices of mrc.h: it reads requests as lines and answers each with a line
 * (docs/reference/conformance-adapters.md).
 *
 *     mrclab conform --interface eth1 --peer ADDRESS --adapter "ssh HOST conform_adapter"
 */
#include <mrc.h>

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GID_INDEX 3
#define FIRST_PSN 0x123456
#define PAIRS 8
#define REGIONS 64
#define WORDS 64
#define DEPTH 512

struct pair {
	struct mrc_qp *qp;
	uint32_t number;
};

struct memory {
	struct ibv_mr *mr;
	char *bytes;
	size_t length;
};

static struct ibv_context *device;
static struct mrc_context *context;
static struct ibv_pd *pd;
static struct mrc_cq *cq;
static struct pair pairs[PAIRS];
static struct memory regions[REGIONS];
static int pair_count, region_count, psn = FIRST_PSN;
static struct mrc_qp_attr settings;
static char *keys[WORDS], *values[WORDS];
static int word_count;

static void answer(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
	fflush(stdout);
}

/* Answer with the reason of the last error. Returns 0, for callers that end by that. */
static int refuse(const char *what)
{
	answer("error %s: %s", what, strerror(errno));
	return 0;
}

static const char *text(const char *key)
{
	for (int i = 0; i < word_count; i++)
		if (!strcmp(keys[i], key))
			return values[i];
	return "";
}

static uint64_t number(const char *key)
{
	return strtoull(text(key), NULL, 0);
}

static struct pair *named_pair(void)
{
	for (int i = 0; i < pair_count; i++)
		if (pairs[i].number == number("number"))
			return &pairs[i];
	return NULL;
}

static struct memory *named_region(void)
{
	for (int i = 0; i < region_count; i++)
		if (regions[i].mr && regions[i].mr->rkey == number("rkey"))
			return &regions[i];
	return NULL;
}

static void forget(void)
{
	for (int i = 0; i < pair_count; i++)
		mrc_destroy_qp(pairs[i].qp);
	for (int i = 0; i < region_count; i++) {
		if (regions[i].mr)
			ibv_dereg_mr(regions[i].mr);
		free(regions[i].bytes);
	}
	pair_count = region_count = 0;
	if (cq)
		mrc_destroy_cq(cq);
	cq = NULL;
}

static struct memory *allocate(size_t length, int access)
{
	struct memory *made = &regions[region_count];

	if (region_count == REGIONS) {
		errno = ENOSPC;
		return NULL;
	}
	made->bytes = calloc(1, length ? length : 1);
	made->length = length;
	made->mr = made->bytes ? ibv_reg_mr(pd, made->bytes, length ? length : 1, access) : NULL;
	if (!made->mr) {
		free(made->bytes);
		return NULL;
	}
	region_count++;
	return made;
}

/* Open the first device of mrc.h, after closing the one before: what serves it may have started again. */
static int open_device(void)
{
	struct mrc_context_attr version = {.mrc_api_version_used = MRC_API_CURRENT_VERSION};
	struct ibv_device **devices;

	if (pd)
		ibv_dealloc_pd(pd);
	if (context)
		mrc_destroy_context(context);
	if (device)
		ibv_close_device(device);
	devices = ibv_get_device_list(NULL);
	device = devices && devices[0] ? ibv_open_device(devices[0]) : NULL;
	context = device ? mrc_create_context(device, &version) : NULL;
	pd = context ? ibv_alloc_pd(device) : NULL;
	return pd != NULL;
}

static int start(void)
{
	forget();
	if (!open_device())
		return refuse("no device of mrc.h");
	psn = (int)strtol(text("sq_psn"), NULL, 0);
	if (psn < 0)
		psn = FIRST_PSN;
	settings = (struct mrc_qp_attr){.timeout = (uint8_t)number("timeout")};
	settings.mpr.mpr = (uint8_t)number("mpr");
	settings.mpr.mpr_dest = (uint8_t)number("mpr_dest");
	settings.wimm.max_wimm = (uint16_t)number("max_wimm");
	settings.wimm.max_wimm_dest = (uint16_t)number("max_wimm_dest");
	settings.retry.linear_cnt = (uint8_t)number("linear_cnt");
	settings.retry.exp_cnt = (uint8_t)number("exp_cnt");
	cq = mrc_create_cq(context, DEPTH, NULL, NULL, 0);
	if (!cq)
		return refuse("mrc_create_cq");
	answer("ok");
	return 0;
}

static int create(void)
{
	struct mrc_qp_init_attr wanted = {.cap = {.max_send_wr = DEPTH / 4, .max_recv_wr = DEPTH / 4, .max_send_sge = 1}};
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct pair *made = &pairs[pair_count];
	char address[INET6_ADDRSTRLEN];
	union ibv_gid gid;

	if (pair_count == PAIRS) {
		answer("error %d queue pairs are enough for a case", PAIRS);
		return 0;
	}
	wanted.sq_sig_all = 1;
	wanted.pd = pd;
	wanted.send_cq = wanted.recv_cq = cq;
	made->qp = mrc_create_qp(context, &wanted);
	if (!made->qp)
		return refuse("mrc_create_qp");
	if (mrc_get_qpn(made->qp, &made->number) || ibv_query_gid(device, 1, GID_INDEX, &gid))
		return refuse("own address");
	if (mrc_modify_qp(made->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, NULL, 0))
		return refuse("INIT");
	pair_count++;
	answer("ok number=%u psn=%d address=%s", made->number, psn, inet_ntop(AF_INET6, &gid, address, sizeof(address)));
	return 0;
}

static int connect_pair(struct pair *pair)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024};

	attr.dest_qp_num = (uint32_t)number("remote_number");
	attr.rq_psn = (uint32_t)number("psn");
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.sgid_index = GID_INDEX;
	if (inet_pton(AF_INET6, text("address"), &attr.ah_attr.grh.dgid) != 1) {
		answer("error %s is no IPv6 address", text("address"));
		return 0;
	}
	if (mrc_modify_qp(pair->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
			  &settings, MRC_QP_MPR_DEST | MRC_QP_MAX_WIMM_DEST))
		return refuse("RTR");
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = (uint32_t)psn;
	if (mrc_modify_qp(pair->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN, &settings,
			  MRC_QP_MPR | MRC_QP_MAX_WIMM | MRC_QP_TIMEOUT | MRC_QP_RETRY_CNT))
		return refuse("RTS");
	answer("ok");
	return 0;
}

static int region(void)
{
	int access = IBV_ACCESS_LOCAL_WRITE | (number("writable") ? IBV_ACCESS_REMOTE_WRITE : 0);
	struct memory *made = allocate(number("length"), access);

	if (!made)
		return refuse("ibv_reg_mr");
	answer("ok va=%llu rkey=%u", (unsigned long long)(uintptr_t)made->bytes, made->mr->rkey);
	return 0;
}

static int show(const struct memory *memory)
{
	printf("ok data=");
	for (size_t i = 0; i < memory->length; i++)
		printf("%02x", (unsigned char)memory->bytes[i]);
	answer("");
	return 0;
}

static int post_write(struct pair *pair)
{
	const char *data = text("data");
	size_t length = strlen(data) / 2;
	struct memory *source = allocate(length, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_send_wr request = {.wr_id = number("wr_id"), .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
	struct ibv_sge element;

	if (!source)
		return refuse("memory of the request");
	for (size_t i = 0; i < length; i++) {
		unsigned int byte;

		sscanf(data + 2 * i, "%2x", &byte);
		source->bytes[i] = (char)byte;
	}
	element = (struct ibv_sge){(uintptr_t)source->bytes, (uint32_t)length, source->mr->lkey};
	request.sg_list = &element;
	request.wr.rdma.remote_addr = number("va");
	request.wr.rdma.rkey = (uint32_t)number("rkey");
	if (strcmp(text("immediate"), "-")) {
		request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		request.imm_data = htonl((uint32_t)number("immediate"));
	}
	if (number("solicited"))
		request.send_flags |= IBV_SEND_SOLICITED;
	if (mrc_post_send(pair->qp, &request, &bad))
		return refuse("mrc_post_send");
	answer("ok");
	return 0;
}

static int receive(struct pair *pair)
{
	struct ibv_recv_wr request = {.wr_id = number("wr_id")}, *bad;

	if (mrc_post_recv(pair->qp, &request, &bad))
		return refuse("mrc_post_recv");
	answer("ok");
	return 0;
}

/* The names of ibv_wc_status, as the kit has them; those that it does not know are local errors of the queue pair. */
static const char *outcome(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_SUCCESS:
		return "SUCCESS";
	case IBV_WC_LOC_LEN_ERR:
		return "LOC_LEN_ERR";
	case IBV_WC_LOC_PROT_ERR:
		return "LOC_PROT_ERR";
	case IBV_WC_WR_FLUSH_ERR:
		return "WR_FLUSH_ERR";
	case IBV_WC_REM_INV_REQ_ERR:
		return "REM_INV_REQ_ERR";
	case IBV_WC_REM_ACCESS_ERR:
		return "REM_ACCESS_ERR";
	case IBV_WC_REM_OP_ERR:
		return "REM_OP_ERR";
	case IBV_WC_RETRY_EXC_ERR:
		return "RETRY_EXC_ERR";
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return "RNR_RETRY_EXC_ERR";
	default:
		return "LOC_QP_OP_ERR";
	}
}

static int completions(void)
{
	struct ibv_wc done[16];
	const char *between = "";
	int count;

	printf("ok list=");
	while ((count = mrc_poll_cq(cq, 16, done)) > 0) {
		for (int i = 0; i < count; i++) {
			int received = !!(done[i].opcode & IBV_WC_RECV);

			printf("%s%llu:%s:%d:%u:", between, (unsigned long long)done[i].wr_id, outcome(done[i].status), received,
			       done[i].byte_len);
			if (done[i].status == IBV_WC_SUCCESS && done[i].wc_flags & IBV_WC_WITH_IMM && received)
				printf("%u", ntohl(done[i].imm_data));
			else
				printf("-");
			between = ";";
		}
	}
	answer("");
	return 0;
}

static int state(struct pair *pair)
{
	static const char *const names[] = {"RESET", "INIT", "RTR", "RTS", "RTS", "ERROR", "ERROR"};
	struct ibv_qp_attr attr = {0};

	if (mrc_query_qp(pair->qp, &attr, IBV_QP_STATE, NULL, 0, NULL))
		return refuse("mrc_query_qp");
	answer("ok state=%s", attr.qp_state <= IBV_QPS_ERR ? names[attr.qp_state] : "ERROR");
	return 0;
}

static int modify(struct pair *pair)
{
	struct ibv_qp_attr attr = {.qp_state = strcmp(text("state"), "RESET") ? IBV_QPS_ERR : IBV_QPS_RESET};

	if (mrc_modify_qp(pair->qp, &attr, IBV_QP_STATE, NULL, 0))
		return refuse(text("state"));
	answer("ok");
	return 0;
}

/* Carry out one request, whose keys and values have been read. */
static int carry_out(const char *word)
{
	struct pair *pair = named_pair();
	struct memory *memory = named_region();

	if (!strcmp(word, "hello"))
		answer("ok protocol=1 offers=POST,MEMORY,STATES");
	else if (!strcmp(word, "start"))
		return start();
	else if (!strcmp(word, "create"))
		return create();
	else if (!strcmp(word, "region"))
		return region();
	else if (!strcmp(word, "read") && memory)
		return show(memory);
	else if (!strcmp(word, "deregister") && memory) {
		ibv_dereg_mr(memory->mr);
		memory->mr = NULL;
		answer("ok");
	} else if (!strcmp(word, "completions"))
		return completions();
	else if (!pair)
		answer("error %s: no such queue pair or region", word);
	else if (!strcmp(word, "connect"))
		return connect_pair(pair);
	else if (!strcmp(word, "write"))
		return post_write(pair);
	else if (!strcmp(word, "receive"))
		return receive(pair);
	else if (!strcmp(word, "state"))
		return state(pair);
	else if (!strcmp(word, "modify"))
		return modify(pair);
	else
		answer("error unknown request '%s'", word);
	return 0;
}

int main(void)
{
	size_t room = 0;
	char *line = NULL;

	while (getline(&line, &room, stdin) > 0) {
		char *at = NULL, *word = strtok_r(line, " \n", &at), *pair;

		for (word_count = 0; word_count < WORDS && (pair = strtok_r(NULL, " \n", &at)); word_count++) {
			char *value = strchr(pair, '=');

			if (!value)
				value = pair + strlen(pair) - 1;
			*value = '\0';
			keys[word_count] = pair;
			values[word_count] = value + 1;
		}
		if (word)
			carry_out(word);
	}
	forget();
	free(line);
	return 0;
}
