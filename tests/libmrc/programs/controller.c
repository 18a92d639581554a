/* The cases of test_controller.py: `controller NAME SOCKET SOCKET`. Each ends with 0, or says which check failed. */
#include "ends.h"

#include <arpa/inet.h>
#include <mrc_ctl.h>
#include <time.h>

#define FORMAT 13
#define PROFILE 21
#define CONGESTION 34
#define COUNT 8
#define PORTS 2

static const char *paths[2];
static struct ibv_context *device_context;
static struct mrc_context *controller;

static struct mrc_context *open_controller(void)
{
	struct mrc_context_attr attr = {.mrc_api_version_used = MRC_API_CURRENT_VERSION};

	device_context = open_context(paths[0]);
	controller = mrc_create_context(device_context, &attr);
	CHECK(controller);
	return controller;
}

static void close_controller(void)
{
	CHECK(!mrc_destroy_context(controller));
	CHECK(!ibv_close_device(device_context));
}

static bool refused(int result, int number)
{
	return result == -1 && errno == number;
}

static struct mrc_ctl_ev ev_of(uint32_t value, uint8_t port)
{
	struct mrc_ctl_ev ev = {.port = port};

	memcpy(ev.val, &value, sizeof(value));
	return ev;
}

static bool same(struct mrc_ctl_ev a, struct mrc_ctl_ev b)
{
	return a.port == b.port && !memcmp(a.val, b.val, sizeof(a.val));
}

/* -- the device --------------------------------------------------------------------------------------------------- */

static void device(void)
{
	struct mrc_context *context = open_controller();
	struct mrc_ctl_device_attr attr, again;
	uint32_t current, last, vendor, last_vendor;
	int supported = 0;

	CHECK(!mrc_ctl_query_device_ex(NULL, context, &attr, &supported) && supported);
	CHECK(attr.mrc_ctl_protocol_version == MRC_CTL_PROTOCOL_VERSION_1 && attr.phy_port_mask == 6);
	CHECK(attr.ev.ev_fmt_mode_mask == (MRC_CTL_EV_FMT_MODE_STEV | MRC_CTL_EV_FMT_MODE_SRV6 | MRC_CTL_EV_FMT_MODE_UDP));
	CHECK(attr.ev.ev_mode_mask == (MRC_CTL_EV_MODE_AUTO | MRC_CTL_EV_MODE_EXP | MRC_CTL_EV_MODE_GEN));
	CHECK(attr.ev.ev_max_count_profile == 4096 && attr.ev.ev_count_align == PORTS && attr.ev.ev_max_width == 32);
	CHECK(attr.ev.ev_free_count < attr.ev.ev_max_count);
	CHECK(!strcmp(attr.cc.algorithms[0], "uet-1.0-nscc") && !attr.cc.algorithms[1]);
	CHECK(attr.opt_attr & MRC_CTL_OPT_CAP_EV_EVENT && !(attr.opt_attr & MRC_CTL_OPT_CAP_CC_PROFILE_MODIFY_ONLINE));
	CHECK(!mrc_ctl_query_device(device_context, &again) && again.phy_port_mask == attr.phy_port_mask);
	CHECK(refused(mrc_ctl_query_device(NULL, &again), EINVAL));
	mrc_ctl_query_version(&current, &last, &vendor, &last_vendor);
	CHECK(current == MRC_CTL_API_VER(1, 0, 1) && last == 0 && vendor == MRC_CTL_API_VER(1, 0, 0) && !last_vendor);
}

static void ports(void)
{
	struct mrc_context *context = open_controller();
	struct mrc_ctl_port_attr attr = {.port_admin_state = MRC_CTL_PORT_ADMIN_DISABLED};

	CHECK(!mrc_ctl_modify_port(context, 2, &attr, MRC_CTL_PORT_ADMIN_STATE));
	attr.port_admin_state = MRC_CTL_PORT_ADMIN_ENABLED;
	CHECK(!mrc_ctl_query_port(context, 2, &attr, MRC_CTL_PORT_ADMIN_STATE));
	CHECK(attr.port_admin_state == MRC_CTL_PORT_ADMIN_DISABLED);
	CHECK(!mrc_ctl_query_port(context, 1, &attr, MRC_CTL_PORT_ADMIN_STATE));
	CHECK(attr.port_admin_state == MRC_CTL_PORT_ADMIN_ENABLED);
	CHECK(!mrc_ctl_modify_port(context, 2, &attr, MRC_CTL_PORT_ADMIN_STATE));
	CHECK(!mrc_ctl_query_port(context, 2, &attr, MRC_CTL_PORT_ADMIN_STATE));
	CHECK(attr.port_admin_state == MRC_CTL_PORT_ADMIN_ENABLED);
	CHECK(refused(mrc_ctl_query_port(context, 0, &attr, MRC_CTL_PORT_ADMIN_STATE), EINVAL));
	CHECK(refused(mrc_ctl_query_port(context, 3, &attr, MRC_CTL_PORT_ADMIN_STATE), EINVAL));
	CHECK(refused(mrc_ctl_modify_port(context, 3, &attr, MRC_CTL_PORT_ADMIN_STATE), EINVAL));
	CHECK(refused(mrc_ctl_modify_port(context, 1, &attr, 1 << 5), EINVAL));
}

/* -- profiles ------------------------------------------------------------------------------------------------------ */

static int format_state(struct mrc_context *context, enum mrc_ctl_profile_state state)
{
	struct mrc_ctl_ev_fmt_profile_attr attr = {.profile_state = state};

	return mrc_ctl_modify_ev_fmt_profile(context, FORMAT, &attr, MRC_CTL_EV_FMT_PROFILE_STATE);
}

static void make_format(struct mrc_context *context)
{
	struct mrc_ctl_ev_fmt_field fields[2] = {{16}, {16}};
	struct mrc_ctl_ev_fmt_profile_attr attr = {
		.profile_state = MRC_CTL_PROFILE_OFFLINE,
		.ev_fmt_mode = MRC_CTL_EV_FMT_MODE_STEV,
		.ev_fmt_op = {.op = MRC_CTL_EV_FMT_OP_MODIFY_FIELDS, .fmt_fields = fields, .fmt_field_count = 2},
	};

	CHECK(!mrc_ctl_modify_ev_fmt_profile(
		context, FORMAT, &attr,
		MRC_CTL_EV_FMT_PROFILE_STATE | MRC_CTL_EV_FMT_PROFILE_MODE | MRC_CTL_EV_FMT_PROFILE_OP));
}

static void formats(void)
{
	struct mrc_context *context = open_controller();
	struct mrc_ctl_ev_fmt_field fields[3] = {{16}, {16}, {8}};
	struct mrc_ctl_ev_fmt_profile_attr attr = {.ev_fmt_op = {.op = MRC_CTL_EV_FMT_OP_QUERY_FIELDS, .fmt_fields = fields}};
	const int all = MRC_CTL_EV_FMT_PROFILE_STATE | MRC_CTL_EV_FMT_PROFILE_MODE | MRC_CTL_EV_FMT_PROFILE_OP;

	/* A profile that was never made is in INIT. */
	attr.ev_fmt_op.fmt_field_count = 3;
	CHECK(!mrc_ctl_query_ev_fmt_profile(context, FORMAT, &attr, all));
	CHECK(attr.profile_state == MRC_CTL_PROFILE_INIT && attr.ev_fmt_op.fmt_field_count == 0);
	CHECK(refused(format_state(context, MRC_CTL_PROFILE_OFFLINE), EINVAL));
	CHECK(refused(format_state(context, MRC_CTL_PROFILE_ONLINE), EINVAL));
	make_format(context);
	/* Wider than the format. */
	fields[0].width = fields[1].width = 16;
	fields[2].width = 8;
	attr = (struct mrc_ctl_ev_fmt_profile_attr){
		.ev_fmt_op = {.op = MRC_CTL_EV_FMT_OP_MODIFY_FIELDS, .fmt_fields = fields, .fmt_field_count = 3}};
	CHECK(refused(mrc_ctl_modify_ev_fmt_profile(context, FORMAT, &attr, MRC_CTL_EV_FMT_PROFILE_OP), E2BIG));
	/* Too little room says how much there must be. */
	attr.ev_fmt_op.op = MRC_CTL_EV_FMT_OP_QUERY_FIELDS;
	attr.ev_fmt_op.fmt_field_count = 1;
	CHECK(refused(mrc_ctl_query_ev_fmt_profile(context, FORMAT, &attr, all), E2BIG));
	CHECK(attr.ev_fmt_op.fmt_field_count == 2);
	fields[1].width = 0;
	CHECK(!mrc_ctl_query_ev_fmt_profile(context, FORMAT, &attr, all));
	CHECK(attr.profile_state == MRC_CTL_PROFILE_OFFLINE && attr.ev_fmt_mode == MRC_CTL_EV_FMT_MODE_STEV);
	CHECK(fields[0].width == 16 && fields[1].width == 16);
	CHECK(!format_state(context, MRC_CTL_PROFILE_ONLINE));
	CHECK(refused(format_state(context, MRC_CTL_PROFILE_INIT), EINVAL));
	attr.ev_fmt_mode = MRC_CTL_EV_FMT_MODE_UDP;
	CHECK(refused(mrc_ctl_modify_ev_fmt_profile(context, FORMAT, &attr, MRC_CTL_EV_FMT_PROFILE_MODE), EINVAL));
	CHECK(refused(mrc_ctl_modify_ev_fmt_profile(context, FORMAT, &attr, MRC_CTL_EV_FMT_VENDOR_CFG), EOPNOTSUPP));
	CHECK(!format_state(context, MRC_CTL_PROFILE_OFFLINE));
	CHECK(!format_state(context, MRC_CTL_PROFILE_INIT));
	attr.ev_fmt_op.fmt_field_count = 3;
	CHECK(!mrc_ctl_query_ev_fmt_profile(context, FORMAT, &attr, all) && attr.ev_fmt_op.fmt_field_count == 0);
}

static int ev_state(struct mrc_context *context, enum mrc_ctl_profile_state state)
{
	struct mrc_ctl_ev_profile_attr attr = {.profile_state = state};

	return mrc_ctl_modify_ev_profile(context, PROFILE, &attr, MRC_CTL_EV_PROFILE_STATE);
}

static int operate(struct mrc_context *context, enum mrc_ctl_ev_op op, struct mrc_ctl_ev_op_entry *entries, int *count)
{
	struct mrc_ctl_ev_profile_attr attr = {.ev_op = {.op = op, .entries = entries, .entry_count = *count}};
	int result = op >= MRC_CTL_EV_OP_QUERY_EV_STATE
			     ? mrc_ctl_query_ev_profile(context, PROFILE, &attr, MRC_CTL_EV_PROFILE_EV_OP)
			     : mrc_ctl_modify_ev_profile(context, PROFILE, &attr, MRC_CTL_EV_PROFILE_EV_OP);

	*count = attr.ev_op.entry_count;
	return result;
}

/* EVs 0x10000 + i, alternately of both ports. */
static struct mrc_ctl_ev nth(uint32_t i)
{
	return ev_of(0x10000 + i, (uint8_t)(1 + i % PORTS));
}

static void make_explicit(struct mrc_context *context)
{
	struct mrc_ctl_ev_profile_attr attr = {
		.profile_state = MRC_CTL_PROFILE_OFFLINE,
		.ev_mode = MRC_CTL_EV_MODE_EXP,
		.ev_fmt_profile_id = FORMAT,
		.ev_count = COUNT,
		.ev_min_active = 2,
		.ev_event_mask = MRC_CTL_EV_GOOD | MRC_CTL_EV_ASSUMED_BAD,
	};
	struct mrc_ctl_ev_op_entry entries[COUNT] = {0};
	int count = COUNT - 1;

	make_format(context);
	CHECK(!format_state(context, MRC_CTL_PROFILE_ONLINE));
	CHECK(!mrc_ctl_modify_ev_profile(context, PROFILE, &attr,
					 MRC_CTL_EV_PROFILE_STATE | MRC_CTL_EV_PROFILE_MODE | MRC_CTL_EV_PROFILE_FMT_ID |
						 MRC_CTL_EV_PROFILE_COUNT | MRC_CTL_EV_PROFILE_MIN_ACTIVE |
						 MRC_CTL_EV_PROFILE_EVENT_MASK));
	for (uint32_t i = 0; i < COUNT; i++)
		entries[i].ev_new = nth(i), entries[i].state = MRC_CTL_EV_GOOD;
	CHECK(!operate(context, MRC_CTL_EV_OP_REPLACE_EV, entries, &count));
	/* Not before every place is taken. */
	CHECK(refused(ev_state(context, MRC_CTL_PROFILE_ONLINE), EINVAL));
	count = 1;
	CHECK(!operate(context, MRC_CTL_EV_OP_REPLACE_EV, entries + COUNT - 1, &count));
	count = 1;
	entries[0].ev_new = ev_of(0x20000, 1);
	CHECK(refused(operate(context, MRC_CTL_EV_OP_REPLACE_EV, entries, &count), ENOENT));
	CHECK(!ev_state(context, MRC_CTL_PROFILE_ONLINE));
}

static void explicits(void)
{
	struct mrc_context *context = open_controller();
	struct mrc_ctl_ev_profile_attr attr;
	struct mrc_ctl_ev_op_entry entries[COUNT] = {0}, change = {.ev = nth(3), .ev_new = ev_of(0x30000, 2)};
	const int all = MRC_CTL_EV_PROFILE_STATE | MRC_CTL_EV_PROFILE_MODE | MRC_CTL_EV_PROFILE_FMT_ID |
			MRC_CTL_EV_PROFILE_COUNT | MRC_CTL_EV_PROFILE_MIN_ACTIVE | MRC_CTL_EV_PROFILE_EVENT_MASK;
	int count = COUNT - 1;

	CHECK(!mrc_ctl_query_ev_profile(context, PROFILE, &attr, all) && attr.profile_state == MRC_CTL_PROFILE_INIT);
	make_explicit(context);
	memset(&attr, 0xff, sizeof(attr));
	CHECK(!mrc_ctl_query_ev_profile(context, PROFILE, &attr, all));
	CHECK(attr.profile_state == MRC_CTL_PROFILE_ONLINE && attr.ev_mode == MRC_CTL_EV_MODE_EXP);
	CHECK(attr.ev_fmt_profile_id == FORMAT && attr.ev_count == COUNT && attr.ev_min_active == 2);
	CHECK(attr.ev_event_mask == (MRC_CTL_EV_GOOD | MRC_CTL_EV_ASSUMED_BAD));
	CHECK(refused(operate(context, MRC_CTL_EV_OP_QUERY_EV_ARRAY, entries, &count), E2BIG) && count == COUNT);
	CHECK(!operate(context, MRC_CTL_EV_OP_QUERY_EV_ARRAY, entries, &count) && count == COUNT);
	for (uint32_t i = 0; i < COUNT; i++)
		CHECK(same(entries[i].ev, nth(i)) && entries[i].state == MRC_CTL_EV_GOOD);
	/* One for another of the same port, in an ONLINE profile; the first entry that fails ends the operation. */
	count = 1;
	CHECK(!operate(context, MRC_CTL_EV_OP_REPLACE_EV, &change, &count));
	CHECK(refused(operate(context, MRC_CTL_EV_OP_REPLACE_EV, &change, &count), ENOENT));
	change = (struct mrc_ctl_ev_op_entry){.ev = nth(4), .ev_new = ev_of(0x30001, 2)};
	CHECK(refused(operate(context, MRC_CTL_EV_OP_REPLACE_EV, &change, &count), EINVAL));
	/* States. */
	entries[0].state = MRC_CTL_EV_DENIED;
	entries[1].ev = ev_of(0x77777, 1);
	entries[1].state = MRC_CTL_EV_DENIED;
	count = 2;
	CHECK(refused(operate(context, MRC_CTL_EV_OP_MODIFY_EV_STATE, entries, &count), ENOENT));
	count = 1;
	entries[0].state = MRC_CTL_EV_UNKNOWN;
	CHECK(!operate(context, MRC_CTL_EV_OP_QUERY_EV_STATE, entries, &count));
	CHECK(entries[0].state == MRC_CTL_EV_DENIED);
	entries[0].state = MRC_CTL_EV_ASSUMED_BAD;
	CHECK(refused(operate(context, MRC_CTL_EV_OP_MODIFY_EV_STATE, entries, &count), EINVAL));
	entries[0].state = MRC_CTL_EV_GOOD;
	CHECK(!operate(context, MRC_CTL_EV_OP_MODIFY_EV_STATE, entries, &count));
	entries[0].state = MRC_CTL_EV_UNKNOWN;
	CHECK(!operate(context, MRC_CTL_EV_OP_QUERY_EV_STATE, entries, &count) && entries[0].state == MRC_CTL_EV_GOOD);
	CHECK(refused(operate(context, MRC_CTL_EV_OP_QUERY_EV_STATE, entries + 1, &count), ENOENT));
	/* The format is in use; what an operation needs, and what excludes another. */
	CHECK(refused(format_state(context, MRC_CTL_PROFILE_OFFLINE), EBUSY));
	memset(&attr, 0, sizeof(attr));
	CHECK(refused(mrc_ctl_modify_ev_profile(context, PROFILE, &attr,
						MRC_CTL_EV_PROFILE_EV_OP | MRC_CTL_EV_PROFILE_EV_FIELDS_OP),
		      EINVAL));
	CHECK(refused(mrc_ctl_modify_ev_profile(context, PROFILE, &attr, MRC_CTL_EV_PROFILE_COUNT), EINVAL));
	/* A mask of events changes in an ONLINE profile. */
	attr.ev_event_mask = MRC_CTL_EV_ASSUMED_BAD;
	CHECK(!mrc_ctl_modify_ev_profile(context, PROFILE, &attr, MRC_CTL_EV_PROFILE_EVENT_MASK));
	attr.ev_event_mask = 0;
	CHECK(!mrc_ctl_query_ev_profile(context, PROFILE, &attr, MRC_CTL_EV_PROFILE_EVENT_MASK));
	CHECK(attr.ev_event_mask == MRC_CTL_EV_ASSUMED_BAD);
	attr.ev_event_mask = MRC_CTL_EV_DENIED;
	CHECK(refused(mrc_ctl_modify_ev_profile(context, PROFILE, &attr, MRC_CTL_EV_PROFILE_EVENT_MASK), EINVAL));
	CHECK(!ev_state(context, MRC_CTL_PROFILE_OFFLINE) && !ev_state(context, MRC_CTL_PROFILE_INIT));
	CHECK(!format_state(context, MRC_CTL_PROFILE_OFFLINE) && !format_state(context, MRC_CTL_PROFILE_INIT));
}

static void generated(void)
{
	struct mrc_context *context = open_controller();
	struct mrc_ctl_ev_field fields[2] = {{.width = 16, .init_val = 0x100, .max_val = 255, .mask = 0xff},
					     {.width = 16, .max_val = 15, .mask = 0xf}};
	struct mrc_ctl_ev_profile_attr attr = {
		.profile_state = MRC_CTL_PROFILE_OFFLINE,
		.ev_mode = MRC_CTL_EV_MODE_GEN,
		.ev_fmt_profile_id = FORMAT,
		.ev_count = 64,
		.ev_min_active = 16,
		.ev_event_mask = MRC_CTL_EV_ASSUMED_BAD,
		.ev_fields_op = {.op = MRC_CTL_EV_FIELDS_OP_MODIFY_FIELDS, .fields = fields, .field_count = 2},
	};
	const int all = MRC_CTL_EV_PROFILE_STATE | MRC_CTL_EV_PROFILE_MODE | MRC_CTL_EV_PROFILE_FMT_ID |
			MRC_CTL_EV_PROFILE_COUNT | MRC_CTL_EV_PROFILE_MIN_ACTIVE | MRC_CTL_EV_PROFILE_EVENT_MASK;

	make_format(context);
	CHECK(!format_state(context, MRC_CTL_PROFILE_ONLINE));
	CHECK(refused(mrc_ctl_modify_ev_profile(context, PROFILE, &attr, all), EINVAL));
	CHECK(!mrc_ctl_modify_ev_profile(context, PROFILE, &attr, all | MRC_CTL_EV_PROFILE_EV_FIELDS_OP));
	CHECK(!ev_state(context, MRC_CTL_PROFILE_ONLINE));
	memset(fields, 0, sizeof(fields));
	attr.ev_fields_op.op = MRC_CTL_EV_FIELDS_OP_QUERY_FIELDS;
	attr.ev_fields_op.field_count = 1;
	CHECK(refused(mrc_ctl_query_ev_profile(context, PROFILE, &attr, MRC_CTL_EV_PROFILE_EV_FIELDS_OP), E2BIG));
	CHECK(attr.ev_fields_op.field_count == 2);
	CHECK(!mrc_ctl_query_ev_profile(context, PROFILE, &attr, all | MRC_CTL_EV_PROFILE_EV_FIELDS_OP));
	CHECK(fields[0].width == 16 && fields[0].init_val == 0x100 && fields[0].mask == 0xff && fields[0].max_val == 255);
	CHECK(fields[1].mask == 0xf && fields[1].max_val == 15 && attr.ev_mode == MRC_CTL_EV_MODE_GEN);
	/* A mask outside of its field. */
	fields[1].mask = 0x10000;
	attr.ev_fields_op.op = MRC_CTL_EV_FIELDS_OP_MODIFY_FIELDS;
	CHECK(refused(mrc_ctl_modify_ev_profile(context, PROFILE, &attr, MRC_CTL_EV_PROFILE_EV_FIELDS_OP), EINVAL));
}

static void congestion(void)
{
	struct mrc_context *context = open_controller();
	struct mrc_ctl_cc_nscc_cfg config, read;
	struct mrc_ctl_cc_profile_attr attr = {.cc_config = &config};
	const int both = MRC_CTL_CC_PROFILE_ALGORITHM | MRC_CTL_CC_PROFILE_CONFIG;

	/* The host's own configuration is a base. */
	CHECK(!mrc_ctl_query_cc_profile(context, 0, &attr, both | MRC_CTL_CC_PROFILE_STATE));
	CHECK(attr.profile_state == MRC_CTL_PROFILE_ONLINE && !strcmp(attr.algorithm, "uet-1.0-nscc"));
	CHECK(config.base_rtt == 3000000 && config.target_delay && config.max_cwnd);
	config.gamma = 0.75F;
	config.qa_gate = 5;
	config.target_delay = 123456;
	attr.profile_state = MRC_CTL_PROFILE_OFFLINE;
	CHECK(refused(mrc_ctl_modify_cc_profile(context, CONGESTION, &attr, MRC_CTL_CC_PROFILE_STATE), EINVAL));
	CHECK(!mrc_ctl_modify_cc_profile(context, CONGESTION, &attr, MRC_CTL_CC_PROFILE_ALGORITHM | MRC_CTL_CC_PROFILE_STATE));
	attr.profile_state = MRC_CTL_PROFILE_ONLINE;
	CHECK(refused(mrc_ctl_modify_cc_profile(context, CONGESTION, &attr, MRC_CTL_CC_PROFILE_STATE), EINVAL));
	CHECK(!mrc_ctl_modify_cc_profile(context, CONGESTION, &attr, MRC_CTL_CC_PROFILE_CONFIG | MRC_CTL_CC_PROFILE_STATE));
	memset(&read, 0, sizeof(read));
	attr = (struct mrc_ctl_cc_profile_attr){.cc_config = &read};
	CHECK(!mrc_ctl_query_cc_profile(context, CONGESTION, &attr, both | MRC_CTL_CC_PROFILE_CUR_STATE));
	CHECK(attr.cur_profile_state == MRC_CTL_PROFILE_ONLINE && !strcmp(attr.algorithm, "uet-1.0-nscc"));
	CHECK(read.disable_qa == config.disable_qa && read.adjust_bytes_threshold == config.adjust_bytes_threshold);
	CHECK(read.adjust_period_threshold == config.adjust_period_threshold && read.base_rtt == config.base_rtt);
	CHECK(read.eta == config.eta && read.fi == config.fi && read.fi_scale == config.fi_scale);
	CHECK(read.gamma == config.gamma && read.max_md_jump == config.max_md_jump && read.max_cwnd == config.max_cwnd);
	CHECK(read.qa_gate == 5 && read.qa_threshold == config.qa_threshold && read.target_delay == 123456);
	/* Nothing of it changes while it is ONLINE, and there is no other algorithm than none. */
	CHECK(refused(mrc_ctl_modify_cc_profile(context, CONGESTION, &attr, MRC_CTL_CC_PROFILE_CONFIG), EINVAL));
	attr.algorithm = "cubic";
	CHECK(refused(mrc_ctl_modify_cc_profile(context, CONGESTION + 1, &attr, MRC_CTL_CC_PROFILE_ALGORITHM), EINVAL));
	attr.algorithm = NULL;
	CHECK(!mrc_ctl_modify_cc_profile(context, CONGESTION + 1, &attr, MRC_CTL_CC_PROFILE_ALGORITHM));
	attr.algorithm = "x";
	CHECK(!mrc_ctl_query_cc_profile(context, CONGESTION + 1, &attr, MRC_CTL_CC_PROFILE_ALGORITHM) && !attr.algorithm);
}

/* -- use of profiles, events, probes ------------------------------------------------------------------------------- */

static void use_profile(struct end *end)
{
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct mrc_qp_attr more = {.profile = {.ev_profile_id = PROFILE}};

	CHECK(!mrc_modify_qp(end->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, &more,
			     MRC_QP_EV_PROFILE_ID));
}

static void connect_end(struct end *end, const struct end *to)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = to->number};

	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.dgid = to->gid;
	attr.ah_attr.grh.sgid_index = 3;
	CHECK(!mrc_modify_qp(end->qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, NULL, 0));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!mrc_modify_qp(end->qp, &attr,
			     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY, NULL, 0));
}

/* The test takes port 2 away once we are ready, and every EV of it becomes bad. */
static void events(void)
{
	struct mrc_context *context;
	struct end a = open_end(paths[0]), b = open_end(paths[1]);
	struct mrc_ctl_ev_event event[COUNT];
	struct mrc_comp_channel *channel;
	struct mrc_cq *queue, *found;
	bool seen[COUNT] = {false};
	struct ibv_wc wc[1];
	char line[8];
	void *user;
	int bad = 0;

	context = open_controller();
	make_explicit(context);
	CHECK(!mrc_create_comp_channel(context, &channel));
	queue = mrc_ctl_create_ev_event_cq(context, 64, &bad, channel, 0);
	CHECK(queue);
	CHECK(!mrc_req_notify_cq(queue, 0));
	CHECK(mrc_ctl_poll_ev_event(a.cq, 1, event) == -EINVAL);
	use_profile(&a);
	connect_end(&a, &b);
	{
		struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};

		CHECK(!mrc_modify_qp(b.qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
				     NULL, 0));
	}
	connect_end(&b, &a);
	CHECK(refused(ev_state(context, MRC_CTL_PROFILE_OFFLINE), EBUSY));
	CHECK(!post_write(&a, &b, a.qp, 1, 0, SIZE, IBV_SEND_SIGNALED, -1));
	poll_for(a.cq, 1, wc);
	CHECK(wc[0].status == IBV_WC_SUCCESS && mrc_ctl_poll_ev_event(queue, COUNT, event) == 0);
	printf("ready\n");
	fflush(stdout);
	CHECK(fgets(line, sizeof(line), stdin));
	while (bad < COUNT / PORTS) {
		int count;

		for (int i = 0; i < 16; i++)
			CHECK(!post_write(&a, &b, a.qp, 2, 0, 4096, 0, -1));
		CHECK(!post_write(&a, &b, a.qp, 3, 0, 4096, IBV_SEND_SIGNALED, -1));
		poll_for(a.cq, 1, wc);
		CHECK(wc[0].status == IBV_WC_SUCCESS);
		count = mrc_ctl_poll_ev_event(queue, COUNT, event);
		CHECK(count >= 0);
		for (int i = 0; i < count; i++) {
			uint32_t value;

			memcpy(&value, event[i].ev.val, sizeof(value));
			CHECK(event[i].profile_id == PROFILE && event[i].ev.port == 2 && !event[i].drop_count);
			CHECK(value - 0x10000 < COUNT && same(event[i].ev, nth(value - 0x10000)));
			CHECK(event[i].state == MRC_CTL_EV_ASSUMED_BAD || event[i].state == MRC_CTL_EV_GOOD);
			if (event[i].state == MRC_CTL_EV_ASSUMED_BAD && !seen[value - 0x10000]) {
				seen[value - 0x10000] = true;
				bad++;
			}
		}
		/* This many EVs stay in use at least, whatever is lost on them. */
		if (bad >= COUNT / PORTS - 2)
			break;
	}
	CHECK(!mrc_get_cq_event(channel, &found, &user) && found == queue && user == &bad);
	mrc_ack_cq_events(queue, 1);
	CHECK(!mrc_destroy_cq(queue) && !mrc_destroy_comp_channel(channel));
	close_end(&a);
	close_end(&b);
}

static void probes(void)
{
	struct mrc_context *context = open_controller();
	struct mrc_ctl_ep_req request[4] = {0};
	struct mrc_ctl_ep_rsp response[4];
	int count = -1;

	for (int i = 0; i < 4; i++) {
		request[i].req_id = (uint16_t)(100 + i);
		request[i].ev_fmt_mode = MRC_CTL_EV_FMT_MODE_STEV;
		request[i].req_ev = ev_of(0x40000 + (uint32_t)i, (uint8_t)(1 + i % PORTS));
		CHECK(inet_pton(AF_INET6, i < 2 ? "fd00::2" : "fd00::3", request[i].dgid.raw) == 1);
	}
	CHECK(!mrc_ctl_ep_batch_send_wait(context, 10, MRC_CTL_EP_OP_EV_PROBE, request, 2, 1000000000, response, &count));
	CHECK(count == 2);
	for (int i = 0; i < count; i++) {
		CHECK(response[i].req_id == 100 || response[i].req_id == 101);
		CHECK(response[i].port == request[response[i].req_id - 100].req_ev.port);
		CHECK(response[i].rtt > 0 && !response[i].adj_svc_time);
	}
	CHECK(response[0].req_id != response[1].req_id);
	/* No host has the other address. */
	CHECK(refused(mrc_ctl_ep_batch_send_wait(context, 0, MRC_CTL_EP_OP_EV_PROBE, request, 4, 100000000, response, &count),
		      ETIMEDOUT));
	CHECK(count == 2);
	CHECK(refused(mrc_ctl_ep_batch_send_wait(context, 0, MRC_CTL_EP_OP_PORT_STATUS_UPDATE, request, 1, 1, response, &count),
		      ENOTSUP));
	CHECK(refused(mrc_ctl_ep_batch_send_wait(context, 64, MRC_CTL_EP_OP_EV_PROBE, request, 1, 1, response, &count), EINVAL));
	request[1].req_id = 100;
	CHECK(refused(mrc_ctl_ep_batch_send_wait(context, 0, MRC_CTL_EP_OP_EV_PROBE, request, 2, 1, response, &count), EINVAL));
	request[0].req_ev.port = 3;
	CHECK(refused(mrc_ctl_ep_batch_send_wait(context, 0, MRC_CTL_EP_OP_EV_PROBE, request, 1, 1, response, &count), EINVAL));
	CHECK(!mrc_ctl_ep_batch_send_wait(context, 0, MRC_CTL_EP_OP_EV_PROBE, NULL, 0, 1, NULL, &count) && !count);
}

/* The test has closed the control socket to everybody. */
static void rights(void)
{
	struct mrc_context *context = open_controller();
	struct mrc_ctl_port_attr port;
	struct mrc_ctl_ev_profile_attr ev = {0};
	struct mrc_ctl_ep_req request = {0};
	struct mrc_ctl_ep_rsp response;
	int count;

	CHECK(refused(mrc_ctl_query_port(context, 1, &port, MRC_CTL_PORT_ADMIN_STATE), EPERM));
	CHECK(refused(mrc_ctl_query_ev_profile(context, PROFILE, &ev, MRC_CTL_EV_PROFILE_STATE), EPERM));
	CHECK(refused(mrc_ctl_ep_batch_send_wait(context, 0, MRC_CTL_EP_OP_EV_PROBE, &request, 1, 1, &response, &count), EPERM));
	CHECK(!mrc_ctl_create_ev_event_cq(context, 8, NULL, NULL, 0) && errno == EPERM);
}

int main(int count, char **words)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {{"device", device},       {"ports", ports},	   {"formats", formats}, {"explicits", explicits},
		     {"generated", generated}, {"congestion", congestion}, {"events", events},	 {"probes", probes},
		     {"rights", rights}};

	CHECK(count == 4);
	paths[0] = words[2];
	paths[1] = words[3];
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		if (!strcmp(cases[i].name, words[1])) {
			cases[i].run();
			close_controller();
			return 0;
		}
	fprintf(stderr, "no case %s\n", words[1]);
	return 2;
}
