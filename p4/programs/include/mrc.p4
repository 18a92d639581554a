/* MRC extension headers of WRITE packets (mrc-protocol.md section 3). */
#ifndef MRC_P4
#define MRC_P4

const bit<8> OPCODE_WRITE_FIRST = 0xc6;
const bit<8> OPCODE_WRITE_MIDDLE = 0xc7;
const bit<8> OPCODE_WRITE_LAST = 0xc8;
const bit<8> OPCODE_WRITE_LAST_IMM = 0xc9;
const bit<8> OPCODE_WRITE_ONLY = 0xca;
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
