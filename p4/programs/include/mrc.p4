/* MRC extension headers of WRITE packets (mrc-protocol.md section 3). */
#ifndef MRC_P4
#define MRC_P4

/* WRITE First, Middle, Last, Last with Immediate, Only, Only with Immediate: these and what is between. */
const bit<8> OPCODE_WRITE_FIRST = 0xc6;
const bit<8> OPCODE_WRITE_ONLY_IMM = 0xcb;

/* Message sequence numbers. */
header meth_t {
    bit<16> rqmsn;
    bit<16> msn;
}

/* Transmission timestamp, in units of 128 ns. */
header tseth_t {
    bit<16> tx_timestamp;
    bit<1>  response;
    bit<11> reserved;
    bit<4>  ftype;
}

/* Where the payload goes. */
header reth_t {
    bit<64> virtual_address;
    bit<32> remote_key;
    bit<32> dma_length;
}

#endif
