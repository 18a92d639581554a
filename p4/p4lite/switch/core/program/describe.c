/* The structures and enumerations of a program object that its control operations share with Python. */
#include "describe.h"
#include "instance.h"

#define HOST(f) P4_FIELD(p4_host, f)
#define CONFIG(f) P4_FIELD(p4_config, f)
#define FAULT(f) P4_FIELD(p4_faults, f)
#define PROGRAM(f) P4_FIELD(p4_program, f)
#define PHV(f) P4_FIELD(p4_phv, f)
#define VIEW(f) P4_FIELD(p4_entry_view, f)
#define TARGET_FIELD(n) P4_CONSTANT(p4_field_id, P4F_, n),

static const struct p4_described rows[] = {
    P4_STRUCT(p4_host), HOST(context), HOST(log_msg), HOST(assert_failed),
    P4_STRUCT(p4_config), P4_NESTED(p4_config, host, p4_host), CONFIG(lock), CONFIG(seed), CONFIG(drop_port),
    P4_STRUCT(p4_faults), FAULT(register_index), FAULT(counter_index), FAULT(meter_index), FAULT(stack_index),
    FAULT(division), FAULT(hash_zero), FAULT(random_range), FAULT(assertion), FAULT(parser_loop), FAULT(no_member),
    P4_STRUCT(p4_field), P4_FIELD(p4_field, offset), P4_FIELD(p4_field, size), P4_FIELD(p4_field, width),
    P4_STRUCT(p4_program), PROGRAM(abi), PROGRAM(phv_size), PROGRAM(max_header_bytes), PROGRAM(queueing_metadata),
    PROGRAM(payload_checksums), PROGRAM(name), P4_NESTED(p4_program, fields, p4_field), PROGRAM(create), PROGRAM(destroy), PROGRAM(restart),
    PROGRAM(phv_init), PROGRAM(phv_reset), PROGRAM(phv_copy), PROGRAM(reset_metadata), PROGRAM(parse),
    PROGRAM(ingress), PROGRAM(egress), PROGRAM(header_length), PROGRAM(deparse), PROGRAM(copy_field_list),
    PROGRAM(digest),
    P4_STRUCT(p4_phv), PHV(packet_length), PHV(ingress_length), PHV(payload_offset), PHV(parser_error),
    PHV(clone_session), PHV(clone_field_list), PHV(digest), PHV(resubmit), PHV(recirculate), PHV(truncate_to),
    PHV(checksum_error), PHV(exit), P4_ARRAY(p4_phv, reserved),
    P4_STRUCT(p4_counter), P4_FIELD(p4_counter, packets), P4_FIELD(p4_counter, bytes),
    P4_STRUCT(p4_entry_view), VIEW(order), VIEW(hit_ns), VIEW(timeout_ns), VIEW(now_ns), VIEW(packets), VIEW(bytes),
    VIEW(kind), VIEW(number), VIEW(is_const),
    P4_CONSTANT(p4_status, P4_, NOT_FOUND), P4_CONSTANT(p4_status, P4_, EXISTS), P4_CONSTANT(p4_status, P4_, FULL),
    P4_CONSTANT(p4_status, P4_, CONST), P4_CONSTANT(p4_status, P4_, INVALID), P4_CONSTANT(p4_status, P4_, NO_MEMORY),
    P4_CONSTANT(p4_ref_kind, P4_REF_, NONE), P4_CONSTANT(p4_ref_kind, P4_REF_, ACTION),
    P4_CONSTANT(p4_ref_kind, P4_REF_, MEMBER), P4_CONSTANT(p4_ref_kind, P4_REF_, GROUP),
    P4_TARGET_FIELDS(TARGET_FIELD)
    P4_CONSTANT(p4_constant, P4_, CLONE_VALID), P4_CONSTANT(p4_constant, P4_, CLONE_MASK),
    P4_CONSTANT(p4_constant, P4_, NO_TRUNCATE), P4_CONSTANT(p4_constant, P4LITE_, ABI),
};

static const struct p4_description description = {rows, sizeof rows / sizeof rows[0]};

P4_EXPORT const struct p4_description *p4lite_description(void);
P4_EXPORT const struct p4_description *p4lite_description(void)
{
    return &description;
}
