/*
 * The controller's interface of MRC, version 1.0.1: names, numbers and layouts of OCP's `mrc_ctl.h`, in words of our own.
 *
 * A controller manages the profiles, EVs and ports of one host. It needs the rights of the agent's control socket; without
 * them functions fail with EPERM. Functions that return `int` return 0, or -1 with errno, unless a comment says otherwise.
 * Ports count from 1. docs/reference/verbs.md says what each function does in the lab.
 */
#ifndef _MRC_CTL_API_H_
#define _MRC_CTL_API_H_

#include <infiniband/verbs.h>
#include <mrc.h>
#include <mrc_ctl_api_ver.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MRC_CTL_MAX_VENDOR_CFG_SIZE 128
#define MRC_CTL_EV_MAX_BYTES 32
/* A place of an EV array that has no EV yet. */
#define MRC_CTL_EV_UNPOPULATED ((struct mrc_ctl_ev){.val = {0}, .port = 0})

enum mrc_ctl_protocol_version { MRC_CTL_PROTOCOL_VERSION_0 = 0, MRC_CTL_PROTOCOL_VERSION_1 = 1 << 0 };

/* Every profile goes INIT, OFFLINE, ONLINE, OFFLINE, INIT. A profile that was never changed is in INIT. */
enum mrc_ctl_profile_state { MRC_CTL_PROFILE_INIT, MRC_CTL_PROFILE_OFFLINE, MRC_CTL_PROFILE_ONLINE };

/* -- the device --------------------------------------------------------------------------------------------------- */

/* What a device can do beyond the rest; bits of `opt_attr`. */
enum mrc_ctl_attr_opt {
	MRC_CTL_OPT_CAP_EV_PROFILE_MODIFY_ONLINE = 1 << 0,
	MRC_CTL_OPT_CAP_CC_PROFILE_MODIFY_ONLINE = 1 << 1,
	MRC_CTL_OPT_CAP_EV_EVENT = 1 << 2,
	MRC_CTL_OPT_CAP_EV_EXPLICIT_RANGE = 1 << 3,
	MRC_CTL_OPT_CAP_EV_EVENT_PRECISE_DROP_CNT = 1 << 4,
	MRC_CTL_OPT_CAP_EP_OP_EV_PROBE = 1 << 5
};

/* `ev_count_align`: counts of EVs are multiples of it. `ev_max_width`: bits of an EV. `ev_op_max_entries`: 0 is no limit.
 * `algorithms` ends with NULL and is the library's. `phy_port_mask` has bit N for port N. */
struct mrc_ctl_device_attr {
	uint32_t mrc_ctl_protocol_version;
	struct {
		uint32_t ev_max_fmt_profiles;
		uint32_t ev_max_profiles;
		uint32_t ev_max_count;
		uint32_t ev_free_count;
		uint32_t ev_max_count_profile;
		uint32_t ev_count_align;
		uint32_t ev_max_width;
		uint32_t ev_fmt_mode_mask;
		uint32_t ev_mode_mask;
		uint32_t ev_op_max_entries;
	} ev;
	struct {
		uint32_t cc_max_profiles;
		const char **algorithms;
	} cc;
	uint32_t phy_port_mask;
	uint32_t opt_attr;
};

/* `supported` is 0 where the device has no MRC. */
#if MRC_CTL_API_VER_USED >= MRC_CTL_API_VER(1, 0, 1)
int mrc_ctl_query_device_ex(struct ibv_context *context, struct mrc_context *mcontext,
			    struct mrc_ctl_device_attr *ctl_attr, int *supported);
#endif
int mrc_ctl_query_device(struct ibv_context *context, struct mrc_ctl_device_attr *ctl_attr);
void mrc_ctl_query_version(uint32_t *current_version, uint32_t *last_supported_version, uint32_t *vendor_version,
			   uint32_t *last_supported_vendor_version);

/* -- ports -------------------------------------------------------------------------------------------------------- */

enum mrc_ctl_port_admin_state { MRC_CTL_PORT_ADMIN_DISABLED = 0, MRC_CTL_PORT_ADMIN_ENABLED = 1 };

enum mrc_ctl_port_attr_mask { MRC_CTL_PORT_ADMIN_STATE = 1 << 0 };

struct mrc_ctl_port_attr {
	enum mrc_ctl_port_admin_state port_admin_state;
};

int mrc_ctl_query_port(struct mrc_context *context, uint8_t port_num, struct mrc_ctl_port_attr *attr, int attr_mask);
int mrc_ctl_modify_port(struct mrc_context *context, uint8_t port_num, struct mrc_ctl_port_attr *attr, int attr_mask);

/* -- EV format profiles ------------------------------------------------------------------------------------------- */

enum mrc_ctl_ev_fmt_mode {
	MRC_CTL_EV_FMT_MODE_STEV = 1 << 0,
	MRC_CTL_EV_FMT_MODE_SRV6 = 1 << 1,
	MRC_CTL_EV_FMT_MODE_UDP = 1 << 2
};

enum mrc_ctl_ev_fmt_op { MRC_CTL_EV_FMT_OP_MODIFY_FIELDS, MRC_CTL_EV_FMT_OP_QUERY_FIELDS };

enum mrc_ctl_ev_fmt_profile_attr_mask {
	MRC_CTL_EV_FMT_PROFILE_STATE = 1 << 0,
	MRC_CTL_EV_FMT_PROFILE_CUR_STATE = 1 << 1,
	MRC_CTL_EV_FMT_PROFILE_MODE = 1 << 2,
	MRC_CTL_EV_FMT_PROFILE_OP = 1 << 3,
	MRC_CTL_EV_FMT_VENDOR_CFG = 1 << 31
};

/* In bits. */
struct mrc_ctl_ev_fmt_field {
	uint8_t width;
};

/* `fmt_field_count` is the room of an array, and after a query how many there are. */
struct mrc_ctl_ev_fmt_profile_attr {
	enum mrc_ctl_profile_state profile_state;
	enum mrc_ctl_profile_state cur_profile_state;
	enum mrc_ctl_ev_fmt_mode ev_fmt_mode;
	struct {
		enum mrc_ctl_ev_fmt_op op;
		struct mrc_ctl_ev_fmt_field *fmt_fields;
		int fmt_field_count;
	} ev_fmt_op;
	uint8_t vendor_cfg[MRC_CTL_MAX_VENDOR_CFG_SIZE];
};

/* EBUSY: an EV profile that uses it is ONLINE. E2BIG: the fields are wider than the format, or the array is too short. */
int mrc_ctl_modify_ev_fmt_profile(struct mrc_context *mrc_ctx, uint64_t ev_fmt_profile_id,
				  struct mrc_ctl_ev_fmt_profile_attr *attr, int attr_mask);
int mrc_ctl_query_ev_fmt_profile(struct mrc_context *mrc_ctx, uint64_t ev_fmt_profile_id,
				 struct mrc_ctl_ev_fmt_profile_attr *attr, int attr_mask);

/* -- EV profiles -------------------------------------------------------------------------------------------------- */

/* A number in the machine's order of bytes, in the first four. */
typedef uint8_t mrc_ctl_ev_t[MRC_CTL_EV_MAX_BYTES];

struct mrc_ctl_ev {
	mrc_ctl_ev_t val;
	uint8_t port;
};

enum mrc_ctl_ev_state {
	MRC_CTL_EV_GOOD = 1 << 0,
	MRC_CTL_EV_ASSUMED_BAD = 1 << 1,
	MRC_CTL_EV_DENIED = 1 << 2,
	MRC_CTL_EV_UNKNOWN = 1 << 31
};

/* Made by the device, listed by the controller, or generated from fields. */
enum mrc_ctl_ev_mode { MRC_CTL_EV_MODE_AUTO = 1 << 0, MRC_CTL_EV_MODE_EXP = 1 << 1, MRC_CTL_EV_MODE_GEN = 1 << 2 };

enum mrc_ctl_ev_op {
	MRC_CTL_EV_OP_REPLACE_EV,
	MRC_CTL_EV_OP_MODIFY_EV_STATE,
	MRC_CTL_EV_OP_QUERY_EV_STATE,
	MRC_CTL_EV_OP_QUERY_EV_ARRAY
};

enum mrc_ctl_ev_fields_op { MRC_CTL_EV_FIELDS_OP_MODIFY_FIELDS, MRC_CTL_EV_FIELDS_OP_QUERY_FIELDS };

enum mrc_ctl_ev_profile_attr_mask {
	MRC_CTL_EV_PROFILE_STATE = 1 << 0,
	MRC_CTL_EV_PROFILE_CUR_STATE = 1 << 1,
	MRC_CTL_EV_PROFILE_MODE = 1 << 2,
	MRC_CTL_EV_PROFILE_FMT_ID = 1 << 3,
	MRC_CTL_EV_PROFILE_COUNT = 1 << 4,
	MRC_CTL_EV_PROFILE_MIN_ACTIVE = 1 << 5,
	MRC_CTL_EV_PROFILE_EVENT_MASK = 1 << 6,
	MRC_CTL_EV_PROFILE_EV_OP = 1 << 7,
	MRC_CTL_EV_PROFILE_EV_FIELDS_OP = 1 << 8,
	MRC_CTL_EV_PROFILE_VENDOR_CFG = 1 << 31
};

/* `mask`: the bits of the field that come from the EV, most significant first; the others are those of `init_val`.
 * `min_val`, `max_val`: bounds of what is generated for them. */
struct mrc_ctl_ev_field {
	uint32_t width;
	uint32_t init_val;
	uint32_t min_val;
	uint32_t max_val;
	uint32_t mask;
};

/* For REPLACE_EV: every place that has the EV, instead of one. */
enum mrc_ctl_ev_op_flags { MRC_CTL_EV_OP_F_ALL_COPIES = 1 << 0 };

/* `ev_new` and `flags` are of REPLACE_EV. Queries fill in `state`, and QUERY_EV_ARRAY `ev`, too. */
struct mrc_ctl_ev_op_entry {
	struct mrc_ctl_ev ev;
	struct mrc_ctl_ev ev_new;
	enum mrc_ctl_ev_state state;
	uint32_t flags;
};

/* `ev_min_active`: the least number of EVs that stay in use, however many seem bad. `ev_event_mask`: the states (GOOD,
 * ASSUMED_BAD) whose begin is an event. `entry_count` and `field_count` are the rooms of arrays, and after a query how
 * many there are. */
struct mrc_ctl_ev_profile_attr {
	enum mrc_ctl_profile_state profile_state;
	enum mrc_ctl_profile_state cur_profile_state;
	enum mrc_ctl_ev_mode ev_mode;
	uint64_t ev_fmt_profile_id;
	uint32_t ev_count;
	uint32_t ev_min_active;
	int ev_event_mask;
	struct {
		enum mrc_ctl_ev_op op;
		struct mrc_ctl_ev_op_entry *entries;
		int entry_count;
	} ev_op;
	struct {
		enum mrc_ctl_ev_fields_op op;
		struct mrc_ctl_ev_field *fields;
		int field_count;
	} ev_fields_op;
	uint8_t vendor_cfg[MRC_CTL_MAX_VENDOR_CFG_SIZE];
};

/* Operations on EVs and on fields exclude each other. The first entry that fails ends the operation; those before it have
 * been carried out. ENOENT: no such EV. E2BIG: the array is too short, and its count now says what is needed. EBUSY: a
 * queue pair uses the profile. */
int mrc_ctl_modify_ev_profile(struct mrc_context *mrc_ctx, uint64_t ev_profile_id, struct mrc_ctl_ev_profile_attr *attr,
			      int attr_mask);
int mrc_ctl_query_ev_profile(struct mrc_context *mrc_ctx, uint64_t ev_profile_id, struct mrc_ctl_ev_profile_attr *attr,
			     int attr_mask);

/* -- congestion control profiles ---------------------------------------------------------------------------------- */

enum mrc_ctl_cc_profile_attr_mask {
	MRC_CTL_CC_PROFILE_STATE = 1 << 0,
	MRC_CTL_CC_PROFILE_CUR_STATE = 1 << 1,
	MRC_CTL_CC_PROFILE_ALGORITHM = 1 << 2,
	MRC_CTL_CC_PROFILE_CONFIG = 1 << 3,
	MRC_CTL_CC_PROFILE_VENDOR_CFG = 1 << 31
};

/* `algorithm`: one of the device's, or NULL for none. `cc_config`: its configuration, which a query fills in. */
struct mrc_ctl_cc_profile_attr {
	enum mrc_ctl_profile_state profile_state;
	enum mrc_ctl_profile_state cur_profile_state;
	const char *algorithm;
	const void *cc_config;
	uint8_t vendor_cfg[MRC_CTL_MAX_VENDOR_CFG_SIZE];
};

/* The configuration of "uet-1.0-nscc", in bytes and nanoseconds. */
struct mrc_ctl_cc_nscc_cfg {
	uint8_t disable_qa;
	uint32_t adjust_bytes_threshold;
	uint32_t adjust_period_threshold;
	uint32_t base_rtt;
	float eta;
	float fi;
	float fi_scale;
	float gamma;
	float max_md_jump;
	uint32_t max_cwnd;
	uint8_t qa_gate;
	uint32_t qa_threshold;
	uint32_t target_delay;
};

/* EBUSY: a queue pair uses the profile. */
int mrc_ctl_modify_cc_profile(struct mrc_context *mrc_ctx, uint64_t cc_profile_id, struct mrc_ctl_cc_profile_attr *attr,
			      int attr_mask);
int mrc_ctl_query_cc_profile(struct mrc_context *mrc_ctx, uint64_t cc_profile_id, struct mrc_ctl_cc_profile_attr *attr,
			     int attr_mask);

/* -- events of EVs ------------------------------------------------------------------------------------------------ */

/* `drop_count`: events that found no room since the event before. Programs of version 1.0.0 have no `state`. */
struct mrc_ctl_ev_event {
	uint64_t profile_id;
	struct mrc_ctl_ev ev;
	uint32_t drop_count;
#if MRC_CTL_API_VER_USED >= MRC_CTL_API_VER(1, 0, 1)
	enum mrc_ctl_ev_state state;
#endif
};

/* A queue of changes of EVs, which never overruns. NULL with errno on failure; `mrc_destroy_cq` ends it. */
struct mrc_cq *mrc_ctl_create_ev_event_cq(struct mrc_context *mrc_ctx, int cqe, void *cq_context,
					  struct mrc_comp_channel *channel, int comp_vector);
/* Returns how many events there were, at most `num_entries`, or a negative errno. */
int mrc_ctl_poll_ev_event(struct mrc_cq *ev_cq, int num_entries, struct mrc_ctl_ev_event *ev_event);

/* -- operations towards endpoints --------------------------------------------------------------------------------- */

enum mrc_ctl_ep_op_type { MRC_CTL_EP_OP_EV_PROBE, MRC_CTL_EP_OP_PORT_STATUS_UPDATE };

/* `req_id` differs within a batch. `port_status`: a bit for every port, from bit 1. */
struct mrc_ctl_ep_req {
	uint16_t req_id;
	union ibv_gid sgid;
	union ibv_gid dgid;
	enum mrc_ctl_ev_fmt_mode ev_fmt_mode;
	struct mrc_ctl_ev req_ev;
	union {
		struct {
			uint32_t port_status;
		} port_status_update;
	} op;
};

/* `port`: where the response came in. `rtt` in nanoseconds; `adj_svc_time`: without the responder's own time. */
struct mrc_ctl_ep_rsp {
	uint16_t req_id;
	uint8_t port;
	unsigned int rtt;
	uint8_t adj_svc_time;
};

/* Send operations of one type, in the class `req_tc` (a DSCP), and wait for the responses, in the order of arrival.
 * ETIMEDOUT: not all have come in `rsp_timeout` ns; those that have are in `rsp`. */
int mrc_ctl_ep_batch_send_wait(struct mrc_context *mrc_ctx, uint8_t req_tc, enum mrc_ctl_ep_op_type op_type,
			       struct mrc_ctl_ep_req *req, int num_req, uint32_t rsp_timeout, struct mrc_ctl_ep_rsp *rsp,
			       int *num_rsp);

#ifdef __cplusplus
}
#endif

#endif
