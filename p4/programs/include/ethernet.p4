/* Ethernet II. */
#ifndef ETHERNET_P4
#define ETHERNET_P4

const bit<16> ETHERTYPE_IPV6 = 0x86dd;

header ethernet_t {
    bit<48> dst_addr;
    bit<48> src_addr;
    bit<16> ether_type;
}

#endif
