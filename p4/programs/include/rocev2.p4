/* RoCEv2: the base transport header, with MRC's `rtx` and `ts` bits (mrc-protocol.md section 3). */
#ifndef ROCEV2_P4
#define ROCEV2_P4

#ifndef ROCEV2_PORT
#define ROCEV2_PORT 4791
#endif

header bth_t {
    bit<8>  opcode;
    bit<1>  solicited;
    bit<1>  migrated;
    bit<2>  pad_count;
    bit<4>  version;
    bit<16> partition_key;
    bit<8>  reserved8a;
    bit<24> dest_qp;
    bit<1>  ack_request;
    bit<1>  reserved_r;
    bit<1>  retransmission;
    bit<1>  timestamp;      // a TSETH follows
    bit<4>  reserved7;
    bit<24> psn;
}

#endif
