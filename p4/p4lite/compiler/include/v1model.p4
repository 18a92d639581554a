// The v1model architecture of BMv2's simple_switch: what a program may use of it.
// V1MODEL_VERSION, defined before the include, selects the version of the architecture by date: from 20200408 on,
// indices of counters, meters and registers have a type of their own and PortId_t exists.
#ifndef _V1_MODEL_P4_
#define _V1_MODEL_P4_

#include "core.p4"

#ifndef V1MODEL_VERSION
#define V1MODEL_VERSION 20180101
#endif

#if V1MODEL_VERSION != 20180101 && V1MODEL_VERSION != 20200408
#error V1MODEL_VERSION must be 20180101 or 20200408
#endif

#if V1MODEL_VERSION >= 20200408
#define _V1_INDEX_PARAMETER <I>
#define _V1_REGISTER_PARAMETERS <T, I>
#define _V1_INDEX I
#define _V1_PORT PortId_t
#else
#define _V1_INDEX_PARAMETER
#define _V1_REGISTER_PARAMETERS <T>
#define _V1_INDEX bit<32>
#define _V1_PORT bit<9>
#endif

match_kind {
    range,
    optional,
    selector
}

const bit<32> __v1model_version = V1MODEL_VERSION;

#if V1MODEL_VERSION >= 20200408
typedef bit<9> PortId_t;
#endif

@metadata @name("standard_metadata")
struct standard_metadata_t {
    _V1_PORT ingress_port;
    _V1_PORT egress_spec;
    _V1_PORT egress_port;
    bit<32>  instance_type;
    bit<32>  packet_length;
    @alias("queueing_metadata.enq_timestamp")             bit<32> enq_timestamp;
    @alias("queueing_metadata.enq_qdepth")                bit<19> enq_qdepth;
    @alias("queueing_metadata.deq_timedelta")             bit<32> deq_timedelta;
    @alias("queueing_metadata.deq_qdepth")                bit<19> deq_qdepth;
    @alias("intrinsic_metadata.ingress_global_timestamp") bit<48> ingress_global_timestamp;
    @alias("intrinsic_metadata.egress_global_timestamp")  bit<48> egress_global_timestamp;
    @alias("intrinsic_metadata.mcast_grp")                bit<16> mcast_grp;
    @alias("intrinsic_metadata.egress_rid")               bit<16> egress_rid;
    bit<1>   checksum_error;
    error    parser_error;
    @alias("intrinsic_metadata.priority")                 bit<3>  priority;
}

enum CounterType { packets, bytes, packets_and_bytes }
enum MeterType { packets, bytes }
enum HashAlgorithm { crc32, crc32_custom, crc16, crc16_custom, random, identity, csum16, xor16 }
enum CloneType { I2E, E2E }

#define V1MODEL_METER_COLOR_GREEN  0
#define V1MODEL_METER_COLOR_YELLOW 1
#define V1MODEL_METER_COLOR_RED    2

// Stateful objects.

extern counter _V1_INDEX_PARAMETER {
    counter(bit<32> size, CounterType type);
    void count(in _V1_INDEX index);
}

extern direct_counter {
    direct_counter(CounterType type);
    void count();
}

extern meter _V1_INDEX_PARAMETER {
    meter(bit<32> size, MeterType type);
    void execute_meter<T>(in _V1_INDEX index, out T result);
}

extern direct_meter<T> {
    direct_meter(MeterType type);
    void read(out T result);
}

extern register _V1_REGISTER_PARAMETERS {
    register(bit<32> size);
    @noSideEffects
    void read(out T result, in _V1_INDEX index);
    void write(in _V1_INDEX index, in T value);
}

extern action_profile {
    action_profile(bit<32> size);
}

extern action_selector {
    action_selector(HashAlgorithm algorithm, bit<32> size, bit<32> outputWidth);
}

// What happens to the packet.

@deprecated("Please use mark_to_drop(standard_metadata) instead: p4c refuses this form")
extern void mark_to_drop();
@pure
extern void mark_to_drop(inout standard_metadata_t standard_metadata);

extern void clone(in CloneType type, in bit<32> session);
@deprecated("Please use 'clone_preserving_field_list' instead")
extern void clone3<T>(in CloneType type, in bit<32> session, in T data);
extern void clone_preserving_field_list(in CloneType type, in bit<32> session, bit<8> index);

@deprecated("Please use 'resubmit_preserving_field_list' instead")
extern void resubmit<T>(in T data);
extern void resubmit_preserving_field_list(bit<8> index);

@deprecated("Please use 'recirculate_preserving_field_list' instead")
extern void recirculate<T>(in T data);
extern void recirculate_preserving_field_list(bit<8> index);

extern void truncate(in bit<32> length);

// Values, checksums, messages.

extern void random<T>(out T result, in T lo, in T hi);
extern void digest<T>(in bit<32> receiver, in T data);
@pure
extern void hash<O, T, D, M>(out O result, in HashAlgorithm algo, in T base, in D data, in M max);

@deprecated("Please use verify_checksum/update_checksum instead.")
extern Checksum16 {
    Checksum16();
    bit<16> get<D>(in D data);
}

extern void verify_checksum<T, O>(in bool condition, in T data, in O checksum, HashAlgorithm algo);
@pure
extern void update_checksum<T, O>(in bool condition, in T data, inout O checksum, HashAlgorithm algo);
extern void verify_checksum_with_payload<T, O>(in bool condition, in T data, in O checksum, HashAlgorithm algo);
@noSideEffects
extern void update_checksum_with_payload<T, O>(in bool condition, in T data, inout O checksum, HashAlgorithm algo);

extern void assert(in bool check);
extern void assume(in bool check);
extern void log_msg(string msg);
extern void log_msg<T>(string msg, in T data);

// The programmable blocks.

parser Parser<H, M>(packet_in b,
                    out H parsedHdr,
                    inout M meta,
                    inout standard_metadata_t standard_metadata);
control VerifyChecksum<H, M>(inout H hdr, inout M meta);
@pipeline
control Ingress<H, M>(inout H hdr, inout M meta, inout standard_metadata_t standard_metadata);
@pipeline
control Egress<H, M>(inout H hdr, inout M meta, inout standard_metadata_t standard_metadata);
control ComputeChecksum<H, M>(inout H hdr, inout M meta);
@deparser
control Deparser<H>(packet_out b, in H hdr);

package V1Switch<H, M>(Parser<H, M> p,
                       VerifyChecksum<H, M> vr,
                       Ingress<H, M> ig,
                       Egress<H, M> eg,
                       ComputeChecksum<H, M> ck,
                       Deparser<H> dep);

#endif
