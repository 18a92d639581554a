/* UDP. */
#ifndef UDP_P4
#define UDP_P4

header udp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> length;
    bit<16> checksum;
}

#endif
